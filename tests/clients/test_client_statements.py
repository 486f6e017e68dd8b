"""What clients send at connect, to list and to describe gives, through pgveil, what the shadow itself gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drive import Agent, place
from matrix import CLIENTS, Client
from proxies import Proxy, charges
from psycopg.conninfo import conninfo_to_dict
from raw_wire import Frame, Wire
from recorder import Direct, Said, answers, recorder

from proxy import messages as m

pytestmark = pytest.mark.clients


def cases() -> list[Any]:
    skip = [(client, [pytest.mark.skip(reason=client.missing)] if client.missing else []) for client in CLIENTS]
    return [pytest.param(client, marks=marks, id=client.name) for client, marks in skip]


def readable(frames: list[Frame]) -> list[Any]:
    """Frames as they are, but of an error only what a program would look at."""
    found: list[Any] = []
    for kind, frame in frames:
        if kind == m.ERROR_RESPONSE:
            fields = m.decode_fields(frame)
            found.append((chr(kind), fields["C"], fields["M"]))
        else:
            found.append((chr(kind), frame))
    return found


@pytest.mark.parametrize("client", cases())
def test_what_a_client_looks_up_is_what_the_shadow_says(
    client: Client, agents: Callable[[Client], Agent], proxy: Proxy, upstream: str, analyst: str, shadow_server
) -> None:  # type: ignore[no-untyped-def]
    with recorder(proxy.port) as (port, said):
        where = {**place(proxy, analyst), "port": str(port)}
        for check in ("connect", "list", "describe"):
            agents(client).ask(check, **where)
    heard = [one for one in said if one.rounds()]
    assert sum(len(one.texts()) for one in heard) >= 3
    with proxy.connect(analyst) as conn:
        (database,) = conn.execute("SELECT current_database()").fetchone() or ("",)
    at = conninfo_to_dict(shadow_server.admin_dsn)
    for one in heard:
        compare(one, proxy, analyst, str(database), str(at["host"]), str(at["port"]))
    assert charges(upstream, analyst) == []


def compare(said: Said, proxy: Proxy, analyst: str, database: str, folder: str, port: str) -> None:
    own = {name: value for name, value in said.parameters.items() if name not in ("user", "database")}
    with Wire(proxy.port) as veiled, Direct(folder, port) as direct:
        veiled.login(analyst, proxy.database, **own)
        direct.enter({"user": analyst, "database": database, **own})
        seen, native = answers(veiled, said), answers(direct, said)
    for asked, here, there in zip(said.rounds(), seen, native, strict=True):
        assert readable(here) == readable(there), asked
