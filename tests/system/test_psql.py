"""psql, old and new: what does not concern protected rows looks as if it were connected to the shadow itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst
from psycopg.conninfo import conninfo_to_dict

from proxy import demo
from proxy.embedded import LATEST, OLDEST, binaries

HAVING = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5000"
PSQLS = [binaries(OLDEST) / "psql", binaries(LATEST) / "psql", Path(shutil.which("psql") or "")]


def psql(where: dict[str, str], script: str, *arguments: str, program: Path = PSQLS[0]) -> str:
    """Everything that psql prints, errors included, in order."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PG")},
        **{f"PG{name.upper()}": value for name, value in where.items()},
        "PGSSLMODE": "disable",
        "LC_ALL": "C.UTF-8",
        "PSQL_HISTORY": os.devnull,
        "PSQL_PAGER": "",
    }
    done = subprocess.run(
        [str(program), "-X", "-v", "VERBOSITY=verbose", *arguments],
        input=script,
        env=environment,
        text=True,
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
        check=False,
    )
    return done.stdout


def through(proxy: Proxy, user: str) -> dict[str, str]:
    return {"host": "127.0.0.1", "port": str(proxy.port), "database": proxy.database, "user": user, "password": user}


@pytest.fixture
def veiled(proxy: Proxy, analyst: str) -> dict[str, str]:
    """How psql reaches the proxy as a fresh analyst."""
    return through(proxy, analyst)


@pytest.fixture
def direct(proxy: Proxy, analyst: str, shadow_server) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """How psql reaches, past the proxy, the shadow database of the same analyst."""
    with proxy.connect(analyst) as conn:
        (database,) = conn.execute("SELECT current_database()").fetchone() or ("",)
    place = conninfo_to_dict(shadow_server.admin_dsn)
    return {"host": str(place["host"]), "port": str(place["port"]), "database": str(database), "user": analyst}


FAMILY = r"""
\d
\d+
\dS+ pg_namespace
\d orders
\d+ patient_data
\d+ city
\d+ orders_pkey
\da veil.*
\dA
\dA+
\dAc btree text
\dAf btree text
\dAo btree text_ops
\dAp btree text_ops
\db
\dc
\dC veil*
\dconfig veil.*
\dd
\dD
\ddp
\dE+
\des
\det
\deu
\dew
\df veil.*
\df+ veil.low
\dF
\dFd
\dFp
\dFt
\dg
\di
\di+
\dl
\dL
\dm+
\dn
\dn+
\do veil.*
\dO
\dp
\dP+
\drds
\drg
\dRp
\dRs
\ds+
\dt
\dt+
\dt+ *.*orders*
\dT
\dT+
\du
\dv+ veil.*
\dx
\dX
\dy
\l
\lo_list
\sf veil.low(bigint)
\sv veil.budget
\z
\z orders
"""
"""psql's whole \\d family; what one psql does not know yet is an error of its own, with and without pgveil."""

NATIVE = (
    r"""
\set VERBOSITY default
"""
    + FAMILY
    + r"""
\conninfo_is_another_matter
SHOW veil.beta;
SELECT version();
SELECT current_user, session_user, current_database();
SELECT 1; SELECT 2;
SELECT 1\; SELECT 2;
SELECT 1 AS "Ä", NULL, 'it''s', E'tab\there', $$dollar;$$;
BEGIN;
SAVEPOINT a;
SELECT 1/0;
SELECT 1;
ROLLBACK TO a;
SELECT 'again';
COMMIT;
ROLLBACK;
SELECT * FROM city ORDER BY city;
TABLE ward;
SELECT c.region, count(*) FROM city c GROUP BY 1 ORDER BY 2 DESC, 1;
SELECT reltuples, relpages FROM pg_class WHERE relname IN ('patient_data', 'orders', 'adult');
SELECT * FROM pg_stats WHERE tablename IN ('patient_data', 'orders', 'adult');
SELECT pg_table_size('orders');
SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'orders' ORDER BY ordinal_position;
SELECT city, population FROM city WHERE region = $1 ORDER BY 1 \bind northeast \g
SELECT population FROM city \gdesc
SELECT 'city' AS t, count(*) AS n FROM city \gset
\echo :t :n
\copy city to stdout
CREATE TEMP TABLE mine (a int, b text);
\copy mine from stdin
1	one
2	two
\.
COPY mine FROM STDIN;
3	three
\.
COPY mine FROM STDIN\; SELECT count(*) FROM mine\; COPY mine FROM STDIN;
4	four
\.
5	five
\.
TABLE mine;
COPY mine TO STDOUT;
\d mine
COPY mine FROM STDIN;
six	six
\.
DO $$ BEGIN RAISE NOTICE 'noticed'; END $$;
PREPARE p(int) AS SELECT $1 + 1;
EXECUTE p(1);
DECLARE c CURSOR FOR TABLE city;
BEGIN;
DECLARE c CURSOR FOR SELECT city FROM city ORDER BY 1;
FETCH 2 FROM c;
MOVE 3 FROM c;
FETCH BACKWARD 1 FROM c;
END;
EXPLAIN (COSTS OFF) SELECT * FROM city;
LISTEN here;
NOTIFY here, 'hello';
SET TimeZone = 'Asia/Tokyo';
SHOW TimeZone;
RESET ALL;
SELECT nosuch FROM city;
SELECT 'wrong
 type'::int;
CREATE TABLE denied (a int);
DELETE FROM city;
SELECT 1 FROM nosuch.relation;
\errverbose
"""
)


