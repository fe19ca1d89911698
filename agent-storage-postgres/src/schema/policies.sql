-- The policies of the store, each with the statement that creates it, in which `%s` stands for its role. Their conditions are written
-- as the server writes them, but for spaces, casts and names of columns, so that opening finds those that were changed.
SELECT p.*, format('CREATE POLICY %I ON @.%I AS %s FOR %s TO %%s%s%s', p.policy, p.rel, p.kind, p.command,
    ' USING (' || p.shown || ')', ' WITH CHECK (' || p.checked || ')') AS made
FROM (SELECT w.rel, w.policy, w.kind, w.command, w.shown, w.checked FROM (VALUES (
    '(owner = (SELECT @.owner()))',
    '(owner = '''') AND ((SELECT @.owner()) IS NOT NULL)')) AS c (own, unowned), LATERAL (
    SELECT rel, 'tenant', 'PERMISSIVE', 'ALL', '(tenant = (SELECT current_setting(''agent.tenant'', true)))', NULL
    FROM unnest(ARRAY['sessions', 'events', 'labels', 'due', 'tombstones', 'heartbeats', 'blobs', 'workspaces', 'bindings']) AS rel
    UNION ALL
    -- The planner takes a CASE for true of half of the rows, which keeps it on the indexes.
    SELECT rel, o.policy, 'RESTRICTIVE', o.command, CASE WHEN o.command <> 'INSERT' THEN o.condition END,
        CASE WHEN o.command = 'INSERT' THEN o.condition END
    FROM (SELECT rel, policy, command,
            'CASE WHEN ((SELECT current_setting(''agent.owner'', true)) = ''*'') THEN true ELSE ' || own_rows || ' END' AS condition
        FROM (
            SELECT rel, 'owner', 'ALL', format('(%s OR (%s AND @.shows_session(tenant, session)))', own, unowned)
            FROM unnest(ARRAY['events', 'labels', 'due', 'tombstones', 'heartbeats', 'blobs']) AS rel
            UNION ALL VALUES
            ('sessions', 'owner', 'ALL', format('(%s OR (%s AND @.shows_place(tenant, workspace, shared)))', own, unowned)),
            -- A binding is seen with its workspace.
            ('bindings', 'owner', 'ALL', '(((SELECT @.owner()) IS NOT NULL) AND @.shows_place(tenant, workspace, true))'),
            -- All owners use a workspace without an owner, and none of them creates one but `default`.
            ('workspaces', 'owner_select', 'SELECT', format('(%s OR (%s))', own, unowned)),
            ('workspaces', 'owner_update', 'UPDATE', format('(%s OR (%s))', own, unowned)),
            ('workspaces', 'owner_insert', 'INSERT',
                format('(%s OR (%s AND (id = ''00000000-0000-0000-0000-000000000000'')))', own, unowned)),
            ('workspaces', 'owner_delete', 'DELETE', own)
        ) AS r (rel, policy, command, own_rows)) AS o
    UNION ALL
    -- A chunk is seen with its blob.
    SELECT 'blob_chunks', 'blob', 'PERMISSIVE', 'ALL', '(EXISTS (SELECT 1 FROM @.blobs b WHERE (b.blob = blob_chunks.blob)))', NULL
    UNION ALL
    -- For the role of the two functions over all tenants.
    SELECT rel, 'across', 'PERMISSIVE', 'SELECT', '((SELECT current_setting(''agent.across'', true)) = ''on'')', NULL
    FROM unnest(ARRAY['sessions', 'events', 'tombstones', 'workspaces', 'bindings', 'blobs', 'due']) AS rel
) AS w (rel, policy, kind, command, shown, checked)) AS p
