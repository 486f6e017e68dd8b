"""psql: what is typed, and what is printed."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Any

from agent import Request, Unsupported, at_the_word, done, restarted, serve

PROGRAM = sys.argv[1]


def environment(to: Request) -> dict[str, str]:
    tls = {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": to["ca"]} if to["ca"] else {"PGSSLMODE": "disable"}
    place = {"PGHOST": to["host"], "PGPORT": to["port"], "PGDATABASE": to["database"]}
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    if to["check"] == "binding":
        tls["PGCHANNELBINDING"] = "require"
    who = {"PGUSER": to["user"], "PGPASSWORD": to["password"], "LC_ALL": "C.UTF-8", "PSQL_HISTORY": os.devnull}
    return {**mine, **place, **tls, **who}


def start(to: Request, *arguments: str) -> subprocess.Popen[str]:
    command = [PROGRAM, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "VERBOSITY=verbose", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(to), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def typed(to: Request, script: str, *arguments: str) -> str:
    said, _ = start(to, *arguments).communicate(script, timeout=60)
    return said


class Refused(Exception):  # noqa: N818 - named as in pgveil
    """psql printed an error."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        found = re.search(r"(?:ERROR|FATAL): +([0-9A-Z]{5}):", said)
        self.sqlstate = found[1] if found else None


def rows(to: Request, script: str, *arguments: str) -> list[list[str]]:
    said = typed(to, script, *arguments)
    if re.search(r"^(?:psql:.*)?(ERROR|FATAL)|error: ", said, re.MULTILINE):
        raise Refused(said)
    return cells(said)


def cells(said: str) -> list[list[str]]:
    """Rows without the notices between them."""
    plain = re.sub(r"^(NOTICE|DETAIL|LOCATION|HINT):.*\n", "", said, flags=re.MULTILINE)
    return [line.split("\t") for line in plain.splitlines()]


def connect(to: Request) -> Any:
    return int(rows(to, "SELECT 1;")[0][0])


def tls(to: Request) -> Any:
    try:
        return connect(to)
    except Refused as said:
        if "SSL support is not compiled in" in str(said):
            raise Unsupported("the psql that comes with the embedded server is built without TLS") from None
        raise


def list_(to: Request) -> Any:
    return [row[1] for row in rows(to, r"\dt")]


def describe(to: Request) -> Any:
    return [row[:2] for row in rows(to, "\\d orders\n") if len(row) >= 4]


def number(to: Request) -> Any:
    return [[["text", cell] for cell in row] for row in rows(to, f"{to['number']};")]


def parameter(to: Request) -> Any:
    """By psql's variables, which it writes into the text."""
    text = to["parameter"].replace("{1}", ":'a'").replace("{2}", ":b")
    return rows(to, f"{text};", "-v", "a=female", "-v", "b=2000")


def bound(to: Request) -> Any:
    """By the extended protocol."""
    text = to["parameter"].replace("{1}", "$1").replace("{2}", "$2")
    return rows(to, f"{text} \\bind female 2000 \\g\n")


def transaction(to: Request) -> Any:
    steps = ["BEGIN", to["decision"], "SAVEPOINT here", to["refused"], to["public"]]
    steps += ["ROLLBACK TO here", to["decision"], "COMMIT"]
    said = typed(to, "".join(f"\\echo -- \n{step};\n" for step in steps))
    parts = said.split("--\n")[1:]
    states = [found for part in parts[3:5] for found in re.findall(r"ERROR:  (\w{5}):", part)]
    return {"before": cells(parts[1]), "states": states, "after": cells(parts[6])}


def error(to: Request) -> Any:
    said = typed(to, f"{to['refused']};\nSELECT 2;\n")
    assert "HINT:" in said and "LINE 1:" in said, said
    return {"state": Refused(said).sqlstate, "then": int(said.splitlines()[-1])}


def notice(to: Request) -> Any:
    return re.findall(r"NOTICE:  00000: (.*)", typed(to, f"{to['decision']};"))


def pieces(to: Request) -> Any:
    found = rows(to, f"\\set FETCH_COUNT 7\n{to['many']};\n")
    if int(version().split(".")[0]) >= 17 and len(found) == 40:
        raise Unsupported("FETCH_COUNT works, but psql takes chunks of one answer since 17, and no cursor")
    return found


def copy(to: Request) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer"
        rows(to, f"\\copy ({to['number']}) to '{path}'\n")
        return [[["text", cell] for cell in line.split("\t")] for line in path.read_text().splitlines()]


def pipeline(to: Request) -> Any:
    asked = [f"{to[name]} \\bind \\sendpipeline" for name in ("decision", "public", "number")]
    script = "\n".join(["\\startpipeline", *asked, "\\flushrequest", "\\getresults", "\\endpipeline", ""])
    found = rows(to, script)
    one = len([row for row in found if len(row) == 1])
    two = len([row for row in found if len(row) == 2])
    return [one, two, len(found) - one - two]


class Terminal:
    """psql at a prompt: only there does it outlive Ctrl-C and reconnect by itself."""

    def __init__(self, to: Request) -> None:
        self.screen, keyboard = pty.openpty()
        how = termios.tcgetattr(keyboard)
        how[3] &= ~termios.ECHO
        termios.tcsetattr(keyboard, termios.TCSANOW, how)
        command = [PROGRAM, "-X", "-n", "-q", "-A", "-t", "-P", "pager=off", "-v", "VERBOSITY=verbose"]
        command += ["-v", "PROMPT1=veiled>"]
        self.process = subprocess.Popen(
            command, env=environment(to), stdin=keyboard, stdout=keyboard, stderr=keyboard, start_new_session=True
        )
        os.close(keyboard)
        self.printed()

    def printed(self) -> str:
        """What is printed up to the next prompt."""
        said = ""
        while not said.endswith("veiled>"):
            assert select.select([self.screen], [], [], 60)[0], said
            said += os.read(self.screen, 1 << 16).decode()
        return said.removesuffix("veiled>").replace("\r", "")

    def run(self, text: str) -> str:
        os.write(self.screen, f"{text};\n".encode())
        return self.printed()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        os.close(self.screen)


def cancel(to: Request) -> Any:
    terminal = Terminal(to)
    thread = at_the_word(to, lambda: terminal.process.send_signal(signal.SIGINT))
    said = terminal.run(to["long"])
    done(thread, to)
    then = terminal.run("SELECT 1")
    terminal.close()
    return {"state": Refused(said).sqlstate, "then": int(then)}


def reconnect(to: Request) -> Any:
    terminal = Terminal(to)
    before = cells(terminal.run(to["decision"]))
    restarted(to)
    said = terminal.run("SELECT 1")
    assert "Attempting reset: Succeeded" in said, said
    after = cells(terminal.run(to["decision"]))
    terminal.close()
    return {"before": before, "after": after}


def version() -> str:
    return subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]


if __name__ == "__main__":
    checks = {"connect": connect, "tls": tls, "binding": tls, "list": list_, "describe": describe, "number": number}
    checks |= {"public": lambda to: [[row[0], int(row[1])] for row in rows(to, f"{to['public']};")], "notice": notice}
    checks |= {"decision": lambda to: rows(to, f"{to['decision']};"), "error": error, "transaction": transaction}
    checks |= {"parameter": bound if int(version().split(".")[0]) >= 16 else parameter, "pieces": pieces, "copy": copy}
    checks |= {"cancel": cancel, "reconnect": reconnect}
    if int(version().split(".")[0]) >= 18:
        checks["pipeline"] = pipeline
    serve(version, checks)
