-- Hidden global synopses, and what each analyst knows of them. A global synopsis is a list of independent releases of
-- one view; an analyst knows some of them whole and at most one through noise that was added to it.

CREATE TABLE provenance.release (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation_id  bigint NOT NULL REFERENCES provenance.relation (id),
    data_version bigint NOT NULL,
    digest       text   NOT NULL,
    dimensions   text[] NOT NULL,
    measure      text   NOT NULL,
    sensitivity  numeric NOT NULL CHECK (sensitivity >= 1),
    parts        bigint NOT NULL CHECK (parts >= 1),
    variance     text   NOT NULL CHECK (variance ~ '^[1-9][0-9]*(/[1-9][0-9]*)?$'),
    cells        integer NOT NULL CHECK (cells > 0),
    values       bytea  NOT NULL,
    charge       bigint NOT NULL REFERENCES provenance.charge (id),
    at           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT eight_bytes_for_each_cell CHECK (length(values) = 8 * cells)
);
CREATE INDEX release_of_view ON provenance.release (relation_id, data_version, digest);
COMMENT ON TABLE provenance.release IS 'Independent noisy measurements of views: the hidden global synopses. Nobody but pgveil reads their values.';
COMMENT ON COLUMN provenance.release.digest IS 'What tells the view from all others.';
COMMENT ON COLUMN provenance.release.sensitivity IS 'How far one unit moves the statistic in one cell, in lattice numbers.';
COMMENT ON COLUMN provenance.release.parts IS 'The grid: so many numbers to the sensitivity.';
COMMENT ON COLUMN provenance.release.variance IS 'Of the noise, in grid numbers squared: a fraction.';
COMMENT ON COLUMN provenance.release.values IS 'Grid numbers, int64 little endian, cell by cell.';
COMMENT ON COLUMN provenance.release.charge IS 'What paid for it.';

CREATE TABLE provenance.knowledge (
    analyst text   NOT NULL REFERENCES provenance.analyst (name),
    release bigint NOT NULL REFERENCES provenance.release (id) ON DELETE CASCADE,
    added   text   CHECK (added ~ '^[1-9][0-9]*(/[1-9][0-9]*)?$'),
    values  bytea,
    drawn   integer NOT NULL DEFAULT 1 CHECK (drawn > 0),
    PRIMARY KEY (analyst, release),
    CONSTRAINT added_noise_has_values CHECK ((added IS NULL) = (values IS NULL))
);
CREATE INDEX knowledge_by_release ON provenance.knowledge (release);
COMMENT ON TABLE provenance.knowledge IS 'Which releases an analyst knows: the local synopses.';
COMMENT ON COLUMN provenance.knowledge.added IS 'The variance of the noise that was added for this analyst; NULL: the release is known whole.';
COMMENT ON COLUMN provenance.knowledge.values IS 'The release with the added noise.';
COMMENT ON COLUMN provenance.knowledge.drawn IS 'Counts the refinements: one that started from an older state is not written.';

-- Whoever moves the data version, old releases are gone: nothing is ever refined against changed data.
CREATE FUNCTION provenance.forget_releases() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, provenance, pg_temp AS $$
BEGIN
    DELETE FROM provenance.release r WHERE r.relation_id = NEW.id AND r.data_version < NEW.data_version;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_releases AFTER UPDATE OF data_version ON provenance.relation FOR EACH ROW EXECUTE FUNCTION provenance.forget_releases();

REVOKE ALL ON provenance.release, provenance.knowledge FROM PUBLIC;
REVOKE ALL ON FUNCTION provenance.forget_releases FROM PUBLIC;
GRANT SELECT (id, relation_id, data_version, digest, dimensions, measure, sensitivity, parts, variance, cells, charge, at) ON provenance.release TO pgveil_admin;
GRANT SELECT (analyst, release, added, drawn) ON provenance.knowledge TO pgveil_admin;
