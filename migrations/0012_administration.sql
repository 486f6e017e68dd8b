-- Reports per view, fairness, notices, and which proxies are there.

CREATE OR REPLACE VIEW provenance.budget AS
SELECT a.name AS analyst, 'all'::text AS view, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left"
FROM provenance.analyst a
JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = a.name
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, b.amount + coalesce((
        SELECT sum(CASE g.grantor WHEN a.name THEN g.used ELSE -g.used END) FROM provenance.grant_of_budget g WHERE a.name IN (g.grantor, g.grantee)), 0),
    d.conversion_delta) AS spent, provenance.limit_of(a.name) AS "limit" OFFSET 0) s
UNION ALL
SELECT p.analyst, provenance.view_label(v.id), s.spent, s."limit", greatest(0, s."limit" - s.spent)
FROM provenance.spending p
JOIN provenance.view v ON v.id = p.view
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, p.amount, d.conversion_delta) AS spent,
    least(provenance.limit_of(p.analyst), coalesce(v.epsilon_limit, d.epsilon)) AS "limit" OFFSET 0) s;
COMMENT ON VIEW provenance.budget IS 'Each analyst''s spending, limit and what is left, in epsilon: of the own limit (view all; what others used of it counts, what others lent does not), and of each view.';

CREATE VIEW provenance.view_budget AS
SELECT v.id AS view, provenance.view_label(v.id) AS label, s.spent, s."limit", greatest(0, s."limit" - s.spent) AS "left",
    (SELECT count(*) FROM provenance.spending p WHERE p.view = v.id AND p.amount > 0) AS analysts
FROM provenance.view v
JOIN provenance.balance b ON b.scope = 'view' AND b.name = v.id::text
CROSS JOIN provenance.deployment d
CROSS JOIN LATERAL (SELECT provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent, coalesce(least(v.epsilon_limit, d.epsilon), d.epsilon) AS "limit" OFFSET 0) s;
COMMENT ON VIEW provenance.view_budget IS 'What each view''s hidden global synopsis has cost, its limit and what is left, in epsilon, and how many analysts have learned from it.';

CREATE VIEW provenance.lending AS
SELECT g.id, g.grantor, g.grantee, g.epsilon AS granted, provenance.epsilon_of(d.coin, g.used, d.conversion_delta) AS used, g.until,
    NOT g.revoked AND g.until > clock_timestamp() AND r.active AND e.active AS active
FROM provenance.grant_of_budget g
JOIN provenance.analyst r ON r.name = g.grantor
JOIN provenance.analyst e ON e.name = g.grantee
CROSS JOIN provenance.deployment d;
COMMENT ON VIEW provenance.lending IS 'Grants of budget, what was used of each in epsilon, and whether more can be drawn.';

CREATE OR REPLACE VIEW provenance.matrix AS
SELECT m.analyst, m.relation, m.questions, provenance.epsilon_of(d.coin, m.charged, d.conversion_delta) AS spent, d.coin, m.charged, m.delta, m.view
FROM (
    SELECT a.name AS analyst, r.label AS relation, count(c.id) FILTER (WHERE c.question_of IS NULL) AS questions,
        coalesce(sum(c.amount), 0) AS charged, coalesce(sum(c.delta), 0) AS delta, 'all' AS view
    FROM provenance.analyst a
    CROSS JOIN (SELECT DISTINCT label FROM provenance.relation WHERE kind = 'protected') r
    LEFT JOIN provenance.charge c ON c.analyst = a.name AND c.relation = r.label
    GROUP BY a.name, r.label
    UNION ALL
    SELECT a.name, v.relation, (SELECT count(*) FROM provenance.charge_view p JOIN provenance.charge c ON c.id = p.charge
            WHERE p.view = v.id AND c.analyst = a.name AND c.question_of IS NULL),
        coalesce(s.amount, 0), 0, provenance.view_label(v.id)
    FROM provenance.analyst a CROSS JOIN provenance.view v
    LEFT JOIN provenance.spending s ON s.analyst = a.name AND s.view = v.id) m
CROSS JOIN provenance.deployment d;
COMMENT ON VIEW provenance.matrix IS 'The provenance table: analysts by views (and by relations, view all): what each has learned about each, in epsilon.';

CREATE OR REPLACE VIEW provenance.history AS
SELECT c.id, c.at, c.analyst, c.relation, c.question, c.mechanism, coalesce(more.epsilon, c.epsilon) AS epsilon, c.delta + coalesce(more.delta, 0) AS delta,
    c.coin, c.amount + coalesce(more.amount, 0) AS charged, c.data_version, c.registry_version, c.bill || coalesce(more.bill, '{}') AS bill,
    l.min_entropy, 1 + more.reservations AS stages, c.stage = 'charge' OR coalesce(more.settled, false) AS settled,
    ARRAY(SELECT provenance.view_label(v.id) FROM unnest(c.views) WITH ORDINALITY v (id, place) ORDER BY v.place) AS views,
    c.table_amount + coalesce(more.table_amount, 0) AS table_charged
FROM provenance.charge c
CROSS JOIN LATERAL (
    SELECT sum(m.amount) AS amount, sum(m.delta) AS delta, sum(m.table_amount) AS table_amount,
        count(*) FILTER (WHERE m.stage = 'reserve') AS reservations, bool_or(m.stage = 'settle') AS settled,
        (array_agg(m.epsilon ORDER BY m.id DESC))[1] AS epsilon, (array_agg(m.bill) FILTER (WHERE m.stage = 'settle'))[1] AS bill
    FROM provenance.charge m WHERE m.question_of = c.id AND c.stage = 'reserve') more
