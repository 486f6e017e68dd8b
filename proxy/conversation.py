"""What pgveil asks of the analyst's own shadow session about a question, and how it has the answer finished there.

All of it travels on the analyst's connection between the analyst's own messages, without a Sync, so that transactions,
temporary tables, search_path and settings are the analyst's own. Names of ours start with ``__veil``; a statement of
ours is closed before it is parsed, since an error may have left its predecessor behind.

A text that was read before is not read again while its ``circumstances`` are the same: nobody but pgveil can change a
permanent object of the shadow, so what a text means there follows from the generation and the session's settings. A
session that has ever made a temporary object has no such circumstances, and every text of it is read anew.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from proxy import messages as m
from proxy.asides import PREPARED, READ, SETTLED
from proxy.encodings import codec
from proxy.errors import ProtocolViolation, error_fields
from proxy.expected import Sink
from proxy.link import FLUSH, Answer, Link, ShadowError, drop
from proxy.recent import Recent
from proxy.veil_settings import SETTINGS
from proxy.wrapped import moved, not_finished, rehearsed, renamed
from sqlrewrite.domain import DomainQuery
from sqlrewrite.errors import NotAnswered
from sqlrewrite.finish import array_text
from sqlrewrite.question import Literal
from sqlrewrite.wrapper import Carrier, Execution, Wrapper, inlined, prepared

Name: TypeAlias = tuple[str | None, str]
Circumstances: TypeAlias = tuple[str | None, ...]

_OURS: Final = "__veil"
_ASKED: Final = "__veil_question"
_CARRIED: Final = ("TimeZone", "DateStyle")

# Whatever can change how PostgreSQL reads a text or a parameter, or how it writes the values of a derived key.
_MEANING: Final = (
    *_CARRIED,
    *("search_path", "role", "client_encoding", "standard_conforming_strings", "backslash_quote", "IntervalStyle"),
    *("timezone_abbreviations", "transform_null_equals", "array_nulls", "xmloption", "default_text_search_config"),
    *("lc_monetary", "lc_numeric", "lc_time", "extra_float_digits", "bytea_output", "restrict_nonsystem_relation_kind"),
)
_WANTED: Final = (*SETTINGS, *_MEANING)
_WANTED_TEXT: Final = array_text(_WANTED)
_REMEMBERED: Final = 1 << 16  # characters of statements, and of parameters, that a session remembers


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that may be a question, with the parameter types that the client gave."""

    text: str
    oids: tuple[int, ...] = ()
    wrapper: Wrapper | None = None  # what carried it: COPY or DECLARE
    secret: str | None = field(default=None, repr=False)  # what the text stands for, if PostgreSQL must not see it


@dataclass(frozen=True, slots=True)
class Portal:
    """A question with its parameters, bound and not yet executed."""

    question: Prepared
    values: tuple[bytes | None, ...] = ()
    formats: tuple[int, ...] = ()
    result_formats: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """PostgreSQL's reading of a question, on the shadow."""

    settings: Mapping[str, str]  # veil.*, as they stand in the session, unset ones left out
    carried: Mapping[str, str]  # settings that change what a constant means
    resolved: Mapping[Name, tuple[str, str] | None]
    seen: frozenset[tuple[str, str]]
    columns: tuple[m.Field, ...]
    parameters: tuple[Literal, ...]
    parameter_oids: tuple[int, ...]
    in_block: bool  # the transaction has seen other statements too
    circumstances: Circumstances | None  # None: there may be temporary objects, which change what a text means
    wrapper: Wrapper | None = None

    @property
    def meaning(self) -> Hashable:
        """All that a plan may depend on beside the text, the wishes and the registry."""
        names = tuple(self.resolved.items())
        return names, self.seen, self.parameters, self.parameter_oids, self.in_block, self.circumstances


@dataclass(frozen=True, slots=True)
class _Shape:
    """How PostgreSQL read a text, and under which circumstances."""

    columns: tuple[m.Field, ...]
    oids: tuple[int, ...]
    resolved: Mapping[Name, tuple[str, str] | None]
    seen: frozenset[tuple[str, str]]
    in_block: bool
    circumstances: Circumstances | None


