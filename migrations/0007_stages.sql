-- Questions with stages: what a stage may spend is reserved before it, and what was not reached is given back once, at
-- the end. A reservation that is never settled stays spent. Rows are still added and never changed.

ALTER TABLE provenance.charge
    ADD COLUMN stage text NOT NULL DEFAULT 'charge' CHECK (stage IN ('charge', 'reserve', 'settle')),
    ADD COLUMN question_of bigint REFERENCES provenance.charge (id),
    DROP CONSTRAINT charge_amount_check,
    DROP CONSTRAINT charge_delta_check,
    ADD CONSTRAINT only_a_settlement_gives_back CHECK (CASE stage
        WHEN 'settle' THEN amount <= 0 AND amount > '-Infinity' AND delta <= 0 AND delta > -1
        ELSE amount >= 0 AND amount < 'Infinity' AND delta >= 0 AND delta < 1 END),
    ADD CONSTRAINT a_stage_follows_its_question CHECK (CASE stage
        WHEN 'charge' THEN question_of IS NULL
        WHEN 'settle' THEN question_of IS NOT NULL
        ELSE true END);
CREATE INDEX charge_by_question ON provenance.charge (question_of) WHERE question_of IS NOT NULL;
CREATE UNIQUE INDEX a_question_is_settled_once ON provenance.charge (question_of) WHERE stage = 'settle';
COMMENT ON COLUMN provenance.charge.amount IS 'In coin; a settlement''s is what it gives back, with a minus.';
COMMENT ON COLUMN provenance.charge.epsilon IS 'The loss of this question taken by itself, with all its rows so far.';
COMMENT ON COLUMN provenance.charge.stage IS 'charge: a fixed price, paid at once; reserve: what a stage may spend; settle: gives back what was not reached.';
COMMENT ON COLUMN provenance.charge.question_of IS 'The first reservation of the question; NULL: this row is the first or the only one.';

-- A row that follows another one counts only as part of the same open question, whoever inserts it. The till's lock
-- comes first, so that what is read here is everything that was ever reserved for the question.
CREATE FUNCTION provenance.stage_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    first provenance.charge;
    held record;
BEGIN
    PERFORM FROM provenance.balance WHERE scope = 'table' AND name = '' FOR UPDATE;
    SELECT * INTO first FROM provenance.charge c WHERE c.id = NEW.question_of;
    IF first.stage IS DISTINCT FROM 'reserve' OR first.question_of IS NOT NULL THEN
        RAISE EXCEPTION 'charge % is not the first reservation of a question', NEW.question_of USING ERRCODE = '55000',
            HINT = 'A fixed price is paid for good.';
    END IF;
    IF (NEW.analyst, NEW.relation_id, NEW.data_version, NEW.registry_version, NEW.fingerprint, NEW.mechanism, NEW.coin)
        IS DISTINCT FROM (first.analyst, first.relation_id, first.data_version, first.registry_version, first.fingerprint, first.mechanism, first.coin) THEN
        RAISE EXCEPTION 'charge % belongs to another question', NEW.question_of USING ERRCODE = '55000';
    END IF;
    SELECT sum(c.amount) AS amount, sum(c.delta) AS delta, bool_or(c.stage = 'settle') AS settled INTO held
        FROM provenance.charge c WHERE c.id = first.id OR c.question_of = first.id;
    IF held.settled THEN
        RAISE EXCEPTION 'the question of charge % is settled', NEW.question_of USING ERRCODE = '55000',
            HINT = 'What was given back is given back once; a new question is a new charge.';
    END IF;
    IF held.amount + NEW.amount < 0 OR held.delta + NEW.delta < 0 THEN
        RAISE EXCEPTION 'more would be given back than was reserved for charge %', NEW.question_of USING ERRCODE = '23514',
            DETAIL = format('Reserved: %s, delta %s.', held.amount, held.delta);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER stage_rules BEFORE INSERT ON provenance.charge FOR EACH ROW WHEN (NEW.question_of IS NOT NULL) EXECUTE FUNCTION provenance.stage_rules();

CREATE TABLE provenance.charge_loss (
    charge      bigint PRIMARY KEY REFERENCES provenance.charge (id),
    levels      numeric[] NOT NULL CHECK (array_position(levels, NULL) IS NULL AND 0 <= ALL (levels) AND 'Infinity' > ALL (levels)),
    level_of    bytea NOT NULL,
    groups      integer NOT NULL CHECK (groups >= 0),
    min_entropy double precision CHECK (min_entropy > '-Infinity' AND min_entropy < 'Infinity'),
    CONSTRAINT a_level_for_each_group CHECK (CASE cardinality(levels)
        WHEN 0 THEN groups = 0 AND length(level_of) = 0
        WHEN 1 THEN length(level_of) = 0
        ELSE length(level_of) = groups * CASE WHEN cardinality(levels) <= 256 THEN 1 ELSE 2 END END),
    CONSTRAINT levels_fit_two_bytes CHECK (cardinality(levels) <= 65536)
);
COMMENT ON TABLE provenance.charge_loss IS 'What each group of a question lost: predicate-wise loss, read by group_losses.';
COMMENT ON COLUMN provenance.charge_loss.charge IS 'The question: its only charge, or its first reservation.';
COMMENT ON COLUMN provenance.charge_loss.levels IS 'The losses that occur, in coin.';
COMMENT ON COLUMN provenance.charge_loss.level_of IS 'The level of each group, counted from 0: nothing if there is one level, one byte for each up to 256, else two, the high one first. PostgreSQL compresses it where that pays.';
COMMENT ON COLUMN provenance.charge_loss.min_entropy IS 'Of the spend over the groups; NULL: not computed.';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON provenance.charge_loss FOR EACH STATEMENT EXECUTE FUNCTION provenance.append_only();

