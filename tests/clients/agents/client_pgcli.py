"""pgcli in a terminal of its own, with completion."""

from __future__ import annotations

import csv
import os
import re
import signal
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pexpect
from agent import Request, at_the_word, done, restarted, serve

CONFIG = """
[main]
prompt = 'veiled>'
table_format = csv
enable_pager = False
less_chatty = True
multi_line = False
on_error = RESUME
verbose_errors = True
history_file = /dev/null
log_file = /dev/null
"""
# A prompt turns bracketed paste on, and what a statement prints stands between two prompts.
_PROMPT, _RUN = re.escape("\x1b[?2004h"), re.escape("\x1b[?2004l")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[=>78]|\][^\x07]*\x07|\([AB0])")


class Refused(Exception):  # noqa: N818 - named as in pgveil
    """pgcli printed an error."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        found = re.search(r"\bSQLSTATE\W+([0-9A-Z]{5})\b|\bCode: ([0-9A-Z]{5})\b", said, re.IGNORECASE)
        self.sqlstate = found[1] or found[2] if found else None


def _at_a_terminal() -> None:
    """Whoever runs the tests in the background has Ctrl-C ignored, and so would all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """pgcli at its prompt."""

    def __init__(self, to: Request) -> None:
        self.folder = tempfile.TemporaryDirectory()
        config = Path(self.folder.name) / "config"
        config.write_text(CONFIG)
        tls = f"sslmode=verify-full sslrootcert={to['ca']}" if to["ca"] else "sslmode=disable"
        who = f"user={to['user']} password={to['password']} host={to['host']} port={to['port']}"
        mine = {**os.environ, "TERM": "xterm", "HOME": self.folder.name, "PROMPT_TOOLKIT_NO_CPR": "1"}
        arguments = ["-m", "pgcli.main", "--no-password", "--pgclirc", str(config)]
        arguments.append(f"{who} dbname={to['database']} {tls}")
        how: dict[str, Any] = {"env": mine, "encoding": "utf-8", "dimensions": (200, 400), "timeout": 60, "echo": False}
        self.child = pexpect.spawn(sys.executable, arguments, preexec_fn=_at_a_terminal, **how)
        if self.child.expect([_PROMPT, pexpect.EOF]):
            said = self.plain(self.child.before)
            self.close()
            raise Refused(said)

    @staticmethod
    def plain(text: Any) -> str:
        return _ESCAPES.sub("", str(text)).replace("\r", "")

    def type(self, text: str) -> None:
        """Type until it stands there: what is typed before the prompt is drawn may be lost."""
        last = re.findall(r"\w+", text)[-1]  # one colour, so one piece of what is drawn
        for _ in range(20):
            self.child.send(text)
            if self.child.expect([last, pexpect.TIMEOUT], timeout=2) == 0:
                return
            self.child.send("\x15")
        raise AssertionError(f"it cannot be typed: {text}")

    def printed(self) -> str:
        self.child.send("\r")
        self.child.expect(_RUN)
        self.child.expect(_PROMPT)
        return self.plain(self.child.before)

    def run(self, text: str) -> str:
        """What is printed for a statement."""
        self.type(f"{text};" if text[0] != "\\" else text)
        return self.printed()

    def rows(self, text: str) -> list[list[str]]:
        return table(self.run(text))

    def close(self) -> None:
        self.child.close(force=True)
        self.folder.cleanup()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def table(said: str) -> list[list[str]]:
    """The cells below the header; every cell is quoted."""
    quoted = [line for line in said.splitlines() if line.startswith('"')]
    if not quoted:
        raise Refused(said)
    return list(csv.reader(quoted))[1:]


def ask(to: Request, text: str) -> list[list[str]]:
    with Terminal(to) as terminal:
        return terminal.rows(text)


def connect(to: Request) -> Any:
    return int(ask(to, "SELECT 1 AS one")[0][0])


def list_(to: Request) -> Any:
    """By its own command; and what is begun is completed from the catalogs."""
    with Terminal(to) as terminal:
        terminal.type("SELECT count(*) FROM patient_da")
        for _ in range(20):  # the names are read in the background
            terminal.child.send("\t")
            if terminal.child.expect(["patient_data", pexpect.TIMEOUT], timeout=1) == 0:
                break
        else:
            raise AssertionError("the name of the table was not completed")
        terminal.child.send("\x03")
        terminal.child.expect(_PROMPT)
        return [row[1] for row in terminal.rows("\\dt")]


def describe(to: Request) -> Any:
    return [row[:2] for row in ask(to, "\\d orders")]


def number(to: Request) -> Any:
    return [[["text", cell] for cell in row] for row in ask(to, to["number"])]


def transaction(to: Request) -> Any:
    with Terminal(to) as terminal:
        terminal.run("BEGIN")
        before = terminal.rows(to["decision"])
        terminal.run("SAVEPOINT here")
        states = [Refused(terminal.run(to[name])).sqlstate for name in ("refused", "public")]
        terminal.run("ROLLBACK TO here")
        after = terminal.rows(to["decision"])
        terminal.run("COMMIT")
    return {"before": before, "states": states, "after": after}


def error(to: Request) -> Any:
    with Terminal(to) as terminal:
        state = Refused(said := terminal.run(to["refused"])).sqlstate
        return {"state": state, "said": said, "then": int(terminal.rows("SELECT 2 AS two")[0][0])}


def notice(to: Request) -> Any:
    with Terminal(to) as terminal:
        return re.findall(r"\b(veil: .*)", terminal.run(to["decision"]))


def cancel(to: Request) -> Any:
    with Terminal(to) as terminal:
        terminal.type(f"{to['long']};")
        thread = at_the_word(to, lambda: terminal.child.send("\x03"))
        said = terminal.printed()
        done(thread, to)
        state = None if re.search("cancell?ed", said) else said  # pgcli has words of its own
        return {"state": state, "then": int(terminal.rows("SELECT 1 AS one")[0][0])}


def reconnect(to: Request) -> Any:
    with Terminal(to) as terminal:
        before = terminal.rows(to["decision"])
        restarted(to)
        terminal.type("SELECT 1 AS one;")
        terminal.child.send("\r")
        if terminal.child.expect([re.escape("[Y/n]"), _PROMPT], timeout=30) == 0:  # "Reconnect?"
            terminal.child.send("y\r")
            terminal.child.expect(_PROMPT)
        return {"before": before, "after": terminal.rows(to["decision"])}


if __name__ == "__main__":
    checks = {"connect": connect, "tls": connect, "list": list_, "describe": describe, "number": number}
    checks |= {"public": lambda to: [[row[0], int(row[1])] for row in ask(to, to["public"])], "notice": notice}
    checks |= {"decision": lambda to: ask(to, to["decision"]), "error": error, "transaction": transaction}
    checks |= {"cancel": cancel, "reconnect": reconnect}
    serve(lambda: version("pgcli"), checks)
