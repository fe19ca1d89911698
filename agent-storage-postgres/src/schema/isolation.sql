-- Row security: a statement sees and changes rows of the tenant in the setting `agent.tenant` and of the owner in `agent.owner`, which
-- is `=name` for one owner and `*` for all. Without these settings it sees nothing. A sub-select is evaluated once.

CREATE FUNCTION @.owner() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT nullif(substr(current_setting('agent.owner', true), 2), '') WHERE current_setting('agent.owner', true) LIKE '=%'
$$;

-- Functions and not conditions of the policies, so that the planner does not weigh them: they are called for rows without an owner
-- only, and only for one owner. Row security applies inside them.
CREATE FUNCTION @.shows_place(p_tenant text, p_workspace uuid, p_shared boolean) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$ BEGIN
    RETURN (p_shared AND p_workspace = '00000000-0000-0000-0000-000000000000') OR EXISTS (
        SELECT 1 FROM @.workspaces w WHERE w.tenant = p_tenant AND w.id = p_workspace AND (p_shared OR w.owner <> ''));
END $$;

CREATE FUNCTION @.shows_session(p_tenant text, p_session uuid) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$ BEGIN
    RETURN EXISTS (SELECT 1 FROM @.sessions s WHERE s.tenant = p_tenant AND s.session = p_session);
END $$;

DO $$
DECLARE
    name text;
    made text;
BEGIN
    FOREACH name IN ARRAY ARRAY['sessions', 'events', 'labels', 'due', 'tombstones', 'heartbeats', 'blobs', 'blob_chunks',
        'workspaces', 'bindings'] LOOP
        EXECUTE format('ALTER TABLE @.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE @.%I FORCE ROW LEVEL SECURITY', name);
    END LOOP;
    FOR made IN SELECT p.made FROM (@policies) AS p WHERE p.policy <> 'across' LOOP
        EXECUTE format(made, 'PUBLIC');
    END LOOP;
END $$;

-- The two statements over all tenants, as another role. What they set is set back.
CREATE FUNCTION @.tenants(p_after text) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before constant text := coalesce(current_setting('agent.owner', true), '');
    name text;
    condition text;
BEGIN
    PERFORM set_config('agent.across', 'on', true), set_config('agent.owner', '*', true);
    -- One step along an index for each tenant. Blobs that are named have a session.
    FOR name, condition IN VALUES ('sessions', ''), ('events', ''), ('tombstones', ''), ('workspaces', ''), ('bindings', ''),
        ('blobs', ' AND named IS NULL AND state <> ''removed''') LOOP
        RETURN QUERY EXECUTE format('WITH RECURSIVE t (n) AS (
            (SELECT tenant FROM @.%1$I WHERE tenant > $1%2$s ORDER BY tenant LIMIT 1) UNION ALL
            SELECT (SELECT x.tenant FROM @.%1$I x WHERE x.tenant > t.n%2$s ORDER BY x.tenant LIMIT 1) FROM t WHERE n IS NOT NULL)
            SELECT n::text FROM t WHERE n IS NOT NULL', name, condition) USING p_after;
    END LOOP;
    PERFORM set_config('agent.across', '', true), set_config('agent.owner', before, true);
END $$;

CREATE FUNCTION @.busy_tenants(p_after text, p_until bigint) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before constant text := coalesce(current_setting('agent.owner', true), '');
BEGIN
    PERFORM set_config('agent.across', 'on', true), set_config('agent.owner', '*', true);
    RETURN QUERY WITH RECURSIVE t (n) AS (
        (SELECT tenant FROM @.due WHERE tenant > p_after ORDER BY tenant LIMIT 1) UNION ALL
        SELECT (SELECT x.tenant FROM @.due x WHERE x.tenant > t.n ORDER BY x.tenant LIMIT 1) FROM t WHERE n IS NOT NULL)
        SELECT n::text FROM t WHERE n IS NOT NULL AND EXISTS (
            SELECT 1 FROM @.due d WHERE d.tenant = n AND (d.at <= p_until OR d.state IN ('running', 'initializing')));
    PERFORM set_config('agent.across', '', true), set_config('agent.owner', before, true);
END $$;
