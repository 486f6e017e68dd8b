-- Views by one call, and a comment on every column.

CREATE FUNCTION provenance.register_view(relation text, dimensions text[] DEFAULT '{}', measure text DEFAULT 'count(*)', epsilon_limit numeric DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    made bigint;
BEGIN
    INSERT INTO provenance.view AS v (relation, dimensions, measure, epsilon_limit) VALUES (relation, dimensions, measure, epsilon_limit)
        ON CONFLICT ON CONSTRAINT view_relation_id_dimensions_measure_key DO UPDATE SET registered = true, epsilon_limit = excluded.epsilon_limit
        RETURNING v.id INTO made;
    RETURN made;
END $$;
COMMENT ON FUNCTION provenance.register_view IS 'A histogram that other questions may be derived from (the declared domains of its dimensions must be complete: rows outside them are in no cell), with its limit (NULL: that of the database); one that a question has made already is registered, with what was spent on it. Returns its id.';
REVOKE ALL ON FUNCTION provenance.register_view FROM PUBLIC;
GRANT EXECUTE ON FUNCTION provenance.register_view TO pgveil_admin;

-- Columns whose meaning is the same wherever they stand.
DO $$
DECLARE
    meanings constant jsonb := $words${
        "accuracy": "How it was measured: the same question with another noise is another one.",
        "active": "false: not used any more, and kept for what was charged.",
        "aggregates": "How many numbers there are for each cell.",
        "amount": "In coin.",
        "analyst": "Who asked.",
        "at": "When that was.",
        "bill": "What the answer promised: beta, alpha, groups and so on.",
        "cells": "How many groups.",
        "charge": "What paid for it.",
        "checksum": "SHA-256 of the file.",
        "coin": "What the amounts are counted in: zcdp (rho) or pure (epsilon).",
        "conversion_delta": "The part of delta at which an amount of coin is told as epsilon.",
        "created_at": "When it was made.",
        "data_version": "Of the relation, when it was measured.",
        "delta": "Paid beside the coin, for keys that are not public.",
        "dimensions": "The columns that make its cells.",
        "fingerprint": "What makes two questions the same, however they are written.",
        "groups": "How many groups.",
        "id": "A number that is never used again.",
        "kind": "protected: its rows are private; public: everybody may read it as it is.",
        "measure": "What is counted or added up in each cell.",
        "mechanism": "How noise was added.",
        "name": "What it is called.",
        "payment_delta": "The part of delta that charges may pay.",
        "privilege": "1 to 10: how much may be learned, see deployment.allocation.",
        "question": "The text.",
        "registry_version": "Of the deployment, when it was priced.",
        "relation": "The table as relation.label writes it.",
        "relation_id": "The registration of the table.",
        "release": "The measurement.",
        "replica": "Which proxy.",
        "revoked": "true: nothing more is drawn from it.",
        "schema": "Where the table is.",
        "scope": "What is counted: table, analyst or view.",
        "seen_at": "When it was noticed.",
        "singleton": "There is one row.",
        "upper": "As lower; the largest value that is counted as it is.",
        "value": "32 random bytes.",
        "verifier": "As pg_authid stores it.",
        "view": "Which view."}$words$;
    bare record;
BEGIN
    FOR bare IN
        SELECT c.oid::regclass AS place, a.attname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'provenance'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
            AND col_description(c.oid, a.attnum) IS NULL AND meanings ? a.attname
    LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', bare.place, bare.name, meanings ->> bare.name);
    END LOOP;
END $$;
