-- What a release is a picture of, so that answers to other questions can be put together from it.

ALTER TABLE provenance.release
    ADD COLUMN summed text,
    ADD COLUMN shape  text,
    ADD CONSTRAINT a_shape_says_what_is_summed CHECK ((summed IS NULL) = (shape IS NULL));
CREATE INDEX release_that_sums ON provenance.release (relation_id, data_version, summed) WHERE summed IS NOT NULL;
COMMENT ON COLUMN provenance.release.summed IS 'A digest of what a row adds to a cell; releases that share it can be added up. NULL: this one cannot.';
COMMENT ON COLUMN provenance.release.shape IS 'The regions of its cells, as provenance/shape.py writes them: what they share, and what each has beside it.';

GRANT SELECT (summed, shape) ON provenance.release TO pgveil_admin;
