"""Two sessions of one analyst hear the same, frame by frame, whether answers are told at once or go the long way."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy
from raw_wire import Frame, Wire

from proxy import messages as m

VIEWS = ("{age}", "{gender}", "{age,gender}")
FORMS = (
    "SELECT count(*) FROM patient_data WHERE age >= {a}",
    "SELECT count(*) FROM patient_data WHERE age BETWEEN {a} AND {b}",
    "SELECT count(*) AS n, count(*) FROM patient_data WHERE age > {a} AND age <> {b}",
    "SELECT gender, count(*) FROM patient_data WHERE age < {a} GROUP BY gender",
    'SELECT count(*), gender AS "g""\'" FROM patient_data WHERE age < {a} AND age >= 7 GROUP BY 2;',
    "SELECT count(*) FROM patient_data WHERE gender = '{g}' AND (age = {a} OR age = {b})",
    "SELECT count(*) FROM patient_data WHERE gender = '{g}'",
    "select all count(*) from patient_data where age>={a}",
    "SELECT DISTINCT count(*) FROM patient_data WHERE age >= {a}",
    "SELECT count(*)::int FROM patient_data WHERE age >= {a} -- {b}",
    "SELECT gender, count(*) FROM patient_data WHERE age < {a} GROUP BY gender ORDER BY 2 LIMIT 2",
    "SELECT age, count(*) FROM patient_data WHERE gender <> '{g}' GROUP BY age",
    "SELECT count(*) FROM patient_data WHERE NOT age >= {a}",
)
BOUND = (
    ("SELECT count(*) FROM patient_data WHERE age >= $1", (23,)),
    ("SELECT gender, count(*) FROM patient_data WHERE age < $1 GROUP BY gender", ()),
    ("SELECT count(*) FROM patient_data WHERE age BETWEEN $1 AND 60", (20,)),
    ("SELECT count(*) FROM patient_data WHERE gender = $1", (25,)),
)
PARSED = (
    ("SELECT count(*) FROM patient_data WHERE age >= $1", (), (), (b"30",)),
    ("SELECT count(*) FROM patient_data WHERE age >= $1", (23,), (1,), (b"\0\0\0\x1e",)),
    ("SELECT count(*) FROM patient_data WHERE age >= $1", (21,), (1,), (b"\0\x3d",)),
    ("SELECT count(*) FROM patient_data WHERE age >= $1", (20,), (0,), (b"61",)),
    ("SELECT count(*) FROM patient_data WHERE age >= $1", (23,), (), (b"x",)),
    ("SELECT count(*) FROM patient_data WHERE age BETWEEN $1 AND $2", (), (), (b"20", b"61")),
    ("SELECT count(*) FROM patient_data WHERE age BETWEEN $1 AND $2", (), (), (b"20",)),
    ("SELECT gender, count(*) FROM patient_data WHERE age < $1 GROUP BY gender", (), (), (b"61",)),
    ("SELECT count(*), gender FROM patient_data WHERE age < $1 GROUP BY 2", (21,), (), (b"30",)),
    ("SELECT age, count(*) FROM patient_data WHERE gender <> $1 GROUP BY age", (25,), (1,), (b"male",)),
    ("SELECT count(*) FROM patient_data WHERE gender = $1", (1043,), (), (b"female",)),
    ("SELECT count(*) FROM patient_data WHERE gender = $1", (), (), (None,)),
)
SHOWN = (*[()] * 4, *[(0,)] * 3, *[(1,)] * 6, (0, 0), (1, 1), (1, 0), (0, 1), (2,), (0, 0, 0))
ALONE = (m.encode_sync(), m.encode_flush(), m.encode_execute(""), m.encode_describe(m.PORTAL, ""))
OTHERS = (
    *("SELECT 1", "", ";", "SELECT 1; SELECT 2", "SELECT 1/0", "RESET ALL", "DISCARD ALL", "DEALLOCATE ALL", "BEGIN"),
    *("COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "SET search_path = pg_catalog", "RESET search_path"),
    *("SET client_min_messages = error", "RESET client_min_messages", "SET LOCAL client_min_messages = warning"),
    *("SET veil.raw = on", "SET veil.raw = off", "RESET veil.raw", "SET client_encoding = latin1"),
    *(
        "SET client_encoding = utf8",
        "CREATE TEMP TABLE patient_data (age int, gender text)",
        "DEALLOCATE s",
        "DEALLOCATE t",
    ),
    *(
        "SELECT set_config('search_path', 'pg_catalog', false)",
        "SELECT set_config('client_min_messages', 'error', true)",
    ),
    *(
        "PREPARE s AS SELECT count(*) FROM patient_data WHERE age >= $1",
        "EXECUTE s(30)",
        "DEALLOCATE s; SET search_path = x",
    ),
    *(
        "DO $$ BEGIN PERFORM set_config('client_min_messages', 'error', false); END $$",
        "DISCARD TEMP",
        "SET DateStyle = SQL",
    ),
    *("DECLARE c CURSOR FOR SELECT count(*) FROM patient_data WHERE age >= 30", "FETCH c", "CLOSE c"),
)


HARMLESS = ("SELECT 1", "", "SELECT 1/0", "DEALLOCATE s", "SET veil.raw = on", "RESET veil.raw")


@pytest.fixture(scope="module")
def both(new_upstream: Callable[[], str], shadow_server, tmp_path_factory) -> Iterator[tuple[Proxy, Proxy]]:  # type: ignore[no-untyped-def]
    upstream, logs = new_upstream(), tmp_path_factory.mktemp("both")
    with psycopg.connect(upstream, autocommit=True) as owner:
        for view in VIEWS:
            owner.execute("SELECT provenance.register_view('patient_data', %s)", (view,))
    program = (str(Path(__file__).parent / "longway.py"),)
    with (
        running_proxy(upstream, shadow_server.admin_dsn, logs / "express.log") as quick,
        running_proxy(upstream, shadow_server.admin_dsn, logs / "long.log", program=program) as slow,
    ):
        yield quick, slow


def knowing(proxy: Proxy) -> str:
    """An analyst who knows the views, some of them by several releases."""
    name = new_analyst(proxy.upstream)
    with proxy.connect(name) as conn:
        for margin in ("200u", "60u", "20u"):
            conn.execute(f"SET veil.margin = '{margin}'".encode())
            for view in VIEWS if margin != "60u" else VIEWS[1:]:
                keys = view.strip("{}")
                conn.execute(f"SELECT {keys}, count(*) FROM patient_data GROUP BY {keys}".encode())
        conn.execute("SET veil.margin = '2000u'")
        for raw in ("off", "on"):
            conn.execute(f"SET veil.raw = {raw}".encode())
            for nobody in ("30", "61", "1"):
                conn.execute(f"SELECT count(*) FROM patient_data WHERE gender = '{nobody}'".encode())
            conn.execute("SELECT count(*) FROM patient_data WHERE gender = %s", (None,))
    with Wire(proxy.port).login(name, proxy.database, options="-c veil.margin=2000u") as wire:
        texts = sorted({text for text, *_ in (*BOUND, *PARSED) if "$2" not in text})
        values = (b"30", b"61", b"1", b"x", b"male", b"female", None)
        for raw in ("off", "on"):
            wire.query(f"SET veil.raw = {raw}")
            for each in itertools.product(texts, (0, 20, 21, 23, 25, 1043), values, (0, 1)):
                learn(wire, *each)
    return name


def learn(wire: Wire, text: str, oid: int, value: bytes | None, shape: int) -> None:
    """Whoever asks first would pay."""
    wire.send(m.encode_parse("", text, (oid,)), m.encode_bind("", "", (shape,), (value,)))
    wire.send(m.encode_execute(""), m.encode_sync())
    wire.until(m.READY_FOR_QUERY)


class Pair:
    """The same bytes to both; what they say is compared."""

    def __init__(self, both: tuple[Proxy, Proxy], name: str, dice: random.Random) -> None:
        self.dice, self.sent = dice, list[str]()
        self.others = dice.choice((OTHERS, HARMLESS, HARMLESS))  # else little is told at once for long
        self.wires = [Wire(proxy.port).login(name, proxy.database, options="-c veil.margin=2000u") for proxy in both]

    def other(self) -> str:
        return self.dice.choice(self.others)

    def form(self) -> str:
        dice = self.dice
        age, other = dice.choice((20, 30, 61)), dice.choice((62, 80, 61))
        return dice.choice(FORMS).format(a=age, b=other, g=dice.choice(("female", "male")))

    def message(self) -> list[bytes]:
        dice, kind, name = self.dice, self.dice.random(), self.dice.choice("st ").strip()
        if kind < 0.45:
            text = self.form()
            return [m.encode_query(text)] * dice.randint(1, 4)
        if kind < 0.49:
            return [m.encode_query(self.other())]
        if kind < 0.50:
            return [m.encode_query(f"{self.other()}; {self.form()}")]
        if kind < 0.56:
            text, oids = dice.choice((*BOUND, (self.form(), ()), (self.other(), ())))
            return (
                [m.encode_close(m.STATEMENT, name)] * dice.randint(0, 1)
                + [m.encode_parse(name, text, oids)]
                + [m.encode_sync()]
            )
        if kind < 0.75:
            return self.unnamed()
        if kind < 0.95:
            value = dice.choice((b"30", b"61", b"female", b"\0\0\0\x1e", None))
            values = dice.choice(((value,), (b"30",), (b"30",), (), (b"1", b"2")))
            formats, shown = dice.choice(((), (), (0,), (1,), (2,))), dice.choice(SHOWN)
            end = [m.encode_execute("", dice.choice((*[0] * 9, 1))), *[m.encode_flush()] * (dice.random() < 0.1)]
            end += [m.encode_sync()] * (dice.random() < 0.9)
            described = [m.encode_describe(m.PORTAL, "")] * dice.randint(0, 1)
            return [m.encode_bind("", name, formats, values, shown), *described, *end] * dice.randint(1, 4)
        return [dice.choice((*ALONE, m.encode_describe(m.STATEMENT, name), m.encode_close(m.STATEMENT, name)))] + [
            m.encode_sync()
        ] * dice.randint(0, 1)

    def unnamed(self) -> list[bytes]:
        """What drivers send that parse each time; sometimes the statement is used again, or something is missing."""
        dice = self.dice
        if dice.random() < 0.6:
            text, oids, formats, values = dice.choice(PARSED)
        else:
            text, oids, formats, values = self.form(), (), (), ()
        if dice.random() < 0.1:
            oids, formats = dice.choice(((), (20,), (25,), (0,))), dice.choice(((), (0,), (1,)))
        if dice.random() < 0.1:
            text = dice.choice((f"{text};", f" {text}\n", f"{text} -- veil.margni", f"{text} \\", self.other()))
        shown = dice.choice(SHOWN)
        described = [m.encode_describe(m.PORTAL, "")] * (dice.random() < 0.7)
        bind = m.encode_bind("", "", formats, values, shown)
        use = [bind, *described, m.encode_execute(""), m.encode_sync()]
        batch = [m.encode_parse("", text, oids), *use]
        found = batch * dice.randint(1, 4)
        if dice.random() < 0.3:
            found += dice.choice((use, [m.encode_describe(m.STATEMENT, ""), m.encode_sync()], [*use[:-1], *batch]))
        if dice.random() < 0.1:
            found.pop(dice.randrange(len(found)))
        return found

    def round(self, number: int) -> None:
        heard: list[list[Frame]] = [[], []]
        for _ in range(self.dice.randint(5, 12)):
            frames = self.message()
            self.sent += map(repr, frames)
            size = self.dice.choice((1, 1, len(frames), len(frames), 99))
            parts = [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]
            whole = self.dice.random() < 0.7
            if whole:
                parts = batches(frames)
            elif self.dice.random() < 0.2:
                data = b"".join(parts)
                cut_at = self.dice.randint(1, len(data) - 1)
                parts = [data[:cut_at], data[cut_at:]]
            waits = frames[-1][0] in (m.SYNC, m.QUERY) and self.dice.random() < 0.85
            for wire, told in zip(self.wires, heard, strict=True):
                for part in parts:
                    wire.send(part)
                    time.sleep(0.002)
                    if waits and (whole or part is parts[-1]):
                        listen(wire, told)
        for wire, told in zip(self.wires, heard, strict=True):
            wire.send(m.encode_sync(), m.encode_query("ROLLBACK"), m.encode_query(f"SELECT 'round {number}'"))
            while (
                not told or told[-1][0] != m.READY_FOR_QUERY or not any(b"round %d" % number in f for _, f in told[-4:])
            ):
                told.append(wire.frame())
        quick, slow = map(seen, heard)
        at = next((at for at, (one, other) in enumerate(zip(quick, slow, strict=False)) if one != other), len(quick))
        near = slice(max(0, at - 3), at + 4)
        assert quick == slow, "\n".join(
            [*self.sent[-60:], "AT ONCE", *map(repr, quick[near]), "OR", *map(repr, slow[near])]
        )


def listen(wire: Wire, told: list[Frame]) -> None:
    """Hear the answer to its end."""
    before = len(told)
    with contextlib.suppress(TimeoutError):  # in a batch that failed a query is not answered
        while len(told) == before or told[-1][0] != m.READY_FOR_QUERY:
            told.append(wire.frame(0.5))


def batches(frames: list[bytes]) -> list[bytes]:
    """As drivers send them: up to a Sync or a query at once."""
    found = [b""]
    for frame in frames:
        found[-1] += frame
        found += [b""] * (frame[0] in (m.SYNC, m.QUERY))
    return [each for each in found if each]


def seen(frames: list[Frame]) -> list[bytes]:
    """Without what differs between two shadows: the numbers of tables."""
    return [
        m.encode_row_description([replace(f, table_oid=0) for f in m.decode_row_description(frame)])
        if kind == m.ROW_DESCRIPTION
        else frame
        for kind, frame in frames
    ]


@pytest.mark.parametrize("seed", [int(each) for each in os.environ.get("SEEDS", "1").split()])
def test_both_ways_tell_the_same(both: tuple[Proxy, Proxy], seed: int) -> None:
    name = knowing(both[0])
    dice = random.Random(seed)
    for _ in range(int(os.environ.get("SESSIONS", "3"))):
        pair = Pair(both, name, dice)
        try:
            for number in range(8):
                pair.round(number)
        finally:
            for wire in pair.wires:
                wire.close()
