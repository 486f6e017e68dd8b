"""The provenance schema as numbered plain-SQL files, applied in order by ``provenance.migrate``.

A file that has been applied anywhere is never edited again (its checksum is recorded): a change is a new file.

    0001_tables        what is stored
    0002_rules         triggers: nonsense is kept out, the journal is append-only, versions move
    0003_accounts      analysts, administrators, SCRAM verifiers
    0004_registration  protect, publish, declare_attribute, refresh
    0005_reports       epsilon_of, and the views budget, total, history, matrix
    0006_roles         pgveil_reader, pgveil_admin, and what they may touch
    0007_stages        reserve and settle; what each group of a question lost
    0008_views         what each view lost: column limits, and the provenance table of analysts by views
    0009_delegation    budgets that are lent, and groups of analysts that do not collude
    0010_releases      hidden global synopses, and what each analyst knows of them
    0011_chain         the journal as a hash chain; a part of it that is lost is accepted as spent
    0012_administration  reports per view, fairness, notices, replicas
    0013_meanings      register_view, and a comment on every column
    0014_unchanged     a limit is looked at when it is given
    0015_regions       what counts is the largest total over any point of the data domain
    0016_shapes        what releases are pictures of
    0017_static        limits of relations, and relations with fixed noise
    0018_levels        a decision that is settled leaves each group with its own level
    0019_lost_draws    what was lent ends with a ledger that was restored
    0020_typos         names that nothing bears and settings that there are not are told
    0021_joined        a question counts against the limits of all relations that it reads
    0022_periods       limits that grow by the same amount again after each period
    0023_measures      measures of which no view can be kept are not registered
    0024_incidents     failures that may depend on rows, and the analysts that they pause
    0025_timing        when answers of scans leave, and what a scan costs at least
    0026_changes       how protected tables change, immutable columns, and the snapshot of a release
    0027_units         the unit of a table that references a protected one is declared: a column, a path, or the row
    0028_side_channels statistics of tables and large objects are not for administrators
    0029_structure     a table that was made anew or rewritten is a new data version; enforcement on partitions
"""
