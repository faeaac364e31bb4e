-- Projects: named spaces with their own workspace, sessions, instructions and index.

CREATE TYPE project_mode AS ENUM ('container', 'local');

CREATE TABLE projects (
    id           text PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9_-]{0,63}$' AND id <> 'main'),
    agent        text NOT NULL,
    owner        text NOT NULL,
    name         text NOT NULL,
    name_key     text NOT NULL,     -- the name case-folded: what may not repeat
    instructions text NOT NULL DEFAULT '',
    mode         project_mode NOT NULL DEFAULT 'container',
    path         text,              -- the directory that the member typed
    created_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (owner, agent, name_key),
    CHECK ((mode = 'local') = (path IS NOT NULL))
);
