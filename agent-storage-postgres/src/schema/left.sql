-- Names an object in the schema that has a name of the store's, though there is no table `meta`, and says whether it is one of a store;
-- gives no row if there is none.
WITH here AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = '@schema'),
tables AS (SELECT c.oid, c.relname, c.relkind FROM pg_catalog.pg_class c WHERE c.relnamespace = (SELECT oid FROM here))
SELECT o.name, EXISTS (SELECT 1 FROM pg_catalog.pg_policy p JOIN tables t ON t.oid = p.polrelid
    WHERE p.polname = 'tenant' AND t.relname IN ('events', 'sessions'))
FROM (
    SELECT CASE WHEN t.relkind IN ('r', 'p') THEN 'table ' WHEN t.relkind = 'v' THEN 'view ' ELSE 'relation ' END || t.relname FROM tables t
    WHERE t.relname IN ('events', 'sessions', 'labels', 'due', 'tombstones', 'heartbeats', 'blobs', 'blob_chunks', 'workspaces', 'bindings',
        'v_sessions', 'v_messages', 'v_parts', 'v_runs', 'v_labels')
    UNION ALL
    SELECT 'function ' || f.proname FROM pg_catalog.pg_proc f WHERE f.pronamespace = (SELECT oid FROM here)
    AND f.proname IN ('commit', 'owner', 'shows_place', 'shows_session', 'tenants', 'busy_tenants', 'readable')
) AS o (name)
WHERE NOT EXISTS (SELECT 1 FROM tables WHERE relname = 'meta')
ORDER BY o.name LIMIT 1
