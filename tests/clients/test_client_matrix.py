"""Every client of the matrix against a real proxy: what it must see, whichever client it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from drive import Agent, Failed, Unsupported, place
from matrix import CHECKS, CLIENTS, SQL, Client
from outcomes import Outcomes
from proxies import Proxy, charges, forget, new_analyst, scans_held, scans_waiting, start_proxy
from recorder import Said, recorder

pytestmark = pytest.mark.clients

TABLES = {"adult", "city", "orders", "patient_data", "ward"}
COLUMNS = ["order_id", "customer_id", "city", "region", "category", "amount", "ordered_on"]
WORDS = (
    ("int",),
    ("int",),
    ("text", "string", "varchar"),
    ("text", "string", "varchar"),
    ("text", "string", "varchar"),
)
KINDS = (*WORDS, ("numeric", "decimal", "string"), ("date",))
PAID = {"decision", "number", "parameter", "transaction", "pieces", "copy", "notice"}
"""Checks that ask one question, which must be paid once however often the client describes, prepares or repeats it."""


def cases() -> list[Any]:
    found = []
    for client in CLIENTS:
        for check in CHECKS:
            if check == "reconnect":
                continue  # all clients at once: see below
            marks = []
            if client.missing:
                marks.append(pytest.mark.skip(reason=client.missing))
            elif check in client.faults:
                marks.append(pytest.mark.xfail(strict=True, reason=client.faults[check]))
            found.append(pytest.param(client, check, marks=marks, id=f"{client.name}-{check}"))
    return found


@pytest.mark.parametrize(("client", "check"), cases())
def test_a_client_works_as_on_postgresql(
    client: Client, check: str, agents: Callable[[Client], Agent], outcomes: Outcomes, request: pytest.FixtureRequest
) -> None:
    agent = agents(client)
    outcomes.versions[client.name] = agent.version
    world = World(agent, request)
    outcomes.note(client.name, check, "no", client.faults.get(check, "failed in this run"))
    try:
        found = getattr(world, check)()
    except Failed as error:
        raise AssertionError(f"{error} ({error.sqlstate})") from None
    if isinstance(found, Unsupported):
        outcomes.note(client.name, check, "–", found.reason)
        pytest.skip(found.reason)
    if check in PAID:
        assert len(charges(world.upstream, world.analyst)) == 1
    outcomes.note(client.name, check, "partly" if check in client.partly else "yes", client.partly.get(check, ""))


class World:
    """What each check must find."""

    def __init__(self, agent: Agent, request: pytest.FixtureRequest) -> None:
        self.agent = agent
        self.client = agent.client
        self.get = request.getfixturevalue
        self.proxy: Proxy = self.get("proxy")
        self.upstream: str = self.get("upstream")
        self.analyst: str = self.get("analyst")

    def ask(self, check: str, **more: Any) -> Any:
        return self.agent.ask(check, **place(self.proxy, self.analyst, **more))

    def recorded(self, check: str) -> Any:
        """Ask through a recorder; what was said on the wire is in ``said``."""
        with recorder(self.proxy.port) as (port, said):
            found = self.agent.ask(check, **{**place(self.proxy, self.analyst), "port": str(port)})
        self.said = Said(frames=[frame for one in said for frame in one.frames])
        return found

    def connect(self) -> Any:
        found = self.ask("connect")
        assert found == 1
        if "connect" in self.client.partly:
            return found
        with pytest.raises(Failed) as refused:
            self.ask("connect", password="wrong")
        assert refused.value.sqlstate in ("28P01", "28000") or "password authentication failed" in str(refused.value)
        return found

    def tls(self) -> Any:
        ours, _, stranger = self.get("certificates")
        found = self.ask("tls", ca=ours)
        if not isinstance(found, Unsupported):
            assert found == 1
            if "tls" in self.client.partly:
                return found
            with pytest.raises(Failed, match=r"(?i)certificate|ssl|tls|PKIX"):
                self.ask("tls", ca=stranger)
        return found

    def binding(self) -> Any:
        return self._one("binding")

    def direct(self) -> Any:
        return self._one("direct")

    def _one(self, check: str) -> Any:
        found = self.ask(check, ca=self.get("certificates")[0])
        assert isinstance(found, Unsupported) or found == 1
        return found

    def list(self) -> Any:
        found = self.ask("list")
        assert isinstance(found, Unsupported) or set(found) >= TABLES
        return found

    def describe(self) -> Any:
        found = self.ask("describe")
        if not isinstance(found, Unsupported):
            assert [row[0] for row in found] == COLUMNS
            for (name, kind), expected in zip(found, KINDS, strict=True):
                assert any(word in str(kind).lower() for word in expected), (name, kind)
        return found

    def public(self) -> Any:
        found = self.ask("public")
        if not isinstance(found, Unsupported):
            with psycopg.connect(self.upstream) as conn:
                assert [tuple(row) for row in found] == conn.execute(SQL["public"]).fetchall()
        return found

    def decision(self) -> Any:
        return self._diseases(self.ask("decision"))

    def parameter(self) -> Any:
        return self._diseases(self.ask("parameter"))

    def _diseases(self, found: Any) -> Any:
        if not isinstance(found, Unsupported):
            assert ["influenza"] in found and len(found) < 40
        return found

    def number(self) -> Any:
        return self._genders(self.ask("number"), self.client.types)

    def copy(self) -> Any:
        found = self.recorded("copy")
        assert isinstance(found, Unsupported) or any(text.upper().startswith("COPY") for text in self.said.texts())
        kinds = None if isinstance(found, Unsupported) else tuple(cell[0] for cell in found[0])
        return self._genders(found, kinds)

    def _genders(self, found: Any, types: Any) -> Any:
        if not isinstance(found, Unsupported):
            assert [row[0][1] for row in found] == ["female", "male", "other"]
            assert {tuple(cell[0] for cell in row) for row in found} == {types}
            for _, (_, n), (_, mean) in found[:2]:
                assert 20_000 < int(n) < 40_000 and 40 < Decimal(mean) < 55
        return found

    def transaction(self) -> Any:
        found = self.ask("transaction")
        if not isinstance(found, Unsupported):
            assert found["before"] == found["after"] and ["influenza"] in found["before"]
            assert found["states"] == ["42501", "25P02"]
        return found

    def error(self) -> Any:
        found = self.ask("error")
        if not isinstance(found, Unsupported):
            assert found["then"] == 2
            assert found["state"] == "42501" or "would show private rows" in found["said"], found
        return found

    def notice(self) -> Any:
        found = self.ask("notice")
        assert isinstance(found, Unsupported) or [said for said in found if said.startswith("veil: ")]
        return found

    def pieces(self) -> Any:
        found = self.recorded("pieces")
        if not isinstance(found, Unsupported):
            assert len(found) == 40 and len({row[0] for row in found}) == 40
            assert self.said.fetches() > 2
        return found

    def pipeline(self) -> Any:
        found = self.ask("pipeline")
        if not isinstance(found, Unsupported):
            decided, cities, genders = found
            assert 0 < decided < 40 and cities == 6 and genders == 3
        return found

    def cancel(self) -> Any:
        folder: Path = self.get("tmp_path")
        go = folder / "go"
        with held_up(self.upstream):
            self.agent.begin("cancel", **place(self.proxy, self.analyst), go=str(go))
            until = time.monotonic() + 60
            while not reading(self.upstream):
                if not self.agent._replies.empty():
                    break
                assert time.monotonic() < until, "the question never came"
                time.sleep(0.02)
            go.touch()
            found = self.agent.end()
            if not isinstance(found, Unsupported):  # nobody could have answered yet, and "then" was asked meanwhile
                assert found["state"] in ("57014", None) and found["then"] == 1, found
                until = time.monotonic() + 60
                while reading(self.upstream):
                    assert time.monotonic() < until, "the protected database goes on"
                    time.sleep(0.02)
        return found


@contextmanager
def held_up(upstream: str) -> Iterator[None]:
    """Questions are charged and then wait for their data, of which nothing was released yet."""
    forget(upstream)
    with scans_held(upstream):
        yield


def reading(upstream: str) -> bool:
    """Whether a question waits for its data."""
    return len(scans_waiting(upstream)) == 1


CONNECTED = 20
PASSING = frozenset(("connectorx", "dbt-postgres"))
"""Clients that close their connection after each statement."""


def crowd() -> list[tuple[Client, int]]:
    """Every client of this machine, and some of them again, so that so many are connected at once."""
    present = [client for client in CLIENTS if not client.missing]
    steady = [client for client in present if client.name not in PASSING]
    more = CONNECTED - len(steady)
    return [(client, 0) for client in present] + [
        (steady[place % len(steady)], 1 + place // len(steady)) for place in range(more if steady else 0)
    ]


def connected(shadow: str, analysts: Iterable[str]) -> int:
    """How many of them have a session."""
    query = "SELECT count(DISTINCT usename) FROM pg_stat_activity WHERE usename = ANY(%s)"
    with psycopg.connect(shadow) as conn:
        (found,) = conn.execute(query, (list(analysts),)).fetchone() or (0,)
        return int(found)


def test_every_client_goes_on_after_a_restart_and_nothing_is_lost_or_paid_twice(
    agents: Callable[..., Agent], upstream: str, shadow_server, outcomes: Outcomes, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    everybody = crowd()
    if not everybody:
        pytest.skip("no client is installed")
    log = tmp_path / "proxy.log"
    proxy = start_proxy(upstream, shadow_server.admin_dsn, log)
    went_wrong: dict[str, str] = {}
    who = {each: new_analyst(upstream) for each in everybody}
    go = tmp_path / "go"
    try:
        for each in everybody:
            ready = tmp_path / f"{who[each]}.ready"
            agents(*each).begin("reconnect", **place(proxy, who[each]), ready=str(ready), go=str(go))
        until = time.monotonic() + 180
        for each in everybody:
            ready = tmp_path / f"{who[each]}.ready"
            while not ready.exists() and agents(*each)._replies.empty() and time.monotonic() < until:
                time.sleep(0.05)
        assert connected(shadow_server.admin_dsn, who.values()) >= CONNECTED
        before = {each: charges(upstream, who[each]) for each in everybody}
        proxy.stop()
        proxy = start_proxy(upstream, shadow_server.admin_dsn, log, options=("--listen", f"127.0.0.1:{proxy.port}"))
        go.touch()
        for each in everybody:
            client, _ = each
            try:
                found = agents(*each).end()
                if isinstance(found, Unsupported):
                    outcomes.note(client.name, "reconnect", "–", found.reason)
                    continue
                assert found["before"] == found["after"] and ["influenza"] in found["before"]
                assert charges(upstream, who[each]) == before[each] and len(before[each]) == 1
                if client.name not in went_wrong:
                    outcomes.note(client.name, "reconnect", "yes")
            except (AssertionError, Failed) as error:
                went_wrong[client.name] = str(error)
                outcomes.note(client.name, "reconnect", "no", client.faults.get("reconnect", "failed in this run"))
    finally:
        proxy.stop()
    assert went_wrong.keys() == {client.name for client, _ in everybody if "reconnect" in client.faults}, went_wrong
