"""Everybody changes the own password, as psql does it; nobody else's, and no log or database sees it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy, new_analyst
from psycopg import sql
from raw_wire import Wire, errors, sqlstates

from proxy import messages as m


@pytest.fixture
def conn(proxy: Proxy, analyst: str) -> Iterator[psycopg.Connection]:
    with proxy.connect(analyst) as opened:
        yield opened


def may_enter(proxy: Proxy, user: str, password: str) -> bool:
    try:
        proxy.connect(user, password=password).close()
    except psycopg.OperationalError as error:
        assert "password authentication failed" in str(error)
        return False
    return True


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER ROLE {me} PASSWORD {new}",
        "ALTER USER {me} PASSWORD {new}",
        "alter role current_user with encrypted password {new};",
        "ALTER ROLE CURRENT_ROLE WITH PASSWORD {new}",
        "ALTER/* a comment */USER SESSION_USER ENCRYPTED PASSWORD {new}",
        "SELECT 1; ALTER USER {me} PASSWORD {new}; SELECT 2",
    ],
)
@pytest.mark.parametrize("hashed", [True, False])
def test_the_new_password_counts_from_the_next_login_on(
    proxy: Proxy, conn: psycopg.Connection, analyst: str, statement: str, hashed: bool
) -> None:
    new = "what's new, \N{GREEK SMALL LETTER PI}?"
    sent = conn.pgconn.encrypt_password(new.encode(), analyst.encode(), b"scram-sha-256").decode() if hashed else new
    text = statement.replace("{me}", f'"{analyst}"').replace("{new}", sql.Literal(sent).as_string(conn))
    status = conn.execute(text).statusmessage
    assert status == ("SELECT 1" if statement.startswith("SELECT") else "ALTER ROLE")
    assert conn.execute("SELECT current_user").fetchone() == (analyst,), "the session goes on"
    assert may_enter(proxy, analyst, new) and not may_enter(proxy, analyst, analyst)


def test_it_counts_on_every_proxy(proxy: Proxy, conn: psycopg.Connection, analyst: str, secure: Proxy) -> None:
    assert may_enter(secure, analyst, analyst)
    conn.execute("ALTER ROLE CURRENT_USER PASSWORD 'another'")
    assert may_enter(secure, analyst, "another") and not may_enter(secure, analyst, analyst)


@pytest.mark.parametrize("binary", [False, True])
def test_the_extended_protocol_does_the_same(proxy: Proxy, analyst: str, binary: bool) -> None:
    with proxy.connect(analyst) as conn:
        done = conn.execute("ALTER ROLE CURRENT_USER PASSWORD 'extended'", (), prepare=True, binary=binary)
        assert (done.statusmessage, done.description) == ("ALTER ROLE", None)
    assert may_enter(proxy, analyst, "extended")


def test_parsing_and_describing_change_nothing(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        wire.send(
            m.encode_parse("p", "ALTER ROLE CURRENT_USER PASSWORD 'not yet'"),
            m.encode_describe(m.STATEMENT, "p"),
            m.encode_bind("", "p"),
            m.encode_describe(m.PORTAL, ""),
            m.encode_sync(),
        )
        kinds = [kind for kind, _ in wire.until(m.READY_FOR_QUERY)]
        assert kinds == [
            *(m.PARSE_COMPLETE, m.PARAMETER_DESCRIPTION, m.NO_DATA),
            *(m.BIND_COMPLETE, m.NO_DATA, m.READY_FOR_QUERY),
        ]
        assert may_enter(proxy, analyst, analyst)
        wire.send(m.encode_bind("", "p"), m.encode_execute(""), m.encode_sync())
        assert sqlstates(wire.until(m.READY_FOR_QUERY)) == []
    assert may_enter(proxy, analyst, "not yet")


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("ALTER ROLE {other} PASSWORD 'x'", "42501"),
        ("ALTER USER {other} PASSWORD 'x'", "42501"),
        ("ALTER USER \"current_user\" PASSWORD 'x'", "42501"),
        ("ALTER ROLE postgres PASSWORD 'x'", "42501"),
        ("ALTER ROLE {other} SUPERUSER", "42501"),
        ("ALTER ROLE CURRENT_USER PASSWORD NULL", "0A000"),
        ("ALTER ROLE CURRENT_USER PASSWORD 'x' VALID UNTIL 'infinity'", "0A000"),
        ("ALTER ROLE CURRENT_USER VALID UNTIL 'infinity'", "0A000"),
        ("ALTER ROLE CURRENT_USER SUPERUSER", "0A000"),
        ("ALTER ROLE CURRENT_USER CONNECTION LIMIT 3 PASSWORD 'x'", "0A000"),
        ("ALTER ROLE CURRENT_USER UNENCRYPTED PASSWORD 'x'", "0A000"),
        ("ALTER ROLE CURRENT_USER PASSWORD 'md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "0A000"),
        ("ALTER ROLE CURRENT_USER PASSWORD U&'\\0041'", "0A000"),
        ("ALTER ROLE CURRENT_USER PASSWORD E'\\101'", "0A000"),
        ("ALTER ROLE CURRENT_USER PASSWORD ''", "22023"),
        ("ALTER ROLE CURRENT_USER PASSWORD 'SCRAM-SHA-256$1:x$y:z'", "22023"),
        ("ALTER ROLE CURRENT_USER PASSWORD hunter2", "42601"),
        ("ALTER ROLE CURRENT_USER PASSWORD", "42601"),
    ],
)
def test_all_else_about_roles_is_refused(
    proxy: Proxy, conn: psycopg.Connection, analyst: str, upstream: str, statement: str, sqlstate: str
) -> None:
    other = new_analyst(upstream)
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(statement.replace("{other}", other))
    assert caught.value.sqlstate == sqlstate
    assert may_enter(proxy, analyst, analyst) and may_enter(proxy, other, other)


def test_the_refused_part_is_pointed_at(conn: psycopg.Connection) -> None:
    text = "ALTER ROLE CURRENT_USER PASSWORD 'x' VALID UNTIL 'infinity'"
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        conn.execute("SELECT 1; " + text)
    assert caught.value.diag.statement_position == str(len("SELECT 1; ") + text.index("VALID") + 1)
    assert "PASSWORD" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize(
    ("constant", "password"),
    [("E'back\\\\slash'", "back\\slash"), ("$$it's$$", "it's"), ("$q$ x $q$", " x "), ("'a\\b'", "a\\b")],
)
def test_constants_mean_what_they_mean_in_postgresql(
    proxy: Proxy, conn: psycopg.Connection, analyst: str, constant: str, password: str
) -> None:
    conn.execute(f"ALTER ROLE CURRENT_USER PASSWORD {constant}")
    assert may_enter(proxy, analyst, password)


def test_settings_of_a_role_are_none_of_this(conn: psycopg.Connection) -> None:
    assert conn.execute("ALTER ROLE CURRENT_USER SET work_mem = '1MB'").statusmessage == "ALTER ROLE"
    assert conn.execute("ALTER ROLE CURRENT_USER RESET work_mem").statusmessage == "ALTER ROLE"


def test_rollback_does_not_undo_it_and_a_notice_says_so(proxy: Proxy, analyst: str) -> None:
    with proxy.connect(analyst, autocommit=False) as conn:
        heard: list[str] = []
        conn.add_notice_handler(lambda diag: heard.append(diag.message_primary or ""))
        conn.execute("ALTER ROLE CURRENT_USER PASSWORD 'kept'")
        conn.rollback()
        assert heard == ["veil: the password is changed at once; ROLLBACK does not undo it"]
    assert may_enter(proxy, analyst, "kept")


@pytest.mark.parametrize(("begin", "sqlstate"), [("BEGIN; SELECT 1/0", "25P02"), ("BEGIN READ ONLY", "25006")])
def test_where_postgresql_would_refuse_it_nothing_is_changed(
    proxy: Proxy, conn: psycopg.Connection, analyst: str, begin: str, sqlstate: str
) -> None:
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        conn.execute(begin)
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("ALTER ROLE CURRENT_USER PASSWORD 'x'")
    assert caught.value.sqlstate == sqlstate
    conn.execute("ROLLBACK")
    assert may_enter(proxy, analyst, analyst)


def test_an_analyst_who_was_deactivated_changes_nothing(
    proxy: Proxy, conn: psycopg.Connection, analyst: str, upstream: str
) -> None:
    with psycopg.connect(upstream, autocommit=True) as admin:
        admin.execute("UPDATE provenance.analyst SET active = false WHERE name = %s", (analyst,))
        with pytest.raises(psycopg.Error) as caught:
            conn.execute("ALTER ROLE CURRENT_USER PASSWORD 'x'")
        assert caught.value.sqlstate == "28000"
        admin.execute("UPDATE provenance.analyst SET active = true WHERE name = %s", (analyst,))
    assert may_enter(proxy, analyst, analyst)


def test_no_log_and_no_database_sees_the_password(
    own_proxy, upstream: str, shadow_server, postgres, analyst: str, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    """Whichever way it is sent, and also where it is refused; the shadow shows what it was sent in pg_stat_activity."""
    proxy = own_proxy()
    canary = "canary-7f3a9c"
    with proxy.connect(analyst) as conn, psycopg.connect(shadow_server.admin_dsn) as watcher:
        backend = conn.execute("SELECT pg_backend_pid()").fetchone()
        attempts = (
            f"ALTER ROLE CURRENT_USER PASSWORD '{canary}'",
            f"ALTER ROLE CURRENT_USER PASSWORD '{canary}' SUPERUSER",
            f"ALTER ROLE CURRENT_USER PASSWORD {canary}",
            f"ALTER ROLE postgres PASSWORD '{canary}'",
            f"SELECT 1; ALTER ROLE CURRENT_USER PASSWORD '{canary}'",
        )
        for text in attempts:
            for prepare in (False, True):
                with contextlib.suppress(psycopg.Error):
                    conn.execute(text, () if prepare else None, prepare=prepare)
                watcher.rollback()
                seen = watcher.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", backend).fetchone()
                assert seen is not None and canary not in seen[0]
    assert may_enter(proxy, analyst, canary)
    assert canary not in proxy.log.read_text()
    with psycopg.connect(upstream) as conn:
        stored = conn.execute("SELECT verifier FROM provenance.credential WHERE name = %s", (analyst,)).fetchone()
        assert stored is not None and stored[0].startswith("SCRAM-SHA-256$4096:")
        assert conn.execute("SELECT count(*) FROM provenance.charge WHERE analyst = %s", (analyst,)).fetchone() == (0,)


def test_a_raw_statement_with_several_parts_is_one_error(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        wire.send(
            m.encode_parse("", "ALTER ROLE CURRENT_USER PASSWORD 'a'; SELECT 1"),
            m.encode_bind("", ""),
            m.encode_execute(""),
            m.encode_sync(),
        )
        (told,) = errors(wire.until(m.READY_FOR_QUERY))
        assert told["C"] == "42601"
    assert may_enter(proxy, analyst, analyst)


@pytest.fixture
def administrator(upstream: str) -> str:
    name = new_analyst(upstream).replace("analyst", "administrator")
    with psycopg.connect(upstream, autocommit=True) as owner:
        owner.execute("SELECT provenance.create_administrator(%s, %s)", (name, name))
    return name


@pytest.mark.parametrize("role", ["CURRENT_USER", "pgveil_admin", "{me}"])
def test_an_administrator_changes_the_own_password_and_not_that_of_the_common_role(
    proxy: Proxy, administrator: str, role: str
) -> None:
    """psql's \\password names current_user, which for every administrator is pgveil_admin."""
    with proxy.connect(administrator) as conn:
        text = f"ALTER USER {role.replace('{me}', administrator)} PASSWORD 'of one administrator'"
        assert conn.execute(f"SELECT 1; {text}; SELECT count(*) FROM provenance.analyst".encode()).nextset()
        assert conn.execute("SELECT count(*) > 0 FROM provenance.analyst").fetchone() == (True,)
        assert conn.execute(text, prepare=True).statusmessage == "ALTER ROLE"
    assert may_enter(proxy, administrator, "of one administrator") and not may_enter(
        proxy, administrator, administrator
    )
    assert may_enter(proxy, "admin", "admin")


