"""What all sessions of one proxy share: pools, the ledger, and the current house.

A ``House`` is one frozen view of the registry: catalog, shadow generation, names to look for. When the registry
changes a new one is built; sessions that are connected keep their shadow database, but every question is priced by the
current catalog.
"""

from __future__ import annotations

import asyncio
import logging
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin
from provenance.chain import Witness
from provenance.incidents import Incidents
from provenance.ledger import Ledger
from provenance.migrate import admit_reader
from provenance.registry import Registry, Versions
from provenance.releases import Releases
from provenance.scans import ScanPolicy
from provenance.synopses import Synopses
from provenance.watch import beat, vigil
from proxy import messages as m
from proxy.backend import Backend, configure
from proxy.floor import floor_amount
from proxy.kept import Kept
from proxy.link import ShadowError as Refused
from proxy.login import Target
from proxy.lookout import Lookout
from proxy.pacing import Pacing
from proxy.recent import Recent
from proxy.reports import Reports
from proxy.route import PASS_ALL, Router
from proxy.settings import Settings
from proxy.shadow import Generation, Shadow
from proxy.standing import LOOKS, Standing
from proxy.status import replica_name
from proxy.turns import LOCKS, Turns
from sqlrewrite.catalog import Catalog

log = logging.getLogger("pgveil")
Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

ADMIN_ROLE: Final = "pgveil_admin"
_GONE: Final = frozenset(("3D000", "28000", "28P01", "42501"))  # no such database, no such role, not let in
_PLANS: Final = 1_000_000  # groups, about, that the remembered plans of a house may have
_KNOWN: Final = 4_000_000  # numbers of what analysts know that new questions are answered from at once
_SHOWN: Final = 4_000_000  # characters, about, of answers as they were shown
_LISTED: Final = 200_000  # values, about, of remembered derived keys
_IDLE: Final = 10.0  # seconds after which a silent connection may be one that a network has forgotten
_PATIENCE: Final = 3.0  # seconds until a database that is down is reported; a restart is often shorter
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class House:
    """The registry as it stands, and what follows from it."""

    catalog: Catalog
    versions: Versions
    generation: Generation
    router: Router
    coin: Coin
    seed: int  # keys the hash that bounds contributions
    scans: ScanPolicy = field(default_factory=ScanPolicy)
    plans: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_PLANS), compare=False, repr=False)
    listings: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_LISTED), compare=False, repr=False)
    moulds: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_PLANS), compare=False, repr=False)
    casts: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_PLANS), compare=False, repr=False)
    known: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_KNOWN), compare=False, repr=False)
    shown: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_SHOWN), compare=False, repr=False)
    express: Recent[Hashable, Any] = field(default_factory=lambda: Recent(_SHOWN), compare=False, repr=False)
    """What was worked out under this registry and these data (``proxy.remembered``, ``proxy.warm``), forgotten with
    them."""


