-- Budgets that one analyst lends to another, and groups of analysts that are declared not to collude.

CREATE TABLE provenance.grant_of_budget (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    grantor    text    NOT NULL REFERENCES provenance.analyst (name),
    grantee    text    NOT NULL REFERENCES provenance.analyst (name),
    epsilon    numeric NOT NULL CHECK (epsilon > 0 AND epsilon <= 1000000),
    until      timestamptz NOT NULL DEFAULT 'infinity',
    revoked    boolean NOT NULL DEFAULT false,
    used       numeric NOT NULL DEFAULT 0 CHECK (used >= 0 AND used < 'Infinity'),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT nobody_grants_to_himself CHECK (grantor <> grantee)
);
CREATE INDEX grant_by_grantor ON provenance.grant_of_budget (grantor);
CREATE INDEX grant_by_grantee ON provenance.grant_of_budget (grantee);
COMMENT ON TABLE provenance.grant_of_budget IS 'What one analyst may learn at the expense of another: made by grant_budget, ended by revoke_grant.';
COMMENT ON COLUMN provenance.grant_of_budget.grantor IS 'Whose limit pays: what the grantee uses, the grantor can no longer spend.';
COMMENT ON COLUMN provenance.grant_of_budget.grantee IS 'Who may learn more: used when the own limit is spent.';
COMMENT ON COLUMN provenance.grant_of_budget.epsilon IS 'The most that may be used; in coin, what this epsilon is worth by itself.';
COMMENT ON COLUMN provenance.grant_of_budget.until IS 'When it ends. What was used stays used.';
COMMENT ON COLUMN provenance.grant_of_budget.used IS 'What was used, in coin. A running total.';

ALTER TABLE provenance.charge
    ADD COLUMN grants        bigint[]  NOT NULL DEFAULT '{}',
    ADD COLUMN grant_amounts numeric[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT a_grant_has_an_amount CHECK (cardinality(grants) = cardinality(grant_amounts)
        AND array_position(grants, NULL) IS NULL AND array_position(grant_amounts, NULL) IS NULL),
    ADD CONSTRAINT a_grant_pays_at_most_the_question CHECK (CASE stage
        WHEN 'settle' THEN amount <= ALL (grant_amounts) AND 0 >= ALL (grant_amounts)
        ELSE amount >= ALL (grant_amounts) AND 0 <= ALL (grant_amounts) END);
COMMENT ON COLUMN provenance.charge.grants IS 'The grants that paid for a part of it, since the analyst''s own limit did not suffice.';
COMMENT ON COLUMN provenance.charge.grant_amounts IS 'What each of grants paid, in coin.';

CREATE FUNCTION provenance.grant_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'grants are not deleted' USING ERRCODE = '42501', HINT = format('SELECT provenance.revoke_grant(%s).', OLD.id);
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.id, NEW.grantor, NEW.grantee) IS DISTINCT FROM (OLD.id, OLD.grantor, OLD.grantee) THEN
        RAISE EXCEPTION 'a grant is between the two that it was made for' USING ERRCODE = '55000', HINT = 'Revoke it and make another.';
    END IF;
    IF NEW.epsilon > provenance.limit_of(NEW.grantor) AND (TG_OP = 'INSERT' OR NEW.epsilon <> OLD.epsilon) THEN
        RAISE EXCEPTION 'analyst "%" cannot grant more than the own limit', NEW.grantor USING ERRCODE = '23514',
            DETAIL = format('Asked %s, the limit is %s.', NEW.epsilon, provenance.limit_of(NEW.grantor));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_hold BEFORE INSERT OR UPDATE OR DELETE ON provenance.grant_of_budget FOR EACH STATEMENT EXECUTE FUNCTION provenance.hold_the_till();
CREATE TRIGGER grant_rules BEFORE INSERT OR UPDATE OR DELETE ON provenance.grant_of_budget FOR EACH ROW EXECUTE FUNCTION provenance.grant_rules();
CREATE TRIGGER z_tell AFTER INSERT ON provenance.grant_of_budget FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();
CREATE TRIGGER z_tell_change AFTER UPDATE OF epsilon, until, revoked ON provenance.grant_of_budget FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();

CREATE FUNCTION provenance.grant_budget(grantor text, grantee text, epsilon numeric, until timestamptz DEFAULT 'infinity') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    IF grant_budget.until <= clock_timestamp() THEN
        RAISE EXCEPTION 'the grant would have ended at %', grant_budget.until USING ERRCODE = '22023', HINT = 'Give a time to come, or leave it out.';
    END IF;
    INSERT INTO provenance.grant_of_budget (grantor, grantee, epsilon, until)
        VALUES (grant_budget.grantor, grant_budget.grantee, grant_budget.epsilon, grant_budget.until) RETURNING id INTO made;
    RETURN made;
