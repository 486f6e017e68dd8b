-- Where a charge falls: parallel composition in the till. What counts against the limit of an analyst or of the
-- protected database is not the sum of all charges but the largest total over any one point of the data domain. The
-- proxies compute upper bounds of it (provenance/overlap.py); the books say what they were computed from.
--
-- A balance is the sum of its layers: one for each data version of each relation, since nothing is known of where a unit
-- lies in another table, or lay before the data changed. Charges of a view are all about the same rows: they add up.

ALTER TABLE provenance.charge
    ADD COLUMN regions        text[]    NOT NULL DEFAULT '{}',
    ADD COLUMN region_amounts numeric[] NOT NULL DEFAULT '{}',
    ADD COLUMN region_tables  numeric[] NOT NULL DEFAULT '{}',
    ADD COLUMN counted        numeric,
    ADD COLUMN table_counted  numeric,
    ADD CONSTRAINT a_region_has_two_amounts CHECK (cardinality(regions) = cardinality(region_amounts) AND cardinality(regions) = cardinality(region_tables)
        AND array_position(regions, NULL) IS NULL AND array_position(region_amounts, NULL) IS NULL AND array_position(region_tables, NULL) IS NULL),
    ADD CONSTRAINT a_region_loses_at_most_what_the_question_costs CHECK (CASE stage
        WHEN 'settle' THEN amount <= ALL (region_amounts) AND table_amount <= ALL (region_tables) AND 0 >= ALL (region_amounts) AND 0 >= ALL (region_tables)
        ELSE amount >= ALL (region_amounts) AND table_amount >= ALL (region_tables) AND 0 <= ALL (region_amounts) AND 0 <= ALL (region_tables) END),
    ADD CONSTRAINT stages_have_one_region CHECK (stage = 'charge' OR regions = '{}'
        OR (cardinality(regions) = 1 AND region_amounts[1] = amount AND region_tables[1] = table_amount)),
    ADD CONSTRAINT a_charge_counts_at_most_itself CHECK (counted > '-Infinity' AND table_counted > '-Infinity'
        AND (counted <= greatest(amount, 0)) AND (table_counted <= greatest(table_amount, 0))
        AND (amount <> 0 OR counted = 0) AND (table_amount <> 0 OR table_counted = 0));
COMMENT ON COLUMN provenance.charge.regions IS 'The parts of the data domain that it touches: a unit loses the sum over those that it lies in. {}: everywhere, in full.';
COMMENT ON COLUMN provenance.charge.region_amounts IS 'What the analyst learns about a unit in each of regions, in coin.';
COMMENT ON COLUMN provenance.charge.region_tables IS 'What the protected database loses on a unit in each of regions, in coin.';
COMMENT ON COLUMN provenance.charge.counted IS 'By how much it moves the analyst''s balance: less than amount where other regions have lost more already, below 0 where the bound became tighter. NULL: the amount.';
COMMENT ON COLUMN provenance.charge.table_counted IS 'As counted, for the balance of the protected database.';

CREATE TABLE provenance.layer (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope        text    NOT NULL CHECK (scope IN ('table', 'analyst')),
    name         text    NOT NULL,
    relation_id  bigint  NOT NULL REFERENCES provenance.relation (id),
    data_version bigint  NOT NULL,
    bound        numeric NOT NULL CHECK (bound >= 0 AND bound < 'Infinity'),
    version      bigint  NOT NULL DEFAULT 1,
    CONSTRAINT one_layer_for_each_version_of_the_data UNIQUE (scope, name, relation_id, data_version)
) WITH (fillfactor = 50);
COMMENT ON TABLE provenance.layer IS 'What a balance consists of: one row for each data version of each relation. Layers add up, and so do gaps.';
COMMENT ON COLUMN provenance.layer.id IS 'A number that is never used again.';
COMMENT ON COLUMN provenance.layer.scope IS 'What is counted: table or analyst.';
COMMENT ON COLUMN provenance.layer.relation_id IS 'The registration of the table.';
COMMENT ON COLUMN provenance.layer.data_version IS 'Of the relation, when it was measured.';
COMMENT ON COLUMN provenance.layer.name IS 'The analyst; empty for the protected database.';
COMMENT ON COLUMN provenance.layer.bound IS 'In coin: no point of the domain has lost more by the charges of this layer.';
COMMENT ON COLUMN provenance.layer.version IS 'Counts the charges: a bound is right for the version that it was computed for.';

