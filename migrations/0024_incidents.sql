-- Security incidents. The SQL that pgveil generates cannot fail on any row, so a failure of the protected database (other
-- than a lost connection, a shutdown or the time limit) means that somebody may have found a way to read rows through
-- errors. Each one is recorded; after deployment.incident_limit of them an analyst's questions that read data are refused
-- until an administrator has looked at them and calls provenance.resume_analyst.

ALTER TABLE provenance.deployment
    ADD COLUMN incident_limit integer NOT NULL DEFAULT 3 CONSTRAINT incident_limit_is_positive CHECK (incident_limit >= 1);
COMMENT ON COLUMN provenance.deployment.incident_limit IS 'So many unresolved security incidents pause an analyst: see provenance.incident and provenance.resume_analyst.';

CREATE TABLE provenance.incident (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    analyst     text   NOT NULL REFERENCES provenance.analyst (name),
    charge      bigint NOT NULL REFERENCES provenance.charge (id),
    failure     text   NOT NULL,
    statement   text   NOT NULL,
    resolved_at timestamptz
);
CREATE INDEX incident_unresolved ON provenance.incident (analyst) WHERE resolved_at IS NULL;
COMMENT ON TABLE provenance.incident IS 'Failures of the protected database that may depend on private rows. The question was charged, and its analyst saw a fixed text.';
COMMENT ON COLUMN provenance.incident.id IS 'In the order in which they were recorded.';
COMMENT ON COLUMN provenance.incident.at IS 'When it was recorded.';
COMMENT ON COLUMN provenance.incident.analyst IS 'Whose question failed.';
COMMENT ON COLUMN provenance.incident.charge IS 'What the question was charged with; provenance.charge has its text.';
COMMENT ON COLUMN provenance.incident.failure IS 'SQLSTATE of the failure, or the kind of error that reading the result gave; never its message, which may hold private values.';
COMMENT ON COLUMN provenance.incident.statement IS 'The generated SQL that failed, and its parameters.';
COMMENT ON COLUMN provenance.incident.resolved_at IS 'When an administrator resumed the analyst; NULL: it counts.';

CREATE FUNCTION provenance.report_incident(charge bigint, failure text, statement text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    INSERT INTO provenance.incident (analyst, charge, failure, statement)
        SELECT c.analyst, c.id, report_incident.failure, report_incident.statement
        FROM provenance.charge c WHERE c.id = report_incident.charge AND c.analyst IS NOT NULL
        RETURNING id
$$;
COMMENT ON FUNCTION provenance.report_incident IS 'Called by the proxy: the protected database failed on a question that was charged.';

CREATE FUNCTION provenance.is_paused(analyst text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
    SELECT count(*) >= (SELECT d.incident_limit FROM provenance.deployment d)
    FROM provenance.incident i WHERE i.analyst = is_paused.analyst AND i.resolved_at IS NULL
$$;
COMMENT ON FUNCTION provenance.is_paused IS 'Whether an analyst''s questions that read data are refused because of security incidents.';

CREATE FUNCTION provenance.resume_analyst(name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    resolved bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM provenance.analyst a WHERE a.name = name) THEN
        RAISE EXCEPTION 'there is no analyst "%"', name USING ERRCODE = '42704',
            HINT = 'SELECT name FROM provenance.analyst shows them.';
    END IF;
    UPDATE provenance.incident i SET resolved_at = clock_timestamp() WHERE i.analyst = name AND i.resolved_at IS NULL;
    GET DIAGNOSTICS resolved = ROW_COUNT;
    RETURN resolved;
END $$;
COMMENT ON FUNCTION provenance.resume_analyst IS 'Marks an analyst''s security incidents as resolved, so that paid questions are answered again; returns how many there were.';

REVOKE ALL ON provenance.incident FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.report_incident, provenance.is_paused, provenance.resume_analyst FROM PUBLIC;
GRANT SELECT ON provenance.incident TO pgveil_admin;
GRANT UPDATE (incident_limit) ON provenance.deployment TO pgveil_admin;
GRANT EXECUTE ON FUNCTION provenance.is_paused, provenance.resume_analyst TO pgveil_admin;
