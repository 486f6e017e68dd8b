"""The command line as a stranger meets it: help, mistakes, signals, and what is left behind (nothing)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from psycopg.conninfo import conninfo_to_dict
from raw_wire import Wire

from provenance.migrate import migrate
from proxy import messages as m
from proxy.__main__ import main
from proxy.embedded import OLDEST, Cluster

ROOT = Path(__file__).parents[2]
COMMANDS = ("init", "serve", "demo", "demo-load", "status")
PROBLEM = "Traceback"


@dataclass(frozen=True)
class Told:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def pgveil(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Run a command to its end, in this process: a new one takes a second to start."""
    for name in [name for name in os.environ if name.startswith("PGVEIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGAPPNAME", "")  # which ``serve`` sets: put back at the end

    def run(*arguments: str, **environment: str) -> Told:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        return Told(code, *capfd.readouterr())

    return run


Run = Callable[..., Told]


def _environment(**more: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("PGVEIL_")} | more


@contextmanager
def started(*arguments: str, ready: str = "pgveil ready", **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that serves, from the moment it is ready; killed with all its children if a test forgets it."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=_environment(**environment),
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if ready in line:
                    break
            else:
                errors.seek(0)
                raise AssertionError(f"ended with {process.wait()}: {errors.read()}")
            yield process
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.stdout.close()
            process.wait()


@pytest.fixture
def home() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pgveil-") as name:
        yield name


# -- help and mistakes ------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_the_environment(pgveil: Run) -> None:
    told = pgveil("--help")
    assert told.code == 0 and all(command in told.out for command in COMMANDS)
    assert "PGVEIL_UPSTREAM" in told.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_in_which_each_option_has_a_sentence(pgveil: Run, command: str) -> None:
    told = pgveil(command, "--help")
    assert told.code == 0
    assert "Undefined" not in told.out and "None" not in told.out
    assert ("--upstream" in told.out) == (command != "demo")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "command"),
        (("dance",), "dance"),
        (("serve", "--bogus"), "--bogus"),
        (("serve",), "--upstream (or PGVEIL_UPSTREAM) is required"),
        (("init",), "--upstream (or PGVEIL_UPSTREAM) is required"),
        (("serve", "--upstream", "nonsense"), "not a PostgreSQL connection string"),
        (("serve", "--upstream", "host=x", "--listen", "6543"), "expected HOST:PORT, for example"),
        (("serve", "--upstream", "host=x", "--max-connections", "many"), "--max-connections"),
        (("serve", "--upstream", "host=x", "--log-level", "loud"), "'DEBUG', 'INFO'"),
        (("serve", "--upstream", "host=x", "--tls-cert", __file__), "go together"),
        (("demo", "--listen", "nowhere"), "expected HOST:PORT"),
    ],
)
def test_a_wrong_command_line_is_exit_2_and_a_sentence(pgveil: Run, arguments: tuple[str, ...], words: str) -> None:
    told = pgveil(*arguments)
    assert told.code == 2, told.err
    assert words in told.err and PROBLEM not in told.err


def test_a_bad_environment_is_told_by_its_name(pgveil: Run) -> None:
    told = pgveil("serve", PGVEIL_UPSTREAM="host=x", PGVEIL_LISTEN="here")
    assert told.code == 2 and "PGVEIL_LISTEN" in told.err and PROBLEM not in told.err


@pytest.mark.parametrize("command", ["serve", "init", "demo-load"])
def test_an_unreachable_upstream_is_exit_1_and_a_sentence(pgveil: Run, command: str) -> None:
    dsn = "postgresql://reader:swordfish@127.0.0.1:1/clinic"
    told = pgveil(command, "--upstream", dsn)
    assert told.code == 1
    assert "cannot reach" in told.err and "--upstream" in told.err
    assert PROBLEM not in told.err and "swordfish" not in told.err
    assert told.err.count("\n") == 1


def test_an_unreachable_shadow_is_exit_1_and_says_that_it_is_the_shadow(pgveil: Run, upstream: str) -> None:
    told = pgveil("serve", "--upstream", upstream, "--shadow", "host=127.0.0.1 port=1", "--listen", "127.0.0.1:0")
    assert told.code == 1
    assert "cannot reach the shadow (--shadow)" in told.err and PROBLEM not in told.err


