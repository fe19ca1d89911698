-- The logs with their events are the truth, as are tombstones, blobs, workspaces and bindings; sessions, labels and
-- heartbeats are derived, and so is which event names a blob. A session's log has a number, by which rows name it; everything else starts with the tenant. Tables keep
-- their rowids: without them each event of 1 KiB would take an overflow page.

CREATE TABLE logs (
    log     INTEGER PRIMARY KEY,
    tenant  TEXT NOT NULL,
    session TEXT NOT NULL,
    UNIQUE (tenant, session)
) STRICT;

CREATE TABLE events (
    log  INTEGER NOT NULL,
    seq  INTEGER NOT NULL,
    type TEXT    NOT NULL,
    crc  INTEGER NOT NULL,
    json TEXT    NOT NULL,
    PRIMARY KEY (log, seq)
) STRICT;

CREATE TABLE tombstones (
    tenant  TEXT    NOT NULL,
    session TEXT    NOT NULL,
    kept    INTEGER NOT NULL,
    crc     INTEGER NOT NULL,
    record  TEXT    NOT NULL,
    PRIMARY KEY (tenant, session)
) STRICT;

-- `version` is a random number that every writer of the record draws anew: equal versions mean the same record, in a file that
-- was restored or rebuilt, too.
-- A commit moves a session to the front of every list that it is in. So that a commit need not write to an index for each
-- of them, the sessions of a tenant that were active last have `is_recent` = 1 and are found by one small index, whose
-- key has no time; all others are in the indexes by recency.
CREATE TABLE sessions (
    log            INTEGER PRIMARY KEY,
    tenant         TEXT    NOT NULL,
    id             TEXT    NOT NULL,
    workspace      TEXT    NOT NULL,
    owner          TEXT,
    state          TEXT    NOT NULL,
    reason         TEXT    NOT NULL,
    head           INTEGER NOT NULL,
    base           INTEGER NOT NULL,
    kept           INTEGER,
    epoch          INTEGER,
    holder         TEXT,
    creator        TEXT    NOT NULL,
    parent         TEXT,
    created_at     INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL,
    next_due_at    INTEGER,
    version        INTEGER NOT NULL,
    is_recent      INTEGER NOT NULL CHECK (is_recent IN (0, 1)),
    title          TEXT,
    summary_crc    INTEGER NOT NULL,
    record_crc     INTEGER NOT NULL,
    summary        TEXT    NOT NULL,
    record         TEXT    NOT NULL
) STRICT;

-- The time is that of the session's row, or an earlier one while the session is recent.
CREATE TABLE labels (
    tenant         TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    value          TEXT    NOT NULL,
    last_active_at INTEGER NOT NULL,
    session        TEXT    NOT NULL,
    log            INTEGER NOT NULL,
    PRIMARY KEY (tenant, key, value, last_active_at, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE heartbeats (
    log       INTEGER PRIMARY KEY,
    heartbeat INTEGER NOT NULL
) STRICT;

-- A blob belongs to the log of one session, which need not exist yet. Its state is `unfinished` while it is put, then
-- `whole`, and `removed` until its last chunk is deleted. `named` is the first event that names it; `at` is the time of
-- the last chunk. A number is not used again, so that no chunk goes to a blob that took the place of another.
CREATE TABLE blobs (
    blob    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant  TEXT    NOT NULL,
    session TEXT    NOT NULL,
    state   TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    bytes   INTEGER NOT NULL,
    named   INTEGER,
    at      INTEGER NOT NULL,
    crc     INTEGER NOT NULL
) STRICT;

-- Keeps its rowids: the chunks of a blob are counted in the small index of the key, without a page of their data.
CREATE TABLE blob_chunks (
    blob INTEGER NOT NULL,
    n    INTEGER NOT NULL,
    crc  INTEGER NOT NULL,
    data BLOB    NOT NULL,
    PRIMARY KEY (blob, n)
) STRICT;

-- The owner of a workspace is empty if it has none.
CREATE TABLE workspaces (
    tenant        TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    name          TEXT,
    status        TEXT    NOT NULL,
    last_accessed INTEGER NOT NULL,
    crc           INTEGER,
    record        TEXT,
    config_crc    INTEGER,
    config        TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;

-- The session is the one that the device has used last; nothing depends on it.
CREATE TABLE bindings (
    tenant    TEXT    NOT NULL,
    device    TEXT    NOT NULL,
    workspace TEXT    NOT NULL,
    crc       INTEGER NOT NULL,
    session   TEXT,
    PRIMARY KEY (tenant, device)
) STRICT;

-- Tenants whose deletion has begun and is not finished. No operation reads or writes their data.
CREATE TABLE deletions (
    tenant TEXT NOT NULL PRIMARY KEY
) STRICT;

-- One row, once anything was erased: how often, and how often when the file was last rewritten. While the first is larger,
-- copies of erased rows may be in unused parts of pages.
CREATE TABLE rewrites (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    erased    INTEGER NOT NULL,
    rewritten INTEGER NOT NULL
) STRICT;
