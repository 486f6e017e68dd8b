-- Time is an output. A question that reads protected rows (a scan) is answered after a secret delay, at a point of a
-- public grid; and it costs at least a fraction of the analyst's limit, so that the number of timings is bounded.

ALTER TABLE provenance.deployment
    ADD COLUMN timing     text    NOT NULL DEFAULT 'delayed' CHECK (timing IN ('delayed', 'immediate')),
    ADD COLUMN scan_floor numeric NOT NULL DEFAULT 0.00025 CHECK (scan_floor >= 0 AND scan_floor <= 1);
COMMENT ON COLUMN provenance.deployment.timing IS 'delayed: what follows a scan of protected rows happens after a secret random delay, on a grid of times. immediate: at once, for analysts who are trusted not to measure time.';
COMMENT ON COLUMN provenance.deployment.scan_floor IS 'The least price of a question that reads protected rows, as a fraction of the analyst''s own limit (of one period), in the ledger''s measure. It is charged on the whole relation: the time of a scan depends on every row. 0: no least price.';
GRANT UPDATE (timing, scan_floor) ON provenance.deployment TO pgveil_admin;

-- The proxies read both with the registry, and plans depend on the price.
CREATE FUNCTION provenance.scan_rules() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    NEW.registry_version := OLD.registry_version + 1;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION provenance.scan_rules IS 'A change of timing or scan_floor holds from the next question on.';
CREATE TRIGGER scan_rules BEFORE UPDATE ON provenance.deployment FOR EACH ROW
    WHEN ((NEW.timing, NEW.scan_floor) IS DISTINCT FROM (OLD.timing, OLD.scan_floor)) EXECUTE FUNCTION provenance.scan_rules();
REVOKE ALL ON FUNCTION provenance.scan_rules FROM PUBLIC;
