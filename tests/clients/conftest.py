"""A pgveil with TLS on the demo data, and the agents of the clients that this machine has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from certificates import make_certificate
from drive import Agent
from matrix import CLIENTS, Client
from outcomes import Outcomes, filled
from proxies import Proxy, new_analyst, running_proxy

from provenance.migrate import migrate
from proxy import demo


@pytest.fixture(scope="session")
def upstream(postgres) -> str:  # type: ignore[no-untyped-def]
    """A database with the demo, and a table limit that tests do not reach by accident."""
    dsn: str = postgres.new_database("clients")
    migrate(dsn)
    demo.load(dsn)
    demo.register(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        # A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000, scan_floor = 0")
    return dsn


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The proxy's certificate, its key, and the certificate of a stranger."""
    ours, stranger = tmp_path_factory.mktemp("tls"), tmp_path_factory.mktemp("stranger")
    return *make_certificate(ours, "localhost"), make_certificate(stranger, "localhost")[0]


@pytest.fixture(scope="session")
def tls(certificates: tuple[Path, Path, Path]) -> tuple[str, ...]:
    return ("--tls-cert", str(certificates[0]), "--tls-key", str(certificates[1]))


@pytest.fixture(scope="session")
def proxy(upstream: str, shadow_server, tls: tuple[str, ...], tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    with running_proxy(upstream, shadow_server.admin_dsn, log, options=tls) as running:
        yield running


@pytest.fixture
def analyst(upstream: str) -> str:
    """A fresh analyst with the largest privilege; the password is the name."""
    return new_analyst(upstream)


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Agent]]:
    """The agent of a client, or another one of it, started when it is first needed."""
    folder = tmp_path_factory.mktemp("agents")
    started: dict[tuple[str, int], Agent] = {}

    def agent(client: Client, number: int = 0) -> Agent:
        key = client.name, number
        if key not in started or started[key].process.poll() is not None:
            log = folder / f"{client.command[1].rpartition('/')[2]}.{len(started)}.log"
            started[key] = Agent(client, log)
        return started[key]

    yield agent
    for one in started.values():
        one.stop()


@pytest.fixture(scope="session")
def outcomes() -> Iterator[Outcomes]:
    """What came of every check; written as a page where ``PGVEIL_CLIENT_TABLE`` says, and in short into the README
    that ``PGVEIL_CLIENT_README`` names.
    """
    found = Outcomes()
    yield found
    if path := os.environ.get("PGVEIL_CLIENT_TABLE"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(found.page(CLIENTS))
    if path := os.environ.get("PGVEIL_CLIENT_README"):
        Path(path).write_text(filled(Path(path).read_text(), found.page(CLIENTS)))
