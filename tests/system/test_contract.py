"""The public names of pgveil: nothing that users script against is renamed or removed by accident.

``contract.json`` is what stands on the wire and in the schemas: keys of the NOTICE and of EXPLAIN, settings, SQLSTATEs,
columns and functions of ``provenance`` and ``veil``, commands with their options. New names are welcome; one that is
gone, or means another type, fails here. After a deliberate change, write the file again and review the difference:

    PGVEIL_WRITE_CONTRACT=1 .venv/bin/python -m pytest tests/system/test_contract.py
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst

from mechanisms.errors import Refusal
from proxy.__main__ import _parser as parser
from proxy.veil_settings import SETTINGS

FILE = Path(__file__).with_name("contract.json")
QUESTIONS = {
    "number": "SELECT count(*) FROM patient_data WHERE age = 33",
    "numbers by group": "SELECT region, sum(amount), avg(amount) FROM orders GROUP BY region",
    "decision": "SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 10000",
    "keys that are not declared": "SELECT fnlwgt % 7, count(*) FROM adult GROUP BY 1",
    "known already": "SELECT count(*) FROM patient_data WHERE age = 33",
}
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'v', 'm', 'p') ORDER BY 1, 2"""
FUNCTIONS = """
SELECT p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid)
FROM pg_proc p WHERE p.pronamespace = to_regnamespace(%s) AND p.prorettype <> 'trigger'::regtype
  AND (%s OR has_function_privilege('pgveil_admin', p.oid, 'EXECUTE')) ORDER BY 1, 2"""


def keys(value: Any, place: str = "") -> set[str]:
    """Every key of a document, with the keys that lead to it."""
    match value:
        case dict():
            return {f"{place}{name}" for name in value} | {
                key for name, each in value.items() for key in keys(each, f"{place}{name}.")
            }
        case list():
            return {key for each in value for key in keys(each, place)}
    return set()


def schema(conn: psycopg.Connection[Any], name: str, everything: bool) -> dict[str, Any]:
    columns: dict[str, dict[str, str]] = {}
    for table, column, type_ in conn.execute(COLUMNS, (name,)).fetchall():
        columns.setdefault(table, {})[column] = type_
    functions = {
        f"{function}({arguments})": result
        for function, arguments, result in conn.execute(FUNCTIONS, (name, everything)).fetchall()
    }
    return {"columns": columns, "functions": functions}


def sqlstates() -> list[str]:
    for package in ("mechanisms", "sqlrewrite", "provenance", "proxy"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found: set[str] = set()
    waiting: list[type[Refusal]] = [Refusal]
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if "sqlstate" in vars(one) and one is not Refusal and re.fullmatch("[0-9A-Z]{5}", one.sqlstate):
            found.add(one.sqlstate)
    return sorted(found - {"0Z002"})  # one of a test


def commands() -> dict[str, list[str]]:
    (subparsers,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    return {
        name: sorted(option for action in command._actions for option in action.option_strings if "--" in option)
        for name, command in subparsers.choices.items()
    }


@pytest.fixture(scope="module")
def found(proxy: Proxy, upstream: str) -> dict[str, Any]:
    notices: list[dict[str, Any]] = []
    explained: dict[str, list[str]] = {}
    answered: dict[str, list[str]] = {}
    with proxy.connect(new_analyst(upstream)) as session:
        session.add_notice_handler(lambda notice: notices.append(json.loads(notice.message_detail or "{}")))
        settings = {name: session.execute(f"SHOW {name}".encode()).fetchone() for name in SETTINGS}
        for kind, text in QUESTIONS.items():
            row = session.execute(f"EXPLAIN (FORMAT JSON) {text}".encode()).fetchone()
            assert row is not None
            explained[kind] = sorted(keys(row[0]))
            notices.clear()
            session.execute(text.encode())
            answered[kind] = sorted(keys(notices))
        veil = schema(session, "veil", True)
    with psycopg.connect(upstream) as conn:
        provenance = schema(conn, "provenance", False)
    return {
        "notice": answered,
        "explain": explained,
        "settings": {name: row and row[0] for name, row in settings.items()},
        "sqlstates": sqlstates(),
        "provenance": provenance,
        "veil": veil,
        "commands": commands(),
    }


def missing(wanted: Any, here: Any, place: str = "") -> list[str]:
    """What was promised and is not there."""
    match wanted:
        case dict():
            if not isinstance(here, dict):
                return [place]
            gone = [f"{place}/{name}" for name in wanted if name not in here]
            return gone + [
                one for name in wanted if name in here for one in missing(wanted[name], here[name], f"{place}/{name}")
            ]
        case list():
            return [f"{place}/{each}" for each in wanted if each not in here]
    return [] if wanted == here else [f"{place}: {wanted!r} is {here!r} now"]


def test_no_public_name_is_gone(found: dict[str, Any]) -> None:
    if os.environ.get("PGVEIL_WRITE_CONTRACT"):
        FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert missing(json.loads(FILE.read_text()), found) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["notice"]["decision"].remove("beta"),
        lambda found: found["explain"]["number"].clear(),
        lambda found: found["settings"].pop("veil.margin"),
        lambda found: found["settings"].update({"veil.beta": "0.5"}),
        lambda found: found["sqlstates"].remove("53400"),
        lambda found: found["provenance"]["columns"]["deployment"].pop("epsilon"),
        lambda found: found["provenance"]["columns"]["analyst"].update({"privilege": "text"}),
        lambda found: found["provenance"]["functions"].clear(),
        lambda found: found["veil"]["columns"].pop("budget"),
        lambda found: found["commands"]["serve"].remove("--listen"),
    ],
)
def test_a_name_that_is_gone_is_seen(found: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
    changed = json.loads(json.dumps(found))
    change(changed)
    assert missing(found, changed)
