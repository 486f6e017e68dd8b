"""The connection between proxy and ledger is cut at COMMIT: what may have been committed counts as spent."""

from __future__ import annotations

import asyncio
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import torture
from pace import pace
from proxies import new_analyst, running_proxy
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from torture import DECISION, NUMBERS, Auditor, ask

SOON = 5.0  # seconds until the next answer
COMMIT = b"COMMIT\0"  # in the Parse message of its own that psycopg sends, and in the tag that comes back


class Forwarder:
    """A TCP port in front of PostgreSQL that cuts the connection of a transaction of the ledger at its COMMIT.

    ``armed`` says where: ``before`` (COMMIT never arrives) or ``after`` (it is done, and nobody hears of it).
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.armed: str | None = None
        self.passing = 0  # so many commits pass before the one that is cut
        self.cuts = 0
        self.port = 0

    def dsn(self) -> str:
        return make_conninfo(
            self._target, host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable", connect_timeout=5
        )

    @contextmanager
    def running(self) -> Iterator[Forwarder]:
        loop = asyncio.new_event_loop()
        begun = threading.Event()
        over = asyncio.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._client, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            begun.set()
            await over.wait()
            server.close()
            rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        assert begun.wait(10)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join(10)
            loop.close()

    async def _client(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        place = conninfo_to_dict(self._target)
        server, to_server = await asyncio.open_unix_connection(f"{place['host']}/.s.PGSQL.{place['port']}")
        deaf, done = asyncio.Event(), asyncio.Event()

        async def answers() -> None:
            while data := await server.read(65536):
                if not deaf.is_set():
                    to_client.write(data)
                elif COMMIT in data:
                    done.set()
            to_client.close()

        back = asyncio.create_task(answers())
        books = False  # whether this connection is one of the ledger's: readers commit too
        try:
            while data := await client.read(65536):
                books = books or b"provenance." in data
                if self.armed is not None and books and COMMIT in data:
                    self.passing -= 1
                if self.armed is not None and self.passing < 0:
                    armed, self.armed = self.armed, None
                    if armed == "after":
                        deaf.set()
                        to_server.write(data)
                        rest = asyncio.create_task(_pass_on(client, to_server))  # its Sync may come by itself
                        await asyncio.wait_for(done.wait(), 30)
                        rest.cancel()
                    self.cuts += 1
                    break
                to_server.write(data)
        except ConnectionError:
            pass
        finally:
            back.cancel()
            to_server.transport.abort()
            to_client.transport.abort()


async def _pass_on(client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
    while data := await client.read(65536):
        to_server.write(data)


@pytest.mark.parametrize("cuts", [4, pytest.param(50, marks=(pytest.mark.slow, pytest.mark.timeout(1500)))])
def test_a_connection_that_is_cut_at_commit_loses_no_charge(
    cuts: int, postgres: Any, shadow_server: Any, tmp_path: Path, record_testsuite_property: Any
) -> None:
    dice, recovered = random.Random(cuts), []
    world = torture.build(postgres.new_database("torture"))
    if not str(conninfo_to_dict(world).get("host", "")).startswith("/"):
        pytest.skip("the forwarder speaks to a Unix socket")
    who, auditor, told = new_analyst(world), Auditor(world, tmp_path / "proxy.log"), []
    with (
        Forwarder(world).running() as forwarder,
        running_proxy(forwarder.dsn(), shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy,
        proxy.connect(who) as session,
    ):
        for number in range(cuts):
            staged = number % 3 == 2
            text = (DECISION if staged else NUMBERS).format(50 + number)
            before, cut = len(auditor.seen), forwarder.cuts
            # A decision commits a first reservation, three or four others, and a settlement.
            forwarder.passing = dice.randrange(6) if staged else 0
            forwarder.armed = where = ("before", "after")[number % 2]
            answered = True
            try:
                told.append(ask(session, text))
            except psycopg.errors.SystemError as refused:
                assert refused.sqlstate == "58000"
                answered = False
            forwarder.armed, moment = None, time.monotonic()
            auditor.look(told)
            if not staged:
                assert not answered and forwarder.cuts == cut + 1
                assert len(auditor.seen) - before == (where == "after")
            told += [ask(session, text), ask(session, text)]
            recovered.append(told[-2].at - moment)
            assert told[-1].charged == 0 and (told[-2].charged > 0) is not answered
            auditor.look(told)
        assert forwarder.cuts >= cuts * 2 // 3
    assert "Traceback" not in (tmp_path / "proxy.log").read_text()
    record_testsuite_property(
        f"{cuts} cuts: seconds to the next answer, median and most", (statistics.median(recovered), max(recovered))
    )
    assert statistics.median(recovered) < SOON * pace() or cuts < 50, recovered