def test_a_port_in_use_is_exit_1_and_names_the_option(pgveil: Run, upstream: str, shadow_server) -> None:  # type: ignore[no-untyped-def]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        told = pgveil("serve", "--upstream", upstream, "--shadow", shadow_server.admin_dsn, "--listen", where)
    assert told.code == 1
    assert f"cannot listen on {where}: Address already in use" in told.err and "--listen" in told.err
    assert PROBLEM not in told.err


def test_a_certificate_that_is_none_is_exit_1(pgveil: Run, upstream: str, shadow_server) -> None:  # type: ignore[no-untyped-def]
    told = pgveil(
        *("serve", "--upstream", upstream, "--shadow", shadow_server.admin_dsn, "--listen", "127.0.0.1:0"),
        *("--tls-cert", __file__, "--tls-key", __file__),
    )
    assert told.code == 1 and "--tls-cert" in told.err and PROBLEM not in told.err


# -- init, status, demo-load ------------------------------------------------------------------------------------------


def test_init_twice_changes_nothing_the_second_time(pgveil: Run, database: str) -> None:
    first = pgveil("init", "--upstream", database)
    assert first.code == 0 and "applied 0001" in first.out and "create_analyst" in first.out
    again = pgveil("init", PGVEIL_UPSTREAM=database)
    assert again.code == 0 and "applied" not in again.out and "up to date" in again.out


def test_status_before_init_says_what_to_do(pgveil: Run, database: str) -> None:
    told = pgveil("status", "--upstream", database, "--listen", "127.0.0.1:1")
    assert told.code == 1
    assert "run pgveil init" in told.out and "does not answer" in told.out and PROBLEM not in told.err


def test_status_is_a_table_of_health_replicas_and_budgets(pgveil: Run, proxy: Proxy, upstream: str) -> None:
    analyst = new_analyst(upstream)
    told = pgveil("status", "--upstream", upstream, "--listen", f"127.0.0.1:{proxy.port}")
    assert told.code == 0, told.out + told.err
    lines = told.out.splitlines()
    assert "accepts connections" in lines[0] and "reachable" in lines[1]
    (replicas,) = [line for line in lines if line.startswith("replicas")]
    assert f"/{proxy.process.pid}" in replicas
    header = next(i for i, line in enumerate(lines) if line.startswith("analyst"))
    assert lines[header].split() == ["analyst", "spent", "limit", "left"]
    assert any(line.split()[0] == analyst and line.split()[1].startswith("0") for line in lines[header + 1 :])
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("SELECT provenance.limit_relation('patient_data', 5, 100)")
        told = pgveil("status", "--upstream", upstream, "--listen", f"127.0.0.1:{proxy.port}")
        conn.execute("SELECT provenance.limit_relation('patient_data', NULL)")
        conn.execute("UPDATE provenance.deployment SET period = '1 month'")
        growing = pgveil("status", "--upstream", upstream, "--listen", f"127.0.0.1:{proxy.port}")
        conn.execute("UPDATE provenance.deployment SET period = NULL")
    assert "periods     1 of 1 mon; limits grow again at 20" in growing.out and "periods" not in told.out
    *_, title, relation = told.out.splitlines()
    assert title.split() == ["relation", "spent", "limit", "left", "noise"]
    name, _, limit, _, noise = relation.split()
    assert (name, float(limit), noise) == ("patient_data", 5, "100")


def test_status_of_what_is_down_is_exit_1(pgveil: Run, database: str) -> None:
    told = pgveil("status", "--upstream", "host=127.0.0.1 port=1", "--listen", "127.0.0.1:1")
    assert told.code == 1 and "not reachable" in told.out and PROBLEM not in told.err


def test_demo_load_fills_an_empty_database_once(pgveil: Run, database: str) -> None:
    told = pgveil("demo-load", "--upstream", database)
    assert told.code == 0 and "loaded and registered" in told.out, told.err
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM patient_data").fetchone() == (60_000,)
        assert conn.execute("SELECT count(*) FROM provenance.analyst").fetchone() == (3,)
    assert pgveil("demo-load", "--upstream", database).code == 0
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM patient_data").fetchone() == (60_000,)


