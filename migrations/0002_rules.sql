-- Triggers. They run as the owner, since the people who change these tables may not read all that the rules need.

CREATE FUNCTION provenance.relation_id(relation text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    parts text[] := parse_ident(relation);
    found_id bigint;
BEGIN
    IF cardinality(parts) = 1 THEN
        parts := ARRAY['public', parts[1]];
    END IF;
    SELECT r.id INTO found_id FROM provenance.relation r WHERE r.schema = parts[1] AND r.name = parts[2] AND r.active AND cardinality(parts) = 2;
    IF found_id IS NULL THEN
        RAISE EXCEPTION 'relation "%" is not registered', relation USING ERRCODE = '42P01',
            HINT = format('Register it first: SELECT provenance.protect(%L) or SELECT provenance.publish(%L).', relation, relation);
    END IF;
    RETURN found_id;
END $$;
COMMENT ON FUNCTION provenance.relation_id IS 'The active registration of a table; a name without a schema is in public.';

-- Charges take this lock first. A change of what prices depend on takes it too, so that no charge can slip in between
-- the rule that looks for charges and the commit of the change.
CREATE FUNCTION provenance.hold_the_till() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM FROM provenance.balance WHERE scope = 'table' FOR UPDATE;
    RETURN NULL;
END $$;
CREATE TRIGGER a_hold BEFORE INSERT OR UPDATE OR DELETE ON provenance.relation FOR EACH STATEMENT EXECUTE FUNCTION provenance.hold_the_till();
CREATE TRIGGER a_hold BEFORE INSERT OR UPDATE OR DELETE ON provenance.attribute FOR EACH STATEMENT EXECUTE FUNCTION provenance.hold_the_till();
CREATE TRIGGER a_hold BEFORE UPDATE OR DELETE ON provenance.deployment FOR EACH STATEMENT EXECUTE FUNCTION provenance.hold_the_till();

CREATE FUNCTION provenance.append_only() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'charges are never changed or removed' USING ERRCODE = '42501',
        HINT = 'What was spent stays spent. Raise a limit if more may be learned.';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON provenance.charge FOR EACH STATEMENT EXECUTE FUNCTION provenance.append_only();

-- Every charge counts by construction, whoever inserted it.
CREATE FUNCTION provenance.count_charge() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.balance b SET amount = b.amount + NEW.amount, delta = b.delta + NEW.delta WHERE b.scope = 'table' AND b.name = '';
    UPDATE provenance.balance b SET amount = b.amount + NEW.amount, delta = b.delta + NEW.delta WHERE b.scope = 'analyst' AND b.name = NEW.analyst;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'analyst "%" has no balance', NEW.analyst USING ERRCODE = 'XX001';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER count_charge AFTER INSERT ON provenance.charge FOR EACH ROW EXECUTE FUNCTION provenance.count_charge();

CREATE FUNCTION provenance.deployment_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'the deployment cannot be deleted' USING ERRCODE = '42501';
    END IF;
    IF NEW.coin <> OLD.coin AND EXISTS (SELECT FROM provenance.charge) THEN
        RAISE EXCEPTION 'the coin cannot change once something was charged in it' USING ERRCODE = '55000',
            DETAIL = format('Charges are in %s.', OLD.coin), HINT = 'Start a new deployment for another coin.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER deployment_rules BEFORE UPDATE OR DELETE ON provenance.deployment FOR EACH ROW EXECUTE FUNCTION provenance.deployment_rules();

CREATE FUNCTION provenance.analyst_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    most numeric := (SELECT d.epsilon FROM provenance.deployment d);
    odd text;
BEGIN
    IF NEW.epsilon_limit > most THEN
        RAISE EXCEPTION 'epsilon_limit % of analyst "%" is above the limit of the protected database', NEW.epsilon_limit, NEW.name
            USING ERRCODE = '23514', DETAIL = format('deployment.epsilon is %s.', most),
            HINT = 'Give at most that, or NULL for a limit by privilege.';
    END IF;
    IF NEW.privilege NOT BETWEEN 1 AND 10 THEN
        RAISE EXCEPTION 'privilege % is outside 1..10', NEW.privilege USING ERRCODE = '23514',
            HINT = 'With allocation max, privilege 10 may use the whole epsilon of the deployment and privilege 1 a tenth of it.';
    END IF;
    SELECT key INTO odd FROM jsonb_object_keys(CASE jsonb_typeof(NEW.settings) WHEN 'object' THEN NEW.settings ELSE '{}' END) key
        WHERE key !~ '^veil\.[a-z_]+$' LIMIT 1;
    IF odd IS NOT NULL THEN
        RAISE EXCEPTION 'settings of analyst "%" name "%", which is not a veil. setting', NEW.name, odd
            USING ERRCODE = '22023', HINT = 'Write, for example, {"veil.beta": "0.01"}.';
    END IF;
    IF EXISTS (SELECT FROM provenance.administrator a WHERE a.name = NEW.name) THEN
        RAISE EXCEPTION '"%" is an administrator', NEW.name USING ERRCODE = '23505', HINT = 'Use another name for the analyst.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER analyst_rules BEFORE INSERT OR UPDATE ON provenance.analyst FOR EACH ROW EXECUTE FUNCTION provenance.analyst_rules();

CREATE FUNCTION provenance.administrator_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM provenance.analyst a WHERE a.name = NEW.name) THEN
        RAISE EXCEPTION '"%" is an analyst', NEW.name USING ERRCODE = '23505', HINT = 'Use another name for the administrator.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER administrator_rules BEFORE INSERT OR UPDATE ON provenance.administrator FOR EACH ROW EXECUTE FUNCTION provenance.administrator_rules();

