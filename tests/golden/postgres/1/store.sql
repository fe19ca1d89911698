CREATE SCHEMA agent;
CREATE FUNCTION agent.busy_tenants(p_after text, p_until bigint) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    before constant text := coalesce(current_setting('agent.owner', true), '');
BEGIN
    PERFORM set_config('agent.across', 'on', true), set_config('agent.owner', '*', true);
    RETURN QUERY WITH RECURSIVE t (n) AS (
        (SELECT tenant FROM "agent".due WHERE tenant > p_after ORDER BY tenant LIMIT 1) UNION ALL
        SELECT (SELECT x.tenant FROM "agent".due x WHERE x.tenant > t.n ORDER BY x.tenant LIMIT 1) FROM t WHERE n IS NOT NULL)
        SELECT n::text FROM t WHERE n IS NOT NULL AND EXISTS (
            SELECT 1 FROM "agent".due d WHERE d.tenant = n AND (d.at <= p_until OR d.state IN ('running', 'initializing')));
    PERFORM set_config('agent.across', '', true), set_config('agent.owner', before, true);
END $$;
CREATE FUNCTION agent.commit(p_tenant text, p_lock bigint, p_session uuid, p_version bigint, p_next bigint, p_owner text, p_workspace uuid, p_class text, p_rare text, p_state text, p_reason text, p_creator text, p_parent uuid, p_head bigint, p_base bigint, p_epoch bigint, p_created_at bigint, p_last_active_at bigint, p_listed_at bigint, p_due_at bigint, p_record_crc integer, p_summary_crc integer, p_record text, p_summary text, p_shared boolean, p_due text, p_labels boolean, p_keys text[], p_values text[], p_seqs bigint[], p_types text[], p_crcs integer[], p_jsons text[], p_needed text[], p_needed_bytes bigint[], p_named text[], p_named_by bigint[], p_owners text) RETURNS TABLE(outcome text, version bigint, record text, record_crc integer)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    parent_state text;
    found_blobs bigint;
BEGIN
    -- In the transaction only, whatever the connection was used for before.
    PERFORM set_config('agent.tenant', p_tenant, true), set_config('agent.owner', p_owners, true);
    PERFORM pg_advisory_xact_lock_shared(p_lock);
    IF p_version = 0 THEN
        IF p_parent IS NOT NULL THEN
            SELECT s.state INTO parent_state FROM "agent".sessions s
                WHERE s.tenant = p_tenant AND s.session = p_parent FOR SHARE;
            IF NOT FOUND OR parent_state = 'deleted' THEN
                RETURN QUERY SELECT CASE WHEN parent_state IS NULL THEN 'no_parent' ELSE 'deleted_parent' END,
                    NULL::bigint, NULL::text, NULL::integer;
                RETURN;
            END IF;
        END IF;
        INSERT INTO "agent".sessions VALUES (
            p_tenant, p_session, p_owner, p_workspace, p_class, p_rare, p_state, p_reason, p_creator, p_parent,
            p_head, p_base, NULL, p_next, p_epoch, p_created_at, p_last_active_at, p_listed_at, p_due_at,
            p_record_crc, p_summary_crc, p_record, p_summary, p_shared) ON CONFLICT DO NOTHING;
    ELSE
        UPDATE "agent".sessions s SET class = p_class, rare = p_rare, state = p_state, reason = p_reason, head = p_head,
            version = p_next, epoch = p_epoch, last_active_at = p_last_active_at, listed_at = p_listed_at,
            due_at = p_due_at, record_crc = p_record_crc, summary_crc = p_summary_crc, record = p_record,
            summary = p_summary, shared = p_shared
            WHERE s.tenant = p_tenant AND s.session = p_session AND s.version = p_version;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'stale', s.version, s.record, s.record_crc FROM "agent".sessions s
            WHERE s.tenant = p_tenant AND s.session = p_session;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'absent', NULL::bigint, NULL::text, NULL::integer;
        END IF;
        RETURN;
    END IF;
    -- Nothing is appended after missing events.
    IF p_version <> 0 AND cardinality(p_seqs) > 0 AND NOT EXISTS (SELECT 1 FROM "agent".events e
        WHERE e.tenant = p_tenant AND e.session = p_session AND e.seq = p_seqs[1] - 1) THEN
        RAISE EXCEPTION 'the last event of the log is missing' USING ERRCODE = 'AG002';
    END IF;
    IF cardinality(p_needed) > 0 THEN
        SELECT count(*) INTO found_blobs FROM (
            SELECT b.blob, b.bytes, b.name FROM "agent".blobs b
                WHERE b.tenant = p_tenant AND b.session = p_session AND b.state = 'whole' AND b.name = ANY (p_needed)
                ORDER BY b.blob FOR SHARE) b
            JOIN unnest(p_needed, p_needed_bytes) AS n (name, bytes) ON n.name = b.name AND coalesce(n.bytes, b.bytes) = b.bytes
            WHERE (SELECT count(*) FROM "agent".blob_chunks c WHERE c.blob = b.blob) = (b.bytes + 262143) / 262144;
        IF found_blobs < cardinality(p_needed) THEN
            RAISE EXCEPTION 'a blob is missing that an event names' USING ERRCODE = 'AG001';
        END IF;
    END IF;
    IF cardinality(p_named) > 0 THEN
        UPDATE "agent".blobs b SET named = n.seq, owner = p_owner FROM unnest(p_named, p_named_by) AS n (name, seq)
            WHERE b.tenant = p_tenant AND b.session = p_session AND b.state = 'whole' AND b.name = n.name
            AND (b.named IS NULL OR b.named > n.seq);
    END IF;
    IF p_labels THEN
        IF p_version <> 0 THEN
            DELETE FROM "agent".labels l WHERE l.tenant = p_tenant AND l.session = p_session;
        END IF;
        INSERT INTO "agent".labels (tenant, key, value, session, owner)
            SELECT p_tenant, l.key, l.value, p_session, p_owner FROM unnest(p_keys, p_values) AS l (key, value);
    END IF;
    IF p_due = 'set' THEN
        INSERT INTO "agent".due AS d (tenant, session, owner, at, state) VALUES (p_tenant, p_session, p_owner, p_due_at, p_state)
            ON CONFLICT (tenant, session) DO UPDATE SET at = excluded.at, state = excluded.state;
    ELSIF p_due = 'drop' THEN
        DELETE FROM "agent".due d WHERE d.tenant = p_tenant AND d.session = p_session;
    END IF;
    INSERT INTO "agent".events (tenant, session, seq, owner, type, crc, json)
        SELECT p_tenant, p_session, e.seq, p_owner, e.type, e.crc, e.json
        FROM unnest(p_seqs, p_types, p_crcs, p_jsons) AS e (seq, type, crc, json);
    RETURN QUERY SELECT 'applied', p_next, NULL::text, NULL::integer;
END $$;
CREATE FUNCTION agent.owner() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT nullif(substr(current_setting('agent.owner', true), 2), '') WHERE current_setting('agent.owner', true) LIKE '=%'
$$;
CREATE FUNCTION agent.readable(p_json text) RETURNS json
    LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN
    -- Reading a value reads all texts.
    PERFORM p_json::json #>> '{}';
    RETURN p_json;
EXCEPTION WHEN untranslatable_character OR invalid_text_representation OR statement_too_complex THEN
    RETURN NULL;
END $$;
CREATE FUNCTION agent.shows_place(p_tenant text, p_workspace uuid, p_shared boolean) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$ BEGIN
    RETURN (p_shared AND p_workspace = '00000000-0000-0000-0000-000000000000') OR EXISTS (
        SELECT 1 FROM "agent".workspaces w WHERE w.tenant = p_tenant AND w.id = p_workspace AND (p_shared OR w.owner <> ''));
END $$;
CREATE FUNCTION agent.shows_session(p_tenant text, p_session uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$ BEGIN
    RETURN EXISTS (SELECT 1 FROM "agent".sessions s WHERE s.tenant = p_tenant AND s.session = p_session);
END $$;
CREATE FUNCTION agent.tenants(p_after text) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
            (SELECT tenant FROM "agent".%1$I WHERE tenant > $1%2$s ORDER BY tenant LIMIT 1) UNION ALL
            SELECT (SELECT x.tenant FROM "agent".%1$I x WHERE x.tenant > t.n%2$s ORDER BY x.tenant LIMIT 1) FROM t WHERE n IS NOT NULL)
            SELECT n::text FROM t WHERE n IS NOT NULL', name, condition) USING p_after;
    END LOOP;
    PERFORM set_config('agent.across', '', true), set_config('agent.owner', before, true);
