"""Attack: constants of types whose text names objects of the protected server, or that have no comparison there."""

from __future__ import annotations

import pytest
from question_world import _attribute, ask

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog, Kind, Relation
from sqlrewrite.constant import NAMED
from sqlrewrite.question import Literal


def catalog(type_name: str) -> Catalog:
    columns = (_attribute("id", "integer", True), _attribute("x", type_name), _attribute("y", type_name))
    return Catalog(1, (Relation(1, "public", "t", Kind.PROTECTED, {a.name: a for a in columns}),))


@pytest.mark.parametrize("type_name", NAMED)
@pytest.mark.parametrize(
    "part",
    ["x = 'pg_class'", "x IN ('a', 'b')", "x IS DISTINCT FROM 'nope'", "coalesce(x, 'nope') = y", "x = $1", "x > 'a'",
     "CASE WHEN id = 1 THEN x ELSE 'nope' END = y", "x = ANY('{a,b}')", "x BETWEEN 'a' AND 'b'"],
)  # fmt: skip
def test_a_constant_that_names_an_object_is_refused(type_name: str, part: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(f"SELECT count(*) FROM t WHERE {part}", catalog(type_name), [Literal("nope", "unknown")])
    assert caught.value.sqlstate == "0A000" and caught.value.position is not None


@pytest.mark.parametrize("type_name", NAMED)
def test_a_name_is_no_key_and_may_be_counted(type_name: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask("SELECT x, count(*) FROM t GROUP BY 1", catalog(type_name))
    assert caught.value.sqlstate == "0A000" and caught.value.position is not None
    assert ask("SELECT count(x) FROM t WHERE x IS NOT NULL", catalog(type_name)).question.measures


@pytest.mark.parametrize("type_name", ["xml", "json", "jsonpath"])
@pytest.mark.parametrize("part", ["x = '1'", "x <> '1'", "x IN ('1', '2')", "x = y", "x IS DISTINCT FROM '1'"])
def test_values_without_a_comparison_are_refused(type_name: str, part: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(f"SELECT count(*) FROM t WHERE {part}", catalog(type_name))
    assert caught.value.sqlstate == "0A000" and caught.value.position is not None
