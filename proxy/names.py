"""What the client's names of statements and portals stand for, where these are questions.

The shadow parses a question under the same name, so that PostgreSQL itself keeps the names; with one exception: when
something was told at once, the shadow has not heard of it, and its unnamed statement is not what the client believes it
to be. What it has to hear then is owed, and goes before whatever it might make a difference to.
"""

from __future__ import annotations

from typing import Final

from proxy import messages as m
from proxy.expected import Sink
from proxy.link import SYNC, Link, drop, heard
from proxy.reading import Portal, Prepared

UNNAMED: Final = ""
_CLOSE: Final = m.encode_close(m.STATEMENT, UNNAMED)
_LATER: Final = frozenset((m.PARSE, m.BIND, m.DESCRIBE, m.EXECUTE, m.CLOSE, m.FUNCTION_CALL))


class Names:
    """The names of one session."""

    def __init__(self) -> None:
        self.statements: dict[str, Prepared] = {}  # prepared questions
        self.portals: dict[str, Portal] = {}  # bound questions
        self.owed: bytes | None = None  # the Parse or the Close that the shadow has not heard

    def told(self, question: Prepared, parse: bytes) -> None:
        """The client was told that this is the unnamed statement now."""
        self.statements[UNNAMED] = question
        self.owed = parse

    def queried(self, *, unheard: bool) -> None:
        """A simple query ends the unnamed statement and the unnamed portal; ``unheard``: not as such at the shadow."""
        self.statements.pop(UNNAMED, None)
        self.portals.pop(UNNAMED, None)
        self.owed = _CLOSE if unheard else None

    def settle(self, kind: int, frame: bytes, link: Link) -> None:
        """Before a message: let the shadow hear what it is owed.

        It is a batch by itself, so that whatever becomes of it is no part of the client's. Nothing of the analyst's has
        run since, so a text means what it meant when it was told.
        """
        if self.owed is None or kind not in _LATER:
            return
        owed, self.owed = self.owed, None
        if kind == m.PARSE and frame[5:6] == b"\0":
            return  # another one takes its place
        link.ask(owed[0], owed, drop).add_done_callback(heard)
        link.send(m.SYNC, SYNC, drop)

    def parsed(self, name: str, before: Prepared | None) -> Sink:
        """A Parse that fails leaves a named statement as it was; the unnamed one it has destroyed already."""

        def sink(kind: int, frame: bytes) -> bytes:
            if kind == m.ERROR_RESPONSE:
                self.statements.pop(name, None)
                if before is not None and name != UNNAMED:
                    self.statements[name] = before
            return frame

        return sink

    def synced(self) -> Sink:
        """A portal lives as long as its transaction."""
        held = dict(self.portals)

        def sink(kind: int, frame: bytes) -> bytes:
            if kind == m.READY_FOR_QUERY and frame[5] == m.IDLE:
                self.portals = {name: one for name, one in self.portals.items() if held.get(name) is not one}
            return frame

        return sink

    def forgotten(self, kind: int, frame: bytes) -> bytes:
        """A sink for what may forget all statements."""
        if kind == m.COMMAND_COMPLETE and frame[5:] in (b"DEALLOCATE ALL\0", b"DISCARD ALL\0"):
            self.statements.clear()
        return frame
