-- A question that joins protected tables is about the units of all of them. It is charged to the first, on whose layers
-- it falls; where another one has a limit of its own (0017), what the question costs counts against that limit too, in
-- full: nothing is known here of where its rows lie in the other table.

ALTER TABLE provenance.charge
    ADD COLUMN beside bigint[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT other_relations_are_named_once_and_apart CHECK (array_position(beside, NULL) IS NULL AND NOT relation_id = ANY (beside));
COMMENT ON COLUMN provenance.charge.beside IS 'The other protected relations that the question reads: their limits bear it too.';
CREATE INDEX charge_beside ON provenance.charge (id) WHERE beside <> '{}';

CREATE FUNCTION provenance.beside_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM provenance.charge c WHERE c.id = NEW.question_of AND c.beside <> NEW.beside) THEN
        RAISE EXCEPTION 'charge % is about other relations', NEW.question_of USING ERRCODE = '23514',
            HINT = 'The stages of a question read what its first reservation was for.';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION provenance.beside_rules IS 'What is given back comes off the limits that were charged.';
CREATE TRIGGER beside_rules BEFORE INSERT ON provenance.charge FOR EACH ROW
    WHEN (NEW.question_of IS NOT NULL) EXECUTE FUNCTION provenance.beside_rules();

-- Rows that join nothing keep the text that they had.
CREATE OR REPLACE FUNCTION provenance.charge_text(c provenance.charge) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT (jsonb_build_array(c.id, extract(epoch FROM c.at), c.analyst, c.relation, c.relation_id, c.data_version, c.registry_version, c.fingerprint,
        c.question, c.mechanism, c.coin, c.amount, c.delta, c.epsilon, c.bill, c.stage, c.question_of, c.table_amount,
        c.views, c.view_amounts, c.view_tables, c.grants, c.grant_amounts) || CASE
            WHEN c.regions = '{}' AND c.counted IS NULL AND c.table_counted IS NULL AND c.beside = '{}' THEN '[]'
            ELSE jsonb_build_array(c.regions, c.region_amounts, c.region_tables, c.counted, c.table_counted) END || CASE
            WHEN c.beside = '{}' THEN '[]' ELSE jsonb_build_array(c.beside) END)::text
$$;

CREATE OR REPLACE FUNCTION provenance.spent_on(relation_id bigint) RETURNS numeric
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    WITH same AS (SELECT s.id FROM provenance.relation r JOIN provenance.relation s ON (s.schema, s.name) = (r.schema, r.name) WHERE r.id = spent_on.relation_id)
    SELECT (SELECT coalesce(sum(l.bound), 0) FROM provenance.layer l WHERE l.scope = 'table' AND l.name = '' AND l.relation_id IN (SELECT id FROM same))
        + (SELECT coalesce(sum(c.table_amount), 0) FROM provenance.charge c WHERE c.beside <> '{}' AND c.beside && ARRAY(SELECT id FROM same))
        + (SELECT coalesce(sum(c.table_amount), 0) FROM provenance.charge c WHERE c.mechanism = 'gap')
$$;
COMMENT ON FUNCTION provenance.spent_on IS 'What no unit of a relation has lost more than, in coin: its layers, and the questions about others that were joined with it, add up.';

REVOKE ALL ON FUNCTION provenance.beside_rules FROM PUBLIC;
