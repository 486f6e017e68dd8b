"""Random statements of analysts for record and replay: questions of every kind, settings, repetitions, nonsense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from question_world import Writer

MECHANISMS = ("auto", "auto", "tslm", "naive", "ppwlm", "dppwlm", "probe_naive", "probe", "probe_ent", "cert")
SETTINGS: dict[str, Sequence[str]] = {
    "veil.beta": ("0.05", "0.2", "0.001", "0.5", "2"),
    "veil.alpha": ("0.1", "0.5", "0.01", "x"),
    "veil.epsilon": ("", "", "0.1", "1", "25", "-1"),
    "veil.margin": ("50u", "5u", "1u", "3", "0.5", "1000", "NaN"),
    "veil.confidence": ("0.95", "0.5", "0.999"),
    "veil.max_epsilon": ("", "", "0.01", "5", "1000"),
    "veil.support": ("", "5", "1", "0.5"),
    "veil.mechanism": MECHANISMS,
    "veil.certify": ("alpha", "beta"),
    "veil.raw": ("off", "on"),
    "veil.reuse": ("off", "on"),
    "veil.on_exhausted": ("error", "relax"),
    "veil.nonsense": ("1",),
    "TimeZone": ("UTC", "Europe/Berlin", "America/St_Johns", "X+100"),
    "DateStyle": ("ISO, MDY", "German", "SQL, DMY"),
    "IntervalStyle": ("postgres", "iso_8601"),
    "extra_float_digits": ("1", "-5"),
}
BAD = ("2", "x", "-1", "NaN", "0.5", "X+100")
DECLARED = ("ward", "kind", "day", "code", "paid", "span", "feeling")
DERIVED = (
    "date_trunc('week', day)", "extract(isodow FROM day)", "lower(ward)", "CASE WHEN paid THEN 'p' ELSE 'u' END",
    "coalesce(ward, 'none')", "day + 1", "left(kind, 1)", "low / 3", "n % 3", "width_bucket(n, 0, 10, 4)",
    "day::text", "n > 3", "upper(code)", "extract(hour FROM at)", "at::date",
    "CASE WHEN cost > 20 THEN 'dear' WHEN n > 5 THEN 'x' END",
)  # fmt: skip
OPEN = ("note", "n", "wide", "account", "left(note, 1)", "big", "whole", "low", "till::date", "small")
NUMBERS = (
    "n", "low", "cost", "small", "big", "rate", "fine", "whole", "wide", "n * 2 + 1", "low * n", "cost - 3.5",
    "abs(small)", "CASE WHEN paid THEN n ELSE 0 END", "coalesce(cost, 0)", "n * n * low", "cost * 0.25", "rate * 10",
    "low::numeric / 4",
)  # fmt: skip
CONDITIONS = (
    "paid", "NOT paid", "ward = 'north'", "ward IN ('north', 'attic')", "kind <> 'b'", "n > 5", "low BETWEEN 2 AND 8",
    "cost > 19.5", "day >= '2024-03-31'", "day IS NOT NULL", "note LIKE 'N%'", "note IS NULL", "small < 0",
    "rate > 0.25", "feeling = 'sad'", "span = '1 day'", "code = 'A'", "whole < 7", "wide IS DISTINCT FROM 7",
    "fine > 1.5", "big > 10", "n * low > cost", "at < '2024-04-01'", "till > '2024-04-01 00:00Z'", "id < 30",
    "id = 3", "n IN (1, 2)", "n + low > 12", "lower(note) > 'n'", "extract(dow FROM day) = 0",
    "day + 3 > '2024-04-02'", "cost = 'NaN'", "rate = 'Infinity'",
)  # fmt: skip
REFUSED = (
    "SELECT * FROM stay", "SELECT n FROM stay", "SELECT min(n), max(cost) FROM stay",
    "SELECT array_agg(note) FROM stay", "SELECT string_agg(note, ',') FROM stay",
    "SELECT count(*) FROM stay TABLESAMPLE BERNOULLI (50)", "SELECT count(*) FROM stay WHERE n / (n - 1) > 0",
    "SELECT sum(1 / n) FROM stay", "SELECT count(*) FROM stay WHERE note::int > 3",
    "SELECT count(*) FROM stay, stay s", "SELECT count(*) FROM stay LIMIT (SELECT n FROM stay LIMIT 1)",
    "SELECT count(*) FROM stay WHERE EXISTS (SELECT FROM account a WHERE a.id = stay.account)",
    "SELECT (SELECT n FROM stay LIMIT 1)", "SELECT stay FROM stay GROUP BY stay",
    "SELECT ctid, count(*) FROM stay GROUP BY 1", "SELECT count(*) FROM stay WHERE shape = '((0,0),(1,1))'",
    "SELECT rank() OVER (ORDER BY n) FROM stay", "INSERT INTO stay SELECT * FROM stay", "UPDATE stay SET n = 1",
    "DELETE FROM stay", "COPY stay TO STDOUT", "SELECT count(*) FROM stay WHERE note ~ '(a+)+b'",
    "SELECT count(*) FROM nothing", "SELECT count(*) FROM stay WHERE zip = 1",
    "SELECT count(*) FROM stay WHERE n * 1e131071 > 1", "SELECT sum(n::smallint * 30000::smallint) FROM stay",
    "SELECT count(*) FROM stay WHERE extract(year FROM day + 2147483647) > 0",
    "SELECT count(*) FROM stay WHERE n % 1e-400 = 0", "SELECT count(*) FROM stay WHERE day + n * 100000000 > day",
    "SELECT sum(big * big * big) FROM stay", "SELECT count(*) FROM stay WHERE repeat(note, 100000000) = ''",
    "SELECT sum(cost ^ n) FROM stay", "SELECT sum(exp(n)) FROM stay",
    "SELECT count(*) FROM stay GROUP BY ward ORDER BY max(n)", "SELECT DISTINCT ON (ward) ward FROM stay",
    "EXPLAIN ANALYZE SELECT count(*) FROM stay", "SELECT count(*) FROM stay WHERE pg_sleep(n) IS NULL",
    "SELECT count(*) FROM stay WHERE random() < 0.5",
    "SELECT count(*) FROM stay HAVING count(*) / (count(*) - 1) > 1",
    "SELECT kind FROM stay GROUP BY kind HAVING avg(n) > 3", "SELECT count(* FROM stay",
    "SELECT count(*) FROM stay WHERE n = 'x'", "SELECT count(*) FROM stay WHERE day > 'yesterday or so'",
    "DECLARE c CURSOR FOR SELECT * FROM stay", "SELECT sum(n) FROM stay GROUP BY id", "TABLE stay",
    "SELECT 1 FROM stay",
)  # fmt: skip
PUBLIC = (
    "SELECT ward, beds FROM ward ORDER BY ward", "SELECT 1", "SHOW veil.margin", "SELECT count(*) FROM ward",
    "SHOW TimeZone", "SELECT count(*) > 0 FROM veil.question", "SELECT veil.help()",
    "SELECT * FROM veil.budget ORDER BY 1",
    "SELECT id, question, mechanism, epsilon, delta, charged, coin, bill FROM veil.question ORDER BY id DESC LIMIT 9",
    "SELECT 1 / 0",
)  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One statement of an analyst, and how it is sent."""

    kind: str
    text: str
    way: str = "simple"
    values: tuple[str | None, ...] = ()


