-- What each view has lost. A row of the journal names its views and what each of them loses; triggers move the balances,
-- so that the row (analyst), column (view) and table limits are sums that nobody has to remember to keep.

ALTER TABLE provenance.charge
    ADD COLUMN table_amount numeric,
    ADD COLUMN views        bigint[]  NOT NULL DEFAULT '{}',
    ADD COLUMN view_amounts numeric[] NOT NULL DEFAULT '{}',
    ADD COLUMN view_tables  numeric[] NOT NULL DEFAULT '{}';
ALTER TABLE provenance.charge DISABLE TRIGGER append_only;
UPDATE provenance.charge SET table_amount = amount;
ALTER TABLE provenance.charge ENABLE TRIGGER append_only;
ALTER TABLE provenance.charge
    ALTER COLUMN table_amount SET NOT NULL,
    ADD CONSTRAINT the_table_loses_at_most_what_the_analyst_learns CHECK (CASE stage
        WHEN 'settle' THEN table_amount BETWEEN amount AND 0
        -- What was lost with a part of the ledger may be known of the table and not of the analysts.
        ELSE table_amount >= 0 AND table_amount < 'Infinity' AND (table_amount <= amount OR mechanism = 'gap') END),
    ADD CONSTRAINT a_view_has_two_amounts CHECK (cardinality(views) = cardinality(view_amounts) AND cardinality(views) = cardinality(view_tables)
        AND array_position(views, NULL) IS NULL AND array_position(view_amounts, NULL) IS NULL AND array_position(view_tables, NULL) IS NULL),
    ADD CONSTRAINT a_view_loses_at_most_what_the_question_costs CHECK (CASE stage
        WHEN 'settle' THEN amount <= ALL (view_amounts) AND table_amount <= ALL (view_tables) AND 0 >= ALL (view_amounts) AND 0 >= ALL (view_tables)
        ELSE amount >= ALL (view_amounts) AND table_amount >= ALL (view_tables) AND 0 <= ALL (view_amounts) AND 0 <= ALL (view_tables) END);
COMMENT ON COLUMN provenance.charge.table_amount IS 'What the protected database itself loses, in coin: less than amount where the analyst learned from a synopsis that others paid for.';
COMMENT ON COLUMN provenance.charge.views IS 'The views that the question was answered on; charge_view has a row for each.';
COMMENT ON COLUMN provenance.charge.view_amounts IS 'What the analyst learned about each of views, in coin.';
COMMENT ON COLUMN provenance.charge.view_tables IS 'What the hidden global synopsis of each of views cost, in coin.';

CREATE TABLE provenance.charge_view (
    charge       bigint  NOT NULL REFERENCES provenance.charge (id),
    view         bigint  NOT NULL REFERENCES provenance.view (id),
    amount       numeric NOT NULL,
    table_amount numeric NOT NULL,
    PRIMARY KEY (charge, view)
);
CREATE INDEX charge_view_by_view ON provenance.charge_view (view);
COMMENT ON TABLE provenance.charge_view IS 'The views of each row of the journal, written by its trigger: rows are added, never changed.';
COMMENT ON COLUMN provenance.charge_view.amount IS 'What the analyst learned about the view, in coin; a settlement''s is what it gives back, with a minus.';
COMMENT ON COLUMN provenance.charge_view.table_amount IS 'What the view''s hidden global synopsis cost, in coin.';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON provenance.charge_view FOR EACH STATEMENT EXECUTE FUNCTION provenance.append_only();

CREATE TABLE provenance.spending (
    analyst text    NOT NULL REFERENCES provenance.analyst (name),
    view    bigint  NOT NULL REFERENCES provenance.view (id),
    amount  numeric NOT NULL CHECK (amount >= 0 AND amount < 'Infinity'),
    PRIMARY KEY (analyst, view)
);
CREATE INDEX spending_by_view ON provenance.spending (view);
COMMENT ON TABLE provenance.spending IS 'The provenance table: what each analyst has learned about each view, in coin. A running total.';
COMMENT ON COLUMN provenance.spending.amount IS 'In coin.';
COMMENT ON TABLE provenance.balance IS 'What the charges add up to: for the protected database (scope table, name empty), each analyst, and each view (by id).';

