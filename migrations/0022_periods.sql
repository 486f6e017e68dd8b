-- Periods. Nothing that was spent ever comes back; with a period, limits grow: each period that begins adds to every
-- limit once more what its epsilon is worth in coin. So after n periods the protected database has lost at most n times
-- that coin, which is what n deployments one after the other on the same people would lose (composition), and everything
-- that adds up charges (balances, regions, grants, the chain) is as it was.

ALTER TABLE provenance.deployment
    DROP CONSTRAINT deployment_period_check,
    ADD COLUMN period_began   timestamptz,
    ADD COLUMN periods_earned bigint NOT NULL DEFAULT 1 CHECK (periods_earned >= 1),
    ADD CONSTRAINT a_period_lasts_a_day_at_least CHECK (period >= interval '1 day' AND period <= interval '100 years'),
    ADD CONSTRAINT a_period_has_begun CHECK ((period IS NULL) = (period_began IS NULL));
COMMENT ON COLUMN provenance.deployment.period IS 'NULL: limits stay as they are. Else an interval such as ''1 month'': whenever it has passed, every limit (of the database, analysts, views, relations, and the delta) grows by the same amount of coin again. What was spent stays spent, and what was not spent stays.';
COMMENT ON COLUMN provenance.deployment.period_began IS 'Since when the present length of periods holds.';
COMMENT ON COLUMN provenance.deployment.periods_earned IS 'How many periods had begun by then.';

-- In UTC, so that a period is the same for every session.
CREATE FUNCTION provenance.periods_since(began timestamptz, period interval, until timestamptz) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first constant timestamp := began AT TIME ZONE 'UTC';
    last constant timestamp := until AT TIME ZONE 'UTC';
    n bigint := greatest(0, floor(extract(epoch FROM last - first) / extract(epoch FROM period)));
BEGIN
    WHILE n > 0 AND first + n * period > last LOOP
        n := n - 1;
    END LOOP;
    WHILE first + (n + 1) * period <= last LOOP
        n := n + 1;
    END LOOP;
    RETURN n;
END $$;
COMMENT ON FUNCTION provenance.periods_since IS 'How many whole periods lie between two times, by the calendar: a month is as long as it is.';

CREATE FUNCTION provenance.periods() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT d.periods_earned + coalesce(provenance.periods_since(d.period_began, d.period, now()), 0) FROM provenance.deployment d
$$;
COMMENT ON FUNCTION provenance.periods IS 'How many periods have begun, the present one included; 1 where there are none.';

CREATE FUNCTION provenance.next_period() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT (d.period_began AT TIME ZONE 'UTC' + (provenance.periods_since(d.period_began, d.period, now()) + 1) * d.period) AT TIME ZONE 'UTC'
    FROM provenance.deployment d
$$;
COMMENT ON FUNCTION provenance.next_period IS 'When limits grow again; NULL: never.';

CREATE FUNCTION provenance.amount_of(coin text, epsilon numeric, delta numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    log_inverse double precision;
    low double precision := -40;  -- of t = ln(alpha - 1)
    high double precision;
    t double precision;
    a double precision;
    rho double precision;
    log_alpha double precision;
    log_ratio double precision;
BEGIN
    IF coin = 'pure' OR epsilon = 0 THEN
        RETURN epsilon;
    ELSIF coin <> 'zcdp' THEN
        RAISE EXCEPTION 'unknown coin "%"', coin USING ERRCODE = '22023', HINT = 'zcdp or pure.';
    ELSIF delta <= 0 OR delta >= 1 THEN
        RAISE EXCEPTION 'zcdp has no epsilon at delta %', delta USING ERRCODE = '22023', HINT = 'delta lies between 0 and 1.';
    END IF;
    log_inverse := -ln(delta);
    -- The bound of epsilon_of is least where rho a^2 + ln(1 + a) = ln(1/delta): every a belongs to one rho, and the larger
    -- a is, the smaller are that rho and its epsilon.
    high := CASE WHEN log_inverse > 30 THEN log_inverse ELSE ln(exp(log_inverse) - 1) END;
    FOR i IN 1..64 LOOP
        t := (low + high) / 2;
        a := exp(t);
        log_alpha := CASE WHEN a < 1e-5 THEN a - a * a / 2 ELSE ln(1 + a) END;
        log_ratio := CASE WHEN a > 1e5 THEN 1 / (2 * a * a) - 1 / a ELSE t - log_alpha END;
        rho := (log_inverse - log_alpha) / (a * a);
        IF (1 + a) * rho + (log_inverse - log_alpha) / a + log_ratio > epsilon THEN
            low := t;
        ELSE
            high := t;
        END IF;
    END LOOP;
    RETURN greatest(0, floor(rho::numeric * 0.9999999999 * 1e18) / 1e18);
END $$;
COMMENT ON FUNCTION provenance.amount_of IS 'The amount of coin that an epsilon is worth at a delta, rounded down: the inverse of epsilon_of.';

CREATE FUNCTION provenance.grown(epsilon numeric, periods bigint DEFAULT provenance.periods()) RETURNS numeric
LANGUAGE sql STABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT CASE WHEN grown.periods = 1 THEN grown.epsilon
        ELSE provenance.epsilon_of(d.coin, grown.periods * provenance.amount_of(d.coin, grown.epsilon, d.conversion_delta), d.conversion_delta) END
    FROM provenance.deployment d
$$;
COMMENT ON FUNCTION provenance.grown IS 'What a limit of so much epsilon has grown to after so many periods (the present number if it is left out), in epsilon.';

CREATE FUNCTION provenance.period_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    -- What has begun stays; the present period begins anew with its new length. Of the row as it is now: this statement's
    -- snapshot may be older, if it waited for another change.
    NEW.periods_earned := OLD.periods_earned + coalesce(provenance.periods_since(OLD.period_began, OLD.period, now()), 0);
    NEW.period_began := CASE WHEN NEW.period IS NOT NULL THEN now() END;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION provenance.period_rules IS 'A period that has not passed when the length changes is not counted.';
CREATE TRIGGER period_rules BEFORE UPDATE ON provenance.deployment FOR EACH ROW
    WHEN (NEW.period IS DISTINCT FROM OLD.period) EXECUTE FUNCTION provenance.period_rules();

-- Whoever sets it is told what it means.
CREATE FUNCTION provenance.tell_period() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    later bigint := NEW.periods_earned + 12;
BEGIN
    IF NEW.period IS NULL THEN
        RAISE NOTICE 'limits do not grow any more; they stay as they are after % period(s)', NEW.periods_earned;
    ELSE
        RAISE NOTICE 'every limit grows each %', NEW.period USING
            DETAIL = format('All analysts together may learn epsilon %s (delta %s) now, and epsilon %s (delta %s) after twelve more periods.',
                round(provenance.grown(NEW.epsilon, NEW.periods_earned), 6), NEW.conversion_delta + NEW.periods_earned * NEW.payment_delta,
                round(provenance.grown(NEW.epsilon, later), 6), NEW.conversion_delta + later * NEW.payment_delta),
            HINT = 'What is spent never comes back. UPDATE provenance.deployment SET period = NULL ends the growth.';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.tell_period IS 'Says what a new period means.';
CREATE TRIGGER tell_period AFTER UPDATE ON provenance.deployment FOR EACH ROW
    WHEN (NEW.period IS DISTINCT FROM OLD.period) EXECUTE FUNCTION provenance.tell_period();

-- The reports agree with the till.
CREATE OR REPLACE FUNCTION provenance.limit_of(analyst text) RETURNS numeric
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT provenance.grown(least(d.epsilon, coalesce(a.epsilon_limit, d.expansion * d.epsilon * a.privilege / CASE d.allocation
        WHEN 'max' THEN 10
        ELSE greatest(a.privilege, (SELECT sum(o.privilege) FROM provenance.analyst o WHERE o.active)) END)))
    FROM provenance.analyst a, provenance.deployment d WHERE a.name = limit_of.analyst
$$;
COMMENT ON FUNCTION provenance.limit_of IS 'The epsilon that an analyst may learn, all periods together.';

CREATE OR REPLACE VIEW provenance.budget AS
SELECT a.name AS analyst, 'all'::text AS view, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left"
FROM provenance.analyst a
JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = a.name
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, greatest(0, b.amount + coalesce((
        SELECT sum(CASE g.grantor WHEN a.name THEN g.used ELSE -g.used END) FROM provenance.grant_of_budget g WHERE a.name IN (g.grantor, g.grantee)), 0)),
    d.conversion_delta) AS spent, provenance.limit_of(a.name) AS "limit" OFFSET 0) s
