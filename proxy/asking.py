"""How a session has its questions answered: one task at a time, while later messages of the client wait.

*Guarantee*: every way out of a task tells the client something. What PostgreSQL refuses is passed on as it is; a
refusal of ours also fails the shadow's transaction; a lost connection closes both ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from mechanisms.errors import Refusal
from proxy import messages as m
from proxy import passwords, reports
from proxy.answer import answer
from proxy.asker import Answered, Asker
from proxy.conversation import Conversation
from proxy.dated import as_written, dated
from proxy.encodings import recoded
from proxy.errors import ProtocolViolation, as_refusal, error_fields, notice
from proxy.expected import Sink
from proxy.explain import Explained, explain, unwrap
from proxy.express import Express, Filled
from proxy.link import FLUSH, SYNC, Link, LinkLost, ShadowError, drop
from proxy.reading import Portal, Prepared, Reading
from proxy.route import named
from proxy.runtime import Runtime
from proxy.warm import at_once
from proxy.wrapped import Placed, moved
from sqlrewrite.blocks import Name
from sqlrewrite.errors import NotAnswered, SyntaxNotRead, UnknownColumn, WouldShowRows
from sqlrewrite.lift import lift
from sqlrewrite.password import new_password
from sqlrewrite.probe import emptied
from sqlrewrite.split import split
from sqlrewrite.wrapper import execution, prepared, wrapper

_UNNAMED: Final = ""


class Client(Protocol):
    """Who is told: the session."""

    def to_client(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def synced(self) -> None:
        """A Sync goes out that the client did not send."""

    @property
    def failed(self) -> bool:
        """Whether the batch has failed, so that PostgreSQL answers nothing before the next Sync."""


class Asking:
    """The questions of one session."""

    def __init__(
        self,
        runtime: Runtime,
        asker: Asker,
        link: Link,
        client: Client,
        mentioned: Callable[[], list[str]],
        own: tuple[str, ...],
    ) -> None:
        self._runtime = runtime
        self._asker = asker
        self._link = link
        self._client = client
        self._mentioned = mentioned  # veil. names that are no settings of ours
        self._own = own  # the names of whoever asks: an administrator is also the role of all administrators
        self._answering: asyncio.Task[Answered] | None = None
        self.conversation = Conversation(link)
        self.express = Express(runtime, asker, link, self.conversation, mentioned)

    async def execute(self, name: str, portal: Portal, frame: bytes, alone: bool) -> bool:
        """Answer a bound question and let PostgreSQL execute what stands for it; whether that portal is now native."""
        if self._client.failed:
            return False  # an earlier statement of the batch failed before this task had its turn
        begun = self.express.moment()
        try:
            filled = await self._fill(name, portal, held=name, alone=alone)
            self._link.send(m.EXECUTE, frame)
            if alone and not name:
                self.express.note(portal, filled, begun)
            return True
        except (Exception, asyncio.CancelledError) as error:
            await self._refuse(error)
            return False

    async def script(self, text: str, alone: bool) -> None:
        """A script with a question in it: its parts go to the shadow as one batch, hence one implicit transaction.

        ``alone``: the transaction has not begun with something else.
        """
        link = self._link
        if self._client.failed:
            return
        try:
            if link.busy:
                await self.conversation.settle()
        except ShadowError as error:
            self._client.to_client(error.frame)  # the script stood in a batch that failed: it is skipped to Sync
            return
        except LinkLost:
            return
        start = 0
        try:
            pieces = [piece.strip() for piece in split(text)]
            for piece in pieces:
                start = text.index(piece, start)
                await self._run(piece, alone, single=len(pieces) == 1, last=len(pieces) == 1 and start == 0)
                start, alone = start + len(piece), False
        except (Exception, asyncio.CancelledError) as error:
            await self._refuse(error, start)
        if not link.lost:
            self._client.synced()
            link.send(m.SYNC, SYNC)

    async def _run(self, piece: str, alone: bool, single: bool, last: bool) -> None:
        """One statement of a script; for the end of a question that is the whole script nobody waits."""
        link, conversation, begun = self._link, self.conversation, self.express.moment()
        answered: Filled = None
        if (secret := passwords.hidden_portal(piece)) is not None:
            await self._fill(_UNNAMED, secret, held=None, alone=alone)
        elif self._administers or (self._runtime.router.is_plain(piece.encode()) and execution(piece) is None):
            await self._report(piece)
            link.send(m.PARSE, m.encode_parse(_UNNAMED, piece, (), conversation.codec), drop)
            link.send(m.BIND, m.encode_bind(_UNNAMED, _UNNAMED), drop)
        else:
            answered = await self._fill(_UNNAMED, Portal(Prepared(piece)), held=None, alone=alone, single=single)
        described: Sink = _unless_no_data
        if last and alone:  # else the settings may end with this transaction
            described = self.express.noting(piece, answered, begun, described)
        link.send(m.DESCRIBE, m.encode_describe(m.PORTAL, _UNNAMED), described)
        if answered is not None and last:
            link.send(m.EXECUTE, m.encode_execute(_UNNAMED))
        else:
            await link.ask(m.EXECUTE, m.encode_execute(_UNNAMED) + FLUSH, _relay)

    async def _fill(self, name: str, portal: Portal, *, held: str | None, alone: bool, single: bool = True) -> Filled:
        """Put the answer to a question behind its portal; None if it turned out to be none."""
        text, asked = portal.question.text, portal
        if portal.question.secret is not None:
            await self._change_password(portal.question.secret)
            self.conversation.native(name, portal)
            return None
        if prepared(text) is not None:  # PostgreSQL keeps it, and nothing is paid before it is executed
            self.conversation.native(name, portal)
            return None
        called, around = execution(text), wrapper(text)
        if called is not None:
            found = await self.conversation.prepared(called, portal)
            if found is None or self._runtime.router.is_plain(found.question.text.encode()):
                self.conversation.native(name, portal)
                return None
            asked = found
        elif around is not None:
            outside = not around.hold and alone and single and self._link.status == m.IDLE
            if outside if around.takes_parameters else around.has_parameters:
                # A cursor outside a transaction, or a COPY with parameters: PostgreSQL says why not.
                self.conversation.native(name, portal)
                return None
            asked = replace(portal, question=Prepared(around.question, portal.question.oids, around))
        try:
            filled = await self._answer(name, portal, asked, held, alone)
            return filled if called is None else _once(filled)  # another statement may get that name
        except Placed:
            raise
        except ShadowError as error:
            raise ShadowError(moved(error.frame, 0 if around is None else len(around.before))) from None
        except Refusal as refusal:
            if called is not None:
                refusal.position = None  # it is one of another text
            elif around is not None and refusal.position is not None:
                refusal.position += len(around.before)
            raise

    async def _answer(self, name: str, portal: Portal, asked: Portal, held: str | None, alone: bool) -> Filled:
        """The same for the question itself, out of what carried it, with the current day written into it."""
        meant = await dated(asked.question.text, self.conversation)
        if meant is None:
            return await self._answer_plain(name, portal, asked, held, alone)
        asked = replace(asked, question=replace(asked.question, text=meant.text))
        try:
            return _once(await self._answer_plain(name, portal, asked, held, alone))  # it means something else tomorrow
        except Placed:
            raise
        except ShadowError as error:
            raise as_written(error, meant) from None
        except Refusal as refusal:
            refusal.position = None if refusal.position is None else meant.before(refusal.position)
            raise

    async def _answer_plain(self, name: str, portal: Portal, asked: Portal, held: str | None, alone: bool) -> Filled:
        conversation, text = self.conversation, asked.question.text
        lifted = lift(text) if asked.question.wrapper is None and not asked.values else None
        names = sorted(named(text if lifted is None else lifted.text), key=str)
        read = partial(conversation.read, asked, names, self._mentioned(), alone=alone, lifted=lifted)
        reading, answered = await read(held=held, meanwhile=partial(self._at_once, text))
        if not self._concerned(reading):
            await self._report(text)
            conversation.native(name, portal)
            return None
        shown, there = len(portal.result_formats), len(reading.columns)
        if shown > 1 and shown != there and reading.wrapper is None:  # before anything is paid
            raise ProtocolViolation(f"bind message has {shown} result formats but query has {there} columns")
        explained = unwrap(text)
        try:
            if answered is None and reading.assumed:
                reading, _ = await read(held=None)  # the long way is for texts that PostgreSQL has read itself
            if answered is None:
                answered = await self._long_way(text, reading, explained)
        except (NotAnswered, SyntaxNotRead, UnknownColumn, WouldShowRows):
            empty = emptied(text, partial(self._protected, reading))
            if empty is None or explained is not None:
                raise
            conversation.native(name, replace(asked, question=replace(asked.question, text=empty)))
            return None
        await self._report(text)  # what has just been paid is in it
        encoding = self._link.parameters.get("client_encoding", "UTF8")
        told = () if reading.quiet else answered.notices
        bills = b"".join(recoded(notice(message, bill), encoding) for message, bill in told)
        conversation.finish(name, answered.arrays, asked, bills)
        return answered, reading

    async def _at_once(self, text: str, reading: Reading) -> Answered | None:
        """The answer, if it is known already; what is wrong with the question is told on the long way.

        What PostgreSQL refuses is passed on: up to the next Sync it would not answer anything else.
        """
        try:
            return await at_once(self._runtime, self._asker, text, reading, self.conversation)
        except Refusal:
            return None

    async def _long_way(self, text: str, reading: Reading, explained: Explained | None) -> Answered:
        """Answer or explain a question, in a task that can be cancelled."""
        if explained is None:
            work = answer(self._runtime, self._asker, text, reading, self.conversation)
        else:
            work = explain(self._runtime, self._asker, explained, reading, self.conversation)
        self._answering = asyncio.get_running_loop().create_task(work)
        try:
            return await self._answering
        finally:
            self._answering = None

    async def _report(self, text: str) -> None:
        """Fill the reports that a statement names; nothing of it is on its way to the shadow yet."""
        for report in () if self._administers else reports.named(text.encode()):
            rows = await self._runtime.reports.rows(report, self._asker.name)
            self.conversation.configure(reports.SETTING.format(report), rows)

    async def _change_password(self, text: str) -> None:
        """Store what the analyst wants to log in with from now on."""
        escapes = self._link.parameters.get("standard_conforming_strings") == "off"
        password = passwords.checked(new_password(text, self._own, escapes))
        await self.conversation.attempt(passwords.STAND_IN)
        await self._runtime.registry.set_password(self._asker.name, password)
        if self._link.status != m.IDLE:
            self._tell(notice(passwords.NOTICE))

    @property
    def _administers(self) -> bool:
        return len(self._own) > 1

    def _concerned(self, reading: Reading) -> bool:
        """Whether a protected relation is really meant: a temporary table may bear the same name."""
        protects = self._runtime.router.protects
        return any(pair is not None and protects(*pair) for pair in (*reading.resolved.values(), *reading.seen))

    def _protected(self, reading: Reading, name: Name) -> Name | None:
        """The protected relation that a name means, if it means one."""
        pair = reading.resolved.get(name)
        return pair if pair is not None and self._runtime.router.protects(*pair) else None

    async def _refuse(self, error: BaseException, offset: int = 0) -> None:
        """Tell the client, and leave the shadow's transaction as failed as the client believes it to be."""
        if isinstance(error, ShadowError):
            self._client.to_client(moved(error.frame, offset))
            return
        try:
            if isinstance(error, LinkLost):
                raise error
            refusal = as_refusal(error)
            await self.conversation.fail()
            self._tell(moved(error_fields(refusal), offset))
        except LinkLost:
            self._client.close()

    def _tell(self, frame: bytes) -> None:
        self._client.to_client(recoded(frame, self._link.parameters.get("client_encoding", "UTF8")))

    def cancel(self) -> bool:
        """Stop the question that is being answered, if there is one; else it is the shadow that is busy."""
        if self._answering is None:
            return False
        self._answering.cancel()
        return True


def _once(filled: Filled) -> Filled:
    """The same, of a text that may come to mean something else."""
    return None if filled is None else (replace(filled[0], again=None), filled[1])


def as_portal(formats: tuple[int, ...]) -> Callable[[int, bytes], bytes | None]:
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


def _relay(kind: int, frame: bytes) -> bytes:
    return frame


def _unless_no_data(kind: int, frame: bytes) -> bytes | None:
    """A simple query gets no NoData."""
    return None if kind == m.NO_DATA else frame
