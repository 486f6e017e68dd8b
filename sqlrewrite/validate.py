"""A syntax tree to a typed question, or a refusal: one function, one sentence and one SQLSTATE for each rule.

``read`` is the door. The statement kind is looked at first, then the allow-list (``sqlrewrite.allow``), then
names, then each clause in the order in which PostgreSQL evaluates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from mechanisms.condition import Condition, atoms
from sqlrewrite.allow import SHAPE, allow, construct, refused
from sqlrewrite.catalog import Attribute, Catalog, Kind, Relation
from sqlrewrite.constant import FLOATS, base_type, constant
from sqlrewrite.decompose import decompose
from sqlrewrite.errors import NotAnswered, UnknownColumn, UnknownRelation, WouldShowRows, WouldWrite
from sqlrewrite.normal import normal_condition, normalise
from sqlrewrite.parse import account, identifier, parse, position
from sqlrewrite.predicate import predicate
from sqlrewrite.question import AggregateColumn, Atom, CountRows, KeyColumn, Literal, Order, Question, Shape

MAX_ATOMS = 1
"""How many conditions HAVING may hold: the mechanisms answer one atom."""

MAX_CELLS = 1_000_000
SYSTEM_COLUMNS = frozenset(("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"))
ASK_FOR_COUNTS = "ask for counts: SELECT key, count(*) FROM table GROUP BY key"
WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable, exp.Alter, exp.Drop, exp.Comment)

Resolve = Callable[[str | None, str], Relation | None]
Parameters = Sequence[Literal] | None
Output = KeyColumn | AggregateColumn


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean inside the statement."""

    relation: Relation
    alias: str
    aliased: bool
    parameters: Parameters


def read(text: str, catalog: Catalog, resolve: Resolve, parameters: Parameters) -> Question:
    """The question that a statement asks about one protected relation.

    ``resolve`` tells what a name is under the session's search_path; ``parameters`` is None before Bind, and
    the question is then a skeleton that shows whether the statement can be answered.
    """
    parsed = parse(text)
    select = _a_select(parsed.root)
    _no_whole_rows(select)
    allow(select)
    account(parsed)
    scope = _one_table(select, catalog, resolve, parameters)
    outputs = [_unaliased(node) for node in select.expressions]
    names = tuple(_output_name(node) for node in select.expressions)
    keys = _keys(select, outputs, names, scope)
    columns = [_output(node, keys, scope) for node in outputs]
    order, hidden = _order(select, columns, names, keys, scope)
    having = _having(select, scope)
    counted = having is not None or any(isinstance(c, AggregateColumn) for c in (*columns, *hidden))
    where = select.args.get("where")
    return Question(
        relation=scope.relation,
        keys=keys,
        where=None
        if where is None
        else normalise(predicate(where.this, lambda node: _attribute(node, scope), parameters)),
        aggregates=(CountRows(),) if counted else (),
        having=having,
        shape=Shape(
            columns=(*columns, *hidden),
            names=names,
            order=order,
            limit=_row_number(select.args.get("limit"), parameters),
            offset=_row_number(select.args.get("offset"), parameters),
            hidden=len(hidden),
        ),
    )


def _a_select(root: exp.Expr) -> exp.Select:
    if isinstance(root, exp.Copy) and root.args.get("kind"):
        raise WouldWrite("COPY FROM would change protected rows", hint="protected tables are read-only here")
    if isinstance(root, exp.Copy):
        raise NotAnswered("COPY is not answered about protected rows", hint=f"write {SHAPE}")
    if isinstance(root, WRITES) or root.find(exp.Insert, exp.Update, exp.Delete, exp.Merge) is not None:
        word = construct(root).removesuffix("Table").upper() if isinstance(root, WRITES) else "the statement"
        raise WouldWrite(f"{word} would change protected rows", hint="protected tables are read-only here")
    if isinstance(root, exp.Command):
        raise NotAnswered(f"{root.name.upper()} is not answered about protected rows", hint=f"write {SHAPE}")
    if not isinstance(root, exp.Select):
        raise refused(root, construct(root))
    return root


def _no_whole_rows(select: exp.Select) -> None:
    """SELECT * and t.* show rows whatever else the statement has."""
    if not select.expressions:
        raise NotAnswered("the select list is empty", hint=f"write {SHAPE}")
    for node in select.expressions:
        bare = _unaliased(node)
        if isinstance(bare, exp.Star) or (isinstance(bare, exp.Column) and isinstance(bare.this, exp.Star)):
            raise WouldShowRows("SELECT * would show private rows", hint=ASK_FOR_COUNTS, position=position(node))


