"""A raw connection to a PostgreSQL that runs the analyst's own text: the shadow (or, for administrators, provenance).

Everything sent is paired with an ``Expected``: which frame ends its answer, and where that answer goes. Most
answers go to the client as they are (``relay``), byte for byte; the few statements that pgveil adds itself
(settings, name resolution, finishing) have a sink of their own. Since PostgreSQL answers in order, one queue is
all the bookkeeping there is, and nothing ever has to wait for the connection to fall silent.

Only whole frames are passed on, so pgveil may write a message of its own between any two of them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from proxy import messages as m
from proxy.expected import RELAYED, Expected, Sink


class ShadowError(Exception):
    """PostgreSQL refused something that pgveil itself sent; the frame is native and safe to pass on."""

    def __init__(self, frame: bytes) -> None:
        super().__init__("the shadow refused a statement")
        self.frame = frame


class LinkLost(Exception):  # noqa: N818 - an event, not a fault
    """The connection ended."""


class Listener(Protocol):
    """Who hears what PostgreSQL says: the session."""

    def to_client(self, data: bytes) -> None: ...

    def batch_failed(self) -> None:
        """An extended batch failed and its Sync has not been sent yet: skip to it."""

    def copy_started(self) -> None: ...

    def copy_ended(self) -> None: ...

    def link_lost(self) -> None: ...

    def link_writable(self, writable: bool) -> None: ...


@dataclass(slots=True, eq=False)
class Answer:
    """Collects the frames of one answer that is ours to read."""

    frames: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, kind: int, frame: bytes) -> None:
        self.frames.append((kind, frame))

    def rows(self) -> list[list[bytes | None]]:
        return [m.decode_data_row(frame) for kind, frame in self.frames if kind == m.DATA_ROW]

    def first(self, kind: int) -> bytes | None:
        return next((frame for k, frame in self.frames if k == kind), None)


FLUSH: Final = m.encode_flush()
SYNC: Final = m.encode_sync()
_TERMINATE: Final = m.encode_terminate()
_SYNCED: Final = [m.SYNC]


def drop(kind: int, frame: bytes) -> None:
    """A sink for completions that the client did not ask for."""


def heard(done: asyncio.Future[None]) -> None:
    """Whoever was to wait for it may have ended before: then nobody is left to be told of its failure."""
    if not done.cancelled():
        done.exception()


# Messages whose answer ends with ReadyForQuery; all others belong to an extended batch that an error cuts short.
_UNTIL_READY: Final = frozenset((m.QUERY, m.SYNC, m.FUNCTION_CALL))
_ENDS: Final = frozenset(
    (
        m.PARSE_COMPLETE,
        m.BIND_COMPLETE,
        m.CLOSE_COMPLETE,
        m.NO_DATA,
        m.COMMAND_COMPLETE,
        m.EMPTY_QUERY_RESPONSE,
        m.PORTAL_SUSPENDED,
    )
)
_ASIDE: Final = frozenset((m.NOTICE_RESPONSE, m.PARAMETER_STATUS, m.NOTIFICATION_RESPONSE))

_head: Final = struct.Struct(">BI").unpack_from
_DATA_ROW: Final = m.DATA_ROW
_ROW_DESCRIPTION: Final = m.ROW_DESCRIPTION
_READY_FOR_QUERY: Final = m.READY_FOR_QUERY
_RUN: Final = 8  # rows of one width that make it worth looking for more


def _alike(data: bytes, start: int, width: int) -> int:
    """How many whole frames from here on have the same head: each of them says where the next one begins."""
    count = (len(data) - start) // width
    for at in range(start, start + 5):
        column = data[at : start + count * width : width]
        count -= len(column.lstrip(column[:1]))
    return count


def flow(transport: asyncio.Transport | None, writable: bool) -> None:
    """Let one side wait for the other."""
    if transport is None or transport.is_closing():
        return
    if writable:
        transport.resume_reading()
    else:
        transport.pause_reading()


class Link(asyncio.Protocol):
    """The frames of one server connection, after its login (see ``proxy.login``)."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._to_client = listener.to_client
        self._pending: deque[Expected] = deque()
        self._special = 0  # how many of them have a sink or a waiter
        self._tail = bytearray()
        self._need = 5
        self._unsent: list[bytes] = []  # frames of ours: a write for each would cost more than PostgreSQL's answer
        self.transport: asyncio.Transport | None = None
        self.capture: asyncio.Queue[bytes] | None = asyncio.Queue()  # raw bytes while logging in
        self.copying_in = False
        self.status = m.IDLE
        self.parameters: dict[str, str] = {}
        self.lost = False
        self._skipping: bytes | None = None  # the error after which PostgreSQL answers nothing before the next Sync
        self.turn = 0  # changes with every statement of the analyst's own that may change the session

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are not of that class

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for expected in self._pending:
            if expected.done is not None and not expected.done.done():
                expected.done.set_exception(LinkLost())
        self._pending.clear()
        if self.capture is not None:
            self.capture.put_nowait(b"")
        self._listener.link_lost()

    def pause_writing(self) -> None:
        self._listener.link_writable(False)

    def resume_writing(self) -> None:
        self._listener.link_writable(True)

    def data_received(self, data: bytes) -> None:
        if self.capture is not None:
            self.capture.put_nowait(data)
            return
        if self._tail:
            self._tail += data
            if len(self._tail) < self._need:
                return
            data = bytes(self._tail)
            self._tail.clear()
        end = self._walk(data)
        if end < len(data):
            self._tail += data[end:]
            missing = len(data) - end
            self._need = 1 + int.from_bytes(data[end + 1 : end + 5], "big") if missing >= 5 else 5

    # -- out ----------------------------------------------------------------------------------------------------

    def relay(self, kinds: list[int], data: bytes) -> None:
        """Send the client's own frames on; their answers go to the client."""
        pending = self._pending
        self.turn += kinds != _SYNCED
        if m.SYNC in kinds:
            self._skipping = None
        for kind in kinds:
            expected = RELAYED.get(kind)
            if expected is not None:  # Flush, CopyData and the like have no answer of their own
                pending.append(expected)
        self.write(data)

    def relay_one(self, expected: Expected, data: bytes) -> None:
        """The hot path: one frame whose answer is relayed."""
        if self._unsent:
            self.flush()
        self.turn += 1
        self._pending.append(expected)
        self.transport.write(data)  # type: ignore[union-attr]

    def relay_batch(self, answers: list[Expected], data: bytes) -> None:
        """The same for several."""
        if self._unsent:
            self.flush()
        self.turn += 1
        self._pending.extend(answers)
        self.transport.write(data)  # type: ignore[union-attr]

    def send(self, kind: int, data: bytes, sink: Sink | None = None) -> None:
        """Send a frame of ours at the next ``flush``; ``sink`` takes its answer (None: the client gets it)."""
        if self.transport is None or self.lost:
            raise LinkLost
        if kind == m.SYNC:
            self._skipping = None
        elif self._skipping is not None:  # there will be no answer
            if sink is not None:
                sink(m.ERROR_RESPONSE, self._skipping)
            return
        if sink is None:
            self._pending.append(RELAYED[kind])
        else:
            self._pending.append(Expected(kind, sink))
            self._special += 1
        self.turn += kind == m.QUERY  # all else is ours, or executes nothing
        self._unsent.append(data)

    def ask(self, kind: int, data: bytes, sink: Sink) -> asyncio.Future[None]:
        """Send at once, and a future that ends with the answer (``ShadowError`` if it is a refusal)."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._skipping is not None:
            done.set_exception(ShadowError(self._skipping))
            return done
        self.write(data)  # first: if the connection is lost, nobody would wait for the future
        self._pending.append(Expected(kind, sink, done))
        self._special += 1
        return done

    def write(self, data: bytes) -> None:
        """Write now, behind what was not sent yet."""
        if self.transport is None or self.lost:
            raise LinkLost
        if self._unsent:
            data, self._unsent = b"".join((*self._unsent, data)), []
        self.transport.write(data)

    def flush(self) -> None:
        """Write what was not sent yet, at the end of a turn."""
        if self._unsent and not self.lost:
            self.write(b"")

    def close(self) -> None:
        """Say goodbye; whoever waits for an answer hears of it when the connection is gone."""
        if self.transport is not None and not self.lost:
            self.flush()
            self.lost = True
            self.transport.write(_TERMINATE)
            self.transport.close()

    def note_parameter(self, frame: bytes) -> None:
        """Remember a ParameterStatus; its text is in the client's encoding, whatever that is."""
        name, _, value = frame[5:-1].decode("utf-8", "replace").partition("\0")
        self.parameters[name] = value

    @property
    def busy(self) -> bool:
        """Whether PostgreSQL still owes an answer."""
        return bool(self._pending)

    # -- in -----------------------------------------------------------------------------------------------------

    def _walk(self, data: bytes) -> int:
        """Match frames with what is expected and pass them on; returns the end of the last whole frame."""
        i, sent, size = 0, 0, len(data)
        pending = self._pending
        out: list[bytes] = []
        last, before = size - 5, 0  # the length of the row before this one; -1: widths differ, so do not look for runs
        while i <= last:
            kind, length = _head(data, i)
            stop = i + 1 + length
            if stop > size:
                break
            if self._special == 0:
                if kind == _DATA_ROW:
                    if length == before:
                        count = _alike(data, i, length + 1)
                        before = 0 if count >= _RUN else -1
                        i += count * (length + 1)
                        continue
                    if before >= 0:
                        before = length
                elif kind == _READY_FOR_QUERY:
                    self.status = data[i + 5]
                    while pending and pending.popleft().kind not in _UNTIL_READY:
                        pass
                elif kind in _ENDS:
                    if self.copying_in:
                        self._copy_ended()
                    if pending and pending[0].kind not in _UNTIL_READY:
                        pending.popleft()
                elif kind == _ROW_DESCRIPTION:
                    if pending and pending[0].kind == m.DESCRIBE:
                        pending.popleft()
                else:
                    self._rare(kind, data[i:stop])
                i = stop
                continue
            # Something of ours is on its way: deal with this frame alone.
            if i > sent:
                out.append(data[sent:i])
            told = self._dispatch(kind, data[i:stop])
            if told:
                out.append(told)
            i = sent = stop
        if i > sent:
            out.append(data if sent == 0 and i == size else data[sent:i])
        if out:
            self._to_client(out[0] if len(out) == 1 else b"".join(out))
        return i

    def _rare(self, kind: int, frame: bytes) -> None:
        """Frames off the hot path that change what is expected."""
        pending = self._pending
        if kind == m.ERROR_RESPONSE:
            self._error(frame)
        elif kind == m.PARAMETER_STATUS:
            self.note_parameter(frame)
        elif kind == m.COPY_IN_RESPONSE and pending:
            self.copying_in = True
            # A Sync that was sent with the Execute is read, and ignored, inside the COPY.
            head = pending.popleft()
            while pending and pending[0].kind == m.SYNC:
                self._special -= pending.popleft().sink is not None
            pending.appendleft(head)
            self._listener.copy_started()

    def _copy_ended(self) -> None:
        if self.copying_in:
            self.copying_in = False
            self._listener.copy_ended()

    def _dispatch(self, kind: int, frame: bytes) -> bytes | None:
        """One frame while an answer of ours is among the expected ones."""
        pending = self._pending
        if kind in _ASIDE:
            if kind == m.PARAMETER_STATUS:
                self.note_parameter(frame)
            return frame
        if kind == m.ERROR_RESPONSE:
            return self._error(frame)
        head = pending[0]
        until_ready = head.kind in _UNTIL_READY
        if self.copying_in and kind in _ENDS:
            self._copy_ended()
        out = frame if head.sink is None else head.sink(kind, frame)
        if kind == m.READY_FOR_QUERY:
            self.status = frame[5]
            while self._finish() not in _UNTIL_READY and pending:
                pass
        elif not until_ready and (kind in _ENDS or (kind == m.ROW_DESCRIPTION and head.kind == m.DESCRIBE)):
            self._finish()
        elif kind == m.COPY_IN_RESPONSE:
            self._rare(kind, frame)
        return out

    def _finish(self) -> int:
        expected = self._pending.popleft()
        if expected.sink is not None:
            self._special -= 1
        if expected.done is not None and not expected.done.done():
            expected.done.set_result(None)
        return expected.kind

    def _error(self, frame: bytes) -> bytes | None:
        """PostgreSQL skips to Sync now, and so do the expectations; the client gets what is returned.

        Where somebody waits for one of the answers that will not come, the error is theirs to pass on.
        """
        self._copy_ended()
        pending = self._pending
        if not pending or pending[0].kind in _UNTIL_READY:
            return frame
        waited, skipped = False, []
        while pending and pending[0].kind != m.SYNC:
            expected = pending.popleft()
            if expected.sink is not None:
                self._special -= 1
                skipped.append(expected.sink)
            if expected.done is not None and not expected.done.done():
                expected.done.set_exception(ShadowError(frame))
                waited = True
        for sink in reversed(skipped):  # the last first, as one undoes things
            sink(m.ERROR_RESPONSE, frame)
        if not pending:
            self._skipping = frame
            self._listener.batch_failed()
        return None if waited else frame