@pytest.mark.parametrize("program", PSQLS, ids=["16", "18", "system"])
def test_a_session_looks_like_one_on_postgresql(
    veiled: dict[str, str], direct: dict[str, str], program: Path, analyst: str
) -> None:
    if not program.is_file():
        pytest.skip("no psql is installed on this system")

    def tidy(text: str) -> str:
        return re.sub(r"(with PID |pg_temp_)\d+", r"\1n", text)

    seen, native = (tidy(psql(where, NATIVE, program=program)) for where in (veiled, direct))
    assert seen == native
    assert "orders" in native and "(43 rows)" in native and analyst in native and "noticed" in native


@pytest.mark.parametrize("program", PSQLS, ids=["16", "18", "system"])
def test_the_tables_of_the_demo_are_described_with_keys_types_and_comments(
    veiled: dict[str, str], program: Path
) -> None:
    if not program.is_file():
        pytest.skip("no psql is installed on this system")
    said = psql(veiled, "\\dt+\n" + "".join(f"\\d+ {table.name}\n" for table in demo.TABLES), program=program)
    for table in demo.TABLES:
        assert re.search(rf" public +\| {table.name} +\| table .*\| {re.escape(table.comment)} *$", said, re.MULTILINE)
        (shown,) = re.findall(rf'Table "public\.{table.name}"\n(.*?)(?=\n +Table "|\Z)', said, re.DOTALL)
        for column in table.columns:
            line = rf" {column.name} +\| {re.escape(column.type)} .*\| {re.escape(column.comment)} *$"
            assert re.search(line, shown, re.MULTILINE), column
        for constraint in table.constraints:
            kind, columns = re.findall(r"(PRIMARY|FOREIGN) KEY \((\w+)\)", constraint)[0]
            wanted = {"PRIMARY": f"PRIMARY KEY, btree ({columns})", "FOREIGN": f"FOREIGN KEY ({columns}) REFERENCES"}
            assert wanted[kind] in shown, shown
    sizes = re.findall(r"\| ([0-9]+ (?:bytes|[kMG]B)) ", said)
    private = [table.name for table in demo.TABLES if table.size_hint is not None]
    lines = [line for line in said.splitlines() if any(f" {name} " in line and "| table" in line for name in private)]
    assert len(sizes) >= len(demo.TABLES) and len(lines) == len(private)
    assert all(re.search(r"\| (0 bytes|8192 bytes) ", line) for line in lines), lines  # an empty table, and its TOAST


def test_rows_are_refused_with_a_hint(veiled: dict[str, str]) -> None:
    said = psql(veiled, "SELECT * FROM patient_data;\nSELECT 'goes on';")
    assert (
        "ERROR:  42501: SELECT * would show private rows\nLINE 1: SELECT * FROM patient_data;\n               ^" in said
    )
    assert "HINT:  ask for counts" in said and "goes on" in said


def test_the_position_of_an_error_is_counted_from_the_start_of_the_script(veiled: dict[str, str]) -> None:
    for statement, place in (("SELECT * FROM patient_data", "*"), ("SELECT nosuch FROM patient_data", "nosuch")):
        script = rf"SELECT 1\; SELECT 'ä'\; {statement};"
        said = psql(veiled, script).splitlines()
        (line,) = [n for n, text in enumerate(said) if text.startswith("LINE 1: ")]
        assert said[line][said[line + 1].index("^") :].startswith(place)


