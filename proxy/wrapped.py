"""Errors that PostgreSQL finds in a text of ours that stands for the analyst's, told as errors in the analyst's own."""

from __future__ import annotations

from proxy import messages as m
from proxy.link import ShadowError
from sqlrewrite.errors import NotAnswered
from sqlrewrite.wrapper import Wrapper


class Placed(ShadowError):  # noqa: N818 - it says where, not what
    """PostgreSQL refused what stands around a question; its position is one of the whole statement already."""


def position(error: bytes) -> int | None:
    """Where an ErrorResponse points to, if it does."""
    text = m.decode_fields(error).get("P", "")
    return int(text) if text.isdigit() else None


def moved(error: bytes, offset: int) -> bytes:
    """An ErrorResponse about one statement of a script, with its position counted from the start of the script."""
    at = error.find(b"\0P", 5)
    stop = error.find(b"\0", at + 2)
    if not offset or at < 0 or not error[at + 2 : stop].isdigit():
        return error
    position = str(int(error[at + 2 : stop]) + offset).encode()
    return m.encode(error[0], error[5 : at + 2] + position + error[stop:])


def rehearsed(error: bytes, wrapper: Wrapper, sql: str) -> Placed:
    """An error about the wrapper around ``sql``, as if it had been found around the question."""
    place = position(error) or 0
    if place <= len(wrapper.before):
        return Placed(error)
    if place > len(wrapper.before) + len(sql):
        return Placed(moved(error, len(wrapper.question) - len(sql)))
    return Placed(moved(error, len(wrapper.before) + 1 - place))


def renamed(error: bytes, ours: bytes, theirs: bytes) -> bytes:
    """An ErrorResponse about a statement of ours that stands for one of the client's."""
    return m.encode(error[0], error[5:].replace(ours, theirs))


def not_finished(error: ShadowError) -> NotAnswered:
    """PostgreSQL cannot make sense of the text around the question once the question is answered."""
    said = m.decode_fields(error.frame).get("M", "")
    return NotAnswered(
        "the statement around the question cannot be finished over released numbers",
        detail=f"PostgreSQL says: {said}",
        hint="Outside the aggregates use group keys only, spelled as in GROUP BY, and give output columns aliases.",
    )
