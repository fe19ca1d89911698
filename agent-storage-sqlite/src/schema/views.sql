-- For people with `sqlite3`; the library itself never reads them. What SQLite cannot read as JSON, since somebody damaged it
-- or since it nests more than 1,000 levels deep, is NULL and spoils no other row.

CREATE VIEW IF NOT EXISTS v_sessions AS
SELECT tenant, workspace, owner, id AS session, state, reason, title, head, creator, parent,
       strftime('%Y-%m-%dT%H:%M:%SZ', created_at / 1000000, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', last_active_at / 1000000, 'unixepoch') AS last_active_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', next_due_at / 1000000, 'unixepoch') AS next_due_at
FROM sessions;

CREATE VIEW IF NOT EXISTS v_messages AS
SELECT tenant, session, seq, sound ->> '$.at' AS at, type, sound ->> '$.actor' AS actor, sound ->> '$.run' AS run,
       sound ->> '$.data.text' AS text
FROM (SELECT log, seq, type, iif(json_valid(json), json, NULL) AS sound FROM events) JOIN logs USING (log)
WHERE type IN ('user.message', 'agent.message', 'system.message');

CREATE VIEW IF NOT EXISTS v_runs AS
SELECT tenant, session, sound ->> '$.run' AS run, min(seq) AS first, max(seq) AS last, count(*) AS events,
       min(sound ->> '$.at') AS began_at, max(sound ->> '$.at') AS ended_at
FROM (SELECT log, seq, iif(json_valid(json), json, NULL) AS sound FROM events) JOIN logs USING (log)
WHERE sound ->> '$.run' IS NOT NULL
GROUP BY tenant, session, sound ->> '$.run';

CREATE VIEW IF NOT EXISTS v_blobs AS
SELECT tenant, session, name, bytes, named,
       (SELECT count(*) FROM blob_chunks WHERE blob_chunks.blob = blobs.blob) AS chunks
FROM blobs WHERE state = 'whole';
