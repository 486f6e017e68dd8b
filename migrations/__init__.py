"""The provenance schema as numbered plain-SQL files, applied in order by ``provenance.migrate``.

A file that has been applied anywhere is never edited again (its checksum is recorded): a change is a new file.

    0001_tables        what is stored
    0002_rules         triggers: nonsense is kept out, the journal is append-only, versions move
    0003_accounts      analysts, administrators, SCRAM verifiers
    0004_registration  protect, publish, declare_attribute, refresh
    0005_reports       epsilon_of, and the views budget, total, history, matrix
    0006_roles         pgveil_reader, pgveil_admin, and what they may touch
"""
