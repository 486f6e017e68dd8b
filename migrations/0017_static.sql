-- Limits of single relations, and relations whose noise is fixed once and for all (a statistical database in the sense
-- of query relaxation, section 3): every number has the same noise, and a question is admitted if no point of the data
-- domain becomes more popular than the bound allows. What the most popular point has lost is the sum of the relation's
-- layers (0015), which the proxies bound from above; the till compares it with the limit while it is locked.

ALTER TABLE provenance.relation
    ADD COLUMN epsilon_limit   numeric CHECK (epsilon_limit >= 0 AND epsilon_limit <= 1000000),
    ADD COLUMN noise_magnitude numeric CHECK (noise_magnitude >= 0.001 AND noise_magnitude <= 13000),
    ADD CONSTRAINT only_what_is_protected_has_a_limit CHECK (kind = 'protected' OR num_nonnulls(epsilon_limit, noise_magnitude) = 0),
    ADD CONSTRAINT fixed_noise_has_a_bound CHECK (noise_magnitude IS NULL OR epsilon_limit IS NOT NULL);
COMMENT ON COLUMN provenance.relation.epsilon_limit IS 'The most that all analysts together may learn about any one unit of this relation; NULL: as much as of the whole protected database.';
COMMENT ON COLUMN provenance.relation.noise_magnitude IS 'NULL: every question has the noise that its accuracy needs. Else every number has this noise: the mean size of what is added, as a multiple of what one privacy unit can move the number.';

CREATE FUNCTION provenance.relation_limit_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    most numeric := (SELECT d.epsilon FROM provenance.deployment d);
BEGIN
    IF NEW.epsilon_limit > most AND (TG_OP = 'INSERT' OR NEW.epsilon_limit IS DISTINCT FROM OLD.epsilon_limit) THEN
        RAISE EXCEPTION 'epsilon_limit % of relation "%" is above the limit of the protected database', NEW.epsilon_limit, NEW.name
            USING ERRCODE = '23514', DETAIL = format('deployment.epsilon is %s.', most), HINT = 'Give at most that, or NULL for no limit of its own.';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION provenance.relation_limit_rules IS 'A relation has no larger limit than the protected database.';
CREATE TRIGGER relation_limit_rules BEFORE INSERT OR UPDATE OF epsilon_limit ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.relation_limit_rules();

-- Prices depend on the noise; the limit is looked at in the till.
CREATE TRIGGER move_registry_on_noise AFTER UPDATE ON provenance.relation FOR EACH ROW
    WHEN (OLD.noise_magnitude IS DISTINCT FROM NEW.noise_magnitude) EXECUTE FUNCTION provenance.move_registry();

CREATE FUNCTION provenance.limit_relation(relation text, epsilon_limit numeric, noise_magnitude numeric DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    UPDATE provenance.relation r SET epsilon_limit = epsilon_limit, noise_magnitude = noise_magnitude WHERE r.id = provenance.relation_id(relation);
END $$;
COMMENT ON FUNCTION provenance.limit_relation IS 'Gives a relation a limit of its own (NULL: none), and fixed noise if a magnitude is given; from the next question on.';

-- Another registration of the same table is about the same people: what was spent under it counts too, and so does what
-- was lost with a part of the ledger, which may have been about any relation.
CREATE FUNCTION provenance.spent_on(relation_id bigint) RETURNS numeric
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT coalesce(sum(l.bound), 0) + (SELECT coalesce(sum(c.table_amount), 0) FROM provenance.charge c WHERE c.mechanism = 'gap')
    FROM provenance.relation r JOIN provenance.relation same ON (same.schema, same.name) = (r.schema, r.name)
    JOIN provenance.layer l ON l.scope = 'table' AND l.name = '' AND l.relation_id = same.id
    WHERE r.id = spent_on.relation_id
$$;
COMMENT ON FUNCTION provenance.spent_on IS 'What no unit of a relation has lost more than, in coin: its layers add up.';

CREATE FUNCTION provenance.price_of_noise(coin text, magnitude numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT ceil(1e18 * CASE coin WHEN 'pure' THEN 1 / magnitude ELSE 1 / (3.14159265358979323846 * magnitude * magnitude) END) / 1e18
$$;
COMMENT ON FUNCTION provenance.price_of_noise IS 'What one number with noise of this magnitude costs, in coin: Laplace noise in epsilon (pure), Gaussian noise in rho (zcdp).';

CREATE VIEW provenance.relation_budget AS
SELECT r.label AS relation, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left", r.noise_magnitude,
    round(s.amount / provenance.price_of_noise(d.coin, r.noise_magnitude), 6) AS popularity
FROM provenance.relation r
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.spent_on(r.id) AS amount OFFSET 0) b
CROSS JOIN LATERAL (SELECT b.amount, provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent,
    least(d.epsilon, coalesce(r.epsilon_limit, d.epsilon)) AS "limit" OFFSET 0) s
WHERE r.active AND r.kind = 'protected';
COMMENT ON VIEW provenance.relation_budget IS 'What all analysts together have learned about the unit of each relation that they know most about, its limit and what is left, in epsilon; with fixed noise also by how many numbers the most popular point is covered.';
COMMENT ON COLUMN provenance.relation_budget.relation IS 'The table.';
COMMENT ON COLUMN provenance.relation_budget.spent IS 'In epsilon: no unit has lost more.';
COMMENT ON COLUMN provenance.relation_budget."limit" IS 'In epsilon.';
COMMENT ON COLUMN provenance.relation_budget."left" IS 'In epsilon: what can still be asked about the most popular point; of others there may be more.';
COMMENT ON COLUMN provenance.relation_budget.noise_magnitude IS 'See relation; NULL: the noise is not fixed.';
COMMENT ON COLUMN provenance.relation_budget.popularity IS 'How many numbers of the fixed noise what is spent stands for.';

REVOKE ALL ON provenance.relation_budget FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.relation_limit_rules, provenance.limit_relation, provenance.spent_on, provenance.price_of_noise FROM PUBLIC;
GRANT SELECT ON provenance.relation_budget TO pgveil_admin;
GRANT INSERT (epsilon_limit, noise_magnitude), UPDATE (epsilon_limit, noise_magnitude) ON provenance.relation TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.limit_relation, provenance.spent_on, provenance.price_of_noise TO pgveil_admin;
