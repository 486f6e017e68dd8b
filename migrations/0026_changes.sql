-- How protected tables change. Two things rely on rows staying where they are: charges on different parts of a table
-- are counted in parallel (a unit lies in one of them), and noisy releases are averaged (all of them estimate the same
-- number). Neither is believed any more unless it is declared.
--
--   any      rows are added, changed and removed at any time (the default). Only columns that are declared immutable
--            separate regions, and only releases of one snapshot are combined.
--   append   rows are added, never changed or removed. Columns separate regions: each row stays where it is. Only
--            releases of one snapshot are combined.
--   frozen   nothing changes until provenance.refresh. Columns separate regions, and all releases of one data version
--            are combined.
--
-- The column that names the unit, and foreign keys that lead to the unit, are immutable by declaration of the unit.

ALTER TABLE provenance.relation
    ADD COLUMN changes  text    NOT NULL DEFAULT 'any' CONSTRAINT changes_are_any_append_or_frozen CHECK (changes IN ('any', 'append', 'frozen')),
    ADD COLUMN enforced boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN provenance.relation.changes IS 'any: rows may change at any time; append: rows are added only; frozen: nothing changes until provenance.refresh. append and frozen are assumptions unless enforced: an UPDATE in spite of them is invisible to the ledger, which then counts too little.';
COMMENT ON COLUMN provenance.relation.enforced IS 'Triggers on the table refuse what changes and the immutable columns exclude, see provenance.set_changes.';

ALTER TABLE provenance.attribute ADD COLUMN immutable boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN provenance.attribute.immutable IS 'A row keeps its value here from its INSERT to its DELETE; with constant_per_unit also every later row of the unit has it. On a table of changes any, only such columns (for units of many rows: such that are also constant_per_unit) separate regions. An assumption unless relation.enforced.';
COMMENT ON COLUMN provenance.attribute.constant_per_unit IS 'Every row of one unit has the same value here; over time as well only if the table is frozen or append, or the column is immutable.';
COMMENT ON COLUMN provenance.relation.unit_column IS 'The person whose rows are protected together; NULL: each row is its own unit. Immutable by declaration: a row never passes to another person.';

ALTER TABLE provenance.release ADD COLUMN snapshot bigint;
UPDATE provenance.release SET snapshot = charge;
ALTER TABLE provenance.release ALTER COLUMN snapshot SET NOT NULL;
COMMENT ON COLUMN provenance.release.snapshot IS 'Releases with the same number were measured in one transaction, and so on the same rows: the first charge of the statement that measured them.';
GRANT SELECT (snapshot) ON provenance.release TO pgveil_admin;

