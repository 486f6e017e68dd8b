"""What a client may not do: send too much, too slowly, too deep, too early; and that others do not notice."""

from __future__ import annotations

import datetime
import re
import socket
import ssl
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pace import pace
from proxies import Proxy, charges, new_analyst, running_proxy
from raw_wire import Ended, Wire, errors, sqlstates, startup

from proxy import messages as m

STARTUP_SECONDS = 3.0  # a login on a busy machine must fit in
ROOM = 12
QUICK = 0.25  # seconds of work for a refusal of what is too large to read; on a machine with time, a tenth of it


@pytest.fixture(scope="module")
def cramped(upstream: str, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """A proxy with little room and little patience, that speaks TLS."""
    place: Path = tmp_path_factory.mktemp("cramped")
    certificate, key = _certificate(place)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    options += ("--startup-seconds", str(STARTUP_SECONDS), "--max-message", str(2 << 20))
    environment = {"PGVEIL_MAX_CONNECTIONS": str(ROOM)}
    with running_proxy(
        upstream, shadow_server.admin_dsn, place / "proxy.log", options=options, environment=environment
    ) as running:
        yield running
    assert "incident" not in (place / "proxy.log").read_text()


def _certificate(place: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .sign(key, hashes.SHA256())
    )
    (place / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (place / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return place / "cert.pem", place / "key.pem"


def _eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _quick(seconds: float, clock: Callable[[], float] = time.perf_counter) -> bool:
    """Whether so much is little, on a machine as slow as this one is now."""
    return seconds < QUICK or seconds < QUICK * pace(clock)


@contextmanager
def pinging(wire: Wire) -> Iterator[list[float]]:
    """Another client that asks ``SELECT 1`` all the time; how long each answer took."""
    took: list[float] = []
    over = threading.Event()

    def ping() -> None:
        while not over.is_set():
            began = time.perf_counter()
            wire.query("SELECT 1")
            took.append(time.perf_counter() - began)
            time.sleep(0.001)

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


# -- size -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [m.QUERY, m.PARSE, m.BIND, m.COPY_DATA])
def test_a_message_above_the_limit_is_refused_before_it_is_sent(cramped: Proxy, analyst: str, kind: int) -> None:
    with Wire(cramped.port) as wire:
        wire.login(analyst, cramped.database)
        wire.send(bytes((kind,)) + struct.pack(">I", (2 << 20) + 1) + b"only the beginning")
        assert sqlstates(wire.the_rest()) == ["08P01"]


@pytest.mark.parametrize("length", [0, 3, 0x7FFFFFFF, 0xFFFFFFFF])
def test_an_impossible_length_ends_the_connection(proxy: Proxy, analyst: str, length: int) -> None:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        wire.send(b"Q" + struct.pack(">I", length))
        (told,) = errors(wire.the_rest())
        assert told["C"] == "08P01" and told["S"] == "FATAL"


@pytest.mark.parametrize("kind", [m.SYNC, m.FLUSH, m.TERMINATE, m.COPY_DONE])
def test_a_message_without_a_body_has_none(proxy: Proxy, analyst: str, kind: int) -> None:
    """A Flush has no answer of its own: an error about its body would be taken for another message's."""
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        wire.send(m.encode(kind, b"x"), m.encode_query("SELECT 1"))
        assert sqlstates(wire.the_rest()) == ["08P01"]


def test_a_megabyte_of_statement_passes_through(proxy: Proxy, analyst: str) -> None:
    with proxy.connect(analyst) as session:
        text = "x" * 1_000_000
        assert session.execute(f"SELECT length('{text}')").fetchone() == (1_000_000,)
        assert session.execute("SELECT length(%s)", (text,)).fetchone() == (1_000_000,)


def test_a_giant_bind_passes_through_and_one_above_the_limit_does_not(cramped: Proxy, analyst: str) -> None:
    values: list[bytes | None] = [b"7"] * 60_000
    with Wire(cramped.port) as wire:
        wire.login(analyst, cramped.database)
        parameters = ",".join(f"${i + 1}" for i in range(60_000))
        wire.send(m.encode_parse("", f"SELECT array_length(ARRAY[{parameters}]::int[], 1)"))
        wire.send(m.encode_bind("", "", [], values), m.encode_execute(""), m.encode_sync())
        rows = [m.decode_data_row(f) for kind, f in wire.until(m.READY_FOR_QUERY) if kind == m.DATA_ROW]
        assert rows == [[b"60000"]]
        wire.send(m.encode_bind("", "", [], [b"x" * (3 << 20)]))
        assert sqlstates(wire.the_rest()) == ["08P01"]


def test_a_giant_bind_of_a_question_is_refused_and_costs_nothing(proxy: Proxy, upstream: str, analyst: str) -> None:
    asked = "SELECT disease, count(*) FROM patient_data WHERE age > $1 GROUP BY disease"
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        for values in ([b"9" * 1_000_000], [b"7"] * 60_000):
            bind = m.encode_bind("", "", [], values)  # type: ignore[arg-type]
            wire.send(m.encode_parse("", asked, [23]), bind, m.encode_execute(""), m.encode_sync())
            assert len(errors(wire.until(m.READY_FOR_QUERY))) == 1
        assert m.DATA_ROW in [kind for kind, _ in wire.query("SELECT 1")]
    assert charges(upstream, analyst) == []


# -- depth ----------------------------------------------------------------------------------------------------------

_TABLE = "SELECT disease, count(*) FROM patient_data WHERE "
_END = " GROUP BY disease"
DEEP = {
    "7,000 parentheses": _TABLE + "(" * 7_000 + "age > 1" + ")" * 7_000 + _END,
    "10,000 parentheses": _TABLE + "(" * 10_000 + "age > 1" + ")" * 10_000 + _END,
    "10,000 open parentheses": _TABLE + "(" * 10_000,
    "1,000 ANDs": _TABLE + " AND ".join(["age>1"] * 1_000) + _END,
    "50,000 ANDs": _TABLE + " AND ".join(["age>1"] * 50_000) + _END,
    "3,900 NOTs": _TABLE + "NOT " * 3_900 + "(age > 1)" + _END,
    "1,500 CASEs": _TABLE + "CASE WHEN " * 1_500 + "age > 1" + " THEN true END" * 1_500 + _END,
    "a megabyte": _TABLE + "age > 1 OR disease = '" + "x" * 1_000_000 + "'" + _END,
    "many subselects": _TABLE + "age IN (SELECT 1 WHERE 1 IN (" * 500 + "1" + "))" * 500 + _END,
    "a long list": _TABLE + "age IN (" + ",".join(map(str, range(3_500))) + ")" + _END,
    "a wide select": "SELECT " + ",".join(["disease"] * 2_000) + " FROM patient_data GROUP BY disease",
    "many statements": "; ".join([_TABLE + "nothing > 1" + _END] * 200),
}


@pytest.mark.parametrize("name", DEEP)
def test_what_is_too_deep_is_refused_at_once_and_others_do_not_wait(proxy: Proxy, upstream: str, name: str) -> None:
    analyst, other = new_analyst(upstream), new_analyst(upstream)
    process = psutil.Process(proxy.process.pid)
    gaps: list[float] = []
    with Wire(proxy.port) as wire, Wire(proxy.port) as second:
        wire.login(analyst, proxy.database)
        # The proxy's own work, whatever else the machine does and however long PostgreSQL takes on the shadow (which
        # needs a second for thousands of nested comments).
        before = process.cpu_times()
        for _ in range(4):
            told = errors(wire.query(DEEP[name]))
            assert len(told) == 1 and not told[0]["C"].startswith("XX"), told
        after = process.cpu_times()
        worked = (after.user + after.system - before.user - before.system) / 4
        second.login(other, proxy.database)
        for _ in range(3):
            with pinging(second) as pings:
                wire.query(DEEP[name])
            gaps.append(max(pings, default=0.0))
    assert _quick(worked, time.process_time), f"{worked * 1000:.0f} ms of work"
    assert _quick(min(gaps) / 2), f"others waited for {min(gaps) * 1000:.0f} ms"
    assert charges(upstream, analyst) == []


def test_thousands_of_nested_comments_are_read_over_with_little_work(proxy: Proxy, upstream: str, analyst: str) -> None:
    text = "/*" * 1_500 + "*/" * 1_500 + _TABLE + "age > 1" + _END
    process = psutil.Process(proxy.process.pid)
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        before = process.cpu_times()
        told = [wire.query(text) for _ in range(4)]
        after = process.cpu_times()
    assert all(m.DATA_ROW in [kind for kind, _ in answer] for answer in told)
    assert _quick((after.user + after.system - before.user - before.system) / 4, time.process_time)
    assert len(charges(upstream, analyst)) == 1


@pytest.mark.parametrize(
    "setting", ["veil.margin = '1000000000'", "veil.epsilon = '0.000000001'", "veil.beta = '1e-300'"]
)
def test_an_absurd_accuracy_does_not_keep_others_waiting(proxy: Proxy, upstream: str, setting: str) -> None:
    analyst, other = new_analyst(upstream), new_analyst(upstream)
    gaps = []
    with Wire(proxy.port) as wire, Wire(proxy.port) as second:
        wire.login(analyst, proxy.database)
        second.login(other, proxy.database)
        wire.query(f"SET {setting}")
        for threshold in range(500, 503):
            with pinging(second) as pings:
                wire.query(f"SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > {threshold}")
            gaps.append(max(pings, default=0.0))
    assert _quick(min(gaps) / 2), f"others waited for {min(gaps) * 1000:.0f} ms"


# -- time -----------------------------------------------------------------------------------------------------------


def _knock_slowly(wire: Wire, data: bytes, began: float) -> float:
    """Send a byte now and then; how long after ``began`` the proxy hung up."""
    for i in range(len(data)):
        wire.send(data[i : i + 1])
        try:
            wire.frame(0.1)
        except TimeoutError:
            continue
        except Ended:
            return time.monotonic() - began
    raise AssertionError("the proxy was patient to the end")


def test_a_startup_packet_that_never_ends_is_cut_off(cramped: Proxy, analyst: str) -> None:
    began = time.monotonic()  # before the proxy's own clock starts
    with Wire(cramped.port) as wire:
        took = _knock_slowly(wire, startup(analyst, cramped.database, application_name="x" * 200), began)
    assert took > STARTUP_SECONDS * 0.8


def test_silence_is_cut_off(cramped: Proxy) -> None:
    with Wire(cramped.port) as wire:
        assert wire.the_rest() == []


def test_half_a_scram_exchange_is_cut_off_with_postgresql_s_words(cramped: Proxy, analyst: str) -> None:
    with Wire(cramped.port) as wire:
        wire.begin_login(analyst, cramped.database)
        (told,) = errors(wire.the_rest())
    assert told["M"] == "canceling authentication due to timeout" and told["S"] == "FATAL"


def test_a_tls_handshake_that_never_ends_is_cut_off_and_its_place_is_free_again(cramped: Proxy, analyst: str) -> None:
    with ExitStack() as stack:
        for _ in range(ROOM):
            wire = stack.enter_context(Wire(cramped.port))
            wire.send(m.encode_ssl_request())
            assert wire.socket.recv(1) == b"S"
        assert _eventually(lambda: _can_enter(cramped, analyst), 40)


def test_a_session_that_is_in_is_not_cut_off(cramped: Proxy, analyst: str) -> None:
    with Wire(cramped.port) as wire:
        wire.login(analyst, cramped.database)
        time.sleep(STARTUP_SECONDS + 0.5)
        assert m.DATA_ROW in [kind for kind, _ in wire.query("SELECT 1")]


# -- room -----------------------------------------------------------------------------------------------------------


def _can_enter(proxy: Proxy, who: str) -> bool:
    try:
        with proxy.connect(who) as session:
            return session.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def _let_in(proxy: Proxy, who: str) -> int:
    """How many connections are let in before one is told that there are too many."""
    with ExitStack() as stack:
        for inside in range(ROOM + 1):
            wire = stack.enter_context(Wire(proxy.port))
            wire.send(startup(who, proxy.database))
            kind, frame = wire.frame()
            if kind != m.AUTHENTICATION:
                assert sqlstates([(kind, frame)]) == ["53300"]
                return inside
    raise AssertionError("one too many was let in")


def test_one_connection_too_many_is_told_so_and_room_is_freed(cramped: Proxy, analyst: str) -> None:
    # Connections of the test before may still be on their way out, and then those of the last try.
    for _ in range(2):
        assert _eventually(lambda: _let_in(cramped, analyst) == ROOM)
    assert _eventually(lambda: _can_enter(cramped, analyst))


def test_connections_that_say_nothing_do_not_eat_all_descriptors(cramped: Proxy, analyst: str) -> None:
    with ExitStack() as stack:
        began = time.monotonic()
        silent = [stack.enter_context(Wire(cramped.port)) for _ in range(2 * ROOM + 32 + 20)]
        with pytest.raises(Ended):
            silent[-1].more()
        # At once, and not when its time is over: the first one, which came before it, still has some.
        if time.monotonic() - began < 0.8 * STARTUP_SECONDS:
            with pytest.raises(TimeoutError):
                silent[0].more(0.01)
    assert _eventually(lambda: _can_enter(cramped, analyst))


# -- order ----------------------------------------------------------------------------------------------------------


def test_a_second_startup_message_during_scram_is_a_protocol_violation(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        wire.begin_login(analyst, proxy.database)
        wire.send(startup("admin", proxy.database))
        (told,) = errors(wire.the_rest())
    assert told["C"] == "08P01"


@pytest.mark.parametrize("message", [m.encode_query("SELECT 1"), m.encode_sync(), m.encode_parse("", "SELECT 1")])
def test_nothing_is_run_before_the_password_is_known(proxy: Proxy, analyst: str, message: bytes) -> None:
    with Wire(proxy.port) as wire:
        wire.send(startup(analyst, proxy.database), message)
        assert sqlstates(wire.the_rest()) == ["08P01"]


def test_a_flood_before_the_password_is_cut_off(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        wire.send(startup(analyst, proxy.database), m.encode_sasl_response(b"x" * 1_000) * 50)
        assert sqlstates(wire.the_rest()) == ["08P01"]


def test_what_is_sent_right_behind_the_proof_is_answered_after_the_login(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        scram = wire.begin_login(analyst, proxy.database)
        wire.send(m.encode_sasl_response(scram.get_client_final().encode()))
        wire.until(m.AUTHENTICATION)
        wire.send(m.encode_query("SELECT 'early'"))
        wire.until(m.READY_FOR_QUERY)
        assert [m.decode_data_row(f) for kind, f in wire.until(m.READY_FOR_QUERY) if kind == m.DATA_ROW] == [[b"early"]]


def test_bytes_before_tls_end_the_connection(cramped: Proxy, analyst: str) -> None:
    """CVE-2021-23214: what somebody in between slipped in before the handshake must not be read as if encrypted."""
    with Wire(cramped.port) as wire:
        wire.send(m.encode_ssl_request(), startup(analyst, cramped.database))
        assert sqlstates(wire.the_rest()) == ["08P01"]


def test_plain_bytes_instead_of_a_handshake_end_the_connection(cramped: Proxy, analyst: str) -> None:
    with Wire(cramped.port) as wire:
        wire.send(m.encode_ssl_request())
        assert wire.socket.recv(1) == b"S"
        wire.send(startup(analyst, cramped.database))
        told = b""
        try:
            while data := wire.socket.recv(4096):
                told += data
        except OSError:
            pass
        assert b"SASL" not in told and b"28P01" not in told


def test_tls_is_spoken_and_only_once(cramped: Proxy, analyst: str) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", cramped.port), timeout=60) as plain:
        plain.sendall(m.encode_ssl_request())
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as secured:
            secured.sendall(m.encode_ssl_request())
            assert b"08P01" in secured.recv(4096)
    with cramped.connect(analyst, sslmode="require") as session:
        assert session.pgconn.ssl_in_use
        assert session.execute("SELECT 1").fetchone() == (1,)


# -- who ------------------------------------------------------------------------------------------------------------


def test_another_database_is_3d000_after_the_password_and_not_before(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        scram = wire.begin_login(analyst, "elsewhere")
        wire.send(m.encode_sasl_response(scram.get_client_final().encode()))
        (told,) = errors(wire.the_rest())
    assert told["C"] == "3D000" and proxy.database in told["H"]
    with Wire(proxy.port) as wire:
        scram = wire.begin_login(analyst, "elsewhere", "wrong")
        wire.send(m.encode_sasl_response(scram.get_client_final().encode()))
        assert sqlstates(wire.the_rest()) == ["28P01"]


def test_no_user_name_is_28000(proxy: Proxy) -> None:
    with Wire(proxy.port) as wire:
        wire.send(m.encode_startup({"database": proxy.database}))
        assert sqlstates(wire.the_rest()) == ["28000"]


def _failed_login(proxy: Proxy, user: str) -> tuple[list[bytes], float]:
    """Every byte of a failed login, with the name, the nonce and the salt masked, and its time."""
    began = time.perf_counter()
    with Wire(proxy.port) as wire:
        scram = wire.begin_login(user, proxy.database, "wrong")
        challenge = re.sub(r"[A-Za-z0-9+/=]+", lambda word: "x" * len(word[0]), scram.server_first)
        wire.send(m.encode_sasl_response(scram.get_client_final().encode()))
        said = [frame.replace(user.encode(), b"USER") for _, frame in wire.the_rest()]
    return [challenge.encode(), *said], time.perf_counter() - began


def test_nobody_can_tell_an_unknown_user_from_a_wrong_password(proxy: Proxy, upstream: str) -> None:
    known = new_analyst(upstream)
    unknown = known[:-1] + "x"
    _failed_login(proxy, known)
    said: dict[str, list[bytes]] = {}
    told: list[list[float]] = []
    for _ in range(8):  # a busy machine may spoil some rounds, not all of them
        took: dict[str, list[float]] = {known: [], unknown: []}
        for turn in range(80):
            for user in (known, unknown) if turn % 2 else (unknown, known):
                bytes_, seconds = _failed_login(proxy, user)
                assert said.setdefault(user, bytes_) == bytes_
                took[user].append(seconds)
        assert said[known] == said[unknown]
        told.append([statistics.median(each) for each in took.values()])
        if max(told[-1]) < 1.25 * min(told[-1]) + 0.001:
            return
    raise AssertionError(told)
