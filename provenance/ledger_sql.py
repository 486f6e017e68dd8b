"""What the ledger says to PostgreSQL."""

from __future__ import annotations

# 'table' sorts behind 'analyst', so that everybody takes the table's lock first: no deadlock. Views come after both.
LOCK = """
SELECT scope, amount, delta FROM provenance.balance
WHERE (scope = 'table' AND name = '') OR (scope = 'analyst' AND name = %s)
ORDER BY scope DESC FOR UPDATE"""

BALANCES = """
SELECT scope, amount, delta FROM provenance.balance
WHERE (scope = 'table' AND name = '') OR (scope = 'analyst' AND name = %s)"""

# A statement of its own: its snapshot is taken when the lock is held, so that it sees every earlier charge and change.
STATE = """
SELECT d.coin, d.epsilon, d.delta, d.allocation, d.expansion, d.conversion_delta, d.payment_delta, d.registry_version,
       (SELECT coalesce(sum(o.privilege), 0) FROM provenance.analyst o WHERE o.active)::bigint,
       a.name, a.privilege, a.epsilon_limit, a.settings, a.active,
       CASE WHEN d.period IS NULL THEN d.periods_earned ELSE provenance.periods() END,
       CASE WHEN d.period IS NOT NULL
           THEN to_char(provenance.next_period() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"') END,
       provenance.is_paused(a.name)
FROM provenance.deployment d LEFT JOIN provenance.analyst a ON a.name = %s"""

# What else bears on a charge, in one row: the anchored row of the journal, gaps that nobody accepted, what the analysts
# who may collude have learned (where there are groups), and what is lent to the analyst or by the analyst. What was
# lost with a part of the ledger, of analysts that are not known, any of the groups may have learned.
CIRCUMSTANCES = """
SELECT (SELECT encode(c.hash, 'hex') FROM provenance.charge c WHERE c.id = %(charge)s),
       EXISTS (SELECT FROM provenance.gap g WHERE g.accepted_at IS NULL),
       groups.amount, groups.delta,
       (SELECT jsonb_agg(jsonb_build_array(
                   g.id, g.grantor, g.epsilon::text, g.used::text,
                   NOT g.revoked AND g.until > clock_timestamp() AND a.active,
                   a.privilege, a.epsilon_limit::text, b.amount::text,
                   (SELECT coalesce(sum(o.used), 0) FROM provenance.grant_of_budget o WHERE o.grantor = a.name)::text,
                   (SELECT coalesce(sum(o.used), 0) FROM provenance.grant_of_budget o WHERE o.grantee = a.name)::text)
               ORDER BY g.until, g.id)
        FROM provenance.grant_of_budget g
        JOIN provenance.analyst a ON a.name = g.grantor
        JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = g.grantor
        WHERE g.grantor = %(analyst)s OR g.grantee = %(analyst)s)
FROM (SELECT) one LEFT JOIN LATERAL (
    SELECT sum(b.amount) + min(lost.amount) AS amount, sum(b.delta) + min(lost.delta) AS delta
    FROM provenance.analyst me
    JOIN provenance.analyst m ON m.coalition IS NOT DISTINCT FROM me.coalition
    JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = m.name
    CROSS JOIN (SELECT coalesce(sum(c.table_amount), 0) AS amount, coalesce(sum(c.delta), 0) AS delta
                FROM provenance.charge c WHERE c.mechanism = 'gap' AND c.analyst IS NULL) lost
    WHERE me.name = %(analyst)s AND EXISTS (SELECT FROM provenance.coalition)
    HAVING (SELECT count(DISTINCT coalesce(o.coalition, '')) FROM provenance.analyst o) > 1) groups ON true"""

RELATION = "SELECT data_version, label FROM provenance.relation WHERE id = %s AND active"

VERSIONS = "SELECT id, data_version FROM provenance.relation WHERE id = ANY(%s) AND active"

# The relations that have a limit of their own, with what no unit of them has lost more than.
LIMITED = """
SELECT r.id, r.label, r.epsilon_limit, provenance.spent_on(r.id) FROM provenance.relation r
WHERE r.id = ANY(%s) AND r.epsilon_limit IS NOT NULL"""

OPEN_VIEWS = "SELECT place, view, label, epsilon_limit, amount FROM provenance.open_views(%s)"

# As open_views, but nothing is made and nothing is locked: a view that is not there has lost nothing.
LOOK_AT_VIEWS = """
SELECT w.place, v.id, provenance.view_label(v.id), v.epsilon_limit, b.amount
FROM jsonb_array_elements(%s) WITH ORDINALITY w (part, place)
JOIN provenance.view v ON v.relation_id = (w.part ->> 0)::bigint AND v.measure = w.part ->> 2
    AND v.dimensions = ARRAY(SELECT DISTINCT d COLLATE "C" FROM jsonb_array_elements_text(w.part -> 1) d ORDER BY 1)
JOIN provenance.balance b ON b.scope = 'view' AND b.name = v.id::text
ORDER BY w.place"""

