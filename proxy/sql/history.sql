-- Sessions, turns and deliveries. Every statement names the agent, the member and the project it is about.

-- name: write_turn
-- The session, the turn and its deliveries as they are now: at the turn's beginning, and again whole at its end.
WITH session AS (
    INSERT INTO sessions (agent, member, project, session_id, title, first_exchange, context)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (agent, member, project, session_id) DO UPDATE
    SET updated_at = now(), context = coalesce(excluded.context, sessions.context),
        first_exchange = coalesce(sessions.first_exchange, excluded.first_exchange)
), turn AS (
    INSERT INTO turns (
        agent, member, project, session_id, turn_id, origin, state, user_text, answer, error_code, error_message,
        service, created_at, ended_at
    )
    VALUES ($1, $2, $3, $4, $8, $9, $10, $11, $12, $13, $14, $15, $16, CASE WHEN $10 <> 'running' THEN now() END)
    ON CONFLICT (turn_id) DO UPDATE
    SET state = excluded.state, answer = excluded.answer, error_code = excluded.error_code,
        error_message = excluded.error_message, ended_at = excluded.ended_at
    -- A state of the running turn that is written late does not undo its end.
    WHERE turns.state = 'running' OR excluded.state <> 'running'
)
INSERT INTO deliveries (turn_id, position, state, name, path, size, reason)
SELECT $8, position - 1, state, name, path, size, reason
FROM unnest($17::text[], $18::text[], $19::text[], $20::bigint[], $21::text[])
    WITH ORDINALITY AS delivery (state, name, path, size, reason, position)
ON CONFLICT (turn_id, position) DO NOTHING;

-- name: context_of_session
SELECT context FROM sessions WHERE agent = $1 AND member = $2 AND project = $3 AND session_id = $4;

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