COMMENT ON TABLE provenance.view IS 'Histograms: relation, dimensions, measure. Registered by an administrator, or made by the first question on it.';
COMMENT ON COLUMN provenance.view.dimensions IS 'The columns that make its cells, in alphabetical order.';
COMMENT ON COLUMN provenance.view.measure IS 'What is counted or added up in each cell, as the question writes it.';
COMMENT ON COLUMN provenance.view.epsilon_limit IS 'The most that all analysts together may learn from it; NULL: as much as from the whole database (water-filling).';
ALTER TABLE provenance.view
    ADD COLUMN registered boolean NOT NULL DEFAULT true,
    ADD CONSTRAINT a_measure_is_not_empty CHECK (measure <> '');
COMMENT ON COLUMN provenance.view.registered IS 'Other questions may be derived from it: count(*) or sum(column) over dimensions with declared domains. False: made by a question.';
CREATE TRIGGER move_registry AFTER INSERT ON provenance.view FOR EACH ROW WHEN (NEW.registered) EXECUTE FUNCTION provenance.move_registry();
CREATE TRIGGER move_registry_on_removal AFTER DELETE ON provenance.view FOR EACH ROW WHEN (OLD.registered) EXECUTE FUNCTION provenance.move_registry();
CREATE TRIGGER move_registry_on_change AFTER UPDATE ON provenance.view FOR EACH ROW
    WHEN ((OLD.registered, OLD.dimensions, OLD.measure) IS DISTINCT FROM (NEW.registered, NEW.dimensions, NEW.measure)) EXECUTE FUNCTION provenance.move_registry();

CREATE FUNCTION provenance.view_label(view_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT v.relation || CASE WHEN v.dimensions = '{}' THEN '' ELSE ' (' || array_to_string(v.dimensions, ', ') || ')' END || ': ' || v.measure
    FROM provenance.view v WHERE v.id = view_id
$$;
COMMENT ON FUNCTION provenance.view_label IS 'How reports and refusals name a view: patient (age, sex): count(*).';

CREATE OR REPLACE FUNCTION provenance.view_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    NEW.relation_id := CASE WHEN TG_OP = 'UPDATE' AND NEW.relation = OLD.relation THEN OLD.relation_id ELSE provenance.relation_id(NEW.relation) END;
    NEW.relation := (SELECT r.label FROM provenance.relation r WHERE r.id = NEW.relation_id);
    -- One spelling for each view, so that an administrator's limit is found by the question that it is meant for.
    NEW.dimensions := ARRAY(SELECT DISTINCT d COLLATE "C" FROM unnest(NEW.dimensions) d ORDER BY 1);
    IF array_position(NEW.dimensions, NULL) IS NOT NULL OR '' = ANY (NEW.dimensions) THEN
        RAISE EXCEPTION 'a dimension of a view is the name of a column' USING ERRCODE = '23514';
    END IF;
    IF NEW.epsilon_limit > (SELECT d.epsilon FROM provenance.deployment d) AND (TG_OP = 'INSERT' OR NEW.epsilon_limit IS DISTINCT FROM OLD.epsilon_limit) THEN
        RAISE EXCEPTION 'epsilon_limit % of the view is above the limit of the protected database', NEW.epsilon_limit USING ERRCODE = '23514',
            HINT = 'Give at most deployment.epsilon, or NULL.';
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.id, NEW.relation_id, NEW.dimensions, NEW.measure) IS DISTINCT FROM (OLD.id, OLD.relation_id, OLD.dimensions, OLD.measure)
        AND EXISTS (SELECT FROM provenance.charge_view c WHERE c.view = OLD.id) THEN
        RAISE EXCEPTION 'view % cannot change: something was charged on it', OLD.id USING ERRCODE = '55000',
            HINT = 'Its epsilon_limit may change; another histogram is another view.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_hold BEFORE INSERT OR UPDATE OR DELETE ON provenance.view FOR EACH STATEMENT EXECUTE FUNCTION provenance.hold_the_till();

