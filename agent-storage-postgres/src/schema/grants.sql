-- Rights of the roles that there are. The functions over all tenants go to `@worker`, which cannot log in, if whoever migrates was
-- made its member, and may do so until the end of this script; else they stay with the owner of the tables.
DO $$
DECLARE
    worker text := current_user;
    name text;
BEGIN
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = '@app') THEN
        GRANT USAGE ON SCHEMA "@schema" TO "@app";
        FOR name IN SELECT relname FROM pg_catalog.pg_class
            WHERE relnamespace = '"@schema"'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition LOOP
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON @.%I TO "@app"', name);
        END LOOP;
        REVOKE INSERT, UPDATE, DELETE ON @.meta, @.v_sessions, @.v_messages, @.v_parts, @.v_runs, @.v_labels FROM "@app";
    END IF;
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = '@worker' AND pg_has_role(current_user, oid, 'MEMBER')) THEN
        worker := '@worker';
        GRANT USAGE, CREATE ON SCHEMA "@schema" TO "@worker";
        FOREACH name IN ARRAY ARRAY['sessions', 'events', 'tombstones', 'workspaces', 'bindings'] LOOP
            EXECUTE format('GRANT SELECT (tenant) ON @.%I TO "@worker"', name);
        END LOOP;
        GRANT SELECT (tenant, named, state) ON @.blobs TO "@worker";
        GRANT SELECT (tenant, at, state) ON @.due TO "@worker";
        ALTER FUNCTION @.tenants(text) OWNER TO "@worker";
        ALTER FUNCTION @.busy_tenants(text, bigint) OWNER TO "@worker";
        REVOKE CREATE ON SCHEMA "@schema" FROM "@worker";
    END IF;
    FOR name IN SELECT p.made FROM (@policies) AS p WHERE p.policy = 'across' LOOP
        EXECUTE format(name, quote_ident(worker));
    END LOOP;
    REVOKE EXECUTE ON FUNCTION @.tenants(text), @.busy_tenants(text, bigint) FROM PUBLIC;
    FOR name IN SELECT rolname FROM pg_catalog.pg_roles WHERE rolname IN ('@app', current_user) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION @.tenants(text), @.busy_tenants(text, bigint) TO %I', name);
    END LOOP;
    name := current_user;
    RESET ROLE;
    IF worker <> name THEN
        EXECUTE format('REVOKE %I FROM %I', worker, name);
    END IF;
END $$;
