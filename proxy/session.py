"""One analyst's session: the client's messages on one side, its own shadow connection on the other.

Messages are taken up in the order in which they came. What does not concern a protected relation goes to the shadow
unchanged, and its answer comes back unchanged. A question is noted when it is parsed and bound, and answered when it is
executed: then a task runs ``proxy.answer`` while later messages wait in the queue.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mechanisms.errors import Refusal
from proxy import messages as m
from proxy.answer import Answered, Asker, answer
from proxy.codec import FRONTEND_LIMITS, Frames
from proxy.conversation import Conversation, Reading
from proxy.errors import as_refusal, error_fields, notice
from proxy.link import FLUSH, RELAYED, SYNC, Link, LinkLost, ShadowError, drop
from proxy.protocol import Action, Event, Machine, State
from proxy.route import PASS_ALL, Router, is_wrapped, named
from proxy.runtime import Runtime
from proxy.veil_settings import SETTINGS
from sqlrewrite.split import split

Task: TypeAlias = Coroutine[None, None, None]
_VEIL_NAME: Final = re.compile(r"\bveil\.[a-z_][a-z0-9_$]*")
_UNNAMED: Final = ""
_QUERY: Final = RELAYED[m.QUERY]
_HARMLESS: Final = frozenset((m.BIND, m.DESCRIBE, m.EXECUTE, m.CLOSE, m.FLUSH, m.SYNC))


@dataclass(frozen=True, slots=True)
class Portal:
    """A question with its parameters, bound and not yet executed."""

    statement: str
    text: str
    values: tuple[bytes | None, ...]
    formats: tuple[int, ...]
    result_formats: tuple[int, ...]


class Session:
    """The messages of a client that has logged in; implements ``proxy.link.Listener``."""

    def __init__(self, runtime: Runtime, asker: Asker | None, max_message: int) -> None:
        self._runtime = runtime
        self._asker = asker  # None: an administrator, whose text is never a question
        self._frames = Frames(max_message, FRONTEND_LIMITS)
        self._machine = Machine(State.READY)
        self._queue: deque[tuple[int, bytes]] = deque()
        self._statements: dict[str, str] = {}  # prepared questions
        self._portals: dict[str, Portal] = {}  # bound questions
        self._task: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[Answered] | None = None
        self._transport: asyncio.Transport | None = None
        self.link: Link | None = None
        self._conversation: Conversation | None = None
        self._mentioned: set[str] = set()  # veil. names that are no settings of ours
        self._out: list[bytes] = []  # frames to forward at the end of this turn
        self._kinds: list[int] = []

    def open(self, transport: asyncio.Transport, link: Link) -> None:
        """Both ends stand."""
        self._transport, self.link = transport, link
        self._conversation = Conversation(link)

    # -- from the client ----------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Bytes of the client's; raises ``ProtocolViolation``."""
        if (
            self._task is not None
            or self._queue
            or self._statements
            or self._machine.state is not State.READY
            or self._frames.pending
        ):
            self._queue.extend(self._frames.feed(data))
            self._pump()
        elif (
            data[0] == m.QUERY
            and len(data) == 1 + int.from_bytes(data[1:5], "big")
            and data[5:-1] in self._router.passed
        ):
            self.link_.relay_one(_QUERY, data)  # the hot path: a simple query that was seen before and is not ours
        else:
            frames = self._frames.feed(data)
            kinds = [kind for kind, _ in frames]
            if _HARMLESS.issuperset(kinds) and not self._frames.pending:
                self.link_.relay(kinds, data)  # no question is prepared, so none can be bound or executed
            else:
                self._queue.extend(frames)
                self._pump()

    def _pump(self) -> None:
        """Take up messages until one of them needs time."""
        queue, machine = self._queue, self._machine
        try:
            while queue and (self._task is None or machine.state is State.COPY_IN):
                kind, frame = queue.popleft()
                action = machine.receive(kind)
                if action is Action.HANDLE:
                    task = self._handle(kind, frame)
                    if task is not None:
                        self._flush()
                        self._start(task)
                elif action is Action.RELAY:
                    self._forward(kind, frame)
                elif action is Action.CLOSE:
                    self._flush()
                    self.close()
                    return
        finally:
            self._flush()

    def _handle(self, kind: int, frame: bytes) -> Task | None:
        match kind:
            case m.QUERY:
                return self._query(frame)
            case m.PARSE:
                self._parse(frame)
            case m.BIND:
                self._bind(frame)
            case m.DESCRIBE if self._statements:
                self._describe(frame)
            case m.EXECUTE if self._portals:
                return self._execute(frame)
            case m.CLOSE if self._statements:
                self._close_object(frame)
            case m.SYNC if self._portals:
                self._flush()
                self.link_.send(m.SYNC, frame, self._sync_done)
            case _:
                self._forward(kind, frame)
        return None

    def _forward(self, kind: int, frame: bytes) -> None:
        self._out.append(frame)
        self._kinds.append(kind)

    def _flush(self) -> None:
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            kinds, self._out, self._kinds = self._kinds, [], []
            try:
                self.link_.relay(kinds, data)
            except LinkLost:
                self.close()

    # -- messages -----------------------------------------------------------------------------------------------

    def note_settings(self, text: str) -> None:
        """Remember unknown ``veil.`` names: if one of them is set when a question comes, the question is refused."""
        for name in _VEIL_NAME.findall(text.lower()):
            if name not in SETTINGS:
                self._mentioned.add(name)

    def _query(self, frame: bytes) -> Task | None:
        self._statements.pop(_UNNAMED, None)
        self._portals.pop(_UNNAMED, None)
        text = frame[5:-1]
        if self._router.is_plain(text):
            if text not in self._router.passed:
                self.note_settings(text.decode(errors="replace"))
            self._forward(m.QUERY, frame)
            return None
        return self._simple_query(m.decode_query(frame).text)

    def _parse(self, frame: bytes) -> None:
        name, _, rest = frame[5:].partition(b"\0")
        text = rest[: rest.find(b"\0")]
        if self._router.is_plain(text):
            if text not in self._router.passed:
                self.note_settings(text.decode(errors="replace"))
            self._statements.pop(name.decode(errors="surrogateescape"), None)
        else:
            parsed = m.decode_parse(frame)
            self._statements[parsed.name] = parsed.text
        # PostgreSQL parses a question too: it is the first of its two readers.
        self._forward(m.PARSE, frame)

    def _bind(self, frame: bytes) -> None:
        if self._statements or self._portals:
            bound = m.decode_bind(frame)
            text = self._statements.get(bound.statement)
            if text is not None:
                self._portals[bound.portal] = Portal(
                    bound.statement, text, bound.values, bound.formats, bound.result_formats
                )
                self._flush()
                self.conversation.hold(bound.portal)
                return
            self._portals.pop(bound.portal, None)
        self._forward(m.BIND, frame)

    def _describe(self, frame: bytes) -> None:
        asked = m.decode_describe(frame)
        portal = self._portals.get(asked.name) if asked.kind == m.PORTAL else None
        if portal is None:
            self._forward(m.DESCRIBE, frame)
            return
        self._flush()
        self.link_.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, portal.statement), _as_portal(portal.result_formats))

    def _execute(self, frame: bytes) -> Task | None:
        asked = m.decode_execute(frame)
        portal = self._portals.get(asked.portal)
        if portal is None:
            self._forward(m.EXECUTE, frame)
            return None
        return self._extended_question(asked, portal, frame)

    def _close_object(self, frame: bytes) -> None:
        asked = m.decode_close(frame)
        (self._statements if asked.kind == m.STATEMENT else self._portals).pop(asked.name, None)
        self._forward(m.CLOSE, frame)

    def _sync_done(self, kind: int, frame: bytes) -> bytes:
        if kind == m.READY_FOR_QUERY and frame[5] == m.IDLE:
            self._portals.clear()  # a portal lives as long as its transaction
        return frame

    # -- questions ----------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        self._task = asyncio.get_running_loop().create_task(task)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            as_refusal(task.exception())  # type: ignore[arg-type]  # logs it
            self.close()
            return
        try:
            self._pump()
        except Refusal as refusal:
            self.die(refusal)

    async def _extended_question(self, asked: m.Execute, portal: Portal, frame: bytes) -> None:
        try:
            await self._fill(asked.portal, portal)
            self._portals.pop(asked.portal, None)
            self.link_.send(m.EXECUTE, frame)
        except (Exception, asyncio.CancelledError) as error:
            await self._refuse(error)

    async def _simple_query(self, text: str) -> None:
        """A script with a question in it: its parts go to the shadow as one batch, hence one implicit transaction."""
        link = self.link_
        self.note_settings(text)
        try:
            for piece in map(str.strip, split(text)):
                link.send(m.PARSE, m.encode_parse(_UNNAMED, piece), drop)
                if self._router.is_plain(piece.encode()):
                    link.send(m.BIND, m.encode_bind(_UNNAMED, _UNNAMED), drop)
                else:
                    await self._fill(_UNNAMED, Portal(_UNNAMED, piece, (), (), ()))
                link.send(m.DESCRIBE, m.encode_describe(m.PORTAL, _UNNAMED), _unless_no_data)
                await link.ask(m.EXECUTE, m.encode_execute(_UNNAMED) + FLUSH, _relay)
        except (Exception, asyncio.CancelledError) as error:
            await self._refuse(error)
        if not link.lost:
            if self._machine.state is State.FAILED:
                self._machine = Machine(State.READY)  # a simple query ends with its own Sync
            link.send(m.SYNC, SYNC)

    async def _fill(self, name: str, portal: Portal) -> None:
        """Put the answer to a question behind its portal."""
        conversation = self.conversation
        self.note_settings(portal.text)
        names = sorted(named(portal.text), key=str)
        reading = await conversation.read(
            portal.statement, names, portal.values, portal.formats, sorted(self._mentioned)
        )
        if not self._concerned(portal.text, reading):
            conversation.native(name, portal.statement, portal.values, portal.formats, portal.result_formats)
            return
        assert self._asker is not None
        self._answering = asyncio.get_running_loop().create_task(
            answer(self._runtime, self._asker, portal.text, reading)
        )
        try:
            answered = await self._answering
        finally:
            self._answering = None
        conversation.finish(name, answered.sql, answered.arrays, portal.result_formats)
        self.to_client(notice(answered.message, answered.bill))

    def _concerned(self, text: str, reading: Reading) -> bool:
        """Whether a protected relation is really meant: a temporary table may bear the same name."""
        return is_wrapped(text) or any(
            pair is not None and self._router.protects(*pair) for pair in (*reading.resolved.values(), *reading.seen)
        )

    async def _refuse(self, error: BaseException) -> None:
        """Tell the client, and leave the shadow's transaction as failed as the client believes it to be."""
        if isinstance(error, ShadowError):
            self.to_client(error.frame)
            return
        refusal = as_refusal(error) if not isinstance(error, LinkLost) else None
        try:
            if refusal is None:
                raise LinkLost
            await self.conversation.fail()
            self.to_client(error_fields(refusal))
        except LinkLost:
            self.close()

    def cancel(self) -> bool:
        """Stop the question that is being answered, if there is one; else it is the shadow that is busy."""
        if self._answering is None:
            return False
        self._answering.cancel()
        return True

    # -- from the shadow ----------------------------------------------------------------------------------------

    def to_client(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def batch_failed(self) -> None:
        self._machine.happen(Event.ERROR_IN_EXTENDED)

    def copy_started(self) -> None:
        self._machine.happen(Event.COPY_STARTED)

    def copy_ended(self) -> None:
        self._machine.happen(Event.COPY_ENDED)

    def link_lost(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def link_writable(self, writable: bool) -> None:
        _flow(self._transport, writable)

    def client_writable(self, writable: bool) -> None:
        _flow(self.link.transport if self.link is not None else None, writable)

    # -- the end ------------------------------------------------------------------------------------------------

    def die(self, refusal: Refusal) -> None:
        """Say why, and hang up."""
        self.to_client(error_fields(refusal, "FATAL"))
        self.close()

    def close(self) -> None:
        if self._machine.state is not State.CLOSED:
            self._machine.happen(Event.CLOSED)
        if self._answering is not None:
            self._answering.cancel()
        if self.link is not None:
            self.link.close()
        if self._transport is not None:
            self._transport.close()

    @property
    def _router(self) -> Router:
        return PASS_ALL if self._asker is None else self._runtime.router

    @property
    def link_(self) -> Link:
        if self.link is None:
            raise LinkLost
        return self.link

    @property
    def conversation(self) -> Conversation:
        if self._conversation is None:
            raise LinkLost
        return self._conversation


def _flow(transport: asyncio.Transport | None, writable: bool) -> None:
    """Let one side wait for the other."""
    if transport is None or transport.is_closing():
        return
    if writable:
        transport.resume_reading()
    else:
        transport.pause_reading()


def _relay(kind: int, frame: bytes) -> bytes:
    return frame


def _unless_no_data(kind: int, frame: bytes) -> bytes | None:
    """A simple query gets no NoData."""
    return None if kind == m.NO_DATA else frame


def _as_portal(formats: tuple[int, ...]) -> Callable[[int, bytes], bytes | None]:
    """Turn the description of a statement into that of a portal: no parameters, and the formats that Bind chose."""

    def sink(kind: int, frame: bytes) -> bytes | None:
        if kind == m.PARAMETER_DESCRIPTION:
            return None
        if kind != m.ROW_DESCRIPTION or not formats:
            return frame
        fields = m.decode_row_description(frame)
        chosen = formats * len(fields) if len(formats) == 1 else formats
        return m.encode_row_description([replace(f, format=c) for f, c in zip(fields, chosen, strict=False)])

    return sink