def test_timing_and_the_price_are_shown(veiled: dict[str, str]) -> None:
    said = psql(veiled, f"\\timing\n{HAVING};\nSELECT 1;")
    assert said.count("Time: ") == 2
    assert "NOTICE:  00000: veil: cert spent epsilon" in said and 'DETAIL:  {"question": ' in said
    assert "influenza" in said


def test_asking_again_and_again_is_free(veiled: dict[str, str], proxy: Proxy, analyst: str) -> None:
    said = psql(veiled, f"{HAVING} \\watch i=0.1 c=4\n", program=PSQLS[1])
    assert said.count("influenza") == 4 and said.count("at no cost") == 3
    assert len(charges(proxy.upstream, analyst)) == 1


def test_describing_a_question_is_free(veiled: dict[str, str], proxy: Proxy, analyst: str) -> None:
    said = psql(veiled, "SELECT disease, count(*) AS n FROM patient_data GROUP BY disease \\gdesc\n")
    assert re.search(r"disease\s+\| text", said) and re.search(r"n\s+\| bigint", said)
    assert charges(proxy.upstream, analyst) == []


def test_a_question_takes_parameters(veiled: dict[str, str], proxy: Proxy, analyst: str) -> None:
    text = "SELECT disease FROM patient_data WHERE gender = $1 GROUP BY disease HAVING count(*) > $2"
    said = psql(veiled, f"{text} \\bind female 2000 \\g\n", program=PSQLS[1])
    assert "influenza" in said and len(charges(proxy.upstream, analyst)) == 1


def test_a_script_mixes_questions_with_other_statements(veiled: dict[str, str], proxy: Proxy, analyst: str) -> None:
    script = [
        "CREATE TEMP TABLE t (a int)",
        "TABLE ward LIMIT 1",
        HAVING,
        "COPY t FROM STDIN",
        "SELECT sum(a) AS total FROM t",
        HAVING.lower(),
        "SELECT 'end; of script'",
    ]
    said = psql(veiled, r"\; ".join(script) + ";\n40\n2\n\\.\n")
    order = ["CREATE TABLE", "capacity", "influenza", "COPY 2", "total", "42", "influenza", "end; of script"]
    at = 0
    for mark in order:
        at = said.index(mark, at) + len(mark)
    assert "ERROR" not in said and len(charges(proxy.upstream, analyst)) == 1


def test_a_script_is_one_transaction(veiled: dict[str, str], proxy: Proxy, analyst: str) -> None:
    script = rf"CREATE TEMP TABLE t AS SELECT 1 AS one\; {HAVING}\; SELECT * FROM orders\; SELECT 'not reached';"
    said = psql(veiled, f"{script}\nTABLE t;\n")
    assert "influenza" in said and "ERROR:  42501" in said and "not reached" not in said
    assert 'ERROR:  42P01: relation "t" does not exist' in said
    assert len(charges(proxy.upstream, analyst)) == 1  # what was answered stays paid


def test_a_copy_that_fails_inside_a_script_ends_it(veiled: dict[str, str]) -> None:
    script = rf"{HAVING}\; COPY t FROM STDIN\; SELECT 'not reached';"
    said = psql(veiled, f"CREATE TEMP TABLE t (a int);\n{script}\none\n\\.\nSELECT 'goes ' || 'on';\n")
    assert "ERROR:  22P02" in said and "not reached" not in said and "goes on" in said


def test_transactions_fail_and_recover_as_in_postgresql(veiled: dict[str, str]) -> None:
    # %x in the prompt is the status byte: * in a transaction, ! in a failed one.
    steps = [
        "BEGIN",
        HAVING,
        "SAVEPOINT s",
        "SELECT * FROM orders",
        "SELECT 1",
        HAVING,
        "ROLLBACK TO s",
        HAVING,
        "COMMIT",
    ]
    said = psql(veiled, "\n".join(f"\\echo {n}\n{step};" for n, step in enumerate(steps)))
    parts = re.split(r"^\d\n", said, flags=re.MULTILINE)[1:]
    assert "BEGIN" in parts[0] and "influenza" in parts[1] and "SAVEPOINT" in parts[2]
    assert "42501" in parts[3] and "25P02" in parts[4] and "25P02" in parts[5]
    assert "ROLLBACK" in parts[6] and "influenza" in parts[7] and "COMMIT" in parts[8]


