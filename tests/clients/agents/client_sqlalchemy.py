"""SQLAlchemy 2 over psycopg: reflection, the ORM, savepoints, streams, a pool that pings."""

from __future__ import annotations

from typing import Any

import sqlalchemy
from agent import Request, at_the_word, done, refusal, restarted, serve, shown
from sqlalchemy import MetaData, Table, create_engine, func, inspect, select, text
from sqlalchemy.orm import Session, declarative_base


def engine(to: Request, **more: Any) -> Any:
    tls = {"sslmode": "verify-full", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
    place = {"host": to["host"], "port": int(to["port"]), "database": to["database"], "query": tls}
    url = sqlalchemy.URL.create("postgresql+psycopg", to["user"], to["password"], **place)
    return create_engine(url, **more)


def rows(conn: Any, what: Any, **values: Any) -> list[Any]:
    return [tuple(row) for row in conn.execute(text(what) if isinstance(what, str) else what, values)]


def connect(to: Request) -> Any:
    with engine(to).connect() as conn:
        return conn.execute(select(1)).scalar()


def list_(to: Request) -> Any:
    return inspect(engine(to)).get_table_names()


def describe(to: Request) -> Any:
    """All that reflection reads: columns, keys, indexes, comments."""
    looked_up = inspect(engine(to))
    for name in ("city", "orders"):
        looked_up.get_indexes(name), looked_up.get_unique_constraints(name), looked_up.get_check_constraints(name)
        assert looked_up.get_pk_constraint(name)["constrained_columns"], name
        assert looked_up.get_table_comment(name)["text"], name
    assert looked_up.get_foreign_keys("orders")[0]["referred_table"] == "city"
    table = Table("orders", MetaData(), autoload_with=engine(to))
    return [[column.name, str(column.type).lower()] for column in table.columns]


def patients(to: Request) -> Any:
    """The mapped class of patient_data, as reflected."""
    table = Table("patient_data", MetaData(), autoload_with=engine(to))
    return type("Patient", (declarative_base(metadata=table.metadata),), {"__table__": table})


def public(to: Request) -> Any:
    with engine(to).connect() as conn:
        return rows(conn, to["public"])


def decision(to: Request) -> Any:
    one = patients(to)
    asked = select(one.disease).group_by(one.disease).having(func.count() > 5000).order_by(one.disease)
    with Session(engine(to)) as session:
        return rows(session, asked)


def number(to: Request) -> Any:
    one = patients(to)
    asked = select(one.gender, func.count(one.patient_id).label("n"), func.avg(one.age).label("mean"))
    with Session(engine(to)) as session:
        return shown(rows(session, asked.group_by(one.gender).order_by(one.gender)))


def parameter(to: Request) -> Any:
    with engine(to).connect() as conn:
        return rows(conn, to["parameter"].replace("{1}", ":a").replace("{2}", ":b"), a="female", b=2000)


def transaction(to: Request) -> Any:
    with Session(engine(to)) as session, session.begin():
        before = rows(session, to["decision"])
        inner = session.begin_nested()
        found = [
            refusal(lambda asked=to[name]: session.connection().execute(text(asked))) for name in ("refused", "public")
        ]
        inner.rollback()
        return {"before": before, "states": found, "after": rows(session, to["decision"])}


def error(to: Request) -> Any:
    with engine(to).connect() as conn:
        found = refusal(lambda: rows(conn, to["refused"]))
        conn.rollback()
        return {"state": found, "then": rows(conn, "SELECT 2")[0][0]}


def notice(to: Request) -> Any:
    said: list[str] = []
    with engine(to).connect() as conn:
        conn.connection.driver_connection.add_notice_handler(lambda notice: said.append(notice.message_primary))
        rows(conn, to["decision"])
    return said


def pieces(to: Request) -> Any:
    with engine(to).connect() as conn:
        found = conn.execute(text(to["many"]), execution_options={"yield_per": 7})  # a cursor on the server
        return [tuple(row) for part in found.partitions(7) for row in part]


def cancel(to: Request) -> Any:
    with engine(to).connect() as conn:
        thread = at_the_word(to, conn.connection.driver_connection.cancel_safe)
        found = refusal(lambda: rows(conn, to["long"]))
        done(thread, to)
        conn.rollback()
        return {"state": found, "then": rows(conn, "SELECT 1")[0][0]}


def reconnect(to: Request) -> Any:
    pool = engine(to, pool_pre_ping=True)
    with pool.connect() as conn:
        before = rows(conn, to["decision"])
    restarted(to)
    with pool.connect() as conn:
        return {"before": before, "after": rows(conn, to["decision"])}


if __name__ == "__main__":
    checks = {"connect": connect, "tls": connect, "list": list_, "describe": describe, "public": public}
    checks |= {"decision": decision, "number": number, "parameter": parameter, "transaction": transaction}
    checks |= {"error": error, "notice": notice, "pieces": pieces, "cancel": cancel, "reconnect": reconnect}
    serve(lambda: sqlalchemy.__version__, checks)
