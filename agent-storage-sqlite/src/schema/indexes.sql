-- The conditions of the partial indexes stand in the queries that use them, word for word, so that SQLite sees that they
-- hold whatever is bound.
-- By which a session is found whose row in `logs` somebody deleted.
CREATE INDEX IF NOT EXISTS sessions_by_id ON sessions (tenant, id);
CREATE INDEX IF NOT EXISTS sessions_recent ON sessions (tenant, state, workspace, id) WHERE is_recent = 1;
CREATE INDEX IF NOT EXISTS sessions_by_workspace ON sessions (tenant, workspace, state, last_active_at, id) WHERE is_recent = 0;
CREATE INDEX IF NOT EXISTS sessions_by_state ON sessions (tenant, state, last_active_at, id) WHERE is_recent = 0;
CREATE INDEX IF NOT EXISTS sessions_by_owner ON sessions (tenant, owner, state, last_active_at, id) WHERE owner > '' AND is_recent = 0;
CREATE INDEX IF NOT EXISTS sessions_by_creator ON sessions (tenant, creator, last_active_at, id) WHERE is_recent = 0;
CREATE INDEX IF NOT EXISTS sessions_by_parent ON sessions (tenant, parent, last_active_at, id) WHERE parent > '' AND is_recent = 0;
CREATE INDEX IF NOT EXISTS sessions_by_due ON sessions (tenant, next_due_at, id) WHERE next_due_at > -9000000000000000000;
CREATE INDEX IF NOT EXISTS labels_by_log ON labels (log);
-- A workspace without an owner is in one index by its last access; one with an owner in that of all these, and in the owner's.
CREATE INDEX IF NOT EXISTS workspaces_unowned ON workspaces (tenant, status, last_accessed, id) WHERE owner = '';
CREATE INDEX IF NOT EXISTS workspaces_owned ON workspaces (tenant, status, last_accessed, id) WHERE owner > '';
CREATE INDEX IF NOT EXISTS workspaces_by_owner ON workspaces (tenant, owner, status, last_accessed, id) WHERE owner > '';
CREATE INDEX IF NOT EXISTS bindings_by_workspace ON bindings (tenant, workspace, device);
CREATE INDEX IF NOT EXISTS blobs_by_session ON blobs (tenant, session, state, name);
CREATE INDEX IF NOT EXISTS blobs_removed ON blobs (tenant) WHERE state = 'removed';
-- By which a sweep finds what no event names, without a look at what events name.
CREATE INDEX IF NOT EXISTS blobs_unnamed ON blobs (tenant, session) WHERE named IS NULL;
