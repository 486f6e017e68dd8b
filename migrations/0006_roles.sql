-- Two roles. Roles belong to the whole cluster: deployments in two databases of one cluster share their names, and the
-- password of pgveil_admin is that of the deployment that was migrated last.

DO $$
BEGIN
    BEGIN
        CREATE ROLE pgveil_reader NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    BEGIN
        CREATE ROLE pgveil_admin LOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    -- Whoever runs the proxy reads as the reader (SET ROLE).
    IF NOT pg_has_role(current_user, 'pgveil_reader', 'MEMBER') THEN
        GRANT pgveil_reader TO CURRENT_USER;
    END IF;
END $$;

REVOKE ALL ON SCHEMA provenance FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA provenance FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA provenance FROM PUBLIC;

GRANT USAGE ON SCHEMA provenance TO pgveil_admin;
GRANT SELECT ON provenance.deployment, provenance.analyst, provenance.administrator, provenance.relation, provenance.attribute,
    provenance.view, provenance.charge, provenance.balance, provenance.migration,
    provenance.budget, provenance.total, provenance.history, provenance.matrix TO pgveil_admin;
GRANT SELECT ON provenance.synopsis TO pgveil_admin;
GRANT UPDATE (coin, epsilon, delta, allocation, expansion, period) ON provenance.deployment TO pgveil_admin;
GRANT INSERT, UPDATE, DELETE ON provenance.analyst, provenance.administrator, provenance.attribute, provenance.view TO pgveil_admin;
GRANT INSERT (schema, name, kind, unit_column, max_groups, max_rows, size_hint, active),
    UPDATE (schema, name, kind, unit_column, max_groups, max_rows, size_hint, active), DELETE ON provenance.relation TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.create_analyst, provenance.create_administrator, provenance.set_password, provenance.protect, provenance.publish,
    provenance.declare_attribute(text, text, text, text, text, text[], text, boolean),
    provenance.declare_attribute(text, text, numeric, numeric, numeric, boolean),
    provenance.refresh, provenance.epsilon_of, provenance.limit_of, provenance.relation_id TO pgveil_admin;
