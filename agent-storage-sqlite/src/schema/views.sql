-- For people with `sqlite3`; the library itself never reads them.

CREATE VIEW IF NOT EXISTS v_sessions AS
SELECT tenant, workspace, id AS session, state, reason, title, head, creator, parent,
       strftime('%Y-%m-%dT%H:%M:%SZ', created_at / 1000000, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', last_active_at / 1000000, 'unixepoch') AS last_active_at,
       strftime('%Y-%m-%dT%H:%M:%SZ', due_at / 1000000, 'unixepoch') AS due_at
FROM sessions;

CREATE VIEW IF NOT EXISTS v_messages AS
SELECT tenant, session, seq, json ->> '$.at' AS at, type, json ->> '$.actor' AS actor, json ->> '$.run' AS run,
       json ->> '$.data.text' AS text
FROM logs JOIN events USING (log)
WHERE type IN ('user.message', 'agent.message', 'system.message');

CREATE VIEW IF NOT EXISTS v_runs AS
SELECT tenant, session, json ->> '$.run' AS run, min(seq) AS first, max(seq) AS last, count(*) AS events,
       min(json ->> '$.at') AS began_at, max(json ->> '$.at') AS ended_at
FROM logs JOIN events USING (log)
WHERE json ->> '$.run' IS NOT NULL
GROUP BY tenant, session, json ->> '$.run';
