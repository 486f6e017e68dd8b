-- A limit is compared with the database's when it is given, not whenever anything else about the row changes: after the
-- database's limit was lowered, an analyst with a larger one can still be made inactive.
-- Beyond the database's limit a larger one allows nothing more (limit_of).

CREATE OR REPLACE FUNCTION provenance.analyst_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    most numeric := (SELECT d.epsilon FROM provenance.deployment d);
    odd text;
BEGIN
    IF NEW.epsilon_limit > most AND (TG_OP = 'INSERT' OR NEW.epsilon_limit IS DISTINCT FROM OLD.epsilon_limit) THEN
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
