"""What is known of a question before it is answered: the text and its parameters, and PostgreSQL's reading of both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from proxy import messages as m
from sqlrewrite.lift import Lifted
from sqlrewrite.question import Literal
from sqlrewrite.wrapper import Wrapper

Name: TypeAlias = tuple[str | None, str]
Circumstances: TypeAlias = tuple[str | None, ...]
Rows: TypeAlias = list[list[str | None]]


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
    lifted: Lifted | None = None  # the text without its constants, if it has such
    quiet: bool = False  # the session wants no notices: bills are in veil.question
    assumed: bool = False  # PostgreSQL has read a text that differs in such constants only, and not this one

    @property
    def meaning(self) -> Hashable:
        """All that a plan may depend on beside the text, the wishes and the registry."""
        return self.form, self.parameters

    @property
    def form(self) -> Hashable:
        """The same without the values of parameters."""
        return tuple(self.resolved.items()), self.seen, self.parameter_oids, self.in_block, self.circumstances


@dataclass(frozen=True, slots=True)
class Shape:
    """How PostgreSQL read a text, and under which circumstances."""

    columns: tuple[m.Field, ...]
    oids: tuple[int, ...]
    resolved: Mapping[Name, tuple[str, str] | None]
    seen: frozenset[tuple[str, str]]
    in_block: bool
    circumstances: Circumstances | None
