"""Attack: two different questions with one fingerprint: the second would be answered with the first one's numbers.

Random texts are changed a little (an operator, a constant, a key, a filter, a join); whenever a pair shares its
fingerprint, both must measure the same on random databases.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from question_world import BY_ACCOUNT, BY_OWNER, BY_PATH, BY_ROW, STAY, WARD, Asked, Server, Writer, ask

from mechanisms.errors import Refusal
from proxy.plan import setting_digest
from sqlrewrite import normal
from sqlrewrite.catalog import Catalog

SWAPS = [
    ("<=", "<"), (">=", ">"), ("<", ">"), ("=", "<>"), (" AND ", " OR "), ("LEFT JOIN", "JOIN"), ("sum(", "avg("),
    ("whole", "wide"), ("count(*)", "count(wide)"), ("FILTER (WHERE", "FILTER (WHERE NOT"), ("kind", "stay.ward"),
    ("ROLLUP", "CUBE"), ("WHERE", "WHERE NOT"), (" 7", " 8"), ("0.5", "0.50"), ("'a'", "'b'"), ("LIKE", "ILIKE"),
    ("::int", "::bigint"), ("round(", "trunc("), ("floor(", "ceil("), ("month", "year"), ("+", "-"), ("n", "low"),
    ("INTERVAL '1 month'", "INTERVAL '30 days'"), (" IS NULL", " IS NOT NULL"), ("coalesce(", "coalesce(NULL, "),
    ("WHERE", "WHERE true AND"), ("HAVING", "HAVING 1 < 2 AND"), ("count(*)", "count(1)"), ("count(", "COUNT( "),
    ("SELECT", "SELECT count(*),"), ("WHERE", "WHERE NOT NOT"), ("1, 2.5", "2.50, 1.0"), ("(WHERE", "(WHERE true AND"),
    ("lower(", "upper("), ("IS TRUE", "IS NOT FALSE"), ("100", "1e2"), ("1, 2.5", "2.5, 1"), (" / 7", " / 7.0"),
]  # fmt: skip


def variants(text: str, rng: random.Random) -> list[str]:
    """The text, and some texts that differ from it in one place."""
    found = [text]
    for old, new in rng.sample(SWAPS, 16):
        places = [m.start() for m in re.finditer(re.escape(old), text)]
        if places:
            at = rng.choice(places)
            found.append(text[:at] + new + text[at + len(old) :])
    return found


def collisions(server: Server, seed: int, texts: int) -> tuple[int, list[tuple[str, str]]]:
    """How many pairs share a fingerprint, and those of them that measure different things."""
    rng = random.Random(seed)
    writer, pairs, wrong = Writer(rng), 0, list[tuple[str, str]]()
    for _ in range(texts):
        server.fill(rng, 30, 0.05)
        catalog = rng.choice((BY_ROW, BY_ACCOUNT, BY_OWNER, BY_PATH))
        same: dict[str, list[tuple[str, Asked]]] = defaultdict(list)
        for text in variants(writer.question(), rng):
            if not server.reads(text):
                continue
            try:
                asked = ask(text, catalog, support=5)
                server.grid(asked.question)
            except Refusal:
                continue
            same[asked.digest].append((text, asked))
        for (text, first), *others in same.values():
            for other, second in others:
                pairs += 1
                if any(not alike(server, first, second) for _ in range(2)):
                    wrong.append((text, other))
    return pairs, wrong


def alike(server: Server, first: Asked, second: Asked) -> bool:
    one, other = (server.measured(each.question, server.grid(each.question)) for each in (first, second))
    return one == other and repr(first.question.having).count("Atom") == repr(second.question.having).count("Atom")


def test_one_fingerprint_is_one_question(server: Server) -> None:
    pairs, wrong = collisions(server, 5, 60)
    assert pairs > 15 and wrong == []


@pytest.mark.slow
def test_one_fingerprint_is_one_question_two_thousand_times(server: Server) -> None:
    pairs, wrong = collisions(server, 6, 2_000)
    assert pairs > 500 and wrong == []


@pytest.fixture
def nothing_remembered() -> Iterator[None]:
    """Spellings that a mutant wrote are not there for other tests, nor those of others for a mutant."""
    for remembered in (normal._known_bound, normal._known_spelling):
        remembered.cache_clear()
    yield
    for remembered in (normal._known_bound, normal._known_spelling):
        remembered.cache_clear()


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize("part", ["filter", "outer", "operator"])
def test_a_fingerprint_that_leaves_something_out_is_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Mutants: the FILTER of an aggregate, the side of a join, the operator of a comparison do not enter."""
    measure_form, source, predicate = normal.measure_form, normal._source, normal._predicate
    match part:
        case "filter":
            monkeypatch.setattr(normal, "measure_form", lambda m: measure_form(replace(m, filter=None)))
        case "outer":
            monkeypatch.setattr(normal, "_source", lambda s: source(s)[:-1])
        case _:
            compared = {"<", "<=", ">", ">=", "=", "<>"}
            monkeypatch.setattr(
                normal,
                "_predicate",
                lambda p: ["?" if isinstance(x, str) and x in compared else x for x in predicate(p)],
            )
    assert collisions(server, 5, 60)[1]


