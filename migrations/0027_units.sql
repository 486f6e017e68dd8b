-- Every child of a protected table has a declared unit. A table whose rows lead to a protected table, by foreign keys,
-- has many rows of one person; if each of its rows were a unit, the person would lose as many times as much as is
-- stated. So its unit is said:
--
--   unit_column => 'patient_id'               a column; also unit => 'patient_id'
--   unit => 'visit_id -> visit.patient_id'    a path: the foreign key visit_id leads to visit, whose patient_id is the unit
--   unit => '(clinic, no) -> patient'         the row of patient that the foreign key leads to; also '-> clinic.patient.*'
--   unit => 'row'                             each row by itself, with a WARNING that says what that means
--
-- A path has as many steps as it needs: 'item_id -> item.visit_id -> visit.patient_id'. Tables of another schema are
-- written with it: 'visit_id -> clinic.visit.patient_id'; several columns of one key in parentheses.

ALTER TABLE provenance.relation
    ADD COLUMN unit         text CHECK (unit <> ''),
    ADD COLUMN unit_path    jsonb,
    ADD COLUMN unit_assumed boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT a_row_unit_is_one_row,
    DROP CONSTRAINT a_public_table_has_no_unit,
    ADD CONSTRAINT a_row_unit_is_one_row CHECK (num_nonnulls(unit_column, unit_path) > 0 OR (max_groups = 1 AND max_rows = 1)),
    ADD CONSTRAINT a_public_table_has_no_unit CHECK (kind = 'protected' OR num_nonnulls(unit_column, unit, unit_path) = 0),
    ADD CONSTRAINT a_declared_unit_is_not_assumed CHECK (unit IS NULL OR NOT unit_assumed);
COMMENT ON COLUMN provenance.relation.unit IS 'The privacy unit as it was declared: row, a column, or a path along foreign keys such as visit_id -> visit.patient_id; NULL: not declared, so that each row is its own unit, which is refused where the table references a protected one.';
COMMENT ON COLUMN provenance.relation.unit_path IS 'A path taken apart, made from unit: steps are foreign keys, columns name the unit in the table where they end, of is the table that these are the key of.';
COMMENT ON COLUMN provenance.relation.unit_assumed IS 'The table was registered before units had to be declared, and each of its rows is taken for a unit although it references a protected table. Declare the unit: provenance.protect(..., unit => ...).';
COMMENT ON COLUMN provenance.relation.unit_column IS 'The person whose rows are protected together; NULL: each row is its own unit, or the unit is found along unit_path. Immutable by declaration: a row never passes to another person.';

