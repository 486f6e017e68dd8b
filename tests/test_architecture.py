"""The shape of the house, read from its own source: who may import whom, who may touch the world, who may open what.

Each rule is a function from the text of a file to what is wrong with it. Each is also shown a planted violation, so
that a rule which has gone blind is noticed.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from mechanisms import errors as root_of_refusals
from mechanisms.errors import Refusal

ROOT = Path(__file__).parents[1]
STAIRCASE = ("proxy", "provenance", "sqlrewrite", "mechanisms")
"""Imports go down only."""

FILES = [path for package in STAIRCASE for path in sorted((ROOT / package).rglob("*.py"))]

# Where the network, databases and other processes are touched; every other file is functions on values.
IO = {
    "proxy": {
        "__main__.py": "signals and the event loop",
        "backend.py": "the protected database, for a receipt",
        "demo.py": "loads and registers the demo",
        "embedded.py": "starts PostgreSQL",
        "link.py": "the connection of a session to its shadow",
        "login.py": "opens that connection",
        "lookout.py": "the connection for looks at the ledger",
        "postmaster.py": "PostgreSQL's processes",
        "runtime.py": "the pools",
        "server.py": "the clients",
        "shadow.py": "builds the shadow",
        "status.py": "pgveil status",
        "tls.py": "secures a client's connection",
    },
    "provenance": {
        "chain.py": "the anchor",
        "ledger.py": "the till",
        "outlook.py": "what the till would say",
        "migrate.py": "the schema",
        "registry.py": "what is public",
        "releases.py": "global synopses, and what each analyst knows of them",
        "synopses.py": "what was released",
    },
}

_IO_MODULES = frozenset(("socket", "subprocess", "psycopg_pool", "http", "urllib", "socketserver", "multiprocessing"))
_IO_NAMES = frozenset(("connect", "Connection", "AsyncConnection", "Cursor", "AsyncCursor", "AsyncRawCursor"))
_IO_CALLS = frozenset(
    (
        *("create_server", "create_unix_server", "create_connection", "create_unix_connection", "start_tls"),
        *("open_connection", "open_unix_connection", "start_server", "add_signal_handler"),
    )
)

# Numbers know nothing of SQL, networks, clocks, threads or the wire.
_NOT_FOR_NUMBERS = frozenset(
    ("socket", "asyncio", "ssl", "subprocess", "psycopg", "psycopg_pool", "sqlglot", "time", "datetime", "threading")
)
_LONGEST = 400


@cache
def tree(text: str) -> ast.Module:
    return ast.parse(text)


def imports(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Every module that a file imports, and the names it takes from it."""
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, frozenset()
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, frozenset(alias.name for alias in node.names)


def calls(text: str) -> Iterator[str]:
    """The dotted name of everything that is called, as far as it is dotted: ``a.b.c``, ``.c`` behind an expression."""
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.Call):
            yield dotted(node.func)


def dotted(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}"
        case _:
            return ""


def climbs(package: str, text: str) -> list[str]:
    """Imports that go up the staircase."""
    above = STAIRCASE[: STAIRCASE.index(package)]
    return [module for module, _ in imports(text) if module.split(".")[0] in above]


def not_for_numbers(text: str) -> list[str]:
    """What the room of numbers may not know."""
    return [module for module, _ in imports(text) if module.split(".")[0] in _NOT_FOR_NUMBERS]


def touches_the_world(text: str) -> list[str]:
    """Signs of network, database or process I/O."""
    found = []
    for module, names in imports(text):
        if module.split(".")[0] in _IO_MODULES or (module == "psycopg" and names & _IO_NAMES):
            found.append(module)
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if (
                node.attr in _IO_CALLS
                or name in {f"psycopg.{each}" for each in _IO_NAMES}
                or name == "asyncio.Protocol"
            ):
                found.append(name)
    return found


