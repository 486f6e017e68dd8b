-- The journal as a hash chain, and what happens when a part of it is gone. Every proxy keeps the last link that it saw
-- in a file of its own (the anchor); a ledger in which that link is missing was restored from an older copy.

ALTER TABLE provenance.charge ADD COLUMN hash bytea;
COMMENT ON COLUMN provenance.charge.hash IS 'SHA-256 of the hash of the row before and of charge_text of this one.';

CREATE TABLE provenance.chain (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    charge    bigint NOT NULL DEFAULT 0,
    hash      bytea  NOT NULL DEFAULT sha256('') CHECK (length(hash) = 32)
);
COMMENT ON TABLE provenance.chain IS 'One row: the last link of the journal. It moves under the till''s lock.';
COMMENT ON COLUMN provenance.chain.charge IS 'The last row of the journal; 0: there is none.';
COMMENT ON COLUMN provenance.chain.hash IS 'Its hash; of an empty journal, SHA-256 of nothing.';
INSERT INTO provenance.chain DEFAULT VALUES;

-- Written out by name, so that the text stays the same when columns are added, and whatever the session's settings are.
CREATE FUNCTION provenance.charge_text(c provenance.charge) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT jsonb_build_array(c.id, extract(epoch FROM c.at), c.analyst, c.relation, c.relation_id, c.data_version, c.registry_version, c.fingerprint,
        c.question, c.mechanism, c.coin, c.amount, c.delta, c.epsilon, c.bill, c.stage, c.question_of, c.table_amount,
        c.views, c.view_amounts, c.view_tables, c.grants, c.grant_amounts)::text
$$;
COMMENT ON FUNCTION provenance.charge_text IS 'A row of the journal as one text: what its hash is taken of.';

CREATE FUNCTION provenance.link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    head provenance.chain;
BEGIN
    PERFORM FROM provenance.balance WHERE scope = 'table' AND name = '' FOR UPDATE;
    SELECT * INTO head FROM provenance.chain FOR UPDATE;
    IF NEW.id <= head.charge THEN
        NEW.id := nextval('provenance.charge_id_seq');  -- drawn before somebody else, who had the lock first
    END IF;
    IF NEW.id <= head.charge THEN
        RAISE EXCEPTION 'the journal goes on after charge %', head.charge USING ERRCODE = 'XX001',
            HINT = 'The sequence provenance.charge_id_seq was set back.';
    END IF;
    NEW.hash := sha256(head.hash || convert_to(provenance.charge_text(NEW), 'UTF8'));
    UPDATE provenance.chain SET charge = NEW.id, hash = NEW.hash;
    RETURN NEW;
END $$;
-- The last of the triggers before the row, so that it sees the row as it will be.
CREATE TRIGGER z_link BEFORE INSERT ON provenance.charge FOR EACH ROW EXECUTE FUNCTION provenance.link();

ALTER TABLE provenance.charge DISABLE TRIGGER append_only;
DO $$
DECLARE
    old provenance.charge;
    last bytea := (SELECT c.hash FROM provenance.chain c);
BEGIN
    FOR old IN SELECT * FROM provenance.charge ORDER BY id LOOP
        last := sha256(last || convert_to(provenance.charge_text(old), 'UTF8'));
        UPDATE provenance.charge SET hash = last WHERE id = old.id;
        UPDATE provenance.chain SET charge = old.id, hash = last;
    END LOOP;
END $$;
ALTER TABLE provenance.charge ENABLE TRIGGER append_only;
ALTER TABLE provenance.charge ALTER COLUMN hash SET NOT NULL;