CREATE FUNCTION provenance.account_follows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND (TG_OP = 'DELETE' OR NEW.name <> OLD.name) THEN
        DELETE FROM provenance.credential c WHERE c.name = OLD.name;
        DELETE FROM provenance.balance b WHERE b.scope = 'analyst' AND b.name = OLD.name AND TG_TABLE_NAME = 'analyst';
    END IF;
    IF TG_OP <> 'DELETE' AND TG_TABLE_NAME = 'analyst' THEN
        INSERT INTO provenance.balance (scope, name) VALUES ('analyst', NEW.name) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.account_follows IS 'An account with charges cannot be deleted or renamed (foreign key), so a balance removed here is zero.';
CREATE TRIGGER account_follows AFTER INSERT OR UPDATE OR DELETE ON provenance.analyst FOR EACH ROW EXECUTE FUNCTION provenance.account_follows();
CREATE TRIGGER account_follows AFTER UPDATE OR DELETE ON provenance.administrator FOR EACH ROW EXECUTE FUNCTION provenance.account_follows();

CREATE FUNCTION provenance.relation_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    what text;
    place regclass;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.data_version < OLD.data_version THEN
            RAISE EXCEPTION 'the data version of "%" cannot go back', OLD.label USING ERRCODE = '55000',
                HINT = format('Use SELECT provenance.refresh(%L).', OLD.label);
        END IF;
        what := CASE
            WHEN NEW.unit_column IS DISTINCT FROM OLD.unit_column THEN 'unit_column'
            WHEN NEW.max_groups <> OLD.max_groups THEN 'max_groups'
            WHEN NEW.max_rows <> OLD.max_rows THEN 'max_rows'
            WHEN NEW.kind <> OLD.kind THEN 'kind'
            WHEN (NEW.schema, NEW.name) IS DISTINCT FROM (OLD.schema, OLD.name) THEN 'name'
            WHEN NEW.active AND NOT OLD.active THEN 'active' END;
        -- A sum of charges means something only if all of them protect the same unit within the same contributions.
        IF what IS NOT NULL AND EXISTS (SELECT FROM provenance.charge c WHERE c.relation_id = OLD.id) THEN
            RAISE EXCEPTION '% of "%" cannot change: something was charged under it', what, OLD.label USING ERRCODE = '55000',
                DETAIL = 'The charges in the ledger are right only for the unit and the contribution bounds that they were made with.',
                HINT = 'Set active = false on this row and register the table again; what was spent stays spent.';
        END IF;
    END IF;
    place := to_regclass(format('%I.%I', NEW.schema, NEW.name));
    IF place IS NOT NULL AND NEW.unit_column IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = place AND a.attname = NEW.unit_column AND a.attnum > 0 AND NOT a.attisdropped) THEN
        RAISE EXCEPTION 'unit column "%" of "%.%" does not exist', NEW.unit_column, NEW.schema, NEW.name USING ERRCODE = '42703';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER relation_rules BEFORE INSERT OR UPDATE ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.relation_rules();

