-- Every statement that touches a project has its filter.

-- name: lock_project
-- One attach at a time for a project; held to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('index of ' || $1, 0))

-- name: add_generation
INSERT INTO generations (project, scope, report) VALUES ($1, $2, $3) RETURNING id

-- name: carry_vectors
UPDATE chunks SET embedding = old.embedding, embedding_model = old.embedding_model
FROM chunks old
JOIN generations ON generations.id = old.generation AND generations.current
WHERE chunks.generation = $1 AND chunks.project = $2 AND chunks.scope = $3
  AND generations.project = $2 AND generations.scope = $3
  AND old.chunk_id = chunks.chunk_id AND old.embedding IS NOT NULL

-- name: drop_generations
-- The current one, and what an interrupted build may have left.
DELETE FROM generations WHERE project = $1 AND scope = $2 AND id <> $3

-- name: make_current
UPDATE generations SET current = true WHERE id = $1 AND project = $2

-- name: detach
DELETE FROM generations WHERE project = $1 AND scope = $2 RETURNING current

-- name: current_generations
SELECT id, scope, report ->> 'folder_name' AS folder_name,
       (SELECT count(*) FROM chunks WHERE chunks.generation = generations.id AND embedding IS NULL) AS without_vector
FROM generations
WHERE project = $1 AND scope = ANY ($2::chunk_scope[]) AND current
ORDER BY scope

-- name: generation_terms
SELECT terms, language, coalesce(source_path, session_id) AS source
FROM chunks WHERE project = $1 AND generation = $2 ORDER BY ordinal

-- name: chunks_by_ordinal
SELECT generation, ordinal, chunk_id, scope, source_path, start_line, end_line, session_id, event_id, title,
       heading_path, content
FROM chunks
JOIN unnest($2::bigint[], $3::integer[]) AS wanted (generation, ordinal) USING (generation, ordinal)
WHERE project = $1

-- name: attached
SELECT generations.id, report, max(chunks.created_at) AS attached_at
FROM generations JOIN chunks ON chunks.generation = generations.id
WHERE generations.project = $1 AND generations.scope = 'local' AND generations.current
GROUP BY generations.id

-- name: attached_files
SELECT source_path, count(*) AS chunks, count(*) FILTER (WHERE embedding IS NULL) AS without_vector
FROM chunks WHERE project = $1 AND generation = $2
GROUP BY source_path

-- name: coverage
SELECT generations.report ->> 'folder_name' AS folder_name,
       (SELECT count(*) FROM jsonb_array_elements(report -> 'files') AS file
        WHERE file ->> 'reason' IS NULL) AS files_indexed,
       (SELECT count(*) FROM jsonb_array_elements(report -> 'files') AS file
        WHERE file ->> 'reason' IS NOT NULL) AS partial,
       (SELECT coalesce(jsonb_object_agg(reason, files), '{}')
        FROM (SELECT skip ->> 'reason' AS reason, sum((skip ->> 'files')::integer) AS files
              FROM jsonb_array_elements(report -> 'skipped') AS skip GROUP BY 1) AS reasons) AS skipped,
       (SELECT max(created_at) FROM chunks WHERE generation = generations.id) AS last_attached_at,
       (SELECT count(*) FROM chunks WHERE generation = generations.id) AS chunks,
       (SELECT count(*) FROM chunks WHERE generation = generations.id AND embedding IS NULL) AS without_vector
FROM generations
WHERE project = $1 AND scope = 'local' AND current