-- Charges that were made under another declaration stay right for the data version that they were made at; layers of
-- different data versions add up. So every change of the declaration after the first charge is a new data version.
CREATE FUNCTION provenance.was_charged(relation_id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT EXISTS (SELECT FROM provenance.charge c WHERE c.relation_id = was_charged.relation_id)
        OR EXISTS (SELECT FROM provenance.charge c WHERE c.beside <> '{}' AND was_charged.relation_id = ANY (c.beside))
$$;
COMMENT ON FUNCTION provenance.was_charged IS 'Whether any question about the relation, alone or joined, was charged.';

CREATE FUNCTION provenance.changes_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF NEW.kind = 'public' AND TG_OP = 'UPDATE' AND OLD.kind <> 'public' THEN
        NEW.changes := 'any';
        NEW.enforced := false;
    ELSIF NEW.kind = 'public' AND NEW.changes <> 'any' THEN
        RAISE EXCEPTION 'changes are declared for protected tables: "%" is public', NEW.name USING ERRCODE = '55000';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.changes <> OLD.changes AND provenance.was_charged(OLD.id) THEN
        NEW.data_version := greatest(NEW.data_version, OLD.data_version + 1);
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION provenance.changes_rules IS 'Another declaration of how a table changes is a new data version, once something was charged.';
CREATE TRIGGER changes_rules BEFORE INSERT OR UPDATE ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.changes_rules();

CREATE FUNCTION provenance.immutable_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    which bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.relation_id ELSE NEW.relation_id END;
BEGIN
    -- Where rows lay before the column was declared immutable is not known: earlier charges are a layer of their own. And
    -- a question that was charged under a declaration is not measured after it was taken back.
    IF provenance.was_charged(which) THEN
        UPDATE provenance.relation r SET data_version = r.data_version + 1 WHERE r.id = which AND r.changes = 'any';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.immutable_rules IS 'What separates the regions of a table that changes: when that is declared otherwise, it is a new data version.';
CREATE TRIGGER immutable_rules AFTER INSERT ON provenance.attribute FOR EACH ROW WHEN (NEW.immutable) EXECUTE FUNCTION provenance.immutable_rules();
CREATE TRIGGER immutable_rules_on_removal AFTER DELETE ON provenance.attribute FOR EACH ROW WHEN (OLD.immutable) EXECUTE FUNCTION provenance.immutable_rules();
CREATE TRIGGER immutable_rules_on_change AFTER UPDATE ON provenance.attribute FOR EACH ROW
    WHEN (NEW.immutable <> OLD.immutable OR (NEW.immutable AND NEW.constant_per_unit <> OLD.constant_per_unit)) EXECUTE FUNCTION provenance.immutable_rules();

-- Whoever moves the data version, and however: answers and releases of the older data are gone, those of questions that
-- joined the table too.
CREATE OR REPLACE FUNCTION provenance.forget_releases() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    DELETE FROM provenance.release r WHERE r.relation_id = NEW.id AND r.data_version < NEW.data_version;
    DELETE FROM provenance.synopsis s WHERE s.relation_id = NEW.id AND s.data_version < NEW.data_version;
    DELETE FROM provenance.release r USING provenance.charge c WHERE r.charge = c.id AND c.beside <> '{}' AND NEW.id = ANY (c.beside);
    DELETE FROM provenance.synopsis s USING provenance.charge c WHERE s.charge = c.id AND c.beside <> '{}' AND NEW.id = ANY (c.beside);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.forget_releases IS 'A new data version: what was measured on older data, alone or joined, is not used again.';
DROP TRIGGER forget_releases ON provenance.relation;
CREATE TRIGGER forget_releases AFTER UPDATE ON provenance.relation FOR EACH ROW WHEN (OLD.data_version <> NEW.data_version)
    EXECUTE FUNCTION provenance.forget_releases();
CREATE TRIGGER move_registry_on_declared_changes AFTER UPDATE ON provenance.relation FOR EACH ROW
    WHEN (OLD.changes <> NEW.changes) EXECUTE FUNCTION provenance.move_registry();

-- Enforcement, on request: triggers on the protected table itself.
CREATE FUNCTION provenance.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% on "%" is refused: %', TG_OP, TG_ARGV[0], TG_ARGV[1] USING ERRCODE = '55000',
        HINT = format('pgveil relies on it. To change the data: SELECT provenance.set_changes(%L, ''any''), and declare it again afterwards.', TG_ARGV[0]);
END $$;
COMMENT ON FUNCTION provenance.refuse_change IS 'The trigger by which provenance.set_changes(..., enforce => true) keeps a protected table as it is declared.';

CREATE FUNCTION provenance.enforce_changes(relation_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    own provenance.relation;
    place regclass;
    what "char";
    heirs boolean;
    columns text[];
    part regclass;
    old record;
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
        WHERE t.tgrelid IN (SELECT p.relid FROM pg_partition_tree(place) p UNION SELECT place) AND t.tgname LIKE 'pgveil\_%'
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
            UNION SELECT own.unit_column WHERE own.unit_column IS NOT NULL ORDER BY 1);
        IF columns <> '{}' THEN
            -- After the row is as it will be, whatever other triggers have done to it.
            EXECUTE format('CREATE TRIGGER pgveil_rows AFTER UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION provenance.refuse_change(%L, %L)', place,
                (SELECT string_agg(format('OLD.%I IS DISTINCT FROM NEW.%I', c, c), ' OR ') FROM unnest(columns) c), own.label,
                'declared immutable: ' || array_to_string(columns, ', '));
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER pgveil_rows', place);
        END IF;
    END IF;
END $$;
COMMENT ON FUNCTION provenance.enforce_changes IS 'Makes the triggers of a protected table anew, or removes them, as relation.enforced says.';

CREATE FUNCTION provenance.changes_follow() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.enforced OR NEW.enforced) AND (OLD.active OR NEW.active) THEN
        PERFORM provenance.enforce_changes(NEW.id);
    END IF;
    IF NEW.changes <> 'any' AND NOT NEW.enforced AND NEW.active THEN
        RAISE WARNING '"%" is assumed to be %: %', NEW.label, NEW.changes, CASE NEW.changes
                WHEN 'frozen' THEN 'rows are neither added, changed nor removed until provenance.refresh'
                ELSE 'rows are added, and neither changed nor removed' END
            USING DETAIL = 'Nothing refuses such a change. The ledger cannot see it, and what a row that moved has lost can then be more than what is counted.',
            HINT = format('To refuse changes: SELECT provenance.set_changes(%L, %L, enforce => true).', NEW.label, NEW.changes);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.changes_follow IS 'Says what is assumed from now on, or sees to it.';