END $$;
COMMENT ON FUNCTION provenance.grant_budget IS 'The second analyst may learn so much beyond the own limit, at the expense of the first one''s limit, until that time. Returns the id of the grant.';

CREATE FUNCTION provenance.revoke_grant(grant_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.grant_of_budget g SET revoked = true WHERE g.id = grant_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no grant %', grant_id USING ERRCODE = '42704';
    END IF;
END $$;
COMMENT ON FUNCTION provenance.revoke_grant IS 'Ends a grant: nothing more is drawn from it. What was used stays used.';

CREATE FUNCTION provenance.draw_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    drawn numeric := (SELECT sum(a) FROM unnest(NEW.grant_amounts) a);
    wrong bigint;
BEGIN
    SELECT d.id INTO wrong FROM unnest(NEW.grants) WITH ORDINALITY d (id, place) LEFT JOIN provenance.grant_of_budget g ON g.id = d.id
        WHERE g.grantee IS DISTINCT FROM NEW.analyst OR array_position(NEW.grants, d.id) <> d.place LIMIT 1;
    IF FOUND OR abs(drawn) > abs(NEW.amount) THEN
        RAISE EXCEPTION 'grant % is for somebody else, stands twice, or pays more than the question costs', wrong USING ERRCODE = '23514';
    END IF;
    IF NEW.stage = 'settle' THEN
        SELECT d.id INTO wrong FROM unnest(NEW.grants, NEW.grant_amounts) d (id, amount)
            WHERE d.amount + coalesce((SELECT sum(h.amount) FROM provenance.charge c, unnest(c.grants, c.grant_amounts) h (id, amount)
                WHERE (c.id = NEW.question_of OR c.question_of = NEW.question_of) AND h.id = d.id), 0) < 0 LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'more would be given back to grant % than it paid', wrong USING ERRCODE = '23514';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER draw_rules BEFORE INSERT ON provenance.charge FOR EACH ROW WHEN (NEW.grants <> '{}') EXECUTE FUNCTION provenance.draw_rules();

CREATE FUNCTION provenance.count_draw() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.grant_of_budget g SET used = g.used + d.amount FROM unnest(NEW.grants, NEW.grant_amounts) d (id, amount) WHERE g.id = d.id;
    RETURN NULL;
END $$;
CREATE TRIGGER count_draw AFTER INSERT ON provenance.charge FOR EACH ROW WHEN (NEW.grants <> '{}') EXECUTE FUNCTION provenance.count_draw();

-- DProvDB, section 7: analysts in different groups are believed not to collude, so each group has the limit of the
-- protected database for itself. What a group has learned is at most the sum of what its members have learned.
CREATE TABLE provenance.coalition (
    name    text PRIMARY KEY CHECK (name <> '' AND octet_length(name) <= 63),
    comment text
);
COMMENT ON TABLE provenance.coalition IS 'Groups of analysts who may collude with each other, and are declared never to collude with others. Empty (the default): everybody may collude with everybody.';
COMMENT ON COLUMN provenance.coalition.comment IS 'Why that may be believed.';
ALTER TABLE provenance.analyst ADD COLUMN coalition text REFERENCES provenance.coalition (name);
COMMENT ON COLUMN provenance.analyst.coalition IS 'The group whose members may collude; those of NULL are one group too. With more than one group, each has the deployment''s epsilon for itself.';
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE OR DELETE ON provenance.coalition FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();

CREATE FUNCTION provenance.coalition_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM FROM provenance.balance WHERE scope = 'table' FOR UPDATE;
    -- What one has told a group stays with it, so one who has learned something stays in it; those of NULL are one too.
    IF EXISTS (SELECT FROM provenance.balance b WHERE b.scope = 'analyst' AND b.name = OLD.name AND (b.amount > 0 OR b.delta > 0)) THEN
        RAISE EXCEPTION 'analyst "%" cannot leave coalition "%": something was learned in it', OLD.name, coalesce(OLD.coalition, '') USING ERRCODE = '55000',
            HINT = 'Make another analyst for another group.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER coalition_rules BEFORE UPDATE OF coalition ON provenance.analyst FOR EACH ROW
    WHEN (NEW.coalition IS DISTINCT FROM OLD.coalition) EXECUTE FUNCTION provenance.coalition_rules();

REVOKE ALL ON provenance.grant_of_budget, provenance.coalition FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.grant_rules, provenance.grant_budget, provenance.revoke_grant, provenance.draw_rules, provenance.count_draw, provenance.coalition_rules FROM PUBLIC;
GRANT SELECT ON provenance.grant_of_budget TO pgveil_admin;
GRANT UPDATE (epsilon, until, revoked) ON provenance.grant_of_budget TO pgveil_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON provenance.coalition TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.grant_budget, provenance.revoke_grant TO pgveil_admin;
