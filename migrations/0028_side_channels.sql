-- Administrators work in the database of the ledger, which is by default the protected one. They may read none of its
-- tables, but PostgreSQL lets everybody read its statistics: the exact number of rows that were inserted, deleted and
-- read in each table, sizes of tables, positions in the write-ahead log. And everybody may use large objects. There are
-- no negative grants, so that both are taken from PUBLIC in this database and given to those who need them: pg_monitor
-- (statistics), the owner of the database, whoever runs pgveil, and whoever owns a table or a large object here.
--
-- What stays: pg_class.reltuples and relpages, which every client reads with the rest of pg_class, and which ANALYZE
-- leaves at the exact number of rows of a small table; transaction numbers, which system columns show as well;
-- pg_stat_activity, which hides everything but the existence of other roles' sessions. To have none of that, let the
-- ledger live in a database of another server (pgveil serve --provenance).

CREATE FUNCTION provenance.side_channels(OUT place oid, OUT shown text, OUT large_object boolean) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.oid, p.oid::regprocedure::text, p.proname ~ '^lo'
    FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND (
        (p.proname ~ '^pg_stat_get_' AND p.proname !~ '^pg_stat_get_(activity|snapshot_timestamp|backend_.*)$')
        OR p.proname ~ '^pg_stat_get_backend_(io|wal)$'
        OR p.proname IN ('pg_relation_size', 'pg_table_size', 'pg_indexes_size', 'pg_total_relation_size', 'pg_database_size', 'pg_tablespace_size',
            'pg_lock_status', 'pg_get_replication_slots', 'pg_control_checkpoint', 'pg_available_wal_summaries', 'pg_wal_summary_contents',
            'pg_get_wal_summarizer_state', 'pg_get_multixact_members')
        OR p.proname ~ '^pg_(current|last)_wal_.*lsn$'
        OR p.proname ~ '^(lo_.*|loread|lowrite)$')
    UNION ALL
    SELECT p.oid, p.oid::regprocedure::text, false
    FROM pg_extension e
    JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
    JOIN pg_proc p ON p.oid = d.objid
    WHERE e.extname IN ('pg_stat_statements', 'pg_stat_kcache', 'pg_stat_monitor', 'pg_qualstats', 'pg_wait_sampling', 'pg_buffercache', 'pg_freespacemap',
        'pg_visibility', 'pgstattuple', 'pageinspect', 'pgrowlocks', 'pg_walinspect')
$$;
COMMENT ON FUNCTION provenance.side_channels IS 'Functions that tell the rows or sizes of tables, or keep data outside of tables, whatever tables the caller may read.';

CREATE FUNCTION provenance.close_side_channels() RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    one record;
    whom text;
    owners text[];
    kept text[];
BEGIN
    SELECT array_agg(DISTINCT quote_ident(r.rolname)) INTO owners FROM pg_roles r
        WHERE NOT r.rolsuper AND r.rolname <> 'pgveil_admin' AND NOT pg_has_role('pgveil_admin', r.oid, 'MEMBER') AND r.rolname !~ '^pg_'
            AND (r.rolname = current_user OR r.oid = (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database())
                OR EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid) OR EXISTS (SELECT FROM pg_largeobject_metadata l WHERE l.lomowner = r.oid));
    FOR one IN SELECT s.place, s.shown, s.large_object FROM provenance.side_channels() s JOIN pg_proc p ON p.oid = s.place
        WHERE EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')
    LOOP
        BEGIN
            whom := array_to_string(owners || CASE WHEN one.large_object THEN '{}'::text[] ELSE ARRAY['pg_monitor'] END, ', ');
            IF whom <> '' THEN
                EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', one.shown, whom);
            END IF;
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one.shown);
        EXCEPTION WHEN insufficient_privilege THEN
            NULL;  -- told below
        END;
    END LOOP;
    kept := ARRAY(SELECT s.shown FROM provenance.side_channels() s WHERE has_function_privilege('pgveil_admin', s.place, 'EXECUTE') ORDER BY 1);
    IF kept <> '{}' THEN
        RAISE WARNING 'administrators can read statistics of protected tables, or use large objects: % functions are open to them', cardinality(kept)
            USING DETAIL = format('Among them %s.', array_to_string(kept[1:3], ', ')),
            HINT = 'As a superuser, in this database: SELECT provenance.close_side_channels(). Or keep the ledger in a database of another server: pgveil serve --provenance.';
    END IF;
    RETURN kept;
END $$;
COMMENT ON FUNCTION provenance.close_side_channels IS 'Takes statistics of tables and large objects from PUBLIC, in this database, and gives them to pg_monitor and to the owners of what is in it. Returns what administrators can still call, because whoever runs it is no superuser. Called at every start, for functions and extensions that came since.';
REVOKE ALL ON FUNCTION provenance.side_channels, provenance.close_side_channels FROM PUBLIC;
