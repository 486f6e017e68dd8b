"""Where the tests' PostgreSQL comes from: the wheel (default), a DSN, or a container.

``--postgres=wheel`` starts the embedded server; ``--postgres=dsn --postgres-dsn=...`` uses one that stands (as a
superuser; test databases and roles are made there); ``--postgres=docker`` asks testcontainers.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from proxy.embedded import OLDEST, temporary

# How long an example takes is a fact about the machine, and which examples are tried is the same in every run: what a
# landing is refused for must come again. ``--hypothesis-profile=search`` tries others each time.
settings.register_profile("pgveil", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pgveil")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pgveil")
    group.addoption("--postgres", choices=("wheel", "dsn", "docker"), default="wheel", help="where PostgreSQL is from")
    group.addoption("--postgres-dsn", default=os.environ.get("PGVEIL_TEST_DSN"), help="for --postgres=dsn")
    group.addoption(
        "--minutes",
        type=float,
        help="begin no more tests that are slow or of clients after so many minutes, and none that may take long after",
    )
    group.addoption("--vast", type=int, help="run only so many tests of the mark vast, chosen at random")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A sample of the vast tests, another one each time, so that all are run in the long run."""
    most = config.getoption("--vast")
    vast = [item for item in items if item.get_closest_marker("vast") is not None]
    if most is None or len(vast) <= most:
        return
    kept = set(secrets.SystemRandom().sample(vast, most))
    left_out = [item for item in vast if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


_BEGUN = time.monotonic()


_LATEST = 20  # minutes after the last test was begun by which all have ended


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What does not fit into the time of a run is for another one: the order is random."""
    minutes = item.config.getoption("--minutes")
    if minutes is None or not any(item.get_closest_marker(mark) is not None for mark in ("slow", "clients")):
        return
    own = item.get_closest_marker("timeout")
    most = own.args[0] if own is not None else item.config.getoption("timeout") or 0
    elapsed = time.monotonic() - _BEGUN
    if elapsed > 60 * minutes or elapsed + most > 60 * (minutes + _LATEST):
        pytest.skip(f"of {minutes:g} minutes there are too few left")


@dataclass(frozen=True)
class Postgres:
    """A real server on which tests may make databases."""

    admin_dsn: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def dsn(self, database: str, user: str | None = None) -> str:
        return make_conninfo(self.admin_dsn, dbname=database, **({"user": user} if user else {}))

    def new_database(self, prefix: str = "t", template: str = "template1") -> str:
        """The DSN of a fresh database."""
        name = f"{prefix}_{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.admin_dsn, autocommit=True) as conn:
            conn.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
            )
        return self.dsn(name)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """The server that plays the protected database."""
    match request.config.getoption("--postgres"):
        case "wheel":
            with temporary({"fsync": "off"}) as cluster:
                yield Postgres(cluster.dsn())
        case "dsn":
            dsn = request.config.getoption("--postgres-dsn")
            if not dsn:
                pytest.fail("--postgres=dsn needs --postgres-dsn or PGVEIL_TEST_DSN")
            yield Postgres(dsn)
        case _:
            yield from _container()


def _container() -> Iterator[Postgres]:
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer("postgres:18", driver=None) as container:
        yield Postgres(container.get_connection_url())


@pytest.fixture(scope="session")
def shadow_server() -> Iterator[Postgres]:
    """The server that plays the shadow: always the embedded one, as in a default installation."""
    with temporary({"fsync": "off", "max_connections": "300"}, version=OLDEST) as cluster:
        yield Postgres(cluster.dsn())


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The DSN of an empty database."""
    return postgres.new_database()
