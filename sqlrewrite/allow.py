"""The allow-list: which nodes of sqlglot's tree a question may hold, and which of their fields may be filled.

A node that is not listed, or a listed node with another field filled, is refused: new syntax is a refusal until
somebody has thought about it. ``CONSTRUCTS`` only gives the refusal a name that the analyst knows.
"""

from __future__ import annotations

from sqlglot import exp

from mechanisms.errors import Refusal
from sqlrewrite.errors import NotAnswered, SyntaxNotRead, WouldShowRows
from sqlrewrite.moments import FORMATS
from sqlrewrite.parse import Form, Parsed, position

SHAPE = "SELECT keys, aggregates FROM table WHERE ... GROUP BY keys HAVING aggregate > n"

ALLOWED: dict[type[exp.Expr], frozenset[str]] = {
    node: frozenset(fields.split())
    for node, fields in (
        (exp.Select, "expressions"),
        # sources
        (exp.From, "this"),
        (exp.Table, "this db alias"),
        (exp.TableAlias, "this"),
        (exp.Join, "this side kind on using"),
        (exp.Subquery, "this alias"),
        (exp.Alias, "this alias"),
        # names and constants
        (exp.Identifier, "this quoted"),
        (exp.Column, "this table db"),
        (exp.Null, ""),
        (exp.Boolean, "this"),
        (exp.Literal, "this is_string"),
        (exp.Parameter, "this"),
        (exp.Interval, "this unit"),
        (exp.Var, "this"),  # the unit of extract, date_trunc, interval
        (exp.Cast, "this to"),
        (exp.DataType, "this expressions nested"),
        (exp.Array, "expressions"),
        (exp.StrToDate, "this format"),
        (exp.StrToTime, "this format"),
        (exp.UnixToTime, "this"),
        (exp.TimestampFromParts, "year month day hour min sec"),
        (exp.Anonymous, "this expressions"),
        # conditions
        (exp.Where, "this"),
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
        (exp.NullSafeEQ, "this expression"),
        (exp.NullSafeNEQ, "this expression"),
        (exp.In, "this expressions"),
        (exp.Any, "this"),
        (exp.Between, "this low high"),
        (exp.Like, "this expression negate"),
        (exp.ILike, "this expression negate"),
        (exp.Is, "this expression negate"),
        # row expressions
        (exp.Neg, "this"),
        (exp.Add, "this expression"),
        (exp.Sub, "this expression"),
        (exp.Mul, "this expression"),
        (exp.Div, "this expression typed"),
        (exp.Mod, "this expression"),
        (exp.Abs, "this"),
        (exp.Round, "this decimals"),
        (exp.Trunc, "this decimals"),
        (exp.Floor, "this"),
        (exp.Ceil, "this"),
        (exp.Case, "this ifs default"),
        (exp.If, "this true"),
        (exp.Coalesce, "this expressions"),
        (exp.Nullif, "this expression"),
        (exp.Lower, "this"),
        (exp.Upper, "this"),
        (exp.Left, "this expression"),
        (exp.Length, "this"),
        (exp.TimestampTrunc, "this unit"),
        (exp.Extract, "this expression"),
        (exp.WidthBucket, "this min_value max_value num_buckets"),
        # aggregates
        (exp.Count, "this big_int"),
        (exp.Star, ""),
        (exp.Distinct, "expressions"),
        (exp.Filter, "this expression"),
        (exp.Sum, "this"),
        (exp.Avg, "this"),
        (exp.Variance, "this"),
        (exp.VariancePop, "this"),
        (exp.Stddev, "this"),
        (exp.StddevSamp, "this"),
        (exp.StddevPop, "this"),
        (exp.WithinGroup, "this expression"),
        (exp.PercentileCont, "this"),
        (exp.PercentileDisc, "this"),
        (exp.Order, "expressions"),
        (exp.Ordered, "this desc nulls_first"),
    )
}
FORMS = {Form.SOURCE: {"from_", "joins"}, Form.CONDITION: {"where"}, Form.EXPRESSION: set[str]()}
"""What else the SELECT around a fragment may hold."""
PICKING = {"from_", "joins", "where", "order"}
"""What else a SELECT in FROM may hold (``sqlrewrite.derived``); its ORDER BY changes no answer."""

CONSTRUCTS = {
    "Select": "a subquery",
    "Select.laterals": "LATERAL",
    "Select.sample": "TABLESAMPLE",
    "Table.sample": "TABLESAMPLE",
    "Table.only": "ONLY",
    "Table.joins": "a join inside parentheses",
    "Table.pivots": "PIVOT",
    "Table.catalog": "a name with a database in front",
    "Table.rows_from": "ROWS FROM",
    "Table.ordinality": "WITH ORDINALITY",
    "TableAlias.columns": "an alias that renames columns",
    "Column.catalog": "a name with a database in front",
    "Join.method": "NATURAL JOIN",
    "Count.expressions": "count of several expressions",
    "In.query": "a subquery",
    "Between.symmetric": "BETWEEN SYMMETRIC",
    "Subquery": "a subquery",
    "Union": "UNION",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
    "Values": "VALUES",
    "Window": "a window function",
    "Exists": "EXISTS",
    "Tuple": "a row of several expressions",
    "Dot": "a qualified function or field",
    "DPipe": "||",
    "Escape": "LIKE with ESCAPE",
    "Alias": "a name for an expression here",
    "CurrentDate": "current_date",
    "CurrentTimestamp": "the current time",
    "GroupConcat": "string_agg",
    "ArrayAgg": "array_agg",
    "JSONArrayAgg": "json_agg",
    "Mode": "mode()",
    "Min": "min",
    "Max": "max",
    "Concat": "a constant in several pieces",
    "SimilarTo": "SIMILAR TO",
    "Collate": "COLLATE",
    "StrToDate": "the function to_date",
    "StrToTime": "the function to_timestamp",
    "UnixToTime": "the function to_timestamp",
    "TimestampFromParts": "the function make_timestamp",
    "Anonymous": "the function make_date",
}

