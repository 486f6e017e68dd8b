"""The hospitals of ``attack_world``, one with the victim and one without."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import psycopg
import pytest
import question_world
from attack_world import Hospital, Thief, build, proxy_here

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def twins(postgres, shadow_server) -> Iterator[tuple[Hospital, Hospital]]:  # type: ignore[no-untyped-def]
    """(with the victim, without)."""
    first = build(postgres.new_database("twin"), victim=True)
    second = build(postgres.new_database("twin"), victim=False)
    with (
        proxy_here(first, shadow_server.admin_dsn) as one,
        proxy_here(second, shadow_server.admin_dsn) as other,
    ):
        yield one, other


@pytest.fixture(scope="session")
def hospital(twins: tuple[Hospital, Hospital]) -> Hospital:
    """The one with the victim."""
    return twins[0]


@pytest.fixture
def names() -> Callable[[], str]:
    """Fresh names for analysts, all of one length."""
    return lambda: f"spy_{os.getpid()}_{next(_numbers):05}"


@pytest.fixture(scope="module")
def thief(hospital: Hospital) -> Iterator[Thief]:
    """One session for a whole table of statements that must be refused: whoever is refused pays nothing."""
    name = hospital.new_analyst(f"thief_{os.getpid()}_{next(_numbers)}")
    with hospital.connect(name) as conn:
        yield Thief(hospital, name, conn)


@pytest.fixture
def spy(hospital: Hospital, names: Callable[[], str]) -> str:
    """A fresh analyst of the hospital with the victim."""
    return hospital.new_analyst(names())


@pytest.fixture
def session(hospital: Hospital, spy: str) -> Iterator[psycopg.Connection]:
    with hospital.connect(spy) as conn:
        yield conn


@pytest.fixture(scope="session")
def questions_dsn(postgres) -> str:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("questions")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(question_world.SCHEMA)
    return dsn


@pytest.fixture
def server(questions_dsn: str) -> Iterator[question_world.Server]:
    """The tables of ``question_world``; what a test does to them is gone afterwards."""
    with psycopg.connect(questions_dsn) as conn:
        conn.execute("SET TIME ZONE 'Europe/Berlin'")
        yield question_world.Server(conn)
        conn.rollback()
