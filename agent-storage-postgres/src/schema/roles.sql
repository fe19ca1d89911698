-- `@owner`, `@app` and `@worker` stand for the names of roles. Whoever may create roles creates those that are missing; a
-- superuser gives the tables to `@owner`, since no policy binds a superuser. Without these rights, whoever migrates is all three.
DO $$
DECLARE
    me pg_catalog.pg_roles%ROWTYPE;
    owns text := current_user;
    missing text;
BEGIN
    SELECT * INTO me FROM pg_catalog.pg_roles WHERE rolname = current_user;
    IF me.rolsuper THEN
        owns := '@owner';
        IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = owns) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', owns);
        END IF;
        EXECUTE format('GRANT USAGE, CREATE ON SCHEMA "@schema" TO %I WITH GRANT OPTION', owns);
    END IF;
    IF me.rolsuper OR me.rolcreaterole THEN
        FOR missing IN SELECT unnest(ARRAY['@app', '@worker']) EXCEPT SELECT rolname FROM pg_catalog.pg_roles LOOP
            EXECUTE format('CREATE ROLE %I', missing);
            -- It has no password, so that it logs in only where the server asks for none, until it is given one.
            IF missing = '@app' THEN
                EXECUTE format('ALTER ROLE %I LOGIN', missing);
                EXECUTE format('ALTER ROLE %I SET statement_timeout = ''10s''', missing);
                EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''10s''', missing);
            END IF;
        END LOOP;
        BEGIN
            EXECUTE format('GRANT "@worker" TO %I', owns);
        EXCEPTION WHEN insufficient_privilege THEN NULL;
        END;
    END IF;
    EXECUTE format('SET LOCAL ROLE %I', owns);
END $$;
