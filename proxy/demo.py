"""The demo: five tables in an embedded PostgreSQL, registered as an administrator would register them.

``load`` is one transaction, so a demo that was killed half-way is simply not there at the next start; so is
``register``. Rows come from ``demo_data``; what is declared about each column stands here, beside its type.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from provenance.migrate import migrate
from proxy import demo_data
from proxy.demo_data import CATEGORIES, CUSTOMERS, DISEASE_TYPES, GENDERS, ORDERS, PATIENTS, REGIONS, Row
from proxy.embedded import Cluster

DATABASE = "demo"
ANALYSTS = (("alice", 1), ("bob", 4), ("carol", 10))
ADMINISTRATOR = "admin"
BATCH = 8192  # rows per message


@dataclass(frozen=True, slots=True)
class Column:
    """A column, what it means, and what is publicly known of its values."""

    name: str
    type: str
    comment: str
    lower: str | None = None
    upper: str | None = None
    step: str | None = None
    members: tuple[str, ...] | None = None
    members_from: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the demo; ``size_hint`` is None for a public one."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    rows: Callable[[], Iterator[Row]]
    constraints: tuple[str, ...] = ()
    size_hint: int | None = None
    unit_column: str | None = None
    max_groups: int = 1
    max_rows: int = 1


def _adult(name: str, comment: str, *members: str) -> Column:
    return Column(name, "text", comment, members=members)


TABLES = (  # a table stands after those that it refers to
    Table(
        "city",
        "Cities with at least one customer (public)",
        (
            Column("city", "text", "Name"),
            Column("region", "text", "One of seven regions"),
            Column("population", "integer", "Inhabitants, census of 2020"),
        ),
        demo_data.cities,
        ("PRIMARY KEY (city)",),
    ),
    Table(
        "ward",
        "One ward per disease (public)",
        (Column("disease", "text", "What is treated here"), Column("capacity", "integer", "Beds")),
        demo_data.wards,
        ("PRIMARY KEY (disease)",),
    ),
    Table(
        "patient_data",
        "Admissions of a hospital: one patient, one row (protected)",
        (
            Column("patient_id", "integer", "Number of the patient", "1", "100000"),
            Column("age", "integer", "In years, 0 to 100", "0", "100", "1"),
            Column("gender", "text", "As registered", members=GENDERS),
            Column("disease", "text", "Diagnosis; see ward", members_from="ward.disease"),
            Column("disease_type", "text", "Class of the diagnosis", members=DISEASE_TYPES),
        ),
        demo_data.patients,
        ("PRIMARY KEY (patient_id)", "FOREIGN KEY (disease) REFERENCES ward"),
        size_hint=PATIENTS,
    ),
    Table(
        "orders",
        "Orders of a mail-order house in 2025 (protected; the person is customer_id)",
        (
            Column("order_id", "integer", "Number of the order, by date", "1", "1000000"),
            Column("customer_id", "integer", "Who ordered: the privacy unit", "1", str(5 * CUSTOMERS)),
            Column("city", "text", "Where it was delivered; see city", members_from="city.city"),
            Column("region", "text", "Region of the city", members=REGIONS),
            Column("category", "text", "What was ordered", members=CATEGORIES),
            Column("amount", "numeric(8,2)", "Price in dollars, 0 to 500", "0", "500", "0.01"),
            Column("ordered_on", "date", "Day of the order", "2025-01-01", "2025-12-31", "1"),
        ),
        demo_data.orders,
        ("PRIMARY KEY (order_id)", "FOREIGN KEY (city) REFERENCES city"),
        size_hint=ORDERS,
        unit_column="customer_id",
        # Keeps 80 % of the orders by city and 92 % by month, and one customer moves a count by 8 at most.
        max_groups=8,
        max_rows=8,
    ),
    Table(
        "adult",
        "UCI Adult, from the census of 1994 (protected; CC BY 4.0, Becker and Kohavi 1996, doi:10.24432/C5XW20)",
        (
            Column("age", "integer", "In years", "0", "100", "1"),
            _adult("workclass", "Kind of employer", *demo_data.WORKCLASSES),
            Column("fnlwgt", "integer", "People that the row stands for", "0", "1500000"),
            _adult("education", "Highest degree", *demo_data.EDUCATIONS),
            Column("education_num", "integer", "Highest degree as a number", "1", "16", "1"),
            _adult("marital_status", "Marital status", *demo_data.MARITAL_STATUSES),
            _adult("occupation", "Occupation", *demo_data.OCCUPATIONS),
            _adult("relationship", "Place in the household", *demo_data.RELATIONSHIPS),
            _adult("race", "As the census has it", *demo_data.RACES),
            _adult("sex", "As the census has it", "Female", "Male"),
            Column("capital_gain", "integer", "In dollars", "0", "99999"),
            Column("capital_loss", "integer", "In dollars", "0", "5000"),
            Column("hours_per_week", "integer", "Hours of work", "0", "100", "1"),
            _adult("native_country", "Country of birth", *demo_data.COUNTRIES),
            _adult("income", "Per year", "<=50K", ">50K"),
        ),
        demo_data.adult,
        size_hint=50_000,
    ),
)


def load(dsn: str) -> None:
    """Create and fill the tables, all or nothing; a loaded demo is left alone."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('pgveil demo'))")
        names = [table.name for table in TABLES]
        found = connection.execute("SELECT count(to_regclass('public.' || n)) FROM unnest(%s::text[]) n", [names])
        if found.fetchone() == (len(TABLES),):
            return
        progress = Progress()
        for table in TABLES:
            _fill(connection, table, progress)
        progress.say("indexes and keys")
        for table in TABLES:  # after the rows: one pass instead of a check per row
            for constraint in table.constraints:
                connection.execute(f"ALTER TABLE public.{table.name} ADD {constraint}".encode())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ANALYZE")
    progress.close()


