"""connectorx: data frames by COPY in binary (or, when asked, by cursor or by simple queries)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlencode

import connectorx
from agent import Request, refusal, restarted, serve
from dbapi import DESCRIBE, LIST


def read(to: Request, text: str, protocol: str = "binary") -> Any:
    tls = {"sslmode": "require", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
    who = f"{quote(to['user'])}:{quote(to['password'])}"
    uri = f"postgresql://{who}@{to['host']}:{to['port']}/{to['database']}?{urlencode(tls)}"
    return connectorx.read_sql(uri, text, return_type="arrow", protocol=protocol)


def lines(found: Any) -> list[list[Any]]:
    return [list(row.values()) for row in found.to_pylist()]


def number(to: Request) -> Any:
    found = read(to, to["number"])
    kinds = [str(one.type) for one in found.schema]
    return [[[kind, str(cell)] for kind, cell in zip(kinds, row, strict=True)] for row in lines(found)]


def error(to: Request) -> Any:
    said = str(refusal(lambda: read(to, to["refused"])))
    return {"state": None, "said": said, "then": lines(read(to, "SELECT 2"))[0][0]}


def reconnect(to: Request) -> Any:
    before = lines(read(to, to["decision"]))
    restarted(to)
    return {"before": before, "after": lines(read(to, to["decision"]))}


if __name__ == "__main__":
    checks = {"connect": lambda to: lines(read(to, "SELECT 1"))[0][0], "number": number, "copy": number}
    checks |= {"tls": checks["connect"], "public": lambda to: lines(read(to, to["public"])), "error": error}
    checks |= {"decision": lambda to: lines(read(to, to["decision"])), "reconnect": reconnect}
    checks |= {
        "list": lambda to: [row[0] for row in lines(read(to, LIST))],
        "describe": lambda to: lines(read(to, DESCRIBE)),
    }
    serve(lambda: version("connectorx"), checks)