DIFFERENT = [
    ("SELECT count(*) FROM stay WHERE ward = 'a'", "SELECT count(*) FROM stay WHERE kind = 'a'"),
    ("SELECT count(*) FROM stay WHERE note = '1'", "SELECT count(*) FROM stay WHERE note = '1.0'"),
    ("SELECT count(*) FROM stay WHERE code = 'A'", "SELECT count(*) FROM stay WHERE code = 'A'::text"),
    ("SELECT count(*) FILTER (WHERE paid) FROM stay", "SELECT count(*) FROM stay WHERE paid"),
    ("SELECT sum(n) FROM stay", "SELECT sum(low) FROM stay"),
    ("SELECT ward, count(*) FROM stay GROUP BY ward", "SELECT kind, count(*) FROM stay GROUP BY kind"),
    ("SELECT count(*) FROM stay JOIN ward USING (ward)", "SELECT count(*) FROM stay LEFT JOIN ward USING (ward)"),
    ("SELECT count(*) FROM stay JOIN ward USING (ward)", "SELECT count(*) FROM stay JOIN ward ON kind = ward.ward"),
    ("SELECT n / 2, count(*) FROM stay GROUP BY 1", "SELECT n / 2.0, count(*) FROM stay GROUP BY 1"),
    ("SELECT count(*) FROM stay WHERE note LIKE 'a'", "SELECT count(*) FROM stay WHERE note ILIKE 'a'"),
]  # fmt: skip


@pytest.mark.parametrize("pair", DIFFERENT)
def test_different_questions_have_different_fingerprints(pair: tuple[str, str]) -> None:
    assert ask(pair[0]).digest != ask(pair[1]).digest


def test_constants_that_the_session_gives_their_meaning_are_marked_with_its_settings() -> None:
    """Attack: '01/02/2024' of a domain over dates under two DateStyles; a zone for timestamps."""
    born = replace(STAY.attributes["note"], type_name="public.birthday")
    catalog = Catalog(1, (replace(STAY, attributes={**STAY.attributes, "note": born}), WARD))
    told = SimpleNamespace(carried={"DateStyle": "ISO, DMY"})
    for text in (
        "SELECT count(*) FROM stay WHERE note = '01/02/2024'",
        "SELECT count(*) FROM stay WHERE till > '2024-01-01'",
        "SELECT date_trunc('day', day), count(*) FROM stay GROUP BY 1",
    ):
        assert "ISO, DMY" in setting_digest(ask(text, catalog).question, told)  # type: ignore[arg-type]
    plain = ask("SELECT ward, sum(n) FROM stay WHERE paid AND kind = 'a' GROUP BY ward").question
    assert setting_digest(plain, told) == ""  # type: ignore[arg-type]
