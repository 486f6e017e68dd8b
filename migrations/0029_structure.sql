-- What a declaration of changes relies on besides rows: that the table and its columns are still the same ones. A table
-- that was made anew, a column whose name now stands for another one or whose type is another, a table that was
-- rewritten (TRUNCATE, ALTER TABLE ... TYPE ... USING, VACUUM FULL), and a trigger of set_changes that is gone or switched
-- off: after each of these rows may lie elsewhere than where they were charged. So each is a new data version.

CREATE TABLE provenance.relation_structure (
    relation_id bigint PRIMARY KEY REFERENCES provenance.relation,
    structure   jsonb NOT NULL
);
COMMENT ON TABLE provenance.relation_structure IS 'The table behind each protected relation as it was when the catalog was last read: its oid, its columns with their numbers and types, its storage, its triggers.';
COMMENT ON COLUMN provenance.relation_structure.relation_id IS 'The relation, see provenance.relation.';
COMMENT ON COLUMN provenance.relation_structure.structure IS 'oid, columns (number and type by name), storage (file numbers by table, partitions included) and triggers of set_changes.';
REVOKE ALL ON provenance.relation_structure FROM PUBLIC;

CREATE FUNCTION provenance.note_structure(relation_id bigint, structure jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    own provenance.relation;
    before jsonb;
    moved boolean;
BEGIN
    SELECT * INTO own FROM provenance.relation r WHERE r.id = relation_id FOR UPDATE;
    IF own.id IS NULL OR NOT own.active THEN
        RETURN false;
    END IF;
    SELECT s.structure INTO before FROM provenance.relation_structure s WHERE s.relation_id = own.id;
    -- A column that is new, or gone, moves no row; one that was known by the same name and is another does.
    moved := before ->> 'oid' <> structure ->> 'oid'
        OR EXISTS (SELECT FROM jsonb_each(before -> 'columns') o JOIN jsonb_each(structure -> 'columns') n USING (key) WHERE o.value <> n.value)
        OR EXISTS (SELECT FROM jsonb_each(before -> 'storage') o LEFT JOIN jsonb_each(structure -> 'storage') n USING (key) WHERE o.value IS DISTINCT FROM n.value)
            AND (own.changes <> 'any' OR EXISTS (SELECT FROM provenance.attribute a WHERE a.relation_id = own.id AND a.immutable))
        OR own.enforced AND NOT structure -> 'triggers' @> (before -> 'triggers');
    moved := coalesce(moved, false) AND provenance.was_charged(own.id);
    INSERT INTO provenance.relation_structure AS s (relation_id, structure) VALUES (own.id, structure)
        ON CONFLICT ON CONSTRAINT relation_structure_pkey DO UPDATE SET structure = CASE WHEN moved THEN excluded.structure
            ELSE excluded.structure || jsonb_build_object('columns', (s.structure -> 'columns') || (excluded.structure -> 'columns')) END;
    IF moved THEN
        UPDATE provenance.relation r SET data_version = r.data_version + 1 WHERE r.id = own.id;
    END IF;
    RETURN moved;
END $$;
COMMENT ON FUNCTION provenance.note_structure IS 'Compares the table behind a relation with what it was before; where rows may have moved without an UPDATE, that is a new data version. Returns whether it is.';
REVOKE ALL ON FUNCTION provenance.note_structure FROM PUBLIC;

-- An UPDATE that moves a row to another partition is a DELETE and an INSERT, and fires no AFTER UPDATE trigger: there a BEFORE
-- trigger sees it, last by its name. And the columns by which a row finds its unit are immutable, however many they are.
CREATE OR REPLACE FUNCTION provenance.enforce_changes(relation_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    own provenance.relation;
    place regclass;
    what "char";
    heirs boolean;
    columns text[];
    part regclass;
    old record;
    differs text;
BEGIN
    SELECT * INTO own FROM provenance.relation r WHERE r.id = enforce_changes.relation_id;
    place := to_regclass(format('%I.%I', own.schema, own.name));
    IF place IS NULL THEN
        IF own.enforced AND own.active THEN
            RAISE EXCEPTION 'the table "%" is not in this database', own.label USING ERRCODE = '42P01',
                HINT = 'The ledger lives in another database: refuse changes there, by a trigger or by privileges, and declare without enforce.';
        END IF;
        RETURN;
    END IF;
    FOR old IN SELECT t.tgrelid::regclass AS place, t.tgname FROM pg_trigger t
        WHERE t.tgrelid IN (SELECT p.relid FROM pg_partition_tree(place) p UNION SELECT place)
            AND t.tgfoid = 'provenance.refuse_change'::regproc AND t.tgparentid = 0
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', old.tgname, old.place);
    END LOOP;
    IF NOT (own.enforced AND own.active) THEN
        RETURN;
    END IF;
    SELECT c.relkind, c.relhassubclass INTO what, heirs FROM pg_class c WHERE c.oid = place;
    IF what NOT IN ('r', 'p') OR (what = 'r' AND heirs) THEN
        RAISE EXCEPTION 'changes of "%" cannot be refused by triggers', own.label USING ERRCODE = '42809',
            HINT = 'Tables and partitioned tables can have them; materialized views, foreign tables and parents of inheritance cannot.';
    END IF;
    IF own.changes <> 'any' THEN
        EXECUTE format('CREATE TRIGGER pgveil_rows AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION provenance.refuse_change(%L, %L)',
            CASE own.changes WHEN 'frozen' THEN 'INSERT OR UPDATE OR DELETE' ELSE 'UPDATE OR DELETE' END, place, own.label,
            'the table is declared ' || own.changes);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER pgveil_rows', place);
        FOR part IN SELECT p.relid FROM pg_partition_tree(place) p UNION SELECT place LOOP
            EXECUTE format('CREATE TRIGGER pgveil_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION provenance.refuse_change(%L, %L)',
                part, own.label, 'the table is declared ' || own.changes);
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER pgveil_truncate', part);
        END LOOP;
    ELSE
        columns := ARRAY(SELECT a.name FROM provenance.attribute a WHERE a.relation_id = own.id AND a.immutable
            UNION SELECT own.unit_column WHERE own.unit_column IS NOT NULL
            UNION SELECT jsonb_array_elements_text(coalesce(own.unit_path -> 'steps' -> 0 -> 'columns', own.unit_path -> 'columns')) ORDER BY 1);
        IF columns <> '{}' THEN
            SELECT string_agg(format('OLD.%I IS DISTINCT FROM NEW.%I', c, c), ' OR ') INTO differs FROM unnest(columns) c;
            -- After the row is as it will be, whatever other triggers have done to it.
            EXECUTE format('CREATE TRIGGER pgveil_rows AFTER UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION provenance.refuse_change(%L, %L)', place,
                differs, own.label, 'declared immutable: ' || array_to_string(columns, ', '));
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER pgveil_rows', place);
            IF what = 'p' THEN
                EXECUTE format('CREATE TRIGGER zz_pgveil_rows BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION provenance.refuse_change(%L, %L)', place,
                    differs, own.label, 'declared immutable: ' || array_to_string(columns, ', '));
                EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER zz_pgveil_rows', place);
            END IF;
        END IF;
    END IF;
END $$;
CREATE TRIGGER changes_follow_unit AFTER UPDATE ON provenance.relation FOR EACH ROW
    WHEN ((OLD.unit_column, OLD.unit_path) IS DISTINCT FROM (NEW.unit_column, NEW.unit_path) AND NEW.enforced) EXECUTE FUNCTION provenance.changes_follow();

-- Triggers that earlier versions have made are made anew.
SELECT provenance.enforce_changes(r.id) FROM provenance.relation r WHERE r.active AND r.enforced;