CREATE FUNCTION provenance.names_of_columns(written text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    inside text := substring(btrim(written) FROM '^\((.*)\)$');
    part text;
    parts text[];
    found text[] := '{}';
BEGIN
    FOREACH part IN ARRAY CASE WHEN inside IS NULL THEN ARRAY[btrim(written)] ELSE string_to_array(inside, ',') END LOOP
        parts := parse_ident(part);
        IF cardinality(parts) <> 1 OR parts[1] = ANY (found) THEN
            RAISE EXCEPTION '"%" is no column', btrim(part) USING ERRCODE = '42602';
        END IF;
        found := found || parts[1];
    END LOOP;
    RETURN found;
END $$;
COMMENT ON FUNCTION provenance.names_of_columns IS 'The columns of one step of a unit: a name, or several in parentheses.';

CREATE FUNCTION provenance.read_unit(unit text, OUT unit_column text, OUT unit_path jsonb)
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    steps jsonb := '[]';
    columns text[];
    tail text[];
    piece text;
    place text;
    parts text[];
    row_of jsonb;
BEGIN
    IF lower(btrim(unit)) = 'row' THEN
        RETURN;
    END IF;
    FOREACH piece IN ARRAY regexp_split_to_array(unit, '\s*->\s*') LOOP
        IF columns IS NULL THEN
            columns := provenance.names_of_columns(piece);
            CONTINUE;
        END IF;
        IF row_of IS NOT NULL THEN
            RAISE EXCEPTION 'the unit "%" goes on behind the row of a table', unit USING ERRCODE = '22023',
                HINT = 'Name the column that leads on: visit_id -> visit.patient_id -> patient.';
        END IF;
        place := piece;
        tail := NULL;
        IF piece ~ '\.\s*\*\s*$' THEN
            place := regexp_replace(piece, '\.\s*\*\s*$', '');
        ELSIF piece ~ '\.\s*\(.*\)\s*$' THEN
            place := regexp_replace(piece, '\.\s*\(.*\)\s*$', '');
            tail := provenance.names_of_columns(substring(piece FROM '\.\s*(\(.*\))\s*$'));
        ELSE
            parts := parse_ident(piece);
            IF cardinality(parts) > 1 THEN
                tail := ARRAY[parts[cardinality(parts)]];
                parts := parts[1:cardinality(parts) - 1];
                place := (SELECT string_agg(quote_ident(p), '.') FROM unnest(parts) p);
            END IF;
        END IF;
        parts := parse_ident(place);
        IF cardinality(parts) = 1 THEN
            parts := ARRAY['public', parts[1]];
        END IF;
        IF cardinality(parts) <> 2 THEN
            RAISE EXCEPTION '"%" is no column of a table', piece USING ERRCODE = '42602', HINT = 'Write table.column or schema.table.column.';
        END IF;
        IF tail IS NULL THEN
            row_of := jsonb_build_object('schema', parts[1], 'table', parts[2]);
        ELSE
            steps := steps || jsonb_build_object('columns', to_jsonb(columns), 'schema', parts[1], 'table', parts[2]);
            columns := tail;
        END IF;
    END LOOP;
    IF jsonb_array_length(steps) > 8 THEN
        RAISE EXCEPTION 'the unit "%" has more than 8 steps', unit USING ERRCODE = '54000';
    END IF;
    IF cardinality(columns) > 1 AND row_of IS NULL THEN
        RAISE EXCEPTION 'the unit "%" ends in several columns', unit USING ERRCODE = '22023',
            HINT = 'Name one column, or the table that they are the foreign key to: (a, b) -> table.';
    END IF;
    IF steps = '[]' AND cardinality(columns) = 1 THEN
        unit_column := columns[1];
        IF row_of IS NULL THEN
            RETURN;
        END IF;
    END IF;
    unit_path := jsonb_build_object('steps', steps, 'columns', to_jsonb(columns), 'of', row_of);
END $$;
COMMENT ON FUNCTION provenance.read_unit IS 'Takes a declared unit apart: nothing for row, a column, or a path.';

-- Foreign keys, of partitions and heirs too, whether they are validated or not: rows of a partition are rows of the
-- table, and what refers to a partition refers to the table.
CREATE FUNCTION provenance.foreign_keys(OUT source oid, OUT columns text[], OUT target oid) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE kin(member, whole) AS (
        SELECT k.oid, k.oid FROM pg_class k WHERE k.relkind IN ('r', 'p', 'f')
        UNION SELECT kin.member, i.inhparent FROM kin JOIN pg_inherits i ON i.inhrelid = kin.whole)
    SELECT DISTINCT one.whole, x.columns, other.whole
    FROM pg_constraint f
    JOIN kin one ON one.member = f.conrelid
    JOIN kin other ON other.member = f.confrelid
    CROSS JOIN LATERAL (SELECT array_agg(a.attname::text ORDER BY u.place) FROM unnest(f.conkey) WITH ORDINALITY AS u (number, place)
        JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = u.number) AS x (columns)
    WHERE f.contype = 'f' AND one.whole <> other.whole
$$;
COMMENT ON FUNCTION provenance.foreign_keys IS 'Every foreign key of this database, also as one of the tables that the two are partitions or heirs of.';

CREATE FUNCTION provenance.references_protected(relation_id bigint, OUT id bigint, OUT columns text[], OUT first oid) RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    WITH RECURSIVE registered AS (
        SELECT r.id, r.kind, to_regclass(format('%I.%I', r.schema, r.name))::oid AS place FROM provenance.relation r WHERE r.active),
    keys AS MATERIALIZED (SELECT k.* FROM provenance.foreign_keys() k
        WHERE NOT EXISTS (SELECT FROM registered p WHERE p.kind = 'public' AND p.place = k.source)),
    start AS (SELECT to_regclass(format('%I.%I', r.schema, r.name))::oid AS place FROM provenance.relation r WHERE r.id = references_protected.relation_id),
    reached(columns, first, place) AS (
        SELECT k.columns, k.target, k.target FROM keys k JOIN start s ON s.place = k.source
        UNION SELECT w.columns, w.first, k.target FROM reached w JOIN keys k ON k.source = w.place)
    SELECT DISTINCT p.id, w.columns, w.first FROM reached w JOIN registered p ON p.place = w.place AND p.kind = 'protected'
    WHERE p.id <> references_protected.relation_id
$$;
COMMENT ON FUNCTION provenance.references_protected IS 'The protected tables that a registered table leads to by foreign keys, directly or through others, and the key that each way begins with. What is published leads nowhere: it is the same whoever is there.';

CREATE FUNCTION provenance.suggested_unit(place oid, seen oid[] DEFAULT '{}') RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    key record;
    own provenance.relation;
    written text;
    further text;
BEGIN
    FOR key IN SELECT k.columns, k.target, c.relname, n.nspname FROM provenance.foreign_keys() k
        JOIN pg_class c ON c.oid = k.target JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE k.source = place AND NOT k.target = ANY (seen || place)
        ORDER BY NOT EXISTS (SELECT FROM provenance.relation r WHERE r.active AND r.kind = 'protected' AND (r.schema, r.name) = (n.nspname, c.relname)), k.columns
    LOOP
        written := CASE cardinality(key.columns) WHEN 1 THEN quote_ident(key.columns[1])
            ELSE '(' || (SELECT string_agg(quote_ident(c), ', ') FROM unnest(key.columns) c) || ')' END;
        further := CASE key.nspname WHEN 'public' THEN quote_ident(key.relname) ELSE quote_ident(key.nspname) || '.' || quote_ident(key.relname) END;
        SELECT r.* INTO own FROM provenance.relation r WHERE r.active AND (r.schema, r.name) = (key.nspname, key.relname);
        IF own.kind = 'protected' AND num_nonnulls(own.unit_column, own.unit_path) = 0 THEN
            RETURN CASE WHEN cardinality(key.columns) = 1 THEN written ELSE written || ' -> ' || further || CASE key.nspname WHEN 'public' THEN '' ELSE '.*' END END;
        ELSIF own.kind = 'protected' THEN
            RETURN written || ' -> ' || further || '.' || own.unit;
        ELSIF own.kind IS NULL THEN
            further := further || '.' || provenance.suggested_unit(key.target, seen || place);
            IF further IS NOT NULL THEN
                RETURN written || ' -> ' || further;
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.suggested_unit IS 'A unit that a table may be declared with: that of a protected table that it references.';

-- What is registered already goes on as before, and is reported.
UPDATE provenance.relation r SET unit = quote_ident(r.unit_column) WHERE r.unit_column IS NOT NULL;
UPDATE provenance.relation r SET unit_assumed = true WHERE r.kind = 'protected' AND r.unit IS NULL
    AND (to_regclass(format('%I.%I', r.schema, r.name)) IS NULL OR EXISTS (SELECT FROM provenance.references_protected(r.id)));

CREATE FUNCTION provenance.declared_unit_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    read record;
    step jsonb;
    at oid;
    next_at oid;
    wanted text[];
    own provenance.relation;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.unit IS DISTINCT FROM OLD.unit THEN
        IF NEW.unit IS NULL THEN
            NEW.unit := quote_ident(NEW.unit_column);
        END IF;
        SELECT u.unit_column, u.unit_path INTO read FROM provenance.read_unit(NEW.unit) u;
        IF NEW.unit_column IS NOT NULL AND NEW.unit_column IS DISTINCT FROM read.unit_column AND (TG_OP = 'INSERT' OR NEW.unit_column IS DISTINCT FROM OLD.unit_column) THEN
            RAISE EXCEPTION 'the unit of "%" is declared twice: unit_column % and unit %', NEW.name, NEW.unit_column, NEW.unit USING ERRCODE = '22023';
        END IF;
        NEW.unit_column := read.unit_column;
        NEW.unit_path := read.unit_path;
    ELSIF NEW.unit_column IS DISTINCT FROM OLD.unit_column THEN
        NEW.unit := quote_ident(NEW.unit_column);
        NEW.unit_path := NULL;
    ELSIF NEW.unit_path IS DISTINCT FROM OLD.unit_path THEN
        RAISE EXCEPTION 'unit_path of "%" is made from unit', NEW.name USING ERRCODE = '55000', HINT = 'Change unit.';
    END IF;
    IF NEW.kind = 'public' AND TG_OP = 'UPDATE' AND OLD.kind <> 'public' THEN
        NEW.unit := NULL;
        NEW.unit_path := NULL;
    END IF;
    IF NEW.unit IS NOT NULL OR NEW.kind = 'public' THEN
        NEW.unit_assumed := false;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.unit_path IS DISTINCT FROM OLD.unit_path AND EXISTS (SELECT FROM provenance.charge c WHERE c.relation_id = OLD.id) THEN
        RAISE EXCEPTION 'the unit of "%" cannot change: something was charged under it', OLD.label USING ERRCODE = '55000',
            DETAIL = 'The charges in the ledger are right only for the unit and the contribution bounds that they were made with.',
            HINT = 'Set active = false on this row and register the table again; what was spent stays spent.';
    END IF;
    -- A path is made of foreign keys. Where the tables are in another database, the proxies look there.
    at := to_regclass(format('%I.%I', NEW.schema, NEW.name));
    IF at IS NULL OR NEW.unit_path IS NULL THEN
        RETURN NEW;
    END IF;
    FOR step IN SELECT s FROM jsonb_array_elements(NEW.unit_path -> 'steps') s
        UNION ALL SELECT jsonb_build_object('columns', NEW.unit_path -> 'columns') || (NEW.unit_path -> 'of') WHERE jsonb_typeof(NEW.unit_path -> 'of') = 'object'
    LOOP
        wanted := ARRAY(SELECT jsonb_array_elements_text(step -> 'columns'));
        next_at := to_regclass(format('%I.%I', step ->> 'schema', step ->> 'table'));
        IF next_at IS NULL OR next_at = to_regclass(format('%I.%I', NEW.schema, NEW.name)) OR NOT EXISTS (
            SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.convalidated AND f.conrelid = at AND f.confrelid = next_at
                AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a WHERE a.attrelid = f.conrelid AND a.attnum = ANY (f.conkey))
                    = ARRAY(SELECT w FROM unnest(wanted) w ORDER BY w)) THEN
            RAISE EXCEPTION 'the unit "%" of "%" follows no foreign key: % references % by none (%)', NEW.unit, NEW.name, at::regclass,
                    format('%I.%I', step ->> 'schema', step ->> 'table'), array_to_string(wanted, ', ') USING ERRCODE = '42830',
                HINT = 'A path is made of validated foreign keys to other tables: column -> table.column.';
        END IF;
        SELECT r.* INTO own FROM provenance.relation r WHERE r.active AND (r.schema, r.name) = (step ->> 'schema', step ->> 'table');
        IF own.id IS NULL AND step IN (SELECT s FROM jsonb_array_elements(NEW.unit_path -> 'steps') s) THEN
            RAISE EXCEPTION 'the unit "%" of "%" is found through "%", which is not registered', NEW.unit, NEW.name, step ->> 'table' USING ERRCODE = '42P01',
                HINT = format('Register it first: SELECT provenance.protect(%L%s).', format('%I.%I', step ->> 'schema', step ->> 'table'),
                    coalesce(format(', unit => %L', provenance.suggested_unit(next_at)), ''));
        ELSIF step NOT IN (SELECT s FROM jsonb_array_elements(NEW.unit_path -> 'steps') s) AND num_nonnulls(own.unit_column, own.unit_path) > 0 THEN
            RAISE EXCEPTION 'a row of "%" is no unit: its unit is %', own.label, own.unit USING ERRCODE = '22023',
                HINT = format('End the path there: ... -> %s.%s.', own.label, own.unit);
        END IF;
        at := next_at;
    END LOOP;
    IF jsonb_typeof(NEW.unit_path -> 'of') IS DISTINCT FROM 'object' AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = at AND a.attname = NEW.unit_path -> 'columns' ->> 0 AND a.attnum > 0 AND NOT a.attisdropped) THEN
        RAISE EXCEPTION 'the unit "%" of "%" ends in a column that does not exist', NEW.unit, NEW.name USING ERRCODE = '42703';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION provenance.declared_unit_rules IS 'unit, unit_column and unit_path say the same, and a path is made of foreign keys.';
