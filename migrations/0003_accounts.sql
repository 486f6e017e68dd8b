-- Accounts. Only sha256() of PostgreSQL itself is used: an embedded server has no pgcrypto.

CREATE FUNCTION provenance.hmac_sha256(key bytea, message bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    inner_key bytea := decode(repeat('00', 64), 'hex');
    outer_key bytea := decode(repeat('00', 64), 'hex');
BEGIN
    IF length(key) > 64 THEN
        key := sha256(key);
    END IF;
    FOR i IN 0..63 LOOP
        inner_key := set_byte(inner_key, i, (CASE WHEN i < length(key) THEN get_byte(key, i) ELSE 0 END) # 54);
        outer_key := set_byte(outer_key, i, (CASE WHEN i < length(key) THEN get_byte(key, i) ELSE 0 END) # 92);
    END LOOP;
    RETURN sha256(outer_key || sha256(inner_key || message));
END $$;
COMMENT ON FUNCTION provenance.hmac_sha256 IS 'RFC 2104 over SHA-256.';

CREATE FUNCTION provenance.scram_verifier(password text, salt bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rounds constant integer := 4096;
    key bytea;
    inner_key bytea := decode(repeat('36', 64), 'hex');
    outer_key bytea := decode(repeat('5c', 64), 'hex');
    step bytea;
    total bit(256);
    salted bytea;
BEGIN
    IF password ~ '^SCRAM-SHA-256\$[0-9]{4,7}:[A-Za-z0-9+/]+=*\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$' THEN
        RETURN password;
    END IF;
    IF coalesce(password, '') = '' OR password ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'a password must not be empty or hold control characters' USING ERRCODE = '22023';
    END IF;
    salt := coalesce(salt, uuid_send(gen_random_uuid()));
    key := convert_to(CASE current_setting('server_encoding') WHEN 'UTF8' THEN normalize(password, NFKC) ELSE password END, 'UTF8');
    IF length(key) > 64 THEN
        key := sha256(key);
    END IF;
    FOR i IN 0..length(key) - 1 LOOP
        inner_key := set_byte(inner_key, i, get_byte(key, i) # 54);
        outer_key := set_byte(outer_key, i, get_byte(key, i) # 92);
    END LOOP;
    -- PBKDF2 (RFC 8018) of one block, HMAC written out: 4096 function calls would take ten times as long.
    step := sha256(outer_key || sha256(inner_key || salt || '\x00000001'::bytea));
    total := ('x' || encode(step, 'hex'))::bit(256);
    FOR i IN 2..rounds LOOP
        step := sha256(outer_key || sha256(inner_key || step));
        total := total # ('x' || encode(step, 'hex'))::bit(256);
    END LOOP;
    salted := int8send(substring(total FROM 1 FOR 64)::bit(64)::bigint) || int8send(substring(total FROM 65 FOR 64)::bit(64)::bigint)
        || int8send(substring(total FROM 129 FOR 64)::bit(64)::bigint) || int8send(substring(total FROM 193 FOR 64)::bit(64)::bigint);
    RETURN format('SCRAM-SHA-256$%s:%s$%s:%s', rounds, encode(salt, 'base64'),
        encode(sha256(provenance.hmac_sha256(salted, 'Client Key'::bytea)), 'base64'),
        encode(provenance.hmac_sha256(salted, 'Server Key'::bytea), 'base64'));
END $$;
COMMENT ON FUNCTION provenance.scram_verifier IS 'RFC 5802 and 7677, as pg_authid stores it; a verifier is returned as it is.';

CREATE FUNCTION provenance.set_password(name text, password text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    IF NOT EXISTS (SELECT FROM provenance.analyst a WHERE a.name = name UNION ALL SELECT FROM provenance.administrator a WHERE a.name = name) THEN
        RAISE EXCEPTION 'there is no analyst or administrator "%"', name USING ERRCODE = '42704',
            HINT = 'SELECT provenance.create_analyst(name, password, privilege) makes one.';
    END IF;
    INSERT INTO provenance.credential AS c (name, verifier) VALUES (name, provenance.scram_verifier(password))
        ON CONFLICT ON CONSTRAINT credential_pkey DO UPDATE SET verifier = excluded.verifier;
END $$;
COMMENT ON FUNCTION provenance.set_password IS 'Sets the password of an analyst or administrator; takes a plain password or a SCRAM-SHA-256 verifier, which keeps the password out of logs.';

CREATE FUNCTION provenance.create_analyst(name text, password text, privilege integer DEFAULT 1) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    INSERT INTO provenance.analyst (name, privilege) VALUES (create_analyst.name, create_analyst.privilege);
    PERFORM provenance.set_password(create_analyst.name, create_analyst.password);
END $$;
COMMENT ON FUNCTION provenance.create_analyst IS 'A new analyst, who may ask at once. Privilege 1..10 decides the limit, see deployment.allocation.';

CREATE FUNCTION provenance.create_administrator(name text, password text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    INSERT INTO provenance.administrator (name) VALUES (create_administrator.name);
    PERFORM provenance.set_password(create_administrator.name, create_administrator.password);
END $$;
COMMENT ON FUNCTION provenance.create_administrator IS 'A new administrator: one who may change this schema through the proxy.';