CREATE FUNCTION provenance.place(bound text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
BEGIN
    IF bound ~ '^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$' THEN
        RETURN bound::numeric;
    END IF;
    IF bound !~ '^\s*[0-9]{4,}-[0-9]{2}-[0-9]{2}' THEN
        RAISE invalid_datetime_format;
    END IF;
    RETURN extract(epoch FROM bound::timestamptz);
EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION '"%" is neither a number nor a date', bound USING ERRCODE = '22023',
        HINT = 'Write numbers as 0 or 1.5, dates as 2024-12-31, timestamps as 2024-12-31 23:59:59.';
END $$;
COMMENT ON FUNCTION provenance.place IS 'A bound as a number, so that two bounds can be compared: seconds since 1970 for dates.';

CREATE FUNCTION provenance.attribute_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    charged boolean := TG_OP <> 'INSERT' AND EXISTS (SELECT FROM provenance.charge c WHERE c.relation_id = OLD.relation_id);
    home provenance.relation;
    source text[];
    source_kind text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF charged AND num_nonnulls(OLD.lower, OLD.upper) > 0 THEN
            RAISE EXCEPTION 'the bounds of "%" cannot be removed: something was charged on "%"', OLD.name, OLD.relation USING ERRCODE = '55000',
                HINT = 'Set active = false on the relation and register the table again; what was spent stays spent.';
        END IF;
        RETURN OLD;
    END IF;
    NEW.relation_id := CASE WHEN TG_OP = 'UPDATE' AND NEW.relation = OLD.relation THEN OLD.relation_id ELSE provenance.relation_id(NEW.relation) END;
    SELECT * INTO home FROM provenance.relation r WHERE r.id = NEW.relation_id;
    NEW.relation := home.label;
    IF provenance.place(NEW.lower) > provenance.place(NEW.upper) THEN
        RAISE EXCEPTION 'lower bound % of "%" is above its upper bound %', NEW.lower, NEW.name, NEW.upper USING ERRCODE = '23514',
            HINT = 'Bounds say which values are counted as they are; everything outside is clamped to them.';
    END IF;
    IF NEW.step ~ '^\s*[+-]?[0-9.]+\s*$' AND NEW.lower !~ '[0-9]-' THEN
        IF NEW.step::numeric <= 0 THEN
            RAISE EXCEPTION 'step % of "%" is not above 0', NEW.step, NEW.name USING ERRCODE = '23514';
        ELSIF (provenance.place(NEW.upper) - provenance.place(NEW.lower)) / NEW.step::numeric > 1000000 THEN
            RAISE EXCEPTION 'the range of "%" has more than 1000000 groups', NEW.name USING ERRCODE = '54000',
                HINT = 'Take a larger step, or give bounds without a step.';
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND charged AND (
        NEW.name <> OLD.name OR NEW.relation_id <> OLD.relation_id
        OR (OLD.lower IS NOT NULL AND (NEW.lower IS NULL OR provenance.place(NEW.lower) < provenance.place(OLD.lower)))
        OR (OLD.upper IS NOT NULL AND (NEW.upper IS NULL OR provenance.place(NEW.upper) > provenance.place(OLD.upper)))
        OR (NEW.constant_per_unit AND NOT OLD.constant_per_unit)) THEN
        RAISE EXCEPTION 'what was declared about "%" cannot be loosened: something was charged on "%"', OLD.name, OLD.relation
            USING ERRCODE = '55000', DETAIL = 'Bounds may become narrower, not wider, and constant_per_unit may be taken back, not claimed.',
            HINT = 'Set active = false on the relation and register the table again; what was spent stays spent.';
    END IF;
    IF to_regclass(format('%I.%I', home.schema, home.name)) IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass(format('%I.%I', home.schema, home.name))
            AND a.attname = NEW.name AND a.attnum > 0 AND NOT a.attisdropped) THEN
        RAISE EXCEPTION 'column "%" of "%" does not exist', NEW.name, home.label USING ERRCODE = '42703';
    END IF;
    IF NEW.members_from IS NOT NULL THEN
        source := parse_ident(NEW.members_from);
        IF cardinality(source) = 2 THEN
            source := ARRAY['public'] || source;
        END IF;
        SELECT r.kind INTO source_kind FROM provenance.relation r WHERE r.active AND r.schema = source[1] AND r.name = source[2] AND cardinality(source) = 3;
        IF source_kind IS DISTINCT FROM 'public' THEN
            RAISE EXCEPTION 'members_from "%" is not a column of a published table', NEW.members_from USING ERRCODE = '42501',
                DETAIL = 'Group keys are shown to everybody, so they may come from public tables only.',
                HINT = 'Write table.column, and publish the table first: SELECT provenance.publish(''city'').';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER attribute_rules BEFORE INSERT OR UPDATE OR DELETE ON provenance.attribute FOR EACH ROW EXECUTE FUNCTION provenance.attribute_rules();

