"""Constants that only the protected server can read: what it does not take for a value is refused, uncharged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy

from provenance.migrate import migrate

SCHEMA = """
CREATE DOMAIN small AS int CHECK (VALUE BETWEEN 0 AND 9);
CREATE TABLE host (id int PRIMARY KEY, net cidr NOT NULL, level small NOT NULL);
INSERT INTO host SELECT i, '10.0.0.0/8', i % 10 FROM generate_series(1, 100) i;
"""


@pytest.fixture(scope="module")
def network(postgres, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    dsn = postgres.new_database("network")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        conn.execute("SELECT provenance.protect('host')")
    log = tmp_path_factory.mktemp("network") / "proxy.log"
    with running_proxy(dsn, shadow_server.admin_dsn, log) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("condition", "values"),
    [("net = '10.0.0.1/8'", ()), ("level = '-7'", ()), ("net = %s", ("10.0.0.1/8",)), ("level = %s::small", ("70",))],
)
def test_a_constant_that_is_no_value_of_the_type_costs_nothing(
    network: Proxy, condition: str, values: tuple[Any, ...]
) -> None:
    name = new_analyst(network.upstream)
    with network.connect(name) as session:
        with pytest.raises(psycopg.Error) as refused:
            session.execute(f"SELECT count(*) FROM host WHERE {condition}".encode(), values or None)
        assert refused.value.sqlstate in ("22P02", "23514", "0A000"), refused.value
        assert charges(network.upstream, name) == []
        session.execute("SELECT count(*) FROM host WHERE net = '10.0.0.0/8'")
        assert len(charges(network.upstream, name)) == 1
