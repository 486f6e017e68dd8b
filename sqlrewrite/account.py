"""The check that sqlglot swallowed nothing: every word and constant of a fragment is found in its tree."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from sqlrewrite.errors import NotAnswered
from sqlrewrite.moments import FORMATS
from sqlrewrite.parse import Parsed, fold

# Words that carry structure and therefore have no identifier in the tree. A word in no list must be a name.
_WORDS = {
    kind: frozenset(re.findall(r"\w+", words))
    for kind, words in (
        ("from", "as and cross from full inner join left natural on outer right select using"),
        (
            "expression",
            """all and any array as asc between by case cast desc distinct else end false filter from group ilike in is
            isnull like not notnull null or order select symmetric then true unknown when where within""",
        ),
        (
            "type",
            """bigint bool boolean bpchar char character date decimal double float float4 float8 int int2 int4 int8
            integer interval numeric precision real smallint text time timestamp timestamptz uuid varchar varying with
            without zone""",
        ),
        (
            "function",
            """abs avg ceil ceiling char_length character_length coalesce count date date_part date_trunc extract floor
            left length lower make_date make_timestamp mod nullif percentile_cont percentile_disc round stddev
            stddev_pop stddev_samp sum to_date to_timestamp trunc upper var_pop var_samp variance width_bucket""",
        ),
    )
}
UNITS = frozenset(
    re.findall(
        r"\w+",
        """microsecond microseconds millisecond milliseconds second seconds minute minutes hour hours day days week
        weeks month months quarter quarters year years decade decades century centuries millennium millennia dow isodow
        doy isoyear epoch julian""",
    )
)
_FORMATS = frozenset(FORMATS.values())
_KNOWN_WORDS = frozenset().union(*_WORDS.values(), UNITS)


def account(parsed: Parsed) -> None:
    """Each word and constant of the text is in the tree.

    *Guarantee*: a clause that sqlglot skips cannot turn the fragment into another one unnoticed.
    """
    names: set[str] = set()
    constants: Counter[str] = Counter()
    for node in parsed.root.walk():
        match node:
            case exp.Identifier():
                names.add(node.name if node.args.get("quoted") else fold(node.name))
            case exp.Literal(is_string=True):
                if not isinstance(node.parent, exp.Interval):
                    constants["'" + _spelt(node.name)] += 1
            case exp.Literal():
                constants[_number(node.name)] += 1
            case exp.Interval():
                constants["'" + _interval(node)] += 1
            case exp.Var() if isinstance(node.parent, exp.TimestampTrunc | exp.Extract):
                constants["'" + _spelt(node.name)] += 1
    seen: Counter[str] = Counter()
    before = ""
    for place, token in enumerate(parsed.tokens):
        match token.kind:
            case "word":
                word = fold(token.text)
                if word not in names and word not in _KNOWN_WORDS:
                    raise NotAnswered(
                        f"{token.text.upper()} is not answered about protected rows",
                        hint="use columns, constants, comparisons and the plain functions",
                        position=token.start + 1,
                    )
                if word in UNITS and before == "(" and fold(parsed.tokens[place - 2].text) == "extract":
                    seen["'" + word] += 1
            case "string":
                text = token.text[1:-1].replace("''", "'")
                after = parsed.tokens[place + 1] if place + 1 < len(parsed.tokens) else None
                if fold(before) == "interval":
                    unit = fold(after.text) if after is not None and after.kind == "word" else ""
                    seen["'" + _words(f"{text} {unit if unit in UNITS else ''}")] += 1
                else:
                    seen["'" + _spelt(text)] += 1
            case "number":
                seen[_number(token.text)] += 1
            case "parameter":
                seen[_number(token.text[1:])] += 1
        before = token.text
    if seen != constants:
        raise NotAnswered(
            "a constant of this statement could not be read with certainty",
            hint="pass it as a parameter ($1)",
            position=parsed.tokens[0].start + 1,
        )


def interval_text(node: exp.Interval) -> str:
    """What stands in the quotes of INTERVAL '...', which sqlglot takes apart."""
    return _interval(node)


def _interval(node: exp.Interval) -> str:
    amount = node.this.name if isinstance(node.this, exp.Literal) else ""
    return _words(f"{amount} {node.args['unit'].name if node.args.get('unit') else ''}")


def _words(text: str) -> str:
    return " ".join(text.lower().split())


def _spelt(text: str) -> str:
    """Names of units and formats of dates have one spelling: sqlglot writes them in its own."""
    if text in FORMATS:
        return FORMATS[text]
    if text.upper() in _FORMATS:
        return text.upper()
    return text.lower() if text.lower() in UNITS else text


def _number(text: str) -> str:
    """One spelling for .5 and 0.5, which sqlglot rewrites."""
    try:
        return str(Decimal(text))
    except InvalidOperation:  # an exponent beyond all bounds
        return text
