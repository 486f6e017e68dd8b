-- What was drawn from a grant was lost with the charges that drew it, and that a grant was revoked may be lost too. What
-- the grantee learned is booked by accept_gap; from a grant that is open again the same budget would come once more.

CREATE FUNCTION provenance.grants_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.grant_of_budget g SET revoked = true WHERE NOT g.revoked;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.grants_end IS 'With an accepted gap all grants end: what was drawn from them is not known. An administrator makes them anew.';
CREATE TRIGGER grants_end AFTER UPDATE OF accepted_at ON provenance.gap FOR EACH ROW
    WHEN (OLD.accepted_at IS NULL AND NEW.accepted_at IS NOT NULL) EXECUTE FUNCTION provenance.grants_end();

REVOKE ALL ON FUNCTION provenance.grants_end FROM PUBLIC;
