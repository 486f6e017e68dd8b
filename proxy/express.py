"""Answers that are known already, told at once: neither planned again nor finished by the shadow.

    text -> the same statement, or the same but for its constants -> one look at how things stand -> bill and rows

*Guarantee*: the client gets what the usual way would send. A statement is kept here only if it was answered at no cost,
outside of a transaction, and shows released columns as they are (``sqlrewrite.finish.as_released``), so that there is
nothing for PostgreSQL to finish; its description is the one that PostgreSQL gave. It counts for the same analyst, the
same settings of the session and the same house. That the settings are what they were follows from this: nothing of the
analyst's has run in the session since they were told, and a second has not passed (an administrator may reload the
shadow's configuration). A text that is parsed in the same batch (``proxy.batches``) means under these settings what it
meant before; that it is the client's unnamed statement from now on is kept in mind by ``proxy.names``. Whatever else
there is to know is seen by the look (``proxy.asker.Again``).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from proxy import messages as m
from proxy import reports
from proxy.asker import Again, Answered, Asker
from proxy.batches import Bound
from proxy.conversation import Conversation
from proxy.errors import notice
from proxy.expected import Sink
from proxy.link import Link
from proxy.plain import each_format
from proxy.reading import Portal, Prepared, Reading
from proxy.rows import Rendered
from proxy.runtime import Runtime
from sqlrewrite.lex import tokens
from sqlrewrite.lift import lift
from sqlrewrite.question import Literal

Filled: TypeAlias = tuple[Answered, Reading] | None
_Key: TypeAlias = tuple[object, ...]
_BELIEVED: Final = 1.0  # seconds
_READY: Final = m.encode_ready_for_query(m.IDLE)
_LONGEST: Final = 1 << 14  # characters of a statement that is kept
_THERE: Final = 100  # prepared statements of a session that are told at once
_LONGEST_NAME: Final = 63  # bytes; PostgreSQL tells whoever writes a longer one, each time that it reads it


@dataclass(frozen=True, slots=True)
class Moment:
    """Before a statement."""

    turn: int
    at: float


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A statement that can be told at once."""

    again: Again
    description: bytes
    oids: tuple[int, ...]  # of its parameters, if they are constants that ``again`` takes
    quiet: bool  # the session wants no notices


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A statement that may be told at once: the look at how things stand has begun."""

    kept: Kept
    shown: Awaitable[Rendered | None]  # what it shows, if that is still known
    text: str
    before: bytes  # what PostgreSQL sends before the bill, and between the bill and the rows
    between: bytes
    formats: tuple[int, ...]  # of the columns


@lru_cache(maxsize=256)
def _described(description: bytes, formats: tuple[int, ...]) -> tuple[bytes, tuple[int, ...]] | None:
    """A description in the formats that Bind chose, and that of each column; None if they do not fit."""
    columns = m.decode_row_description(description)
    if len(formats) > 1 and len(formats) != len(columns):
        return None
    each = each_format(formats, len(columns))
    return m.encode_row_description([replace(f, format=c) for f, c in zip(columns, each, strict=True)]), each


class Express:
    """What one session may be told at once."""

    def __init__(
        self,
        runtime: Runtime,
        asker: Asker,
        link: Link,
        conversation: Conversation,
        mentioned: Callable[[], Sequence[str]],
    ) -> None:
        self._runtime, self._asker = runtime, asker
        self._link, self._conversation, self._mentioned = link, conversation, mentioned
        self._turn, self._at = -1, 0.0  # when the settings were told
        self._there: dict[int, Prepared] = {}  # statements that were prepared then: another may have the same text

    def moment(self) -> Moment:
        """Now; whatever is executed from now on may change the settings, unless it is vouched for."""
        turn = self._link.turn
        self._link.turn += 1
        return Moment(turn, time.monotonic())

    def noting(self, piece: str, filled: Filled, begun: Moment, sink: Sink) -> Sink:
        """A sink for the description of a simple query's rows: the query is kept when it comes."""
        key = self._vouch(Portal(Prepared(piece)), filled, begun, simple=True)
        if filled is None or key is None:
            return sink
        house, (answered, reading) = self._runtime.house, filled

        def noted(kind: int, frame: bytes) -> bytes | None:
            if kind == m.ROW_DESCRIPTION and answered.again is not None:
                kept = Kept(answered.again, frame, (), reading.quiet)
                house.express.put(key, kept, len(piece) + answered.weight)
            return sink(kind, frame)

        return noted

    def note(self, portal: Portal, filled: Filled, begun: Moment) -> None:
        """Keep a prepared statement, whose rows are described as those of its text."""
        key = self._vouch(portal, filled, begun, simple=False)
        if filled is None or key is None:
            return
        if len(self._there) == _THERE:
            self._there.clear()
        self._there[id(portal.question)] = portal.question
        answered, reading = filled
        if answered.again is not None:
            description = m.encode_row_description([replace(column, format=0) for column in reading.columns])
            oids = reading.parameter_oids if answered.open else ()
            kept = Kept(answered.again, description, oids, reading.quiet)
            self._runtime.house.express.put(key, kept, len(portal.question.text) + answered.weight)

    def _vouch(self, portal: Portal, filled: Filled, begun: Moment, *, simple: bool) -> _Key | None:
        """The settings were told after ``begun``, and nothing has changed them; None if the statement is not kept."""
        link, text = self._link, portal.question.text
        if filled is None or link.status != m.IDLE or link.parameters.get("client_encoding") != "UTF8":
            return None
        answered, reading = filled
        if (
            answered.again is None
            or reading.circumstances is None
            or reading.in_block
            or reading.wrapper is not None
            or len(text) + sum(len(value or b"") for value in portal.values) > _LONGEST
            or self._mentioned()
            or reports.named(text.encode())
            or any(len((token.name or "").encode()) > _LONGEST_NAME for token in tokens(text))
        ):
            return None
        if begun.turn != self._turn:
            self._there.clear()  # they may have been deallocated
        self._turn, self._at = link.turn, begun.at
        whole, form, _ = self._keys(portal, simple=simple)
        return form if answered.open else whole

    def _keys(self, portal: Portal, *, simple: bool) -> tuple[_Key, _Key | None, Sequence[Literal]]:
        """What a statement is kept under as it is, and without its constants; and those that stand in its text.

        The rows of a simple query are described otherwise.
        """
        question, values = portal.question, portal.values
        said = self._asker.name, self._conversation.said, None if simple else question.oids
        whole = *said, question.text, values, portal.formats
        if values:
            return whole, (*said, question.text), ()
        lifted = lift(question.text)
        return (whole, None, ()) if lifted is None else (whole, (*said, lifted.text, lifted.types), lifted.values)

    def sure(self) -> bool:
        """Whether the settings are what they were."""
        link = self._link
        return (
            link.turn == self._turn
            and time.monotonic() - self._at <= _BELIEVED
            and link.status == m.IDLE
            and not link.busy
            and not self._mentioned()
        )

    def find(self, frame: bytes) -> Found | None:
        """A simple query, if it may be told at once."""
        if not self.sure():
            return None
        try:
            text = frame[5:-1].decode().strip(" \t\r\n;")
        except UnicodeDecodeError:
            return None
        found = self._kept(Portal(Prepared(text)), simple=True)
        shown = None if found is None else _described(found[0].description, ())
        if found is None or shown is None:
            return None
        kept, values = found
        return Found(kept, kept.again(values), text, b"", *shown)

    def find_bound(self, asked: Bound) -> Found | None:
        """The same for a prepared statement. One that is parsed only now means what the text means now."""
        question = asked.portal.question
        if not self.sure() or (asked.parse is None and id(question) not in self._there):
            return None
        found = self._kept(asked.portal, simple=False)
        shown = None if found is None else _described(found[0].description, asked.portal.result_formats)
        if found is None or shown is None:
            return None
        (kept, values), (description, formats) = found, shown
        if kept.oids:  # its parameters are the constants
            read = self._conversation.values(kept.oids, asked.portal, None)
            if read is None:
                return None
            values = read
        parsed = b"" if asked.parse is None else m.PARSE_COMPLETE_FRAME
        before = parsed + m.BIND_COMPLETE_FRAME + (description if asked.described else b"")
        return Found(kept, kept.again(values), question.text, before, b"", formats)

    def _kept(self, portal: Portal, *, simple: bool) -> tuple[Kept, Sequence[Literal]] | None:
        """What is kept of a statement, and its constants."""
        if "veil." in portal.question.text.lower():  # a name in it may be a setting that nobody has mentioned before
            return None
        memory = self._runtime.house.express
        whole, form, values = self._keys(portal, simple=simple)
        kept: Kept | None = memory.get(whole)
        if kept is None and form is not None:
            kept = memory.get(form)
            if kept is not None and len(kept.oids) != len(portal.values):
                return None
        return None if kept is None else (kept, values)

    async def tell(self, found: Found, tell: Callable[[bytes], None], otherwise: Callable[[], object]) -> None:
        """Tell all that PostgreSQL would send; or have the messages taken up again, which then go the usual way."""
        told: bytes | None = None
        try:
            shown = await found.shown
            left = None if shown is None else await self._runtime.standing.remaining(self._asker.name)
            if shown is not None and left is not None:
                bill = b"" if found.kept.quiet else notice(*shown.bill(None, left, found.text))
                told = b"".join((found.before, bill, found.between, shown.body(found.formats), _READY))
        except Exception:  # the usual way says what is wrong
            told = None
        if told is not None:
            tell(told)
            return
        self._turn = -1
        otherwise()
