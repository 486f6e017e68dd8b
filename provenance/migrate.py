"""Bring the provenance schema of a database up to this program's version.

Safe to call at every start and from many processes at once: all of it happens under one advisory lock, each file in one
transaction together with its line in ``provenance.migration``.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from importlib import resources

import psycopg
from psycopg import errors, sql

from provenance.errors import MigrationError

log = logging.getLogger(__name__)

LOCK = 0x7067_7665_696C  # "pgveil"
ADMIN_ROLE = "pgveil_admin"
READER_ROLE = "pgveil_reader"
OLDEST_SERVER = 140_000

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS provenance;
CREATE TABLE IF NOT EXISTS provenance.migration (
    name     text PRIMARY KEY,
    checksum text NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);
COMMENT ON SCHEMA provenance IS 'pgveil: analysts, limits, registered tables, and the ledger of what has been learned.';
COMMENT ON TABLE provenance.migration IS 'The files that made this schema, with their SHA-256.';
"""


def migrations() -> dict[str, str]:
    """The numbered files by name, in order."""
    files = [f for f in resources.files("migrations").iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", f.name)]
    return {f.name: f.read_text(encoding="utf-8") for f in sorted(files, key=lambda f: f.name)}


def derive(secret: bytes, label: str) -> bytes:
    """A key of this deployment for one purpose."""
    return hmac.new(secret, label.encode(), hashlib.sha256).digest()


def role_password(secret: bytes, role: str) -> str:
    """The password of a database role that pgveil made."""
    return derive(secret, f"role:{role}").hex()


def migrate(dsn: str) -> list[str]:
    """Apply what is missing and return its names; an edited file or a newer database is an error."""
    with psycopg.connect(dsn, autocommit=True, application_name="pgveil migrate") as conn:
        _check_version(conn)
        conn.execute("SET client_min_messages = warning")
        conn.execute("SELECT pg_advisory_lock(%s)", (LOCK,))  # given back when the connection closes
        conn.execute(_BOOTSTRAP)
        applied = _apply(conn, migrations())
        _close_side_channels(conn)
        _set_admin_password(conn)
        return applied


def admit_reader(dsn: str) -> None:
    """Prepare a protected database whose ledger lives elsewhere: the role that reads, and the right to be it."""
    with psycopg.connect(dsn, autocommit=True, application_name="pgveil migrate") as conn:
        _check_version(conn)
        conn.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        role = sql.Identifier(READER_ROLE)
        try:
            if conn.execute("SELECT FROM pg_roles WHERE rolname = %s", (READER_ROLE,)).fetchone() is None:
                try:
                    conn.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
                except (errors.DuplicateObject, errors.UniqueViolation):
                    pass  # another database of the cluster was faster
            if conn.execute("SELECT pg_has_role(%s, 'MEMBER')", (READER_ROLE,)).fetchone() == (False,):
                conn.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(role))
        except errors.InsufficientPrivilege:
            raise MigrationError(
                f"the protected database needs the role {READER_ROLE}, which {conn.info.user} may not create or be:"
                f" as a superuser there, CREATE ROLE {READER_ROLE}; GRANT {READER_ROLE} TO {conn.info.user}"
            ) from None


def _check_version(conn: psycopg.Connection) -> None:
    """Refuse a server that lacks what generated SQL relies on (``pg_column_compression``)."""
    if conn.info.server_version < OLDEST_SERVER:
        found = conn.info.parameter_status("server_version")
        raise MigrationError(f"pgveil needs PostgreSQL {OLDEST_SERVER // 10_000} or later, and this server is {found}")


def _apply(conn: psycopg.Connection, files: dict[str, str]) -> list[str]:
    known: dict[str, str] = dict(conn.execute("SELECT name, checksum FROM provenance.migration").fetchall())
    if newer := sorted(known.keys() - files.keys()):
        raise MigrationError(f"the database is newer than this pgveil: it has {', '.join(newer)}")
    applied = []
    for name, text in files.items():
        checksum = hashlib.sha256(text.encode()).hexdigest()
        if name in known:
            if known[name] != checksum:
                raise MigrationError(f"{name} was changed after it was applied: a change is a new file")
            continue
        with conn.transaction():
            conn.execute(text.encode())
            conn.execute("INSERT INTO provenance.migration (name, checksum) VALUES (%s, %s)", (name, checksum))
        applied.append(name)
    return applied


def _close_side_channels(conn: psycopg.Connection) -> None:
    """Statistics and large objects are not for administrators; functions may have come with an extension since."""
    if conn.execute("SELECT to_regproc('provenance.close_side_channels')").fetchone() == (None,):
        return  # a schema from before
    row = conn.execute("SELECT provenance.close_side_channels()").fetchone()
    if row is not None and row[0]:
        log.warning(
            "administrators can read statistics of protected tables, or use large objects (%s functions): as a"
            " superuser, SELECT provenance.close_side_channels()",
            len(row[0]),
        )


def _set_admin_password(conn: psycopg.Connection) -> None:
    """Give ``pgveil_admin`` the password that every proxy of this deployment can derive."""
    row = conn.execute("SELECT value FROM provenance.secret").fetchone()
    if row is None:
        raise MigrationError("provenance.secret is empty: restore it from a backup")
    # The verifier, not the password, so that a server that logs its statements logs nothing of use.
    verifier = conn.pgconn.encrypt_password(
        role_password(row[0], ADMIN_ROLE).encode(), ADMIN_ROLE.encode(), b"scram-sha-256"
    ).decode()
    statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(ADMIN_ROLE), sql.Literal(verifier))
    path = sql.SQL("ALTER ROLE {} SET search_path = provenance").format(sql.Identifier(ADMIN_ROLE))
    for attempt in range(20):
        try:
            conn.execute(statement)
            conn.execute(path)
            return
        except errors.InsufficientPrivilege:
            log.warning("no right to set the password of %s: administrators cannot connect by the proxy", ADMIN_ROLE)
            return
        except errors.InternalError_:  # "tuple concurrently updated": another database of the cluster does the same
            if attempt == 19:
                raise