def _one_table(select: exp.Select, catalog: Catalog, resolve: Resolve, parameters: Parameters) -> Scope:
    source = select.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or not isinstance(source.this.this, exp.Identifier):
        raise NotAnswered("a question reads exactly one table", hint=f"write {SHAPE}", position=position(select))
    table = source.this
    schema = identifier(table.args["db"]) if table.args.get("db") else None
    name = identifier(table.this)
    shown = name if schema is None else f"{schema}.{name}"
    relation = resolve(schema, name)
    if relation is None or catalog.by_name.get((relation.schema, relation.name)) != relation:
        raise UnknownRelation(
            f'relation "{shown}" is not registered', hint="\\dt lists the tables", position=position(table)
        )
    if relation.kind is not Kind.PROTECTED:
        raise NotAnswered(f'relation "{shown}" is public', hint="PostgreSQL answers it without noise")
    alias = table.args.get("alias")
    return Scope(relation, identifier(alias.this) if alias else name, alias is not None, parameters)


def _attribute(node: exp.Column, scope: Scope) -> Attribute:
    """The column that a name means; whole rows and system columns are rows too."""
    if not isinstance(node.this, exp.Identifier):
        raise WouldShowRows("a whole row would be shown", hint=ASK_FOR_COUNTS, position=position(node))
    name = identifier(node.this)
    table, schema = node.args.get("table"), node.args.get("db")
    if table is not None and identifier(table) != scope.alias:
        raise UnknownRelation(
            f'there is no table "{identifier(table)}" in this question',
            hint=f'the table is called "{scope.alias}" here',
            position=position(node),
        )
    if schema is not None and (scope.aliased or identifier(schema) != scope.relation.schema):
        raise UnknownRelation(
            "a column is qualified with a schema that is not in this question", position=position(node)
        )
    attribute = scope.relation.attributes.get(name)
    if attribute is not None:
        return attribute
    if name in SYSTEM_COLUMNS or (table is None and name == scope.alias):
        raise WouldShowRows(
            f'"{name}" would show a private row or its place', hint=ASK_FOR_COUNTS, position=position(node)
        )
    raise UnknownColumn(
        f'column "{name}" does not exist',
        hint="its columns are " + ", ".join(scope.relation.attributes),
        position=position(node),
    )


def _keys(select: exp.Select, outputs: Sequence[exp.Expr], names: Sequence[str], scope: Scope) -> tuple[Attribute, ...]:
    """The group columns in the order of the table: their order in the text makes no other question."""
    group = select.args.get("group")
    found = {
        attribute.name: attribute
        for node in (group.expressions if group else ())
        for attribute in (_key(_bare(node), outputs, names, scope),)
    }
    keys = tuple(attribute for name, attribute in scope.relation.attributes.items() if name in found)
    for key in keys:
        _has_domain(key, scope.relation)
    cells = math.prod(len(key.keys or ()) for key in keys)
    if cells > MAX_CELLS:
        raise NotAnswered(
            f"the group columns make {cells} groups, more than {MAX_CELLS}",
            hint="group by fewer columns, or by columns with smaller domains",
        )
    return keys


def _key(node: exp.Expr, outputs: Sequence[exp.Expr], names: Sequence[str], scope: Scope) -> Attribute:
    """GROUP BY takes an input column first, then an output name, then a position: PostgreSQL's order."""
    if isinstance(node, exp.Literal) and not node.is_string:
        node = outputs[_ordinal(node, len(outputs), "GROUP BY")]
    elif isinstance(node, exp.Column) and node.args.get("table") is None and isinstance(node.this, exp.Identifier):
        name = identifier(node.this)
        if name not in scope.relation.attributes and name in names:
            node = outputs[names.index(name)]
    if not isinstance(node, exp.Column):
        raise NotAnswered(
            "GROUP BY takes columns of the table, and this is none", hint=f"write {SHAPE}", position=position(node)
        )
    return _attribute(node, scope)


def _has_domain(key: Attribute, relation: Relation) -> None:
    if base_type(key.type_name) in FLOATS:
        raise NotAnswered(
            f'"{key.name}" is a floating-point column and makes no groups', hint="group by another column"
        )
    if key.keys is None:
        raise NotAnswered(
            f'"{key.name}" has no declared domain, so its groups are not public',
            hint="the administrator can declare it: SELECT provenance.declare_attribute("
            f"'{relation.qualified}', '{key.name}', members => ARRAY[...])",
        )


