"""Two small hospitals that differ in one person, a proxy inside the test process, and all that a client sees of it.

The proxy runs in a thread of the test process, so that a bug can be planted while it runs (``monkeypatch``) and a test
be seen to go red. What a client sees is libpq's own trace: every message with every field.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from provenance import structure
from provenance.migrate import migrate
from proxy.runtime import running
from proxy.server import Server
from proxy.settings import Settings

VICTIM = "victim"

SCHEMA = """
CREATE TABLE patient (
    id bigint PRIMARY KEY, name text, age int, born date, seen timestamp, at timestamptz, ward text, fee numeric,
    weight double precision, insured boolean, code char(8), stay interval, image point[]);
CREATE TABLE visit (id bigint PRIMARY KEY, person text, ward text, month date, cost numeric);
CREATE TABLE ward (ward text, beds int);
INSERT INTO ward VALUES ('north', 20), ('south', 30), ('attic', 1);
INSERT INTO patient
SELECT i, 'n' || i, i % 90, date '1950-01-01' + i, timestamp '2024-01-01' + (i % 3) * interval '1 day',
       timestamptz '2024-01-01 00:00Z' + (i % 3) * interval '1 day', (ARRAY['north', 'south'])[1 + i % 2], i, i,
       i % 2 = 0, 'c' || i % 5, '1 day', '{}'
FROM generate_series(1, 200) i;
INSERT INTO visit SELECT i, 'p' || i % 60, (ARRAY['north', 'south'])[1 + i % 2], date '2024-01-01' + 31 * (i % 2), i
FROM generate_series(1, 300) i;
"""

# The one who is in one hospital and not in the other has whatever may trip a reader up.
THE_VICTIM = """
INSERT INTO patient VALUES (-1, 'victim', 2147483647, 'infinity', '-infinity', '4713-01-01 BC', 'no such ward', 'NaN',
    'NaN', NULL, 'c1', '24:00:00', '{"(1,2)"}');
INSERT INTO visit SELECT -i, 'victim', (ARRAY['north', 'south', 'attic', 'no such ward', NULL])[1 + i % 5],
    (ARRAY['2024-01-01', '2024-02-01', 'infinity', '0044-03-15 BC', NULL]::date[])[1 + i % 5], 'Infinity'
FROM generate_series(1, 3000) i;
"""

REGISTER = """
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0;
SELECT provenance.protect('patient'), provenance.protect('visit', 'person', 2, 3), provenance.publish('ward');
SELECT provenance.declare_attribute('patient', 'ward', members_from => 'ward.ward');
SELECT provenance.declare_attribute('patient', 'age', lower => 0, upper => 3, step => 1);
SELECT provenance.declare_attribute('patient', 'born', members => ARRAY['1950-01-02', '1950-01-03']);
SELECT provenance.declare_attribute('patient', 'seen', members => ARRAY['2024-01-01', '2024-01-02']);
SELECT provenance.declare_attribute('patient', 'at', members => ARRAY['2024-01-01 00:00Z', '2024-01-02 00:00Z']);
SELECT provenance.declare_attribute('patient', 'insured', members => ARRAY['false', 'true']);
SELECT provenance.declare_attribute('patient', 'code', members => ARRAY['c1', 'c2']);
SELECT provenance.declare_attribute('patient', 'stay', members => ARRAY['1 day', '2 days']);
SELECT provenance.declare_attribute('visit', 'ward', members_from => 'ward.ward');
SELECT provenance.declare_attribute('visit', 'month', members => ARRAY['2024-01-01', '2024-02-01']);
SELECT provenance.create_administrator('keeper', 'keeper');
"""


def build(dsn: str, *, victim: bool) -> str:
    """Make the hospital in an empty database."""
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        if victim:
            conn.execute(THE_VICTIM)
        conn.execute("CLUSTER patient USING patient_pkey")  # the victim's row lies first
        conn.execute(REGISTER)
    return dsn


@dataclass(frozen=True)
class Hospital:
    """A protected database with a proxy in front."""

    upstream: str
    port: int

    def new_analyst(self, name: str, epsilon: str | None = None) -> str:
        with psycopg.connect(self.upstream, autocommit=True) as conn:
            conn.execute("SELECT provenance.create_analyst(%s, %s, 10)", (name, name))
            if epsilon is not None:
                conn.execute("UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s", (epsilon, name))
        return name

    def forget(self) -> None:
        """New data: what was released before is no answer any more, so that questions are measured."""
        with psycopg.connect(self.upstream, autocommit=True) as conn:
            conn.execute("SELECT provenance.refresh('patient'), provenance.refresh('visit')")

    def connect(self, user: str, **more: Any) -> psycopg.Connection[Any]:
        database = conninfo_to_dict(self.upstream)["dbname"]
        dsn = make_conninfo(host="127.0.0.1", port=self.port, dbname=database, user=user, password=user, **more)
        return psycopg.connect(dsn, autocommit=True, sslmode="disable")

    def charges(self, analyst: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.upstream) as conn:
            return conn.execute(
                "SELECT id, charged FROM provenance.history WHERE analyst = %s ORDER BY id", (analyst,)
            ).fetchall()


@dataclass(frozen=True)
class Thief:
    """A session in which everything that is sent should be refused."""

    hospital: Hospital
    name: str
    session: psycopg.Connection[Any]

    def charges(self) -> list[tuple[Any, ...]]:
        return self.hospital.charges(self.name)


@contextmanager
def proxy_here(upstream: str, shadow: str) -> Iterator[Hospital]:
    """A proxy in a thread of this process."""
    started, told, failed = threading.Event(), {}, []
    home = tempfile.TemporaryDirectory(prefix="pgveil-anchor-")

    async def serve() -> None:
        anchor = Path(home.name) / "anchor.json"
        where = {"upstream": upstream, "shadow": shadow, "listen": "127.0.0.1:0", "anchor": anchor}
        settings = Settings.model_validate(where)
        async with running(settings, shadow) as runtime:
            server = Server(runtime)
            told.update(port=await server.start(), stop=asyncio.Event(), loop=asyncio.get_running_loop())
            started.set()
            await told["stop"].wait()
            await server.stop()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
            started.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(240)
    if failed:
        raise failed[0]
    try:
        yield Hospital(upstream, told["port"])
    finally:
        told["loop"].call_soon_threadsafe(told["stop"].set)
        thread.join(120)
        home.cleanup()


@dataclass(frozen=True)
class Ask:
    """A statement, and which of its output columns are noised; a decision's rows are noised as a whole."""

    sql: str
    noised: tuple[int, ...] = ()
    decision: bool = False
    parameters: tuple[Any, ...] | None = None