def _fill(connection: psycopg.Connection[tuple[object, ...]], table: Table, progress: Progress) -> None:
    name = sql.Identifier("public", table.name)
    columns = ", ".join(f"{column.name} {column.type} NOT NULL" for column in table.columns)
    connection.execute(f"CREATE TABLE public.{table.name} ({columns})".encode())
    connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(name, table.comment))
    for column in table.columns:
        target = sql.Identifier("public", table.name, column.name)
        connection.execute(sql.SQL("COMMENT ON COLUMN {} IS {}").format(target, column.comment))
    done = 0
    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN (FREEZE)").format(name)) as copy:
        lines: list[str] = []
        for done, row in enumerate(table.rows(), 1):
            lines.append("\t".join(map(str, row)))
            if len(lines) == BATCH:
                copy.write("\n".join(lines) + "\n")
                lines.clear()
                progress.say(f"{table.name} {done:,}")
        if lines:
            copy.write("\n".join(lines) + "\n")
    progress.say(f"{table.name} {done:,}", final=True)


class Progress:
    """One line that changes on a terminal; one line per table elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._begun = time.monotonic()

    def say(self, text: str, *, final: bool = False) -> None:
        if self._live:
            print(f"\rpgveil demo: loading {text:<40}", end="", flush=True)
        elif final:
            print(f"pgveil demo: loaded {text}", flush=True)

    def close(self) -> None:
        end = f"demo data ready in {time.monotonic() - self._begun:.1f} s"
        print(f"\rpgveil {end:<60}" if self._live else f"pgveil {end}", flush=True)


def register(dsn: str) -> None:
    """Register tables, columns and people, once: what an administrator changes afterwards stays changed."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('pgveil demo'))")
        if connection.execute("SELECT FROM provenance.relation LIMIT 1").fetchone() is not None:
            return
        connection.execute(
            "UPDATE provenance.deployment SET coin = 'zcdp', epsilon = 10, delta = 0.000000001, allocation = 'max'"
        )
        for table in TABLES:
            if table.size_hint is None:
                connection.execute("SELECT provenance.publish(%s)", [table.name])
                continue
            connection.execute(
                "SELECT provenance.protect(%s, unit_column => %s, max_groups => %s, max_rows => %s, size_hint => %s,"
                " changes => 'frozen')",
                [table.name, table.unit_column, table.max_groups, table.max_rows, table.size_hint],
            )
            for column in table.columns:
                members = list(column.members) if column.members else None
                connection.execute(
                    "SELECT provenance.declare_attribute(%s, %s, lower => %s::text, upper => %s::text,"
                    " step => %s::text, members => %s::text[], members_from => %s::text)",
                    [table.name, column.name, column.lower, column.upper, column.step, members, column.members_from],
                )
        for name, privilege in ANALYSTS:  # in a demo the password is the name
            connection.execute("SELECT provenance.create_analyst(%s, %s, %s)", [name, name, privilege])
        connection.execute("SELECT provenance.create_administrator(%s, %s)", [ADMINISTRATOR, ADMINISTRATOR])


def prepare(home: Path) -> tuple[Cluster, str]:
    """Start the protected cluster of the demo with everything in it; the caller stops it."""
    cluster = Cluster(home / "protected")
    cluster.start()
    try:
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            if connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        dsn = cluster.dsn(DATABASE)
        migrate(dsn)
        load(dsn)
        register(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")  # so that recovery after a kill has little to do
    except BaseException:
        cluster.stop()
        raise
    return cluster, dsn
