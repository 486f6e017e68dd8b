"""The root of every "no" that pgveil says.

    Refusal
    ├── BadSetting            22023   (here)
    ├── AccuracyUnreachable   54000   (here)
    │   └── CapReached        54000   (mechanisms.decision)
    ├── sqlrewrite.errors     42601 42P01 42703 0A000 42501 25006 22003 54001
    ├── provenance.errors     53400 28000 40001 55000 58000
    └── proxy.errors          08P01 0A000 22P02 28000 28P01 3D000 53300 57014 57P01 58000 XX000

The SQLSTATE is on the class, the sentence in the message, the numbers in the detail, and what to write
instead in the hint. One place (``proxy.errors``) turns a refusal into bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from mechanisms.loss import Loss


class Refusal(Exception):  # noqa: N818 (it is a "no", not a fault)
    """A question that is not answered, with the reason in public terms only."""

    sqlstate: ClassVar[str] = "XX000"

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position  # 1-based character of the statement, as PostgreSQL counts


class BadSetting(Refusal):
    """A ``veil.`` setting has a value that means nothing."""

    sqlstate = "22023"


class AccuracyUnreachable(Refusal):
    """No noise level within the limits meets the accuracy that was asked for.

    ``spent`` is what a mechanism had released before it found out, where it had begun.
    """

    sqlstate = "54000"
    spent: Loss | None = None
