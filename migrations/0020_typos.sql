-- Names that nothing bears: a mistake is told when it is made. A ledger in a database of its own knows no table, and is silent.

CREATE FUNCTION provenance.knows_tables() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'm', 'f') AND n.nspname NOT IN ('provenance', 'information_schema') AND n.nspname !~ '^pg_')
$$;
COMMENT ON FUNCTION provenance.knows_tables IS 'Whether the protected tables are in this database, beside the ledger.';
REVOKE ALL ON FUNCTION provenance.knows_tables FROM PUBLIC;

CREATE FUNCTION provenance.relation_is_there() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF to_regclass(format('%I.%I', NEW.schema, NEW.name)) IS NULL AND provenance.knows_tables() THEN
        RAISE WARNING 'there is no table "%"', NEW.label USING HINT = 'Nothing can be asked about it until there is one. If the name is wrong, set active = false on its row.';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.relation_is_there IS 'A warning, no error: a table may be registered before it is made.';
CREATE TRIGGER relation_is_there AFTER INSERT ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.relation_is_there();

CREATE FUNCTION provenance.members_are_there() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    source text[] := parse_ident(NEW.members_from);
    place regclass;
BEGIN
    source := CASE WHEN cardinality(source) = 2 THEN ARRAY['public'] || source ELSE source END;
    place := to_regclass(format('%I.%I', source[1], source[2]));
    IF place IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = place AND a.attname = source[3] AND a.attnum > 0 AND NOT a.attisdropped) THEN
        RAISE EXCEPTION 'column "%" of "%.%" does not exist', source[3], source[1], source[2] USING ERRCODE = '42703',
            HINT = 'members_from names the column whose values are the groups: city.city.';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.members_are_there IS 'The column that members_from names exists.';
CREATE TRIGGER members_are_there AFTER INSERT OR UPDATE ON provenance.attribute FOR EACH ROW WHEN (NEW.members_from IS NOT NULL)
    EXECUTE FUNCTION provenance.members_are_there();

CREATE FUNCTION provenance.dimensions_are_there() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    odd text;
BEGIN
    SELECT d INTO odd FROM unnest(NEW.dimensions) d WHERE d ~ '^[a-z_][a-z_0-9]*$' AND NOT EXISTS (
        SELECT FROM provenance.relation r JOIN pg_attribute a ON a.attrelid = to_regclass(format('%I.%I', r.schema, r.name))
        WHERE (r.id = NEW.relation_id OR r.kind = 'public') AND r.active AND a.attname = d AND a.attnum > 0 AND NOT a.attisdropped) LIMIT 1;
    IF odd IS NOT NULL AND provenance.knows_tables() THEN
        RAISE WARNING '"%" is no column of "%" or of a published table', odd, NEW.relation USING HINT = 'No question can be about this view.';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.dimensions_are_there IS 'A warning: dimensions that are expressions cannot be looked at.';
CREATE TRIGGER dimensions_are_there AFTER INSERT ON provenance.view FOR EACH ROW WHEN (NEW.registered)
    EXECUTE FUNCTION provenance.dimensions_are_there();

CREATE FUNCTION provenance.settings_are_known() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    known CONSTANT text[] := '{beta,alpha,epsilon,margin,confidence,max_epsilon,support,mechanism,certify,raw,reuse,on_exhausted}';
    odd record;
BEGIN
    SELECT s.key, s.value INTO odd FROM jsonb_each_text(NEW.settings) s WHERE substr(s.key, 6) <> ALL (known) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'settings of analyst "%" name "%", which is no setting', NEW.name, odd.key USING ERRCODE = '22023',
            HINT = format('pgveil knows veil.%s.', array_to_string(known, ', veil.'));
    END IF;
    SELECT s.key, s.value INTO odd FROM jsonb_each_text(NEW.settings) s
    WHERE s.key IN ('veil.beta', 'veil.alpha', 'veil.confidence')
        AND NOT CASE WHEN s.value ~ '^[0-9]*\.?[0-9]+([eE][-+]?[0-9]{1,3})?$' THEN s.value::numeric > 0 AND s.value::numeric < 1 ELSE s.value = '' END LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '"%" is no value for % of analyst "%"', odd.value, odd.key, NEW.name USING ERRCODE = '22023',
            HINT = 'It is a number between 0 and 1.';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.settings_are_known IS 'Defaults of a session name settings that there are, and probabilities are such: otherwise every question of the analyst would be refused.';
CREATE TRIGGER settings_are_known AFTER INSERT OR UPDATE OF settings ON provenance.analyst FOR EACH ROW WHEN (NEW.settings <> '{}')
    EXECUTE FUNCTION provenance.settings_are_known();
REVOKE ALL ON FUNCTION provenance.relation_is_there, provenance.members_are_there, provenance.dimensions_are_there, provenance.settings_are_known FROM PUBLIC;