class Asker(Writer):
    """A stream of statements that depends on the seed alone."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.before: list[Statement] = []

    def statement(self) -> Statement:
        made = self._statement()
        if made.kind not in ("setting", "public"):
            self.before.append(made)
        return made

    def _statement(self) -> Statement:
        rng = self.rng
        kind = rng.choices(
            ("tame", "wild", "decision", "open", "wrapped", "sets", "explain", "parameters", "again", "setting",
             "refused", "public", "bounds", "mutated", "batch", "session"),
            (24, 12, 13, 8, 5, 4, 4, 7, 24, 8, 6, 2, 3, 4, 1, 2),
        )[0]  # fmt: skip
        match kind:
            case "again" if self.before:
                old = rng.choice(self.before[-60:])
                way = old.way if old.values else rng.choice(("simple", "extended", "prepared", "binary"))
                return Statement("again", old.text, way, old.values)
            case "setting":
                return self.setting()
            case "refused":
                return Statement(kind, rng.choice(REFUSED), self.way())
            case "public":
                return Statement(kind, rng.choice(PUBLIC), self.way())
            case "wild":
                return Statement(kind, self.question(), self.way())
            case "mutated":
                return Statement(kind, self.mutated(self.tame()), self.way())
            case "batch":
                return Statement(kind, "; ".join(self.tame() for _ in range(2)))
            case "session":
                return Statement(kind, self.session())
            case "parameters":
                return self.with_parameters()
            case "explain":
                form = rng.choice(("EXPLAIN ", "EXPLAIN (FORMAT JSON) ", "EXPLAIN VERBOSE "))
                return Statement(kind, form + rng.choice((self.tame, self.decision, self.question))(), self.way())
            case "wrapped":
                return Statement(kind, self.wrapped(), self.way())
            case "decision":
                return Statement(kind, self.decision(), self.way())
            case "open":
                return Statement(
                    kind, self.tame(keys=[rng.choice(OPEN), *self.keys(1)][: rng.randint(1, 2)]), self.way()
                )
            case "sets":
                one, two = self.keys(2)
                sets = rng.choice(("ROLLUP ({0}, {1})", "CUBE ({0}, {1})", "GROUPING SETS (({0}), ({1}), ())"))
                return Statement(kind, self.tame(keys=[one, two], by=sets.format(one, two)), self.way())
            case "bounds":
                return Statement(kind, self.tame(bounds=True), self.way())
            case _:
                return Statement("tame", self.tame(), self.way())

    def way(self) -> str:
        return self.pick("simple", "simple", "simple", "extended", "prepared", "binary")

    def setting(self) -> Statement:
        name = self.rng.choice(list(SETTINGS))
        value = self.rng.choice(SETTINGS[name])
        if value in BAD and self.rng.random() < 0.9:  # who sets nonsense hears of nothing else until it is reset
            value = SETTINGS[name][0]
        if self.rng.random() < 0.1:
            return Statement("setting", "RESET ALL")
        if self.rng.random() < 0.3 or name == "veil.nonsense":
            return Statement(
                "setting", f"RESET {name}" if self.rng.random() < 0.8 else f"SET {name} = '{value}'; RESET {name}"
            )
        return Statement("setting", f"SET {name} = '{value}'")

    # -- questions that are mostly answered ----------------------------------------------------------------------------

    def keys(self, count: int) -> list[str]:
        return self.rng.sample((*DECLARED, *DECLARED, *DERIVED, *OPEN[:2]), count)

    def filters(self, depth: int = 0) -> str:
        if depth < 2 and self.rng.random() < 0.3:
            one, other = self.filters(depth + 1), self.filters(depth + 1)
            return self.pick(f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})")
        return self.rng.choice(CONDITIONS)

    def value(self) -> str:
        number = self.rng.choice(NUMBERS)
        kept = f" FILTER (WHERE {self.filters(1)})" if self.rng.random() < 0.25 else ""
        shape = self.pick(
            "count(*)", "count(*)", f"count({number})", f"sum({number})", f"sum({number})", f"avg({number})",
            f"stddev({number})", "count(note)", "count(DISTINCT stay.account)",
        )  # fmt: skip
        return shape + kept

    def source(self) -> str:
        joined = self.rng.random()
        if joined < 0.6:
            return "stay"
        if joined < 0.8:
            return "stay JOIN account ON stay.account = account.id"
        return "stay " + self.pick("JOIN", "LEFT JOIN") + " ward w ON stay.ward = w.ward"

    def tame(self, keys: Sequence[str] | None = None, by: str | None = None, bounds: bool = False) -> str:
        rng, source = self.rng, self.source()
        chosen = list(keys) if keys is not None else self.keys(rng.choice((0, 0, 1, 1, 1, 2)))
        if keys is None and "account" in source and rng.random() < 0.4:
            chosen = ["sex", *chosen[:1]]
        if " w " in source:
            chosen = ["stay.ward" if key == "ward" else key for key in chosen if key == "ward" or "ward" not in key]
            if rng.random() < 0.4 and by is None:
                chosen = [rng.choice(("w.beds", "w.zone")), *chosen[:1]]
        shown = [self.value() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        if bounds:
            shown = [
                each for aggregate in shown for each in (aggregate, f"veil.low({aggregate})", f"veil.high({aggregate})")
            ]
        text = f"SELECT {', '.join([*chosen, *shown])} FROM {source}"
        if rng.random() < 0.5:
            condition = self.filters()
            text += f" WHERE {condition}" if " w " not in source or "ward" not in condition else ""
        if chosen:
            text += f" GROUP BY {by or ', '.join(chosen)}"
            if rng.random() < 0.3:
                text += f" ORDER BY {rng.randint(1, len(chosen) + len(shown))}" + self.pick(
                    "", " DESC", " LIMIT 2", " OFFSET 1"
                )
        return text

    def decision(self) -> str:
        keys = self.keys(self.rng.choice((1, 1, 1, 2)))
        shown = [*keys, *(self.value() for _ in range(self.rng.choice((0, 0, 1))))]
        where = f" WHERE {self.filters()}" if self.rng.random() < 0.4 else ""
        return f"SELECT {', '.join(shown)} FROM stay{where} GROUP BY {', '.join(keys)} HAVING {self.tree()}"

    def tree(self, depth: int = 0) -> str:
        if depth < 2 and self.rng.random() < 0.4:
            one, other = self.tree(depth + 1), self.tree(depth + 1)
            return self.pick(f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})")
        op, c = self.pick("<", "<=", ">", ">="), self.pick("0", "3", "10", "25", "60", "7.5", "-2", "1000")
        kept = f" FILTER (WHERE {self.filters(1)})" if self.rng.random() < 0.2 else ""
        number = self.rng.choice(NUMBERS)
        return self.pick(
            f"count(*){kept} {op} {c}", f"count(*){kept} {op} {c}", f"sum({number}){kept} {op} {c}",
            f"(count(*) >= 5 AND avg({number}) {op} {c})",
            f"count(*) {op} 2 * count(*) FILTER (WHERE {self.filters(2)})",
            f"sum({number}) {op} sum({self.rng.choice(NUMBERS)})", f"count(DISTINCT account) {op} {c}",
        )  # fmt: skip

    def wrapped(self) -> str:
        inner, other = self.tame(keys=(key := self.keys(1))), self.tame(keys=key)
        inner = inner.split(" ORDER BY ")[0]
        other = other.split(" ORDER BY ")[0]
        kept = f"SELECT {key[0]} FROM stay GROUP BY 1"
        return self.pick(
            f"SELECT count(*), min(q::text) FROM ({inner}) q", f"WITH q AS ({inner}) SELECT * FROM q ORDER BY 1",
            f"SELECT * FROM ({inner}) q LIMIT 2", f"({inner}) UNION ALL ({inner})",
            f"SELECT * FROM ({inner}) q WHERE 1 = 0", f"CREATE TEMP TABLE IF NOT EXISTS kept AS {inner}",
            f"SELECT {key[0]}, count(*), sum(count(*)) OVER () FROM stay GROUP BY {key[0]}",
            f"SELECT a.*, b.* FROM ({inner}) a, ({other}) b ORDER BY 1, 2 LIMIT 7",
            f"{kept} HAVING {self.tree()} INTERSECT {kept} HAVING {self.tree()}",
        )  # fmt: skip

    def session(self) -> str:
        """Several statements in one message: cursors, COPY, transactions, statements that are prepared in SQL."""
        one, other = self.tame(), self.rng.choice((self.tame, self.decision))()
        return self.pick(
            f"BEGIN; {one}; {other}; ROLLBACK", f"PREPARE p AS {one}; EXECUTE p; EXECUTE p; DEALLOCATE p",
            f"COPY ({one}) TO STDOUT", f"BEGIN; DECLARE c CURSOR FOR {one}; FETCH 2 FROM c; FETCH ALL FROM c; COMMIT",
            f"BEGIN; SET LOCAL veil.margin = '7u'; {one}; COMMIT; {one}", f"{one}; SELECT 1 / 0; {other}",
            f"BEGIN; SAVEPOINT s; {one}; ROLLBACK TO s; {other}; COMMIT", "DISCARD ALL",
            f"SELECT ({one.split(' GROUP ')[0]})",
        )  # fmt: skip

    def with_parameters(self) -> Statement:
        rng = self.rng
        shapes: tuple[tuple[str, Sequence[str | None]], ...] = (
            ("SELECT count(*) FROM stay WHERE n > $1", ("3", "7", "-2147483648", "x", None, "1e5")),
            ("SELECT kind, sum(n) FROM stay WHERE cost < $1 GROUP BY kind", ("20", "NaN", "1e300", "0.001")),
            ("SELECT count(*) FROM stay WHERE note = $1", ("x", "", "Note 7", None, "x" * 3000)),
            ("SELECT ward, count(*) FROM stay WHERE day >= $1 GROUP BY ward", ("2024-03-30", "infinity", "?")),
            ("SELECT ward FROM stay GROUP BY ward HAVING count(*) > $1", ("5", "25", "-1", None, "1e30")),
            ("SELECT sum(n * $1::int) FROM stay", ("2", "2147483647", "0", None)),
            ("SELECT count(*) FROM stay WHERE whole * $1 > 3", ("1", "1e399", "1e131000", "1e-16000", "NaN")),
            ("SELECT count(*) FROM stay WHERE low = ANY($1)", ("{1,2,3}", "{}", "{NULL}", None)),
            ("SELECT count(*) FROM stay WHERE note LIKE $1", ("%", "N%", "\\", "%" * 300, None)),
            ("SELECT paid, avg(n + $1) FROM stay GROUP BY 1", ("1", "-7", "99999")),
        )  # fmt: skip
        text, values = rng.choice(shapes)
        return Statement("parameters", text, self.pick("extended", "prepared", "binary"), (rng.choice(values),))

    def mutated(self, text: str) -> str:
        words = text.split(" ")
        at = self.rng.randrange(len(words))
        match self.rng.randrange(4):
            case 0:
                del words[at]
            case 1:
                words.insert(at, self.rng.choice(words))
            case 2:
                words[at] = self.pick("1", "*", "NULL", "stay", "(", "'", "$1", "n", "max(n)", "account")
            case _:
                words[at] = words[at][::-1]
        return " ".join(words)
