"""One analyst's session: the client's messages on one side, its own shadow connection on the other.

Messages are taken up in the order in which they came. What does not concern a protected relation goes to the shadow
unchanged, and its answer comes back unchanged. A question is noted when it is parsed and bound, and answered when it is
executed: then a task (``proxy.asking``) has it answered while later messages wait in the queue.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Final, TypeAlias

from mechanisms.errors import Refusal
from proxy import messages as m
from proxy import reports
from proxy.asker import Asker
from proxy.asking import Asking, as_portal
from proxy.batches import Bound, bound
from proxy.codec import FRONTEND_LIMITS, Frames
from proxy.conversation import Conversation
from proxy.errors import as_refusal, error_fields
from proxy.expected import RELAYED, Sink, batch
from proxy.link import FLUSH, Link, LinkLost, flow
from proxy.names import Names
from proxy.passwords import hidden, may_hide
from proxy.protocol import Action, Event, Machine, State
from proxy.reading import Portal
from proxy.route import PASS_ALL, Router
from proxy.runtime import ADMIN_ROLE, Runtime
from proxy.veil_settings import note_unknown

Task: TypeAlias = Coroutine[None, None, None]
_WAITING_LIMIT: Final = 1 << 20  # bytes that a client may talk ahead while a question is answered
_QUERY: Final = RELAYED[m.QUERY]
_FORGETTING: Final = (b"deallocate", b"discard")
_EXECUTES: Final = re.compile(rb"(?:^|;)\s*execute\b", re.IGNORECASE)


class Session:
    """The messages of a client that has logged in; implements ``proxy.link.Listener`` and ``proxy.asking.Client``."""

    def __init__(self, runtime: Runtime, who: str, administers: bool, max_message: int) -> None:
        self._runtime = runtime
        self._who, self._administers = who, administers  # an administrator's text is never a question
        self._frames = Frames(max_message, FRONTEND_LIMITS)
        self._machine = Machine(State.READY)
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting = 0  # bytes in the queue, about
        self._names = Names()
        self._link_writable = self._client_writable = True
        self._named = False  # whether PREPARE may have given a name to a question
        self._mixed = False  # whether other statements came since the last Sync
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.link: Link | None = None
        self._asking: Asking | None = None
        self._mentioned: set[str] = set()  # veil. names that are no settings of ours
        self._out: list[bytes] = []  # frames to forward at the end of this turn
        self._kinds: list[int] = []

    def open(self, transport: asyncio.Transport, link: Link) -> None:
        """Both ends stand."""
        self._transport, self.link = transport, link
        own = (self._who, ADMIN_ROLE) if self._administers else (self._who,)
        self._asking = Asking(self._runtime, Asker(self._who), link, self, lambda: sorted(self._mentioned), own)

    # -- from the client ----------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Bytes of the client's; raises ``ProtocolViolation``."""
        names = self._names
        if not (
            self._task is not None
            or self._queue
            or names.statements
            or names.portals
            or self._named
            or self._machine.state is not State.READY
            or self._frames.rest
        ):
            if data[0] == m.QUERY:
                passed = PASS_ALL.passed if self._administers else self._runtime.router.passed
                if data[5:-1] in passed and len(data) == 1 + int.from_bytes(data[1:5], "big") > 5:
                    names.owed = None  # PostgreSQL ends its unnamed statement by itself
                    self.link_.relay_one(_QUERY, data)  # the hot path: a simple query, seen before, and not ours
                    return
            elif names.owed is None and (answers := batch(data)) is not None:
                self._mixed = answers[-1:] != [RELAYED[m.SYNC]]
                self.link_.relay_batch(answers, data)  # no question is prepared, so none can be bound or executed
                return
        frames = list(self._frames.feed(data))
        if self._idle and self._at_once(frames):
            return
        self._queue.extend(frames)
        self._waiting += len(data)
        self._pump()

    @property
    def _idle(self) -> bool:
        """Whether a batch would be taken up at once, and by itself."""
        busy = self._queue or self._names.portals or self._mixed or self._frames.rest or not self._client_writable
        return not busy and self._machine.state is State.READY and (self._task is None or self._task.done())

    def _at_once(self, frames: list[tuple[int, bytes]]) -> bool:
        """Begin to tell the answer to a batch, if it is known; if it is not after all, the batch is queued."""
        express = self.asking.express
        asked = bound(frames, self._names.statements) if express.sure() else None
        found = None if asked is None else express.find_bound(asked)
        if asked is None or found is None:
            return False
        again = partial(self._queue.extendleft, reversed(frames))
        self._start(express.tell(found, partial(self._tell, asked), again))
        return True

    def _tell(self, asked: Bound, data: bytes) -> None:
        if asked.parse is not None:
            self._names.told(asked.portal.question, asked.parse)
        self.to_client(data)

    def _pump(self) -> None:
        """Take up messages until one of them needs time."""
        queue, machine = self._queue, self._machine
        try:
            while queue and (self._task is None or machine.state is State.COPY_IN):
                kind, frame = queue.popleft()
                action = machine.receive(kind)
                if action is Action.HANDLE:
                    if (task := self._handle(kind, frame)) is not None:
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
        if not queue:
            ahead, self._waiting = self._waiting, 0
            if ahead > _WAITING_LIMIT and self._link_writable:
                flow(self._transport, True)
        elif self._waiting > _WAITING_LIMIT:
            flow(self._transport, False)

    def _pump_later(self) -> None:
        """The same from a callback, where nobody would hear an exception."""
        try:
            self._pump()
        except LinkLost:
            self.close()
        except Exception as error:
            self.die(as_refusal(error))

    def _handle(self, kind: int, frame: bytes) -> Task | None:
        names = self._names
        if names.owed is not None:
            names.settle(kind, frame, self.link_)
        match kind:
            case m.QUERY:
                return self._query(frame)
            case m.PARSE:
                self._parse(frame)
            case m.BIND:
                self._bind(frame)
            case m.DESCRIBE if names.portals:
                self._describe(frame)
            case m.EXECUTE:
                return self._execute(frame)
            case m.CLOSE if names.statements or names.portals:
                self._close_object(frame)
            case m.SYNC:
                self._mixed = False
                if names.portals:
                    self._send(m.SYNC, frame, names.synced())
                else:
                    self._forward(m.SYNC, frame)
            case m.COPY_DONE if self._task is not None:
                self._forward(kind, frame)
                self._forward(m.FLUSH, FLUSH)  # a Flush behind the Execute is ignored inside the COPY
            case _:
                self._forward(kind, frame)
        return None

    def _forward(self, kind: int, frame: bytes) -> None:
        self._out.append(frame)
        self._kinds.append(kind)

    def _send(self, kind: int, frame: bytes, sink: Sink) -> None:
        """Forward a message whose answer we want to see on its way."""
        self._flush()
        self.link_.send(kind, frame, sink)

    def _flush(self) -> None:
        try:
            if self._out:
                data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
                kinds, self._out, self._kinds = self._kinds, [], []
                self.link_.relay(kinds, data)
            else:
                self.link_.flush()
        except LinkLost:
            self.close()

    # -- messages -----------------------------------------------------------------------------------------------

    def note_settings(self, text: bytes | str) -> None:
        note_unknown(text, self._mentioned)

    def _question(self, text: bytes) -> str | None:
        """The text, if it may be a question."""
        executes = (self._named or self._names.statements) and _EXECUTES.search(text)
        if text in self._router.passed and not executes:
            return None
        secret = may_hide(text)
        if not secret:
            self.note_settings(text)
        plain = not secret and self._router.is_plain(text)
        if b"\0" in text or (plain and (self._administers or not (reports.named(text) or executes))):
            return None
        self._named = self._named or b"prepare" in text.lower()
        try:
            return text.decode(self.conversation.codec)
        except (UnicodeDecodeError, Refusal):
            return None  # PostgreSQL refuses what it must

    def _query(self, frame: bytes) -> Task | None:
        names, asking = self._names, self._asking
        names.queried(unheard=True)
        alone, self._mixed = not self._mixed, False  # it ends the transaction of a batch that had no Sync
        at_once = alone and self._client_writable and not self._out  # what is not sent yet may change the settings
        if asking is not None and at_once and (found := asking.express.find(frame)) is not None:
            return asking.express.tell(found, self.to_client, partial(self._queue.appendleft, (m.QUERY, frame)))
        text = frame[5:-1]
        question = self._question(text)
        if question is not None and asking is not None:
            return asking.script(question, alone)
        names.queried(unheard=False)
        if names.statements and text.lstrip()[:10].lower().startswith(_FORGETTING):
            self._send(m.QUERY, frame, names.forgotten)
        else:
            self._forward(m.QUERY, frame)
        return None

    def _parse(self, frame: bytes) -> None:
        """PostgreSQL parses a question too: it is the first of its two readers."""
        raw, _, rest = frame[5:].partition(b"\0")
        name = raw.decode("utf-8", "surrogateescape")
        text = self._question(rest[: rest.find(b"\0")])
        before = self._names.statements.pop(name, None)
        if text is not None:
            question = hidden(text, m.decode_parse(frame, self.conversation.codec).oids)
            self._names.statements[name] = question
            if question.secret is not None:
                frame = m.encode(m.PARSE, b"\0".join((raw, question.text.encode(), rest.partition(b"\0")[2])))
        else:
            self._mixed = True
        if text is None and before is None:
            self._forward(m.PARSE, frame)
        else:
            self._send(m.PARSE, frame, self._names.parsed(name, before))

    def _bind(self, frame: bytes) -> None:
        if self._names.statements or self._names.portals:
            bound = m.decode_bind(frame)
            question = self._names.statements.get(bound.statement)
            if question is not None:
                self._names.portals[bound.portal] = Portal(question, bound.values, bound.formats, bound.result_formats)
                self._flush()
                self.conversation.hold(bound.portal, bound.statement)
                return
            self._names.portals.pop(bound.portal, None)
        self._forward(m.BIND, frame)

    def _describe(self, frame: bytes) -> None:
        asked = m.decode_describe(frame)
        portal = self._names.portals.get(asked.name) if asked.kind == m.PORTAL else None
        if portal is None:
            self._forward(m.DESCRIBE, frame)
        else:
            self._flush()
            self.conversation.describe(asked.name, portal, as_portal(portal.result_formats))

    def _execute(self, frame: bytes) -> Task | None:
        if self._names.portals:
            name = m.decode_execute(frame).portal
            portal = self._names.portals.get(name)
            if portal is not None:
                return self._ask(name, portal, frame)
        self._mixed = True
        self._forward(m.EXECUTE, frame)
        return None

    async def _ask(self, name: str, portal: Portal, frame: bytes) -> None:
        alone, self._mixed = not self._mixed, True
        if await self.asking.execute(name, portal, frame, alone):
            self._names.portals.pop(name, None)

    def _close_object(self, frame: bytes) -> None:
        asked = m.decode_close(frame)
        (self._names.statements if asked.kind == m.STATEMENT else self._names.portals).pop(asked.name, None)
        self._forward(m.CLOSE, frame)

    # -- questions ----------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        self._task = asyncio.get_running_loop().create_task(task)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None if self._task is task else self._task  # the next one may have begun before this is heard
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.die(as_refusal(error))
        else:
            self._pump_later()

    @property
    def failed(self) -> bool:
        return self._machine.state is State.FAILED

    def synced(self) -> None:
        self._machine.receive(m.SYNC)

    def cancel(self) -> bool:
        """Stop the question that is being answered, if there is one; else it is the shadow that is busy."""
        return self._asking is not None and self._asking.cancel()

    # -- from the shadow ----------------------------------------------------------------------------------------

    def to_client(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def batch_failed(self) -> None:
        self._machine.happen(Event.ERROR_IN_EXTENDED)

    def copy_started(self) -> None:
        self._machine.happen(Event.COPY_STARTED)
        if self._queue:
            asyncio.get_running_loop().call_soon(self._pump_later)

    def copy_ended(self) -> None:
        self._machine.happen(Event.COPY_ENDED)

    def link_lost(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def link_writable(self, writable: bool) -> None:
        self._link_writable = writable
        flow(self._transport, writable)

    def client_writable(self, writable: bool) -> None:
        self._client_writable = writable
        flow(self.link.transport if self.link is not None else None, writable)

    # -- the end ------------------------------------------------------------------------------------------------

    def die(self, refusal: Refusal) -> None:
        """Say why, and hang up."""
        self.to_client(error_fields(refusal, "FATAL"))
        self.close()

    def close(self) -> None:
        if self._machine.state is not State.CLOSED:
            self._machine.happen(Event.CLOSED)
        self.cancel()
        if self.link is not None:
            self.link.close()
        if self._transport is not None:
            self._transport.close()

    @property
    def _router(self) -> Router:
        return PASS_ALL if self._administers else self._runtime.router

    @property
    def link_(self) -> Link:
        if self.link is None:
            raise LinkLost
        return self.link

    @property
    def asking(self) -> Asking:
        if self._asking is None:
            raise LinkLost
        return self._asking

    @property
    def conversation(self) -> Conversation:
        return self.asking.conversation
