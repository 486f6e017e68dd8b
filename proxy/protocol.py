"""The conversation as a table: in which state may the client say what, and what does it mean there.

Theory
------
A PostgreSQL session is a conversation in which the client may talk ahead: it may send a whole batch of
messages without waiting for an answer. So a message has no meaning by itself, only in the state in which it
is *taken up*. The state moves for two reasons: a message from the client, or an event on our side (the
password was right, a statement failed, PostgreSQL asked for COPY data). Both are rows of one table here:
``TABLE[state][message type] -> Step(next state, action)`` and ``EVENTS[state][event] -> next state``. What is
not in the table is not allowed: a message that is missing is the client's fault (08P01), an event that is
missing is ours.

The states:

- STARTUP: nothing typed may arrive. SSLRequest, GSSENCRequest, CancelRequest and StartupMessage have no type
  byte and are read by ``codec.StartupReader``; the event STARTED says that a StartupMessage has been read.
- AUTHENTICATING: only the 'p' messages (SASLInitialResponse, SASLResponse, PasswordMessage), or goodbye.
- READY: a new simple query or the next message of an extended batch. Whether a transaction is open does not
  matter here: ReadyForQuery carries that, and PostgreSQL knows it.
- COPY_IN: PostgreSQL has sent CopyInResponse. Flush and Sync are ignored, because a client that talks ahead sends
  them behind Execute before it can know that it started a COPY. CopyDone and CopyFail lead back. Anything else is
  an error that PostgreSQL itself raises (it ends the copy, and then either is ready or skips to Sync): RELAY.
- FAILED: an extended batch went wrong. Everything up to the next Sync was written in ignorance of the
  error and is skipped, a simple Query too; Sync is handled (it answers ReadyForQuery) and leads back to READY.
- CLOSED: the end. What is still in the pipe is dropped.

An error in a simple query does not change the state: the session stays READY. CopyData, CopyDone and CopyFail in
READY are what is left in the pipe of a copy that failed, and are dropped without a word, as PostgreSQL does.

What may live here: the table and the cursor that walks it. No sockets, no bytes but the type byte, no transaction
status, no statement or portal names. A test walks the whole table.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from proxy import messages as m
from proxy.errors import ProtocolViolation


class State(Enum):
    STARTUP = "startup"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    COPY_IN = "copy in"
    FAILED = "failed"
    CLOSED = "closed"


class Action(Enum):
    HANDLE = "handle"  # read the message and do what it says
    RELAY = "relay"  # hand it to the shadow unread: PostgreSQL refuses it
    SKIP = "skip"  # drop it without an answer
    CLOSE = "close"  # the client says goodbye


class Event(Enum):
    STARTED = "a StartupMessage was read"
    AUTHENTICATED = "the client proved who it is"
    ERROR_IN_EXTENDED = "an ErrorResponse was sent for a message of an extended batch"
    COPY_STARTED = "CopyInResponse was sent"
    COPY_ENDED = "the copy is over, well or badly"
    CLOSED = "the connection ends from our side"


class Step(NamedTuple):
    next: State
    action: Action


def _row(*steps: tuple[frozenset[int], State, Action]) -> dict[int, Step]:
    return {kind: Step(state, action) for kinds, state, action in steps for kind in kinds}


FRONTEND: Final = frozenset(m.FRONTEND_NAMES)
_COPY: Final = frozenset({m.COPY_DATA, m.COPY_DONE, m.COPY_FAIL})
_GOODBYE: Final = frozenset({m.TERMINATE})
_EXTENDED: Final = frozenset({m.PARSE, m.BIND, m.DESCRIBE, m.EXECUTE, m.CLOSE, m.FLUSH, m.SYNC})
_WORK: Final = _EXTENDED | {m.QUERY, m.FUNCTION_CALL}

TABLE: Final[dict[State, dict[int, Step]]] = {
    State.STARTUP: {},
    State.AUTHENTICATING: _row(
        (frozenset({m.PASSWORD}), State.AUTHENTICATING, Action.HANDLE),
        (_GOODBYE, State.CLOSED, Action.CLOSE),
    ),
    State.READY: _row(
        (_WORK, State.READY, Action.HANDLE),
        (_COPY, State.READY, Action.SKIP),
        (_GOODBYE, State.CLOSED, Action.CLOSE),
    ),
    State.COPY_IN: _row(
        (_WORK - {m.FLUSH, m.SYNC}, State.COPY_IN, Action.RELAY),
        (frozenset({m.FLUSH, m.SYNC}), State.COPY_IN, Action.SKIP),
        (frozenset({m.COPY_DATA}), State.COPY_IN, Action.HANDLE),
        (frozenset({m.COPY_DONE, m.COPY_FAIL}), State.READY, Action.HANDLE),
        (_GOODBYE, State.CLOSED, Action.CLOSE),
    ),
    State.FAILED: _row(
        (_WORK - {m.SYNC} | _COPY, State.FAILED, Action.SKIP),
        (frozenset({m.SYNC}), State.READY, Action.HANDLE),
        (_GOODBYE, State.CLOSED, Action.CLOSE),
    ),
    State.CLOSED: _row((FRONTEND, State.CLOSED, Action.SKIP)),
}

EVENTS: Final[dict[State, dict[Event, State]]] = {
    State.STARTUP: {Event.STARTED: State.AUTHENTICATING, Event.CLOSED: State.CLOSED},
    State.AUTHENTICATING: {Event.AUTHENTICATED: State.READY, Event.CLOSED: State.CLOSED},
    State.READY: {
        Event.ERROR_IN_EXTENDED: State.FAILED,
        Event.COPY_STARTED: State.COPY_IN,
        Event.COPY_ENDED: State.READY,  # PostgreSQL confirms the CopyDone that led here
        Event.CLOSED: State.CLOSED,
    },
    State.COPY_IN: {
        Event.ERROR_IN_EXTENDED: State.FAILED,
        Event.COPY_ENDED: State.READY,
        Event.CLOSED: State.CLOSED,
    },
    State.FAILED: {
        Event.ERROR_IN_EXTENDED: State.FAILED,
        Event.COPY_ENDED: State.FAILED,
        Event.CLOSED: State.CLOSED,
    },
    State.CLOSED: dict.fromkeys(Event, State.CLOSED),
}


class Machine:
    """The cursor of one connection on the table."""

    __slots__ = ("_row", "state")

    def __init__(self, state: State = State.STARTUP) -> None:
        self.state = state
        self._row = TABLE[state]

    def receive(self, kind: int) -> Action:
        """Take up a message of this type: what to do with it."""
        try:
            state, action = self._row[kind]
        except KeyError:
            raise self._violation(kind) from None
        if state is not self.state:
            self.state = state
            self._row = TABLE[state]
        return action

    def happen(self, event: Event) -> None:
        """Something happened on our side."""
        state = EVENTS[self.state].get(event)
        if state is None:
            raise RuntimeError(f"event {event.name} in state {self.state.name}")
        self.state = state
        self._row = TABLE[state]

    def _violation(self, kind: int) -> ProtocolViolation:
        name = m.FRONTEND_NAMES.get(kind)
        if name is None:
            return ProtocolViolation(f"invalid frontend message type {kind}")
        return ProtocolViolation(f"{name} message is not allowed here", detail=f"The connection is {self.state.value}.")