CREATE TABLE provenance.felt (
    layer   bigint  NOT NULL REFERENCES provenance.layer (id) ON DELETE CASCADE,
    region  text    NOT NULL CHECK (octet_length(region) <= 2000),
    amount  numeric NOT NULL CHECK (amount >= 0 AND amount < 'Infinity'),
    version bigint  NOT NULL,
    PRIMARY KEY (layer, region)
) WITH (fillfactor = 70);
COMMENT ON TABLE provenance.felt IS 'What each region of a layer has lost by the charges on exactly this region. A running total, kept by the trigger of provenance.charge.';
COMMENT ON COLUMN provenance.felt.layer IS 'Whose.';
COMMENT ON COLUMN provenance.felt.region IS 'Extents by attribute, as provenance/region.py writes them; {}: everywhere.';
COMMENT ON COLUMN provenance.felt.amount IS 'In coin.';
COMMENT ON COLUMN provenance.felt.version IS 'Of the layer, when it last changed.';

INSERT INTO provenance.layer (scope, name, relation_id, data_version, bound)
SELECT s.scope, s.name, s.relation_id, s.data_version, s.amount FROM (
    SELECT 'analyst' AS scope, c.analyst AS name, c.relation_id, c.data_version, sum(c.amount) AS amount
    FROM provenance.charge c WHERE c.mechanism <> 'gap' GROUP BY c.analyst, c.relation_id, c.data_version
    UNION ALL
    SELECT 'table', '', c.relation_id, c.data_version, sum(c.table_amount)
    FROM provenance.charge c WHERE c.mechanism <> 'gap' GROUP BY c.relation_id, c.data_version) s;
INSERT INTO provenance.felt (layer, region, amount, version) SELECT l.id, '{}', l.bound, l.version FROM provenance.layer l;

-- A later stage falls where the first one fell. What is given back on a region lowers no bound by itself: other points
-- may have lost as much.
CREATE FUNCTION provenance.region_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM provenance.charge c WHERE c.id = NEW.question_of AND c.regions <> NEW.regions) THEN
        RAISE EXCEPTION 'charge % touches other regions', NEW.question_of USING ERRCODE = '23514',
            HINT = 'The stages of a question fall where its first reservation fell.';
    END IF;
    IF NEW.stage = 'settle' AND NEW.regions <> '{}' THEN
        NEW.counted := coalesce(NEW.counted, 0);
        NEW.table_counted := coalesce(NEW.table_counted, 0);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER region_rules BEFORE INSERT ON provenance.charge FOR EACH ROW
    WHEN (NEW.question_of IS NOT NULL OR NEW.stage = 'settle') EXECUTE FUNCTION provenance.region_rules();

