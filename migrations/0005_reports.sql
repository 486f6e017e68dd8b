-- Reports. The ledger itself converts in Python; the numbers here are for reading.

CREATE FUNCTION provenance.epsilon_of(coin text, amount numeric, delta numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rho double precision := amount;
    log_inverse double precision;
    low double precision := -40;  -- of t = ln(alpha - 1)
    high double precision := 60;
    t double precision;
    a double precision;
    log_alpha double precision;
    log_ratio double precision;
BEGIN
    IF coin = 'pure' OR amount = 0 THEN
        RETURN amount;
    ELSIF coin <> 'zcdp' THEN
        RAISE EXCEPTION 'unknown coin "%"', coin USING ERRCODE = '22023', HINT = 'zcdp or pure.';
    ELSIF delta <= 0 OR delta >= 1 THEN
        RAISE EXCEPTION 'zcdp has no epsilon at delta %', delta USING ERRCODE = '22023', HINT = 'delta lies between 0 and 1.';
    END IF;
    log_inverse := -ln(delta);
    -- Canonne, Kamath, Steinke (2020), Corollary 13: the least over a = alpha - 1 > 0 of
    -- (1 + a) rho + (ln(1/delta) - ln(1 + a)) / a + ln(a / (1 + a)); it lies where rho a^2 + ln(1 + a) = ln(1/delta),
    -- and every other a gives a valid epsilon too.
    FOR i IN 1..64 LOOP
        t := (low + high) / 2;
        IF rho * exp(2 * t) + ln(1 + exp(t)) < log_inverse THEN
            low := t;
        ELSE
            high := t;
        END IF;
    END LOOP;
    a := exp(t);
    log_alpha := CASE WHEN a < 1e-5 THEN a - a * a / 2 ELSE ln(1 + a) END;
    log_ratio := CASE WHEN a > 1e5 THEN 1 / (2 * a * a) - 1 / a ELSE t - log_alpha END;
    RETURN greatest(0, ceil(((1 + a) * rho + (log_inverse - log_alpha) / a + log_ratio)::numeric * 1.0000000001 * 1e18) / 1e18);
END $$;
COMMENT ON FUNCTION provenance.epsilon_of IS 'The epsilon that an amount of coin means at a delta, rounded up.';

CREATE FUNCTION provenance.limit_of(analyst text) RETURNS numeric
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT least(d.epsilon, coalesce(a.epsilon_limit, d.expansion * d.epsilon * a.privilege / CASE d.allocation
        WHEN 'max' THEN 10
        ELSE greatest(a.privilege, (SELECT sum(o.privilege) FROM provenance.analyst o WHERE o.active)) END))
    FROM provenance.analyst a, provenance.deployment d WHERE a.name = limit_of.analyst
$$;
COMMENT ON FUNCTION provenance.limit_of IS 'The epsilon that an analyst may learn.';

CREATE VIEW provenance.budget AS
SELECT a.name AS analyst, 'all'::text AS view, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left"
FROM provenance.analyst a
JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = a.name
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent, provenance.limit_of(a.name) AS "limit" OFFSET 0) s;
COMMENT ON VIEW provenance.budget IS 'Each analyst''s spending, limit and what is left, in epsilon.';

CREATE VIEW provenance.total AS
SELECT s.spent, d.epsilon AS "limit", greatest(0, d.epsilon - s.spent) AS "left", d.coin, b.amount, b.delta AS delta_spent, d.payment_delta AS delta_limit
FROM provenance.deployment d
JOIN provenance.balance b ON b.scope = 'table' AND b.name = ''
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent OFFSET 0) s;
COMMENT ON VIEW provenance.total IS 'What all analysts together have spent of the protected database''s limit, in epsilon.';

CREATE VIEW provenance.history AS
SELECT c.id, c.at, c.analyst, c.relation, c.question, c.mechanism, c.epsilon, c.delta, c.coin, c.amount AS charged, c.data_version, c.registry_version, c.bill
FROM provenance.charge c;
COMMENT ON VIEW provenance.history IS 'Every charge with the question that it paid for.';

CREATE VIEW provenance.matrix AS
SELECT m.analyst, m.relation, m.questions, provenance.epsilon_of(d.coin, m.charged, d.conversion_delta) AS spent, d.coin, m.charged, m.delta
FROM (
    SELECT a.name AS analyst, r.label AS relation, count(c.id) AS questions, coalesce(sum(c.amount), 0) AS charged, coalesce(sum(c.delta), 0) AS delta
    FROM provenance.analyst a
    CROSS JOIN (SELECT DISTINCT label FROM provenance.relation WHERE kind = 'protected') r
    LEFT JOIN provenance.charge c ON c.analyst = a.name AND c.relation = r.label
    GROUP BY a.name, r.label) m
CROSS JOIN provenance.deployment d;
COMMENT ON VIEW provenance.matrix IS 'Analysts by relations: what each has learned about each, in epsilon.';