def other_randomness(text: str) -> list[str]:
    """Generators that are neither the system's nor handed in: noise from them could be predicted."""
    found = [module for module, _ in imports(text) if module == "random" or module.startswith("numpy.random")]
    found += [f"{module}.random" for module, names in imports(text) if module == "numpy" and "random" in names]
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.Attribute) and dotted(node) in ("np.random", "numpy.random"):
            found.append(dotted(node))
    return found


def opens_exact_numbers(text: str) -> list[str]:
    """Uses of the one method that shows what was measured."""
    return [
        f"line {node.lineno}"
        for node in ast.walk(tree(text))
        if (isinstance(node, ast.Attribute) and node.attr == "open_for_release")
        or (isinstance(node, ast.Constant) and node.value in ("open_for_release", "_Exact__values"))
        or (isinstance(node, ast.Attribute) and node.attr == "_Exact__values")
    ]


def makes_receipts(text: str) -> list[str]:
    """Receipts come from the till, after the commit."""
    made = [name for name in calls(text) if name.split(".")[-1] == "Receipt"]
    return made + [
        node.attr for node in ast.walk(tree(text)) if isinstance(node, ast.Attribute) and node.attr == "_TILL"
    ]


def too_long(text: str) -> list[str]:
    lines = text.count("\n")
    return [f"{lines} lines"] if lines > _LONGEST else []


def _but(allowed: dict[str, set[str]], rule: Callable[[str], list[str]]) -> list[str]:
    """Files that break a rule and are not among those that may."""
    found = []
    for path in FILES:
        if path.name not in allowed.get(path.parts[len(ROOT.parts)], set()):
            found += [f"{path.relative_to(ROOT)}: {wrong}" for wrong in rule(path.read_text())]
    return found


def test_imports_go_down_the_staircase_only() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in FILES
        for module in climbs(path.parts[len(ROOT.parts)], path.read_text())
    ]
    assert not found


def test_the_room_of_numbers_knows_numbers_only() -> None:
    for path in (ROOT / "mechanisms").glob("*.py"):
        assert not not_for_numbers(path.read_text()), path.name


def test_the_world_is_touched_only_where_the_list_says() -> None:
    touching = {path.relative_to(ROOT).as_posix() for path in FILES if touches_the_world(path.read_text())}
    listed = {f"{package}/{name}" for package, names in IO.items() for name in names}
    assert not touching - listed, "these files touch the world and are not listed"
    assert not listed - touching, "these files have become pure: the list is documentation, and must be true"


def test_the_first_page_of_the_proxy_names_every_file_of_it() -> None:
    page = importlib.import_module("proxy").__doc__ or ""
    files = {path.stem for path in (ROOT / "proxy").glob("*.py")} - {"__init__"}
    assert not {name for name in files if not re.search(rf"\b{name}\b", page)}


def test_files_are_short() -> None:
    assert not _but({}, too_long)


def test_noise_comes_from_the_system_or_from_a_source_that_is_handed_in() -> None:
    # The demo's rows are made up, and the same for everybody: a seeded generator is what they need.
    assert not _but({"proxy": {"demo_data.py"}}, other_randomness)


def test_exact_numbers_are_opened_in_one_place() -> None:
    assert not _but({"mechanisms": {"release.py", "values.py"}}, opens_exact_numbers)
    assert len(opens_exact_numbers((ROOT / "mechanisms" / "release.py").read_text())) == 1


def test_receipts_are_made_by_the_ledger_alone() -> None:
    assert not _but({"provenance": {"ledger.py", "model.py"}}, makes_receipts)
    assert makes_receipts((ROOT / "provenance" / "ledger.py").read_text())