def _output(node: exp.Expr, keys: tuple[Attribute, ...], scope: Scope) -> Output:
    if _is_count(node):
        return AggregateColumn(0)
    if not isinstance(node, exp.Column):
        raise NotAnswered(
            "the select list holds group columns and count(*), and this is neither",
            hint=f"write {SHAPE}",
            position=position(node),
        )
    attribute = _attribute(node, scope)
    if attribute not in keys:
        raise WouldShowRows(
            f'"{attribute.name}" would show private values: it is not grouped',
            hint=ASK_FOR_COUNTS,
            position=position(node),
        )
    return KeyColumn(keys.index(attribute))


def _having(select: exp.Select, scope: Scope) -> Condition[Atom] | None:
    having = select.args.get("having")
    if having is None:
        return None
    condition = normal_condition(decompose(having.this, lambda node: 0 if _is_count(node) else None, scope.parameters))
    if sum(1 for _ in atoms(condition)) > MAX_ATOMS:
        raise NotAnswered(
            "HAVING holds one condition for now",
            hint="ask with one comparison: HAVING count(*) > n",
            position=position(having),
        )
    return condition


def _order(
    select: exp.Select, columns: Sequence[Output], names: Sequence[str], keys: tuple[Attribute, ...], scope: Scope
) -> tuple[tuple[Order, ...], tuple[Output, ...]]:
    """ORDER BY takes an output name first, then a position, then a key or count(*): PostgreSQL's order."""
    order = select.args.get("order")
    terms: list[Order] = []
    hidden: list[Output] = []
    for term in order.expressions if order else ():
        node = _bare(term.this)
        name = identifier(node.this) if isinstance(node, exp.Column) and node.args.get("table") is None else None
        if isinstance(node, exp.Literal) and not node.is_string:
            at = _ordinal(node, len(columns), "ORDER BY")
        elif name is not None and name in names:
            at = names.index(name)
            if any(c != columns[at] for c, n in zip(columns, names, strict=True) if n == name):
                raise NotAnswered(
                    f'ORDER BY "{name}" names two different columns',
                    hint="order by the position: ORDER BY 1",
                    position=position(node),
                )
        else:
            wanted = _output(node, keys, scope)
            everything = [*columns, *hidden]
            if wanted not in everything:
                hidden.append(wanted)
                everything.append(wanted)
            at = everything.index(wanted)
        terms.append(Order(at, bool(term.args.get("desc")), bool(term.args.get("nulls_first"))))
    return tuple(terms), tuple(hidden)


def _row_number(clause: exp.Expr | None, parameters: Parameters) -> int | None:
    """LIMIT and OFFSET are whole constants; NULL and ALL mean none."""
    if clause is None:
        return None
    node = clause.args["expression"]
    if isinstance(node, exp.Var) and node.name.upper() == "ALL":
        return None
    literal = constant(node, parameters)
    if literal is not None and literal.text is None:
        return None
    if literal is None or not literal.text or not literal.text.isascii() or not literal.text.isdigit():
        raise NotAnswered("LIMIT and OFFSET take a whole number", hint="write LIMIT 10", position=position(clause))
    number = int(literal.text)
    if number >= 2**63:
        raise NotAnswered("LIMIT and OFFSET take a 64-bit number", hint="write LIMIT 10", position=position(clause))
    return number


def _ordinal(node: exp.Literal, count: int, clause: str) -> int:
    if not node.name.isdigit() or not 1 <= int(node.name) <= count:
        raise NotAnswered(
            f"{clause} position {node.name} is not in the select list",
            hint="positions count from 1",
            position=position(node),
        )
    return int(node.name) - 1


def _is_count(node: exp.Expr) -> bool:
    if isinstance(node, exp.Count) and not isinstance(node.this, exp.Star):
        raise NotAnswered("count of an expression is not answered", hint="write count(*)", position=position(node))
    return isinstance(node, exp.Count)


def _output_name(node: exp.Expr) -> str:
    """The column name that PostgreSQL would give."""
    if isinstance(node, exp.Alias):
        return identifier(node.args["alias"])
    bare = _bare(node)
    if isinstance(bare, exp.Column) and isinstance(bare.this, exp.Identifier):
        return identifier(bare.this)
    return "count" if isinstance(bare, exp.Count) else "?column?"


def _unaliased(node: exp.Expr) -> exp.Expr:
    return _bare(node.this if isinstance(node, exp.Alias) else node)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
