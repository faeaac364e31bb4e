-- The index: generations of a (project, scope), each immutable once it is current, and their chunks.

CREATE TYPE chunk_scope AS ENUM ('docs', 'adr', 'session', 'local');

CREATE TABLE generations (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project    text NOT NULL REFERENCES projects ON DELETE CASCADE,
    scope      chunk_scope NOT NULL,
    current    boolean NOT NULL DEFAULT false,  -- searches see the current one and no other
    report     jsonb NOT NULL,                  -- what was found: files with their chunks, what was skipped and why
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (id, project, scope)
);

CREATE UNIQUE INDEX generations_current ON generations (project, scope) WHERE current;

CREATE TABLE chunks (
    generation      bigint NOT NULL,
    ordinal         integer NOT NULL CHECK (ordinal >= 0),  -- order of reading; 0, 1, 2 … without a gap
    chunk_id        uuid NOT NULL,      -- the same in every generation in which the chunk is unchanged
    project         text NOT NULL,
    scope           chunk_scope NOT NULL,
    source_path     text,
    start_line      integer,
    end_line        integer,
    session_id      text,
    event_id        text,
    title           text,
    heading_path    text[] NOT NULL DEFAULT '{}',
    content         text NOT NULL,
    language        text NOT NULL,      -- whose stems are among the terms
    terms           bytea NOT NULL,     -- distinct 64-bit term numbers, then one byte of count for each
    embedding       vector,
    embedding_model text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (generation, ordinal),
    UNIQUE (generation, chunk_id),
    FOREIGN KEY (generation, project, scope) REFERENCES generations (id, project, scope) ON DELETE CASCADE,
    CHECK ((scope = 'session') = (session_id IS NOT NULL)),
    CHECK ((scope = 'session') = (event_id IS NOT NULL)),
    CHECK ((scope = 'session') = (source_path IS NULL)),
    CHECK ((scope = 'session') = (start_line IS NULL) AND (scope = 'session') = (end_line IS NULL)),
    CHECK (start_line >= 1 AND end_line >= start_line),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL))
);

CREATE INDEX chunks_without_vector ON chunks (generation) WHERE embedding IS NULL;
