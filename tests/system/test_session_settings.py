"""What a session says about how it wants its answers: those to questions follow it as PostgreSQL's own do."""

from __future__ import annotations

import psycopg
import pytest
from proxies import Proxy, charges
from raw_wire import Wire

from proxy import messages as m

DAYS = "SELECT ordered_on, count(*) AS n FROM orders WHERE ordered_on <= '2025-01-03' GROUP BY ordered_on ORDER BY 1"
MONTHS = "SELECT date_trunc('month', ordered_on) AS month, count(*) AS n FROM orders GROUP BY 1 ORDER BY 1"


def column(frames: list[tuple[int, bytes]], at: int = 0) -> list[bytes | None]:
    """One column of the rows, as the bytes that came."""
    return [m.decode_data_row(frame)[at] for kind, frame in frames if kind == m.DATA_ROW]


@pytest.fixture
def wire(proxy: Proxy, analyst: str):  # type: ignore[no-untyped-def]
    with Wire(proxy.port) as one:
        yield one.login(analyst, proxy.database)


@pytest.mark.parametrize(
    ("style", "first"), [("ISO, DMY", b"2025-01-01"), ("SQL, DMY", b"01/01/2025"), ("German", b"01.01.2025")]
)
def test_dates_are_written_in_the_style_of_the_session(wire: Wire, style: str, first: bytes) -> None:
    wire.query(f"SET DateStyle TO '{style}'")
    native = column(wire.query("SELECT date '2025-01-01' + i FROM generate_series(0, 2) i"))
    assert column(wire.query(DAYS)) == native and native[0] == first


def test_dates_are_read_in_the_style_of_the_session(proxy: Proxy, analyst: str) -> None:
    """As a parameter; in the text of a question only what every style reads alike is taken."""
    text = "SELECT ordered_on FROM orders WHERE ordered_on < {} GROUP BY ordered_on"
    with proxy.connect(analyst, options="-c datestyle=iso,mdy") as conn:
        assert len(conn.execute(text.format("%s"), ("02/03/2025",)).fetchall()) == 33  # up to the second of February
        conn.execute("SET DateStyle = 'ISO, DMY'")
        assert len(conn.execute(text.format("%s"), ("02/03/2025",)).fetchall()) == 60  # up to the first of March
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            conn.execute(text.format("'02/03/2025'"))
        assert "parameter" in (refused.value.diag.message_hint or "")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("startup", [False, True])
def test_moments_are_those_of_the_session_s_time_zone(proxy: Proxy, analyst: str, zone: str, startup: bool) -> None:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database, **({"TimeZone": zone} if startup else {}))
        if not startup:
            wire.query(f"SET TimeZone = '{zone}'")
        moment = "(date '2025-01-01' + make_interval(months => i))::timestamptz"
        native = column(wire.query(f"SELECT {moment} FROM generate_series(0, 11) i"))
        found = column(wire.query(MONTHS))
        assert found == native and len(found) == 12
        assert (found[0] or b"")[-3:] == {"UTC": b"+00", "Asia/Tokyo": b"+09", "America/New_York": b"-05"}[zone]


@pytest.mark.parametrize(("output", "written"), [("hex", b"\\x66656d616c65"), ("escape", b"female")])
def test_bytes_are_written_as_the_session_says(wire: Wire, output: str, written: bytes) -> None:
    wire.query(f"SET bytea_output = '{output}'")
    found = column(
        wire.query("SELECT convert_to(gender, 'UTF8'), count(*) FROM patient_data GROUP BY gender ORDER BY 1")
    )
    assert found[0] == written and len(found) == 3


@pytest.mark.parametrize("style", ["postgres", "iso_8601", "sql_standard"])
def test_intervals_are_written_as_the_session_says(wire: Wire, style: str) -> None:
    wire.query(f"SET IntervalStyle = '{style}'")
    native = column(wire.query("SELECT make_interval(months => 13) WHERE true"))
    text = "SELECT make_interval(months => 13), count(*) FROM patient_data"
    assert column(wire.query(text)) == native


@pytest.mark.parametrize(("encoding", "codec"), [("LATIN1", "latin-1"), ("UTF8", "utf-8"), ("WIN1252", "cp1252")])
def test_texts_come_in_the_encoding_of_the_session(wire: Wire, encoding: str, codec: str) -> None:
    wire.query(f"SET client_encoding = '{encoding}'")
    word = "z\xe4hlt"
    wire.send(m.encode_query(f"SELECT gender || '{word}' AS w, count(*) FROM patient_data GROUP BY gender", codec))
    found = column(wire.until(m.READY_FOR_QUERY))
    assert len(found) == 3 and all((cell or b"").endswith(word.encode(codec)) for cell in found)


def test_names_are_looked_up_along_the_search_path(session: psycopg.Connection, proxy: Proxy, analyst: str) -> None:
    text = "SELECT count(*) FROM {}orders"
    (known,) = session.execute(text.format("")).fetchone() or (None,)
    session.execute("SET search_path = pg_catalog")
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.execute(text.format(""))
    assert session.execute(text.format("public.")).fetchone() == (known,)
    session.execute("SET search_path = nowhere, public")
    assert session.execute(text.format("")).fetchone() == (known,)
    with proxy.connect(analyst, options="-c search_path=pg_catalog") as other:
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute(text.format(""))
        assert other.execute(text.format("public.")).fetchone() == (known,)
    assert len(charges(proxy.upstream, analyst)) == 1


def test_the_name_of_the_application_is_kept(proxy: Proxy, analyst: str) -> None:
    query = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    with proxy.connect(analyst, application_name="report 7") as conn:
        assert conn.info.parameter_status("application_name") == "report 7"
        assert conn.execute(query).fetchone() == ("report 7",)
        conn.execute("SELECT count(*) FROM patient_data")
        assert conn.execute("SHOW application_name").fetchone() == ("report 7",)
        conn.execute("SET application_name = 'report 8'")
        conn.execute("SELECT count(*) FROM patient_data")
        assert conn.info.parameter_status("application_name") == "report 8"
        assert conn.execute(query).fetchone() == ("report 8",)
