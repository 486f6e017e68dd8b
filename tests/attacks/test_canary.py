"""Canaries: a random token in every private column; no byte that leaves the protected database may hold one.

Searched: everything that a client receives, the proxy's log and output, and the shadow's files, log included.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from attack_statements import DIFFERENTIALS, LANGUAGE, SIDE_DOORS
from attack_world import Ask, Hospital, angry, build, proxy_here, trace

from mechanisms.errors import Refusal
from provenance.model import Receipt
from proxy.backend import Reader, Take
from proxy.embedded import OLDEST, Cluster, temporary
from sqlrewrite.generate import Generated

QUESTIONS = [
    "SELECT count(*) FROM patient",
    "SELECT ward, count(*) FROM patient GROUP BY ward",
    "SELECT ward FROM patient GROUP BY ward HAVING count(*) > 1",
    "SELECT born, seen, count(*) FROM patient GROUP BY born, seen",
    "SELECT code, count(*) FROM patient GROUP BY code ORDER BY 2 DESC LIMIT 1",
    "SELECT stay, count(*) FROM patient GROUP BY stay",
    "SELECT count(*) FROM patient WHERE name > 'a' AND age > 0 AND fee > 0 AND weight > 0",
    "SELECT ward, month, count(*) FROM visit GROUP BY ward, month",
    "SELECT month FROM visit GROUP BY month HAVING count(*) < 1000",
]
BROKEN = [
    "SELECT count(*) FROM patient WHERE",
    "SELECT count(*) FROM patient WHERE nonsense = 1",
    "SELECT count(*) FROM patient WHERE age = 'abc'",
    "SELECT count(*) FROM patient WHERE born = '2024-99-99'",
    "SELECT count(*) FROM patient WHERE name = '",
    "SELECT count(*) FROM patient; SELECT name FROM patient; SELECT 1",
    "BEGIN; SELECT count(*) FROM patient; SELECT name FROM patient; COMMIT",
    "ROLLBACK",
    "SET veil.epsilon = 'nonsense'; SELECT count(*) FROM patient",
    "SELECT 1/0 FROM patient",
]
EVERYTHING = [*QUESTIONS, *BROKEN, *LANGUAGE.values(), *SIDE_DOORS.values(), *DIFFERENTIALS.values()]


@dataclass(frozen=True)
class Canaries:
    """The tokens, by the column that they were put into."""

    tokens: dict[str, str]

    def found_in(self, data: bytes) -> list[str]:
        """Columns of which a token is there: as text, and for numbers as PostgreSQL stores them."""
        found = []
        for column, token in self.tokens.items():
            forms = [token.encode(), token.encode("utf-16-le"), token.encode().hex().encode()]
            if token.isdigit():
                forms += [int(token).to_bytes(8, "little"), int(token).to_bytes(8, "big")]
            if any(form in data for form in forms):
                found.append(column)
        return found


def plant(dsn: str) -> Canaries:
    """Fill a hospital's tables with tokens only."""
    dice = random.Random(20260702)
    words = {column: f"canary{dice.getrandbits(64):016x}" for column in ("name", "ward", "person", "place")}
    numbers = {column: str(dice.randrange(10**17, 10**18)) for column in ("id", "fee", "visit", "cost")}
    year, days = dice.randrange(7000, 9000), dice.randrange(10**5, 10**6)
    dates = {"born": f"{year}-07-13", "seen": f"{year}-08-14 12:34:56", "stay": f"{days} days"}
    tokens = {**words, **numbers, **dates, "code": f"{dice.getrandbits(32):08x}"}
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("TRUNCATE patient, visit")
        conn.execute(
            "INSERT INTO patient (id, name, age, born, seen, ward, fee, weight, code, stay)"
            " VALUES (%(id)s::bigint, %(name)s, 1, %(born)s::date, %(seen)s::timestamp, %(ward)s, %(fee)s::numeric, 1,"
            " %(code)s, %(stay)s::interval)",
            tokens,
        )
        conn.execute(
            "INSERT INTO visit SELECT %(visit)s::bigint + i, %(person)s, %(place)s, %(born)s::date, %(cost)s::numeric"
            " FROM generate_series(0, 50) i",
            tokens,
        )
    return Canaries(tokens)


