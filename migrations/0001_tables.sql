-- What is stored. Numbers that are spent are NUMERIC without a fixed scale, so that nothing is rounded in silence.

CREATE TABLE provenance.deployment (
    singleton        boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    coin             text    NOT NULL DEFAULT 'zcdp' CHECK (coin IN ('zcdp', 'pure')),
    epsilon          numeric NOT NULL DEFAULT 1 CHECK (epsilon > 0 AND epsilon <= 1000000),
    delta            numeric NOT NULL DEFAULT 0.000000001 CHECK (delta >= 0 AND delta < 1),
    allocation       text    NOT NULL DEFAULT 'max' CHECK (allocation IN ('max', 'sum')),
    expansion        numeric NOT NULL DEFAULT 1 CHECK (expansion >= 1 AND expansion <= 1000000),
    period           interval CHECK (period IS NULL),
    registry_version bigint  NOT NULL DEFAULT 1,
    -- The public split of delta, in this one place: half converts the coin into epsilon, half pays for key thresholds.
    conversion_delta numeric NOT NULL GENERATED ALWAYS AS (CASE coin WHEN 'zcdp' THEN delta * 0.5 ELSE 0 END) STORED,
    payment_delta    numeric NOT NULL GENERATED ALWAYS AS (CASE coin WHEN 'zcdp' THEN delta * 0.5 ELSE delta END) STORED,
    CONSTRAINT zcdp_needs_a_delta CHECK (coin <> 'zcdp' OR delta > 0)
);
COMMENT ON TABLE provenance.deployment IS 'One row: the coin and the limits of the whole protected database.';
COMMENT ON COLUMN provenance.deployment.coin IS 'What the ledger adds up: zcdp (rho) or pure (epsilon). Fixed by the first charge.';
COMMENT ON COLUMN provenance.deployment.epsilon IS 'The most that all analysts together may learn.';
COMMENT ON COLUMN provenance.deployment.delta IS 'Split into conversion_delta and payment_delta.';
COMMENT ON COLUMN provenance.deployment.allocation IS 'An analyst without epsilon_limit gets privilege/10 (max) or privilege/sum of active privileges (sum) of epsilon.';
COMMENT ON COLUMN provenance.deployment.expansion IS 'Multiplies the allocated limits; never beyond the epsilon of the deployment.';
COMMENT ON COLUMN provenance.deployment.period IS 'NULL: spending never comes back. This version accepts nothing else.';
COMMENT ON COLUMN provenance.deployment.registry_version IS 'Moves with every change of a relation or an attribute.';

CREATE TABLE provenance.secret (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    value     bytea NOT NULL CHECK (length(value) = 32)
);
COMMENT ON TABLE provenance.secret IS 'The key from which role passwords are derived. The owner alone reads it.';

CREATE TABLE provenance.analyst (
    name          text PRIMARY KEY CHECK (name <> '' AND octet_length(name) <= 63),
    privilege     integer NOT NULL DEFAULT 1 CONSTRAINT privilege_is_1_to_10 CHECK (privilege BETWEEN 1 AND 10),
    epsilon_limit numeric CHECK (epsilon_limit >= 0 AND epsilon_limit <= 1000000),
    settings      jsonb   NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(settings) = 'object'),
    active        boolean NOT NULL DEFAULT true,
    created_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE provenance.analyst IS 'Who may ask. One who has spent is made inactive, not deleted.';
COMMENT ON COLUMN provenance.analyst.epsilon_limit IS 'NULL: by privilege, see deployment.allocation.';
COMMENT ON COLUMN provenance.analyst.settings IS 'Defaults of the session, such as {"veil.beta": "0.01"}.';

