"""The current day, as PostgreSQL knows it in the analyst's session, written into a question (``sqlrewrite.today``)."""

from __future__ import annotations

from proxy import asides
from proxy.conversation import Conversation
from proxy.link import ShadowError
from proxy.wrapped import moved, position
from sqlrewrite.today import Dated, constant, spoken, written


async def dated(text: str, shadow: Conversation) -> Dated | None:
    """The text with the current day written into its conditions; None if it does not speak of it."""
    places = spoken(text)
    if not places:
        return None
    worth = ", ".join(asides.WORTH.format(f"({text[place.start : place.stop]})") for place in places)
    try:
        cells = await shadow.row(f"SELECT {worth}")
    except ShadowError as error:
        raise ShadowError(_at(error.frame, places[0].start + 1)) from None
    constants = [constant(kind or "", value or "") for kind, value in zip(cells[::2], cells[1::2], strict=True)]
    kept = [(place, one) for place, one in zip(places, constants, strict=True) if one is not None]
    return written(text, [place for place, _ in kept], [one for _, one in kept])


def as_written(error: ShadowError, text: Dated) -> ShadowError:
    """An error about the text with its constants, placed in the text as the analyst wrote it."""
    at = position(error.frame)
    return error if at is None else ShadowError(_at(error.frame, text.before(at)))


def _at(frame: bytes, wanted: int) -> bytes:
    at = position(frame)
    return frame if at is None else moved(frame, wanted - at)
