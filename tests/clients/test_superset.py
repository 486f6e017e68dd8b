"""Apache Superset, started for real: pgveil as a database, a dataset on a protected table, charts, SQL Lab."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from matrix import AGENTS, DOWNLOADED, SUPERSET
from outcomes import Outcomes
from proxies import Proxy, charges, new_analyst, start_proxy

PYTHON = DOWNLOADED / "superset" / "bin" / "python"
CHROMIUM = shutil.which("chromium")
PICTURES = os.environ.get("PGVEIL_CLIENT_PICTURES", "")
pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="Superset is not installed (make clients)"),
]


Seen = Callable[..., AbstractContextManager[None]]

LOGIN = """<body onload="document.forms[0].submit()"><form method="post" action="{}/login/?next={}">
<input name="username" value="admin"><input name="password" value="admin"></form></body>"""


class Superset:
    """Its REST API, and its pages."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.headers = {"Content-Type": "application/json"}

    def ask(self, path: str, body: Any = None) -> Any:
        """GET, or POST with a body; an error of Superset is an answer too."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self.headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, "said": error.read().decode()}

    def log_in(self) -> None:
        who = {"username": "admin", "password": "admin", "provider": "db"}
        token = self.ask("/api/v1/security/login", who)["access_token"]
        self.headers["Authorization"] = f"Bearer {token}"

    @staticmethod
    def named(proxy: Proxy, analyst: str, password: str) -> dict[str, str]:
        place = f"127.0.0.1:{proxy.port}/{proxy.database}?sslmode=disable"
        return {"database_name": analyst, "sqlalchemy_uri": f"postgresql+psycopg2://{analyst}:{password}@{place}"}

    def add_database(self, proxy: Proxy, analyst: str) -> int:
        named = self.named(proxy, analyst, analyst)
        assert self.ask("/api/v1/database/test_connection/", named) == {"message": "OK"}
        return int(self.ask("/api/v1/database/", {**named, "expose_in_sqllab": True})["id"])

    def browse(self, path: str, picture: Path, folder: Path) -> str:
        """The page as a browser shows it: its picture, and what its scripts have made of it at that moment."""
        door = folder / "login.html"
        door.write_text(LOGIN.format(self.base, urllib.parse.quote(path)))
        quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")
        patient = (f"--user-data-dir={folder / 'browser'}", "--window-size=1000,700", "--virtual-time-budget=60000")
        command = [str(CHROMIUM), *quiet, *patient, f"--screenshot={picture}", "--dump-dom", door.as_uri()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return process.communicate(timeout=60)[0].decode()
        except subprocess.TimeoutExpired:  # a browser in virtual time may wait for ever for a request that stays open
            return ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def chart(self, dataset: int, **query: Any) -> Any:
        whole = {"filters": [], "orderby": [], "row_limit": 1000, "extras": {}, **query}
        asked = {"datasource": {"id": dataset, "type": "table"}, "queries": [whole], "result_format": "json"}
        found = self.ask("/api/v1/chart/data", {**asked, "result_type": "full", "force": True})
        return found["result"][0] if "result" in found else found


@pytest.fixture(scope="module")
def superset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Superset]:
    folder = tmp_path_factory.mktemp("superset")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / "log"
    with log.open("w") as said:
        command = [str(PYTHON), str(AGENTS / "superset_server.py"), str(port)]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
    try:
        found = Superset(port)
        until = time.monotonic() + 600
        while True:
            assert process.poll() is None and time.monotonic() < until, log.read_text()[-4000:]
            try:
                found.log_in()
                break
            except OSError:
                time.sleep(0.5)
        yield found
    finally:
        process.terminate()
        process.wait(30)


def _count(label: str) -> dict[str, str]:
    return {"expressionType": "SQL", "sqlExpression": "COUNT(*)", "label": label}


@pytest.fixture(scope="module")
def seen(outcomes: Outcomes) -> Seen:
    """Notes what came of a check."""
    asked = [str(PYTHON), "-c", "from importlib.metadata import version; print(version('apache-superset'))"]
    outcomes.versions[SUPERSET] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    @contextmanager
    def noting(*checks: str) -> Iterator[None]:
        for check in checks:
            outcomes.note(SUPERSET, check, "no", "failed in this run")
        yield
        for check in checks:
            outcomes.note(SUPERSET, check, "yes")

    return noting


@dataclass(frozen=True)
class Dataset:
    """Who asks, and the number of the dataset on orders."""

    analyst: str
    id: int


@pytest.fixture(scope="module")
def orders(superset: Superset, proxy: Proxy, upstream: str, seen: Seen) -> Dataset:
    """A database and a dataset, which cost nothing; Superset takes a second dataset on a table of that name amiss."""
    analyst = new_analyst(upstream)
    with seen("connect", "list", "describe"):
        refused = superset.ask("/api/v1/database/test_connection/", superset.named(proxy, analyst, "wrong"))
        assert refused["status"] >= 400 and "OK" not in refused["said"], refused
        database = superset.add_database(proxy, analyst)
        tables = superset.ask(f"/api/v1/database/{database}/tables/?q=(schema_name:public)")["result"]
        assert {one["value"] for one in tables} == {"adult", "city", "orders", "patient_data", "ward"}
        made = superset.ask("/api/v1/dataset/", {"database": database, "schema": "public", "table_name": "orders"})
        assert "id" in made, made
        columns = {one["column_name"]: one["type"] for one in made["data"]["columns"]}
        assert columns["region"] == "TEXT" and columns["ordered_on"] == "DATE" and len(columns) == 7
        assert charges(upstream, analyst) == []
    return Dataset(analyst, made["id"])


LARGE: dict[str, Any] = {
    "columns": ["region"],
    "metrics": [_count("n")],
    "extras": {"having": "COUNT(*) > 20000"},
}


def test_a_chart_is_answered_and_costs_nothing_again(
    superset: Superset, orders: Dataset, upstream: str, seen: Seen
) -> None:
    with seen("chart"):
        chart = superset.chart(orders.id, **LARGE)
        assert chart["status"] == "success" and chart["colnames"] == ["region", "n"], chart
        assert {"northeast", "midwest"} <= {row["region"] for row in chart["data"]}
        amount = {"expressionType": "SIMPLE", "column": {"column_name": "amount"}, "aggregate": "AVG", "label": "mean"}
        means = superset.chart(orders.id, columns=["category"], metrics=[amount])
        assert means["status"] == "success" and len(means["data"]) == 5, means
    with seen("repeat"):
        paid = len(charges(upstream, orders.analyst))
        assert paid > 0
        again = superset.chart(orders.id, **LARGE)
        assert again["data"] == chart["data"] and len(charges(upstream, orders.analyst)) == paid


def test_rows_are_refused_with_a_sentence(superset: Superset, orders: Dataset, seen: Seen) -> None:
    with seen("refusal"):
        rows = superset.chart(orders.id, columns=["order_id", "amount"], metrics=None)
        assert "private rows" in json.dumps(rows)


def test_a_public_table_is_charted(superset: Superset, proxy: Proxy, upstream: str, seen: Seen) -> None:
    with seen("public"):
        database = superset.add_database(proxy, new_analyst(upstream))
        made = superset.ask("/api/v1/dataset/", {"database": database, "schema": "public", "table_name": "city"})
        assert "id" in made, made
        people = {"column": {"column_name": "population"}, "expressionType": "SIMPLE", "aggregate": "SUM", "label": "n"}
        chart = superset.chart(made["id"], columns=["region"], metrics=[people])
        with psycopg.connect(upstream) as conn:
            truth = dict(conn.execute("SELECT region, sum(population) FROM city GROUP BY region").fetchall())
        assert {row["region"]: row["n"] for row in chart["data"]} == truth


def test_sql_lab_answers_a_question(superset: Superset, proxy: Proxy, upstream: str, seen: Seen) -> None:
    with seen("lab"):
        analyst = new_analyst(upstream)
        asked = {"database_id": superset.add_database(proxy, analyst), "schema": "public", "client_id": "pgveil00001"}
        text = "SELECT region, count(*) AS n FROM orders GROUP BY region"
        found = superset.ask("/api/v1/sqllab/execute/", {**asked, "sql": text, "runAsync": False})
        assert found.get("status") == "success" and len(found["data"]) == 7, found
        assert len(charges(upstream, analyst)) == 1


def _virtual(superset: Superset, database: int, name: str, text: str) -> Any:
    return superset.ask("/api/v1/dataset/", {"database": database, "schema": "public", "table_name": name, "sql": text})


def test_a_virtual_dataset_is_a_question(superset: Superset, proxy: Proxy, upstream: str, seen: Seen) -> None:
    with seen("virtual"):
        database = superset.add_database(proxy, new_analyst(upstream))
        text = "SELECT region, category, count(*) AS n FROM orders GROUP BY region, category"
        made = _virtual(superset, database, "by region", text)
        assert {one["column_name"] for one in made["data"]["columns"]} == {"region", "category", "n"}, made
        total = {"expressionType": "SIMPLE", "column": {"column_name": "n"}, "aggregate": "SUM", "label": "total"}
        chart = superset.chart(made["id"], columns=["region"], metrics=[total])
        assert chart["status"] == "success" and len(chart["data"]) == 7, chart


def test_a_time_range_is_a_filter(superset: Superset, orders: Dataset, seen: Seen) -> None:
    with seen("range"):
        between = [{"col": "ordered_on", "op": "TEMPORAL_RANGE", "val": "2025-02-01 : 2025-04-01"}]
        chart = superset.chart(orders.id, columns=["region"], metrics=[_count("n")], filters=between)
        assert chart.get("status") == "success" and len(chart["data"]) == 7, chart


def test_charts_go_on_after_a_restart(
    superset: Superset, upstream: str, shadow_server, tmp_path: Path, seen: Seen
) -> None:  # type: ignore[no-untyped-def]
    with seen("restart"):
        analyst = new_analyst(upstream)
        log = tmp_path / "proxy.log"
        proxy = start_proxy(upstream, shadow_server.admin_dsn, log)
        try:
            database = superset.add_database(proxy, analyst)
            text = "SELECT region, count(*) AS n FROM orders GROUP BY region HAVING count(*) > 20000"
            made = _virtual(superset, database, "large regions", text)
            total = {"expressionType": "SIMPLE", "column": {"column_name": "n"}, "aggregate": "SUM", "label": "total"}
            large = {"columns": ["region"], "metrics": [total]}
            before = superset.chart(made["id"], **large)
            paid = charges(upstream, analyst)
            assert before["status"] == "success" and len(paid) > 0, before
            proxy.stop()
            proxy = start_proxy(upstream, shadow_server.admin_dsn, log, options=("--listen", f"127.0.0.1:{proxy.port}"))
            assert superset.chart(made["id"], **large)["data"] == before["data"]
            assert charges(upstream, analyst) == paid
        finally:
            proxy.stop()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.skipif(
    not PICTURES, reason="a browser takes its time: PGVEIL_CLIENT_PICTURES names a folder for the picture"
)
def test_the_chart_is_seen_in_a_browser(superset: Superset, orders: Dataset, tmp_path: Path, seen: Seen) -> None:
    """GROUP BY and HAVING as a chart, rendered; the picture is kept."""
    with seen("browser"):
        _picture(superset, orders, tmp_path)


def _picture(superset: Superset, orders: Dataset, folder: Path) -> None:
    having = {"clause": "HAVING", "expressionType": "SQL", "sqlExpression": "COUNT(*) > 20000"}
    form = {
        "datasource": f"{orders.id}__table",
        "viz_type": "table",
        "query_mode": "aggregate",
        "groupby": ["region"],
        "metrics": [_count("orders in all")],
        "adhoc_filters": [having],
        "row_limit": 1000,
    }
    named = {"slice_name": "Large regions", "viz_type": "table", "datasource_id": orders.id, "datasource_type": "table"}
    made = superset.ask("/api/v1/chart/", {**named, "params": json.dumps(form)})
    picture = Path(PICTURES) / "superset.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    page = ""
    for turn in range(8):  # it may take its picture before the chart is drawn
        place = folder / str(turn)
        place.mkdir()
        page = superset.browse(f"/explore/?slice_id={made['id']}&standalone=1", picture, place)
        if "northeast" in page:
            break
    assert "northeast" in page and "orders in all" in page, page[-4000:]
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
