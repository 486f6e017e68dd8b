"""Verifiers are what PostgreSQL and SCRAM clients expect, and nobody but the owner sees them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator

import psycopg
import pytest
import scramp
from psycopg import Connection, errors

from provenance.migrate import ADMIN_ROLE, migrate, role_password
from proxy.embedded import Cluster


def verifier_of(sandbox: Connection, name: str) -> str:
    row = sandbox.execute("SELECT verifier FROM provenance.credential WHERE name = %s", (name,)).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("password", ["alice", "x", "correct horse battery staple " * 4, "pässwörd", "ﬁne ⅷ"])
def test_a_verifier_lets_the_right_password_in_and_no_other(sandbox: Connection, password: str) -> None:
    sandbox.execute("SELECT provenance.set_password('alice', %s)", (password,))
    head, keys = verifier_of(sandbox, "alice").removeprefix("SCRAM-SHA-256$").split("$")
    rounds, salt = head.split(":")
    stored, server = (base64.b64decode(key) for key in keys.split(":"))

    def login(attempt: str) -> None:
        mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
        there = mechanism.make_server(lambda _: (base64.b64decode(salt), stored, server, int(rounds)))
        here = scramp.ScramClient(["SCRAM-SHA-256"], "alice", attempt)
        there.set_client_first(here.get_client_first())
        here.set_server_first(there.get_server_first())
        there.set_client_final(here.get_client_final())
        here.set_server_final(there.get_server_final())

    login(password)
    with pytest.raises(scramp.ScramException):
        login(password + "!")


def test_a_verifier_has_the_form_of_postgresql(sandbox: Connection) -> None:
    """PostgreSQL keeps a password that it recognises as a verifier, and hashes anything else."""
    ours = verifier_of(sandbox, "bob")
    with sandbox.transaction(force_rollback=True):
        sandbox.execute(f"CREATE ROLE verifier_probe PASSWORD '{ours}'".encode())
        kept = sandbox.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'verifier_probe'").fetchone()
        assert kept == (ours,)
        sandbox.execute("ALTER ROLE verifier_probe PASSWORD 'bob'")
        row = sandbox.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'verifier_probe'").fetchone()
        assert row is not None
        salt = base64.b64decode(row[0].split("$")[1].split(":")[1])
        assert sandbox.execute("SELECT provenance.scram_verifier('bob', %s)", (salt,)).fetchone() == row


def test_a_ready_verifier_is_kept_as_it_is(sandbox: Connection) -> None:
    given = sandbox.pgconn.encrypt_password(b"s3cret", b"alice", b"scram-sha-256").decode()
    sandbox.execute("SELECT provenance.set_password('alice', %s)", (given,))
    assert verifier_of(sandbox, "alice") == given


def test_equal_passwords_have_different_salts(sandbox: Connection) -> None:
    sandbox.execute("SELECT provenance.set_password('alice', 'same'), provenance.set_password('bob', 'same')")
    assert verifier_of(sandbox, "alice") != verifier_of(sandbox, "bob")


@pytest.mark.parametrize("length", [0, 5, 64, 65, 200])
def test_hmac_is_hmac(sandbox: Connection, length: int) -> None:
    key = bytes(range(256))[:length]
    row = sandbox.execute("SELECT provenance.hmac_sha256(%s, %s)", (key, b"message")).fetchone()
    assert row == (hmac.new(key, b"message", hashlib.sha256).digest(),)


def test_an_account_takes_its_verifier_along_when_it_goes(sandbox: Connection) -> None:
    sandbox.execute("DELETE FROM provenance.analyst WHERE name = 'alice'")
    sandbox.execute("DELETE FROM provenance.administrator")
    assert sandbox.execute("SELECT name FROM provenance.credential").fetchall() == [("bob",)]
    assert sandbox.execute("SELECT name FROM provenance.balance WHERE scope = 'analyst'").fetchall() == [("bob",)]


def test_the_admin_role_has_the_derived_password(ready: str, owner: Connection) -> None:
    migrate(ready)  # roles belong to the cluster: the password is that of the deployment migrated last
    secret = owner.execute("SELECT value FROM provenance.secret").fetchone()
    stored = owner.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", (ADMIN_ROLE,)).fetchone()
    assert secret is not None and stored is not None and len(secret[0]) == 32
    salt = base64.b64decode(stored[0].split("$")[1].split(":")[1])
    wanted = owner.execute("SELECT provenance.scram_verifier(%s, %s)", (role_password(secret[0], ADMIN_ROLE), salt))
    assert wanted.fetchone() == stored


@pytest.fixture
def admin(shared: str, ledger_cluster: Cluster) -> Iterator[Connection]:
    name = psycopg.conninfo.conninfo_to_dict(shared)["dbname"]
    with psycopg.connect(ledger_cluster.dsn(str(name), user=ADMIN_ROLE)) as conn:
        yield conn
        conn.rollback()


REFUSED = [
    "SELECT * FROM public.patient",
    "SELECT * FROM public.secret_notes",
    "SELECT * FROM public.city",
    "SELECT * FROM provenance.credential",
    "SELECT * FROM provenance.secret",
    "SELECT * FROM pg_authid",
    "UPDATE provenance.balance SET amount = 0",
    "INSERT INTO provenance.balance (scope, name) VALUES ('view', 'x')",
    "DELETE FROM provenance.charge",
    "INSERT INTO provenance.charge (stage, question_of, amount) VALUES ('settle', 1, -1)",
    "INSERT INTO provenance.charge_loss (charge, levels, level_of, groups) VALUES (1, '{0}', '', 1)",
    "DELETE FROM provenance.synopsis",
    "UPDATE provenance.deployment SET registry_version = 0",
    "UPDATE provenance.relation SET data_version = 100",
    "DELETE FROM provenance.migration",
    "SELECT provenance.scram_verifier('x')",
    "SELECT provenance.hmac_sha256('', '')",
    "SELECT provenance.register('patient', 'public', NULL, 1, 1, NULL)",
    "CREATE TABLE public.mine ()",
    "CREATE TABLE provenance.mine ()",
    "CREATE SCHEMA mine",
    "CREATE ROLE mine",
    "SET ROLE pgveil_reader",
    "ALTER TABLE provenance.charge DISABLE TRIGGER ALL",
    "COPY provenance.analyst TO PROGRAM 'true'",
    "SELECT pg_read_file('PG_VERSION')",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_an_administrator_reaches_nothing_else(admin: Connection, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        admin.execute(statement.encode())


def test_an_administrator_administers(admin: Connection) -> None:
    for statement in (
        "SELECT provenance.create_analyst('dora', 'dora', 3)",
        "SELECT provenance.create_administrator('root2', 'x')",
        "SELECT provenance.set_password('dora', 'other')",
        "UPDATE provenance.analyst SET epsilon_limit = 2, settings = '{\"veil.beta\": \"0.1\"}' WHERE name = 'bob'",
        "UPDATE analyst SET active = false WHERE name = 'dora'",  # the role's search_path is provenance
        "UPDATE provenance.deployment SET epsilon = 12, expansion = 2, allocation = 'sum'",
        "SELECT provenance.protect('secret_notes')",
        "SELECT provenance.declare_attribute('orders', 'city', members_from => 'city.city')",
        "INSERT INTO provenance.attribute (relation, name, lower, upper) VALUES ('patient', 'fee', 0, 500)",
        "UPDATE provenance.attribute SET upper = 400 WHERE name = 'fee'",
        "INSERT INTO provenance.view (relation, dimensions) VALUES ('patient', '{age}')",
        "SELECT provenance.refresh('patient')",
    ):
        admin.execute(statement.encode())
    admin.execute("SELECT * FROM provenance.group_losses(1)")
    for table in ("deployment", "analyst", "administrator", "relation", "attribute", "view"):
        admin.execute(f"SELECT * FROM provenance.{table}".encode())
    for table in ("charge", "charge_loss", "synopsis"):
        admin.execute(f"SELECT * FROM provenance.{table}".encode())
    for report in ("budget", "total", "history", "matrix"):
        admin.execute(f"SELECT * FROM provenance.{report}".encode())


def test_the_reader_reads_registered_tables_and_nothing_else(sandbox: Connection) -> None:
    sandbox.execute("SET ROLE pgveil_reader")
    assert sandbox.execute("SELECT count(*) FROM public.patient").fetchone() == (50,)
    sandbox.execute("SELECT * FROM public.city")
    for statement in (
        "SELECT * FROM public.secret_notes",
        "SELECT * FROM provenance.analyst",
        "DELETE FROM public.city",
        "CREATE TABLE public.mine ()",
    ):
        with pytest.raises(errors.InsufficientPrivilege), sandbox.transaction():
            sandbox.execute(statement.encode())