LEFT JOIN provenance.charge_loss l ON l.charge = c.id
WHERE c.question_of IS NULL;
COMMENT ON VIEW provenance.history IS 'Every question with its views and what it cost in the end, the analyst (charged) and the protected database (table_charged); one that is not settled costs all that was reserved for it.';

-- DProvDB: Definition 7 with the privilege itself as the linear function, and nDCFG (section 6.1).
CREATE VIEW provenance.fairness AS
WITH each AS (
    SELECT a.name AS analyst, a.privilege, coalesce(q.questions, 0) AS questions, provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) AS spent
    FROM provenance.analyst a
    JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = a.name
    CROSS JOIN provenance.deployment d
    LEFT JOIN (SELECT c.analyst, count(*) AS questions FROM provenance.charge c WHERE c.question_of IS NULL AND c.mechanism <> 'gap' GROUP BY c.analyst) q
        ON q.analyst = a.name)
SELECT e.analyst, e.privilege, e.questions, e.spent, e.spent / e.privilege AS spent_per_privilege,
    NOT EXISTS (SELECT FROM each o WHERE o.privilege < e.privilege AND o.spent / o.privilege > e.spent / e.privilege) AS proportional,
    e.questions / log(2, 1 + 1.0 / e.privilege) AS gain,
    (sum(e.questions / log(2, 1 + 1.0 / e.privilege)) OVER ()) / nullif(sum(e.questions) OVER (), 0) AS ndcfg
FROM each e;
COMMENT ON VIEW provenance.fairness IS 'Whether analysts of higher privilege learn more (DProvDB). proportional: nobody of lower privilege has spent more for each step of privilege. ndcfg: the discounted fairness gain of all, for each question that was paid for; it is the same in every row.';

-- What the proxy shows an analyst about himself.
CREATE FUNCTION provenance.budget_of(analyst text) RETURNS TABLE (view text, spent numeric, "limit" numeric, "left" numeric)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT r.view, r.spent, r."limit", r."left" FROM (
        SELECT b.view, b.spent, b."limit", b."left", b.view <> 'all' AS later FROM provenance.budget b WHERE b.analyst = budget_of.analyst
        UNION ALL
        SELECT format('grant %s by %s', l.id, l.grantor), l.used, l.granted, greatest(0, l.granted - l.used), true
        FROM provenance.lending l WHERE l.grantee = budget_of.analyst AND l.active) r
    ORDER BY r.later, r.view
$$;
COMMENT ON FUNCTION provenance.budget_of IS 'An analyst''s own limits and spending, in epsilon: all, each view, and what others lend.';

CREATE FUNCTION provenance.questions_of(analyst text, most integer DEFAULT NULL)
RETURNS TABLE (id bigint, at timestamptz, question text, mechanism text, epsilon numeric, delta numeric, charged numeric, coin text, bill jsonb, views text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT r.* FROM (
        SELECT h.id, h.at, h.question, h.mechanism, h.epsilon, h.delta, h.charged, h.coin, h.bill, h.views
        FROM provenance.history h WHERE h.analyst = questions_of.analyst ORDER BY h.id DESC LIMIT most) r
    ORDER BY r.id
$$;
COMMENT ON FUNCTION provenance.questions_of IS 'An analyst''s own questions that cost something, the last ones if a number is given, in their order.';

-- Notices: a proxy that keeps something in memory hears when it changes. Charges are not told (see tell).
CREATE OR REPLACE FUNCTION provenance.tell() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgveil', TG_TABLE_NAME);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION provenance.tell IS 'LISTEN pgveil: the payload is the table that changed; a refresh is a change of relation. Charges are not told: NOTIFY would make their commits wait for each other.';
CREATE TRIGGER z_tell AFTER INSERT OR UPDATE ON provenance.gap FOR EACH STATEMENT EXECUTE FUNCTION provenance.tell();

CREATE TABLE provenance.replica (
    name       text PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    trouble    text
);
COMMENT ON TABLE provenance.replica IS 'Proxies, each with the last time that it was heard of.';
COMMENT ON COLUMN provenance.replica.name IS 'Host and process.';
COMMENT ON COLUMN provenance.replica.started_at IS 'When it was first heard of.';
COMMENT ON COLUMN provenance.replica.seen_at IS 'Every few seconds as long as it runs.';
COMMENT ON COLUMN provenance.replica.trouble IS 'Why it does not charge; NULL: all is well.';

CREATE FUNCTION provenance.heartbeat(replica text, trouble text DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    DELETE FROM provenance.replica r WHERE r.seen_at < clock_timestamp() - interval '1 day';
    INSERT INTO provenance.replica AS r (name, trouble) VALUES (heartbeat.replica, heartbeat.trouble)
        ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp(), trouble = excluded.trouble;
$$;
COMMENT ON FUNCTION provenance.heartbeat IS 'A proxy says that it is there. One that was not heard of for a day is forgotten.';

REVOKE ALL ON provenance.view_budget, provenance.lending, provenance.fairness, provenance.replica FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.budget_of, provenance.questions_of, provenance.heartbeat FROM PUBLIC;
GRANT SELECT ON provenance.view_budget, provenance.lending, provenance.fairness, provenance.replica TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.budget_of, provenance.questions_of TO pgveil_admin;