CREATE TRIGGER changes_follow AFTER UPDATE ON provenance.relation FOR EACH ROW
    WHEN ((OLD.changes, OLD.enforced, OLD.active) IS DISTINCT FROM (NEW.changes, NEW.enforced, NEW.active)) EXECUTE FUNCTION provenance.changes_follow();
CREATE TRIGGER changes_follow_on_registration AFTER INSERT ON provenance.relation FOR EACH ROW
    WHEN (NEW.changes <> 'any') EXECUTE FUNCTION provenance.changes_follow();

CREATE FUNCTION provenance.immutable_follows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    which bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.relation_id ELSE NEW.relation_id END;
    own provenance.relation;
BEGIN
    SELECT * INTO own FROM provenance.relation r WHERE r.id = which;
    IF own.enforced THEN
        PERFORM provenance.enforce_changes(which);
    ELSIF own.changes = 'any' AND TG_OP <> 'DELETE' AND NEW.immutable AND (TG_OP = 'INSERT' OR NOT OLD.immutable) THEN
        RAISE WARNING '"%" of "%" is assumed to be immutable: a row keeps its value until it is removed', NEW.name, own.label
            USING DETAIL = 'Nothing refuses an UPDATE of it. The ledger cannot see one, and what the row has lost can then be more than what is counted.',
            HINT = format('To refuse it: SELECT provenance.set_changes(%L, ''any'', enforce => true).', own.label);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.immutable_follows IS 'Says what is assumed of a column from now on, or sees to it.';
CREATE TRIGGER immutable_follows AFTER INSERT OR DELETE OR UPDATE OF immutable, name ON provenance.attribute FOR EACH ROW EXECUTE FUNCTION provenance.immutable_follows();