CREATE TRIGGER declared_unit_rules BEFORE INSERT OR UPDATE ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.declared_unit_rules();

CREATE FUNCTION provenance.units_are_declared() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    child provenance.relation;
    parents text;
    suggested text;
    starts text[];
    known boolean := false;
    told boolean := true;
BEGIN
    IF NOT NEW.active OR NEW.kind <> 'protected' THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        told := NEW.unit IS DISTINCT FROM OLD.unit OR NEW.active IS DISTINCT FROM OLD.active;
        known := OLD.active AND OLD.kind = 'protected' AND (OLD.schema, OLD.name) = (NEW.schema, NEW.name);
    END IF;
    FOR child IN SELECT r.* FROM provenance.relation r WHERE r.active AND r.kind = 'protected' AND r.unit IS NULL AND (r.id = NEW.id
        OR EXISTS (SELECT FROM provenance.references_protected(r.id) p WHERE p.id = NEW.id)) ORDER BY r.id <> NEW.id, r.id
    LOOP
        SELECT string_agg(DISTINCT format('"%s"', r.label), ', ') INTO parents
            FROM provenance.references_protected(child.id) p JOIN provenance.relation r ON r.id = p.id;
        CONTINUE WHEN parents IS NULL OR (child.unit_assumed AND (child.id = NEW.id OR known));
        suggested := provenance.suggested_unit(to_regclass(format('%I.%I', child.schema, child.name)));
        RAISE EXCEPTION 'the unit of "%" is not declared, and it references the protected table %', child.label, parents USING ERRCODE = '55000',
            DETAIL = format('Many rows of "%s" may belong to one unit of %s, which would lose as many times as much as is stated.', child.label, parents),
            HINT = format('Declare whose rows they are: SELECT provenance.protect(%L, unit => %L)', child.label, coalesce(suggested, 'column -> table.column'))
                || CASE WHEN suggested ~ '->' OR suggested IS NULL THEN '' ELSE format(' (or unit_column => %L)', (parse_ident(suggested))[1]) END
                || format('; or, if each row is to be protected by itself: SELECT provenance.protect(%L, unit => ''row'').', child.label)
                || CASE WHEN child.id <> NEW.id THEN format(' Then protect "%s".', NEW.label) ELSE '' END;
    END LOOP;
    IF NEW.unit IS NOT NULL AND told THEN
        -- The way to a unit begins with the key that leads to the protected table, or that table's units are not protected here.
        starts := ARRAY(SELECT jsonb_array_elements_text(coalesce(NEW.unit_path -> 'steps' -> 0 -> 'columns', NEW.unit_path -> 'columns'))
            UNION SELECT NEW.unit_column WHERE NEW.unit_column IS NOT NULL ORDER BY 1);
        SELECT string_agg(DISTINCT format('"%s"', r.label), ', ') INTO parents
            FROM provenance.references_protected(NEW.id) p JOIN provenance.relation r ON r.id = p.id
            WHERE NOT EXISTS (SELECT FROM provenance.references_protected(NEW.id) o WHERE o.id = p.id AND ARRAY(SELECT c FROM unnest(o.columns) c ORDER BY c) = starts
                AND (NEW.unit_column IS NULL OR num_nonnulls(r.unit_column, r.unit_path) = 0 OR o.first <> to_regclass(format('%I.%I', r.schema, r.name))));
        IF parents IS NOT NULL THEN
            RAISE WARNING 'the unit of "%" is %: a unit of % is not protected as a whole by what is asked about "%" alone', NEW.label,
                    CASE WHEN num_nonnulls(NEW.unit_column, NEW.unit_path) = 0 THEN 'each row by itself' ELSE NEW.unit END, parents, NEW.label
                USING DETAIL = format('Who has n units of "%s" loses up to n times the stated epsilon, and n * n times the stated rho. What is asked about both tables together protects a unit of %s.', NEW.label, parents),
                HINT = format('To protect them as a whole: SELECT provenance.protect(%L, unit => %L).', NEW.label,
                    coalesce(provenance.suggested_unit(to_regclass(format('%I.%I', NEW.schema, NEW.name))), 'column -> table.column'));
        END IF;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.units_are_declared IS 'A table that references a protected one is protected with a declared unit, whichever of the two is registered first.';
