"""Fragments to a typed question, or a refusal.

Each fragment goes through the same four steps: the scanner (``parse``), the allow-list (``allow``), the check that
nothing was swallowed (``account``), and typed construction by the reader of its clause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlglot import exp

from mechanisms.condition import And, Condition, Leaf, Or, atoms
from sqlrewrite.account import account
from sqlrewrite.aggregate import Measures, aggregate
from sqlrewrite.allow import allow
from sqlrewrite.catalog import Catalog, Kind
from sqlrewrite.clauses import Clauses, Fragment
from sqlrewrite.constant import FLOATS, base_type
from sqlrewrite.decompose import Decision, decompose
from sqlrewrite.derived import Resolve
from sqlrewrite.errors import NotAnswered
from sqlrewrite.expression import Reader, expression
from sqlrewrite.linear import row_bound
from sqlrewrite.normal import measure_form, normalise, order_of, simplest
from sqlrewrite.parse import Form, Parsed, conjuncts, parse, placed
from sqlrewrite.predicate import condition
from sqlrewrite.question import (
    AggregateValue,
    AllOf,
    Always,
    Atom,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    GroupKey,
    Literal,
    Predicate,
    Question,
    Statistic,
    Unit,
)
from sqlrewrite.question import Form as Formula
from sqlrewrite.render import Rendering
from sqlrewrite.scope import Parameters, Scope
from sqlrewrite.sensitivity import rows_of
from sqlrewrite.sizes import RowCost
from sqlrewrite.source import source
from sqlrewrite.unit import root, unit
from sqlrewrite.walk import columns

T = TypeVar("T")

MAX_KEYS = 16
_CASTS = re.compile(r"::[a-z0-9 ]+|[() ]")  # and parentheses


def read(
    clauses: Clauses,
    catalog: Catalog,
    resolve: Resolve,
    parameters: Sequence[Literal] | None,
    support: int | None = None,
) -> Question:
    """The question that one SELECT asks about protected rows.

    ``resolve`` tells what a name is under the session's search_path; ``parameters`` is None before Bind, and the
    question is then a skeleton that shows whether it can be answered. ``support`` is the guard of averages in HAVING.
    """
    scope, where = _rows(clauses, catalog, resolve, parameters)
    bounded, cost = unit(scope), RowCost(scope.sources)
    with placed(0, (clauses.where or clauses.from_).start):
        cost.where(where or Always(True))
    keys = tuple(_key(fragment, scope, bounded, cost) for fragment in clauses.keys)
    if len(keys) > MAX_KEYS:
        raise NotAnswered(f"GROUP BY takes at most {MAX_KEYS} keys", hint="group by fewer columns")
    measures = Measures(scope, bounded)
    shown = tuple(_aggregate(fragment, scope, measures, cost) for fragment in clauses.aggregates)
    decision = Decision(None, None, ())
    if clauses.having is not None:
        decision = _having(clauses.having, clauses.sets, scope, measures, keys, support, cost)
    if decision.where is not None:
        where = decision.where if where is None else normalise(AllOf((where, decision.where)))
    shown = _centred(shown, scope, bounded, measures)
    single = [Statistic(terms, row_bound(terms, measures)) for column in shown for terms in column.wanted]
    question = Question(
        scope.sources,
        bounded,
        None if where == Always(True) else where,
        keys,
        clauses.sets,
        measures.all(),
        tuple(dict.fromkeys((*decision.statistics, *single))),
        decision.having,
        shown,
    )
    _apart(question, clauses.keys)
    return _in_order(question)


def _apart(question: Question, written: Sequence[Fragment]) -> None:
    """Keys that PostgreSQL takes for one are refused where there are several grouping sets.

    It does so before GROUPING() tells the sets apart: rows of two of them would then be added up in one cell, and a
    unit would move that cell twice. A cast that changes no type leaves nothing behind.
    """
    rendering, seen = Rendering(question.sources), set[tuple[str, str]]()
    for key, fragment in zip(question.keys, written, strict=True):
        same = base_type(key.expression.type_name), _CASTS.sub("", rendering.expression(key.expression))
        if same in seen and len(question.sets) > 1:
            raise NotAnswered(
                "the same key stands twice in ROLLUP, CUBE or GROUPING SETS",
                hint="leave one of them out: it adds nothing",
                position=fragment.start + 1,
            )
        seen.add(same)


def _fragment(fragment: Fragment, form: Form, scope: Scope, build: Callable[[exp.Expr, Reader], T]) -> T:
    parsed = parse(fragment, form)
    with placed(parsed.shift, fragment.start):
        allow(parsed, form)
        account(parsed)
        root = parsed.root.args["where"].this if form is Form.CONDITION else parsed.root.expressions[0]
        return build(root, Reader(scope, parsed, condition))


def _rows(
    clauses: Clauses, catalog: Catalog, resolve: Resolve, parameters: Parameters
) -> tuple[Scope, Predicate | None]:
    """FROM and WHERE: the tables, and the rows of their join that are asked about."""
    parsed, filtering = parse(clauses.from_, Form.SOURCE), None
    with placed(parsed.shift, clauses.from_.start):
        allow(parsed, Form.SOURCE)
        account(parsed)
    where: list[exp.Expr] = []
    if clauses.where is not None:
        filtering = parse(clauses.where, Form.CONDITION)
        with placed(filtering.shift, clauses.where.start):
            allow(filtering, Form.CONDITION)
            account(filtering)
        where = conjuncts(filtering.root.args["where"].this)
    with placed(parsed.shift, clauses.from_.start):
        from_ = source(parsed, catalog, resolve, parameters, partial(_value, parsed), where)
        found = [condition(part, Reader(level, parsed, condition)) for part, level in from_.conditions]
    if filtering is not None and clauses.where is not None:
        with placed(filtering.shift, clauses.where.start):
            reader = Reader(from_.scope, filtering, condition)
            found += [condition(part, reader) for at, part in enumerate(where) if at not in from_.joining]
    return from_.scope, normalise(AllOf(tuple(found))) if found else None


def _value(parsed: Parsed, node: exp.Expr, scope: Scope) -> Expression:
    """An output of a SELECT in FROM."""
    return expression(node, Reader(scope, parsed, condition))


def _aggregate(fragment: Fragment, scope: Scope, measures: Measures, cost: RowCost) -> AggregateValue:
    def build(node: exp.Expr, reader: Reader) -> AggregateValue:
        found = aggregate(node, fragment.text, reader, measures)
        cost.measures(measures.all())
        return found

    return _fragment(fragment, Form.EXPRESSION, scope, build)


def _centred(
    shown: Sequence[AggregateValue], scope: Scope, bounded: Unit, measures: Measures
) -> tuple[AggregateValue, ...]:
    """An average or a spread beside the sum itself is computed from that sum, which is paid for anyway.

    So is one whose sum and count bound a person's rows apart: taken together they would move further, not less.
    """
    summed = {column.measures[0] for column in shown if column.form is Formula.SUM}

    def plain(column: AggregateValue) -> bool:
        *_, total, count = column.measures
        apart = rows_of(scope.sources, measures[total]) != rows_of(scope.sources, measures[count])
        return total in summed or (bounded.column is not None and apart)

    return tuple(replace(column, plain=plain(column)) if column.centre else column for column in shown)


def _having(
    fragment: Fragment,
    sets: Sequence[Sequence[int]],
    scope: Scope,
    measures: Measures,
    keys: tuple[GroupKey, ...],
    support: int | None,
    cost: RowCost,
) -> Decision:
    def build(node: exp.Expr, reader: Reader) -> Decision:
        found = decompose(node, reader, measures, keys, sets, support, fragment.text)
        cost.measures(measures.all())
        cost.where(found.where or Always(True))
        return found

    return _fragment(fragment, Form.CONDITION, scope, build)


def _key(fragment: Fragment, scope: Scope, bounded: Unit, cost: RowCost) -> GroupKey:
    def build(node: exp.Expr, reader: Reader) -> Expression:
        key = simplest(expression(node, reader))
        cost.key(key)
        return key

    found = _fragment(fragment, Form.EXPRESSION, scope, build)
    if base_type(found.type_name) in FLOATS and isinstance(found, ColumnRef):
        raise NotAnswered(
            f'"{found.name}" is a floating-point column and makes no groups',
            hint="group by width_bucket(x, low, high, n) or round(x::numeric)",
            position=fragment.start + 1,
        )
    constant = all(constant_per_unit(column, scope, bounded) for column in columns(found))
    return GroupKey(found, constant, _open(found, scope))


def constant_per_unit(column: ColumnRef, scope: Scope, bounded: Unit) -> bool:
    """Whether all rows of one unit have the same value in a column.

    A column of a joined table follows from the columns that it is joined on. What is declared of a table whose units
    are its rows says nothing about those of the table that it is joined to.
    """
    if bounded.column is None or root(scope.sources, column) in {root(scope.sources, part) for part in bounded.column}:
        return True
    joined = scope.sources[column.source]
    own = joined.relation.kind is Kind.PROTECTED and not joined.relation.row_unit
    if own and scope.attribute(column).constant_per_unit:
        return True
    return bool(joined.on) and all(constant_per_unit(left, scope, bounded) for left, _ in joined.on)


def _open(found: Expression, scope: Scope) -> bool:
    """Whether the values of an expression are not public: some column of a protected table has no declared domain."""
    match found:
        case Literal():
            return False
        case ColumnRef(place, _, _):
            return scope.sources[place].relation.kind is Kind.PROTECTED and scope.attribute(found).domain is None
        case Cast(argument, _):
            return _open(argument, scope)
        case Case(branches, otherwise, _):
            return any(_open(part, scope) for part in (*(then for _, then in branches), otherwise))
        case Call(_, arguments, _):
            return any(_open(argument, scope) for argument in arguments)


def _in_order(question: Question) -> Question:
    """The measures that are used, and the statistics, in an order that does not depend on the order of the text."""
    decided = set() if question.having is None else {atom.statistic for atom in atoms(question.having)}
    shown = {terms for column in question.columns for terms in column.wanted}
    kept = [old for old, s in enumerate(question.statistics) if old in decided or s.terms in shown]
    used = {place for old in kept for place, _ in question.statistics[old].terms}
    order = sorted(used, key=lambda place: order_of(measure_form(question.measures[place])))
    places = {old: new for new, old in enumerate(order)}
    moved = [
        Statistic(tuple(sorted((places[measure], factor) for measure, factor in statistic.terms)), statistic.row_bound)
        for statistic in (question.statistics[old] for old in kept)
    ]
    statistics = sorted(moved, key=lambda statistic: statistic.terms)
    at = {old: statistics.index(statistic) for old, statistic in zip(kept, moved, strict=True)}
    return replace(
        question,
        measures=tuple(question.measures[old] for old in order),
        statistics=tuple(statistics),
        having=None if question.having is None else _moved(question.having, at),
        columns=tuple(
            replace(column, measures=tuple(places[measure] for measure in column.measures))
            for column in question.columns
        ),
    )


def _moved(part: Condition[Atom], at: dict[int, int]) -> Condition[Atom]:
    match part:
        case Leaf(atom):
            return Leaf(replace(atom, statistic=at[atom.statistic]))
        case And(parts):
            return And(tuple(_moved(inner, at) for inner in parts))
        case Or(parts):
            return Or(tuple(_moved(inner, at) for inner in parts))
