-- A view is of a count or of a sum: nothing else is kept. Rows that are there already stay as they are.

CREATE FUNCTION provenance.measure_can_be_kept() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'no view of "%" can be kept', NEW.measure USING ERRCODE = '22023',
        HINT = 'The measures are count(*), count(column), count(DISTINCT column) and sum(column), written as here; avg(x) is answered from sum(x) and count(*).';
END $$;
COMMENT ON FUNCTION provenance.measure_can_be_kept IS 'Refuses to register what is neither a count nor a sum; a view that a question has made may be registered whatever it is called.';
CREATE TRIGGER measure_can_be_kept AFTER INSERT ON provenance.view FOR EACH ROW WHEN (NEW.registered AND NEW.measure !~ '^(count|sum)\(.+\)')
    EXECUTE FUNCTION provenance.measure_can_be_kept();
REVOKE ALL ON FUNCTION provenance.measure_can_be_kept FROM PUBLIC;
