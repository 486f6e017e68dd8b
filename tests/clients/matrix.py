"""The client matrix: which checks there are, which clients, and what each client makes of PostgreSQL's types.

Each client is a small program in ``agents/`` that is told the name of a check and answers what it saw; what must be
seen stands in ``test_client_matrix.py``, once for all of them. So a new client is one program and one line here.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proxy.embedded import LATEST, OLDEST, binaries

ROOT = Path(__file__).parents[2]
AGENTS = Path(__file__).parent / "agents"
DOWNLOADED = ROOT / ".clients"
"""npm packages and unpacked Debian packages (``make clients``)."""
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
DEBIAN = DOWNLOADED / "debian"
JARS = DEBIAN / "usr" / "share" / "java"

CHECKS: Mapping[str, str] = MappingProxyType(
    {
        "connect": "log in with SCRAM, and not with a wrong password",
        "tls": "TLS with verify-full, and not with a certificate of another",
        "binding": "SCRAM bound to the TLS channel (SCRAM-SHA-256-PLUS)",
        "direct": "TLS at once (sslnegotiation=direct)",
        "list": "list the tables, by the client's own means where it has them",
        "describe": "describe a table, likewise",
        "public": "query a public table",
        "decision": "a HAVING decision",
        "number": "counts and averages, with their types",
        "parameter": "a question with parameters; psql 15 and dbt write them into the text",
        "transaction": "a transaction with SAVEPOINT around a refusal",
        "error": "a refusal with its SQLSTATE (connectorx and dbt show its sentence only), and on",
        "notice": "the notice with the price",
        "pieces": "fetch a question in several round trips, as seen on the wire",
        "copy": "COPY (question) TO STDOUT, as seen on the wire",
        "pipeline": "several questions asked at once, in pipeline mode",
        "cancel": "cancel a long question, which stops on the protected database too",
        "reconnect": "go on after a restart of the proxy, by a pool or a new connection, and nothing is paid twice",
    }
)

SUPERSET = "Apache Superset"
SUPERSET_CHECKS: Mapping[str, str] = MappingProxyType(
    {
        "connect": "pgveil is added as a database, and not with a wrong password",
        "list": "the tables of the schema are listed",
        "describe": "a dataset on a protected table has its columns and their types",
        "public": "a chart over a public table shows its numbers",
        "chart": "a chart with GROUP BY and HAVING, and one with an average",
        "browser": "that chart is rendered in a browser (Chromium); its picture is kept",
        "repeat": "the same chart, computed again, shows the same numbers and costs nothing",
        "range": "a time range is a filter",
        "virtual": "a dataset that is a question",
        "lab": "SQL Lab answers a question",
        "refusal": "the sentence with which rows are refused reaches the person",
        "restart": "charts go on after a restart of the proxy, and nothing is paid twice",
    }
)

# Texts of one line and without double quotes: agents in languages without JSON read them with a regular expression.
# {1} and {2} stand for parameters.
SQL: Mapping[str, str] = MappingProxyType(
    {
        "public": "SELECT city, population FROM city WHERE region = 'northeast' ORDER BY city",
        "decision": "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5000 ORDER BY disease",
        "number": "SELECT gender, count(*) AS n, avg(age) AS mean FROM patient_data GROUP BY gender ORDER BY gender",
        "parameter": "SELECT disease FROM patient_data WHERE gender = {1} GROUP BY disease"
        " HAVING count(*) > {2} ORDER BY disease",
        "refused": "SELECT * FROM orders",
        "many": "SELECT disease, count(*) AS n FROM patient_data GROUP BY disease ORDER BY disease",
        "long": "SELECT disease_type, count(*) AS n FROM patient_data GROUP BY disease_type ORDER BY disease_type",
    }
)


@dataclass(frozen=True, eq=False)
class Client:
    """One client: how its agent is started, and what it is known to make of things."""

    name: str
    command: tuple[str, ...]
    types: tuple[str, str, str] = ("str", "int", "Decimal")
    """What it calls text, bigint and numeric."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Checks that fail by pgveil's fault; the tests turn red when one is mended."""
    partly: Mapping[str, str] = field(default_factory=dict)
    """Checks of which only a part is done, and why."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Path | str, ...] = ()
    """Files and programs without which the client cannot run here."""

    @property
    def missing(self) -> str | None:
        """Why the client cannot run on this machine."""
        for need in self.needs:
            if isinstance(need, Path) and not need.exists():
                where = need.relative_to(ROOT) if need.is_relative_to(ROOT) else need
                return f"{where} is not there (make clients)"
            if isinstance(need, str) and shutil.which(need) is None:
                return f"no {need} on this machine"
        return None


def _python(name: str, agent: str, *arguments: str, **more: Any) -> Client:
    """A client from PyPI."""
    return Client(name, (str(PYTHON), str(AGENTS / agent), *arguments), needs=(PYTHON,), **more)


def _psql(name: str, program: Path) -> Client:
    command = (sys.executable, str(AGENTS / "client_psql.py"), str(program))
    return Client(name, command, ("text", "text", "text"), needs=(program,))


_DRIVER = next(DEBIAN.glob("usr/lib/*/odbc/psqlodbcw.so"), DEBIAN / "usr" / "lib" / "odbc" / "psqlodbcw.so")
_LIBRARIES = f"{_DRIVER.parents[1]}:{os.environ.get('LD_LIBRARY_PATH', '')}"
_STUBBORN = {
    "connect": "a wrong password is not tried: it knocks for half a minute",
    "tls": "sslmode=require with a root certificate; that of another is not tried, for the same reason",
}
_NAMELESS = (
    "asyncpg has no ALPN of its own, which PostgreSQL and pgveil ask for: the program says"
    " ssl_context.set_alpn_protocols(['postgresql']), and then it works"
)
_ADBC_NUMERIC = "extension<arrow.opaque[storage_type=string, type_name=numeric, vendor_name=PostgreSQL]>"

CLIENTS = (
    _psql("psql 15", Path(shutil.which("psql") or "/usr/bin/psql")),
    _psql("psql 16", binaries(OLDEST) / "psql"),
    _psql("psql 18", binaries(LATEST) / "psql"),
    _python("psycopg 3 (text)", "client_psycopg.py", "text"),
    _python("psycopg 3 (binary)", "client_psycopg.py", "binary"),
    _python("psycopg2", "client_psycopg2.py"),
    _python("asyncpg", "client_asyncpg.py", partly={"direct": _NAMELESS}),
    _python("pg8000", "client_pg8000.py"),
    _python("SQLAlchemy", "client_sqlalchemy.py"),
    _python("pandas.read_sql", "client_pandas.py", types=("str", "int64", "float64")),
    _python("pgcli", "client_pgcli.py", types=("text", "text", "text")),
    _python("ADBC", "client_adbc.py", types=("string", "int64", _ADBC_NUMERIC)),
    _python(
        "connectorx",
        "client_connectorx.py",
        types=("string", "int64", "decimal128(38, 10)"),
        partly=_STUBBORN,
    ),
    _python("dbt-postgres", "client_dbt.py"),
    Client(
        "node pg",
        ("node", str(AGENTS / "client_pg.mjs"), str(DOWNLOADED / "npm")),
        ("string", "string", "string"),
        needs=("node", DOWNLOADED / "npm" / "node_modules" / "pg"),
    ),
    Client(
        "postgres.js",
        ("node", str(AGENTS / "client_postgresjs.mjs"), str(DOWNLOADED / "npm")),
        ("string", "string", "string"),
        needs=("node", DOWNLOADED / "npm" / "node_modules" / "postgres"),
    ),
    Client(
        "JDBC",
        ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(AGENTS / "ClientJdbc.java")),
        ("String", "Long", "BigDecimal"),
        needs=("java", JARS / "postgresql.jar"),
    ),
    Client(
        "ODBC",
        (str(PYTHON), str(AGENTS / "client_odbc.py"), str(_DRIVER)),
        environment={"LD_LIBRARY_PATH": _LIBRARIES},
        needs=(PYTHON, _DRIVER),
    ),
)