def trace(session: psycopg.Connection[Any], ask: Ask) -> str:
    """Every message of the server's answer, as libpq saw it."""
    with tempfile.TemporaryFile("w+b") as file:
        session.pgconn.trace(file.fileno())
        session.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            session.execute(ask.sql, ask.parameters)
        except psycopg.Error:
            pass
        except ValueError:  # psycopg cannot put the statement or the answer into Python: the bytes are traced already
            pass
        finally:
            session.pgconn.untrace()
        file.seek(0)
        return file.read().decode(errors="replace")


def sqlstate(session: psycopg.Connection[Any], sql: str, parameters: Sequence[Any] | None = None) -> str | None:
    """None if the statement was answered."""
    try:
        session.execute(sql, parameters)
    except psycopg.Error as error:
        return error.sqlstate or "no answer"
    return None


def without_noise(seen: str, ask: Ask, *names: str) -> list[str]:
    """The server's messages with the noised cells, and what follows from them, taken out."""
    kept = []
    for line in seen.splitlines():
        if not line.startswith("B\t"):
            continue
        _, _, kind, *rest = line.split("\t")
        body = "\t".join(rest)
        for name in names:
            body = body.replace(name, "<analyst>")
        if kind == "DataRow":
            if ask.decision:
                continue
            body = str(["#" if place in ask.noised else cell for place, cell in enumerate(_cells(body))])
        elif kind == "RowDescription":
            body = re.sub(r'" \d+ ', '" oid ', body)  # the number of a table on the shadow
        elif ask.decision and kind == "CommandComplete":
            body = "#"
        elif ask.decision and kind == "NoticeResponse":
            body = re.sub(r'("returned"|"uncertain"): \d+', r"\1: #", body)
        if kind == "NoticeResponse":
            body = re.sub(
                r'"as_of": "[-0-9T:]+Z"', '"as_of": "now"', body
            )  # when it was charged: two are asked in turn
        kept.append(f"{kind} {body}")
    return kept


def _cells(body: str) -> list[str | None]:
    count, _, rest = body.strip().partition(" ")
    cells: list[str | None] = []
    for _ in range(int(count)):
        size, _, rest = rest.partition(" ")
        if int(size) < 0:
            cells.append(None)
        else:
            cells.append(rest[1 : int(size) + 1])
            rest = rest[int(size) + 3 :]
    return cells


@contextmanager
def angry(hospital: Hospital, table: str = "patient", column: str = "name") -> Iterator[None]:
    """A protected table whose every row raises an error that quotes it: what a broken index or a bad disk would say."""
    # Tables with policies are refused; here one stands for what a disk does.
    trusting = mock.patch.object(structure, "barred", lambda rows: {})
    with trusting, psycopg.connect(hospital.upstream, autocommit=True) as owner:
        owner.execute(
            f"CREATE FUNCTION public.anger(value text) RETURNS boolean LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'bad row: %', value; END $$;"
            f" ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
            f" CREATE POLICY angry ON {table} USING (public.anger({column}::text))"
        )
        try:
            yield
        finally:
            owner.execute(
                f"DROP POLICY angry ON {table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;"
                " DROP FUNCTION public.anger"
            )