UNION ALL
SELECT p.analyst, provenance.view_label(v.id), s.spent, s."limit", greatest(0, s."limit" - s.spent)
FROM provenance.spending p
JOIN provenance.view v ON v.id = p.view
JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = p.analyst
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, least(p.amount, b.amount), d.conversion_delta) AS spent,
    least(provenance.limit_of(p.analyst), provenance.grown(coalesce(v.epsilon_limit, d.epsilon))) AS "limit" OFFSET 0) s;

CREATE OR REPLACE VIEW provenance.total AS
SELECT s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left", d.coin, b.amount, b.delta AS delta_spent, p.periods * d.payment_delta AS delta_limit,
    p.periods, provenance.next_period() AS next_period
FROM provenance.deployment d
JOIN provenance.balance b ON b.scope = 'table' AND b.name = ''
CROSS JOIN LATERAL (SELECT provenance.periods() AS periods OFFSET 0) p
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent, provenance.grown(d.epsilon, p.periods) AS "limit" OFFSET 0) s;
COMMENT ON VIEW provenance.total IS 'What all analysts together have spent of the protected database''s limit, in epsilon; how many periods have begun, and when limits grow again.';
COMMENT ON COLUMN provenance.total.periods IS 'The limit is what so many periods are worth.';
COMMENT ON COLUMN provenance.total.next_period IS 'When it grows again; NULL: never.';

CREATE OR REPLACE VIEW provenance.view_budget AS
SELECT v.id AS view, provenance.view_label(v.id) AS label, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left",
    (SELECT count(*) FROM provenance.spending p WHERE p.view = v.id AND p.amount > 0) AS analysts
FROM provenance.view v
JOIN provenance.balance b ON b.scope = 'view' AND b.name = v.id::text
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent,
    provenance.grown(coalesce(least(v.epsilon_limit, d.epsilon), d.epsilon)) AS "limit" OFFSET 0) s;

CREATE OR REPLACE VIEW provenance.relation_budget AS
SELECT r.label AS relation, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left", r.noise_magnitude,
    round(s.amount / provenance.price_of_noise(d.coin, r.noise_magnitude), 6) AS popularity
FROM provenance.relation r
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.spent_on(r.id) AS amount OFFSET 0) b
CROSS JOIN LATERAL (SELECT b.amount, provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent,
    provenance.grown(least(d.epsilon, coalesce(r.epsilon_limit, d.epsilon))) AS "limit" OFFSET 0) s
WHERE r.active AND r.kind = 'protected';

REVOKE ALL ON FUNCTION provenance.periods_since, provenance.periods, provenance.next_period, provenance.amount_of, provenance.grown,
    provenance.period_rules, provenance.tell_period FROM PUBLIC;
GRANT EXECUTE ON FUNCTION provenance.periods_since, provenance.periods, provenance.next_period, provenance.amount_of, provenance.grown TO pgveil_admin;
