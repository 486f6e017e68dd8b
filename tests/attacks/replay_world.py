"""Two databases that differ in one unit, a proxy for each in this process, and all that a client sees of them."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import generators, pq, sql
from psycopg.conninfo import make_conninfo
from question_world import COLUMNS, DAYS, HOSTILE, SCHEMA, VALUES, WARDS
from replay_tape import SIDE, Side, tracer

from mechanisms.loss import Coin
from provenance.migrate import migrate
from proxy.embedded import OLDEST, temporary
from proxy.runtime import running
from proxy.server import Server
from proxy.settings import Settings

UNITS = ("row", "account", "owner")
"""What differs: one row of stay, all rows of one account, or an owner with the accounts and their rows."""

_number = itertools.count(1)

_DECLARED = {
    "kind": "members => ARRAY['a', 'b']",
    "ward": "members_from => 'ward.ward'",
    "day": "members => ARRAY[" + ", ".join(f"'{day}'" for day in DAYS) + "]",
    "code": "members => ARRAY['A', 'B1']",
    "paid": "members => ARRAY['false', 'true']",
    "span": "members => ARRAY['1 day', '2 days']",
    "feeling": "members => ARRAY['sad', 'happy']",
    "cost": "lower => 0, upper => 500",
    "wide": "lower => 5, upper => 10",
    "whole": "lower => 5, upper => 10",
    "rate": "lower => -1, upper => 1",
    "fine": "lower => 0, upper => 2",
    "small": "lower => -5, upper => 5",
    "n": "lower => 1, upper => 10",
    "big": "lower => 0, upper => 1000000",
    "low": "lower => 0, upper => 9",
}
_VIEWS = ("'{ward,kind}'", "'{day,paid}'", "'{ward}', 'sum(n)'", "'{kind,feeling}', 'sum(low)'")


@dataclass(frozen=True)
class Kind:
    """What a pair of deployments is like."""

    unit: str = "row"
    coin: Coin = Coin.ZCDP
    changes: str = "frozen"
    floor: str = "0"  # the least price of a scan, as a part of the analyst's limit

    @property
    def name(self) -> str:
        return f"{self.unit}_{self.coin.value}_{self.changes}_{self.floor.replace('.', '_')}"


def registration(kind: Kind) -> str:
    """What the administrator declares; time is no part of this."""
    stay, account = {
        "row": ("unit => 'row'", ""),
        "account": ("unit => 'account', max_groups => 2, max_rows => 3", ""),
        "owner": (
            "unit => 'account -> account.owner', max_groups => 3, max_rows => 2",
            ", unit => 'owner', max_groups => 3, max_rows => 2",
        ),
    }[kind.unit]
    lines = [
        f"UPDATE provenance.deployment SET coin = '{kind.coin.value}', epsilon = 1000000, timing = 'immediate',"
        f" scan_floor = {kind.floor}, incident_limit = 1000",
        f"SELECT provenance.protect('account'{account}, changes => '{kind.changes}')",
        f"SELECT provenance.protect('stay', {stay}, changes => '{kind.changes}')",
        "SELECT provenance.publish('ward')",
        *(f"SELECT provenance.declare_attribute('stay', '{name}', {how})" for name, how in _DECLARED.items()),
        "SELECT provenance.declare_attribute('account', 'sex', members => ARRAY['f', 'm'], constant_per_unit => true)",
        *(f"SELECT provenance.register_view('stay', {view})" for view in _VIEWS),
    ]
    return ";\n".join(lines)


@dataclass(frozen=True)
class Servers:
    """Where the databases are, and the names of the templates that were made there."""

    protected: str
    shadow: str
    templates: dict[Kind, str] = field(default_factory=dict)


@contextmanager
def servers() -> Iterator[Servers]:
    """Clusters that leave nothing behind."""
    quick = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}
    quick["max_connections"] = "300"
    with temporary(quick) as protected, temporary(quick, version=OLDEST) as shadow:
        yield Servers(protected.dsn(), shadow.dsn())


@dataclass(eq=False)
class Client:
    """One session of an analyst: libpq itself, and everything that it is told."""

    connection: psycopg.Connection[Any]
    notices: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection.pgconn.notice_handler = lambda result: self.notices.append(diagnosed(result))

    def ask(self, text: str, way: str = "simple", values: Sequence[str | None] = ()) -> list[Any]:
        """Every field of every message; the numbers in it are the frozen ones. A lost connection is told like one."""
        self.notices = []
        try:
            return self._ask(text, way, values)
        except psycopg.Error as lost:  # or what psycopg cannot follow
            self.connection.close()
            return [[["LOST", type(lost).__name__]], self.notices, None]

    def _ask(self, text: str, way: str, values: Sequence[str | None]) -> list[Any]:
        pgconn = self.connection.pgconn
        given = [None if value is None else value.encode() for value in values]
        query = text.encode()
        match way:
            case "simple":
                pgconn.send_query(query)
                results = self._heard()
            case "extended" | "binary":
                pgconn.send_query_params(query, given, result_format=int(way == "binary"))
                results = self._heard()
            case _:
                pgconn.send_prepare(b"", query)
                results = self._heard()
                if results[-1][0] == "COMMAND_OK":
                    pgconn.send_describe_prepared(b"")
                    results += self._heard()
                    pgconn.send_query_prepared(b"", given)
                    results += self._heard()
        return [results, self.notices, pgconn.transaction_status]

    def _heard(self) -> list[Any]:
        """All results; waiting lets the proxies in this process run."""
        connection, results = self.connection, []
        while True:
            told = connection.wait(generators.execute(connection.pgconn))
            results += [shown(result) for result in told]
            if not told or told[-1].status != pq.ExecStatus.COPY_OUT:
                return results
            lines = []
            while isinstance(line := connection.wait(generators.copy_from(connection.pgconn)), memoryview):
                lines.append(bytes(line))
            results += [["COPY_DATA", lines], shown(line)]


def shown(result: Any) -> list[Any]:
    """A result as the client has it."""
    columns = [
        (
            result.fname(at),
            result.ftype(at) if result.ftype(at) < 16384 else "own type",  # numbered by the shadow
            result.fmod(at),
            result.fsize(at),
            result.fformat(at),
            result.ftablecol(at),
        )
        for at in range(result.nfields)
    ]
    rows = [[result.get_value(row, at) for at in range(result.nfields)] for row in range(result.ntuples)]
    parameters = [result.param_type(at) for at in range(result.nparams)]
    return [
        pq.ExecStatus(result.status).name, result.command_status, columns, rows, parameters, diagnosed(result)
    ]  # fmt: skip


def diagnosed(result: Any) -> list[tuple[str, bytes]]:
    """Every field of an error or a notice."""
    found = ((each.name, result.error_field(each)) for each in pq.DiagnosticField)
    return [(name, value) for name, value in found if value is not None]


@dataclass(eq=False)
class Deployed:
    """One side: its database, its proxy and its clients."""

    side: Side
    dsn: str
    database: str
    owner: psycopg.Connection[Any]
    port: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    clients: dict[str, Client] = field(default_factory=dict)

    def trace(self, on: bool) -> None:
        """Note which lines the proxy runs, or do not any more."""
        done = threading.Event()
        self.side.lines = set()

        def switch() -> None:
            sys.settrace(tracer(self.side) if on else None)
            done.set()

        assert self.loop is not None
        self.loop.call_soon_threadsafe(switch)
        assert done.wait(60)

    def client(self, analyst: str) -> Client:
        if analyst not in self.clients or self.clients[analyst].connection.closed:
            where = {"host": "127.0.0.1", "port": self.port, "dbname": self.database, "user": analyst}
            dsn = make_conninfo(**where, password=analyst, sslmode="disable")
            self.clients[analyst] = Client(psycopg.connect(dsn, autocommit=True))
        return self.clients[analyst]

    def close_clients(self) -> None:
        for client in self.clients.values():
            client.connection.close()
        self.clients.clear()


@dataclass(eq=False)
class World:
    """Both sides, identical but for one unit."""

    kind: Kind
    here: Deployed
    there: Deployed
    fewer: str = ""  # the side without the unit

    @property
    def unit(self) -> str:
        return self.kind.unit

    @property
    def coin(self) -> Coin:
        return self.kind.coin

    @property
    def sides(self) -> tuple[Deployed, Deployed]:
        return self.here, self.there

    def administer(self, statement: str, *values: Any) -> None:
        """The same on both sides."""
        for each in self.sides:
            each.owner.execute(statement.encode(), values or None)

    def fill(self, rng: random.Random) -> str:
        """New data on both sides, and one unit that is in one of them only."""
        rows, hostile = rng.choice((20, 60, 60, 150)), rng.choice((0.0, 0.02, 0.2))
        accounts = [(i, rng.choice([1, 1, 2, 3, 4, None])) for i in range(1, 13)]
        sexes = {owner: rng.choice("fm") for owner in (1, 2, 3, 4, None)}
        victim = rng.randrange(rows)
        account_of = [rng.choice([1, 1, 1, 2, 2, *range(1, 11), None]) for _ in range(rows)]
        if self.unit == "account" and rng.random() < 0.9:
            account_of[victim] = rng.choice((1, 2, 3))
        mine = self._mine(victim, account_of, dict(accounts), rng)
        made = [
            (
                n,
                account_of[n],
                *(_value(rng, name, rng.choice((0.3, 0.8)) if n in mine else hostile) for name in COLUMNS),
            )
            for n in range(rows)
        ]
        rng.shuffle(made)  # where the unit's rows lie is random, too
        self.fewer = rng.choice(("here", "there"))
        owner = dict(accounts)[account_of[victim]] if account_of[victim] is not None else None
        for each in self.sides:
            with each.owner.transaction(), each.owner.cursor() as cursor:
                cursor.execute("TRUNCATE stay, account")
                kept = [(i, o) for i, o in accounts if not self._leaves(each, o, owner)]
                cursor.executemany("INSERT INTO account VALUES (%s, %s, %s)", [(i, o, sexes[o]) for i, o in kept])
                stays = [row for row in made if each.side.name != self.fewer or row[0] not in mine]
                cursor.executemany(f"INSERT INTO stay VALUES (%s, %s{', %s' * len(COLUMNS)})", stays)
                cursor.execute("SELECT provenance.refresh('stay'), provenance.refresh('account')")
        return f"{len(mine)} of {rows} rows, without them: {self.fewer}"

    def fill_exactly(self, victim: Mapping[str, Any], rows: int = 1) -> None:
        """Thirty ordinary rows on both sides, and on the recording side a unit with these values."""
        names = ("id", "account", *COLUMNS)
        ordinary = [
            {"id": n, "account": 1 + n % 8, **{name: VALUES[name][n % len(VALUES[name])] for name in COLUMNS}}
            for n in range(30)
        ]
        own = {**ordinary[0], "account": 9, **victim}
        mine = [{**own, "id": 100 + n, "ward": own["ward"] if rows == 1 else WARDS[n % 3]} for n in range(rows)]
        for each in self.sides:
            told = ordinary + (mine if each.side.records else [])
            with each.owner.transaction(), each.owner.cursor() as cursor:
                cursor.execute("TRUNCATE stay, account")
                accounts = [(i, i, "f") for i in range(1, 10) if each.side.records or self.unit != "owner" or i != 9]
                cursor.executemany("INSERT INTO account VALUES (%s, %s, %s)", accounts)
                cursor.executemany(
                    f"INSERT INTO stay VALUES (%s{', %s' * (len(names) - 1)})",
                    [[row[name] for name in names] for row in told],
                )
                cursor.execute("SELECT provenance.refresh('stay'), provenance.refresh('account')")

    def _mine(
        self, victim: int, account_of: Sequence[int | None], owner_of: dict[int, int | None], rng: random.Random
    ) -> set[int]:
        """The rows of the unit that differs."""
        account = account_of[victim]
        if self.unit == "row" or account is None:
            return {victim}
        if self.unit == "account":
            return {n for n, each in enumerate(account_of) if each == account}
        owner = owner_of[account]
        if owner is None:
            return {victim}
        return {n for n, each in enumerate(account_of) if each is not None and owner_of[each] == owner}

    def _leaves(self, each: Deployed, owner: int | None, victim: int | None) -> bool:
        return self.unit == "owner" and each.side.name == self.fewer and owner is not None and owner == victim


def _value(rng: random.Random, name: str, hostile: float) -> Any:
    return rng.choice((HOSTILE if rng.random() < hostile else VALUES)[name])


def _create(admin: psycopg.Connection[Any], name: str, template: str) -> None:
    admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))


def _template(where: Servers, admin: psycopg.Connection[Any], kind: Kind) -> str:
    """A database with the registry as it is declared, and no row."""
    name = f"r{os.getpid()}_{kind.name}"
    _create(admin, name, "template1")
    dsn = make_conninfo(where.protected, dbname=name)
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(SCHEMA)
        owner.execute(registration(kind))
    return name


@contextmanager
def world(where: Servers, kind: Kind) -> Iterator[World]:
    """A fresh pair of deployments: copies of one template, secrets and all."""
    names = [f"r{os.getpid()}_{next(_number)}_{letter}" for letter in "ab"]
    with ExitStack() as stack:
        admin = stack.enter_context(psycopg.connect(where.protected, autocommit=True))
        if kind not in where.templates:
            where.templates[kind] = _template(where, admin, kind)

        def create(name: str) -> None:
            _create(admin, name, where.templates[kind])
            stack.callback(
                admin.execute, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

        sides = []
        for place, name in enumerate(names):
            create(name)
            dsn = make_conninfo(where.protected, dbname=name)
            side = Side(("here", "there")[place], records=place == 0, person=kind.unit != "row")
            owner = stack.enter_context(psycopg.connect(dsn, autocommit=True))
            deployed = Deployed(side, dsn, name, owner)
            stack.enter_context(serving(deployed, where.shadow))
            stack.callback(deployed.close_clients)
            sides.append(deployed)
        yield World(kind, *sides)


@contextmanager
def serving(deployed: Deployed, shadow: str) -> Iterator[None]:
    """A proxy in a thread of this process, whose context says which side it is."""
    started, failed = threading.Event(), list[BaseException]()
    memory = Path("/dev/shm")  # the anchor is written with every charge
    home = tempfile.TemporaryDirectory(prefix="pgveil-replay-", dir=memory if memory.is_dir() else None)
    stop: list[Any] = []

    async def serve() -> None:
        given = {"upstream": deployed.dsn, "shadow": shadow, "listen": "127.0.0.1:0", "log_level": "ERROR"}
        settings = Settings.model_validate({**given, "anchor": Path(home.name) / "anchor.json", "readers": 2})
        async with running(settings, shadow) as runtime:
            server = Server(runtime)
            deployed.port, deployed.loop = await server.start(), asyncio.get_running_loop()
            stop.extend((deployed.loop, asyncio.Event()))
            started.set()
            await stop[1].wait()
            await server.stop()

    def run() -> None:
        SIDE.set(deployed.side)
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
            started.set()

    thread = threading.Thread(target=contextvars.Context().run, args=(run,), daemon=True)
    thread.start()
    try:
        assert started.wait(240)
        if failed:
            raise failed[0]
        yield
    finally:
        if stop:
            stop[0].call_soon_threadsafe(stop[1].set)
        thread.join(120)
        home.cleanup()
