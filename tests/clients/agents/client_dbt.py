"""dbt-postgres: debug, and models that are read but not written (the shadow takes no tables)."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import chdir
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent import Request, restarted, serve
from dbt.cli.main import dbtRunner

os.environ["DBT_SEND_ANONYMOUS_USAGE_STATS"] = "false"


class DbtError(Exception):
    """dbt ended with an error."""


def dbt(to: Request, *arguments: str, model: str = "SELECT 1") -> Any:
    """Run dbt in a project with one model."""
    tls = {"sslmode": "verify-full", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
    target = {"type": "postgres", "host": to["host"], "port": int(to["port"]), "dbname": to["database"]}
    target |= {"schema": "public", "user": to["user"], "password": to["password"], "threads": 1, **tls}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("models").mkdir()
        Path("models/one.sql").write_text(model)
        described = {"name": "veil", "version": "1.0", "profile": "veil", "config-version": 2}
        profile = {"veil": {"target": "dev", "outputs": {"dev": target}}}
        Path("dbt_project.yml").write_text(json.dumps(described))  # JSON is YAML
        Path("profiles.yml").write_text(json.dumps(profile))
        said: list[str] = []
        runner = dbtRunner(callbacks=[lambda event: said.append(event.info.msg)])
        done = runner.invoke(["--no-use-colors", *arguments, "--profiles-dir", folder, "--project-dir", folder])
    if not done.success:
        raise DbtError("\n".join(said), done.exception)
    return done.result


def show(to: Request, text: str, *more: str) -> list[list[Any]]:
    """``dbt show``: a model wrapped in subselects and LIMIT, as dbt previews it."""
    found = dbt(to, "show", "--select", "one", "--limit", "100", *more, model=text)
    return [list(row.values()) for row in found.results[0].agate_table.rows]


def when_run(macro: str, text: str) -> str:
    """A model that asks the database while it is compiled for a run."""
    return "{% if execute %}" + macro + text + "{% else %}SELECT 1{% endif %}"


def connect(to: Request) -> Any:
    dbt(to, "debug")
    return 1


def list_(to: Request) -> Any:
    """The macro by which dbt lists what stands in a schema before it builds."""
    schema = "api.Relation.create(database=target.database, schema='public')"
    macro = "{% set found = load_result('list') or postgres__list_relations_without_caching(" + schema + ") %}"
    names = "{% for one in found %}('{{ one.name }}'){{ ',' if not loop.last }}{% endfor %}"
    return [row[0] for row in show(to, when_run(macro, f"SELECT * FROM (VALUES {names}) AS listed(name)"))]


def describe(to: Request) -> Any:
    relation = "api.Relation.create(database=target.database, schema='public', identifier='orders')"
    macro = "{% set found = adapter.get_columns_in_relation(" + relation + ") %}"
    pairs = "{% for one in found %}('{{ one.name }}', '{{ one.dtype }}'){{ ',' if not loop.last }}{% endfor %}"
    return show(to, when_run(macro, f"SELECT * FROM (VALUES {pairs}) AS described(name, kind)"))


def number(to: Request) -> Any:
    return [[[type(cell).__name__, str(cell)] for cell in row] for row in show(to, to["number"])]


def parameter(to: Request) -> Any:
    text = to["parameter"].replace("{1}", "'{{ var(\"a\") }}'").replace("{2}", '{{ var("b") }}')
    return show(to, text, "--vars", json.dumps({"a": "female", "b": 2000}))


def error(to: Request) -> Any:
    try:
        found = str(show(to, to["refused"]))
    except DbtError as said:
        found = str(said)
    return {"state": None, "said": found, "then": int(show(to, "SELECT 2 AS two")[0][0])}


def public(to: Request) -> Any:
    return [[name, int(population)] for name, population in show(to, to["public"])]


def reconnect(to: Request) -> Any:
    before = show(to, to["decision"])
    restarted(to)
    return {"before": before, "after": show(to, to["decision"])}


if __name__ == "__main__":
    checks = {"connect": connect, "tls": connect, "list": list_, "describe": describe, "number": number}
    checks |= {"public": public, "decision": lambda to: show(to, to["decision"]), "error": error}
    checks |= {"parameter": parameter, "reconnect": reconnect}
    serve(lambda: f"{version('dbt-postgres')} (dbt {version('dbt-core')})", checks)
