"""Fragments to syntax trees: a byte gate, a small scanner of our own, sqlglot, and a check that nothing was swallowed.

The scanner knows PostgreSQL's lexical rules for the few forms that a question needs and refuses all others, so
that blanks, comments and constants cannot mean one thing to PostgreSQL and another to sqlglot. After sqlglot
has read the text, every word and every constant that the scanner saw must be found in the tree: what sqlglot
drops in silence (``PIVOT``, template comments, unknown keywords) is refused here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from mechanisms.errors import Refusal
from sqlrewrite.clauses import Fragment
from sqlrewrite.errors import NotAnswered, SyntaxNotRead, TooComplex

MAX_BYTES = 16 * 1024
MAX_DEPTH = 32
# sqlglot tries some constructs twice at every level (LIMIT or a type's name inside parentheses, a JOIN without ON), so
# its time doubles with each: twelve levels are some 50 ms, thirty are hours, and nothing can interrupt it.
MAX_CALLS = 10
MAX_BARE_JOINS = 6
MAX_WORDS = 1000  # and it reads some forty words in a millisecond
MAX_CONNECTIVES = 400
MAX_LEVELS = 100  # of a tree: operators, casts and CASE inside each other, AND and OR apart
MAX_NAME_BYTES = 63  # NAMEDATALEN - 1: PostgreSQL cuts longer names, and a cut name is another name

# A statement that sqlglot does not know is logged as a warning with its text; the analyst's text stays out of logs.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\n]+|\r\n)
    | (?P<comment>--[^\r\n]*|/\*(?:(?!\*/|/\*).)*\*/)
    | (?P<escape>(?:[eEbBxXnN]|[uU]&)'|[uU]&")
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<parameter>\$[0-9]+(?![\w$]))
    | (?P<dollar>\$(?:[A-Za-z_][\w]*)?\$)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w$]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<semicolon>;)
    | (?P<sign>(?!/\*)[,.:=<>!+\-*/%^|&~?@\#])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_ODD_SIGNS = frozenset("^|&~?@#")


class Form(Enum):
    """What a fragment is, by the text that makes it a statement."""

    SOURCE = "SELECT 1 FROM "
    CONDITION = "SELECT 1 WHERE "
    EXPRESSION = "SELECT "


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """One fragment as both the scanner and sqlglot read it."""

    text: str  # with the words of ``Form`` in front
    tokens: tuple[Token, ...]
    root: exp.Select
    shift: int  # from places in ``text`` to places in the analyst's statement

    def called(self, node: exp.Expr) -> str:
        """The function's name as it stands in the text: sqlglot has one node for several."""
        if isinstance(node, exp.Extract):  # sqlglot keeps no place for these; depth first is the order of the text
            words = [fold(token.text) for token in self.tokens if fold(token.text) in ("extract", "date_part")]
            nodes = [part for part in self.root.walk(bfs=False) if isinstance(part, exp.Extract)]
            return next(word for part, word in zip(nodes, words, strict=True) if part is node)
        start = node.meta.get("start")
        return next((fold(token.text) for token in self.tokens if token.start == start), "")


def gate(text: str) -> tuple[Token, ...]:
    """The tokens of a text that is safe to parse, or a refusal within milliseconds."""
    if len(text) > MAX_BYTES or _encoded_length(text) > MAX_BYTES:
        raise TooComplex(
            f"a question may be at most {MAX_BYTES} bytes long",
            hint="load long lists into a public table, or ask several questions",
        )
    tokens: list[Token] = []
    depth = connectives = signs = at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SyntaxNotRead(
                _complaint(text, at),
                hint='outside quotes only plain ASCII is read; write other names in double quotes ("...")',
                position=at + 1,
            )
        kind, word = match.lastgroup or "", match.group()
        _check_token(kind, word, at)
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        elif kind == "word" and word.lower() in ("and", "or", "not"):
            connectives += 1
        if kind not in ("blank", "comment"):
            signs = signs + 1 if kind == "sign" else 0
        if max(depth, signs) > MAX_DEPTH or connectives > MAX_CONNECTIVES:
            raise TooComplex(
                f"a question may be at most {MAX_DEPTH} parentheses deep and have at most"
                f" {MAX_CONNECTIVES} AND, OR and NOT",
                hint="write a list of values with IN",
                position=at + 1,
            )
        if kind not in ("blank", "comment"):
            tokens.append(Token(kind, word, at))
        at = match.end()
    return tuple(tokens)


