"""``pgveil serve`` with a clock at each stage of a question: ``python -m bench.rig.timed FILE serve ...``.

The functions and methods of the route are wrapped where they are defined, before anybody imports them; at the end the
spans are written to FILE. A span counts its own time only, less what stages inside it took. ``time.monotonic`` is one
clock for all processes of a machine, so that the client can tell which span belongs to which of its questions.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

STAGES: Final = (  # name, module, what is wrapped there; in the order of the route
    ("route: is it ours?", "proxy.route", "Router.is_plain"),
    ("route: which relations?", "proxy.route", "named"),
    ("shadow: describe, resolve, settings", "proxy.conversation", "Conversation.read"),
    ("pool: is the connection alive?", "psycopg_pool", "AsyncConnectionPool.check_connection"),
    ("provenance: versions, what is left?", "proxy.standing", "Standing.look"),
    ("take apart", "sqlrewrite.cut", "cut"),
    ("read the fragments", "sqlrewrite.read", "read"),
    ("price", "mechanisms.apportion", "apportion"),
    ("fingerprint", "sqlrewrite.normal", "fingerprint"),
    ("public groups", "sqlrewrite.cells", "cells"),
    ("shadow: prepare the finishing statement", "proxy.conversation", "Conversation.prepare"),
    ("synopsis: known already?", "provenance.synopses", "Synopses.find"),
    ("synopses: which way to a number?", "proxy.numbers", "ways"),
    ("ledger: charge", "provenance.ledger", "Ledger.charge_all"),
    ("generate", "sqlrewrite.generate", "generate"),
    ("data: measure", "proxy.backend", "Reader.measure"),
    ("data: secret delay", "proxy.pacing", "Pacing._wait"),
    ("noise", "mechanisms.release", "release"),
    ("decide, in stages", "mechanisms.course", "Course.advance"),
    ("ledger: reserve", "provenance.ledger", "Ledger.reserve_more"),
    ("ledger: settle", "provenance.ledger", "Ledger.settle"),
    ("synopses: file a release", "provenance.releases", "Releases.append"),
    ("synopsis: keep", "provenance.synopses", "Synopses.keep"),
    ("ledger: what is left?", "provenance.ledger", "Ledger.remaining"),
    ("numbers as texts", "sqlrewrite.values", "column_texts"),
    ("hand over to the shadow", "proxy.conversation", "Conversation.finish"),
)
LAST: Final = STAGES[-1][0]
DELAY: Final = "data: secret delay"


@dataclass(slots=True)
class Span:
    """One call of a stage."""

    stage: str
    begun: float
    ended: float = 0.0
    inside: float = 0.0  # taken by stages inside this one

    @property
    def own(self) -> float:
        return self.ended - self.begun - self.inside


_spans: list[Span] = []
_open: ContextVar[Span | None] = ContextVar("open span", default=None)


def install() -> None:
    """Wrap every stage that this version of pgveil has."""
    for stage, module, path in sorted(STAGES, key=lambda entry: entry[1] == "proxy.answer"):  # it imports the others
        owner: Any = importlib.import_module(module)
        *classes, name = path.split(".")
        for part in classes:
            owner = getattr(owner, part)
        found = inspect.getattr_static(owner, name)
        if isinstance(found, staticmethod):
            setattr(owner, name, staticmethod(_wrapped(stage, found.__func__)))
        else:
            setattr(owner, name, _wrapped(stage, found))


def _wrapped(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        async def later(*args: Any, **named: Any) -> Any:
            span, token = _begin(stage)
            try:
                return await function(*args, **named)
            finally:
                _end(span, token)

        return later

    def now(*args: Any, **named: Any) -> Any:
        span, token = _begin(stage)
        try:
            return function(*args, **named)
        finally:
            _end(span, token)

    return now


def _begin(stage: str) -> tuple[Span, Any]:
    span = Span(stage, time.monotonic())
    return span, _open.set(span)


def _end(span: Span, token: Any) -> None:
    span.ended = time.monotonic()
    _open.reset(token)
    outer = _open.get()
    if outer is not None:
        outer.inside += span.ended - span.begun
    _spans.append(span)


def main() -> int:
    """Serve, then write what was seen."""
    seen, *arguments = sys.argv[1:]
    install()
    serve = importlib.import_module("proxy.__main__").main
    try:
        return int(serve(arguments))
    finally:
        rows = [(span.stage, span.begun, span.ended, span.own) for span in _spans]
        Path(seen).write_text(json.dumps(rows))


if __name__ == "__main__":
    sys.exit(main())