ANSWERED = """
SELECT FROM provenance.synopsis
WHERE analyst = %s AND relation_id = %s AND data_version = %s AND fingerprint = %s AND accuracy = %s"""

INSERT = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, delta, epsilon, bill, stage, table_amount,
                               views, view_amounts, view_tables, grants, grant_amounts,
                               regions, region_amounts, region_tables, counted, table_counted, beside)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
RETURNING id, encode(hash, 'hex'), at::text"""

# [[scope, name, relation id, data version, version], ...]: the layers as they stand. OFFSET: one by one, by the index.
LAYERS = """
SELECT l.scope, l.name, l.relation_id, l.data_version, l.version, l.bound
FROM jsonb_array_elements(%s) w (layer)
CROSS JOIN LATERAL (
    SELECT * FROM provenance.layer l WHERE l.scope = w.layer ->> 0 AND l.name = w.layer ->> 1
        AND l.relation_id = (w.layer ->> 2)::bigint AND l.data_version = (w.layer ->> 3)::bigint OFFSET 0) l"""

# The same, with the regions that changed after those versions; those of a layer that did not are not looked at.
CHANGES = """
SELECT l.scope, l.name, l.relation_id, l.data_version, l.version, l.bound, f.region, f.amount
FROM jsonb_array_elements(%s) w (layer)
CROSS JOIN LATERAL (
    SELECT * FROM provenance.layer l WHERE l.scope = w.layer ->> 0 AND l.name = w.layer ->> 1
        AND l.relation_id = (w.layer ->> 2)::bigint AND l.data_version = (w.layer ->> 3)::bigint OFFSET 0) l
LEFT JOIN LATERAL (
    SELECT f.region, f.amount FROM provenance.felt f
    WHERE f.layer = l.id AND f.version > (w.layer ->> 4)::bigint AND l.version > (w.layer ->> 4)::bigint OFFSET 0) f
    ON true"""

# What was ever reserved for the question that a receipt is for, and whether it is settled.
HELD = """
SELECT h.amount, h.delta, h.settled, h.table_amount, (
    SELECT jsonb_object_agg(d.id, d.amount) FROM (
        SELECT x.id, sum(x.amount)::text AS amount
        FROM provenance.charge m, unnest(m.grants, m.grant_amounts) x (id, amount)
        WHERE m.id = c.id OR m.question_of = c.id GROUP BY x.id) d), c.regions
FROM provenance.charge c CROSS JOIN LATERAL (
    SELECT sum(m.amount) AS amount, sum(m.delta) AS delta, bool_or(m.stage = 'settle') AS settled,
           sum(m.table_amount) AS table_amount
    FROM provenance.charge m WHERE m.id = c.id OR m.question_of = c.id) h
WHERE c.id = %s AND c.question_of IS NULL AND c.stage = 'reserve' AND c.analyst = %s AND c.relation_id = %s
  AND c.data_version = %s AND c.registry_version = %s AND c.fingerprint = %s"""

# The views of the question in the order of its first reservation, with what was reserved for each.
HELD_VIEWS = """
SELECT p.place, v.id, provenance.view_label(v.id), v.epsilon_limit, b.amount, h.amount, h.table_amount
FROM provenance.charge c CROSS JOIN unnest(c.views) WITH ORDINALITY p (view, place)
JOIN provenance.view v ON v.id = p.view
JOIN provenance.balance b ON b.scope = 'view' AND b.name = v.id::text
CROSS JOIN LATERAL (
    SELECT sum(x.amount) AS amount, sum(x.table_amount) AS table_amount FROM provenance.charge_view x
    WHERE x.view = v.id AND x.charge IN (SELECT m.id FROM provenance.charge m WHERE m.id = c.id OR m.question_of = c.id)
) h
WHERE c.id = %s ORDER BY p.place"""

FOLLOW = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, question_of, views, stage, amount, delta, epsilon, bill, table_amount,
                               view_amounts, view_tables, grants, grant_amounts,
                               regions, region_amounts, region_tables, counted, table_counted, beside)
SELECT c.analyst, c.relation, c.relation_id, c.data_version, c.registry_version, c.fingerprint, c.question,
       c.mechanism, c.coin, c.id, c.views, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, c.regions, %s, %s, %s, %s,
       c.beside
FROM provenance.charge c WHERE c.id = %s RETURNING id, encode(hash, 'hex'), at::text"""

# A settlement that says itself where it falls: parts of the region bear less than others from now on.
LEVELS = FOLLOW.replace("c.regions, %s, %s, %s, %s,\n", "%s, %s, %s, %s, %s,\n")

LOSSES = """
INSERT INTO provenance.charge_loss (charge, levels, level_of, groups, min_entropy)
VALUES (coalesce(%s, currval('provenance.charge_id_seq')), %s, %s, %s, %s) RETURNING charge, NULL, NULL"""