CREATE FUNCTION provenance.view_follows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM provenance.balance b WHERE b.scope = 'view' AND b.name = OLD.id::text;
    ELSE
        INSERT INTO provenance.balance (scope, name) VALUES ('view', NEW.id::text) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER view_follows AFTER INSERT OR DELETE ON provenance.view FOR EACH ROW EXECUTE FUNCTION provenance.view_follows();
INSERT INTO provenance.balance (scope, name) SELECT 'view', v.id::text FROM provenance.view v ON CONFLICT DO NOTHING;
UPDATE provenance.view SET dimensions = dimensions;

-- The till's lock is held by whoever calls this. A statement of a volatile function has a snapshot of its own, so that
-- what it reads is everything that was committed before the lock was taken.
CREATE FUNCTION provenance.open_views(wanted jsonb) RETURNS TABLE (place integer, view bigint, label text, epsilon_limit numeric, amount numeric)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_column
DECLARE
    one record;
    ids bigint[] := '{}';
BEGIN
    FOR one IN
        SELECT (w.part ->> 0)::bigint AS relation, ARRAY(SELECT DISTINCT d COLLATE "C" FROM jsonb_array_elements_text(w.part -> 1) d ORDER BY 1) AS dimensions,
            w.part ->> 2 AS measure, NULL::bigint AS id
        FROM jsonb_array_elements(wanted) WITH ORDINALITY w (part, place) ORDER BY w.place
    LOOP
        SELECT v.id INTO one.id FROM provenance.view v
            WHERE v.relation_id = one.relation AND v.dimensions = one.dimensions AND v.measure = one.measure;
        IF one.id IS NULL THEN
            -- None for a relation that is not there any more: the caller finds out by the versions.
            INSERT INTO provenance.view (relation, dimensions, measure, registered)
                SELECT r.label, one.dimensions, one.measure, false FROM provenance.relation r WHERE r.id = one.relation AND r.active RETURNING id INTO one.id;
        END IF;
        ids := ids || one.id;
    END LOOP;
    PERFORM FROM provenance.balance b WHERE b.scope = 'view' AND b.name = ANY (ids::text[]) ORDER BY b.name::bigint FOR UPDATE;
    RETURN QUERY SELECT i.place::integer, v.id, provenance.view_label(v.id), v.epsilon_limit, b.amount
        FROM unnest(ids) WITH ORDINALITY i (id, place)
        JOIN provenance.view v ON v.id = i.id
        JOIN provenance.balance b ON b.scope = 'view' AND b.name = i.id::text
        ORDER BY i.place;
END $$;
COMMENT ON FUNCTION provenance.open_views IS 'The views of a charge, made where they are new, with their balances locked: [[relation id, [dimension, ...], measure], ...].';

CREATE FUNCTION provenance.part_rules() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    wrong bigint;
BEGIN
    NEW.table_amount := coalesce(NEW.table_amount, NEW.amount);
    IF NEW.views = '{}' THEN
        RETURN NEW;
    END IF;
    SELECT p.view INTO wrong FROM unnest(NEW.views) WITH ORDINALITY p (view, place)
        LEFT JOIN provenance.view v ON v.id = p.view
        WHERE v.relation_id IS DISTINCT FROM NEW.relation_id OR array_position(NEW.views, p.view) <> p.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'view % is not one of the relation, or stands twice', wrong USING ERRCODE = '23514';
    END IF;
    IF NEW.stage = 'settle' THEN
        SELECT p.view INTO wrong FROM unnest(NEW.views, NEW.view_amounts, NEW.view_tables) p (view, amount, table_amount)
            WHERE EXISTS (
                SELECT FROM provenance.charge_view h WHERE h.view = p.view
                    AND h.charge IN (SELECT c.id FROM provenance.charge c WHERE c.id = NEW.question_of OR c.question_of = NEW.question_of)
                HAVING coalesce(sum(h.amount), 0) + p.amount < 0 OR coalesce(sum(h.table_amount), 0) + p.table_amount < 0) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'more would be given back to view % than was reserved for charge %', wrong, NEW.question_of USING ERRCODE = '23514';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER part_rules BEFORE INSERT ON provenance.charge FOR EACH ROW EXECUTE FUNCTION provenance.part_rules();

