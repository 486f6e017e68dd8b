"""A whole pgveil on the demo data: a protected PostgreSQL, a shadow, and a proxy process between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from proxies import CASES, Proxy, new_analyst, running_proxy
from psycopg.conninfo import conninfo_to_dict
from secured import make_certificate

from provenance.migrate import migrate
from proxy import demo


@pytest.fixture(scope="session")
def demo_template(postgres) -> str:  # type: ignore[no-untyped-def]
    """A database with the demo loaded and registered, and a table limit that tests do not reach by accident."""
    dsn: str = postgres.new_database("demo")
    migrate(dsn)
    demo.load(dsn)
    demo.register(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        # A least price that is a fraction of so large a limit would buy every question more than it asks for.
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000, scan_floor = 0")
    return dsn


@pytest.fixture(scope="session")
def new_upstream(postgres, demo_template: str) -> Callable[[], str]:  # type: ignore[no-untyped-def]
    """Copies the demo into a database of its own, for tests that change limits or the registry."""
    name = str(conninfo_to_dict(demo_template)["dbname"])
    return lambda: postgres.new_database("own", template=name)


@pytest.fixture(scope="session")
def upstream(new_upstream: Callable[[], str]) -> str:
    """The protected database of the shared proxy; nobody stays connected to the template, so it can be copied."""
    return new_upstream()


@pytest.fixture(scope="session")
def proxy(upstream: str, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """One proxy for all tests that do not kill it."""
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    with running_proxy(upstream, shadow_server.admin_dsn, log) as running:
        yield running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture(scope="session")
def secure(upstream: str, shadow_server, certificate: tuple[Path, Path], tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """A proxy with TLS."""
    options = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    log = tmp_path_factory.mktemp("secure") / "proxy.log"
    with running_proxy(upstream, shadow_server.admin_dsn, log, options=options) as running:
        yield running


@pytest.fixture
def analyst(upstream: str) -> str:
    """A fresh analyst with the largest privilege."""
    return new_analyst(upstream)


@pytest.fixture
def session(proxy: Proxy, analyst: str) -> Iterator[psycopg.Connection]:
    """A psycopg session of a fresh analyst."""
    with proxy.connect(analyst) as conn:
        yield conn


@pytest.fixture
def own_proxy(upstream: str, shadow_server, tmp_path: Path) -> Iterator[Callable[..., Proxy]]:  # type: ignore[no-untyped-def]
    """Starts proxies that the test may kill; those left are stopped."""
    from proxies import start_proxy

    started: list[Proxy] = []

    def start(**more) -> Proxy:  # type: ignore[no-untyped-def]
        one = start_proxy(upstream, shadow_server.admin_dsn, tmp_path / f"proxy{len(started)}.log", **more)
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


# -- the tables of the case files, and a proxy that adds no noise ------------------------------------------------------


@pytest.fixture(scope="session")
def case_database(postgres) -> str:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("cases")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute((CASES / "schema.sql").read_text())
        conn.execute((CASES / "register.sql").read_text())
    return dsn


@pytest.fixture(scope="session")
def noiseless(case_database: str, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """A proxy whose release step adds nothing."""
    log = tmp_path_factory.mktemp("noiseless") / "proxy.log"
    program = (str(Path(__file__).parent / "noiseless.py"),)
    with running_proxy(case_database, shadow_server.admin_dsn, log, program=program) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def asker(noiseless: Proxy, case_database: str) -> Iterator[psycopg.Connection]:
    with noiseless.connect(new_analyst(case_database)) as session:
        yield session


@pytest.fixture(scope="session")
def truth(case_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(case_database, autocommit=True) as conn:
        yield conn
