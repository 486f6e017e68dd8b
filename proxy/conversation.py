"""What pgveil asks of the analyst's own shadow session about a question, and how it has the answer finished there.

All of it travels on the analyst's connection between the analyst's own messages, without a Sync, so that transactions,
temporary tables, search_path and settings are the analyst's own. Names of ours start with ``__veil``; a statement of
ours is closed before it is parsed, since an error may have left its predecessor behind.

A text that was read before is not read again while its ``circumstances`` are the same: nobody but pgveil can change a
permanent object of the shadow, so what a text means there follows from the generation and the session's settings. A
session that has ever made a temporary object has no such circumstances, and every text of it is read anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, TypeVar

from proxy import asides
from proxy import messages as m
from proxy.encodings import codec
from proxy.errors import ProtocolViolation, error_fields
from proxy.expected import Sink
from proxy.link import FLUSH, Answer, Link, ShadowError, drop, heard
from proxy.plain import each_format, plain_text
from proxy.reading import Circumstances, Name, Portal, Prepared, Reading, Rows, Shape
from proxy.recent import Recent
from proxy.veil_settings import SETTINGS
from proxy.wrapped import moved, not_finished, rehearsed, renamed
from sqlrewrite.domain import DomainQuery
from sqlrewrite.errors import NotAnswered
from sqlrewrite.finish import array_text
from sqlrewrite.lift import Lifted
from sqlrewrite.question import Literal
from sqlrewrite.wrapper import Carrier, Execution, Wrapper, inlined, prepared

T = TypeVar("T")

_OURS: Final = "__veil"
ASKED: Final = "__veil_question"
_REMEMBERED: Final = 1 << 16  # characters of statements, and of parameters, that a session remembers


def quoted(name: Name) -> str:
    """A name as to_regclass reads it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name if part is not None)


