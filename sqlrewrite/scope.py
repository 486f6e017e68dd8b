"""What names mean inside a question: the columns of its tables, and of the SELECTs in its FROM that pick among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from sqlrewrite.catalog import Attribute
from sqlrewrite.errors import NotAnswered, UnknownColumn, UnknownRelation, WouldShowRows
from sqlrewrite.parse import identifier, position
from sqlrewrite.question import ColumnRef, Expression, Literal, Source

Parameters: TypeAlias = Sequence[Literal] | None

SYSTEM_COLUMNS = frozenset(("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"))
ASK_FOR_COUNTS = "ask for counts: SELECT key, count(*) FROM table GROUP BY key"


@dataclass(frozen=True, slots=True)
class Picked:
    """A SELECT in FROM that picks among columns: what each of its outputs means, worked out when it is needed."""

    outputs: Mapping[str, Callable[[], Expression]]


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one level of a question; all levels share its sources."""

    sources: tuple[Source, ...]
    names: tuple[str | None, ...]  # the alias of each source; None where it stands in another level's FROM
    aliased: tuple[bool, ...]
    parameters: Parameters
    merged: Mapping[str, ColumnRef] = field(default_factory=dict)  # columns of USING, and what they are
    picked: Mapping[str, Picked] = field(default_factory=dict)  # SELECTs in this FROM, by alias

    def attribute(self, column: ColumnRef) -> Attribute:
        return self.sources[column.source].relation.attributes[column.name]

    def column(self, node: exp.Column) -> Expression:
        """What a name means; whole rows and system columns are rows too."""
        if not isinstance(node.this, exp.Identifier):
            raise WouldShowRows("a whole row would be shown", hint=ASK_FOR_COUNTS, position=position(node))
        name = identifier(node.this)
        places, picked = self._meant(node)
        found = [place for place in places if name in self.sources[place].relation.attributes]
        made = [each.outputs[name] for each in picked if name in each.outputs]
        if node.args.get("table") is None and name in self.merged:
            return self.merged[name]
        if len(found) + len(made) == 1:
            return self.ref(found[0], name) if found else made[0]()
        if found or made:
            raise NotAnswered(
                f'the column "{name}" is in several tables', hint="write table.column", position=position(node)
            )
        if name in SYSTEM_COLUMNS or (node.args.get("table") is None and (name in self.names or name in self.picked)):
            raise WouldShowRows(
                f'"{name}" would show a private row or its place', hint=ASK_FOR_COUNTS, position=position(node)
            )
        known = [column for place in places for column in self.sources[place].relation.attributes]
        known += [column for each in picked for column in each.outputs]
        raise UnknownColumn(
            f'column "{name}" does not exist', hint="the columns are " + ", ".join(known), position=position(node)
        )

    def ref(self, place: int, name: str) -> ColumnRef:
        return ColumnRef(place, name, self.sources[place].relation.attributes[name].type_name)

    def _meant(self, node: exp.Column) -> tuple[Sequence[int], Sequence[Picked]]:
        """The sources and SELECTs that a column may be of."""
        table, schema = node.args.get("table"), node.args.get("db")
        if table is None:
            return [place for place, name in enumerate(self.names) if name is not None], tuple(self.picked.values())
        wanted = identifier(table)
        for place, name in enumerate(self.names):
            right = schema is None or (
                not self.aliased[place] and identifier(schema) == self.sources[place].relation.schema
            )
            if name == wanted and right:
                return (place,), ()
        if schema is None and wanted in self.picked:
            return (), (self.picked[wanted],)
        known = (*(name for name in self.names if name is not None), *self.picked)
        raise UnknownRelation(
            f'there is no table "{wanted}" in this question',
            hint="the tables are called " + ", ".join(known),
            position=position(node),
        )