class Runtime:
    """The shared parts of a running proxy."""

    def __init__(self, settings: Settings, shadow_dsn: str, pool: Pool, catalogs: Pool, readers: Pool) -> None:
        self.settings = settings
        self.database = str(conninfo_to_dict(settings.upstream_dsn).get("dbname") or "postgres")
        self.registry = Registry(pool, catalogs, apart=settings.provenance is not None)
        self.ledger = Ledger(pool)
        self.lookout = Lookout(settings.provenance_dsn, (*LOOKS, *LOCKS))
        self.standing = Standing(pool, self.ledger, self.lookout)
        self.reports = Reports(pool)
        self.synopses = Kept(Synopses(pool))
        self.releases = Releases(pool)
        self.turns = Turns(self.lookout, len(LOOKS))
        self.backend = Backend(readers, settings.question_seconds)
        self.incidents = Incidents(pool)
        self.pacing = Pacing(settings.readers)
        self.shadow_target = Target.from_dsn(shadow_dsn)
        self.admin_target = Target.from_dsn(settings.provenance_dsn)
        self.admin_database = str(conninfo_to_dict(settings.provenance_dsn).get("dbname") or "postgres")
        self._shadow_dsn = shadow_dsn
        self._shadow: Shadow | None = None
        self._house: House | None = None
        self.router = PASS_ALL  # of the house; an attribute, since every statement asks for it
        self._admitted: set[tuple[Generation, str]] = set()
        self._building = asyncio.Lock()
        self.mock_secret = b""
        self.admin_password = ""

    async def start(self) -> None:
        """Derive the keys of the deployment and build the first house."""
        self._shadow = Shadow(self._shadow_dsn, self.database, await self.registry.derived_key("shadow"))
        self.mock_secret = await self.registry.derived_key("mock")
        ledger = (await self.registry.derived_key("anchor")).hex()[:16]
        anchor = self.settings.anchor or self.settings.home / "anchor" / f"{ledger}.json"
        self.ledger.remember(Witness(anchor, ledger, replica_name()))
        self.admin_password = await self.registry.derived_password(ADMIN_ROLE)
        await self.refresh()

    @property
    def house(self) -> House:
        if self._house is None:
            raise RuntimeError("the proxy has not been started")
        return self._house

    @property
    def shadow(self) -> Shadow:
        if self._shadow is None:
            raise RuntimeError("the proxy has not been started")
        return self._shadow

    async def current(self, analyst: str | None = None) -> House:
        """The house at the registry's present version, for an analyst who must be active."""
        versions = await self.registry.versions() if analyst is None else (await self.standing.look(analyst)).versions
        if self._house is None or versions != self._house.versions:
            await self.refresh(versions)
        return self.house

    async def refresh(self, wanted: Versions | None = None) -> None:
        """Read the registry anew, and build a new generation of the shadow if it changed what analysts see.

        Sessions that see a change at the same moment take turns, and the first one does the work for all.
        """
        async with self._building:
            if wanted is not None and self._house is not None and self._house.versions == wanted:
                return
            versions = await self.registry.versions()
            catalog = await self.registry.load()
            generation = await self.shadow.ensure(self.settings.upstream_dsn, catalog, [])
            key = await self.registry.derived_key("contributions")
            self._house = House(
                catalog=catalog,
                versions=versions,
                generation=generation,
                router=Router.of(catalog),
                coin=versions.coin,
                seed=int.from_bytes(key[:8], "big", signed=True),
                scans=await self.registry.scans(),
            )
            self.router = self._house.router
            log.info(
                "registry version %d: %d protected, %d public relations; shadow database %s",
                catalog.version,
                len(catalog.protected),
                len(catalog.public),
                generation.database_name,
            )

    async def admit(self, analyst: str) -> House:
        """The current house, with a role for the analyst on its shadow."""
        house = await self.current()
        if (house.generation, analyst) not in self._admitted:
            async with self._building:
                generation = await self.shadow.ensure(self.settings.upstream_dsn, house.catalog, [analyst])
            house = self._moved(house, generation)
            self._admitted.add((generation, analyst))
        return house

    async def enter(self, analyst: str, connect: Callable[[str], Awaitable[T]]) -> T:
        """Connect an analyst with the shadow; if it is not what it was (another proxy dropped that generation, or the
        cluster was made anew), look again, once."""
        try:
            return await connect((await self.admit(analyst)).generation.database_name)
        except Refused as refused:
            if m.decode_fields(refused.frame).get("C") not in _GONE:
                raise
        self._admitted.clear()
        await self.refresh()
        return await connect((await self.admit(analyst)).generation.database_name)

    async def floor(self, analyst: str, house: House) -> Decimal:
        """The analyst's least price of a scan, in coin, by the limit that was last seen."""
        limit = await self.standing.limit(analyst) if house.scans.floor else Decimal(0)
        versions = house.versions
        return floor_amount(house.coin, limit, versions.conversion_delta, house.scans.floor)

    def _moved(self, house: House, generation: Generation) -> House:
        """The same house on the generation that ``ensure`` found or made just now."""
        if generation == house.generation:
            return house
        # Nothing remembered goes along: the name of a generation may have been another's before.
        house = replace(
            house,
            generation=generation,
            plans=Recent(_PLANS),
            listings=Recent(_LISTED),
            moulds=Recent(_PLANS),
            casts=Recent(_PLANS),
            known=Recent(_KNOWN),
            shown=Recent(_SHOWN),
            express=Recent(_SHOWN),
        )
        if self._house is not None and self._house.versions == house.versions:
            self._house = house
        return house


@asynccontextmanager
async def running(settings: Settings, shadow_dsn: str) -> AsyncIterator[Runtime]:
    """A started runtime, with its pools closed at the end."""
    if settings.provenance is not None:
        await asyncio.to_thread(admit_reader, settings.upstream_dsn)
    async with AsyncExitStack() as stack:
        pool = _pool(settings.provenance_dsn, 2, 16)
        catalogs = _pool(settings.upstream_dsn, 0, 2)
        readers = _pool(
            settings.upstream_dsn, 1, settings.readers, partial(configure, seconds=settings.question_seconds)
        )
        for each in (pool, catalogs, readers):
            await stack.enter_async_context(each)
        runtime = Runtime(settings, shadow_dsn, pool, catalogs, readers)
        await runtime.start()
        await beat(pool, runtime.ledger, replica_name())
        keeping = asyncio.create_task(vigil(pool, runtime.ledger, replica_name()))
        stack.push_async_callback(_ended, keeping)
        stack.callback(runtime.lookout.close)
        stack.callback(runtime.pacing.close)
        await runtime.lookout.start()
        yield runtime


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


class Alive:
    """Checks a connection of a pool before it is used, at the cost of a round trip only where there is doubt.

    A server that ends a connection says so, hence one that is idle and has something to say is looked at, and so is one
    that was not used for long: a network may have forgotten it.
    """

    def __init__(self, seconds: float = _IDLE) -> None:
        self._seconds = seconds
        self._used: WeakKeyDictionary[AsyncConnection[TupleRow], float] = WeakKeyDictionary()

    async def __call__(self, conn: AsyncConnection[TupleRow]) -> None:
        now = time.monotonic()
        last = self._used.get(conn)
        self._used[conn] = now
        if last is None or now - last > self._seconds or _speaks(conn.fileno()):
            await Pool.check_connection(conn)


def _speaks(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _pool(
    dsn: str, least: int, most: int, configure: Callable[[AsyncConnection[TupleRow]], Awaitable[None]] | None = None
) -> Pool:
    """A connection that died is replaced without a word to the client: checking costs less than a lost question.

    Each attempt to reconnect is given up soon, since the pool waits twice as long after each failure; the next question
    then starts a new one.
    """
    return Pool(
        dsn,
        min_size=least,
        max_size=most,
        open=False,
        check=Alive(),
        configure=configure,
        timeout=_PATIENCE,
        reconnect_timeout=_PATIENCE,
    )