class Conversation:
    """The asides of one session with its shadow."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._types: dict[tuple[int, int], str] = {}
        self._shapes: Recent[Hashable, Shape] = Recent(_REMEMBERED)
        self._literals: Recent[Hashable, tuple[Literal, ...]] = Recent(_REMEMBERED)
        self._finishing: Recent[Hashable, bool] = Recent(_REMEMBERED)
        self._prepared = ""  # the finishing statement
        self.said = ""  # the settings, as they were told last

    @property
    def codec(self) -> str:
        """How texts are encoded on this connection."""
        return codec(self._link.parameters.get("client_encoding", "UTF8"))

    async def read(
        self,
        portal: Portal,
        names: Sequence[Name],
        mentioned: Sequence[str],
        *,
        held: str | None,
        alone: bool,
        lifted: Lifted | None = None,
        meanwhile: Callable[[Reading], Awaitable[T | None]] | None = None,
    ) -> tuple[Reading, T | None]:
        """Have PostgreSQL tell the settings that apply to a question and, unless it has read this text before, parse
        and describe it and resolve its names.

        With something to do ``meanwhile``, a text counts as read if one was that is the same when its constants are
        ``lifted``, and it is begun as if the settings were what they were last; if they are not, it was in vain.
        """
        if held is not None:  # a portal that died with its transaction is an error, as in PostgreSQL
            self._link.send(m.DESCRIBE, m.encode_describe(m.PORTAL, held), drop)
        wanted = (*asides.WANTED, *mentioned)
        told = self._run(asides.SETTLED, [array_text(wanted) if mentioned else asides.WANTED_TEXT])
        shape = self._shapes.get(portal.question)
        # No client's text, though it may look like one; a type that is declared is a parameter that must be bound.
        form = None if lifted is None else (lifted.text, lifted.types, portal.question.oids)
        assumed = meanwhile is not None and shape is None and form is not None
        shape = self._shapes.get(form) if assumed else shape
        asked = self._ask(portal.question, names) if shape is None else None
        done, said, early = self.settling(), self.said, None
        if meanwhile is not None and shape is not None and not mentioned and said:
            settings = asides.settings_of(said, wanted)
            fits = len(portal.values) == len(shape.oids)  # else PostgreSQL may have something to say before us
            values = self.values(shape.oids, portal, asides.circumstances_of(settings)) if fits else None
            if values is not None:
                early = await meanwhile(self._reading(portal, shape, settings, mentioned, values, lifted, assumed))
        await done
        self.said = self._rows(told)[0][0] or ""
        early = early if self.said == said else None
        settings = asides.settings_of(self.said, wanted)
        circumstances = asides.circumstances_of(settings)
        if shape is not None and shape.circumstances != circumstances:
            shape, asked, early = None, self._ask(portal.question, names), None
            await self.settle()
        assumed = assumed and shape is not None
        if shape is None:
            assert asked is not None
            shape = self._shape(*asked, names, not alone or self._link.status != m.IDLE, circumstances)
            if circumstances is not None and not shape.in_block:  # a transaction remembers the names of others too
                self._shapes.put(portal.question, shape, len(portal.question.text))
                if lifted is not None:
                    self._shapes.put(form, shape, len(lifted.text))
        values = self.values(shape.oids, portal, circumstances)
        if values is None:
            values = await self._ask_values(shape.oids, portal, circumstances)
        return self._reading(portal, shape, settings, mentioned, values, lifted, assumed), early

    def _reading(
        self,
        portal: Portal,
        shape: Shape,
        settings: Mapping[str, str | None],
        mentioned: Sequence[str],
        values: tuple[Literal, ...],
        lifted: Lifted | None,
        assumed: bool,
    ) -> Reading:
        return Reading(
            settings={name: value for name in (*SETTINGS, *mentioned) if (value := settings[name])},
            carried={name: settings[name] or "" for name in asides.CARRIED},
            resolved=shape.resolved,
            seen=shape.seen,
            columns=shape.columns,
            parameters=values,
            parameter_oids=shape.oids,
            in_block=shape.in_block,
            circumstances=asides.circumstances_of(settings),
            wrapper=portal.question.wrapper,
            lifted=lifted,
            quiet=settings[asides.LEAST_MESSAGE] in ("warning", "error"),
            assumed=assumed,
        )

    def _ask(self, question: Prepared, names: Sequence[Name]) -> tuple[Answer, Answer]:
        """Ask how PostgreSQL reads a text.

        It is parsed under a name of ours: what the client parsed may have been replaced since it was bound.
        """
        described = Answer()
        self._parse(ASKED, question.text, question.oids)
        self._link.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, ASKED), described.take)
        return described, self._run(asides.READ, [array_text([quoted(name) for name in names])])

    def _shape(
        self,
        described: Answer,
        told: Answer,
        names: Sequence[Name],
        in_block: bool,
        circumstances: Circumstances | None,
    ) -> Shape:
        found = json.loads(self._rows(told)[0][0] or "{}")
        columns, oids = _described(described)
        return Shape(
            columns=columns,
            oids=oids,
            resolved={
                name: (pair[0], pair[1]) if pair[1] is not None else None
                for name, pair in zip(names, found["resolved"] or (), strict=True)
            },
            seen=frozenset((schema, name) for schema, name in found["seen"] or ()),
            in_block=in_block,
            circumstances=circumstances,
        )

    def values(
        self, oids: Sequence[int], portal: Portal, circumstances: Circumstances | None
    ) -> tuple[Literal, ...] | None:
        """Bound parameters by text and type; None if PostgreSQL has not read them yet."""
        values, formats = portal.values, portal.formats
        if len(values) != len(oids):
            raise ProtocolViolation(
                f"bind message supplies {len(values)} parameters, but the prepared statement requires {len(oids)}"
            )
        types = [self._types.get((oid, -1)) for oid in oids]
        plain = [plain_text(*each) for each in zip(oids, values, each_format(formats, len(values)), strict=True)]
        if self.codec == "utf-8" and None not in plain and None not in types:
            return tuple(Literal(text, name or "") for text, name in zip(plain, types, strict=True))
        return None if circumstances is None else self._literals.get((circumstances, oids, values, formats))

    async def _ask_values(
        self, oids: Sequence[int], portal: Portal, circumstances: Circumstances | None
    ) -> tuple[Literal, ...]:
        """Have PostgreSQL itself read parameters, text or binary."""
        types = await self._type_names([(oid, -1) for oid in oids])
        sql = "SELECT " + ", ".join(f"${i + 1}::{name}::pg_catalog.text" for i, name in enumerate(types))
        rows = await self._query(sql, portal.values, portal.formats, oids)
        literals = tuple(Literal(text, name) for text, name in zip(rows[0], types, strict=True))
        size = 1 + sum(len(value or b"") for value in portal.values)
        self._literals.put((circumstances, oids, portal.values, portal.formats), literals, size)
        return literals

    async def _type_names(self, wanted: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        missing = sorted(set(wanted) - self._types.keys())
        if missing:
            sql = (
                "SELECT pg_catalog.format_type(o::pg_catalog.oid, t)"
                " FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[]), pg_catalog.unnest($2::pg_catalog.int4[]))"
                " WITH ORDINALITY AS u(o, t, i) ORDER BY i"
            )
            oids = array_text([str(oid) for oid, _ in missing])
            mods = array_text([str(mod) for _, mod in missing])
            for key, row in zip(missing, await self._query(sql, [oids, mods]), strict=True):
                self._types[key] = row[0] or "text"
        return tuple(self._types[key] for key in wanted)

    def _parse(self, name: str, sql: str, oids: Sequence[int] = ()) -> None:
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, name), drop)
        self._link.send(m.PARSE, m.encode_parse(name, sql, oids, self.codec), drop)

    def _run(
        self, sql: str, values: Sequence[str | bytes | None], formats: Sequence[int] = (), oids: Sequence[int] = ()
    ) -> Answer:
        """Run a statement of ours; its rows are there when the shadow has settled."""
        link, rows = self._link, Answer()
        bound = [v.encode(self.codec) if isinstance(v, str) else v for v in values]
        self._parse(_OURS, sql, oids)
        link.send(m.BIND, m.encode_bind(_OURS, _OURS, formats, bound), drop)
        link.send(m.EXECUTE, m.encode_execute(_OURS), rows.take)
        link.send(m.CLOSE, m.encode_close(m.PORTAL, _OURS), drop)
        return rows

    def _rows(self, answer: Answer) -> Rows:
        encoding = self.codec
        return [[None if cell is None else cell.decode(encoding) for cell in row] for row in answer.rows()]

    async def _query(
        self, sql: str, values: Sequence[str | bytes | None], formats: Sequence[int] = (), oids: Sequence[int] = ()
    ) -> Rows:
        """Run a statement of ours and read its rows as text."""
        answer = self._run(sql, values, formats, oids)
        await self.settle()
        return self._rows(answer)

    async def prepared(self, execution: Execution, portal: Portal) -> Portal | None:
        """What an EXECUTE stands for, with its values as PostgreSQL reads them; None if nothing has that name."""
        found = await self._query(asides.PREPARED, [execution.name])
        if not found:
            return None
        statement, oids = found[0][0] or "", tuple(map(int, (found[0][1] or "").split()))
        values: list[bytes | None] = []
        if oids or execution.arguments:
            self._parse(ASKED, "SELECT " + ", ".join(f"${i + 1}::pg_catalog.text" for i in range(len(oids))), oids)
            start = f'EXECUTE "{ASKED}"'
            answer = self._run(start + execution.arguments, [])
            try:
                await self.settle()
            except ShadowError as error:
                frame = moved(error.frame, execution.start - len(start))
                raise ShadowError(renamed(frame, ASKED.encode(), execution.name.encode(self.codec))) from None
            values = answer.rows()[0]
        return Portal(Prepared(prepared(statement) or statement, oids), tuple(values), (), portal.result_formats)

    async def row(self, sql: str) -> list[str | None]:
        """The only row of a query that reads no table."""
        return (await self._query(sql, []))[0]

    async def enumerate(self, wanted: DomainQuery) -> list[tuple[str | None, ...]]:
        """The public values of derived keys, worked out where only public things are."""
        return [tuple(row) for row in await self._query(wanted.sql, wanted.parameters)]

    async def prepare(self, sql: str, reading: Reading, arrays: int) -> None:
        """Parse the finishing statement before anything is paid; it must have the shape of what was asked."""
        self._prepared = sql
        await self._parse_finishing(sql, reading, arrays)
        if reading.wrapper is not None:
            await self._rehearse(reading.wrapper, sql, reading, arrays)

    async def _rehearse(self, wrapper: Wrapper, sql: str, reading: Reading, arrays: int) -> None:
        """Run a wrapper over nothing before anything is paid: its options may be wrong, or its cursor may be open."""
        nothing = ["{}"] * arrays
        if wrapper.carrier is Carrier.COPY:
            sql = f"SELECT * FROM ({inlined(sql, nothing)}\n) AS __veil LIMIT 0"
            self._run(wrapper.around(sql), [])
        else:
            oids = (*reading.parameter_oids, *(0 for _ in nothing))
            self._run(wrapper.around(sql), [*(each.text for each in reading.parameters), *nothing], (), oids)
            self._run(f"CLOSE {wrapper.cursor}", [])
            self._parse(ASKED, wrapper.around(sql), oids)
        try:
            await self.settle()
        except ShadowError as error:
            raise rehearsed(error.frame, wrapper, sql) from None

    async def _parse_finishing(self, sql: str, reading: Reading, arrays: int) -> None:
        asked = tuple((column.name, column.type_oid) for column in reading.columns)
        key = (sql, asked, reading.parameter_oids, arrays, reading.circumstances)
        self._parse(ASKED, sql, (*reading.parameter_oids, *(0 for _ in range(arrays))))
        if reading.circumstances is not None and self._finishing.get(key):
            return
        described = Answer()
        try:
            await self._link.ask(m.DESCRIBE, m.encode_describe(m.STATEMENT, ASKED) + FLUSH, described.take)
        except ShadowError as error:
            raise ShadowError(error_fields(not_finished(error))) from None
        columns, _ = _described(described)
        if tuple((column.name, column.type_oid) for column in columns) != asked:
            raise NotAnswered(
                "the columns of this statement could not be kept as PostgreSQL names and types them",
                hint="Give every output column an alias (AS name), or cast it.",
            )
        self._finishing.put(key, True, len(sql))

    async def attempt(self, sql: str, values: Sequence[str | None] = (), oids: Sequence[int] = ()) -> Rows:
        """Run a statement that changes nothing; PostgreSQL refuses it where it would refuse one that does."""
        return await self._query(sql, values, (), oids)

    def configure(self, setting: str, value: str) -> None:
        """Set a setting of the session until its transaction ends."""
        self._run("SELECT pg_catalog.set_config($1, $2, true)", [setting, value])

    def finish(self, name: str, arrays: Sequence[str], portal: Portal, told: bytes) -> None:
        """Put the finished answer behind the analyst's portal, and what is told of it before its rows; what follows is
        PostgreSQL's own business.
        """
        wrapper = portal.question.wrapper
        if wrapper is not None and wrapper.carrier is Carrier.COPY:
            self._parse(ASKED, wrapper.around(inlined(self._prepared, arrays)))
            self._bind(name, (), (), portal.result_formats, told)
            return
        values, formats = portal.values, portal.formats
        bound = [*values, *(text.encode(self.codec) for text in arrays)]
        self._bind(name, (*each_format(formats, len(values)), *(0 for _ in arrays)), bound, portal.result_formats, told)

    def native(self, name: str, portal: Portal) -> None:
        """What turned out to be no question: let PostgreSQL bind it as it was asked to."""
        question = portal.question
        text = question.text if question.wrapper is None else question.wrapper.around(question.text)
        self._parse(ASKED, text, question.oids)
        self._bind(name, portal.formats, portal.values, portal.result_formats)

    def _bind(
        self,
        portal: str,
        formats: Sequence[int],
        values: Sequence[bytes | None],
        result_formats: Sequence[int],
        told: bytes = b"",
    ) -> None:
        # A notice goes where the answer to this Close would: one write with the rows, not one more.
        self._link.send(m.CLOSE, m.encode_close(m.PORTAL, portal), lambda kind, frame: told)
        self._link.send(m.BIND, m.encode_bind(portal, ASKED, formats, values, result_formats), drop)
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, ASKED), drop)

    def hold(self, portal: str, statement: str) -> None:
        """Bind an empty statement in place of a question, so that BindComplete comes in its turn and nothing runs."""
        self._link.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, statement), drop)  # an error if it is not there
        self._parse(_OURS, "SELECT")
        self._link.send(m.BIND, m.encode_bind(portal, _OURS))
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, _OURS), drop)

    def describe(self, name: str, portal: Portal, sink: Sink) -> None:
        """Describe a question that is bound and not yet executed; an error if its transaction has ended meanwhile."""
        self._link.send(m.DESCRIBE, m.encode_describe(m.PORTAL, name), drop)
        self._parse(ASKED, portal.question.text, portal.question.oids)
        self._link.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, ASKED), sink)
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, ASKED), drop)

    def settling(self) -> asyncio.Future[None]:
        """Ends when PostgreSQL has answered all that was sent before."""
        done = self._link.ask(m.CLOSE, m.encode_close(m.STATEMENT, _OURS) + FLUSH, drop)
        done.add_done_callback(heard)
        return done

    async def settle(self) -> None:
        """Wait for that."""
        await self.settling()

    async def fail(self) -> None:
        """Make the shadow's transaction fail as the analyst's statement did, so that both agree on the status."""
        done = self._link.ask(m.EXECUTE, m.encode_execute("__veil refused this") + FLUSH, drop)
        try:
            await done
        except ShadowError:
            pass


def _described(described: Answer) -> tuple[tuple[m.Field, ...], tuple[int, ...]]:
    parameters = described.first(m.PARAMETER_DESCRIPTION)
    row = described.first(m.ROW_DESCRIPTION)
    return (
        () if row is None else m.decode_row_description(row),
        () if parameters is None else m.decode_parameter_description(parameters),
    )