CREATE TRIGGER units_are_declared AFTER INSERT OR UPDATE OF schema, name, kind, unit, unit_column, active ON provenance.relation
    FOR EACH ROW EXECUTE FUNCTION provenance.units_are_declared();
CREATE TRIGGER move_registry_on_unit AFTER UPDATE ON provenance.relation FOR EACH ROW
    WHEN ((OLD.unit_path, OLD.unit_assumed, OLD.unit IS NULL) IS DISTINCT FROM (NEW.unit_path, NEW.unit_assumed, NEW.unit IS NULL)) EXECUTE FUNCTION provenance.move_registry();

CREATE FUNCTION provenance.register(relation text, kind text, unit_column text, max_groups integer, max_rows integer, size_hint bigint, unit text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    parts text[] := parse_ident(relation);
    place regclass;
    what "char";
    declared text := coalesce(unit, quote_ident(unit_column));
    read record;
BEGIN
    IF cardinality(parts) = 1 THEN
        parts := ARRAY['public', parts[1]];
    END IF;
    IF cardinality(parts) <> 2 THEN
        RAISE EXCEPTION '"%" is not a table name', relation USING ERRCODE = '42602', HINT = 'Write table or schema.table.';
    END IF;
    SELECT u.unit_column, u.unit_path INTO read FROM provenance.read_unit(declared) u;
    IF unit_column IS NOT NULL AND unit_column IS DISTINCT FROM read.unit_column THEN
        RAISE EXCEPTION 'the unit of "%" is declared twice: unit_column % and unit %', relation, unit_column, unit USING ERRCODE = '22023';
    END IF;
    INSERT INTO provenance.relation AS r (schema, name, kind, unit_column, max_groups, max_rows, size_hint, unit)
        VALUES (parts[1], parts[2], kind, read.unit_column, max_groups, max_rows, size_hint, declared)
        ON CONFLICT (schema, name) WHERE active DO UPDATE SET kind = excluded.kind, unit_column = excluded.unit_column,
            max_groups = excluded.max_groups, max_rows = excluded.max_rows, size_hint = excluded.size_hint, unit = excluded.unit
        WHERE (r.kind, r.unit_column, r.max_groups, r.max_rows, r.size_hint, r.unit)
            IS DISTINCT FROM (excluded.kind, excluded.unit_column, excluded.max_groups, excluded.max_rows, excluded.size_hint, excluded.unit);
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
COMMENT ON FUNCTION provenance.register(text, text, text, integer, integer, bigint, text) IS 'What protect and publish share.';

CREATE OR REPLACE FUNCTION provenance.publish(relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM provenance.register(relation, 'public', NULL, 1, 1, NULL, NULL);
END $$;

DROP FUNCTION provenance.protect(text, text, integer, integer, bigint, text);
DROP FUNCTION provenance.register(text, text, text, integer, integer, bigint);
CREATE FUNCTION provenance.protect(relation text, unit_column text DEFAULT NULL, max_groups integer DEFAULT 1, max_rows integer DEFAULT 1, size_hint bigint DEFAULT NULL, changes text DEFAULT 'any', unit text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    which bigint;
BEGIN
    PERFORM provenance.register(relation, 'protected', unit_column, max_groups, max_rows, size_hint, unit);
    which := provenance.relation_id(relation);
    IF changes IS DISTINCT FROM (SELECT r.changes FROM provenance.relation r WHERE r.id = which) THEN
        PERFORM provenance.set_changes(relation, changes);
    END IF;
END $$;
COMMENT ON FUNCTION provenance.protect IS 'Registers a table whose rows are private; a name without a schema is in public. The unit is a row, unless unit_column or unit says whose rows are protected together: a column, or a path along foreign keys such as visit_id -> visit.patient_id; a table that references a protected one must say it (unit => row for each row by itself). changes says how its rows change, see provenance.set_changes. Repeating it with the same arguments changes nothing.';

REVOKE ALL ON FUNCTION provenance.names_of_columns, provenance.read_unit, provenance.foreign_keys, provenance.references_protected, provenance.suggested_unit,
    provenance.declared_unit_rules, provenance.units_are_declared, provenance.register, provenance.protect FROM PUBLIC;
GRANT INSERT (unit), UPDATE (unit) ON provenance.relation TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.protect TO pgveil_admin;
