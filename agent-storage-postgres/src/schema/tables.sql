-- `@.` stands for the schema. Text is never json or jsonb: those refuse `\u0000` and change numbers. Keys sort by their
-- bytes; times are microseconds since 1970 in UTC.

CREATE TABLE @.meta (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    format       integer NOT NULL,
    readers_from integer NOT NULL,
    store        uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- The truth: the events of each session's own log; perhaps in partitions.
CREATE TABLE @.events (
    tenant  text COLLATE "C" NOT NULL,
    session uuid             NOT NULL,
    seq     bigint           NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    type    text COLLATE "C" NOT NULL,
    crc     integer          NOT NULL,
    json    text             NOT NULL,
    PRIMARY KEY (tenant, session, seq)
) @partitioned;

-- The records, derived from the logs. No index has a column that changes in each commit, so that the updates of whole turns
-- are HOT: `class` and `rare` stand for the state, `listed_at` is `last_active_at` cut to its minute. `version` is random,
-- drawn anew by every writer of the row, and compared for equality only; never 0. `kept` is the last event that a purge left. `shared` sessions hold data that all owners of a tenant use.
CREATE TABLE @.sessions (
    tenant         text COLLATE "C" NOT NULL,
    session        uuid             NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    workspace      uuid             NOT NULL,
    class          text COLLATE "C" NOT NULL,
    rare           text COLLATE "C",
    state          text COLLATE "C" NOT NULL,
    reason         text COLLATE "C" NOT NULL,
    creator        text COLLATE "C" NOT NULL,
    parent         uuid,
    head           bigint           NOT NULL,
    base           bigint           NOT NULL,
    kept           bigint,
    version        bigint           NOT NULL,
    epoch          bigint,
    created_at     bigint           NOT NULL,
    last_active_at bigint           NOT NULL,
    listed_at      bigint           NOT NULL,
    due_at         bigint,
    record_crc     integer          NOT NULL,
    summary_crc    integer          NOT NULL,
    record         text             NOT NULL,
    summary        text             NOT NULL,
    shared         boolean          NOT NULL,
    PRIMARY KEY (tenant, session)
) WITH (fillfactor = 60);

CREATE INDEX sessions_by_class ON @.sessions (tenant, class, listed_at DESC, session DESC);
CREATE INDEX sessions_by_workspace ON @.sessions (tenant, workspace, class, listed_at DESC, session DESC);
CREATE INDEX sessions_by_creator ON @.sessions (tenant, creator, class, listed_at DESC, session DESC);
CREATE INDEX sessions_by_owner ON @.sessions (tenant, owner, class, listed_at DESC, session DESC) WHERE owner <> '';
CREATE INDEX sessions_by_parent ON @.sessions (tenant, parent, class, listed_at DESC, session DESC) WHERE parent IS NOT NULL;
CREATE INDEX sessions_rare ON @.sessions (tenant, rare, listed_at DESC, session DESC) WHERE rare IS NOT NULL;

CREATE TABLE @.labels (
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL,
    session uuid             NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, key, value, session)
);
CREATE INDEX labels_by_session ON @.labels (tenant, session);

-- Sessions that wait for something: those with a due time, and those in a state of a run. The churned table.
CREATE TABLE @.due (
    tenant  text COLLATE "C" NOT NULL,
    session uuid             NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    at      bigint,
    state   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, session)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX due_by_time ON @.due (tenant, at, session) WHERE at IS NOT NULL;

-- The truth about deleted sessions whose log is not whole any more.
CREATE TABLE @.tombstones (
    tenant  text COLLATE "C" NOT NULL,
    session uuid             NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    kept    bigint           NOT NULL,
    crc     integer          NOT NULL,
    record  text             NOT NULL,
    PRIMARY KEY (tenant, session)
);

CREATE TABLE @.heartbeats (
    tenant    text COLLATE "C" NOT NULL,
    session   uuid             NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    heartbeat bigint           NOT NULL,
    PRIMARY KEY (tenant, session)
) WITH (fillfactor = 30);

-- A blob is `unfinished` while it is put, then `whole`, and `removed` until its chunks are deleted. `named` is the first
-- event that names it (derived); `at` is the time of the last chunk. A number is not used again.
CREATE TABLE @.blobs (
    blob    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant  text COLLATE "C" NOT NULL,
    session uuid             NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    state   text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    bytes   bigint           NOT NULL,
    named   bigint,
    at      bigint           NOT NULL,
    crc     integer          NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX blobs_whole ON @.blobs (tenant, session, name) WHERE state = 'whole';
CREATE INDEX blobs_by_session ON @.blobs (tenant, session);
CREATE INDEX blobs_unnamed ON @.blobs (tenant, session) WHERE named IS NULL AND state <> 'removed';
CREATE INDEX blobs_removed ON @.blobs (tenant, blob) WHERE state = 'removed';

CREATE TABLE @.blob_chunks (
    blob bigint  NOT NULL,
    n    bigint  NOT NULL,
    crc  integer NOT NULL,
    data bytea   NOT NULL,
    PRIMARY KEY (blob, n)
);
ALTER TABLE @.blob_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- A deleted workspace has the status `deleted`, and no text of anybody. The configuration is the bytes of a text.
CREATE TABLE @.workspaces (
    tenant        text COLLATE "C" NOT NULL,
    id            uuid             NOT NULL,
    owner         text COLLATE "C" NOT NULL,
    name          text,
    status        text COLLATE "C" NOT NULL,
    last_accessed bigint           NOT NULL,
    crc           integer,
    record        text,
    config_crc    integer,
    config        bytea,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX workspaces_by_time ON @.workspaces (tenant, status, last_accessed DESC, id DESC);
CREATE INDEX workspaces_by_owner ON @.workspaces (tenant, owner, status, last_accessed DESC, id DESC);

-- The session is the one that the device has used last; nothing depends on it.
CREATE TABLE @.bindings (
    tenant    text COLLATE "C" NOT NULL,
    device    text COLLATE "C" NOT NULL,
    workspace uuid             NOT NULL,
    crc       integer          NOT NULL,
    session   uuid,
    PRIMARY KEY (tenant, device)
);
CREATE INDEX bindings_by_workspace ON @.bindings (tenant, workspace, device);

-- A server may have been built without lz4.
DO $$ BEGIN
    ALTER TABLE @.events ALTER COLUMN json SET COMPRESSION lz4;
    ALTER TABLE @.sessions ALTER COLUMN record SET COMPRESSION lz4;
    ALTER TABLE @.sessions ALTER COLUMN summary SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