_HIDDEN = re.compile(r"'(?:[^']|'')*'?|\"(?:[^\"]|\"\")*\"?|--[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
_STRUCTURE = re.compile(
    r"(?P<call>\w\s*[(\[{])|(?P<open>[(\[{])|(?P<close>[)\]}])|\b(?P<join>join)\b|\b(?:on|using)\b", re.I
)


def is_bounded(text: str) -> bool:
    """Whether sqlglot is sure to read the text, or to give up, within milliseconds."""
    opened: list[int] = []
    joins = 0
    bare = _HIDDEN.sub(" ", text)
    if len(_WORD.findall(bare)) > MAX_WORDS:
        return False
    for found in _STRUCTURE.finditer(bare):
        match found.lastgroup:
            case "call":
                opened.append(1)
            case "open":
                opened.append(0)
            case "close":
                opened = opened[:-1]
            case "join":
                joins += 1
            case _:
                joins = max(0, joins - 1)
        if sum(opened) > MAX_CALLS or len(opened) > MAX_DEPTH or joins > MAX_BARE_JOINS:
            return False
    return True


def parse(fragment: Fragment, form: Form) -> Parsed:
    """One fragment, read by sqlglot as PostgreSQL's dialect inside the smallest statement that can hold it."""
    text = form.value + fragment.text
    shift = fragment.start - len(form.value)
    with placed(shift, fragment.start):
        tokens = gate(text)
        _plain_signs(tokens)
        if len(tokens) == len(gate(form.value)):
            raise SyntaxNotRead("there is nothing to read here", position=len(form.value) + 1)
        return Parsed(text, tokens, _read(text), shift)


@contextmanager
def placed(shift: int, start: int) -> Iterator[None]:
    """Refusals from inside get their place in the statement: that in the fragment, or that of the fragment itself."""
    try:
        yield
    except Refusal as refusal:
        refusal.position = max(1, refusal.position + shift) if refusal.position is not None else start + 1
        raise
    except RecursionError:
        raise TooComplex(
            "the statement is nested too deeply to be read", hint="simplify the expressions", position=start + 1
        ) from None


def _read(text: str) -> exp.Select:
    if not is_bounded(text):
        raise TooComplex(
            f"a clause may have at most {MAX_WORDS} words, {MAX_CALLS} calls inside each other"
            f" and {MAX_BARE_JOINS} joins without ON",
            hint="simplify the expressions",
        )
    try:
        roots = [root for root in sqlglot.parse(text, dialect="postgres") if root is not None]
    except ParseError as error:
        raise SyntaxNotRead(
            "the expression could not be read", hint="write it more plainly", position=_position_of(error, text)
        ) from None
    except RecursionError:
        raise TooComplex("the statement is nested too deeply to be read", hint="simplify the expressions") from None
    except (SqlglotError, TypeError, AttributeError, ValueError, IndexError, KeyError):
        # The compiled parser stumbles over half an expression ("a ?") with an error of Python's.
        raise SyntaxNotRead("the statement could not be read") from None
    if len(roots) != 1 or not isinstance(roots[0], exp.Select):
        raise SyntaxNotRead("this is not one expression", hint="write it more plainly")
    _check_levels(roots[0])
    return roots[0]


def _check_levels(root: exp.Expr) -> None:
    """Everything that reads a tree calls itself for each level, and some of it takes the cube of the levels.

    A chain of AND or OR is read as one list, so it is one level.
    """
    pending = [(root, 0)]
    while pending:
        node, level = pending.pop()
        if level > MAX_LEVELS:
            raise TooComplex(
                f"an expression may have at most {MAX_LEVELS} operators, casts or CASE inside each other",
                hint="shorten the chain: x + 3 for x + 1 + 1 + 1, IN for a list, WHEN for a CASE inside ELSE",
                position=position(node),
            )
        same = isinstance(node, exp.Connector) and type(node.parent) is type(node)
        pending += [(part, level if same else level + 1) for part in node.iter_expressions()]


def _plain_signs(tokens: tuple[Token, ...]) -> None:
    """Operators on which the two readers differ in precedence or meaning are refused before either reads them."""
    for token, after in zip(tokens, (*tokens[1:], None), strict=True):
        if token.kind == "semicolon":
            raise SyntaxNotRead("a question is one statement", hint="send them one by one", position=token.start + 1)
        alone = after is None or after.start != token.start + 1
        if token.kind == "sign" and (token.text in _ODD_SIGNS or (token.text == "!" and (alone or after.text != "="))):  # type: ignore[union-attr]
            raise NotAnswered(
                f"the operator {token.text} is not answered about protected rows",
                hint="use + - * and comparisons, LIKE for patterns, IN for lists",
                position=token.start + 1,
            )


def identifier(node: exp.Identifier) -> str:
    """The name as PostgreSQL's catalogs have it: folded to lower case (ASCII only) unless it was quoted."""
    name = node.name if node.args.get("quoted") else fold(node.name)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise NotAnswered(
            f"a name is longer than {MAX_NAME_BYTES} bytes",
            hint="PostgreSQL would cut the name; write it as it is in the catalog",
            position=position(node),
        )
    return name


def fold(word: str) -> str:
    """An unquoted word in lower case, touching ASCII letters only, as PostgreSQL does in UTF-8."""
    return "".join(c.lower() if "A" <= c <= "Z" else c for c in word)


def position(node: exp.Expr) -> int | None:
    """Where the node begins, as a 1-based character, if sqlglot kept it; else where what it stands in does."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    if starts:
        return int(min(starts)) + 1
    return None if node.parent is None else position(node.parent)


def bare(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a conjunction."""
    inner = bare(node)
    if isinstance(inner, exp.And):
        return [part for side in inner.flatten(unnest=False) for part in conjuncts(side)]
    return [inner]


def _encoded_length(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise SyntaxNotRead("the statement is not valid text") from None


def _complaint(text: str, at: int) -> str:
    match text[at]:
        case "'" | '"':
            return "a quote is not closed, or encloses nothing where a name is needed"
        case "/":
            return "a comment is not closed, or has another comment inside"
        case c if c.isdigit() or c == ".":
            return "a number is followed by a letter or an underscore"
    return f"the character U+{ord(text[at]):04X} has no meaning here"


def _check_token(kind: str, word: str, at: int) -> None:
    if "\0" in word:
        raise SyntaxNotRead("a statement cannot hold a NUL character", position=at + 1)
    match kind:
        case "escape" | "dollar":
            raise NotAnswered(
                "constants with a prefix (E'', U&'', B'', X'', N'') or in dollar quotes are not read",
                hint="write the constant in plain single quotes: 'text'",
                position=at + 1,
            )
        case "string" if "\\" in word:
            # With standard_conforming_strings off PostgreSQL would read on where we stop.
            raise NotAnswered(
                "a constant with a backslash is not read", hint="pass it as a parameter ($1)", position=at + 1
            )
        case "comment" if not word.replace("\n", "").replace("\t", "").replace("\r", "").isprintable():
            raise SyntaxNotRead("a comment holds a control character or an odd blank", position=at + 1)
        case "comment" if "\r" in word.replace("\r\n", ""):
            raise SyntaxNotRead("a comment holds a carriage return without a line feed", position=at + 1)


def _position_of(error: ParseError, text: str) -> int | None:
    if not error.errors:
        return None
    first = error.errors[0]
    line, column, highlight = first.get("line"), first.get("col"), first.get("highlight") or ""
    if not line or column is None:
        return None
    before = sum(len(part) + 1 for part in text.split("\n")[: line - 1])
    return int(max(1, before + column - len(highlight) + 1))
