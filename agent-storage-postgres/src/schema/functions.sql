-- One round trip for a commit that was planned on a known record. It decides only whether that record is still stored; `stale`
-- gives the one that is. Order of locks: tenant, parent, session, blobs by number. READ COMMITTED is enough: each
-- statement sees what was committed before it.
CREATE FUNCTION @.commit(
    p_tenant text, p_lock bigint, p_session uuid, p_version bigint, p_next bigint,
    p_owner text, p_workspace uuid, p_class text, p_rare text, p_state text, p_reason text, p_creator text, p_parent uuid,
    p_head bigint, p_base bigint, p_epoch bigint, p_created_at bigint, p_last_active_at bigint, p_listed_at bigint,
    p_due_at bigint, p_record_crc integer, p_summary_crc integer, p_record text, p_summary text, p_shared boolean,
    p_due text, p_labels boolean, p_keys text[], p_values text[],
    p_seqs bigint[], p_types text[], p_crcs integer[], p_jsons text[],
    p_needed text[], p_needed_bytes bigint[], p_named text[], p_named_by bigint[], p_owners text
) RETURNS TABLE (outcome text, version bigint, record text, record_crc integer) LANGUAGE plpgsql AS $$
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
            SELECT s.state INTO parent_state FROM @.sessions s
                WHERE s.tenant = p_tenant AND s.session = p_parent FOR SHARE;
            IF NOT FOUND OR parent_state = 'deleted' THEN
                RETURN QUERY SELECT CASE WHEN parent_state IS NULL THEN 'no_parent' ELSE 'deleted_parent' END,
                    NULL::bigint, NULL::text, NULL::integer;
                RETURN;
            END IF;
        END IF;
        INSERT INTO @.sessions VALUES (
            p_tenant, p_session, p_owner, p_workspace, p_class, p_rare, p_state, p_reason, p_creator, p_parent,
            p_head, p_base, NULL, p_next, p_epoch, p_created_at, p_last_active_at, p_listed_at, p_due_at,
            p_record_crc, p_summary_crc, p_record, p_summary, p_shared) ON CONFLICT DO NOTHING;
    ELSE
        UPDATE @.sessions s SET class = p_class, rare = p_rare, state = p_state, reason = p_reason, head = p_head,
            version = p_next, epoch = p_epoch, last_active_at = p_last_active_at, listed_at = p_listed_at,
            due_at = p_due_at, record_crc = p_record_crc, summary_crc = p_summary_crc, record = p_record,
            summary = p_summary, shared = p_shared
            WHERE s.tenant = p_tenant AND s.session = p_session AND s.version = p_version;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'stale', s.version, s.record, s.record_crc FROM @.sessions s
            WHERE s.tenant = p_tenant AND s.session = p_session;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'absent', NULL::bigint, NULL::text, NULL::integer;
        END IF;
        RETURN;
    END IF;
    -- Nothing is appended after missing events.
    IF p_version <> 0 AND cardinality(p_seqs) > 0 AND NOT EXISTS (SELECT 1 FROM @.events e
        WHERE e.tenant = p_tenant AND e.session = p_session AND e.seq = p_seqs[1] - 1) THEN
        RAISE EXCEPTION 'the last event of the log is missing' USING ERRCODE = 'AG002';
    END IF;
    IF cardinality(p_needed) > 0 THEN
        SELECT count(*) INTO found_blobs FROM (
            SELECT b.blob, b.bytes, b.name FROM @.blobs b
                WHERE b.tenant = p_tenant AND b.session = p_session AND b.state = 'whole' AND b.name = ANY (p_needed)
                ORDER BY b.blob FOR SHARE) b
            JOIN unnest(p_needed, p_needed_bytes) AS n (name, bytes) ON n.name = b.name AND coalesce(n.bytes, b.bytes) = b.bytes
            WHERE (SELECT count(*) FROM @.blob_chunks c WHERE c.blob = b.blob) = (b.bytes + 262143) / 262144;
        IF found_blobs < cardinality(p_needed) THEN
            RAISE EXCEPTION 'a blob is missing that an event names' USING ERRCODE = 'AG001';
        END IF;
    END IF;
    IF cardinality(p_named) > 0 THEN
        UPDATE @.blobs b SET named = n.seq, owner = p_owner FROM unnest(p_named, p_named_by) AS n (name, seq)
            WHERE b.tenant = p_tenant AND b.session = p_session AND b.state = 'whole' AND b.name = n.name
            AND (b.named IS NULL OR b.named > n.seq);
    END IF;
    IF p_labels THEN
        IF p_version <> 0 THEN
            DELETE FROM @.labels l WHERE l.tenant = p_tenant AND l.session = p_session;
        END IF;
        INSERT INTO @.labels (tenant, key, value, session, owner)
            SELECT p_tenant, l.key, l.value, p_session, p_owner FROM unnest(p_keys, p_values) AS l (key, value);
    END IF;
    IF p_due = 'set' THEN
        INSERT INTO @.due AS d (tenant, session, owner, at, state) VALUES (p_tenant, p_session, p_owner, p_due_at, p_state)
            ON CONFLICT (tenant, session) DO UPDATE SET at = excluded.at, state = excluded.state;
    ELSIF p_due = 'drop' THEN
        DELETE FROM @.due d WHERE d.tenant = p_tenant AND d.session = p_session;
    END IF;
    INSERT INTO @.events (tenant, session, seq, owner, type, crc, json)
        SELECT p_tenant, p_session, e.seq, p_owner, e.type, e.crc, e.json
        FROM unnest(p_seqs, p_types, p_crcs, p_jsons) AS e (seq, type, crc, json);
    RETURN QUERY SELECT 'applied', p_next, NULL::text, NULL::integer;
END $$;