CREATE FUNCTION provenance.charge_loss_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    net numeric := (SELECT sum(c.amount) FROM provenance.charge c WHERE c.id = NEW.charge OR c.question_of = NEW.charge);
BEGIN
    IF EXISTS (SELECT FROM provenance.charge c WHERE c.id = NEW.charge AND c.question_of IS NOT NULL) THEN
        RAISE EXCEPTION 'charge % is a later stage of a question', NEW.charge USING ERRCODE = '55000',
            HINT = 'The losses of groups belong to the first row of a question.';
    END IF;
    IF net < ANY (NEW.levels) THEN
        RAISE EXCEPTION 'a group of charge % would have lost more than the question', NEW.charge USING ERRCODE = '23514',
            DETAIL = format('The question cost %s.', net);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER charge_loss_rules BEFORE INSERT ON provenance.charge_loss FOR EACH ROW EXECUTE FUNCTION provenance.charge_loss_rules();

CREATE FUNCTION provenance.group_losses(charge_id bigint) RETURNS TABLE (place integer, loss numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    -- Materialised and concatenated, so that the bytes are decompressed once and not for every group.
    WITH stored AS MATERIALIZED (
        SELECT l.levels, l.level_of || ''::bytea AS level_of, l.groups FROM provenance.charge_loss l WHERE l.charge = group_losses.charge_id)
    SELECT p, s.levels[1 + CASE
        WHEN cardinality(s.levels) <= 1 THEN 0
        WHEN cardinality(s.levels) <= 256 THEN get_byte(s.level_of, p)
        ELSE get_byte(s.level_of, 2 * p) * 256 + get_byte(s.level_of, 2 * p + 1) END]
    FROM stored s, generate_series(0, s.groups - 1) p ORDER BY p
$$;
COMMENT ON FUNCTION provenance.group_losses IS 'What each group of a question lost, in coin; places count from 0 in the order of the question''s groups.';

CREATE OR REPLACE VIEW provenance.history AS
SELECT c.id, c.at, c.analyst, c.relation, c.question, c.mechanism, coalesce(more.epsilon, c.epsilon) AS epsilon, c.delta + coalesce(more.delta, 0) AS delta,
    c.coin, c.amount + coalesce(more.amount, 0) AS charged, c.data_version, c.registry_version, c.bill || coalesce(more.bill, '{}') AS bill,
    l.min_entropy, 1 + more.reservations AS stages, c.stage = 'charge' OR coalesce(more.settled, false) AS settled
FROM provenance.charge c
CROSS JOIN LATERAL (
    SELECT sum(m.amount) AS amount, sum(m.delta) AS delta, count(*) FILTER (WHERE m.stage = 'reserve') AS reservations, bool_or(m.stage = 'settle') AS settled,
        (array_agg(m.epsilon ORDER BY m.id DESC))[1] AS epsilon, (array_agg(m.bill) FILTER (WHERE m.stage = 'settle'))[1] AS bill
    FROM provenance.charge m WHERE m.question_of = c.id AND c.stage = 'reserve') more
LEFT JOIN provenance.charge_loss l ON l.charge = c.id
WHERE c.question_of IS NULL;
COMMENT ON VIEW provenance.history IS 'Every question with what it cost in the end; one that is not settled costs all that was reserved for it.';

CREATE OR REPLACE VIEW provenance.matrix AS
SELECT m.analyst, m.relation, m.questions, provenance.epsilon_of(d.coin, m.charged, d.conversion_delta) AS spent, d.coin, m.charged, m.delta
FROM (
    SELECT a.name AS analyst, r.label AS relation, count(c.id) FILTER (WHERE c.question_of IS NULL) AS questions,
        coalesce(sum(c.amount), 0) AS charged, coalesce(sum(c.delta), 0) AS delta
    FROM provenance.analyst a
    CROSS JOIN (SELECT DISTINCT label FROM provenance.relation WHERE kind = 'protected') r
    LEFT JOIN provenance.charge c ON c.analyst = a.name AND c.relation = r.label
    GROUP BY a.name, r.label) m
CROSS JOIN provenance.deployment d;

REVOKE ALL ON provenance.charge_loss FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.stage_rules, provenance.charge_loss_rules, provenance.group_losses FROM PUBLIC;
GRANT SELECT ON provenance.charge_loss TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.group_losses TO pgveil_admin;
