-- Names a part of the store that is missing; gives no row if all are there.
WITH policies AS (@policies),
wanted AS (SELECT 'meta' AS name, NULL AS policies UNION ALL SELECT p.rel, array_agg(p.policy) FROM policies p GROUP BY p.rel),
here AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = '@schema'),
found AS (SELECT w.name, w.policies, c.oid, c.relkind FROM wanted w LEFT JOIN pg_catalog.pg_class c
    ON c.relname = w.name AND c.relkind IN ('r', 'p') AND c.relnamespace = (SELECT oid FROM here)),
-- Each partition says how many there are.
divided AS (SELECT f.oid, coalesce((SELECT substring(pg_catalog.pg_get_expr(p.relpartbound, p.oid) FROM 'modulus (\d+)')
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhrelid WHERE i.inhparent = f.oid LIMIT 1)::integer, 1) AS count
    FROM found f WHERE f.relkind = 'p')
SELECT 'table ' || name FROM found WHERE oid IS NULL
UNION ALL
SELECT 'table events_' || n FROM divided d, generate_series(0, d.count - 1) AS n WHERE NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = d.oid
    WHERE c.relname = 'events_' || n AND c.relnamespace = (SELECT oid FROM here))
UNION ALL
SELECT 'policy ' || p || ' of table ' || f.name FROM found f, unnest(f.policies) AS p WHERE f.oid IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_policy WHERE polrelid = f.oid AND polname = p)
UNION ALL
SELECT 'function ' || f FROM unnest(ARRAY['commit', 'owner', 'shows_place', 'shows_session', 'tenants', 'busy_tenants']) AS f
WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_proc WHERE proname = f AND pronamespace = (SELECT oid FROM here))
UNION ALL
-- They would find nothing; a restore by a user without the roles leaves them so.
SELECT 'role of the function ' || f.proname || ', which sees all tenants,' FROM pg_catalog.pg_proc f
WHERE f.proname IN ('tenants', 'busy_tenants') AND f.pronamespace = (SELECT oid FROM here) AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_policy p JOIN found t ON t.oid = p.polrelid
    WHERE t.name = 'sessions' AND p.polname = 'across' AND f.proowner = ANY (p.polroles))
LIMIT 1