-- One charge into one layer. No bound may be below what a single region bears: as much of the truth as can be seen here.
CREATE FUNCTION provenance.book(scope text, name text, relation_id bigint, data_version bigint, amount numeric, counted numeric, regions text[], amounts numeric[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    own provenance.layer;
    part record;
    weight numeric;
BEGIN
    IF amount = 0 THEN
        RETURN;
    END IF;
    UPDATE provenance.layer l SET bound = l.bound + book.counted, version = l.version + 1
        WHERE l.scope = book.scope AND l.name = book.name AND l.relation_id = book.relation_id AND l.data_version = book.data_version RETURNING l.* INTO own;
    IF NOT FOUND THEN
        INSERT INTO provenance.layer AS l (scope, name, relation_id, data_version, bound)
            VALUES (book.scope, book.name, book.relation_id, book.data_version, book.counted) RETURNING l.* INTO own;
    END IF;
    FOR part IN
        SELECT r.region, sum(r.amount) AS amount FROM unnest(book.regions, book.amounts) r (region, amount) GROUP BY r.region
        UNION ALL SELECT '{}', book.amount WHERE book.regions = '{}'
    LOOP
        UPDATE provenance.felt f SET amount = f.amount + part.amount, version = own.version
            WHERE f.layer = own.id AND f.region = part.region RETURNING f.amount INTO weight;
        IF NOT FOUND THEN
            INSERT INTO provenance.felt (layer, region, amount, version) VALUES (own.id, part.region, part.amount, own.version);
            weight := part.amount;
        END IF;
        IF weight > own.bound THEN
            RAISE EXCEPTION 'the charge counts less than region % has lost', part.region USING ERRCODE = '23514',
                DETAIL = format('The region has lost %s, and the layer would count %s.', weight, own.bound);
        END IF;
    END LOOP;
    IF book.counted < 0 AND EXISTS (SELECT FROM provenance.felt f WHERE f.layer = own.id AND f.amount > own.bound) THEN
        RAISE EXCEPTION 'the charge would leave less counted than a region has lost' USING ERRCODE = '23514',
            DETAIL = format('The layer would count %s.', own.bound);
    END IF;
END $$;
COMMENT ON FUNCTION provenance.book IS 'What a charge adds to one layer of the books; called by its trigger.';

CREATE OR REPLACE FUNCTION provenance.count_charge() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    own numeric := coalesce(NEW.counted, NEW.amount);
    all_ numeric := coalesce(NEW.table_counted, NEW.table_amount);
BEGIN
    UPDATE provenance.balance b SET amount = b.amount + all_, delta = b.delta + NEW.delta WHERE b.scope = 'table' AND b.name = '';
    UPDATE provenance.balance b SET amount = b.amount + own, delta = b.delta + NEW.delta WHERE b.scope = 'analyst' AND b.name = NEW.analyst;
    IF NOT FOUND AND NEW.analyst IS NOT NULL THEN
        RAISE EXCEPTION 'analyst "%" has no balance', NEW.analyst USING ERRCODE = 'XX001';
    END IF;
    IF NEW.mechanism = 'gap' THEN
        UPDATE provenance.balance b SET amount = b.amount + NEW.table_amount WHERE b.scope = 'view';
    ELSE
        PERFORM provenance.book('table', '', NEW.relation_id, NEW.data_version, NEW.table_amount, all_, NEW.regions, NEW.region_tables),
            provenance.book('analyst', NEW.analyst, NEW.relation_id, NEW.data_version, NEW.amount, own, NEW.regions, NEW.region_amounts);
    END IF;
    IF NEW.views <> '{}' THEN
        INSERT INTO provenance.charge_view (charge, view, amount, table_amount)
            SELECT NEW.id, p.view, p.amount, p.table_amount FROM unnest(NEW.views, NEW.view_amounts, NEW.view_tables) p (view, amount, table_amount) ORDER BY p.view;
    END IF;
    RETURN NULL;
END $$;

-- Rows that say nothing about regions keep the text that they had.
CREATE OR REPLACE FUNCTION provenance.charge_text(c provenance.charge) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT (jsonb_build_array(c.id, extract(epoch FROM c.at), c.analyst, c.relation, c.relation_id, c.data_version, c.registry_version, c.fingerprint,
        c.question, c.mechanism, c.coin, c.amount, c.delta, c.epsilon, c.bill, c.stage, c.question_of, c.table_amount,
        c.views, c.view_amounts, c.view_tables, c.grants, c.grant_amounts) || CASE
            WHEN c.regions = '{}' AND c.counted IS NULL AND c.table_counted IS NULL THEN '[]'
            ELSE jsonb_build_array(c.regions, c.region_amounts, c.region_tables, c.counted, c.table_counted) END)::text
$$;

-- After a restore the old bounds say nothing about where later charges fell: they come on top in full, and what was
-- given back on a region does not come off.
CREATE OR REPLACE FUNCTION provenance.on_top(c provenance.charge) RETURNS TABLE (amount numeric, table_amount numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT CASE WHEN c.regions = '{}' THEN c.amount ELSE greatest(c.amount, 0) END,
        CASE WHEN c.regions = '{}' THEN c.table_amount ELSE greatest(c.table_amount, 0) END
$$;

CREATE OR REPLACE FUNCTION provenance.verify_balances() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    WITH booked AS (
        SELECT s.scope, s.name, c.relation_id, c.data_version, s.counted, r.region, r.amount, r.place
        FROM provenance.charge c
        CROSS JOIN LATERAL (VALUES
            ('analyst', c.analyst, c.amount, coalesce(c.counted, c.amount), c.region_amounts),
            ('table', '', c.table_amount, coalesce(c.table_counted, c.table_amount), c.region_tables)) s (scope, name, amount, counted, amounts)
        CROSS JOIN LATERAL (
            SELECT u.region, u.amount, u.place FROM unnest(c.regions, s.amounts) WITH ORDINALITY u (region, amount, place)
            UNION ALL SELECT '{}', s.amount, 1 WHERE c.regions = '{}') r
        WHERE c.mechanism <> 'gap' AND s.amount <> 0)
    SELECT coalesce(
        (SELECT format('the balance of %s %s is not the sum of its charges', b.scope, b.name)
            FROM provenance.balance b
            LEFT JOIN (
                SELECT 'table' AS scope, '' AS name, sum(coalesce(c.table_counted, c.table_amount)) AS amount, sum(c.delta) AS delta FROM provenance.charge c
                UNION ALL SELECT 'analyst', c.analyst, sum(coalesce(c.counted, c.amount)), sum(c.delta) FROM provenance.charge c GROUP BY c.analyst
                UNION ALL SELECT 'view', v.view::text, sum(v.table_amount), 0 FROM provenance.charge_view v GROUP BY v.view) s
                ON (s.scope, s.name) = (b.scope, b.name)
            WHERE (b.amount, b.delta) IS DISTINCT FROM (coalesce(s.amount, 0) + CASE b.scope WHEN 'view'
                THEN (SELECT coalesce(sum(g.table_amount), 0) FROM provenance.charge g WHERE g.mechanism = 'gap') ELSE 0 END, coalesce(s.delta, 0)) LIMIT 1),
        (SELECT format('layer %s is not what its charges counted', l.id) FROM provenance.layer l
        FULL JOIN (SELECT scope, name, relation_id, data_version, sum(counted) AS bound FROM booked WHERE place = 1 GROUP BY 1, 2, 3, 4) b
            ON (b.scope, b.name, b.relation_id, b.data_version) = (l.scope, l.name, l.relation_id, l.data_version)
        WHERE coalesce(l.bound, 0) <> coalesce(b.bound, 0) LIMIT 1),
        (SELECT format('region %s of layer %s is not the sum of its charges', coalesce(f.region, b.region), f.layer)
        FROM provenance.layer l JOIN provenance.felt f ON f.layer = l.id
        FULL JOIN (SELECT scope, name, relation_id, data_version, region, sum(amount) AS amount FROM booked GROUP BY 1, 2, 3, 4, 5) b
            ON (b.scope, b.name, b.relation_id, b.data_version, b.region) = (l.scope, l.name, l.relation_id, l.data_version, f.region)
        WHERE coalesce(f.amount, 0) <> coalesce(b.amount, 0) LIMIT 1))
$$;

-- The reports agree with the till. Nobody has learned more about a view, at any point, than about everything.
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
    least(provenance.limit_of(p.analyst), coalesce(v.epsilon_limit, d.epsilon)) AS "limit" OFFSET 0) s;

CREATE OR REPLACE VIEW provenance.matrix AS
SELECT m.analyst, m.relation, m.questions, provenance.epsilon_of(d.coin, m.charged, d.conversion_delta) AS spent, d.coin, m.charged, m.delta, m.view
FROM (
    SELECT a.name AS analyst, r.label AS relation, count(c.id) FILTER (WHERE c.question_of IS NULL) AS questions,
        coalesce(sum(coalesce(c.counted, c.amount)), 0) AS charged, coalesce(sum(c.delta), 0) AS delta, 'all' AS view
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

CREATE OR REPLACE VIEW provenance.history AS
SELECT c.id, c.at, c.analyst, c.relation, c.question, c.mechanism, coalesce(more.epsilon, c.epsilon) AS epsilon, c.delta + coalesce(more.delta, 0) AS delta,
    c.coin, c.amount + coalesce(more.amount, 0) AS charged, c.data_version, c.registry_version, c.bill || coalesce(more.bill, '{}') AS bill,
    l.min_entropy, 1 + more.reservations AS stages, c.stage = 'charge' OR coalesce(more.settled, false) AS settled,
    ARRAY(SELECT provenance.view_label(v.id) FROM unnest(c.views) WITH ORDINALITY v (id, place) ORDER BY v.place) AS views,
    c.table_amount + coalesce(more.table_amount, 0) AS table_charged, c.regions,
    coalesce(c.counted, c.amount) + coalesce(more.counted, 0) AS counted,
    coalesce(c.table_counted, c.table_amount) + coalesce(more.table_counted, 0) AS table_counted
FROM provenance.charge c
CROSS JOIN LATERAL (
    SELECT sum(m.amount) AS amount, sum(m.delta) AS delta, sum(m.table_amount) AS table_amount,
        sum(coalesce(m.counted, m.amount)) AS counted, sum(coalesce(m.table_counted, m.table_amount)) AS table_counted,
        count(*) FILTER (WHERE m.stage = 'reserve') AS reservations, bool_or(m.stage = 'settle') AS settled,
        (array_agg(m.epsilon ORDER BY m.id DESC))[1] AS epsilon, (array_agg(m.bill) FILTER (WHERE m.stage = 'settle'))[1] AS bill
    FROM provenance.charge m WHERE m.question_of = c.id AND c.stage = 'reserve') more
LEFT JOIN provenance.charge_loss l ON l.charge = c.id
WHERE c.question_of IS NULL;
COMMENT ON VIEW provenance.history IS 'Every question with its views and what it cost in the end, the analyst (charged) and the protected database (table_charged), and how far that moved their balances (counted, table_counted: less where other regions have lost more); one that is not settled costs all that was reserved for it.';

REVOKE ALL ON provenance.layer, provenance.felt FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.region_rules, provenance.book FROM PUBLIC;
GRANT SELECT ON provenance.layer, provenance.felt TO pgveil_admin;
