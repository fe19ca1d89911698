-- Says which role of the store has rights that it must not have, and what takes them away; gives no row if none has.
SELECT format('role %s has rights that it must not have (%s); take them away: ALTER ROLE %I %s; or name another schema', r.rolname,
    string_agg(a.name, ', '), r.rolname, string_agg('NO' || a.name, ' '))
FROM pg_catalog.pg_roles r, LATERAL (VALUES ('SUPERUSER', r.rolsuper), ('BYPASSRLS', r.rolbypassrls), ('CREATEROLE', r.rolcreaterole),
    ('CREATEDB', r.rolcreatedb), ('REPLICATION', r.rolreplication), ('LOGIN', r.rolcanlogin)) AS a (name, has)
WHERE a.has AND CASE r.rolname WHEN '@worker' THEN true WHEN '@app' THEN a.name <> 'LOGIN'
    -- It may be the user of a person, too, who migrates.
    WHEN '@owner' THEN a.name IN ('SUPERUSER', 'BYPASSRLS') ELSE false END
GROUP BY r.rolname ORDER BY r.rolname LIMIT 1