HINTS = {
    "Between.symmetric": "write the smaller bound first and leave SYMMETRIC out",
    "Table.only": "leave ONLY out",
    "Table.catalog": "write schema.table",
    "Join.method": "write JOIN table USING (column)",
    "Subquery": "join the public table instead, or ask the inner question first",
    "In.query": "join the public table instead, or list the values: IN (1, 2, 3)",
    "Exists": "join the public table instead",
    "Select": "join the public table instead, or ask the inner question first",
    "CurrentDate": "it is answered in WHERE and HAVING; else write the date: DATE '2025-01-31'",
    "CurrentTimestamp": "cut it to a day: now()::date or date_trunc('month', now()); or write the moment:"
    " TIMESTAMP '2025-01-31 12:00'",
    "Escape": "write the pattern without ESCAPE",
    "Min": "ask how many lie beyond a bound: count(*) FILTER (WHERE x > c) >= m",
    "Max": "ask how many lie beyond a bound: count(*) FILTER (WHERE x > c) >= m",
    "Window": "put the window function around the question, over its answer",
    "Tuple": "compare the columns one by one, joined by AND",
    "Pow": "write a product: x * x",
    "DPipe": "group by the columns themselves, and put them together in an outer SELECT",
}
SHOWS_ROWS = frozenset(("GroupConcat", "Mode", "AnyValue"))
"""Aggregates that hand out the rows' own values, besides array_agg, json_agg and kin."""


def allow(parsed: Parsed, form: Form) -> None:
    """Every node of the tree is on the list, with no other field than those listed.

    *Guarantee*: what this lets pass is made only of the parts that the readers of fragments know.
    """
    root = parsed.root
    for node in root.walk():
        fields: frozenset[str] | set[str] | None = ALLOWED.get(type(node))
        if fields is None or not _at_home(node, root):
            raise refused(node, construct(node), parsed.called(node))
        if isinstance(node, exp.StrToDate | exp.StrToTime) and node.args["format"].name not in FORMATS:
            raise NotAnswered(
                f"{CONSTRUCTS[construct(node)]} with this format is not answered",
                hint="write DATE '2025-01-31' or TIMESTAMP '2025-01-31 12:00:00', or use the format 'YYYY-MM-DD'",
                position=position(node),
            )
        if isinstance(node, exp.Count) and node.this is None:
            raise SyntaxNotRead("count needs * or an expression", hint="write count(*)", position=position(node))
        if isinstance(node, exp.Select):
            fields = fields | (FORMS[form] if node is root else PICKING)
        for field, value in node.args.items():
            if field in fields or value is None or value is False or value == [] or value == "":
                continue
            raise refused(node, f"{type(node).__name__}.{field}")
    if len(root.expressions) != 1:
        raise refused(root, "Tuple")


def _at_home(node: exp.Expr, root: exp.Expr) -> bool:
    """Whether a SELECT in parentheses stands in FROM, a name for an expression in such a SELECT, and so on."""
    match node:
        case exp.Subquery():
            return isinstance(node.parent, exp.From | exp.Join | exp.Subquery)
        case exp.Select():
            return node is root or isinstance(node.parent, exp.Subquery)
        case exp.Alias():
            return isinstance(node.parent, exp.Select) and node.parent is not root
        case exp.Anonymous():
            return node.name.lower() == "make_date" and len(node.expressions) == 3
    return True


def construct(node: exp.Expr) -> str:
    """The key of ``CONSTRUCTS`` and ``HINTS`` for a whole node."""
    return type(node).__name__


def refused(node: exp.Expr, key: str, called: str = "") -> Refusal:
    """The refusal that names a construct which is not answered, a function as it was ``called``."""
    shown = node.name if isinstance(node, exp.Anonymous) else key
    known = None if shown is not key else CONSTRUCTS.get(key)
    name = known or _plain_name(node, key, called)
    if key in SHOWS_ROWS or shown.lower().endswith("agg"):
        return WouldShowRows(
            f"{name} would show private values", hint="ask for counts, sums or averages", position=position(node)
        )
    return NotAnswered(
        f"{name} is not answered about protected rows", hint=HINTS.get(key, f"write {SHAPE}"), position=position(node)
    )


def _plain_name(node: exp.Expr, key: str, called: str) -> str:
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name.lower()}"
    if isinstance(node, exp.Func):
        return f"the function {called or node.sql_name().lower()}"
    if isinstance(node, exp.Select):
        return f"SELECT with {key.partition('.')[2].rstrip('_').upper()}"
    return f"the expression {key.partition('.')[0].upper()}"
