-- Conversations: sessions, their turns, and the files that a turn delivered.

CREATE TABLE sessions (
    agent          text NOT NULL,
    member         text NOT NULL,
    project        text NOT NULL DEFAULT 'main',
    session_id     text NOT NULL,
    title          text NOT NULL DEFAULT '',
    first_exchange text,            -- hex digest of how the conversation began; finds it for clients without an id
    context        text,            -- digest of the context that the agent was last told in this session
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent, member, project, session_id)
);

CREATE INDEX sessions_recent ON sessions (agent, member, project, updated_at DESC, session_id);
CREATE INDEX sessions_first_exchange ON sessions (agent, member, project, first_exchange)
    WHERE first_exchange IS NOT NULL;

CREATE TABLE turns (
    turn_id       text PRIMARY KEY,
    agent         text NOT NULL,
    member        text NOT NULL,
    project       text NOT NULL,
    session_id    text NOT NULL,
    origin        text NOT NULL CHECK (origin IN ('member', 'agent')),
    state         text NOT NULL CHECK (state IN ('running', 'done', 'failed', 'interrupted', 'stopped')),
    user_text     text,             -- NULL: the agent began by itself
    answer        text NOT NULL DEFAULT '',
    error_code    text,
    error_message text,
    service       text NOT NULL,    -- the process that runs or ran the turn
    created_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,      -- NULL exactly while it runs
    FOREIGN KEY (agent, member, project, session_id) REFERENCES sessions ON DELETE CASCADE,
    CHECK ((state = 'running') = (ended_at IS NULL))
);

CREATE INDEX turns_in_order ON turns (agent, member, project, session_id, created_at, turn_id);
CREATE INDEX turns_running ON turns (service) WHERE state = 'running';

CREATE TABLE deliveries (
    turn_id    text NOT NULL REFERENCES turns ON DELETE CASCADE,
    position   integer NOT NULL CHECK (position >= 0),  -- order within the turn
    state      text NOT NULL CHECK (state IN ('stored', 'refused', 'failed')),
    name       text NOT NULL,
    path       text,                -- below the public directory; NULL: nothing was stored
    size       bigint CHECK (size >= 0),  -- bytes
    reason     text,                -- why it was refused or failed
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (turn_id, position)
);
