"""The loop that every agent in Python runs: one line of JSON is a check to do, one line of JSON is what came of it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Request = dict[str, str]


class Unsupported(Exception):  # noqa: N818 - no fault of anybody
    """The client has no means for this check."""


def state(error: BaseException) -> str | None:
    """The SQLSTATE of an error of whichever driver."""
    cause = error.__cause__
    for one in (error, getattr(error, "orig", None), cause, getattr(cause, "orig", None)):
        for name in ("sqlstate", "pgcode"):
            if isinstance(found := getattr(one, name, None), str):
                return found
        arguments = getattr(one, "args", ())
        if arguments and isinstance(arguments[0], dict):  # pg8000
            return str(arguments[0].get("C"))
        if len(arguments) == 2 and isinstance(arguments[0], str) and len(arguments[0]) == 5:  # pyodbc
            return arguments[0]
    return None


def refusal(ask: Callable[[], object]) -> str | None:
    """The SQLSTATE with which a statement fails."""
    try:
        answer = ask()
    except Exception as error:
        return state(error) or str(error)
    raise AssertionError(f"nothing was refused: {answer!r}")


def shown(rows: Any) -> list[list[list[str]]]:
    """Rows as pairs of a type and a text, which is what JSON can carry of a Decimal."""
    return [[[type(value).__name__, str(value)] for value in row] for row in rows]


def wait_for(path: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not Path(path).exists():
        assert time.monotonic() < until, f"nobody made {path}"
        time.sleep(0.01)


def at_the_word(request: Request, act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread as soon as the test says go."""

    def work() -> None:
        wait_for(request["go"])
        act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def done(thread: threading.Thread, request: Request) -> None:
    """Wait until it is done, unless the word never came."""
    if Path(request["go"]).exists():
        thread.join()


def restarted(request: Request) -> None:
    """Tell the test that the client is connected, and wait until it has restarted the proxy."""
    Path(request["ready"]).touch()
    wait_for(request["go"], 120.0)


def serve(version: Callable[[], str], checks: Mapping[str, Callable[[Request], Any]]) -> None:
    """Answer until the test closes the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a client prints must not be mistaken for an answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["check"] == "version":
                reply = {"value": version()}
            elif request["check"] in checks:
                reply = {"value": checks[request["check"]](request)}
            else:
                reply = {"unsupported": "not offered by the client, or not tried with it"}
        except Unsupported as reason:
            reply = {"unsupported": str(reason)}
        except BaseException as error:
            reply = {"error": f"{type(error).__name__}: {error}", "state": state(error)}
        answers.write(json.dumps(reply, default=str) + "\n")
        answers.flush()
