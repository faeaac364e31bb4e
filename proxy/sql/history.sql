-- Sessions, turns and deliveries. Every statement names the agent, the member and the project it is about.

-- name: begin_session
INSERT INTO sessions (agent, member, project, session_id, title)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (agent, member, project, session_id) DO UPDATE SET updated_at = now()
RETURNING context;

-- name: begin_turn
INSERT INTO turns (turn_id, agent, member, project, session_id, origin, state, user_text, service, created_at)
VALUES ($1, $2, $3, $4, $5, 'member', 'running', $6, $7, $8)
ON CONFLICT (turn_id) DO NOTHING;

-- name: end_turn
UPDATE turns
SET state = $2, answer = $3, error_code = $4, error_message = $5, ended_at = now()
WHERE turn_id = $1;

-- name: add_delivery
INSERT INTO deliveries (turn_id, position, state, name, path, size, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (turn_id, position) DO NOTHING;

-- name: end_session_turn
UPDATE sessions
SET updated_at = now(), context = coalesce($6, context), first_exchange = coalesce(first_exchange, $5)
WHERE agent = $1 AND member = $2 AND project = $3 AND session_id = $4;

-- name: session_by_first_exchange
SELECT session_id
FROM sessions
WHERE agent = $1 AND member = $2 AND project = $3 AND first_exchange = $4
ORDER BY updated_at DESC
LIMIT 1;

-- name: turns_of_session
SELECT turn_id, origin, state, user_text, answer, error_code, error_message, created_at, ended_at
FROM turns
WHERE agent = $1 AND member = $2 AND project = $3 AND session_id = $4
    AND ($5::text IS NULL OR (created_at, turn_id) < (
        SELECT edge.created_at, edge.turn_id
        FROM turns AS edge
        WHERE edge.turn_id = $5 AND edge.agent = $1 AND edge.member = $2 AND edge.project = $3
            AND edge.session_id = $4
    ))
ORDER BY created_at DESC, turn_id DESC
LIMIT $6;

-- name: deliveries_of_turns
SELECT turn_id, state, name, path, size, reason
FROM deliveries
WHERE turn_id = ANY($1::text[])
ORDER BY turn_id, position;

-- name: interrupt_own_turns
UPDATE turns
SET state = 'interrupted', error_code = 'interrupted',
    error_message = 'The service was restarted while this turn ran.', ended_at = now()
WHERE service = $1 AND state = 'running';

-- name: turn_of_member
SELECT true FROM turns WHERE turn_id = $1 AND member = $2;

-- name: sessions_of_member
SELECT session_id, title, created_at, updated_at, (
    SELECT count(*)
    FROM turns
    WHERE turns.agent = sessions.agent AND turns.member = sessions.member
        AND turns.project = sessions.project AND turns.session_id = sessions.session_id
) AS turns
FROM sessions
WHERE agent = $1 AND member = $2 AND project = $3
    AND ($4::timestamptz IS NULL OR (updated_at, session_id) < ($4, $5))
ORDER BY updated_at DESC, session_id DESC
LIMIT $6;

-- name: rename_session
UPDATE sessions SET title = $5
WHERE agent = $1 AND member = $2 AND project = $3 AND session_id = $4
RETURNING session_id;

-- name: delete_session
DELETE FROM sessions
WHERE agent = $1 AND member = $2 AND project = $3 AND session_id = $4
RETURNING session_id;