CREATE OR REPLACE FUNCTION provenance.stage_rules() RETURNS trigger
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
    SELECT sum(c.amount) AS amount, sum(c.delta) AS delta, sum(c.table_amount) AS table_amount, bool_or(c.stage = 'settle') AS settled INTO held
        FROM provenance.charge c WHERE c.id = first.id OR c.question_of = first.id;
    IF held.settled THEN
        RAISE EXCEPTION 'the question of charge % is settled', NEW.question_of USING ERRCODE = '55000',
            HINT = 'What was given back is given back once; a new question is a new charge.';
    END IF;
    IF held.amount + NEW.amount < 0 OR held.delta + NEW.delta < 0 OR held.table_amount + coalesce(NEW.table_amount, NEW.amount) < 0 THEN
        RAISE EXCEPTION 'more would be given back than was reserved for charge %', NEW.question_of USING ERRCODE = '23514',
            DETAIL = format('Reserved: %s, of the table %s, delta %s.', held.amount, held.table_amount, held.delta);
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION provenance.count_charge() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.balance b SET amount = b.amount + NEW.table_amount, delta = b.delta + NEW.delta WHERE b.scope = 'table' AND b.name = '';
    UPDATE provenance.balance b SET amount = b.amount + NEW.amount, delta = b.delta + NEW.delta WHERE b.scope = 'analyst' AND b.name = NEW.analyst;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'analyst "%" has no balance', NEW.analyst USING ERRCODE = 'XX001';
    END IF;
    INSERT INTO provenance.charge_view (charge, view, amount, table_amount)
        SELECT NEW.id, p.view, p.amount, p.table_amount FROM unnest(NEW.views, NEW.view_amounts, NEW.view_tables) p (view, amount, table_amount) ORDER BY p.view;
    RETURN NULL;
END $$;

CREATE FUNCTION provenance.count_part() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    who text := (SELECT c.analyst FROM provenance.charge c, unnest(c.views, c.view_amounts, c.view_tables) p (view, amount, table_amount)
        WHERE c.id = NEW.charge AND (p.view, p.amount, p.table_amount) = (NEW.view, NEW.amount, NEW.table_amount));
BEGIN
    IF who IS NULL THEN
        RAISE EXCEPTION 'charge % says nothing of the kind about view %', NEW.charge, NEW.view USING ERRCODE = '23514',
            HINT = 'These rows are written by the trigger of provenance.charge.';
    END IF;
    UPDATE provenance.balance b SET amount = b.amount + NEW.table_amount WHERE b.scope = 'view' AND b.name = NEW.view::text;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'view % has no balance', NEW.view USING ERRCODE = 'XX001';
    END IF;
    UPDATE provenance.spending s SET amount = s.amount + NEW.amount WHERE s.analyst = who AND s.view = NEW.view;
    IF NOT FOUND THEN
        INSERT INTO provenance.spending (analyst, view, amount) VALUES (who, NEW.view, NEW.amount);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER count_part AFTER INSERT ON provenance.charge_view FOR EACH ROW EXECUTE FUNCTION provenance.count_part();

REVOKE ALL ON provenance.charge_view, provenance.spending FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.view_label, provenance.view_follows, provenance.open_views, provenance.part_rules, provenance.count_part FROM PUBLIC;
GRANT SELECT ON provenance.charge_view, provenance.spending TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.view_label TO pgveil_admin;
