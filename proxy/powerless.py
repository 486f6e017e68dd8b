"""What an analyst is on the shadow cluster: a login role that can do nothing but look.

Pure values and SQL text. The role bears the analyst's name, so that ``current_user`` is the analyst; its password
is derived from the deployment's secret and known to the proxy alone.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from proxy.blueprint import literal, quoted

MARK = "pgveil analyst"
"""The comment on each role that pgveil made; a role without it belongs to somebody else and is left alone."""

# Superuser-only settings (temp_file_limit, log_*) bind the analyst; the timeouts are defaults that a session may
# change. Logs are off because an analyst could fill the disk with them, and because they hold analysts' texts.
_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "temp_file_limit": "1GB",
        "statement_timeout": "10min",
        "idle_in_transaction_session_timeout": "1h",
        "log_statement": "none",
        "log_duration": "off",
        "log_min_duration_statement": "-1",
        "log_min_duration_sample": "-1",
        "log_transaction_sample_rate": "0",
        "log_min_error_statement": "panic",
        "log_min_messages": "fatal",
        "log_temp_files": "-1",
        "log_lock_waits": "off",
    }
)


@dataclass(frozen=True, slots=True)
class Caps:
    """What one analyst may take of the shadow."""

    connections: int = 50
    settings: Mapping[str, str] = field(default_factory=lambda: _SETTINGS)


def unfit(name: str) -> str | None:
    """Why this cannot be an analyst's role, or None."""
    if not name or "\0" in name:
        return "an analyst's name is not empty and has no NUL"
    if len(name.encode()) > 63:
        # PostgreSQL would cut it, and two analysts could become one.
        return "an analyst's name has at most 63 bytes"
    if name.startswith("pg_") or name in ("public", "none"):
        return f"the name {name!r} is PostgreSQL's own"
    return None


def password(secret: bytes, name: str) -> str:
    """The password of the analyst's shadow role."""
    return hmac.new(secret, b"role:" + name.encode(), hashlib.sha256).hexdigest()


def verifier(secret: bytes, name: str) -> str:
    """The SCRAM verifier of that password, with a salt that is a function of the secret.

    The same role always has the same verifier, so a look tells whether it must be set, and the password itself
    is never sent.
    """
    salt = hmac.new(secret, b"salt:" + name.encode(), hashlib.sha256).digest()[:16]
    salted = hashlib.pbkdf2_hmac("sha256", password(secret, name).encode(), salt, 4096)
    stored_key = hashlib.sha256(hmac.new(salted, b"Client Key", hashlib.sha256).digest()).digest()
    server_key = hmac.new(salted, b"Server Key", hashlib.sha256).digest()
    encode = base64.b64encode
    return f"SCRAM-SHA-256$4096:{encode(salt).decode()}${encode(stored_key).decode()}:{encode(server_key).decode()}"


@dataclass(frozen=True, slots=True)
class Found:
    """A role as the cluster has it."""

    odd: bool  # superuser, createdb, createrole, replication, bypassrls; or no login, no inherit, an end
    connections: int
    verifier: str | None
    mark: str | None
    settings: frozenset[str]  # name=value, for all databases
    memberships: tuple[str, ...]  # the statements that would end them
    overrides: tuple[str, ...]  # databases in which it has settings of its own


STATE = """
SELECT r.rolsuper OR r.rolcreatedb OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls
       OR NOT r.rolcanlogin OR NOT r.rolinherit OR r.rolvaliduntil < 'infinity' IS TRUE AS odd,
       r.rolconnlimit AS connections, r.rolpassword AS verifier, shobj_description(r.oid, 'pg_authid') AS mark,
       ARRAY(SELECT unnest(setconfig) FROM pg_db_role_setting WHERE setrole = r.oid AND setdatabase = 0) AS settings,
       ARRAY(SELECT format('REVOKE %%s FROM %%s GRANTED BY %%s CASCADE', roleid::regrole, member::regrole,
                           grantor::regrole) FROM pg_auth_members WHERE member = r.oid) AS memberships,
       ARRAY(SELECT datname::text FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
             WHERE s.setrole = r.oid) AS overrides
FROM pg_authid r WHERE r.rolname = %s
"""


def remedy(name: str, secret: bytes, caps: Caps, found: Found | None) -> list[str]:
    """The statements (one transaction) that make the role what it shall be; none when it already is.

    *Guarantee*: afterwards the role has no attribute, membership or setting beyond these.
    """
    role, wanted = quoted(name), verifier(secret, name)
    settings = frozenset(f"{key}={value}" for key, value in caps.settings.items())
    if found is not None and found == Found(False, caps.connections, wanted, MARK, settings, (), ()):
        return []
    return [
        *([] if found else [f"CREATE ROLE {role}", f"COMMENT ON ROLE {role} IS {literal(MARK)}"]),
        f"ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS INHERIT"
        f" CONNECTION LIMIT {caps.connections} PASSWORD {literal(wanted)} VALID UNTIL 'infinity'",
        *(found.memberships if found else ()),
        # A role may change its own settings and password: what it left behind is put right here.
        *(f"ALTER ROLE {role} IN DATABASE {quoted(each)} RESET ALL" for each in (found.overrides if found else ())),
        f"ALTER ROLE {role} RESET ALL",
        *(f"ALTER ROLE {role} SET {key} = {literal(value)}" for key, value in caps.settings.items()),
    ]
