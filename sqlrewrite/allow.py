"""The allow-list: which nodes of sqlglot's tree a question may hold, and which of their fields may be filled.

A node that is not listed, or a listed node with another field filled, is refused: new syntax is a refusal until
somebody has thought about it. ``CONSTRUCTS`` only gives the refusal a name that the analyst knows.
"""

from __future__ import annotations

from sqlglot import exp

from sqlrewrite.errors import NotAnswered
from sqlrewrite.parse import position

SHAPE = "SELECT keys, count(*) FROM table WHERE ... GROUP BY keys HAVING count(*) > n ORDER BY ... LIMIT n"

ALLOWED: dict[type[exp.Expr], frozenset[str]] = {
    node: frozenset(fields.split())
    for node, fields in (
        (exp.Select, "expressions from_ where group having order limit offset"),
        (exp.From, "this"),
        (exp.Table, "this db alias"),
        (exp.TableAlias, "this"),
        (exp.Identifier, "this quoted"),
        (exp.Column, "this table db"),
        (exp.Alias, "this alias"),
        (exp.Count, "this big_int"),
        (exp.Star, ""),
        (exp.Where, "this"),
        (exp.Group, "expressions"),
        (exp.Having, "this"),
        (exp.Order, "expressions"),
        (exp.Ordered, "this desc nulls_first"),
        (exp.Limit, "expression"),
        (exp.Offset, "expression"),
        (exp.And, "this expression"),
        (exp.Or, "this expression"),
        (exp.Not, "this"),
        (exp.Paren, "this"),
        (exp.GT, "this expression"),
        (exp.GTE, "this expression"),
        (exp.LT, "this expression"),
        (exp.LTE, "this expression"),
        (exp.EQ, "this expression"),
        (exp.NEQ, "this expression"),
        (exp.In, "this expressions"),
        (exp.Between, "this low high"),
        (exp.Is, "this expression negate"),
        (exp.Null, ""),
        (exp.Boolean, "this"),
        (exp.Literal, "this is_string"),
        (exp.Neg, "this"),
        (exp.Cast, "this to"),
        (exp.DataType, "this"),
        (exp.Parameter, "this"),
        (exp.Var, "this"),  # LIMIT ALL
    )
}

CONSTRUCTS = {
    "Select.with_": "WITH",
    "Select.distinct": "SELECT DISTINCT",
    "Select.into": "SELECT INTO",
    "Select.joins": "a join",
    "Select.laterals": "LATERAL",
    "Select.windows": "WINDOW",
    "Select.locks": "FOR UPDATE or FOR SHARE",
    "Select.sample": "TABLESAMPLE",
    "Table.sample": "TABLESAMPLE",
    "Table.only": "ONLY",
    "Table.joins": "a join",
    "Table.pivots": "PIVOT",
    "Table.catalog": "a name with a database in front",
    "Table.rows_from": "ROWS FROM",
    "Table.ordinality": "WITH ORDINALITY",
    "TableAlias.columns": "an alias that renames columns",
    "Column.catalog": "a name with a database in front",
    "Group.grouping_sets": "GROUPING SETS",
    "Group.rollup": "ROLLUP",
    "Group.cube": "CUBE",
    "Group.all": "GROUP BY ALL",
    "Count.expressions": "count of several expressions",
    "In.query": "a subquery",
    "Between.symmetric": "BETWEEN SYMMETRIC",
    "DataType.expressions": "a cast with a length or precision",
    "Fetch": "FETCH FIRST",
    "Subquery": "a subquery",
    "Union": "UNION",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
    "Values": "VALUES",
    "Window": "a window function",
    "Filter": "FILTER",
    "Distinct": "DISTINCT",
    "Exists": "EXISTS",
    "Tuple": "a row of several expressions",
    "Dot": "a qualified function or field",
    "Anonymous": "a function",
    "WithinGroup": "WITHIN GROUP",
}

HINTS = {
    "Fetch": "write LIMIT n",
    "Select.distinct": "write SELECT keys FROM table GROUP BY keys",
    "Between.symmetric": "write the smaller bound first and leave SYMMETRIC out",
    "Select.joins": "ask about one protected table; copy the condition into WHERE",
    "Filter": "put the condition into WHERE",
    "Table.only": "leave ONLY out",
    "Table.catalog": "write schema.table",
    "DataType.expressions": "cast to the type without a length or precision",
}


def allow(root: exp.Expr) -> None:
    """Every node of the tree is on the list, with no other field than those listed.

    *Guarantee*: what this lets pass is made only of the parts that ``validate`` reads.
    """
    for node in root.walk():
        fields = ALLOWED.get(type(node))
        if fields is None:
            raise refused(node, construct(node))
        for field, value in node.args.items():
            if field in fields or value is None or value is False or value == [] or value == "":
                continue
            if isinstance(node, exp.DataType) and field == "nested":
                continue
            raise refused(node, f"{type(node).__name__}.{field}")


def construct(node: exp.Expr) -> str:
    """The key of ``CONSTRUCTS`` and ``HINTS`` for a whole node."""
    return type(node).__name__


def refused(node: exp.Expr, key: str) -> NotAnswered:
    """The refusal that names a construct which is not answered."""
    name = CONSTRUCTS.get(key) or _plain_name(node, key)
    return NotAnswered(
        f"{name} is not answered about protected rows", hint=HINTS.get(key, f"write {SHAPE}"), position=position(node)
    )


def _plain_name(node: exp.Expr, key: str) -> str:
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name().lower()}"
    if isinstance(node, exp.Select):
        return f"SELECT with {key.partition('.')[2].rstrip('_').upper()}"
    return f"the expression {key.partition('.')[0].upper()}"
