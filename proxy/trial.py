"""The finishing statement, run over made-up numbers before anything is paid: what cannot run costs nothing.

PostgreSQL finds some mistakes only when it plans or runs a statement: a division by a constant zero, LIMIT -1, a right
that is missing, a public key that is no number, a row that a temporary table does not take. So the statement is planned
on the shadow (EXPLAIN) and then run there, in the analyst's session, by a function that undoes what it did: over the
public keys of its questions and numbers that are made up.

*Guarantee*: the verdict is a function of public things: the text, the parameters, the settings and temporary objects of
the session, and the public keys. No protected row and no released number is read.

What depends on the numbers is not refused because of made-up ones: all of the many sets of them (``proxy.made_up``)
must fail, each with the same SQLSTATE. That is no proof: an expression that only a narrow range of numbers does not
break may be refused, uncharged. A set that takes too long counts as one that runs. Where groups are not public, or too
many to be written out, the statement is run over no rows, and refused only for errors that do not depend on rows.

Planned only, and not run, is a statement that calls a volatile function or fires a trigger: some effects cannot be
undone (sequences, session locks, the state of random()). Nothing is tried where nothing is owed, where the released
columns are shown as they are, nor beside ``veil.budget`` and ``veil.question``, whose rows come with the statement.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from proxy import messages as m
from proxy import reports
from proxy.blueprint import literal
from proxy.conversation import ASKED, Conversation
from proxy.link import ShadowError
from proxy.made_up import MadeUp, made_up
from proxy.plan import StatementPlan
from proxy.reading import Reading
from proxy.rehearsal import NOTHING
from proxy.wishes import Wishes
from sqlrewrite.finish import array_text
from sqlrewrite.lex import Kind, tokens
from sqlrewrite.wrapper import Carrier

_FIRST, _OTHERS = "200ms", "1s"  # the time for the first set of numbers, and for all the others together
_TIMEOUT: Final = "statement_timeout"
# The fields of an ErrorResponse, as ``veil.trial`` names them.
_FIELDS: Final = {
    "state": "C",
    "message": "M",
    "detail": "D",
    "hint": "H",
    "schema": "s",
    "table": "t",
    "column": "c",
    "type": "d",
    "constraint": "n",
}
_ANY_ROWS: Final = ("2201W", "2201X")
"""Of LIMIT and OFFSET: wrong however many rows there are."""

# Volatile functions of PostgreSQL's own whose effects are undone with the transaction, or that have none. Not random():
# its state is the session's, and setseed() makes what it tells repeatable.
_HARMLESS: Final = (
    *("clock_timestamp", "timeofday", "gen_random_uuid", "currval", "lastval", "set_config", "pg_notify"),
    *("txid_current_if_assigned", "pg_relation_size", "pg_table_size", "pg_total_relation_size", "pg_database_size"),
)

_PLANNED: Final = """
SELECT pg_catalog.current_setting('statement_timeout'), t.failure, t.unsafe
  FROM veil.planned($1, $2::pg_catalog.text[], $3::pg_catalog.text[]) AS t
"""
_TRIED: Final = "SELECT veil.trial($1::pg_catalog.text[], $2::pg_catalog.bool, $3)"


@dataclass(slots=True)
class Trial:
    """One statement that is tried before the charge, at most once."""

    planned: StatementPlan
    reading: Reading
    wishes: Wishes
    shadow: Conversation
    done: bool = field(default=False)

    async def passed(self) -> None:
        """Return if the statement may run; else the shadow's transaction has failed, and its error is raised."""
        if self.done or any(part.as_is is not None for part in self.planned.parts):
            return
        if reports.named(self.planned.sql.encode()):  # their rows come with the statement itself, later
            return
        self.done = True
        over_nothing = self._with([NOTHING for part in self.planned.parts for _ in part.types])
        names = array_text(sorted(_called(self.planned.sql)))
        found = await self.shadow.attempt(_PLANNED, [over_nothing, names, array_text(_HARMLESS)])
        ((timeout, failure, unsafe),) = found
        if failure is not None:
            await self._refuse(failure)
        if unsafe != "f":
            return
        over = made_up(self.planned, self.wishes)
        failure = await self._tried([self._with(over.first)], _FIRST)
        if failure is not None:
            failure = await self._tried([self._with(numbers) for numbers in over.others()], _OTHERS)
        if failure is not None and _stands(failure, over):
            await self._refuse(failure)
        self.shadow.configure(_TIMEOUT, timeout or "0")

    async def _tried(self, statements: Sequence[str], time: str) -> str | None:
        """The error that all of these end with; None if one of them may run."""
        wrapper = self.reading.wrapper
        cursor = wrapper.cursor if wrapper is not None and wrapper.carrier is Carrier.DECLARE else None
        shows = "true" if self.reading.columns and cursor is None else "false"
        fetch = None if cursor is None else f"FETCH NEXT FROM {cursor}"  # nobody may want more of it than a row
        self.shadow.configure(_TIMEOUT, time)
        ((failure,),) = await self.shadow.attempt(_TRIED, [array_text(statements), shows, fetch])
        return failure

    def _with(self, arrays: Sequence[str]) -> str:
        """The finishing statement, which is prepared, with the analyst's parameters and these arrays."""
        values = [*(each.text for each in self.reading.parameters), *arrays]
        written = ", ".join("NULL" if value is None else literal(value) for value in values)
        return f'EXECUTE "{ASKED}"' + (f"({written})" if values else "")

    async def _refuse(self, failure: str) -> None:
        """PostgreSQL's own error, after which its transaction has failed."""
        said = json.loads(failure)
        fields = {"S": "ERROR", "V": "ERROR"} | {_FIELDS[name]: text for name, text in said.items() if text}
        codec = self.shadow.codec
        body = b"".join(kind.encode() + text.encode(codec, "replace") + b"\0" for kind, text in fields.items())
        await self.shadow.fail()
        raise ShadowError(m.encode(m.ERROR_RESPONSE, body + b"\0"))


def _called(sql: str) -> set[str]:
    """The names of functions that a statement may call."""
    these = tokens(sql)
    return {token.name for token, after in pairwise(these) if token.name and after.kind is Kind.OPEN}


def _stands(failure: str, over: MadeUp) -> bool:
    """Whether an error says that the statement cannot run: where groups are not public, only if it is not theirs."""
    state = json.loads(failure)["state"]
    return not over.partial or state in _ANY_ROWS or state.startswith("42")