END $_$;
CREATE TABLE agent.bindings (
    tenant text NOT NULL COLLATE pg_catalog."C",
    device text NOT NULL COLLATE pg_catalog."C",
    workspace uuid NOT NULL,
    crc integer NOT NULL,
    session uuid
);
ALTER TABLE ONLY agent.bindings FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.blob_chunks (
    blob bigint NOT NULL,
    n bigint NOT NULL,
    crc integer NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY agent.blob_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE ONLY agent.blob_chunks FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.blobs (
    blob bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    bytes bigint NOT NULL,
    named bigint,
    at bigint NOT NULL,
    crc integer NOT NULL
)
WITH (fillfactor='80');
ALTER TABLE ONLY agent.blobs FORCE ROW LEVEL SECURITY;
ALTER TABLE agent.blobs ALTER COLUMN blob ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME agent.blobs_blob_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE agent.due (
    tenant text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    at bigint,
    state text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');
ALTER TABLE ONLY agent.due FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.events (
    tenant text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    seq bigint NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    crc integer NOT NULL,
    json text NOT NULL
);
ALTER TABLE ONLY agent.events ALTER COLUMN json SET COMPRESSION lz4;
ALTER TABLE ONLY agent.events FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.heartbeats (
    tenant text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    heartbeat bigint NOT NULL
)
WITH (fillfactor='30');
ALTER TABLE ONLY agent.heartbeats FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.labels (
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE ONLY agent.labels FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.meta (
    one boolean DEFAULT true NOT NULL,
    format integer NOT NULL,
    readers_from integer NOT NULL,
    store uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT meta_one_check CHECK (one)
);
CREATE TABLE agent.sessions (
    tenant text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    workspace uuid NOT NULL,
    class text NOT NULL COLLATE pg_catalog."C",
    rare text COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    creator text NOT NULL COLLATE pg_catalog."C",
    parent uuid,
    head bigint NOT NULL,
    base bigint NOT NULL,
    kept bigint,
    version bigint NOT NULL,
    epoch bigint,
    created_at bigint NOT NULL,
    last_active_at bigint NOT NULL,
    listed_at bigint NOT NULL,
    due_at bigint,
    record_crc integer NOT NULL,
    summary_crc integer NOT NULL,
    record text NOT NULL,
    summary text NOT NULL,
    shared boolean NOT NULL
)
WITH (fillfactor='60');
ALTER TABLE ONLY agent.sessions ALTER COLUMN record SET COMPRESSION lz4;
ALTER TABLE ONLY agent.sessions ALTER COLUMN summary SET COMPRESSION lz4;
ALTER TABLE ONLY agent.sessions FORCE ROW LEVEL SECURITY;
CREATE TABLE agent.tombstones (
    tenant text NOT NULL COLLATE pg_catalog."C",
    session uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    kept bigint NOT NULL,
    crc integer NOT NULL,
    record text NOT NULL
);
ALTER TABLE ONLY agent.tombstones FORCE ROW LEVEL SECURITY;
CREATE VIEW agent.v_labels WITH (security_invoker='true') AS
 SELECT labels.tenant,
    labels.session,
    labels.key,
    labels.value
   FROM agent.labels;
CREATE VIEW agent.v_messages WITH (security_invoker='true') AS
 SELECT events.tenant,
    events.session,
    events.seq,
    (r.sound ->> 'at'::text) AS at,
    events.type,
    (r.sound ->> 'actor'::text) AS actor,
    (r.sound ->> 'run'::text) AS run,
    (r.sound #>> '{data,text}'::text[]) AS text
   FROM agent.events,
    LATERAL agent.readable(events.json) r(sound)
  WHERE (events.type = ANY (ARRAY['user.message'::text, 'agent.message'::text, 'system.message'::text]));
CREATE VIEW agent.v_parts WITH (security_invoker='true') AS
 SELECT events.tenant,
    events.session,
    events.seq,
    p.n AS part,
    (p.one ->> 'type'::text) AS type,
    (p.one ->> 'text'::text) AS text,
    (p.one ->> 'media'::text) AS media,
    (p.one ->> 'uri'::text) AS uri,
    (p.one ->> 'name'::text) AS name
   FROM agent.events,
    LATERAL agent.readable(events.json) r(sound),
    LATERAL json_array_elements(
        CASE json_typeof((r.sound #> '{data,parts}'::text[]))
            WHEN 'array'::text THEN (r.sound #> '{data,parts}'::text[])
            ELSE NULL::json
        END) WITH ORDINALITY p(one, n)
  WHERE ((json_typeof(p.one) = 'object'::text) AND (events.type = ANY (ARRAY['user.message'::text, 'agent.message'::text, 'system.message'::text])));
CREATE VIEW agent.v_runs WITH (security_invoker='true') AS
 SELECT events.tenant,
    events.session,
    (r.sound ->> 'run'::text) AS run,
    min(events.seq) AS first,
    max(events.seq) AS last,
    count(*) AS events,
    min((r.sound ->> 'at'::text)) AS began_at,
    max((r.sound ->> 'at'::text)) AS ended_at
   FROM agent.events,
    LATERAL agent.readable(events.json) r(sound)
  WHERE ((r.sound ->> 'run'::text) IS NOT NULL)
  GROUP BY events.tenant, events.session, (r.sound ->> 'run'::text);
CREATE VIEW agent.v_sessions WITH (security_invoker='true') AS
 SELECT sessions.tenant,
    sessions.workspace,
    sessions.owner,
    sessions.session,
    sessions.state,
    sessions.reason,
    (r.sound #>> '{attributes,title,text}'::text[]) AS title,
    sessions.head,
    sessions.creator,
    sessions.parent,
    to_timestamp((((sessions.created_at)::numeric / 1000000.0))::double precision) AS created_at,
    to_timestamp((((sessions.last_active_at)::numeric / 1000000.0))::double precision) AS last_active_at,
    to_timestamp((((sessions.due_at)::numeric / 1000000.0))::double precision) AS next_due_at
   FROM agent.sessions,
    LATERAL agent.readable(sessions.summary) r(sound);
CREATE TABLE agent.workspaces (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    name text,
    status text NOT NULL COLLATE pg_catalog."C",
    last_accessed bigint NOT NULL,
    crc integer,
    record text,
    config_crc integer,
    config bytea
);
ALTER TABLE ONLY agent.workspaces FORCE ROW LEVEL SECURITY;
INSERT INTO agent.bindings (tenant, device, workspace, crc, session) VALUES ('acme', 'laptop', '019c60d9-9ca6-779f-9acb-5266592f123a', -1156169444, NULL);
INSERT INTO agent.bindings (tenant, device, workspace, crc, session) VALUES ('default', 'laptop "2"', '00000000-0000-0000-0000-000000000000', -1125902860, NULL);
INSERT INTO agent.bindings (tenant, device, workspace, crc, session) VALUES ('default', '전화', '019c60d9-9c42-7e55-b2fb-eea293f80bc9', -1947344138, NULL);
INSERT INTO agent.blob_chunks (blob, n, crc, data) VALUES (1, 0, 2080387899, '\x6561726c79');
INSERT INTO agent.blob_chunks (blob, n, crc, data) VALUES (2, 0, -953800775, '\x736d616c6c');
INSERT INTO agent.blob_chunks (blob, n, crc, data) VALUES (3, 0, 1853639659, decode(repeat('00', 262144), 'hex'));
INSERT INTO agent.blob_chunks (blob, n, crc, data) VALUES (3, 1, -516690533, '\x0000000000656e64');
INSERT INTO agent.blobs (blob, tenant, session, owner, state, name, bytes, named, at, crc) OVERRIDING SYSTEM VALUE VALUES (1, 'default', '019c60d9-9c4a-714f-9601-77dc7567fe8b', '', 'whole', 'f408830bcc7fab370819172244aa32e3ba66a848835911c02629d9a4dff77992', 5, NULL, 1771151400002000, -1173585835);
INSERT INTO agent.blobs (blob, tenant, session, owner, state, name, bytes, named, at, crc) OVERRIDING SYSTEM VALUE VALUES (2, 'default', '019c60d9-9c75-7f7a-8d9a-859c679bcc94', '', 'whole', '81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130', 5, 2, 1771151400004000, 1765480386);
INSERT INTO agent.blobs (blob, tenant, session, owner, state, name, bytes, named, at, crc) OVERRIDING SYSTEM VALUE VALUES (3, 'default', '019c60d9-9c75-7f7a-8d9a-859c679bcc94', '', 'whole', 'ef2835809aab3d78c68b0f66efbb36530af0bf5697d25c6455c0c1f37a2f0958', 262152, 2, 1771151400007000, 211994185);
INSERT INTO agent.due (tenant, session, owner, at, state) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', '', 0, 'queued');
INSERT INTO agent.due (tenant, session, owner, at, state) VALUES ('default', '019c60d9-9c70-7405-ba77-ef73464de5be', '', 0, 'queued');
INSERT INTO agent.due (tenant, session, owner, at, state) VALUES ('default', '019c60d9-9c75-7f7a-8d9a-859c679bcc94', '', 0, 'queued');
INSERT INTO agent.due (tenant, session, owner, at, state) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', '', NULL, 'requires_action');
INSERT INTO agent.due (tenant, session, owner, at, state) VALUES ('default', '019c60d9-9c84-7e33-926c-a0b6cc904387', '', 1771155000071000, 'queued');
INSERT INTO agent.due (tenant, session, owner, at, state) VALUES ('default', '019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5', '', NULL, 'running');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('acme', '019c60d9-9ca9-72a1-89e7-bb795179bb5d', 1, '', 'session.created', -1056806751, '{"seq":1,"id":"019c60d9-9caa-8242-bf50-fd9298b1de78","commit":"019c60d9-9caa-7242-bf50-fd9298b1de78","n":1,"of":1,"at":"2026-02-15T10:30:00.107000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"019c60d9-9ca6-779f-9acb-5266592f123a"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 1, '', 'session.created', 1617653521, '{"seq":1,"id":"019c60d9-9c4b-805d-aa4b-8acf76748aa2","commit":"019c60d9-9c4b-705d-aa4b-8acf76748aa2","n":1,"of":1,"at":"2026-02-15T10:30:00.012000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 10, '', 'user.message', -1332254186, '{"seq":10,"id":"019c60d9-9c58-8571-8a86-a71cf983abf7","commit":"019c60d9-9c58-7571-8a86-a71cf983abf7","n":1,"of":1,"at":"2026-02-15T10:30:00.025000Z","type":"user.message","actor":"user","data":{"text":"0"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 11, '', 'user.message', -899528626, '{"seq":11,"id":"019c60d9-9c5a-87cd-9b44-4516330b8a77","commit":"019c60d9-9c5a-77cd-9b44-4516330b8a77","n":1,"of":1,"at":"2026-02-15T10:30:00.027000Z","type":"user.message","actor":"user","data":{"text":"1"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 12, '', 'user.message', -1397643499, '{"seq":12,"id":"019c60d9-9c5c-84d0-8512-0bd70c99ba89","commit":"019c60d9-9c5c-74d0-8512-0bd70c99ba89","n":1,"of":1,"at":"2026-02-15T10:30:00.029000Z","type":"user.message","actor":"user","data":{"text":"2"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 13, '', 'user.message', 311613452, '{"seq":13,"id":"019c60d9-9c5e-8d2c-875a-68e2ac651ce0","commit":"019c60d9-9c5e-7d2c-875a-68e2ac651ce0","n":1,"of":1,"at":"2026-02-15T10:30:00.031000Z","type":"user.message","actor":"user","data":{"text":"3"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 14, '', 'user.message', -2100806896, '{"seq":14,"id":"019c60d9-9c60-87fc-b32e-4e82d6400cff","commit":"019c60d9-9c60-77fc-b32e-4e82d6400cff","n":1,"of":1,"at":"2026-02-15T10:30:00.033000Z","type":"user.message","actor":"user","data":{"text":"4"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 15, '', 'user.message', 1391429223, '{"seq":15,"id":"019c60d9-9c62-85e0-8b5e-44022e8bc153","commit":"019c60d9-9c62-75e0-8b5e-44022e8bc153","n":1,"of":1,"at":"2026-02-15T10:30:00.035000Z","type":"user.message","actor":"user","data":{"text":"5"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 16, '', 'user.message', 2088675134, '{"seq":16,"id":"019c60d9-9c64-889d-ab96-b2a46ad13c13","commit":"019c60d9-9c64-789d-ab96-b2a46ad13c13","n":1,"of":1,"at":"2026-02-15T10:30:00.037000Z","type":"user.message","actor":"user","data":{"text":"6"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 17, '', 'user.message', 684024349, '{"seq":17,"id":"019c60d9-9c66-862c-be60-49c7a0dc0729","commit":"019c60d9-9c66-762c-be60-49c7a0dc0729","n":1,"of":1,"at":"2026-02-15T10:30:00.039000Z","type":"user.message","actor":"user","data":{"text":"7"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 18, '', 'user.message', -176796808, '{"seq":18,"id":"019c60d9-9c68-8381-9059-bf1f823cb2ff","commit":"019c60d9-9c68-7381-9059-bf1f823cb2ff","n":1,"of":1,"at":"2026-02-15T10:30:00.041000Z","type":"user.message","actor":"user","data":{"text":"8"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 19, '', 'user.message', 37855526, '{"seq":19,"id":"019c60d9-9c6a-8160-869f-01d170de387e","commit":"019c60d9-9c6a-7160-869f-01d170de387e","n":1,"of":1,"at":"2026-02-15T10:30:00.043000Z","type":"user.message","actor":"user","data":{"text":"9"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 2, '', 'user.message', -376591249, '{"seq":2,"id":"019c60d9-9c4e-830b-bdb7-a6a634a5f1aa","commit":"019c60d9-9c4e-730b-bdb7-a6a634a5f1aa","n":1,"of":1,"at":"2026-02-15T10:30:00.015000Z","type":"user.message","actor":"user:alice","transition":{"trigger":"begin_run","from":"idle","to":"running","reason":"input","lease":{"holder":"golden","run":"019c60d9-9c4d-7857-8c6f-ae6d9b6f3b4a","epoch":1,"ttl_ms":120000,"since":"2026-02-15T10:30:00.015000Z"},"inputs_claimed_through":2,"inputs_new":0},"data":{"text":"## User\n---\n\\안녕\r\n\u0000"},"x":1e400}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 20, '', 'user.message', -1746657666, '{"seq":20,"id":"019c60d9-9c6c-8e68-a918-610e0e53969f","commit":"019c60d9-9c6c-7e68-a918-610e0e53969f","n":1,"of":1,"at":"2026-02-15T10:30:00.045000Z","type":"user.message","actor":"user","data":{"text":"10"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 21, '', 'user.message', -1575894034, '{"seq":21,"id":"019c60d9-9c6e-8330-b721-3230d9e47ad5","commit":"019c60d9-9c6e-7330-b721-3230d9e47ad5","n":1,"of":1,"at":"2026-02-15T10:30:00.047000Z","type":"user.message","actor":"user","data":{"text":"11"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 3, '', 'agent.tool_use', -792203418, '{"seq":3,"id":"019c60d9-9c50-8e89-af30-963784ae0865","commit":"019c60d9-9c50-7e89-af30-963784ae0865","n":1,"of":2,"at":"2026-02-15T10:30:00.017000Z","type":"agent.tool_use","actor":"agent","run":"019c60d9-9c4d-7857-8c6f-ae6d9b6f3b4a","data":{"call":"call 1","name":"ls","input":{"n":1.10}}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 4, '', 'agent.tool_result', -785982876, '{"seq":4,"id":"019c60d9-9c50-8e89-af30-963784ae0866","commit":"019c60d9-9c50-7e89-af30-963784ae0865","n":2,"of":2,"at":"2026-02-15T10:30:00.017000Z","type":"agent.tool_result","actor":"agent","run":"019c60d9-9c4d-7857-8c6f-ae6d9b6f3b4a","data":{"call":"call 1","outcome":"ok","output":{}}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 5, '', 'agent.message', -893286267, '{"seq":5,"id":"019c60d9-9c52-8687-a965-68c4e2109c44","commit":"019c60d9-9c52-7687-a965-68c4e2109c44","n":1,"of":1,"at":"2026-02-15T10:30:00.019000Z","type":"agent.message","actor":"agent","run":"019c60d9-9c4d-7857-8c6f-ae6d9b6f3b4a","transition":{"trigger":"end_run","from":"running","to":"idle","reason":"end_turn","lease":null,"inputs_done_through":2,"inputs_open":0},"data":{"text":"Hello.\n"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 6, '', 'session.updated', 1754458509, '{"seq":6,"id":"019c60d9-9c54-8d8f-94d1-0efdf17eac06","commit":"019c60d9-9c54-7d8f-94d1-0efdf17eac06","n":1,"of":3,"at":"2026-02-15T10:30:00.021000Z","type":"session.updated","actor":"system","data":{"title":{"text":"Küche","by_user":true},"labels":{"project":"apollo"}}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 7, '', 'session.document_written', -1313361956, '{"seq":7,"id":"019c60d9-9c54-8d8f-94d1-0efdf17eac07","commit":"019c60d9-9c54-7d8f-94d1-0efdf17eac06","n":2,"of":3,"at":"2026-02-15T10:30:00.021000Z","type":"session.document_written","actor":"system","data":{"name":"state","revision":1,"text":"Begun."}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 8, '', 'x.app.note', -1033249510, '{"seq":8,"id":"019c60d9-9c54-8d8f-94d1-0efdf17eac08","commit":"019c60d9-9c54-7d8f-94d1-0efdf17eac06","n":3,"of":3,"at":"2026-02-15T10:30:00.021000Z","type":"x.app.note","actor":"system","data":[0.10]}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 9, '', 'user.message', -1312267355, '{"seq":9,"id":"019c60d9-9c56-8fb9-aad1-c5057349f7b6","commit":"019c60d9-9c56-7fb9-aad1-c5057349f7b6","n":1,"of":1,"at":"2026-02-15T10:30:00.023000Z","type":"user.message","actor":"user","transition":{"trigger":"input","from":"idle","to":"queued","reason":"input"},"data":{"text":"long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long "}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c70-7405-ba77-ef73464de5be', 22, '', 'session.created', -1147232134, '{"seq":22,"id":"019c60d9-9c71-88e8-aabd-f40060539017","commit":"019c60d9-9c71-78e8-aabd-f40060539017","n":1,"of":1,"at":"2026-02-15T10:30:00.050000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default","origin":{"kind":"fork","parent":"019c60d9-9c41-715c-8289-ec2d0a9167ec","at":21},"depth":1,"lineage":{"segments":[{"session":"019c60d9-9c41-715c-8289-ec2d0a9167ec","until":21}]},"attributes":{"title":{"text":"Küche","by_user":true},"labels":{"project":"apollo"}},"inherited":{"counts":{"user":14,"agent":1,"system":0,"tool_calls":1,"runs":1},"last_input":21,"inputs_done_through":21,"inputs_open":0,"visible_from":0,"system_prompt":0,"documents":[{"name":"state","revision":1,"seq":7,"bytes":6,"by":"system"}],"first_words":"## User --- \\안녕","preview":"11"}}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c70-7405-ba77-ef73464de5be', 23, '', 'user.message', 1540895576, '{"seq":23,"id":"019c60d9-9c73-8f4a-9b0c-0b0bc764afec","commit":"019c60d9-9c73-7f4a-9b0c-0b0bc764afec","n":1,"of":1,"at":"2026-02-15T10:30:00.052000Z","type":"user.message","actor":"user","transition":{"trigger":"input","from":"idle","to":"queued","reason":"input"},"data":{"text":"another way"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c75-7f7a-8d9a-859c679bcc94', 1, '', 'session.created', 54188574, '{"seq":1,"id":"019c60d9-9c76-8262-b0bf-b24055f552c8","commit":"019c60d9-9c76-7262-b0bf-b24055f552c8","n":1,"of":1,"at":"2026-02-15T10:30:00.055000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"019c60d9-9c42-7e55-b2fb-eea293f80bc9"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c75-7f7a-8d9a-859c679bcc94', 2, '', 'user.message', -769909369, '{"seq":2,"id":"019c60d9-9c78-84ce-a25c-b0d1c5867fb7","commit":"019c60d9-9c78-74ce-a25c-b0d1c5867fb7","n":1,"of":1,"at":"2026-02-15T10:30:00.057000Z","type":"user.message","actor":"user","transition":{"trigger":"input","from":"idle","to":"queued","reason":"input"},"blobs":["81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130","ef2835809aab3d78c68b0f66efbb36530af0bf5697d25c6455c0c1f37a2f0958"],"data":{"text":"Look","parts":[{"type":"text"},{"type":"image","media":"image/png","blob":{"sha256":"81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130","bytes":5}},{"type":"image","media":"image/png","blob":{"sha256":"ef2835809aab3d78c68b0f66efbb36530af0bf5697d25c6455c0c1f37a2f0958","bytes":262152}}]}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', 1, '', 'session.created', 459735570, '{"seq":1,"id":"019c60d9-9c7b-820b-9e35-989a6cb8ac5f","commit":"019c60d9-9c7b-720b-9e35-989a6cb8ac5f","n":1,"of":1,"at":"2026-02-15T10:30:00.060000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', 2, '', 'user.message', 899833426, '{"seq":2,"id":"019c60d9-9c7e-8966-9e0c-4d6d8691bb13","commit":"019c60d9-9c7e-7966-9e0c-4d6d8691bb13","n":1,"of":1,"at":"2026-02-15T10:30:00.063000Z","type":"user.message","actor":"user:alice","transition":{"trigger":"begin_run","from":"idle","to":"running","reason":"input","lease":{"holder":"golden","run":"019c60d9-9c7d-73e0-b3ca-b44595096b93","epoch":1,"ttl_ms":120000,"since":"2026-02-15T10:30:00.063000Z"},"inputs_claimed_through":2,"inputs_new":0},"data":{"text":"ask"},"x":1e400}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', 3, '', 'agent.tool_use', 1887292863, '{"seq":3,"id":"019c60d9-9c80-8125-aca0-9e3e66298711","commit":"019c60d9-9c80-7125-aca0-9e3e66298711","n":1,"of":2,"at":"2026-02-15T10:30:00.065000Z","type":"agent.tool_use","actor":"agent","run":"019c60d9-9c7d-73e0-b3ca-b44595096b93","data":{"call":"call 1","name":"ls","input":{"n":1.10}}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', 4, '', 'agent.tool_result', -1747369447, '{"seq":4,"id":"019c60d9-9c80-8125-aca0-9e3e66298712","commit":"019c60d9-9c80-7125-aca0-9e3e66298711","n":2,"of":2,"at":"2026-02-15T10:30:00.065000Z","type":"agent.tool_result","actor":"agent","run":"019c60d9-9c7d-73e0-b3ca-b44595096b93","data":{"call":"call 1","outcome":"ok","output":{}}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', 5, '', 'agent.message', -1439042363, '{"seq":5,"id":"019c60d9-9c82-85d5-a8a3-5a1502f973cf","commit":"019c60d9-9c82-75d5-a8a3-5a1502f973cf","n":1,"of":1,"at":"2026-02-15T10:30:00.067000Z","type":"agent.message","actor":"agent","run":"019c60d9-9c7d-73e0-b3ca-b44595096b93","transition":{"trigger":"await_answer","from":"running","to":"requires_action","reason":"await_approval","lease":null,"action":{"id":"q1","kind":"approval","question":"Really?"}},"data":{"text":"Hello.\n"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c84-7e33-926c-a0b6cc904387', 1, '', 'session.created', -1732383683, '{"seq":1,"id":"019c60d9-9c85-83aa-9495-3596bd9fbe63","commit":"019c60d9-9c85-73aa-9495-3596bd9fbe63","n":1,"of":1,"at":"2026-02-15T10:30:00.070000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c84-7e33-926c-a0b6cc904387', 2, '', 'session.timer_scheduled', -1183617684, '{"seq":2,"id":"019c60d9-9c88-85fb-8fc1-42a345ce9d77","commit":"019c60d9-9c88-75fb-8fc1-42a345ce9d77","n":1,"of":1,"at":"2026-02-15T10:30:00.073000Z","type":"session.timer_scheduled","actor":"system","transition":{"trigger":"schedule_timer","from":"idle","to":"queued","reason":"timer_due"},"data":{"key":"daily","at":"2026-02-15T11:30:00.071000Z","priority":0}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c8a-797f-852c-c2314ba6e16c', 1, '', 'session.created', -1518485921, '{"seq":1,"id":"019c60d9-9c8b-8749-9e93-7a53386cf283","commit":"019c60d9-9c8b-7749-9e93-7a53386cf283","n":1,"of":1,"at":"2026-02-15T10:30:00.076000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c8a-797f-852c-c2314ba6e16c', 2, '', 'session.status_changed', -1647498746, '{"seq":2,"id":"019c60d9-9c8d-8961-9769-aeba60afb10e","commit":"019c60d9-9c8d-7961-9769-aeba60afb10e","n":1,"of":1,"at":"2026-02-15T10:30:00.078000Z","type":"session.status_changed","actor":"system","transition":{"trigger":"suspend","from":"idle","to":"suspended","reason":"user_paused"},"data":{}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c8f-79c3-9138-407e25c06ef2', 1, '', 'session.created', -149077689, '{"seq":1,"id":"019c60d9-9c90-8c31-a0b5-79e94d2d40ba","commit":"019c60d9-9c90-7c31-a0b5-79e94d2d40ba","n":1,"of":1,"at":"2026-02-15T10:30:00.081000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c8f-79c3-9138-407e25c06ef2', 2, '', 'session.status_changed', -629987857, '{"seq":2,"id":"019c60d9-9c92-8851-a9de-2d57c9c73ec8","commit":"019c60d9-9c92-7851-a9de-2d57c9c73ec8","n":1,"of":1,"at":"2026-02-15T10:30:00.083000Z","type":"session.status_changed","actor":"system","transition":{"trigger":"archive","from":"idle","to":"archived","reason":"user_archived","state_before_archive":{"state":"idle","reason":"fresh"}},"data":{}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9c94-7210-a876-5e0ac8184b29', 1, '', 'session.created', 643206990, '{"seq":1,"id":"019c60d9-9c95-8e86-b3e1-43ffd098f801","commit":"019c60d9-9c95-7e86-b3e1-43ffd098f801","n":1,"of":1,"at":"2026-02-15T10:30:00.086000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5', 1, '', 'session.created', 2103919306, '{"seq":1,"id":"019c60d9-9ca1-8c8f-9db2-15c309d97b51","commit":"019c60d9-9ca1-7c8f-9db2-15c309d97b51","n":1,"of":1,"at":"2026-02-15T10:30:00.098000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}');
INSERT INTO agent.events (tenant, session, seq, owner, type, crc, json) VALUES ('default', '019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5', 2, '', 'user.message', 1768326287, '{"seq":2,"id":"019c60d9-9ca4-8e23-b21f-84fee4a2a2ec","commit":"019c60d9-9ca4-7e23-b21f-84fee4a2a2ec","n":1,"of":1,"at":"2026-02-15T10:30:00.101000Z","type":"user.message","actor":"user","transition":{"trigger":"begin_run","from":"idle","to":"running","reason":"input","lease":{"holder":"golden","run":"019c60d9-9ca3-7a7c-88a8-9c17db622644","epoch":1,"ttl_ms":120000,"since":"2026-02-15T10:30:00.101000Z"},"inputs_claimed_through":2,"inputs_new":0},"data":{"text":"run"}}');
INSERT INTO agent.heartbeats (tenant, session, owner, heartbeat) VALUES ('default', '019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5', '', 1);
INSERT INTO agent.labels (tenant, key, value, session, owner) VALUES ('default', 'project', 'apollo', '019c60d9-9c41-715c-8289-ec2d0a9167ec', '');
INSERT INTO agent.labels (tenant, key, value, session, owner) VALUES ('default', 'project', 'apollo', '019c60d9-9c70-7405-ba77-ef73464de5be', '');
INSERT INTO agent.meta (one, format, readers_from, store) VALUES (true, 1, 1, '00000000-0000-0000-0000-000000000000');
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('acme', '019c60d9-9ca9-72a1-89e7-bb795179bb5d', '', '019c60d9-9ca6-779f-9acb-5266592f123a', 'live', NULL, 'idle', 'fresh', 'system', NULL, 1, 0, NULL, 1, NULL, 1771151400107000, 1771151400107000, 1771151400000000, NULL, -421771300, 2039770951, '{"id":"019c60d9-9ca9-72a1-89e7-bb795179bb5d","workspace":"019c60d9-9ca6-779f-9acb-5266592f123a","head":1,"status":{"state":"idle","reason":"fresh"},"creator":"system","created_at":"2026-02-15T10:30:00.107000Z","updated_at":"2026-02-15T10:30:00.107000Z","last_active_at":"2026-02-15T10:30:00.107000Z","recent":[{"id":"019c60d9-9caa-7242-bf50-fd9298b1de78","first":1,"last":1}]}', '{"id":"019c60d9-9ca9-72a1-89e7-bb795179bb5d","workspace":"019c60d9-9ca6-779f-9acb-5266592f123a","head":1,"status":{"state":"idle","reason":"fresh"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.107000Z","last_active_at":"2026-02-15T10:30:00.107000Z","counts":{"user":0,"agent":0,"system":0,"tool_calls":0,"runs":0},"inputs_open":0}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c41-715c-8289-ec2d0a9167ec', '', '00000000-0000-0000-0000-000000000000', 'live', NULL, 'queued', 'input', 'system', NULL, 21, 0, NULL, 1, NULL, 1771151400012000, 1771151400047000, 1771151400000000, 0, -641458254, -852615991, '{"id":"019c60d9-9c41-715c-8289-ec2d0a9167ec","workspace":"default","head":21,"status":{"state":"queued","reason":"input"},"creator":"system","attributes":{"title":{"text":"Küche","by_user":true},"labels":{"project":"apollo"}},"documents":[{"name":"state","revision":1,"seq":7,"bytes":6,"by":"system"}],"created_at":"2026-02-15T10:30:00.012000Z","started_at":"2026-02-15T10:30:00.015000Z","updated_at":"2026-02-15T10:30:00.047000Z","last_active_at":"2026-02-15T10:30:00.047000Z","counts":{"user":14,"agent":1,"system":0,"tool_calls":1,"runs":1},"content_bytes":{"texts":10219,"tool_results":44},"first_words":"## User --- \\안녕","preview":"11","epoch":1,"last_input":21,"begun":2,"inputs_claimed_through":2,"inputs_done_through":2,"inputs_open":13,"inputs_new":13,"recent":[{"id":"019c60d9-9c50-7e89-af30-963784ae0865","first":3,"last":4},{"id":"019c60d9-9c52-7687-a965-68c4e2109c44","first":5,"last":5},{"id":"019c60d9-9c54-7d8f-94d1-0efdf17eac06","first":6,"last":8},{"id":"019c60d9-9c56-7fb9-aad1-c5057349f7b6","first":9,"last":9},{"id":"019c60d9-9c58-7571-8a86-a71cf983abf7","first":10,"last":10},{"id":"019c60d9-9c5a-77cd-9b44-4516330b8a77","first":11,"last":11},{"id":"019c60d9-9c5c-74d0-8512-0bd70c99ba89","first":12,"last":12},{"id":"019c60d9-9c5e-7d2c-875a-68e2ac651ce0","first":13,"last":13},{"id":"019c60d9-9c60-77fc-b32e-4e82d6400cff","first":14,"last":14},{"id":"019c60d9-9c62-75e0-8b5e-44022e8bc153","first":15,"last":15},{"id":"019c60d9-9c64-789d-ab96-b2a46ad13c13","first":16,"last":16},{"id":"019c60d9-9c66-762c-be60-49c7a0dc0729","first":17,"last":17},{"id":"019c60d9-9c68-7381-9059-bf1f823cb2ff","first":18,"last":18},{"id":"019c60d9-9c6a-7160-869f-01d170de387e","first":19,"last":19},{"id":"019c60d9-9c6c-7e68-a918-610e0e53969f","first":20,"last":20},{"id":"019c60d9-9c6e-7330-b721-3230d9e47ad5","first":21,"last":21}]}', '{"id":"019c60d9-9c41-715c-8289-ec2d0a9167ec","workspace":"default","head":21,"status":{"state":"queued","reason":"input"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{"title":{"text":"Küche","by_user":true},"labels":{"project":"apollo"}},"created_at":"2026-02-15T10:30:00.012000Z","last_active_at":"2026-02-15T10:30:00.047000Z","counts":{"user":14,"agent":1,"system":0,"tool_calls":1,"runs":1},"content_bytes":{"texts":10219,"tool_results":44},"first_words":"## User --- \\안녕","preview":"11","inputs_open":13,"next_due_at":"1970-01-01T00:00:00.000000Z"}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c70-7405-ba77-ef73464de5be', '', '00000000-0000-0000-0000-000000000000', 'live', NULL, 'queued', 'input', 'system', '019c60d9-9c41-715c-8289-ec2d0a9167ec', 23, 21, NULL, 1, NULL, 1771151400050000, 1771151400052000, 1771151400000000, 0, -1720684684, -1238772386, '{"id":"019c60d9-9c70-7405-ba77-ef73464de5be","workspace":"default","head":23,"status":{"state":"queued","reason":"input"},"origin":{"kind":"fork","parent":"019c60d9-9c41-715c-8289-ec2d0a9167ec","at":21},"depth":1,"lineage":{"segments":[{"session":"019c60d9-9c41-715c-8289-ec2d0a9167ec","until":21}]},"creator":"system","attributes":{"title":{"text":"Küche","by_user":true},"labels":{"project":"apollo"}},"documents":[{"name":"state","revision":1,"seq":7,"bytes":6,"by":"system"}],"created_at":"2026-02-15T10:30:00.050000Z","updated_at":"2026-02-15T10:30:00.052000Z","last_active_at":"2026-02-15T10:30:00.052000Z","counts":{"user":15,"agent":1,"system":0,"tool_calls":1,"runs":1},"content_bytes":{"texts":22},"first_words":"## User --- \\안녕","preview":"another way","last_input":23,"inputs_claimed_through":21,"inputs_done_through":21,"inputs_open":1,"inputs_new":1,"recent":[{"id":"019c60d9-9c71-78e8-aabd-f40060539017","first":22,"last":22},{"id":"019c60d9-9c73-7f4a-9b0c-0b0bc764afec","first":23,"last":23}]}', '{"id":"019c60d9-9c70-7405-ba77-ef73464de5be","workspace":"default","head":23,"status":{"state":"queued","reason":"input"},"origin":{"kind":"fork","parent":"019c60d9-9c41-715c-8289-ec2d0a9167ec","at":21},"depth":1,"creator":"system","attributes":{"title":{"text":"Küche","by_user":true},"labels":{"project":"apollo"}},"created_at":"2026-02-15T10:30:00.050000Z","last_active_at":"2026-02-15T10:30:00.052000Z","counts":{"user":15,"agent":1,"system":0,"tool_calls":1,"runs":1},"content_bytes":{"texts":22},"first_words":"## User --- \\안녕","preview":"another way","inputs_open":1,"next_due_at":"1970-01-01T00:00:00.000000Z"}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c75-7f7a-8d9a-859c679bcc94', '', '019c60d9-9c42-7e55-b2fb-eea293f80bc9', 'live', NULL, 'queued', 'input', 'system', NULL, 2, 0, NULL, 1, NULL, 1771151400055000, 1771151400057000, 1771151400000000, 0, -1939933339, -2058805544, '{"id":"019c60d9-9c75-7f7a-8d9a-859c679bcc94","workspace":"019c60d9-9c42-7e55-b2fb-eea293f80bc9","head":2,"status":{"state":"queued","reason":"input"},"creator":"system","created_at":"2026-02-15T10:30:00.055000Z","updated_at":"2026-02-15T10:30:00.057000Z","last_active_at":"2026-02-15T10:30:00.057000Z","counts":{"user":1,"agent":0,"system":0,"tool_calls":0,"runs":0},"content_bytes":{"texts":310,"blobs":262157},"first_words":"Look","preview":"Look","last_input":2,"inputs_open":1,"inputs_new":1,"recent":[{"id":"019c60d9-9c76-7262-b0bf-b24055f552c8","first":1,"last":1},{"id":"019c60d9-9c78-74ce-a25c-b0d1c5867fb7","first":2,"last":2}]}', '{"id":"019c60d9-9c75-7f7a-8d9a-859c679bcc94","workspace":"019c60d9-9c42-7e55-b2fb-eea293f80bc9","head":2,"status":{"state":"queued","reason":"input"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.055000Z","last_active_at":"2026-02-15T10:30:00.057000Z","counts":{"user":1,"agent":0,"system":0,"tool_calls":0,"runs":0},"content_bytes":{"texts":310,"blobs":262157},"first_words":"Look","preview":"Look","inputs_open":1,"next_due_at":"1970-01-01T00:00:00.000000Z"}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c7a-7cff-9479-811a9ac05bd2', '', '00000000-0000-0000-0000-000000000000', 'live', NULL, 'requires_action', 'await_approval', 'system', NULL, 5, 0, NULL, 1, NULL, 1771151400060000, 1771151400067000, 1771151400000000, NULL, 339527599, -1900265991, '{"id":"019c60d9-9c7a-7cff-9479-811a9ac05bd2","workspace":"default","head":5,"status":{"state":"requires_action","reason":"await_approval"},"creator":"system","created_at":"2026-02-15T10:30:00.060000Z","started_at":"2026-02-15T10:30:00.063000Z","updated_at":"2026-02-15T10:30:00.067000Z","last_active_at":"2026-02-15T10:30:00.067000Z","counts":{"user":1,"agent":1,"system":0,"tool_calls":1,"runs":1},"content_bytes":{"texts":33,"tool_results":44},"first_words":"ask","preview":"Hello.","epoch":1,"last_input":2,"begun":2,"inputs_claimed_through":2,"inputs_open":1,"action":{"id":"q1","kind":"approval","question":"Really?"},"recent":[{"id":"019c60d9-9c7b-720b-9e35-989a6cb8ac5f","first":1,"last":1},{"id":"019c60d9-9c7e-7966-9e0c-4d6d8691bb13","first":2,"last":2,"epoch":1},{"id":"019c60d9-9c80-7125-aca0-9e3e66298711","first":3,"last":4},{"id":"019c60d9-9c82-75d5-a8a3-5a1502f973cf","first":5,"last":5}]}', '{"id":"019c60d9-9c7a-7cff-9479-811a9ac05bd2","workspace":"default","head":5,"status":{"state":"requires_action","reason":"await_approval"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.060000Z","last_active_at":"2026-02-15T10:30:00.067000Z","counts":{"user":1,"agent":1,"system":0,"tool_calls":1,"runs":1},"content_bytes":{"texts":33,"tool_results":44},"first_words":"ask","preview":"Hello.","inputs_open":1}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c84-7e33-926c-a0b6cc904387', '', '00000000-0000-0000-0000-000000000000', 'live', NULL, 'queued', 'timer_due', 'system', NULL, 2, 0, NULL, 1, NULL, 1771151400070000, 1771151400073000, 1771151400000000, 1771155000071000, 1109284492, -835468238, '{"id":"019c60d9-9c84-7e33-926c-a0b6cc904387","workspace":"default","head":2,"status":{"state":"queued","reason":"timer_due"},"creator":"system","created_at":"2026-02-15T10:30:00.070000Z","updated_at":"2026-02-15T10:30:00.073000Z","last_active_at":"2026-02-15T10:30:00.073000Z","timers":[{"key":"daily","at":"2026-02-15T11:30:00.071000Z","priority":0,"seq":2}],"recent":[{"id":"019c60d9-9c85-73aa-9495-3596bd9fbe63","first":1,"last":1},{"id":"019c60d9-9c88-75fb-8fc1-42a345ce9d77","first":2,"last":2}]}', '{"id":"019c60d9-9c84-7e33-926c-a0b6cc904387","workspace":"default","head":2,"status":{"state":"queued","reason":"timer_due"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.070000Z","last_active_at":"2026-02-15T10:30:00.073000Z","counts":{"user":0,"agent":0,"system":0,"tool_calls":0,"runs":0},"inputs_open":0,"next_due_at":"2026-02-15T11:30:00.071000Z"}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c8a-797f-852c-c2314ba6e16c', '', '00000000-0000-0000-0000-000000000000', 'live', 'suspended', 'suspended', 'user_paused', 'system', NULL, 2, 0, NULL, 1, NULL, 1771151400076000, 1771151400078000, 1771151400000000, NULL, 1774322810, 1512085234, '{"id":"019c60d9-9c8a-797f-852c-c2314ba6e16c","workspace":"default","head":2,"status":{"state":"suspended","reason":"user_paused"},"creator":"system","created_at":"2026-02-15T10:30:00.076000Z","updated_at":"2026-02-15T10:30:00.078000Z","last_active_at":"2026-02-15T10:30:00.078000Z","recent":[{"id":"019c60d9-9c8b-7749-9e93-7a53386cf283","first":1,"last":1},{"id":"019c60d9-9c8d-7961-9769-aeba60afb10e","first":2,"last":2}]}', '{"id":"019c60d9-9c8a-797f-852c-c2314ba6e16c","workspace":"default","head":2,"status":{"state":"suspended","reason":"user_paused"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.076000Z","last_active_at":"2026-02-15T10:30:00.078000Z","counts":{"user":0,"agent":0,"system":0,"tool_calls":0,"runs":0},"inputs_open":0}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c8f-79c3-9138-407e25c06ef2', '', '00000000-0000-0000-0000-000000000000', 'archived', NULL, 'archived', 'user_archived', 'system', NULL, 2, 0, NULL, 1, NULL, 1771151400081000, 1771151400083000, 1771151400000000, NULL, -1862280455, 1124023642, '{"id":"019c60d9-9c8f-79c3-9138-407e25c06ef2","workspace":"default","head":2,"status":{"state":"archived","reason":"user_archived"},"state_before_archive":{"state":"idle","reason":"fresh"},"creator":"system","created_at":"2026-02-15T10:30:00.081000Z","updated_at":"2026-02-15T10:30:00.083000Z","last_active_at":"2026-02-15T10:30:00.083000Z","recent":[{"id":"019c60d9-9c90-7c31-a0b5-79e94d2d40ba","first":1,"last":1},{"id":"019c60d9-9c92-7851-a9de-2d57c9c73ec8","first":2,"last":2}]}', '{"id":"019c60d9-9c8f-79c3-9138-407e25c06ef2","workspace":"default","head":2,"status":{"state":"archived","reason":"user_archived"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.081000Z","last_active_at":"2026-02-15T10:30:00.083000Z","counts":{"user":0,"agent":0,"system":0,"tool_calls":0,"runs":0},"inputs_open":0}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9c94-7210-a876-5e0ac8184b29', '', '00000000-0000-0000-0000-000000000000', 'ended', NULL, 'deleted', 'user_deleted', 'system', NULL, 6, 0, 1, 1, NULL, 1771151400086000, 1771151400095000, 1771151400000000, NULL, 147233775, -1945315434, '{"id":"019c60d9-9c94-7210-a876-5e0ac8184b29","workspace":"default","head":6,"status":{"state":"deleted","reason":"user_deleted"},"creator":"system","created_at":"2026-02-15T10:30:00.086000Z","started_at":"2026-02-15T10:30:00.089000Z","updated_at":"2026-02-15T10:30:00.095000Z","last_active_at":"2026-02-15T10:30:00.095000Z","ended_at":"2026-02-15T10:30:00.095000Z","counts":{"user":1,"agent":1,"system":0,"tool_calls":1,"runs":1},"epoch":1,"last_input":2,"begun":2,"inputs_claimed_through":2,"inputs_done_through":2,"recent":[{"id":"019c60d9-9c95-7e86-b3e1-43ffd098f801","first":1,"last":1},{"id":"019c60d9-9c98-7224-a59e-a97b070051b9","first":2,"last":2,"epoch":1},{"id":"019c60d9-9c9a-711d-9450-400173bc53ec","first":3,"last":4},{"id":"019c60d9-9c9c-7bae-a4bd-3fe53daa92cb","first":5,"last":5},{"id":"019c60d9-9c9e-754b-8fc9-e37641760b2d","first":6,"last":6}]}', '{"id":"019c60d9-9c94-7210-a876-5e0ac8184b29","workspace":"default","head":6,"status":{"state":"deleted","reason":"user_deleted"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.086000Z","last_active_at":"2026-02-15T10:30:00.095000Z","counts":{"user":1,"agent":1,"system":0,"tool_calls":1,"runs":1},"inputs_open":0}', false);
INSERT INTO agent.sessions (tenant, session, owner, workspace, class, rare, state, reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, summary_crc, record, summary, shared) VALUES ('default', '019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5', '', '00000000-0000-0000-0000-000000000000', 'live', NULL, 'running', 'input', 'system', NULL, 2, 0, NULL, 1, 1, 1771151400098000, 1771151400101000, 1771151400000000, NULL, 468014661, -1497078829, '{"id":"019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5","workspace":"default","head":2,"status":{"state":"running","reason":"input"},"creator":"system","created_at":"2026-02-15T10:30:00.098000Z","started_at":"2026-02-15T10:30:00.101000Z","updated_at":"2026-02-15T10:30:00.101000Z","last_active_at":"2026-02-15T10:30:00.101000Z","counts":{"user":1,"agent":0,"system":0,"tool_calls":0,"runs":1},"content_bytes":{"texts":14},"first_words":"run","preview":"run","lease":{"holder":"golden","run":"019c60d9-9ca3-7a7c-88a8-9c17db622644","epoch":1,"ttl_ms":120000,"since":"2026-02-15T10:30:00.101000Z"},"epoch":1,"last_input":2,"begun":2,"inputs_claimed_through":2,"inputs_open":1,"recent":[{"id":"019c60d9-9ca1-7c8f-9db2-15c309d97b51","first":1,"last":1},{"id":"019c60d9-9ca4-7e23-b21f-84fee4a2a2ec","first":2,"last":2,"epoch":1}]}', '{"id":"019c60d9-9ca0-7f3e-84f6-bbbfe9a3d6e5","workspace":"default","head":2,"status":{"state":"running","reason":"input"},"origin":{"kind":"new"},"depth":0,"creator":"system","attributes":{},"created_at":"2026-02-15T10:30:00.098000Z","last_active_at":"2026-02-15T10:30:00.101000Z","counts":{"user":1,"agent":0,"system":0,"tool_calls":0,"runs":1},"content_bytes":{"texts":14},"first_words":"run","preview":"run","inputs_open":1}', false);
INSERT INTO agent.tombstones (tenant, session, owner, kept, crc, record) VALUES ('default', '019c60d9-9c94-7210-a876-5e0ac8184b29', '', 1, 147233775, '{"id":"019c60d9-9c94-7210-a876-5e0ac8184b29","workspace":"default","head":6,"status":{"state":"deleted","reason":"user_deleted"},"creator":"system","created_at":"2026-02-15T10:30:00.086000Z","started_at":"2026-02-15T10:30:00.089000Z","updated_at":"2026-02-15T10:30:00.095000Z","last_active_at":"2026-02-15T10:30:00.095000Z","ended_at":"2026-02-15T10:30:00.095000Z","counts":{"user":1,"agent":1,"system":0,"tool_calls":1,"runs":1},"epoch":1,"last_input":2,"begun":2,"inputs_claimed_through":2,"inputs_done_through":2,"recent":[{"id":"019c60d9-9c95-7e86-b3e1-43ffd098f801","first":1,"last":1},{"id":"019c60d9-9c98-7224-a59e-a97b070051b9","first":2,"last":2,"epoch":1},{"id":"019c60d9-9c9a-711d-9450-400173bc53ec","first":3,"last":4},{"id":"019c60d9-9c9c-7bae-a4bd-3fe53daa92cb","first":5,"last":5},{"id":"019c60d9-9c9e-754b-8fc9-e37641760b2d","first":6,"last":6}]}');
INSERT INTO agent.workspaces (tenant, id, owner, name, status, last_accessed, crc, record, config_crc, config) VALUES ('acme', '019c60d9-9ca6-779f-9acb-5266592f123a', '', 'acme', 'active', 1771151400104000, -1981606916, '{"id":"019c60d9-9ca6-779f-9acb-5266592f123a","name":"acme","created_at":"2026-02-15T10:30:00.104000Z","last_accessed":"2026-02-15T10:30:00.104000Z","revision":1,"status":"active","main_session":"019c60d9-9ca7-7f69-8adf-901f0dfdc44c"}', NULL, NULL);
INSERT INTO agent.workspaces (tenant, id, owner, name, status, last_accessed, crc, record, config_crc, config) VALUES ('default', '00000000-0000-0000-0000-000000000000', '', 'Küche', 'active', 1771151400009000, -1174076211, '{"id":"default","name":"Küche","created_at":"2026-02-15T10:30:00.004000Z","last_accessed":"2026-02-15T10:30:00.004000Z","revision":2,"status":"active","main_session":"019c60d9-9c41-715c-8289-ec2d0a9167ec","provider":"claude","description":"two\nlines","creator":"user","settings":{"number":12345678901234567890.10}}', 1976367894, '\x70726f7669646572203d202267656d696e69220a');
INSERT INTO agent.workspaces (tenant, id, owner, name, status, last_accessed, crc, record, config_crc, config) VALUES ('default', '019c60d9-9c42-7e55-b2fb-eea293f80bc9', '', 'other', 'active', 1771151400006000, -1535613662, '{"id":"019c60d9-9c42-7e55-b2fb-eea293f80bc9","name":"other","created_at":"2026-02-15T10:30:00.006000Z","last_accessed":"2026-02-15T10:30:00.006000Z","revision":1,"status":"active","main_session":"019c60d9-9c45-753c-b6d7-6cec99e07585"}', NULL, NULL);
INSERT INTO agent.workspaces (tenant, id, owner, name, status, last_accessed, crc, record, config_crc, config) VALUES ('default', '019c60d9-9c43-79b5-81d1-d854bb718002', '', NULL, 'deleted', 1771151400008000, NULL, NULL, NULL, NULL);
SELECT pg_catalog.setval('agent.blobs_blob_seq', 3, true);
ALTER TABLE ONLY agent.bindings
    ADD CONSTRAINT bindings_pkey PRIMARY KEY (tenant, device);
ALTER TABLE ONLY agent.blob_chunks
    ADD CONSTRAINT blob_chunks_pkey PRIMARY KEY (blob, n);
ALTER TABLE ONLY agent.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (blob);
ALTER TABLE ONLY agent.due
    ADD CONSTRAINT due_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY agent.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (tenant, session, seq);
ALTER TABLE ONLY agent.heartbeats
    ADD CONSTRAINT heartbeats_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY agent.labels
    ADD CONSTRAINT labels_pkey PRIMARY KEY (tenant, key, value, session);
ALTER TABLE ONLY agent.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (one);
ALTER TABLE ONLY agent.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY agent.tombstones
    ADD CONSTRAINT tombstones_pkey PRIMARY KEY (tenant, session);
ALTER TABLE ONLY agent.workspaces
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY (tenant, id);
CREATE INDEX bindings_by_workspace ON agent.bindings USING btree (tenant, workspace, device);
CREATE INDEX blobs_by_session ON agent.blobs USING btree (tenant, session);
CREATE INDEX blobs_removed ON agent.blobs USING btree (tenant, blob) WHERE (state = 'removed'::text);
CREATE INDEX blobs_unnamed ON agent.blobs USING btree (tenant, session) WHERE ((named IS NULL) AND (state <> 'removed'::text));
CREATE UNIQUE INDEX blobs_whole ON agent.blobs USING btree (tenant, session, name) WHERE (state = 'whole'::text);
CREATE INDEX due_by_time ON agent.due USING btree (tenant, at, session) WHERE (at IS NOT NULL);
CREATE INDEX labels_by_session ON agent.labels USING btree (tenant, session);
CREATE INDEX sessions_by_class ON agent.sessions USING btree (tenant, class, listed_at DESC, session DESC);
CREATE INDEX sessions_by_creator ON agent.sessions USING btree (tenant, creator, class, listed_at DESC, session DESC);
CREATE INDEX sessions_by_owner ON agent.sessions USING btree (tenant, owner, class, listed_at DESC, session DESC) WHERE (owner <> ''::text);
CREATE INDEX sessions_by_parent ON agent.sessions USING btree (tenant, parent, class, listed_at DESC, session DESC) WHERE (parent IS NOT NULL);
CREATE INDEX sessions_by_workspace ON agent.sessions USING btree (tenant, workspace, class, listed_at DESC, session DESC);
CREATE INDEX sessions_rare ON agent.sessions USING btree (tenant, rare, listed_at DESC, session DESC) WHERE (rare IS NOT NULL);
CREATE INDEX workspaces_by_owner ON agent.workspaces USING btree (tenant, owner, status, last_accessed DESC, id DESC);
CREATE INDEX workspaces_by_time ON agent.workspaces USING btree (tenant, status, last_accessed DESC, id DESC);
CREATE POLICY across ON agent.bindings FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
CREATE POLICY across ON agent.blobs FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
CREATE POLICY across ON agent.due FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
CREATE POLICY across ON agent.events FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
CREATE POLICY across ON agent.sessions FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
CREATE POLICY across ON agent.tombstones FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
CREATE POLICY across ON agent.workspaces FOR SELECT TO agent_worker USING ((( SELECT current_setting('agent.across'::text, true) AS current_setting) = 'on'::text));
ALTER TABLE agent.bindings ENABLE ROW LEVEL SECURITY;
CREATE POLICY blob ON agent.blob_chunks USING ((EXISTS ( SELECT 1
   FROM agent.blobs b
  WHERE (b.blob = blob_chunks.blob))));
ALTER TABLE agent.blob_chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent.blobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent.due ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent.heartbeats ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent.labels ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON agent.bindings AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_place(tenant, workspace, true))
END);
CREATE POLICY owner ON agent.blobs AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_session(tenant, session)))
END);
CREATE POLICY owner ON agent.due AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_session(tenant, session)))
END);
CREATE POLICY owner ON agent.events AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_session(tenant, session)))
END);
CREATE POLICY owner ON agent.heartbeats AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_session(tenant, session)))
END);
CREATE POLICY owner ON agent.labels AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_session(tenant, session)))
END);
CREATE POLICY owner ON agent.sessions AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_place(tenant, workspace, shared)))
END);
CREATE POLICY owner ON agent.tombstones AS RESTRICTIVE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND agent.shows_session(tenant, session)))
END);
CREATE POLICY owner_delete ON agent.workspaces AS RESTRICTIVE FOR DELETE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE (owner = ( SELECT agent.owner() AS owner))
END);
CREATE POLICY owner_insert ON agent.workspaces AS RESTRICTIVE FOR INSERT WITH CHECK (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL) AND (id = '00000000-0000-0000-0000-000000000000'::uuid)))
END);
CREATE POLICY owner_select ON agent.workspaces AS RESTRICTIVE FOR SELECT USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL)))
END);
CREATE POLICY owner_update ON agent.workspaces AS RESTRICTIVE FOR UPDATE USING (
CASE
    WHEN (( SELECT current_setting('agent.owner'::text, true) AS current_setting) = '*'::text) THEN true
    ELSE ((owner = ( SELECT agent.owner() AS owner)) OR ((owner = ''::text) AND (( SELECT agent.owner() AS owner) IS NOT NULL)))
END);
ALTER TABLE agent.sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON agent.bindings USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.blobs USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.due USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.events USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.heartbeats USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.labels USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.sessions USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.tombstones USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
CREATE POLICY tenant ON agent.workspaces USING ((tenant = ( SELECT current_setting('agent.tenant'::text, true) AS current_setting)));
ALTER TABLE agent.tombstones ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent.workspaces ENABLE ROW LEVEL SECURITY;