CREATE FUNCTION provenance.set_changes(relation text, changes text, enforce boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    which bigint := provenance.relation_id(relation);
BEGIN
    IF changes IS NULL OR changes NOT IN ('any', 'append', 'frozen') THEN
        RAISE EXCEPTION '"%" is not a way in which a table changes', changes USING ERRCODE = '22023', HINT = 'Write any, append or frozen.';
    END IF;
    UPDATE provenance.relation r SET changes = changes, enforced = enforce
        WHERE r.id = which AND (r.changes, r.enforced) IS DISTINCT FROM (changes, enforce);
END $$;
COMMENT ON FUNCTION provenance.set_changes IS 'Declares how a protected table changes: any, append (rows are added only) or frozen (nothing changes until provenance.refresh). With enforce, triggers on the table refuse everything else; without, it is an assumption. Once something was charged, another declaration is a new data version.';

-- The same as before, and how the table changes; what is left out is as if it had never been said.
DROP FUNCTION provenance.protect(text, text, integer, integer, bigint);
CREATE FUNCTION provenance.protect(relation text, unit_column text DEFAULT NULL, max_groups integer DEFAULT 1, max_rows integer DEFAULT 1, size_hint bigint DEFAULT NULL, changes text DEFAULT 'any') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    which bigint;
BEGIN
    PERFORM provenance.register(relation, 'protected', unit_column, max_groups, max_rows, size_hint);
    which := provenance.relation_id(relation);
    IF changes IS DISTINCT FROM (SELECT r.changes FROM provenance.relation r WHERE r.id = which) THEN
        PERFORM provenance.set_changes(relation, changes);
    END IF;
END $$;
COMMENT ON FUNCTION provenance.protect IS 'Registers a table whose rows are private; a name without a schema is in public. changes says how its rows change, see provenance.set_changes. Repeating it with the same arguments changes nothing.';

DROP FUNCTION provenance.declare_attribute(text, text, numeric, numeric, numeric, boolean);
DROP FUNCTION provenance.declare_attribute(text, text, text, text, text, text[], text, boolean);
CREATE FUNCTION provenance.declare_attribute(
    relation text, name text, lower text DEFAULT NULL, upper text DEFAULT NULL, step text DEFAULT NULL,
    members text[] DEFAULT NULL, members_from text DEFAULT NULL, constant_per_unit boolean DEFAULT false, immutable boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    UPDATE provenance.attribute a SET lower = lower, upper = upper, step = step, members = members,
            members_from = members_from, constant_per_unit = constant_per_unit, immutable = immutable
        WHERE a.relation_id = provenance.relation_id(relation) AND a.name = name;
    IF NOT FOUND THEN
        INSERT INTO provenance.attribute (relation, name, lower, upper, step, members, members_from, constant_per_unit, immutable)
            VALUES (relation, name, lower, upper, step, members, members_from, constant_per_unit, immutable);
    END IF;
END $$;
COMMENT ON FUNCTION provenance.declare_attribute(text, text, text, text, text, text[], text, boolean, boolean)
    IS 'Says what is public about a column, in place of what was said before.';
CREATE FUNCTION provenance.declare_attribute(
    relation text, name text, lower numeric, upper numeric, step numeric DEFAULT NULL, constant_per_unit boolean DEFAULT false,
    immutable boolean DEFAULT false) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT provenance.declare_attribute(relation, name, lower::text, upper::text, step::text, NULL::text[], NULL::text, constant_per_unit, immutable)
$$;
COMMENT ON FUNCTION provenance.declare_attribute(text, text, numeric, numeric, numeric, boolean, boolean) IS 'The same, for a column of numbers.';

REVOKE ALL ON FUNCTION provenance.was_charged, provenance.changes_rules, provenance.immutable_rules, provenance.refuse_change, provenance.enforce_changes,
    provenance.changes_follow, provenance.immutable_follows, provenance.set_changes, provenance.protect,
    provenance.declare_attribute(text, text, text, text, text, text[], text, boolean, boolean),
    provenance.declare_attribute(text, text, numeric, numeric, numeric, boolean, boolean) FROM PUBLIC;
GRANT INSERT (changes), UPDATE (changes) ON provenance.relation TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.set_changes, provenance.protect,
    provenance.declare_attribute(text, text, text, text, text, text[], text, boolean, boolean),
    provenance.declare_attribute(text, text, numeric, numeric, numeric, boolean, boolean) TO pgveil_admin;
