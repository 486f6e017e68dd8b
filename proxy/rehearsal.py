"""A statement that keeps its answer in a table, tried before anything is paid for it.

A table of that name may exist, or the one to insert into may not be the analyst's: PostgreSQL would say so only when
the answer is there, and paid. EXPLAIN looks at the same rights and names, and runs nothing.

*Guarantee*: what is tried reads no protected row and no released number: it is the finishing statement over nothing,
in the session of the analyst on the shadow.
"""

from __future__ import annotations

from typing import Final

from proxy import messages as m
from proxy.conversation import Conversation
from proxy.errors import error_fields
from proxy.link import ShadowError
from proxy.reading import Reading
from sqlrewrite.errors import NotKept, WouldWrite
from sqlrewrite.kind import KEEP_HERE, keeps, made

NOTHING: Final = "{}"
_THERE: Final = (
    "SELECT pg_catalog.current_setting('transaction_read_only'),"
    " pg_catalog.to_regclass('pg_temp.' OPERATOR(pg_catalog.||) pg_catalog.quote_ident($1))"
)


async def skipped(text: str, sql: str, reading: Reading, arrays: int, shadow: Conversation) -> bool:
    """Whether PostgreSQL will run no query, since IF NOT EXISTS finds a table; what it would refuse is raised here.

    ``sql`` is the finishing statement of ``text``, which takes ``arrays`` arrays.
    """
    if not keeps(text):
        return False
    table = made(text)
    if table is not None:
        ((read_only, there),) = await shadow.attempt(_THERE, [table.name])
        if read_only == "on":
            raise WouldWrite("no table is made in a read-only transaction", hint="SET transaction_read_only = off")
        if there is not None and table.unless_there:
            return True
    values = [*(each.text for each in reading.parameters), *(NOTHING for _ in range(arrays))]
    try:
        await shadow.attempt(f"EXPLAIN {sql}", values, (*reading.parameter_oids, *(0 for _ in range(arrays))))
    except ShadowError as error:
        raise _with_hint(error) from None
    return False


def _with_hint(error: ShadowError) -> ShadowError:
    """A table that is not the analyst's: PostgreSQL's own sentence, and what to do instead."""
    fields = m.decode_fields(error.frame)
    if fields.get("C") != NotKept.sqlstate:
        return error
    return ShadowError(error_fields(NotKept(fields.get("M", ""), hint=KEEP_HERE)))