@dataclass(frozen=True)
class Aviary:
    upstream: str
    shadow: Cluster
    canaries: Canaries

    def files(self) -> list[str]:
        """Columns whose token is in any file of the shadow."""
        with psycopg.connect(self.shadow.dsn(), autocommit=True) as admin:
            admin.execute("CHECKPOINT")
        found: list[str] = []
        for path in sorted(self.shadow.directory.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # a running server removes files of its own, too
                if path.is_file() and not path.is_socket():
                    found += self.canaries.found_in(path.read_bytes())
        return found


@pytest.fixture(scope="module")
def aviary(postgres) -> Iterator[Aviary]:  # type: ignore[no-untyped-def]
    """A hospital full of canaries, and a shadow of its own whose files can be searched."""
    upstream = build(postgres.new_database("canary"), victim=False)
    canaries = plant(upstream)
    with temporary({"fsync": "off"}, version=OLDEST) as shadow:
        yield Aviary(upstream, shadow, canaries)


def sing(hospital: Hospital, name: str, statements: list[str]) -> bytes:
    """Everything that a client receives."""
    hospital.new_analyst(name)
    hospital.forget()
    with hospital.connect(name) as session:
        return "".join(trace(session, Ask(sql)) for sql in statements).encode()


def test_no_canary_leaves_the_protected_database(aviary: Aviary, tmp_path: Path) -> None:
    """A real proxy process; refused, broken and answered statements; then every byte is searched."""
    log = tmp_path / "proxy.log"
    # Not refused here: tables whose rows raise errors, by policies, as broken disks would.
    trusting = str(Path(__file__).parents[1] / "system" / "trusting.py")
    command = [sys.executable, trusting, "serve", "--upstream", aviary.upstream, "--shadow", aviary.shadow.dsn()]
    command += ["--listen", "127.0.0.1:0", "--log-level", "DEBUG"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=Path(__file__).parents[2]
        )
    assert process.stdout is not None
    try:
        ready = next(line for line in process.stdout if "pgveil ready" in line)
        hospital = Hospital(aviary.upstream, int(ready.rpartition(":")[2]))
        heard = sing(hospital, "birdwatcher", EVERYTHING)
        for table in ("patient", "visit"):
            with angry(hospital, table, f"{table}::text"):
                heard += sing(hospital, f"birdwatcher_{table}", QUESTIONS)
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=120)
    assert b"58000" in heard, "the protected database's own errors were among what was tried"
    assert aviary.canaries.found_in(heard) == []
    assert aviary.canaries.found_in(log.read_bytes() + rest.encode()) == []
    assert aviary.files() == []


def test_an_error_text_that_passes_is_heard(aviary: Aviary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the text of the protected database's error goes to the client."""

    async def passes(self: Reader, receipt: Receipt, query: Generated, take: Take[Any]) -> Any:
        try:
            async with psycopg.AsyncRawCursor(self._conn) as cursor:
                await cursor.execute(query.sql.encode(), query.parameters, binary=True)
                return take(await cursor.fetchall())
        except psycopg.Error as failure:
            raise Refusal(str(failure)) from None

    with proxy_here(aviary.upstream, aviary.shadow.dsn()) as hospital, angry(hospital):
        assert aviary.canaries.found_in(sing(hospital, "quiet", QUESTIONS[:1])) == []
        monkeypatch.setattr(Reader, "measure", passes)
        assert aviary.canaries.found_in(sing(hospital, "talkative", QUESTIONS[:1])) == ["name"]


def test_a_canary_in_the_shadows_files_is_found(aviary: Aviary) -> None:
    """The search itself: what is put into the shadow is found there. (Other tokens than above: files remember.)"""
    others = Canaries({"name": "canary-that-flew-off", "id": "271828182845904523"})
    with psycopg.connect(aviary.shadow.dsn(), autocommit=True) as admin:
        told = (others.tokens["name"], others.tokens["id"])
        admin.execute("CREATE TABLE nest AS SELECT %s::text AS name, %s::bigint AS id", told)
    assert {"name", "id"} <= set(Aviary(aviary.upstream, aviary.shadow, others).files())