# -- serve ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything_whatever_a_client_is_doing(upstream: str, home: str, word: signal.Signals) -> None:
    """With an embedded shadow and a client that is in the middle of something."""
    analyst = new_analyst(upstream)
    with started("serve", PGVEIL_UPSTREAM=upstream, PGVEIL_HOME=home, PGVEIL_LISTEN="127.0.0.1:0") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("postgres" in child.name() for child in children)
        (port,) = [
            each.laddr.port
            for each in psutil.Process(process.pid).net_connections("tcp4")
            if each.status == psutil.CONN_LISTEN
        ]
        database = conninfo_to_dict(upstream)["dbname"]
        with Wire(port) as wire:
            wire.login(analyst, str(database))
            wire.send(m.encode_query("SELECT pg_sleep(600)"))
            time.sleep(0.2)
            process.send_signal(word)
            assert process.wait(60) == 0
            assert b"57P01" in b"".join(frame for _, frame in wire.the_rest())
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive


def test_a_home_in_use_is_refused_and_the_first_goes_on(pgveil: Run, upstream: str, home: str) -> None:
    with Cluster(Path(home) / "shadow", version=OLDEST):
        told = pgveil("serve", "--upstream", upstream, "--home", home, "--listen", "127.0.0.1:0")
        assert told.code == 1
        assert "in use by another pgveil" in told.err and "PGVEIL_HOME" in told.err
        assert PROBLEM not in told.err


def test_the_log_level_is_obeyed(upstream: str, shadow_server, own_proxy) -> None:  # type: ignore[no-untyped-def]
    quiet = own_proxy(options=("--log-level", "error"))
    talking = own_proxy(options=("--log-level", "info"))
    assert "registry version" in talking.log.read_text()
    assert quiet.log.read_text() == ""


# -- losing the ledger ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_world() -> Iterator[tuple[Cluster, str]]:
    """A PostgreSQL of its own, that a test may stop, with one small protected table."""
    with (
        tempfile.TemporaryDirectory(prefix="pgveil-") as name,
        Cluster(Path(name), settings={"fsync": "off"}) as cluster,
    ):
        with psycopg.connect(cluster.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE clinic")
        dsn = cluster.dsn("clinic")
        migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("CREATE TABLE visit (ward text NOT NULL)")
            conn.execute("INSERT INTO visit SELECT 'w' || i % 3 FROM generate_series(1, 3000) i")
            conn.execute("SELECT provenance.protect('visit')")
            conn.execute("SELECT provenance.declare_attribute('visit', 'ward', members => '{w0,w1,w2}'::text[])")
            conn.execute("SELECT provenance.create_analyst('ann', 'ann', 10)")
        yield cluster, dsn


def test_without_its_ledger_the_proxy_refuses_and_then_recovers(
    small_world: tuple[Cluster, str],
    shadow_server,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    cluster, dsn = small_world
    asked = "SELECT ward, count(*) FROM visit GROUP BY ward"
    with running_proxy(dsn, shadow_server.admin_dsn, tmp_path / "log") as proxy, proxy.connect("ann") as session:
        assert len(session.execute(asked).fetchall()) == 3
        cluster.stop()
        with pytest.raises(psycopg.Error) as refused:
            session.execute("SELECT ward FROM visit GROUP BY ward HAVING count(*) > 5")
        assert refused.value.sqlstate == "58000"
        assert session.execute("SELECT 1").fetchone() == (1,), "what is not a question does not need the ledger"
        with pytest.raises(psycopg.OperationalError, match="pgveil cannot reach one of its databases"):
            proxy.connect("ann")
        cluster.start()
        session.execute("SET veil.beta = '1e-10'")  # nobody is missed
        deadline = time.monotonic() + 60
        while True:
            try:
                rows = session.execute("SELECT ward FROM visit GROUP BY ward HAVING count(*) > 500").fetchall()
                break
            except psycopg.Error:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert sorted(rows) == [("w0",), ("w1",), ("w2",)]
        with proxy.connect("ann") as another:
            assert another.execute("SELECT 1").fetchone() == (1,)
        assert len(charges(dsn, "ann")) == 2, "what was refused was not charged"
    assert "incident" not in (tmp_path / "log").read_text() and PROBLEM not in (tmp_path / "log").read_text()