def test_a_temporary_table_may_bear_a_protected_name(veiled: dict[str, str], proxy: Proxy, analyst: str) -> None:
    said = psql(
        veiled,
        "CREATE TEMP TABLE orders (a int);\nCOPY orders FROM STDIN;\n7\n\\.\nTABLE orders;\n"
        "EXPLAIN (COSTS OFF) TABLE orders;\nDROP TABLE orders;\nTABLE orders;\n",
    )
    assert "COPY 1" in said and "(1 row)" in said and "Seq Scan on orders" in said
    assert said.count("ERROR") == 1 and "42501" in said
    assert charges(proxy.upstream, analyst) == []


def value_of(where: dict[str, str], script: str, *arguments: str) -> list[str]:
    return psql(where, script, "-At", *arguments).splitlines()


def test_settings_are_settings(veiled: dict[str, str]) -> None:
    script = """
        SHOW veil.beta; SET veil.beta = 0.2; SHOW veil.beta;
        BEGIN; SET LOCAL veil.beta = 0.3; SHOW veil.beta; COMMIT; SHOW veil.beta;
        BEGIN; SET veil.beta = 0.4; SHOW veil.beta; ROLLBACK; SHOW veil.beta;
        RESET veil.beta; SHOW veil.beta; SELECT set_config('veil.beta', '0.6', false); RESET ALL; SHOW veil.beta;
    """
    shown = [line for line in value_of(veiled, script) if line[0].isdigit()]
    assert shown == ["0.05", "0.2", "0.3", "0.2", "0.4", "0.2", "0.05", "0.6", "0.05"]


def betas(said: str) -> list[float]:
    return [float(found) for found in re.findall(r'"beta": ([\d.]+), "alpha"', said)]


def test_a_question_sees_the_settings_of_its_transaction(veiled: dict[str, str]) -> None:
    script = f"""
        {HAVING}; SET veil.beta = 0.2; {HAVING};
        BEGIN; SET LOCAL veil.beta = 0.3; {HAVING}; ROLLBACK; {HAVING};
        SET veil.beta = 0.4\\; {HAVING};
    """
    assert betas(psql(veiled, script)) == [0.05, 0.2, 0.3, 0.2, 0.4]


def test_settings_come_with_the_startup_options(veiled: dict[str, str]) -> None:
    said = psql(
        {**veiled, "options": "-c veil.beta=0.11"}, f"{HAVING}; SET veil.beta = 0.2; RESET veil.beta; {HAVING};"
    )
    assert betas(said) == [0.11, 0.11]


def test_an_analyst_has_defaults_that_startup_options_override(proxy: Proxy, upstream: str) -> None:
    where = through(proxy, new_analyst(upstream, beta="0.15"))
    assert betas(psql(where, f"{HAVING}; SET veil.beta = 0.2; RESET veil.beta; {HAVING};")) == [0.15, 0.15]
    assert betas(psql({**where, "options": "-c veil.beta=0.12"}, f"{HAVING};")) == [0.12]


@pytest.mark.parametrize(
    "setting",
    [
        *("veil.colour = 'blue'", "veil.beta = 'small'", "veil.beta = 0", "veil.beta = 1", "veil.beta = 'NaN'"),
        *("veil.margin = '-5u'", "veil.mechanism = 'magic'", "veil.raw = 'perhaps'", "veil.epsilon = '-1'"),
    ],
)
def test_a_bad_setting_is_told_at_the_next_question_and_costs_nothing(
    veiled: dict[str, str], proxy: Proxy, analyst: str, setting: str
) -> None:
    name = setting.split()[0]
    said = psql(veiled, f"SET {setting};\nSELECT 'still here';\n{HAVING};\nRESET {name};\n{HAVING};")
    assert said.count("ERROR") == 1 and "ERROR:  22023" in said and "still here" in said
    assert said.index("22023") < said.index("influenza")
    assert len(charges(proxy.upstream, analyst)) == 1


def test_an_unknown_setting_in_the_startup_options_is_told_too(
    veiled: dict[str, str], proxy: Proxy, analyst: str
) -> None:
    said = psql({**veiled, "options": "-c veil.colour=blue"}, f"SELECT 1;\n{HAVING};")
    assert "ERROR:  22023" in said and charges(proxy.upstream, analyst) == []


def test_nothing_of_the_data_shows_in_the_catalogs(upstream: str, veiled: dict[str, str]) -> None:
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("ANALYZE patient_data")
    assert value_of(veiled, "SELECT reltuples, relpages FROM pg_class WHERE relname = 'patient_data'") == ["-1|0"]
    assert value_of(veiled, "SELECT count(*) FROM pg_stats WHERE tablename = 'patient_data'") == ["0"]
