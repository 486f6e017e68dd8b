"""What all sessions of one proxy share: pools, the ledger, and the current house.

A ``House`` is one frozen view of the registry: catalog, shadow generation, names to look for. When the registry
changes a new one is built; sessions that are connected keep their shadow database, but every question is priced by the
current catalog.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin
from provenance.ledger import Ledger
from provenance.registry import Registry, Versions
from provenance.synopses import Synopses
from proxy.backend import Backend, configure
from proxy.login import Target
from proxy.route import Router
from proxy.settings import Settings
from proxy.shadow import Generation, Shadow
from sqlrewrite.catalog import Catalog

log = logging.getLogger("pgveil")
Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

ADMIN_ROLE: Final = "pgveil_admin"


@dataclass(frozen=True, slots=True)
class House:
    """The registry as it stands, and what follows from it."""

    catalog: Catalog
    versions: Versions
    generation: Generation
    router: Router
    coin: Coin
    seed: int  # keys the hash that bounds contributions


class Runtime:
    """The shared parts of a running proxy."""

    def __init__(self, settings: Settings, shadow_dsn: str, pool: Pool, catalogs: Pool, readers: Pool) -> None:
        self.settings = settings
        self.database = str(conninfo_to_dict(settings.upstream_dsn).get("dbname") or "postgres")
        self.registry = Registry(pool, catalogs)
        self.ledger = Ledger(pool)
        self.synopses = Synopses(pool)
        self.backend = Backend(readers)
        self.shadow_target = Target.from_dsn(shadow_dsn)
        self.admin_target = Target.from_dsn(settings.provenance_dsn)
        self.admin_database = str(conninfo_to_dict(settings.provenance_dsn).get("dbname") or "postgres")
        self._shadow_dsn = shadow_dsn
        self._shadow: Shadow | None = None
        self._house: House | None = None
        self._admitted: set[tuple[str, str]] = set()
        self._building = asyncio.Lock()
        self.mock_secret = b""
        self.admin_password = ""

    async def start(self) -> None:
        """Derive the keys of the deployment and build the first house."""
        self._shadow = Shadow(self._shadow_dsn, self.database, await self.registry.derived_key("shadow"))
        self.mock_secret = await self.registry.derived_key("mock")
        self.admin_password = await self.registry.derived_password(ADMIN_ROLE)
        await self.refresh()

    @property
    def house(self) -> House:
        if self._house is None:
            raise RuntimeError("the proxy has not been started")
        return self._house

    @property
    def router(self) -> Router:
        return self.house.router

    @property
    def shadow(self) -> Shadow:
        if self._shadow is None:
            raise RuntimeError("the proxy has not been started")
        return self._shadow

    async def current(self) -> House:
        """The house at the registry's present version."""
        if self._house is None or await self.registry.versions() != self._house.versions:
            await self.refresh()
        return self.house

    async def refresh(self) -> None:
        """Read the registry anew, and build a new generation of the shadow if it changed what analysts see."""
        async with self._building:
            versions = await self.registry.versions()
            catalog = await self.registry.load()
            generation = await self.shadow.ensure(self.settings.upstream_dsn, catalog, [])
            key = await self.registry.derived_key("contributions")
            self._house = House(
                catalog=catalog,
                versions=versions,
                generation=generation,
                router=Router.of(catalog),
                coin=(await self.registry.deployment()).coin,
                seed=int.from_bytes(key[:8], "big", signed=True),
            )
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
        if (house.generation.database_name, analyst) not in self._admitted:
            async with self._building:
                await self.shadow.ensure(self.settings.upstream_dsn, house.catalog, [analyst])
            self._admitted.add((house.generation.database_name, analyst))
        return house

    def forget_admissions(self) -> None:
        """The shadow said no to a role: look again at the next login."""
        self._admitted.clear()


@asynccontextmanager
async def running(settings: Settings, shadow_dsn: str) -> AsyncIterator[Runtime]:
    """A started runtime, with its pools closed at the end."""
    async with AsyncExitStack() as stack:
        # A connection that died is replaced without a word to the client; checking costs less than a lost question.
        pool = Pool(settings.provenance_dsn, min_size=2, max_size=16, open=False, check=Pool.check_connection)
        catalogs = Pool(settings.upstream_dsn, min_size=0, max_size=2, open=False, check=Pool.check_connection)
        readers = Pool(
            settings.upstream_dsn,
            min_size=1,
            max_size=settings.readers,
            open=False,
            check=Pool.check_connection,
            configure=partial(configure, seconds=settings.question_seconds),
        )
        for each in (pool, catalogs, readers):
            await stack.enter_async_context(each)
        runtime = Runtime(settings, shadow_dsn, pool, catalogs, readers)
        await runtime.start()
        yield runtime
