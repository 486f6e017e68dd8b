"""asyncpg: the binary protocol, statements prepared always, types looked up in the catalogs."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from agent import Request, serve, shown, state, wait_for
from dbapi import DESCRIBE, LIST


async def connected(to: Request, **more: Any) -> Any:
    tls = ssl.create_default_context(cafile=to["ca"]) if to["ca"] else False
    if tls and "direct_tls" in more:
        tls.set_alpn_protocols(["postgresql"])  # asyncpg does not by itself, and PostgreSQL asks for it
    place = {"host": to["host"], "port": int(to["port"]), "database": to["database"]}
    return await asyncpg.connect(**place, user=to["user"], password=to["password"], ssl=tls, **more)


async def rows(conn: Any, text: str, *values: Any) -> list[Any]:
    return [tuple(row) for row in await conn.fetch(text, *values)]


async def refusal(wait: Awaitable[Any]) -> str | None:
    try:
        answer = await wait
    except asyncpg.PostgresError as error:
        return state(error)
    raise AssertionError(f"nothing was refused: {answer!r}")


async def connect(conn: Any, to: Request) -> Any:
    return await conn.fetchval("SELECT 1")


async def list_(conn: Any, to: Request) -> Any:
    return [row[0] for row in await rows(conn, LIST)]


async def describe(conn: Any, to: Request) -> Any:
    return await rows(conn, DESCRIBE)


async def public(conn: Any, to: Request) -> Any:
    return await rows(conn, to["public"])


async def decision(conn: Any, to: Request) -> Any:
    return await rows(conn, to["decision"])


async def number(conn: Any, to: Request) -> Any:
    return shown(await rows(conn, to["number"]))


async def parameter(conn: Any, to: Request) -> Any:
    text = to["parameter"].replace("{1}", "$1").replace("{2}", "$2")
    return await rows(conn, text, "female", 2000)


async def error(conn: Any, to: Request) -> Any:
    return {"state": await refusal(conn.fetch(to["refused"])), "then": await conn.fetchval("SELECT 2")}


async def transaction(conn: Any, to: Request) -> Any:
    states = []
    async with conn.transaction():
        before = await rows(conn, to["decision"])
        inner = conn.transaction()  # a savepoint
        await inner.start()
        for name in ("refused", "public"):
            states.append(await refusal(conn.fetch(to[name])))
        await inner.rollback()
        after = await rows(conn, to["decision"])
    return {"before": before, "states": states, "after": after}


async def notice(conn: Any, to: Request) -> Any:
    said: list[str] = []
    conn.add_log_listener(lambda _, message: said.append(message.message))
    await rows(conn, to["decision"])
    await asyncio.sleep(0.1)
    return said


async def pieces(conn: Any, to: Request) -> Any:
    found: list[Any] = []
    async with conn.transaction():
        cursor = await conn.cursor(to["many"])
        while piece := await cursor.fetch(7):
            found += [tuple(row) for row in piece]
    return found


async def copy(conn: Any, to: Request) -> Any:
    out = io.BytesIO()
    await conn.copy_from_query(to["number"], output=out)
    return [[["str", cell] for cell in line.split("\t")] for line in out.getvalue().decode().splitlines()]


async def cancel(conn: Any, to: Request) -> Any:
    asked = asyncio.create_task(conn.fetch(to["long"]))
    await asyncio.to_thread(wait_for, to["go"])
    asked.cancel()
    try:
        await asked
    except asyncio.CancelledError:
        return {"state": None, "then": await conn.fetchval("SELECT 1")}  # asyncio's word replaces the server's
    raise AssertionError("it was answered")


async def reconnect(conn: Any, to: Request) -> Any:
    from agent import restarted

    place = {"host": to["host"], "port": int(to["port"]), "database": to["database"], "ssl": False}
    pool = await asyncpg.create_pool(**place, user=to["user"], password=to["password"], min_size=1, max_size=1)
    before = [tuple(row) for row in await pool.fetch(to["decision"])]
    await asyncio.to_thread(restarted, to)
    await asyncio.sleep(0.2)  # the loop notices that the connection is gone
    after = [tuple(row) for row in await pool.fetch(to["decision"])]
    await pool.close()
    return {"before": before, "after": after}


def run(check: Callable[[Any, Request], Awaitable[Any]]) -> Callable[[Request], Any]:
    async def whole(to: Request) -> Any:
        conn = await connected(to, **({"direct_tls": True} if to["check"] == "direct" else {}))
        try:
            return await check(conn, to)
        finally:
            conn.terminate() if conn.is_closed() else await conn.close()

    return lambda to: asyncio.run(whole(to))


if __name__ == "__main__":
    checks = {
        "connect": connect,
        "tls": connect,
        "direct": connect,
        "list": list_,
        "describe": describe,
        "public": public,
    }
    checks |= {"decision": decision, "number": number, "parameter": parameter, "error": error, "copy": copy}
    checks |= {"transaction": transaction, "notice": notice, "pieces": pieces, "cancel": cancel, "reconnect": reconnect}
    serve(lambda: asyncpg.__version__, {name: run(check) for name, check in checks.items()})
