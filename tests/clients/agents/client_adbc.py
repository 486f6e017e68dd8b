"""ADBC: Arrow tables, read by COPY (...) TO STDOUT (FORMAT binary)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlencode

import adbc_driver_postgresql.dbapi as adbc
from agent import Request, at_the_word, done, refusal, restarted, serve


def opened(to: Request) -> Any:
    tls = {"sslmode": "verify-full", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
    who = f"{quote(to['user'])}:{quote(to['password'])}"
    uri = f"postgresql://{who}@{to['host']}:{to['port']}/{to['database']}?{urlencode(tls)}"
    return adbc.connect(uri, autocommit=True)


def table(to: Request, text: str, *values: Any) -> Any:
    with opened(to) as conn, conn.cursor() as cursor:
        cursor.execute(text, list(values) or None)
        return cursor.fetch_arrow_table()


def lines(found: Any) -> list[list[Any]]:
    return [list(row.values()) for row in found.to_pylist()]


def list_(to: Request) -> Any:
    with opened(to) as conn:
        found = conn.adbc_get_objects(depth="tables", db_schema_filter="public").read_all().to_pylist()
    schemas = [schema for catalog in found for schema in catalog["catalog_db_schemas"] or []]
    return sorted(one["table_name"] for schema in schemas for one in schema["db_schema_tables"] or [])


def describe(to: Request) -> Any:
    with opened(to) as conn:
        return [[one.name, str(one.type)] for one in conn.adbc_get_table_schema("orders")]


def number(to: Request) -> Any:
    found = table(to, to["number"])
    kinds = [str(one.type) for one in found.schema]
    return [[[kind, str(cell)] for kind, cell in zip(kinds, row, strict=True)] for row in lines(found)]


def parameter(to: Request) -> Any:
    return lines(table(to, to["parameter"].replace("{1}", "$1").replace("{2}", "$2"), "female", 2000))


def error(to: Request) -> Any:
    with opened(to) as conn, conn.cursor() as cursor:
        found = refusal(lambda: cursor.execute(to["refused"]))
        cursor.execute("SELECT 2")
        return {"state": found, "then": cursor.fetchone()[0]}


def transaction(to: Request) -> Any:
    with opened(to) as conn, conn.cursor() as cursor:

        def rows(text: str) -> Any:
            cursor.execute(text)
            return cursor.fetchall()

        cursor.execute("BEGIN")
        before = rows(to["decision"])
        cursor.execute("SAVEPOINT here")
        states = [refusal(lambda asked=to[name]: rows(asked)) for name in ("refused", "public")]
        cursor.execute("ROLLBACK TO SAVEPOINT here")
        after = rows(to["decision"])
        cursor.execute("COMMIT")
        return {"before": before, "states": states, "after": after}


def cancel(to: Request) -> Any:
    with opened(to) as conn, conn.cursor() as cursor:

        def ask() -> Any:
            cursor.execute(to["long"])
            return cursor.fetchall()

        thread = at_the_word(to, cursor.adbc_cancel)
        found = refusal(ask)
        done(thread, to)
        cursor.execute("SELECT 1")
        return {"state": found, "then": cursor.fetchone()[0]}


def reconnect(to: Request) -> Any:
    with opened(to) as conn, conn.cursor() as cursor:
        cursor.execute(to["decision"])
        before = cursor.fetchall()
        restarted(to)
    return {"before": before, "after": lines(table(to, to["decision"]))}


if __name__ == "__main__":
    checks = {"connect": lambda to: lines(table(to, "SELECT 1"))[0][0], "list": list_, "describe": describe}
    checks |= {"tls": checks["connect"], "public": lambda to: lines(table(to, to["public"])), "number": number}
    checks |= {"decision": lambda to: lines(table(to, to["decision"])), "parameter": parameter, "error": error}
    checks |= {"transaction": transaction, "cancel": cancel, "reconnect": reconnect}
    checks |= {"copy": number}
    serve(lambda: version("adbc-driver-postgresql"), checks)
