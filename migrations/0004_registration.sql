-- Registration of tables.

CREATE FUNCTION provenance.register(relation text, kind text, unit_column text, max_groups integer, max_rows integer, size_hint bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    parts text[] := parse_ident(relation);
    place regclass;
    what "char";
BEGIN
    IF cardinality(parts) = 1 THEN
        parts := ARRAY['public', parts[1]];
    END IF;
    IF cardinality(parts) <> 2 THEN
        RAISE EXCEPTION '"%" is not a table name', relation USING ERRCODE = '42602', HINT = 'Write table or schema.table.';
    END IF;
    INSERT INTO provenance.relation AS r (schema, name, kind, unit_column, max_groups, max_rows, size_hint)
        VALUES (parts[1], parts[2], kind, unit_column, max_groups, max_rows, size_hint)
        ON CONFLICT (schema, name) WHERE active DO UPDATE SET kind = excluded.kind, unit_column = excluded.unit_column,
            max_groups = excluded.max_groups, max_rows = excluded.max_rows, size_hint = excluded.size_hint
        WHERE (r.kind, r.unit_column, r.max_groups, r.max_rows, r.size_hint)
            IS DISTINCT FROM (excluded.kind, excluded.unit_column, excluded.max_groups, excluded.max_rows, excluded.size_hint);
    place := to_regclass(format('%I.%I', parts[1], parts[2]));
    IF place IS NULL THEN
        RETURN;  -- the ledger lives in another database: whoever prepares the protected one grants there
    END IF;
    SELECT c.relkind INTO what FROM pg_class c WHERE c.oid = place;
    IF what NOT IN ('r', 'p', 'm', 'f') THEN
        RAISE EXCEPTION '"%" is not a table', relation USING ERRCODE = '42809',
            HINT = 'Tables, partitioned tables, materialized views and foreign tables can be registered.';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO pgveil_reader', parts[1]);
    EXECUTE format('GRANT SELECT ON %s TO pgveil_reader', place);
    IF NOT has_table_privilege('pgveil_reader', place, 'SELECT') THEN
        RAISE EXCEPTION 'no right to let pgveil read "%"', relation USING ERRCODE = '42501',
            HINT = format('As the owner of the table: GRANT SELECT ON %s TO %I WITH GRANT OPTION.', place, current_user);
    END IF;
END $$;
COMMENT ON FUNCTION provenance.register IS 'What protect and publish share.';

CREATE FUNCTION provenance.protect(relation text, unit_column text DEFAULT NULL, max_groups integer DEFAULT 1, max_rows integer DEFAULT 1, size_hint bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM provenance.register(relation, 'protected', unit_column, max_groups, max_rows, size_hint);
END $$;
COMMENT ON FUNCTION provenance.protect IS 'Registers a table whose rows are private; a name without a schema is in public. Repeating it with the same arguments changes nothing.';

CREATE FUNCTION provenance.publish(relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM provenance.register(relation, 'public', NULL, 1, 1, NULL);
END $$;
COMMENT ON FUNCTION provenance.publish IS 'Registers a table that every analyst may read as it is.';

CREATE FUNCTION provenance.declare_attribute(
    relation text, name text, lower text DEFAULT NULL, upper text DEFAULT NULL, step text DEFAULT NULL,
    members text[] DEFAULT NULL, members_from text DEFAULT NULL, constant_per_unit boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    UPDATE provenance.attribute a SET lower = lower, upper = upper, step = step, members = members,
            members_from = members_from, constant_per_unit = constant_per_unit
        WHERE a.relation_id = provenance.relation_id(relation) AND a.name = name;
    IF NOT FOUND THEN
        INSERT INTO provenance.attribute (relation, name, lower, upper, step, members, members_from, constant_per_unit)
            VALUES (relation, name, lower, upper, step, members, members_from, constant_per_unit);
    END IF;
END $$;
COMMENT ON FUNCTION provenance.declare_attribute(text, text, text, text, text, text[], text, boolean)
    IS 'Says what is public about a column, in place of what was said before.';

CREATE FUNCTION provenance.declare_attribute(
    relation text, name text, lower numeric, upper numeric, step numeric DEFAULT NULL, constant_per_unit boolean DEFAULT false) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT provenance.declare_attribute(relation, name, lower::text, upper::text, step::text, NULL::text[], NULL::text, constant_per_unit)
$$;
COMMENT ON FUNCTION provenance.declare_attribute(text, text, numeric, numeric, numeric, boolean) IS 'The same, for a column of numbers.';

CREATE FUNCTION provenance.refresh(relation text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    which bigint := provenance.relation_id(relation);
    now_at bigint;
BEGIN
    UPDATE provenance.relation r SET data_version = r.data_version + 1 WHERE r.id = which RETURNING r.data_version INTO now_at;
    DELETE FROM provenance.synopsis s WHERE s.relation_id = which;
    RETURN now_at;
END $$;
COMMENT ON FUNCTION provenance.refresh IS 'The data have changed: a new data version. Synopses are dropped, spending stays.';
