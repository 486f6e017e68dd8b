"""pandas.read_sql, over SQLAlchemy and psycopg2, as notebooks have it."""

from __future__ import annotations

from typing import Any

import pandas
import sqlalchemy
from agent import Request, refusal, restarted, serve


def engine(to: Request) -> Any:
    tls = {"sslmode": "verify-full", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
    place = {"host": to["host"], "port": int(to["port"]), "database": to["database"], "query": tls}
    url = sqlalchemy.URL.create("postgresql+psycopg2", to["user"], to["password"], **place)
    return sqlalchemy.create_engine(url, pool_pre_ping=True)


def read(to: Request, text: str, **more: Any) -> Any:
    return pandas.read_sql(text, engine(to), **more)


def lines(frame: Any) -> list[list[Any]]:
    return frame.astype(object).values.tolist()


def connect(to: Request) -> Any:
    return int(read(to, "SELECT 1 AS one")["one"][0])


def list_(to: Request) -> Any:
    return sqlalchemy.inspect(engine(to)).get_table_names()


def describe(to: Request) -> Any:
    return [[one["name"], str(one["type"]).lower()] for one in sqlalchemy.inspect(engine(to)).get_columns("orders")]


def number(to: Request) -> Any:
    frame = read(to, to["number"])
    kinds = [str(kind) for kind in frame.dtypes]
    return [[[kind, str(cell)] for kind, cell in zip(kinds, row, strict=True)] for row in lines(frame)]


def parameter(to: Request) -> Any:
    asked = to["parameter"].replace("{1}", "%(a)s").replace("{2}", "%(b)s")
    return lines(read(to, asked, params={"a": "female", "b": 2000}))


def error(to: Request) -> Any:
    pool = engine(to)
    found = refusal(lambda: pandas.read_sql(to["refused"], pool))
    return {"state": found, "then": int(pandas.read_sql("SELECT 2 AS two", pool)["two"][0])}


def pieces(to: Request) -> Any:
    pool = engine(to)
    with pool.connect().execution_options(stream_results=True) as conn:
        parts = [lines(part) for part in pandas.read_sql(sqlalchemy.text(to["many"]), conn, chunksize=7)]
    return [row for part in parts for row in part]


def reconnect(to: Request) -> Any:
    pool = engine(to)
    before = lines(pandas.read_sql(to["decision"], pool))
    restarted(to)
    return {"before": before, "after": lines(pandas.read_sql(to["decision"], pool))}


if __name__ == "__main__":
    checks = {"connect": connect, "tls": connect, "list": list_, "describe": describe, "number": number}
    checks |= {"public": lambda to: lines(read(to, to["public"])), "parameter": parameter, "error": error}
    checks |= {"decision": lambda to: lines(read(to, to["decision"])), "pieces": pieces, "reconnect": reconnect}
    serve(lambda: pandas.__version__, checks)
