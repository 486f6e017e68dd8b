"""The catalog joins what was declared with what PostgreSQL knows, and reads no private row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from provenance.migrate import role_password
from provenance.registry import Account, Registry
from sqlrewrite.catalog import Attribute, Catalog, Kind, Reference

Pools = Callable[..., Any]


def ask(dsn: str, pools: Pools, question: Callable[[Registry], Any]) -> Any:
    async def run() -> Any:
        async with pools(dsn) as pool:
            return await question(Registry(pool, pool))

    return asyncio.run(run())


def load(dsn: str, pools: Pools) -> Catalog:
    catalog: Catalog = ask(dsn, pools, lambda registry: registry.load())
    return catalog


def test_columns_come_in_order_with_types_and_declarations(ready: str, owner: Connection, pools: Pools) -> None:
    catalog = load(ready, pools)
    assert [(r.schema, r.name, r.kind) for r in catalog.relations] == [
        ("public", "city", Kind.PUBLIC),
        ("public", "orders", Kind.PROTECTED),
        ("public", "patient", Kind.PROTECTED),
    ]
    patient = catalog.by_name["public", "patient"]
    assert list(patient.attributes) == ["id", "age", "sex", "mood", "seen", "fee", "ok"]
    assert patient.attributes["age"] == Attribute(
        "age", "integer", True, tuple(range(101)), Decimal(0), Decimal(100), False
    )
    assert patient.attributes["fee"] == Attribute("fee", "numeric(8,2)", False)
    assert [name for name, attribute in patient.attributes.items() if attribute.bytewise] == ["sex"]
    assert (patient.unit_column, patient.size_hint, patient.data_version) == (None, 100, 1)
    orders = catalog.by_name["public", "orders"]
    assert (orders.unit_column, orders.max_groups, orders.max_rows) == ("customer_id", 3, 2)


DOMAINS = [
    ("patient", "sex", "members => '{m,f,x}'", ("m", "f", "x")),
    ("patient", "mood", "members => '{bad,good}'", ("bad", "good")),
    ("patient", "fee", "members => '{1.5,2}'", (Decimal("1.50"), Decimal("2.00"))),
    ("patient", "fee", "lower => 0, upper => 1, step => 0.5", (Decimal(0), Decimal("0.5"), Decimal(1))),
    ("patient", "ok", "members => '{true,false}'", (True, False)),
    ("patient", "seen", "'2024-01-30', '2024-02-01', '1'", (date(2024, 1, 30), date(2024, 1, 31), date(2024, 2, 1))),
    ("patient", "seen", "'2024-01-01', '2024-03-01', '1 month'", tuple(date(2024, m, 1) for m in (1, 2, 3))),
    ("orders", "at", "'2024-01-01', '2024-01-01 12:00', '6 hours'", tuple(datetime(2024, 1, 1, h) for h in (0, 6, 12))),
    ("orders", "city", "members_from => 'city.city'", ("Bergen", "Hamar", "Oslo")),
    ("orders", "city", "members_from => 'public.city.region'", ("N", "W")),
    ("orders", "order_id", "lower => 1, upper => 10", None),
    ("patient", "age", "members => '{1,many}'", None),  # does not fit the type
]


@pytest.mark.parametrize(("table", "column", "declared", "domain"), DOMAINS)
def test_domains_are_written_out_in_the_type_of_the_column(
    ready: str, owner: Connection, pools: Pools, table: str, column: str, declared: str, domain: Any
) -> None:
    owner.execute(f"SELECT provenance.declare_attribute('{table}', '{column}', {declared})".encode())
    made = load(ready, pools).by_name["public", table].attributes[column]
    assert made.domain == domain
    if domain:
        assert [type(key) for key in made.domain or ()] == [type(key) for key in domain]
        assert made.keys == (domain if made.not_null else (*domain, None))


def test_a_table_that_is_no_longer_public_gives_no_keys(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute("SELECT provenance.declare_attribute('orders', 'city', members_from => 'city.city')")
    owner.execute("SELECT provenance.protect('city')")
    assert load(ready, pools).by_name["public", "orders"].attributes["city"].domain is None


def test_a_dropped_table_is_not_in_the_catalog(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute("DROP TABLE orders")
    assert ("public", "orders") not in load(ready, pools).by_name


def test_a_column_that_can_raise_on_one_row_is_not_there_for_questions(
    ready: str, owner: Connection, pools: Pools
) -> None:
    """Attack: WHERE id = 18 AND v = 1 on v AS (100 / age) fails on one row only, and so tells of it."""
    if owner.info.server_version < 180000:
        pytest.skip("virtual generated columns came with PostgreSQL 18")
    owner.execute(
        "CREATE TYPE pair AS (a point, b int); CREATE DOMAIN points AS point[];"
        "CREATE TABLE odd (id int, v int GENERATED ALWAYS AS (100 / id) VIRTUAL,"
        " stored int GENERATED ALWAYS AS (id) STORED, p pair, d points)"
    )
    owner.execute("SELECT provenance.protect('odd')")
    assert list(load(ready, pools).by_name["public", "odd"].attributes) == ["id", "stored"]


def test_a_name_that_needs_quotes_works(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute('CREATE SCHEMA "My"; CREATE TABLE "My"."T.x" ("a b" int)')
    owner.execute('SELECT provenance.publish(\'"My"."T.x"\')')
    owner.execute("SELECT provenance.declare_attribute('\"My\".\"T.x\"', 'a b', 1, 2, 1)")
    assert load(ready, pools).by_name["My", "T.x"].attributes["a b"].domain == (1, 2)


def test_versions_show_what_moved(ready: str, owner: Connection, pools: Pools) -> None:
    before = ask(ready, pools, lambda registry: registry.versions())
    owner.execute("SELECT provenance.refresh('patient')")
    after = ask(ready, pools, lambda registry: registry.versions())
    assert after.registry == before.registry == load(ready, pools).version
    changed = {key for key in after.data if after.data[key] != before.data[key]}
    assert changed == {load(ready, pools).by_name["public", "patient"].id}


def test_accounts_are_the_active_ones(ready: str, owner: Connection, pools: Pools) -> None:
    def account(name: str) -> Account | None:
        found: Account | None = ask(ready, pools, lambda registry: registry.account(name))
        return found

    alice, admin = account("alice"), account("admin")
    assert alice is not None and not alice.administrator and alice.verifier.startswith("SCRAM-SHA-256$4096:")
    assert admin is not None and admin.administrator
    assert account("nobody") is None
    owner.execute("UPDATE provenance.analyst SET active = false WHERE name = 'alice'")
    assert account("alice") is None


def test_people_and_limits_are_read(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute("UPDATE provenance.analyst SET settings = '{\"veil.beta\": 0.01}' WHERE name = 'bob'")
    deployment = ask(ready, pools, lambda registry: registry.deployment())
    assert (deployment.epsilon, deployment.delta, deployment.privileges) == (10, Decimal("1e-9"), 5)
    assert deployment.conversion_delta + deployment.payment_delta == deployment.delta
    bob = ask(ready, pools, lambda registry: registry.analyst("bob"))
    assert (bob.privilege, bob.settings, bob.active) == (4, {"veil.beta": "0.01"}, True)
    assert ask(ready, pools, lambda registry: registry.analyst("nobody")) is None
    assert ask(ready, pools, lambda registry: registry.administrator("admin")) is True
    assert ask(ready, pools, lambda registry: registry.administrator("bob")) is False


def test_derived_passwords_agree_between_processes(ready: str, owner: Connection, pools: Pools) -> None:
    secret = owner.execute("SELECT value FROM provenance.secret").fetchone()
    assert secret is not None
    derived = ask(ready, pools, lambda registry: registry.derived_password("pgveil_admin"))
    assert derived == role_password(secret[0], "pgveil_admin")


def test_keys_and_foreign_keys_come_from_validated_constraints(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute("ALTER TABLE orders ADD FOREIGN KEY (customer_id) REFERENCES patient (id) NOT VALID")
    owner.execute("ALTER TABLE orders ADD UNIQUE (order_id, city)")
    loaded = load(ready, pools)
    assert loaded.by_name["public", "city"].unique == {("city",)}
    assert loaded.by_name["public", "orders"].unique == {("city", "order_id")}
    assert loaded.by_name["public", "orders"].references == ()
    owner.execute("ALTER TABLE orders VALIDATE CONSTRAINT orders_customer_id_fkey")
    assert load(ready, pools).by_name["public", "orders"].references == (
        Reference(("customer_id",), "public", "patient", ("id",)),
    )


def test_a_table_with_heirs_has_no_key_of_its_own(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute("CREATE TABLE heir () INHERITS (city)")
    assert load(ready, pools).by_name["public", "city"].unique == frozenset()


CHECKS = [
    ("age >= 0 AND age <= 100", True),
    ("age BETWEEN 1 AND 99", True),
    ("age > -1 AND age < 100 AND fee > 0", False),  # -1 lies outside the declared bounds
    ("age >= 0 AND age < 101", False),
    ("age >= 0", False),
    ("NOT (age >= 0 AND age <= 100)", False),
    ("age >= 0 AND (age <= 100 OR ok)", False),
    ("ok OR (age >= 0 AND age <= 100)", False),
    ("age >= 0 AND age <= id", False),
    ("age + 1 >= 0 AND age <= 100", False),
    ("age >= 0 AND age <= 99.6::integer", False),  # the cast makes another number of it
    ("age >= 0 AND age <= 99.6::real", False),
    ("age >= 0 AND age <= 99::bigint", True),
]


@pytest.mark.parametrize(("check", "checked"), CHECKS)
def test_bounds_are_checked_where_a_constraint_says_so(
    ready: str, owner: Connection, pools: Pools, check: str, checked: bool
) -> None:
    owner.execute(f"ALTER TABLE patient ADD CHECK ({check}) NOT VALID".encode())
    assert not load(ready, pools).by_name["public", "patient"].attributes["age"].checked
    owner.execute("DELETE FROM patient")
    for row in owner.execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'patient'::regclass AND contype = 'c'"
    ):
        owner.execute(f'ALTER TABLE patient VALIDATE CONSTRAINT "{row[0]}"'.encode())
    attributes = load(ready, pools).by_name["public", "patient"].attributes
    assert attributes["age"].checked is checked
    assert not attributes["fee"].checked


def test_a_type_can_be_the_bound(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute("SELECT provenance.declare_attribute('patient', 'id', -2147483648, 2147483647)")
    assert load(ready, pools).by_name["public", "patient"].attributes["id"].checked


def test_loading_reads_no_private_row(ready: str, owner: Connection, pools: Pools) -> None:
    """A role that may read catalogs and published tables only is enough."""
    owner.execute("SELECT provenance.declare_attribute('orders', 'city', members_from => 'city.city')")
    owner.execute("REVOKE SELECT ON patient, orders FROM pgveil_reader")

    async def run() -> Catalog:
        as_reader = psycopg.conninfo.make_conninfo(ready, options="-c role=pgveil_reader")
        async with pools(ready) as pool, pools(as_reader) as upstream:
            return await Registry(pool, upstream).load()

    assert asyncio.run(run()).by_name["public", "orders"].attributes["city"].domain == ("Bergen", "Hamar", "Oslo")
