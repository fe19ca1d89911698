-- Says which row security is not as this version creates it, and what sets it back; gives no row if all is.
WITH wanted AS (@policies),
here AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = '@schema'),
-- With the partitions, which have no policy.
tables AS (SELECT c.oid, c.relname AS rel, c.relrowsecurity AND c.relforcerowsecurity AS is_forced FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT oid FROM here) AND c.relkind IN ('r', 'p') AND (c.relname IN (SELECT w.rel FROM wanted w)
    OR c.oid IN (SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = to_regclass('@.events')))),
found AS (SELECT t.rel, p.polname, p.polroles, CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END AS kind,
    CASE p.polcmd WHEN '*' THEN 'ALL' WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' ELSE 'DELETE' END AS command,
    pg_catalog.pg_get_expr(p.polqual, p.polrelid) AS shown, pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid) AS checked
    FROM tables t JOIN pg_catalog.pg_policy p ON p.polrelid = t.oid),
across AS (SELECT f.proowner AS role FROM pg_catalog.pg_proc f WHERE f.pronamespace = (SELECT oid FROM here) AND f.proname = 'tenants' LIMIT 1)
SELECT format('table %s has row security that is off, or not forced on its owner, so that PostgreSQL would not keep tenants apart; set it '
    'back: ALTER TABLE @.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', rel, rel)
FROM tables WHERE NOT is_forced
UNION ALL
SELECT format('policy %s of table %s ', f.polname, f.rel) || CASE WHEN w.policy IS NULL
    THEN format('is none of the store''s, so that PostgreSQL might not keep tenants apart; remove it: DROP POLICY %I ON @.%I', f.polname, f.rel)
    ELSE format('was changed, so that PostgreSQL might not keep tenants apart; set it back: DROP POLICY %I ON @.%I; %s', f.polname, f.rel,
        format(w.made, CASE w.policy WHEN 'across' THEN (SELECT quote_ident(pg_get_userbyid(role)) FROM across) ELSE 'PUBLIC' END)) END
FROM found f LEFT JOIN wanted w ON w.rel = f.rel AND w.policy = f.polname
WHERE w.policy IS NULL OR f.kind <> w.kind OR f.command <> w.command
    OR f.polroles <> ARRAY[CASE w.policy WHEN 'across' THEN (SELECT role FROM across) ELSE 0 END]
    OR regexp_replace(concat(f.shown, ' / ', f.checked), '@unwritten', '', 'g')
    <> regexp_replace(concat(w.shown, ' / ', w.checked), '@unwritten', '', 'g')
LIMIT 1