def _refusals() -> set[type[Refusal]]:
    for package in STAIRCASE:
        for module in pkgutil.iter_modules([str(ROOT / package)], f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found: set[type[Refusal]] = set()
    waiting = [Refusal]
    while waiting:
        new = {one for one in waiting.pop().__subclasses__() if one.__module__.split(".")[0] in STAIRCASE}
        found |= new
        waiting += new
    return found


def undocumented(refusals: set[type[Refusal]], page: str) -> list[str]:
    """Refusals without a SQLSTATE of their own or of a parent below the root, or with one that the page does not list.

    The page has one line for each module of refusals (``proxy.errors  08P01 28000``) or class (``BadSetting  22023``).
    """
    wrong = []
    for one in refusals:
        named = any("sqlstate" in vars(parent) for parent in one.__mro__ if parent not in Refusal.__mro__)
        lines = [line for line in page.splitlines() if re.search(rf"\b({one.__module__}|{one.__name__})\b", line)]
        if not named or not re.fullmatch(r"[0-9A-Z]{5}", one.sqlstate):
            wrong.append(f"{one.__name__} has no SQLSTATE")
        elif not any(one.sqlstate in line.split() for line in lines):
            wrong.append(f"{one.__module__}.{one.__name__} {one.sqlstate} is not on the page")
    return wrong


def test_every_refusal_has_a_sqlstate_and_stands_on_the_page() -> None:
    refusals = _refusals()
    assert len(refusals) > 15
    assert not undocumented(refusals, root_of_refusals.__doc__ or "")


def test_refusals_of_the_wire_stand_in_their_own_tree() -> None:
    page = importlib.import_module("proxy.errors").__doc__ or ""
    tree = dict(re.findall(r"(\w+) +([0-9A-Z]{5})\b", page))
    ours = {one.__name__: one.sqlstate for one in _refusals() if one.__module__ == "proxy.errors"}
    assert tree == ours


@pytest.mark.parametrize(
    ("rule", "planted", "innocent"),
    [
        (lambda t: climbs("mechanisms", t), "from proxy.server import Server", "from mechanisms.loss import Loss"),
        (lambda t: climbs("sqlrewrite", t), "import provenance.ledger", "import mechanisms.errors"),
        (lambda t: climbs("provenance", t), "def f():\n    from proxy import demo", "import sqlrewrite.catalog"),
        (not_for_numbers, "from datetime import datetime", "from decimal import Decimal"),
        (not_for_numbers, "import asyncio.events", "import os"),
        (touches_the_world, "import psycopg\npsycopg.connect('')", "import psycopg\nraise psycopg.Error"),
        (touches_the_world, "from psycopg import AsyncConnection", "from psycopg import sql"),
        (
            touches_the_world,
            "from psycopg_pool import AsyncConnectionPool",
            "from psycopg.conninfo import make_conninfo",
        ),
        (touches_the_world, "loop.create_server(f)", "loop.create_task(f())"),
        (touches_the_world, "class A(asyncio.Protocol): ...", "class A(Protocol): ..."),
        (touches_the_world, "import socket", "import struct"),
        (other_randomness, "import numpy as np\nnp.random.default_rng()", "import secrets"),
        (other_randomness, "from numpy import random", "from numpy import int64"),
        (other_randomness, "import random", "import os\nos.urandom(8)"),
        (opens_exact_numbers, "exact.open_for_release()", "exact.shape"),
        (opens_exact_numbers, "getattr(exact, 'open_for_release')()", "getattr(exact, 'shape')"),
        (opens_exact_numbers, "exact._Exact__values", "exact.values"),
        (makes_receipts, "model.Receipt(1, c, e, r, t)", "isinstance(r, Receipt)"),
        (makes_receipts, "x = model._TILL", "x = model.Charge"),
        (too_long, "\n" * 401, "\n" * 400),
    ],
)
def test_each_rule_sees_a_planted_violation(rule: Callable[[str], list[str]], planted: str, innocent: str) -> None:
    assert rule(planted)
    assert not rule(innocent)


def test_an_undocumented_refusal_is_seen() -> None:
    class Nameless(Refusal):
        pass

    class Hidden(Refusal):
        sqlstate = "0Z002"

    page = f"    ├── {Hidden.__name__}   0Z002"
    assert undocumented({Nameless}, f"{Nameless.__name__} XX000")
    assert undocumented({Hidden}, "") and not undocumented({Hidden}, page)