CREATE FUNCTION provenance.verify_balances() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT format('the balance of %s %s is not the sum of its charges', b.scope, b.name)
        FROM provenance.balance b
        LEFT JOIN (
            SELECT 'table' AS scope, '' AS name, sum(c.table_amount) AS amount, sum(c.delta) AS delta FROM provenance.charge c
            UNION ALL SELECT 'analyst', c.analyst, sum(c.amount), sum(c.delta) FROM provenance.charge c GROUP BY c.analyst
            UNION ALL SELECT 'view', v.view::text, sum(v.table_amount), 0 FROM provenance.charge_view v GROUP BY v.view) s
            ON (s.scope, s.name) = (b.scope, b.name)
        WHERE (b.amount, b.delta) IS DISTINCT FROM (coalesce(s.amount, 0) + CASE b.scope WHEN 'view'
            THEN (SELECT coalesce(sum(g.table_amount), 0) FROM provenance.charge g WHERE g.mechanism = 'gap') ELSE 0 END, coalesce(s.delta, 0)) LIMIT 1
$$;
COMMENT ON FUNCTION provenance.verify_balances IS 'What is wrong with the running totals, by the journal; NULL: nothing.';

CREATE FUNCTION provenance.verify_chain() RETURNS TABLE (charges bigint, broken bigint, reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
DECLARE
    row_ provenance.charge;
    last bytea := sha256('');
    last_id bigint := 0;
    head provenance.chain;
BEGIN
    charges := 0;
    FOR row_ IN SELECT * FROM provenance.charge ORDER BY id LOOP
        last := sha256(last || convert_to(provenance.charge_text(row_), 'UTF8'));
        IF last <> row_.hash THEN
            broken := row_.id;
            reason := format('charge %s is not what its hash says, or a row before it is missing', row_.id);
            RETURN NEXT;
            RETURN;
        END IF;
        charges := charges + 1;
        last_id := row_.id;
    END LOOP;
    SELECT * INTO head FROM provenance.chain;
    IF (head.charge, head.hash) IS DISTINCT FROM (last_id, last) THEN
        broken := head.charge;
        reason := format('the last charge was %s, and it is missing', head.charge);
        RETURN NEXT;
        RETURN;
    END IF;
    reason := provenance.verify_balances();
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION provenance.verify_chain IS 'Reads the whole journal: how many rows are right, the first one that is not (NULL: all are), and what is wrong.';

-- Gaps.
ALTER TABLE provenance.charge
    ALTER COLUMN analyst DROP NOT NULL,
    ALTER COLUMN relation_id DROP NOT NULL,
    ADD CONSTRAINT only_a_gap_is_of_nobody CHECK (mechanism = 'gap' OR (analyst IS NOT NULL AND relation_id IS NOT NULL));
COMMENT ON COLUMN provenance.charge.analyst IS 'Who asked; NULL: what was lost with a part of the ledger, of analysts that are not known.';
CREATE INDEX charge_of_gap ON provenance.charge (id) WHERE mechanism = 'gap';

CREATE TABLE provenance.gap (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge      bigint NOT NULL,
    hash        bytea  NOT NULL CHECK (length(hash) = 32),
    at          timestamptz NOT NULL,
    coin        text   NOT NULL CHECK (coin IN ('zcdp', 'pure')),
    totals      jsonb  NOT NULL CHECK (jsonb_typeof(totals -> 'analysts') = 'object' AND jsonb_typeof(totals -> 'table') = 'array'),
    replica     text   NOT NULL,
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    accepted_at timestamptz,
    UNIQUE (charge, hash)
);
COMMENT ON TABLE provenance.gap IS 'Charges that a proxy has seen and that are not in this ledger: it was restored from an older copy. Until each is accepted, nothing is answered that costs.';
COMMENT ON COLUMN provenance.gap.charge IS 'The last charge that the proxy had seen.';
COMMENT ON COLUMN provenance.gap.hash IS 'Its hash.';
COMMENT ON COLUMN provenance.gap.at IS 'When it was made.';
COMMENT ON COLUMN provenance.gap.totals IS 'What had been spent with it, in coin and delta: {"table": ["1.5", "0"], "analysts": {"alice": ["1.5", "0"]}}.';
COMMENT ON COLUMN provenance.gap.accepted_at IS 'When accept_gap booked it as spent.';

CREATE FUNCTION provenance.report_gap(charge bigint, hash bytea, at timestamptz, coin text, totals jsonb, replica text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    INSERT INTO provenance.gap (charge, hash, at, coin, totals, replica) VALUES (charge, hash, at, coin, totals, replica)
        ON CONFLICT ON CONSTRAINT gap_charge_hash_key DO NOTHING;
    RETURN (SELECT g.accepted_at IS NOT NULL FROM provenance.gap g WHERE g.charge = report_gap.charge AND g.hash = report_gap.hash);
END $$;
COMMENT ON FUNCTION provenance.report_gap IS 'A proxy says which charge is missing; tells whether an administrator has accepted that.';

CREATE FUNCTION provenance.on_top(c provenance.charge) RETURNS TABLE (amount numeric, table_amount numeric)
LANGUAGE sql STABLE SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT c.amount, c.table_amount
$$;
COMMENT ON FUNCTION provenance.on_top IS 'What a row that was made after the loss of others adds to what they had counted.';

CREATE FUNCTION provenance.accept_gap(gap_id bigint) RETURNS TABLE (analyst text, amount numeric, delta numeric)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_column
DECLARE
    missing provenance.gap;
    d provenance.deployment;
    lost record;
    table_left numeric;
    delta_left numeric;
    known numeric;
BEGIN
    PERFORM FROM provenance.balance b WHERE b.scope = 'table' FOR UPDATE;
    SELECT * INTO missing FROM provenance.gap g WHERE g.id = gap_id FOR UPDATE;
    SELECT * INTO d FROM provenance.deployment;
    IF missing.id IS NULL THEN
        RAISE EXCEPTION 'there is no gap %', gap_id USING ERRCODE = '42704', HINT = 'SELECT * FROM provenance.gap.';
    ELSIF missing.accepted_at IS NOT NULL THEN
        RAISE EXCEPTION 'gap % was accepted at %', gap_id, missing.accepted_at USING ERRCODE = '55000';
    ELSIF missing.coin <> d.coin THEN
        RAISE EXCEPTION 'what is missing was counted in %', missing.coin USING ERRCODE = '55000',
            HINT = format('UPDATE provenance.deployment SET coin = %L, while nothing is charged.', missing.coin);
    END IF;
    -- Rows that are later than the missing one were made after the ledger was restored: they come on top.
    SELECT (missing.totals -> 'table' ->> 0)::numeric - b.amount + coalesce(sum(n.table_amount), 0),
           (missing.totals -> 'table' ->> 1)::numeric - b.delta + coalesce(sum(c.delta), 0) INTO table_left, delta_left
        FROM provenance.balance b LEFT JOIN provenance.charge c ON c.at > missing.at AND c.mechanism <> 'gap' LEFT JOIN LATERAL provenance.on_top(c) n ON true
        WHERE b.scope = 'table' GROUP BY b.amount, b.delta;
    table_left := greatest(table_left, 0);
    delta_left := greatest(delta_left, 0);
    FOR lost IN
        SELECT t.name, greatest(0, (t.total ->> 0)::numeric - coalesce(b.amount, 0) + n.amount) AS amount, greatest(0, (t.total ->> 1)::numeric - coalesce(b.delta, 0) + n.delta) AS delta
        FROM jsonb_each(missing.totals -> 'analysts') t (name, total)
        LEFT JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = t.name
        CROSS JOIN LATERAL (SELECT coalesce(sum(o.amount), 0) AS amount, coalesce(sum(c.delta), 0) AS delta
            FROM provenance.charge c CROSS JOIN LATERAL provenance.on_top(c) o WHERE c.analyst = t.name AND c.at > missing.at AND c.mechanism <> 'gap') n
        ORDER BY t.name
    LOOP
        CONTINUE WHEN lost.amount = 0 AND lost.delta = 0;
        -- Somebody who came after the copy was made, and whose account went with the rest.
        IF NOT EXISTS (SELECT FROM provenance.analyst a WHERE a.name = lost.name) THEN
            INSERT INTO provenance.analyst (name, active) VALUES (lost.name, false);
        END IF;
        known := least(table_left, lost.amount);
        PERFORM provenance.book_gap(missing, lost.name, lost.amount, lost.delta, known);
        table_left := table_left - known;
        delta_left := delta_left - lost.delta;
        analyst := lost.name;
        amount := lost.amount;
        delta := lost.delta;
        RETURN NEXT;
    END LOOP;
    IF table_left > 0 OR delta_left > 0 THEN
        PERFORM provenance.book_gap(missing, NULL, 0, greatest(delta_left, 0), table_left);
        analyst := NULL;
        amount := table_left;
        delta := greatest(delta_left, 0);
        RETURN NEXT;
    END IF;
    -- The data version went back too, and synopses with it: nothing may be refined against other data.
    PERFORM provenance.refresh(r.label) FROM provenance.relation r WHERE r.active AND r.kind = 'protected';
    -- A number that was used before the loss must not come again for other data.
    UPDATE provenance.relation r SET data_version = greatest(r.data_version, extract(epoch FROM clock_timestamp())::bigint) WHERE r.active AND r.kind = 'protected';
    UPDATE provenance.gap g SET accepted_at = clock_timestamp() WHERE g.id = gap_id;
END $$;
COMMENT ON FUNCTION provenance.accept_gap IS 'Books what is missing as spent, by each analyst and by the protected database, and lets questions be answered again. Stored answers are dropped.';

CREATE FUNCTION provenance.book_gap(missing provenance.gap, who text, amount numeric, delta numeric, table_amount numeric) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    INSERT INTO provenance.charge (analyst, relation, data_version, registry_version, fingerprint, question, mechanism, coin, amount, delta, epsilon, table_amount, bill)
    SELECT who, '', 0, d.registry_version, '', format('charges up to %s, which the ledger has lost', missing.charge), 'gap', d.coin, book_gap.amount, book_gap.delta,
        provenance.epsilon_of(d.coin, book_gap.amount, d.conversion_delta), book_gap.table_amount, jsonb_build_object('gap', missing.id)
    FROM provenance.deployment d
$$;
COMMENT ON FUNCTION provenance.book_gap IS 'One row of the journal for what was lost; see accept_gap.';

-- What was lost may have been about any view, so every view counts all of it: those that are, and those to come.
CREATE OR REPLACE FUNCTION provenance.view_follows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM provenance.balance b WHERE b.scope = 'view' AND b.name = OLD.id::text;
    ELSE
        INSERT INTO provenance.balance (scope, name, amount)
            SELECT 'view', NEW.id::text, coalesce(sum(c.table_amount), 0) FROM provenance.charge c WHERE c.mechanism = 'gap' ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION provenance.count_charge() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    UPDATE provenance.balance b SET amount = b.amount + NEW.table_amount, delta = b.delta + NEW.delta WHERE b.scope = 'table' AND b.name = '';
    UPDATE provenance.balance b SET amount = b.amount + NEW.amount, delta = b.delta + NEW.delta WHERE b.scope = 'analyst' AND b.name = NEW.analyst;
    IF NOT FOUND AND NEW.analyst IS NOT NULL THEN
        RAISE EXCEPTION 'analyst "%" has no balance', NEW.analyst USING ERRCODE = 'XX001';
    END IF;
    IF NEW.mechanism = 'gap' THEN
        UPDATE provenance.balance b SET amount = b.amount + NEW.table_amount WHERE b.scope = 'view';
    END IF;
    IF NEW.views <> '{}' THEN
        INSERT INTO provenance.charge_view (charge, view, amount, table_amount)
            SELECT NEW.id, p.view, p.amount, p.table_amount FROM unnest(NEW.views, NEW.view_amounts, NEW.view_tables) p (view, amount, table_amount) ORDER BY p.view;
    END IF;
    RETURN NULL;
END $$;

REVOKE ALL ON provenance.chain, provenance.gap FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.charge_text, provenance.link, provenance.verify_balances, provenance.verify_chain, provenance.on_top, provenance.report_gap, provenance.accept_gap, provenance.book_gap FROM PUBLIC;
GRANT SELECT ON provenance.chain, provenance.gap TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.charge_text, provenance.verify_chain, provenance.accept_gap TO pgveil_admin;
