"""What the ledger says instead of a receipt."""

from __future__ import annotations

from mechanisms.errors import Refusal


class LimitReached(Refusal):
    """The question asks for more than a limit leaves; nothing was spent."""

    sqlstate = "53400"


class NotActive(Refusal):
    """The analyst was deactivated (or removed) since the session began."""

    sqlstate = "28000"


class AnalystPaused(NotActive):
    """Security incidents have paused the analyst: nothing new is paid for until an administrator resumes."""

    sqlstate = "55000"


def paused(name: str) -> AnalystPaused:
    """The refusal of a charge while an analyst's incidents are unresolved."""
    return AnalystPaused(
        f'questions of analyst "{name}" that read data are paused',
        detail="Too many of them failed in the protected database, which may depend on private rows.",
        hint="The administrator resumes them after a look at provenance.incident:"
        " SELECT provenance.resume_analyst(name). Answers that are known already are still shown.",
    )


class StaleCatalog(Refusal):
    """The question was priced under a registry or data version that is gone: plan it again; nothing was spent.

    The caller loads the catalog anew and retries; 40001 is what a client sees if that never settles.
    """

    sqlstate = "40001"


class StaleSynopsis(StaleCatalog):
    """What the question was planned on has changed meanwhile: plan it again; nothing was spent."""


class LedgerUnreachable(Refusal):
    """The provenance database does not answer; nothing is said of why, and no data is read.

    58000 is what a client sees whichever of pgveil's databases failed.
    """

    sqlstate = "58000"


class LedgerGap(Refusal):
    """The ledger lacks charges that this process has seen: it was restored from an older copy; nothing is spent.

    An administrator accepts what is missing as spent (``provenance.accept_gap``), and questions go on.
    """

    sqlstate = "58000"


class CommitUnknownError(Refusal):
    """The connection was lost at COMMIT: the charge counts as spent, and no data may be read for it."""

    sqlstate = "58000"


class NotSettledError(CommitUnknownError):
    """The ledger could not be told what a question reached: what was reserved for it stays spent.

    The answer is paid for, so it may still be given, at the price that was reserved.
    """


class SettlementError(Exception):
    """A reservation cannot be settled, or added to, in this way: a fault of the program, never of the analyst.

    Nothing is given back.
    """


class MigrationError(Exception):
    """The database's schema and this program's migrations do not fit together."""