def test_an_administrator_s_script_is_still_no_question(proxy: Proxy, administrator: str, analyst: str) -> None:
    with proxy.connect(administrator) as conn:
        question = "SELECT count(*) FROM public.patient_data"
        for before in (question, f"PREPARE p AS {question}; EXECUTE p"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for"):
                conn.execute(f"{before}; ALTER ROLE CURRENT_USER PASSWORD 'x'".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied to alter role") as caught:
            conn.execute(f"ALTER ROLE {analyst} PASSWORD 'x'".encode())
        assert "provenance.set_password" in (caught.value.diag.message_hint or "")
    assert may_enter(proxy, administrator, administrator) and may_enter(proxy, analyst, analyst)


@pytest.mark.skipif(shutil.which("psql") is None, reason="there is no psql")
def test_psql_changes_it_with_its_own_command(proxy: Proxy, analyst: str) -> None:
    """\\password asks at a terminal, so it gets one."""
    terminal, other_end = pty.openpty()
    command = ["psql", "-X", "-c", "\\password", proxy.dsn(analyst)]
    process = subprocess.Popen(command, stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True)
    os.close(other_end)
    said, answered, deadline = b"", 0, time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
            if said.count(b": ") > answered and answered < 2:
                os.write(terminal, b"from a terminal\n")
                answered += 1
    finally:
        os.close(terminal)
        code = process.wait(60)
    assert code == 0, said
    assert may_enter(proxy, analyst, "from a terminal")
