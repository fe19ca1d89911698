-- For people; the library itself never reads them. What PostgreSQL cannot read as JSON, since somebody damaged it, or since it has
-- `\u0000` or half of a surrogate pair, is NULL and spoils no other row.

CREATE FUNCTION @.readable(p_json text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    -- Reading a value reads all texts.
    PERFORM p_json::json #>> '{}';
    RETURN p_json;
EXCEPTION WHEN untranslatable_character OR invalid_text_representation OR statement_too_complex THEN
    RETURN NULL;
END $$;

CREATE VIEW @.v_sessions AS
SELECT tenant, workspace, owner, session, state, reason, sound #>> '{attributes,title,text}' AS title, head, creator, parent,
       to_timestamp(created_at / 1000000.0) AS created_at, to_timestamp(last_active_at / 1000000.0) AS last_active_at,
       to_timestamp(due_at / 1000000.0) AS next_due_at
FROM @.sessions, @.readable(summary) AS r (sound);

CREATE VIEW @.v_messages AS
SELECT tenant, session, seq, sound ->> 'at' AS at, type, sound ->> 'actor' AS actor, sound ->> 'run' AS run,
       sound #>> '{data,text}' AS text
FROM @.events, @.readable(json) AS r (sound) WHERE type IN ('user.message', 'agent.message', 'system.message');

CREATE VIEW @.v_parts AS
SELECT tenant, session, seq, n AS part, one ->> 'type' AS type, one ->> 'text' AS text, one ->> 'media' AS media, one ->> 'uri' AS uri,
       one ->> 'name' AS name
FROM @.events, @.readable(json) AS r (sound), json_array_elements(
    CASE json_typeof(sound #> '{data,parts}') WHEN 'array' THEN sound #> '{data,parts}' END) WITH ORDINALITY AS p (one, n)
WHERE json_typeof(one) = 'object' AND type IN ('user.message', 'agent.message', 'system.message');

CREATE VIEW @.v_runs AS
SELECT tenant, session, sound ->> 'run' AS run, min(seq) AS first, max(seq) AS last, count(*) AS events,
       min(sound ->> 'at') AS began_at, max(sound ->> 'at') AS ended_at
FROM @.events, @.readable(json) AS r (sound) WHERE sound ->> 'run' IS NOT NULL
GROUP BY tenant, session, sound ->> 'run';

CREATE VIEW @.v_labels AS SELECT tenant, session, key, value FROM @.labels;

-- The policies are those of whoever reads; before version 15, those of the owner of the views, which are the same.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['v_sessions', 'v_messages', 'v_parts', 'v_runs', 'v_labels'] LOOP
        IF current_setting('server_version_num')::integer >= 150000 THEN
            EXECUTE format('ALTER VIEW @.%I SET (security_invoker = true)', name);
        END IF;
    END LOOP;
END $$;
