-- Project rows. Every statement names the owner or the id it is about.

-- name: lock_owner
SELECT pg_advisory_xact_lock(hashtextextended('projects of ' || $1, 0));

-- name: count_of_owner
SELECT count(*) FROM projects WHERE owner = $1;

-- name: ids_like
SELECT id FROM projects WHERE id = $1 OR id LIKE $2;

-- name: insert_project
INSERT INTO projects (id, agent, owner, name, name_key, instructions)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING id, agent, owner, name, instructions, mode::text AS mode, path, created_at;

-- name: project_by_id
SELECT id, agent, owner, name, instructions, mode::text AS mode, path, created_at
FROM projects
WHERE id = $1;

-- name: projects_of_owner
SELECT id, agent, owner, name, instructions, mode::text AS mode, path, created_at
FROM projects
WHERE owner = $1
ORDER BY created_at, id;

-- name: update_project
UPDATE projects
SET name = coalesce($3, name), name_key = coalesce($4, name_key), instructions = coalesce($5, instructions)
WHERE id = $1 AND owner = $2
RETURNING id, agent, owner, name, instructions, mode::text AS mode, path, created_at;

-- name: delete_project
DELETE FROM projects WHERE id = $1 AND owner = $2 RETURNING id;

-- name: delete_sessions_of_project
DELETE FROM sessions WHERE project = $1;