CREATE FUNCTION provenance.view_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    NEW.relation_id := CASE WHEN TG_OP = 'UPDATE' AND NEW.relation = OLD.relation THEN OLD.relation_id ELSE provenance.relation_id(NEW.relation) END;
    NEW.relation := (SELECT r.label FROM provenance.relation r WHERE r.id = NEW.relation_id);
    IF NEW.epsilon_limit > (SELECT d.epsilon FROM provenance.deployment d) THEN
        RAISE EXCEPTION 'epsilon_limit % of the view is above the limit of the protected database', NEW.epsilon_limit USING ERRCODE = '23514',
            HINT = 'Give at most deployment.epsilon, or NULL.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER view_rules BEFORE INSERT OR UPDATE ON provenance.view FOR EACH ROW EXECUTE FUNCTION provenance.view_rules();

CREATE FUNCTION provenance.move_registry() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.deployment SET registry_version = registry_version + 1;
    RETURN NULL;
END $$;
-- The data of a public table are copied to the shadow, so that their version is part of the registry's.
CREATE TRIGGER move_registry AFTER INSERT OR DELETE ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.move_registry();
CREATE TRIGGER move_registry_on_change AFTER UPDATE ON provenance.relation FOR EACH ROW
    WHEN ((OLD.schema, OLD.name, OLD.kind, OLD.unit_column, OLD.max_groups, OLD.max_rows, OLD.size_hint, OLD.active)
          IS DISTINCT FROM (NEW.schema, NEW.name, NEW.kind, NEW.unit_column, NEW.max_groups, NEW.max_rows, NEW.size_hint, NEW.active)
          OR (NEW.kind = 'public' AND NEW.data_version <> OLD.data_version))
    EXECUTE FUNCTION provenance.move_registry();
CREATE TRIGGER move_registry AFTER INSERT OR DELETE ON provenance.attribute FOR EACH ROW EXECUTE FUNCTION provenance.move_registry();
CREATE TRIGGER move_registry_on_change AFTER UPDATE ON provenance.attribute FOR EACH ROW
    WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION provenance.move_registry();

CREATE FUNCTION provenance.tell() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM pg_notify('provenance', TG_TABLE_NAME);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.tell IS 'LISTEN provenance: the payload is the table that changed. Charges are not told: NOTIFY would make their commits wait for each other.';
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.deployment FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.analyst FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.administrator FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.relation FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.attribute FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.view FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
