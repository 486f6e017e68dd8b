-- Predicate-wise loss in the till: a decision reserves on all of its region, and when it settles each group bears what it
-- lost itself. The settlement takes everything that was reserved off the region of the question, and puts the level of
-- each part of it there instead: regions[1] is the region, with what comes off it; the others are disjoint parts of it.

ALTER TABLE provenance.charge
    DROP CONSTRAINT a_region_loses_at_most_what_the_question_costs,
    DROP CONSTRAINT stages_have_one_region,
    ADD CONSTRAINT a_region_loses_at_most_what_the_question_costs CHECK (CASE
        WHEN stage = 'settle' AND cardinality(regions) > 1 THEN region_amounts[1] <= amount AND region_tables[1] <= table_amount AND amount < 0
            AND 0 <= ALL (region_amounts[2:]) AND 0 <= ALL (region_tables[2:]) AND region_amounts[2:] = region_tables[2:]
        WHEN stage = 'settle' THEN amount <= ALL (region_amounts) AND table_amount <= ALL (region_tables) AND 0 >= ALL (region_amounts) AND 0 >= ALL (region_tables)
        ELSE amount >= ALL (region_amounts) AND table_amount >= ALL (region_tables) AND 0 <= ALL (region_amounts) AND 0 <= ALL (region_tables) END),
    ADD CONSTRAINT stages_have_one_region CHECK (stage = 'charge' OR regions = '{}' OR (stage = 'settle' AND cardinality(regions) > 1)
        OR (cardinality(regions) = 1 AND region_amounts[1] = amount AND region_tables[1] = table_amount));
COMMENT ON COLUMN provenance.charge.regions IS 'The parts of the data domain that it touches: a unit loses the sum over those that it lies in. {}: everywhere, in full. Of a settlement with several, the first is where the question was reserved, and the others are what its groups bear from now on.';

CREATE OR REPLACE FUNCTION provenance.region_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    held record;
BEGIN
    IF EXISTS (SELECT FROM provenance.charge c WHERE c.id = NEW.question_of
            AND c.regions <> CASE WHEN NEW.stage = 'settle' AND cardinality(NEW.regions) > 1 THEN NEW.regions[1:1] ELSE NEW.regions END) THEN
        RAISE EXCEPTION 'charge % touches other regions', NEW.question_of USING ERRCODE = '23514',
            HINT = 'The stages of a question fall where its first reservation fell.';
    END IF;
    IF NEW.stage = 'settle' AND cardinality(NEW.regions) > 1 THEN
        SELECT sum(m.amount) AS amount, sum(m.table_amount) AS table_amount INTO held
            FROM provenance.charge m WHERE m.id = NEW.question_of OR m.question_of = NEW.question_of;
        IF (NEW.region_amounts[1], NEW.region_tables[1]) IS DISTINCT FROM (-held.amount, -held.table_amount)
            OR held.amount + NEW.amount < ANY (NEW.region_amounts[2:]) OR held.table_amount + NEW.table_amount < ANY (NEW.region_tables[2:]) THEN
            RAISE EXCEPTION 'the levels of charge % are not what it reached', NEW.question_of USING ERRCODE = '23514',
                DETAIL = format('Reserved were %s and %s; no part bears more than %s and %s.', held.amount, held.table_amount,
                    held.amount + NEW.amount, held.table_amount + NEW.table_amount);
        END IF;
    END IF;
    IF NEW.stage = 'settle' AND NEW.regions <> '{}' THEN
        NEW.counted := coalesce(NEW.counted, 0);
        NEW.table_counted := coalesce(NEW.table_counted, 0);
    END IF;
    RETURN NEW;
END $$;