def quoted(name: Name) -> str:
    """A name as to_regclass reads it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name if part is not None)


class Conversation:
    """The asides of one session with its shadow."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._types: dict[tuple[int, int], str] = {}
        self._shapes: Recent[Prepared, _Shape] = Recent(_REMEMBERED)
        self._literals: Recent[Hashable, tuple[Literal, ...]] = Recent(_REMEMBERED)
        self._finishing: Recent[Hashable, bool] = Recent(_REMEMBERED)
        self._prepared = ""  # the finishing statement

    @property
    def codec(self) -> str:
        """How texts are encoded on this connection."""
        return codec(self._link.parameters.get("client_encoding", "UTF8"))

    async def read(
        self, portal: Portal, names: Sequence[Name], mentioned: Sequence[str], *, held: str | None, alone: bool
    ) -> Reading:
        """Have PostgreSQL tell the settings that apply to a question and, unless it has read this text before, parse
        and describe it and resolve its names.
        """
        if held is not None:  # a portal that died with its transaction is an error, as in PostgreSQL
            self._link.send(m.DESCRIBE, m.encode_describe(m.PORTAL, held), drop)
        wanted = (*_WANTED, *mentioned)
        told = self._run(SETTLED, [array_text(wanted) if mentioned else _WANTED_TEXT])
        shape = self._shapes.get(portal.question)
        asked = self._ask(portal.question, names) if shape is None else None
        await self.settle()
        database, permanent, values = json.loads(self._rows(told)[0][0] or "")
        settings: dict[str, str | None] = dict(zip(wanted, values, strict=True))
        circumstances = (database, *(settings[name] for name in _MEANING)) if permanent else None
        if shape is not None and shape.circumstances != circumstances:
            shape, asked = None, self._ask(portal.question, names)
            await self.settle()
        if shape is None:
            assert asked is not None
            shape = self._shape(*asked, names, not alone or self._link.status != m.IDLE, circumstances)
            if circumstances is not None and not shape.in_block:  # a transaction remembers the names of others too
                self._shapes.put(portal.question, shape, len(portal.question.text))
        return Reading(
            settings={name: value for name in (*SETTINGS, *mentioned) if (value := settings[name])},
            carried={name: settings[name] or "" for name in _CARRIED},
            resolved=shape.resolved,
            seen=shape.seen,
            columns=shape.columns,
            parameters=await self._values(shape.oids, portal, circumstances),
            parameter_oids=shape.oids,
            in_block=shape.in_block,
            circumstances=circumstances,
            wrapper=portal.question.wrapper,
        )

    def _ask(self, question: Prepared, names: Sequence[Name]) -> tuple[Answer, Answer]:
        """Ask how PostgreSQL reads a text.

        It is parsed under a name of ours: what the client parsed may have been replaced since it was bound.
        """
        described = Answer()
        self._parse(_ASKED, question.text, question.oids)
        self._link.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, _ASKED), described.take)
        return described, self._run(READ, [array_text([quoted(name) for name in names])])

    def _shape(
        self,
        described: Answer,
        told: Answer,
        names: Sequence[Name],
        in_block: bool,
        circumstances: Circumstances | None,
    ) -> _Shape:
        found = json.loads(self._rows(told)[0][0] or "{}")
        columns, oids = _described(described)
        return _Shape(
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

    async def _values(
        self, oids: Sequence[int], portal: Portal, circumstances: Circumstances | None
    ) -> tuple[Literal, ...]:
        """Bound parameters by text and type: PostgreSQL itself reads them, text or binary."""
        values, formats = portal.values, portal.formats
        if len(values) != len(oids):
            raise ProtocolViolation(
                f"bind message supplies {len(values)} parameters, but the prepared statement requires {len(oids)}"
            )
        if not oids:
            return ()
        key = (circumstances, oids, values, formats)
        known = self._literals.get(key) if circumstances is not None else None
        if known is not None:
            return known
        types = await self._type_names([(oid, -1) for oid in oids])
        sql = "SELECT " + ", ".join(f"${i + 1}::{name}::pg_catalog.text" for i, name in enumerate(types))
        rows = await self._query(sql, values, formats, oids)
        literals = tuple(Literal(text, name) for text, name in zip(rows[0], types, strict=True))
        self._literals.put(key, literals, 1 + sum(len(value or b"") for value in values))
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

    def _rows(self, answer: Answer) -> list[list[str | None]]:
        encoding = self.codec
        return [[None if cell is None else cell.decode(encoding) for cell in row] for row in answer.rows()]

    async def _query(
        self, sql: str, values: Sequence[str | bytes | None], formats: Sequence[int] = (), oids: Sequence[int] = ()
    ) -> list[list[str | None]]:
        """Run a statement of ours and read its rows as text."""
        answer = self._run(sql, values, formats, oids)
        await self.settle()
        return self._rows(answer)

    async def prepared(self, execution: Execution, portal: Portal) -> Portal | None:
        """What an EXECUTE stands for, with its values as PostgreSQL reads them; None if nothing has that name."""
        found = await self._query(PREPARED, [execution.name])
        if not found:
            return None
        statement, oids = found[0][0] or "", tuple(map(int, (found[0][1] or "").split()))
        values: list[bytes | None] = []
        if oids or execution.arguments:
            self._parse(_ASKED, "SELECT " + ", ".join(f"${i + 1}::pg_catalog.text" for i in range(len(oids))), oids)
            start = f'EXECUTE "{_ASKED}"'
            answer = self._run(start + execution.arguments, [])
            try:
                await self.settle()
            except ShadowError as error:
                frame = moved(error.frame, execution.start - len(start))
                raise ShadowError(renamed(frame, _ASKED.encode(), execution.name.encode(self.codec))) from None
            values = answer.rows()[0]
        return Portal(Prepared(prepared(statement) or statement, oids), tuple(values), (), portal.result_formats)

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
            self._parse(_ASKED, wrapper.around(sql), oids)
        try:
            await self.settle()
        except ShadowError as error:
            raise rehearsed(error.frame, wrapper, sql) from None

    async def _parse_finishing(self, sql: str, reading: Reading, arrays: int) -> None:
        asked = tuple((column.name, column.type_oid) for column in reading.columns)
        key = (sql, asked, reading.parameter_oids, arrays, reading.circumstances)
        self._parse(_ASKED, sql, (*reading.parameter_oids, *(0 for _ in range(arrays))))
        if reading.circumstances is not None and self._finishing.get(key):
            return
        described = Answer()
        try:
            await self._link.ask(m.DESCRIBE, m.encode_describe(m.STATEMENT, _ASKED) + FLUSH, described.take)
        except ShadowError as error:
            raise ShadowError(error_fields(not_finished(error))) from None
        columns, _ = _described(described)
        if tuple((column.name, column.type_oid) for column in columns) != asked:
            raise NotAnswered(
                "the columns of this statement could not be kept as PostgreSQL names and types them",
                hint="Give every output column an alias (AS name), or cast it.",
            )
        self._finishing.put(key, True, len(sql))

    async def attempt(self, sql: str) -> None:
        """Run a statement that changes nothing; PostgreSQL refuses it where it would refuse one that does."""
        await self._query(sql, [])

    def configure(self, setting: str, value: str) -> None:
        """Set a setting of the session until its transaction ends."""
        self._run("SELECT pg_catalog.set_config($1, $2, true)", [setting, value])

    def finish(self, name: str, arrays: Sequence[str], portal: Portal) -> None:
        """Put the finished answer behind the analyst's portal; what follows is PostgreSQL's own business."""
        wrapper = portal.question.wrapper
        if wrapper is not None and wrapper.carrier is Carrier.COPY:
            self._parse(_ASKED, wrapper.around(inlined(self._prepared, arrays)))
            self._bind(name, (), (), portal.result_formats)
            return
        values, formats = portal.values, portal.formats
        own = formats if len(formats) == len(values) else tuple(formats[:1] or (0,)) * len(values)
        bound = [*values, *(text.encode(self.codec) for text in arrays)]
        self._bind(name, (*own, *(0 for _ in arrays)), bound, portal.result_formats)

    def native(self, name: str, portal: Portal) -> None:
        """What turned out to be no question: let PostgreSQL bind it as it was asked to."""
        question = portal.question
        text = question.text if question.wrapper is None else question.wrapper.around(question.text)
        self._parse(_ASKED, text, question.oids)
        self._bind(name, portal.formats, portal.values, portal.result_formats)

    def _bind(
        self, portal: str, formats: Sequence[int], values: Sequence[bytes | None], result_formats: Sequence[int]
    ) -> None:
        self._link.send(m.CLOSE, m.encode_close(m.PORTAL, portal), drop)
        self._link.send(m.BIND, m.encode_bind(portal, _ASKED, formats, values, result_formats), drop)
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, _ASKED), drop)

    def hold(self, portal: str, statement: str) -> None:
        """Bind an empty statement in place of a question, so that BindComplete comes in its turn and nothing runs."""
        self._link.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, statement), drop)  # an error if it is not there
        self._parse(_OURS, "SELECT")
        self._link.send(m.BIND, m.encode_bind(portal, _OURS))
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, _OURS), drop)

    def describe(self, portal: Portal, sink: Sink) -> None:
        """Describe a question that is bound and not yet executed."""
        self._parse(_ASKED, portal.question.text, portal.question.oids)
        self._link.send(m.DESCRIBE, m.encode_describe(m.STATEMENT, _ASKED), sink)
        self._link.send(m.CLOSE, m.encode_close(m.STATEMENT, _ASKED), drop)

    async def settle(self) -> None:
        """Wait until PostgreSQL has answered all that was sent before."""
        await self._link.ask(m.CLOSE, m.encode_close(m.STATEMENT, _OURS) + FLUSH, drop)

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