CREATE TABLE provenance.administrator (
    name       text PRIMARY KEY CHECK (name <> '' AND octet_length(name) <= 63),
    active     boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE provenance.administrator IS 'Who may change this schema, through the proxy.';

-- Apart from analyst and administrator, so that SELECT * on those works for people who must not see verifiers.
CREATE TABLE provenance.credential (
    name     text PRIMARY KEY,
    verifier text NOT NULL CHECK (verifier ~ '^SCRAM-SHA-256\$[0-9]{4,7}:[A-Za-z0-9+/]+=*\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$')
);
COMMENT ON TABLE provenance.credential IS 'SCRAM-SHA-256 verifiers of analysts and administrators. The owner alone reads it.';

CREATE TABLE provenance.relation (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schema       text NOT NULL DEFAULT 'public'
                 CHECK (schema <> '' AND schema NOT IN ('provenance', 'information_schema') AND schema !~ '^pg_'),
    name         text NOT NULL CHECK (name <> ''),
    label        text NOT NULL GENERATED ALWAYS AS
                 (CASE schema WHEN 'public' THEN quote_ident(name) ELSE quote_ident(schema) || '.' || quote_ident(name) END) STORED,
    kind         text NOT NULL DEFAULT 'protected' CHECK (kind IN ('protected', 'public')),
    unit_column  text CHECK (unit_column <> ''),
    max_groups   integer NOT NULL DEFAULT 1 CHECK (max_groups BETWEEN 1 AND 1000000),
    max_rows     integer NOT NULL DEFAULT 1 CHECK (max_rows BETWEEN 1 AND 1000000),
    size_hint    bigint CHECK (size_hint > 0),
    data_version bigint NOT NULL DEFAULT 1 CHECK (data_version > 0),
    active       boolean NOT NULL DEFAULT true,
    CONSTRAINT a_row_unit_is_one_row CHECK (unit_column IS NOT NULL OR (max_groups = 1 AND max_rows = 1)),
    CONSTRAINT a_public_table_has_no_unit CHECK (kind = 'protected' OR unit_column IS NULL)
);
CREATE UNIQUE INDEX relation_is_registered_once ON provenance.relation (schema, name) WHERE active;
COMMENT ON TABLE provenance.relation IS 'Registered tables; what is not here cannot be asked about.';
COMMENT ON COLUMN provenance.relation.label IS 'How attribute, charge and reports name it: the schema is left out for public.';
COMMENT ON COLUMN provenance.relation.unit_column IS 'The person whose rows are protected together; NULL: each row is its own unit.';
COMMENT ON COLUMN provenance.relation.max_groups IS 'The most groups of one answer that one unit counts in; enforced in the generated SQL.';
COMMENT ON COLUMN provenance.relation.max_rows IS 'The most rows that one unit counts with in each group; enforced in the generated SQL.';
COMMENT ON COLUMN provenance.relation.size_hint IS 'A public order of magnitude of the rows: tunes accuracy, never privacy.';
COMMENT ON COLUMN provenance.relation.data_version IS 'Moves with provenance.refresh.';

CREATE TABLE provenance.attribute (
    relation          text NOT NULL,
    relation_id       bigint NOT NULL REFERENCES provenance.relation (id) ON DELETE CASCADE,
    name              text NOT NULL CHECK (name <> ''),
    lower             text,
    upper             text,
    step              text,
    members           text[] CHECK (array_position(members, NULL) IS NULL AND cardinality(members) <= 1000000),
    members_from      text,
    constant_per_unit boolean NOT NULL DEFAULT false,
    PRIMARY KEY (relation_id, name),
    CONSTRAINT one_domain_only CHECK (num_nonnulls(members, members_from, step) <= 1),
    CONSTRAINT a_step_needs_both_bounds CHECK (step IS NULL OR (lower IS NOT NULL AND upper IS NOT NULL))
);
COMMENT ON TABLE provenance.attribute IS 'What is public about a column: bounds of its values, and the groups that it makes.';
COMMENT ON COLUMN provenance.attribute.relation IS 'The table as relation.label writes it; ''orders'' is public.orders.';
COMMENT ON COLUMN provenance.attribute.lower IS 'A number, a date or a timestamp.';
COMMENT ON COLUMN provenance.attribute.step IS 'Groups are lower, lower + step, ... upper: a number; for dates days or an interval such as ''1 month''.';
COMMENT ON COLUMN provenance.attribute.members IS 'The groups, one by one.';
COMMENT ON COLUMN provenance.attribute.members_from IS 'The groups are the values of a column of a published table: ''city.city'' or ''schema.city.city''.';
COMMENT ON COLUMN provenance.attribute.constant_per_unit IS 'Every row of one unit has the same value here.';

CREATE TABLE provenance.view (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation      text NOT NULL,
    relation_id   bigint NOT NULL REFERENCES provenance.relation (id),
    dimensions    text[] NOT NULL DEFAULT '{}',
    measure       text NOT NULL DEFAULT 'count(*)',
    epsilon_limit numeric CHECK (epsilon_limit >= 0 AND epsilon_limit <= 1000000),
    UNIQUE (relation_id, dimensions, measure)
);
COMMENT ON TABLE provenance.view IS 'Registered histograms: relation, dimensions, measure.';

CREATE TABLE provenance.charge (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    analyst          text   NOT NULL REFERENCES provenance.analyst (name),
    relation         text   NOT NULL,
    relation_id      bigint NOT NULL REFERENCES provenance.relation (id),
    data_version     bigint NOT NULL,
    registry_version bigint NOT NULL,
    fingerprint      text   NOT NULL,
    question         text   NOT NULL,
    mechanism        text   NOT NULL,
    coin             text   NOT NULL CHECK (coin IN ('zcdp', 'pure')),
    amount           numeric NOT NULL CHECK (amount >= 0 AND amount < 'Infinity'),
    delta            numeric NOT NULL DEFAULT 0 CHECK (delta >= 0 AND delta < 1),
    epsilon          numeric NOT NULL CHECK (epsilon >= 0 AND epsilon < 'Infinity'),
    bill             jsonb   NOT NULL DEFAULT '{}'
);
CREATE INDEX charge_by_analyst ON provenance.charge (analyst, id);
CREATE INDEX charge_by_relation ON provenance.charge (relation_id);
COMMENT ON TABLE provenance.charge IS 'The journal of everything spent: rows are added, never changed.';
COMMENT ON COLUMN provenance.charge.amount IS 'In coin.';
COMMENT ON COLUMN provenance.charge.epsilon IS 'The loss of this question taken by itself.';

-- Running totals, so that a charge costs the same however long the journal is.
CREATE TABLE provenance.balance (
    scope  text NOT NULL CHECK (scope IN ('table', 'analyst', 'view')),
    name   text NOT NULL,
    amount numeric NOT NULL DEFAULT 0 CHECK (amount >= 0 AND amount < 'Infinity'),
    delta  numeric NOT NULL DEFAULT 0 CHECK (delta >= 0 AND delta < 'Infinity'),
    PRIMARY KEY (scope, name)
);
COMMENT ON TABLE provenance.balance IS 'What the charges add up to: for the protected database (scope table, name empty) and for each analyst.';

CREATE TABLE provenance.synopsis (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    analyst      text   NOT NULL REFERENCES provenance.analyst (name),
    relation     text   NOT NULL,
    relation_id  bigint NOT NULL REFERENCES provenance.relation (id),
    data_version bigint NOT NULL,
    fingerprint  text   NOT NULL,
    accuracy     text   NOT NULL,
    aggregates   integer NOT NULL CHECK (aggregates >= 0),
    cells        integer NOT NULL CHECK (cells >= 0),
    values       bytea  NOT NULL,
    charge       bigint NOT NULL REFERENCES provenance.charge (id),
    at           timestamptz NOT NULL DEFAULT now(),
    UNIQUE (analyst, relation_id, data_version, fingerprint, accuracy)
);
CREATE INDEX synopsis_by_relation ON provenance.synopsis (relation_id);
COMMENT ON TABLE provenance.synopsis IS 'Released numbers: the same question again is answered from here, with the same noise.';
COMMENT ON COLUMN provenance.synopsis.values IS 'A header (PVS, version 1), then int64 little endian, aggregate by aggregate.';

INSERT INTO provenance.deployment DEFAULT VALUES;
INSERT INTO provenance.balance (scope, name) VALUES ('table', '');
INSERT INTO provenance.secret (value)
SELECT sha256(string_agg(uuid_send(gen_random_uuid()), '')) FROM generate_series(1, 4);
