"""Random SQL texts over the tables of the case files: what analysts might write, in no particular taste.

Every text is one that PostgreSQL itself answers without an error, and whose answer does not depend on the order in
which rows are found. Groups that no row has are aside: texts that would show or count them have a HAVING that leaves
them out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Table:
    """What may be asked of one table: group keys, numbers to add up, and conditions on its rows."""

    name: str
    keys: Sequence[str]
    numbers: Sequence[str]
    nullable: Sequence[str]
    sure: Sequence[str]  # numbers that are never NULL
    conditions: Sequence[str]
    person: str | None = None


PATIENTS = Table(
    "patient_data",
    (
        *("age", "gender", "disease", "disease_type", "smoker", "seen", "age / 10", "age / 25 * 25", "age % 7"),
        *("age > 50", "extract(month FROM seen)", "date_trunc('month', seen)", "extract(dow FROM seen)", "age::text"),
        *("upper(gender)", "width_bucket(age, 0, 100, 10)", "left(disease_type, 2)", "-age / 20", "age * 2 - 5"),
        "CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'senior' END",
        "CASE gender WHEN 'f' THEN 1 WHEN 'm' THEN 2 END",
        "seen::text",
        "(seen - date '2025-01-01') / 30",
    ),
    ("age", "weight", "age * 2 + 1", "weight - 20.5", "abs(age - 50)", "CASE WHEN smoker THEN age ELSE 0 END"),
    ("weight",),
    ("age", "age * 2 + 1"),
    (
        *("age > 40", "age <= 60.5", "gender = 'f'", "gender <> 'x'", "disease IN ('d1', 'd5', 'd9')", "smoker"),
        *("age BETWEEN 20 AND 70", "age NOT BETWEEN 30 AND 40", "weight > 75.5", "weight IS NULL", "age % 2 = 0"),
        *("disease_type LIKE '%al'", "disease_type ILIKE 'CHR%'", "seen >= '2025-04-01'", "smoker IS NOT TRUE"),
        *("seen < date '2025-02-01' + interval '3 months'", "extract(month FROM seen) IN (1, 2, 3, 11)", "50 < age"),
        *("disease NOT IN ('d2', 'd3')", "age * 2 > weight", "weight IS DISTINCT FROM 70.0", "age IN (1, 2, 3)"),
        *("gender = ANY (ARRAY['f', 'm'])", "coalesce(weight, 0) > 50", "seen BETWEEN '2025-02-01' AND '2025-09-30'"),
        *("lower(disease_type) = 'viral'", "age / 10 = 4", "NOT smoker", "disease > 'd4'", "length(disease) = 2"),
    ),
)
ORDERS = Table(
    "orders",
    (
        *("city", "region", "category", "quantity", "tier", "ordered_on", "date_trunc('week', ordered_on)"),
        *("quantity > 5", "quantity / 3", "extract(month FROM ordered_on)", "upper(category)", "left(category, 1)"),
        "CASE WHEN amount > 250 THEN 'large' ELSE 'small' END",
        "CASE WHEN discount IS NULL THEN 'full' WHEN discount > 0.15 THEN 'sale' ELSE 'some' END",
        "width_bucket(amount, 0, 500, 5)",
    ),
    ("amount", "quantity", "discount", "amount * quantity", "amount - 10", "coalesce(discount, 0)"),
    ("discount",),
    ("amount", "quantity", "amount * quantity"),
    (
        *("amount > 100", "quantity >= 3", "category IN ('food', 'toys')", "region = 'north'", "discount IS NULL"),
        *("discount > 0.1", "tier <> 'basic'", "city LIKE 'c%'", "ordered_on < '2025-02-15'", "city IN ('c1', 'c4')"),
        *("amount * quantity > 1000", "amount BETWEEN 50 AND 350.55", "ordered_on >= date '2025-01-20'"),
        *("customer_id % 2 = 0", "customer_id < 150", "discount < 0.25 OR amount > 450", "amount > 100 * discount"),
    ),
    person="customer_id",
)
FLIGHTS = Table(
    "flights",
    (
        *("carrier", "origin", "dest", "month", "day", "month / 4", "day % 7", "month > 6"),
        "CASE WHEN dep_delay > 60 THEN 'late' WHEN dep_delay > 0 THEN 'slow' WHEN dep_delay IS NULL THEN 'none' END",
        "CASE WHEN distance > 1000 THEN 'far' ELSE 'near' END",
    ),
    (
        "dep_delay",
        "arr_delay",
        "air_time",
        "distance",
        "arr_delay - dep_delay",
        "CASE WHEN dep_delay > 0 THEN dep_delay END",
    ),
    ("dep_delay", "arr_delay", "air_time"),
    ("distance",),
    (
        *("dep_delay > 10", "arr_delay < dep_delay", "origin = 'JFK'", "month IN (6, 7, 8)", "carrier <> 'UA'"),
        *("distance BETWEEN 500 AND 1500", "dep_delay IS NOT NULL", "air_time > 100", "day <= 15", "dest LIKE '_O_'"),
        *("origin = 'EWR' AND dest = 'SFO' OR origin = 'LGA'", "arr_delay - dep_delay > 20", "-dep_delay > -50"),
    ),
)
TRIPS = Table(
    "trips",
    (
        *("pu_zone", "do_zone", "payment", "passengers", "extract(hour FROM pickup)", "pickup::date", "payment % 2"),
        *("date_trunc('day', pickup)", "extract(dow FROM pickup)", "passengers IS NULL", "pu_zone = do_zone"),
        "CASE WHEN tip > 10 THEN 'generous' ELSE 'modest' END",
    ),
    ("distance", "fare", "tip", "fare + tip", "passengers", "CASE WHEN payment = 1 THEN tip ELSE 0 END"),
    ("passengers",),
    ("fare", "tip", "fare + tip"),
    (
        *("fare > 50", "tip > fare * 0.2", "passengers >= 2", "passengers IS NULL", "payment IN (1, 2)"),
        *("pickup >= timestamp '2020-01-15 00:00'", "extract(hour FROM pickup) BETWEEN 7 AND 9", "distance < 10.5"),
        *("pickup < '2020-02-01'", "pu_zone <> do_zone", "pu_zone IN (1, 5, 9)", "NOT (tip > 5 AND fare < 40)"),
    ),
)
TRANSACTIONS = Table(
    "transactions",
    (
        *("store_id", "week", "quantity", "product_id", "sold_at::date", "week / 2", "extract(hour FROM sold_at)"),
        "CASE WHEN sales_value > 20 THEN 'dear' ELSE 'cheap' END",
    ),
    ("sales_value", "quantity", "sales_value * quantity", "sales_value - 5"),
    (),
    ("sales_value", "quantity"),
    (
        *("week <= 4", "store_id BETWEEN 3 AND 9", "sales_value > 15.5", "quantity IN (1, 3, 5)", "product_id % 3 = 1"),
        *("sold_at >= '2025-01-10 10:00'", "household_id < 100", "store_id = 5 OR week = 2"),
    ),
    person="household_id",
)
TABLES = (PATIENTS, ORDERS, FLIGHTS, TRIPS, TRANSACTIONS)

JOINS = {
    "patient_data": ("JOIN ward j ON j.disease = t.disease", ("j.wing", "j.capacity"), ("j.capacity > 60",)),
    "orders": ("JOIN city j ON t.city = j.city", ("j.region", "j.population"), ("j.population < 6000",)),
    "flights": ("LEFT JOIN airlines j ON j.carrier = t.carrier", ("j.name",), ("j.name <> 'Delta'",)),
    "trips": ("INNER JOIN zones j ON t.pu_zone = j.location_id", ("j.borough",), ("j.borough = 'Queens'",)),
    "transactions": ("JOIN products j ON j.product_id = t.product_id", ("j.department", "j.brand"), ("j.brand > 'o'",)),
}


class Asker:
    """A stream of statements that depends on its seed alone."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def statement(self) -> str:
        text = self.plain_statement()
        return self.respelled(text) if self.chance(0.3) else text

    def plain_statement(self) -> str:
        match self.rng.choices(range(7), (6, 2, 2, 1, 1, 1, 2))[0]:
            case 0:
                return self.question(whole=True)
            case 1:
                return self.wrapped()
            case 2:
                return self.with_windows()
            case 3:
                return self.set_operation()
            case 4:
                return self.grouping_sets()
            case 5:
                return self.decorated()
            case _:
                return self.two_questions()

    def respelled(self, text: str) -> str:
        """The same statement with other blanks, comments and letters."""
        pieces = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", text)
        blanks = (" ", " ", "  ", "\n", "\n\t", " /* a, b */ ", " -- SELECT 'x' (\n")
        for place in range(0, len(pieces), 2):
            words = re.split(r"( )", pieces[place])
            cased = (self.rng.choice((word, word, word.upper(), word.lower(), word.title())) for word in words)
            pieces[place] = "".join(self.rng.choice(blanks) if word == " " else word for word in cased)
        return "".join(pieces)

    # -- parts of a question ------------------------------------------------------------------------------------------

    def condition(self, table: Table, more: Sequence[str] = (), depth: int = 0) -> str:
        kind = self.rng.randrange(6) if depth < 2 else 5
        if kind == 0:
            return f"NOT ({self.condition(table, more, depth + 1)})"
        if kind <= 2:
            word = self.rng.choice((" AND ", " OR "))
            parts = (self.condition(table, more, depth + 1) for _ in range(self.rng.randint(2, 3)))
            return "(" + word.join(parts) + ")"
        return self.rng.choice((*table.conditions, *more))

    def filtered(self, table: Table, chance: float = 0.25) -> str:
        return f" FILTER (WHERE {self.condition(table, depth=1)})" if self.chance(chance) else ""

    def aggregate(self, table: Table) -> str:
        number = self.rng.choice(table.numbers)
        match self.rng.randrange(8):
            case 0 | 1:
                return f"count(*){self.filtered(table)}"
            case 2:
                return f"count({self.rng.choice((*table.nullable, number))}){self.filtered(table)}"
            case 3 | 4:
                # PostgreSQL's sum of nothing is NULL; ours is 0, since whether there was something is private.
                return f"coalesce(sum({number}){self.filtered(table)}, 0)"
            case 5:
                return f"avg({number}){self.filtered(table)}"
            case 6 if table.person is not None:
                return f"count(DISTINCT {table.person}){self.filtered(table)}"
            case _:
                spread = self.rng.choice(("variance", "stddev", "var_pop", "stddev_pop"))
                return f"{spread}({self.rng.choice(table.numbers[:2])})"

    def value(self, table: Table) -> str:
        """Arithmetic over aggregates that PostgreSQL does on its own."""
        one = self.aggregate(table)
        match self.rng.randrange(10):
            case 0:
                return f"round({one}, 2)" if not one.startswith("count") else f"{one} * 2 - 1"
            case 1:
                return f"coalesce({one}, 0)"
            case 2:
                return f"100.0 * {one} / nullif({self.aggregate(table)}, 0)"
            case 3:
                return f"CASE WHEN {one} > 100 THEN 'many' ELSE 'few' END"
            case 4:
                return f"({one})::numeric(20, 2)"
        return one

    def atom(self, table: Table) -> str:
        op = self.rng.choice((">", ">=", "<", "<="))
        limit = self.rng.choice(("10", "25", "60", "99.5", "150", "2 * 100", "400"))
        match self.rng.randrange(9):
            case 0 | 1 | 2:
                return f"count(*){self.filtered(table)} {op} {limit}"
            case 3:
                return f"{limit} {op} count({self.rng.choice((*table.nullable, '*'))})"
            case 4:
                return f"sum({self.rng.choice(table.sure)}) {op} 10 * {limit}"
            case 5:
                low = self.rng.randrange(10, 80)
                word = self.rng.choice(("BETWEEN", "NOT BETWEEN"))
                return f"count(*) {word} {low} AND {low * 3}"
            case 6:
                limit = self.rng.choice(("20", "48.5", "60"))
                return f"(count(*) >= 5 AND avg({self.rng.choice(table.sure)}) {op} {limit})"
            case 7:
                return f"count(*) {op} 3 * count(*) FILTER (WHERE {self.rng.choice(table.conditions)})"
            case _:
                if table.person is not None:
                    return f"count(DISTINCT {table.person}) {op} {limit}"
                return f"NOT count(*) {op} {limit}"

    def having(self, table: Table, depth: int = 0) -> str:
        if depth < 2 and self.chance(0.4):
            word = self.rng.choice((" AND ", " OR "))
            text = "(" + word.join(self.having(table, depth + 1) for _ in range(2)) + ")"
            return f"NOT {text}" if self.chance(0.15) else text
        return self.atom(table)

    def order(self, names: Sequence[str], keys: int, limit: bool = True) -> str:
        """ORDER BY outputs; with a LIMIT only behind all keys, so that the answer is one."""
        if not names or self.chance(0.4):
            return ""
        chosen = list(names)
        self.rng.shuffle(chosen)
        if not (limit and self.chance(0.5)):
            chosen = chosen[: self.rng.randint(1, len(chosen))]
        ends = ("", " ASC", " DESC", " DESC NULLS LAST", " NULLS FIRST")
        text = " ORDER BY " + ", ".join(name + self.rng.choice(ends) for name in chosen)
        if limit and len(chosen) == len(names):
            text += self.rng.choice(("", f" LIMIT {self.rng.randint(1, 8)}", f" LIMIT 5 OFFSET {keys}", " OFFSET 2"))
        return text

    # -- statements ---------------------------------------------------------------------------------------------------

    def source(self, table: Table) -> tuple[str, list[str], Sequence[str]]:
        """FROM, keys and extra conditions; columns that two tables share are qualified."""
        keys = list(table.keys)
        if not self.chance(0.25):
            return table.name, keys, ()
        join, joined, conditions = JOINS[table.name]
        shared = {"patient_data": "disease", "orders": ("city", "region"), "flights": "carrier", "trips": "pu_zone"}
        hidden = shared.get(table.name, "product_id")
        names = (hidden,) if isinstance(hidden, str) else hidden
        keys = [key for key in keys if not any(name in key for name in names)]
        keys += [*joined, *joined, *(f"t.{name}" for name in names)]
        return f"{table.name} t {join}", keys, conditions

    def question(self, *, whole: bool, keys: int | None = None, having: bool | None = None, table: Table | None = None,
                 values: int | None = None) -> str:  # fmt: skip
        """SELECT keys, aggregates FROM ... with outputs k0, k1, ..., v0, v1, ..."""
        rng = self.rng
        table = table or rng.choice(TABLES)
        from_, all_keys, more = self.source(table)
        joined = " t " in from_
        plain = replace(table, keys=all_keys, conditions=_unshared(table, joined))
        chosen = rng.sample(all_keys, rng.choice((0, 1, 1, 1, 2, 2)) if keys is None else keys)
        chosen = list(dict.fromkeys(chosen))
        shown = [f"{key} AS k{place}" for place, key in enumerate(chosen)]
        count = rng.randint(0 if chosen else 1, 3) if values is None else values
        shown += [f"{self.value(plain)} AS v{place}" for place in range(count)]
        if whole and chosen and self.chance(0.3):
            rng.shuffle(shown)
        text = f"SELECT {', '.join(shown)} FROM {from_}"
        if self.chance(0.6):
            text += f" WHERE {self.condition(plain, more)}"
        if chosen:
            way = rng.randrange(3)
            places = [shown.index(f"{key} AS k{place}") + 1 for place, key in enumerate(chosen)]
            groups = chosen if way == 0 else [f"k{i}" for i in range(len(chosen))] if way == 1 else map(str, places)
            text += " GROUP BY " + ", ".join(groups)
        # What PostgreSQL does not list must not be counted either.
        decide = (self.chance(0.5) if having is None else having) and bool(chosen)
        if decide:
            text += f" HAVING {self.having(plain)} AND count(*) > 0"
        elif chosen:
            text += " HAVING count(*) > 0"
        if whole:
            names = [f"k{i}" for i in range(len(chosen))]
            text += self.order(names, len(chosen))
        return text

    def wrapped(self) -> str:
        rng = self.rng
        inner = self.question(whole=False, keys=rng.choice((1, 2)), values=2)
        match rng.randrange(6):
            case 0:
                return f"SELECT q.k0, count(*) AS n, max(q.v0) AS m FROM ({inner}) q GROUP BY 1 ORDER BY 1 LIMIT 9"
            case 1:
                return f"WITH q AS ({inner}) SELECT * FROM q WHERE v1 IS NOT NULL ORDER BY k0"
            case 2:
                return f'SELECT "t"."k0" AS "Key", t.v0 FROM (SELECT * FROM ({inner}) AS "u") AS "t" WHERE 1 = 1'
            case 3:
                return f"SELECT count(*), min(k0::text), max(k0::text) FROM ({inner}) AS q"
            case 4:
                return f"WITH a AS ({inner}), b AS (SELECT k0, v0 FROM a) SELECT b.k0, a.v1 FROM a JOIN b USING (k0)"
            case _:
                nothing = ", ".join(["NULL"] * (2 if " AS k1" not in inner else 3) + ["NULL"])
                return f"SELECT * FROM ({inner}) q UNION ALL (SELECT {nothing} LIMIT 0)"

    def with_windows(self) -> str:
        table = self.rng.choice(TABLES)
        key = self.rng.choice(table.keys)
        where = f" WHERE {self.condition(table)}" if self.chance(0.5) else ""
        window = self.rng.choice(
            (
                "rank() OVER (ORDER BY count(*) DESC)",
                "sum(count(*)) OVER (ORDER BY {key})",
                "round(100.0 * count(*) / sum(count(*)) OVER (), 2)",
                "lag(count(*)) OVER (ORDER BY {key})",
                "count(*) - avg(count(*)) OVER ()",
                "max(sum({number})) OVER w",
            )
        ).format(key=key, number=table.numbers[0])
        named = " WINDOW w AS (PARTITION BY 1)" if "OVER w" in window else ""
        # A guard on the whole group leaves out what PostgreSQL does not list, before the window sees it.
        return (
            f"SELECT {key} AS k, count(*) AS n, {window} AS w FROM {table.name}{where}"
            f" GROUP BY {key} HAVING count(*) > 0{named} ORDER BY k"
        )

    def decorated(self) -> str:
        """Expressions over keys, aggregates in ORDER BY only, names with and without their table."""
        rng = self.rng
        table = rng.choice(TABLES)
        key = rng.choice([key for key in table.keys if re.fullmatch(r"\w+", key)])
        alias = rng.choice(("t", '"T"', "Tab", table.name))
        name = rng.choice((key, f"{alias}.{key}", f'{alias}."{key}"'))
        shown = rng.choice(
            (
                f"coalesce(({name})::text, 'none') AS k, count(*)",
                f"upper({name}::text), length({alias}.{key}::text) AS size, count(*) * 2 AS n",
                f"{key}, CASE WHEN {key} IS NULL THEN 0 ELSE count(*) END AS n",
                f"{name} AS {key}, row_number() OVER (ORDER BY {key})",
                f"DISTINCT {key}",
                f"min(count(*)) OVER () AS least, {key}",
                f"{self.value(table)} AS v, {name}",
            )
        )
        where = f" WHERE {self.condition(table)}" if self.chance(0.4) else ""
        order = ""
        if "DISTINCT" not in shown and self.chance(0.6):
            order = rng.choice(
                (f" ORDER BY count(*) DESC, {name}", f" ORDER BY {alias}.{key} LIMIT 4", " ORDER BY 1, 2")
            )
        source = table.name if alias == table.name else f"{table.name}{rng.choice((' AS', ''))} {alias}"
        return f"SELECT {shown} FROM {source}{where} GROUP BY {rng.choice((name, key))} HAVING count(*) > 0{order}"

    def set_operation(self) -> str:
        table = self.rng.choice(TABLES)
        key = self.rng.choice(table.keys)
        word = self.rng.choice(("INTERSECT", "UNION", "EXCEPT", "UNION ALL", "INTERSECT ALL"))
        sides = [
            f"SELECT {key} AS k FROM {table.name} WHERE {self.condition(table, depth=1)} GROUP BY {key}"
            f" HAVING {self.having(table, 1)} AND count(*) > 0"
            for _ in range(2)
        ]
        return f"{sides[0]} {word} {sides[1]}{self.rng.choice(('', ' ORDER BY 1', ' ORDER BY k DESC LIMIT 3'))}"

    def grouping_sets(self) -> str:
        rng = self.rng
        table = rng.choice(TABLES)
        one, two = rng.sample([key for key in table.keys if " " not in key], 2)
        sets = rng.choice(
            (
                f"ROLLUP ({one}, {two})",
                f"CUBE ({one}, {two})",
                f"GROUPING SETS (({one}), ({two}))",
                f"GROUPING SETS (({one}, {two}), ({one}), ())",
                f"{one}, ROLLUP ({two})",
                f"GROUPING SETS (({one}), ({one}), ({two}, {one}))",
            )
        )
        where = f" WHERE {self.condition(table)}" if self.chance(0.5) else ""
        mark = f", grouping({one}, {two}) AS g" if self.chance(0.5) else ""
        return (
            f"SELECT {one} AS a, {two} AS b, {self.aggregate(table)} AS v{mark} FROM {table.name}{where}"
            f" GROUP BY {sets} HAVING count(*) > 0"
        )

    def two_questions(self) -> str:
        table = self.rng.choice(TABLES)
        key = self.rng.choice(table.keys)
        sides = [
            f"(SELECT {key} AS k, {self.aggregate(table)} AS v FROM {table.name} WHERE {self.condition(table)}"
            f" GROUP BY 1 HAVING count(*) > 0)"
            for _ in range(2)
        ]
        join = self.rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        return f"SELECT k, a.v AS one, b.v AS other FROM {sides[0]} a {join} {sides[1]} b USING (k) ORDER BY k"


def _unshared(table: Table, joined: bool) -> Sequence[str]:
    """Conditions whose columns only the protected table has."""
    if not joined:
        return table.conditions
    shared = {"patient_data": ("disease ", "disease)"), "orders": ("city", "region"), "flights": ("carrier",)}
    names = shared.get(table.name, ("product_id",))
    return [text for text in table.conditions if not any(name in f"{text} " for name in names)]
