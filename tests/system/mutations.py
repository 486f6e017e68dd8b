"""A seeded mutator over what real clients say.

A stream is a list of whole messages. *Tame* mutations keep the framing (the length word is put right again), so that
whatever was mutated is read, and a healthy server must either answer the fence behind it or hang up. *Wild*
ones break the framing; what follows them may be swallowed, so they come last in a stream.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from proxy import messages as m

HAVING = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 500"
BOUND = "SELECT disease, count(*) FROM patient_data WHERE age >= $1 GROUP BY disease"


def _copy_data(data: bytes) -> bytes:
    return m.encode(m.COPY_DATA, data)


def _queries(*texts: str) -> list[bytes]:
    return [m.encode_query(text) for text in texts]


CONVERSATIONS: list[list[bytes]] = [
    _queries("SELECT 1", "SELECT 1; SELECT 2", "", ";", "SELECT * FROM city LIMIT 2", "SHOW veil.beta"),
    _queries(HAVING, "SELECT * FROM patient_data", "SELECT city, count(*) FROM orders GROUP BY city"),
    _queries("BEGIN", HAVING, "SELECT nonsense FROM patient_data", HAVING, "ROLLBACK", "SELECT 1/0"),
    _queries(
        "SET veil.beta = '0.04'",
        HAVING,
        "SET veil.margin = 'nonsense'",
        HAVING,
        "RESET ALL",
        f"EXPLAIN {HAVING}",
        f"SELECT 1; {HAVING}; SELECT 2",
        "SELECT gender FROM patient_data GROUP BY gender",
    ),
    _queries(
        f"PREPARE q AS {HAVING}",
        "EXECUTE q",
        "DEALLOCATE ALL",
        f"BEGIN; DECLARE c CURSOR FOR {HAVING}",
        "ROLLBACK",
        "BEGIN; DECLARE d CURSOR FOR SELECT * FROM city; FETCH 2 FROM d; COMMIT",
        "INSERT INTO patient_data VALUES (1)",
        "SELECT count(*) FROM adult a JOIN orders o ON a.age = o.order_id",
    ),
    [
        m.encode_parse("", HAVING),
        m.encode_describe(m.STATEMENT, ""),
        m.encode_bind("", ""),
        m.encode_describe(m.PORTAL, ""),
        m.encode_execute("", 3),
        m.encode_execute("", 0),
        m.encode_sync(),
    ],
    [
        m.encode_parse("q", BOUND, [23]),
        m.encode_bind("p", "q", [0], [b"40"], [1]),
        m.encode_execute("p"),
        m.encode_close(m.PORTAL, "p"),
        m.encode_bind("p", "q", [1], [struct.pack(">i", 50)], [0, 1]),
        m.encode_flush(),
        m.encode_execute("p", 2),
        m.encode_sync(),
        m.encode_close(m.STATEMENT, "q"),
        m.encode_sync(),
    ],
    [
        m.encode_parse("s", "SELECT $1::int + $2::int", [0, 23]),
        m.encode_bind("", "s", [], [b"1", b"2"], [1]),
        m.encode_describe(m.PORTAL, ""),
        m.encode_execute(""),
        m.encode_bind("t", "s", [], [None, b"x"]),
        m.encode_execute("t"),
        m.encode_parse("", "SELECT 1"),
        m.encode_sync(),
    ],
    [
        m.encode_parse("", "SELECT * FROM patient_data"),
        m.encode_bind("", ""),
        m.encode_execute(""),
        m.encode_describe(m.PORTAL, "nobody"),
        m.encode_sync(),
        m.encode(m.FUNCTION_CALL, struct.pack(">IHHIH", 1598, 0, 0, 0xFFFFFFFF, 0)[:12] + b"\0\0"),
        m.encode_sync(),
    ],
    [
        *_queries("CREATE TEMP TABLE IF NOT EXISTS basket (a int, b text)", "COPY basket FROM STDIN"),
        _copy_data(b"1\tone\n2\ttwo\n"),
        _copy_data(b"\\.\n"),
        m.encode(m.COPY_DONE),
        *_queries("COPY basket TO STDOUT", "COPY patient_data TO STDOUT", "COPY basket FROM STDIN"),
        _copy_data(b"x\ty\tz\n"),
        m.encode(m.COPY_FAIL, b"enough\0"),
    ],
    [
        m.encode_query("CREATE TEMP TABLE IF NOT EXISTS basket (a int, b text)"),
        m.encode_parse("", "COPY basket FROM STDIN"),
        m.encode_bind("", ""),
        m.encode_execute(""),
        m.encode_sync(),
        _copy_data(b"3\tthree\n"),
        m.encode(m.COPY_DONE),
        m.encode_sync(),
        m.encode_query(f"COPY ({HAVING}) TO STDOUT"),
    ],
]

FENCE = "fence of the fuzzer"
# Whatever state the session is in: a copy ends, a batch ends, a transaction ends, and then there is an answer.
TO_THE_FENCE = b"".join(
    (
        m.encode(m.COPY_FAIL, b"over\0"),
        m.encode_sync(),
        m.encode(m.COPY_FAIL, b"over\0"),
        m.encode_sync(),
        *_queries("ROLLBACK", f"SELECT '{FENCE}'"),
    )
)

_CLIENT_FIRST = b"n,,n=,r=rOprNGfwEbeRWgbNEkqO"
_CLIENT_FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=" + b"A" * 43 + b"="


def knocks(user: str, database: str) -> list[list[bytes]]:
    """What comes before a login; the first message of each has no type byte."""
    hello = m.encode_startup({"user": user, "database": database, "application_name": "fuzz"})
    newer = m.encode_startup({"user": user, "database": database, "_pq_.x": "1", "options": "-c veil.beta=1"}, 9)
    scram = [m.encode_sasl_initial("SCRAM-SHA-256", _CLIENT_FIRST), m.encode_sasl_response(_CLIENT_FINAL)]
    return [
        [hello, *scram],
        [newer, *scram, m.encode_query("SELECT 1")],
        [m.encode_ssl_request(), hello, *scram],
        [m.encode_gssenc_request(), m.encode_ssl_request(), hello, scram[0]],
        [m.encode_cancel(12345, b"\1\2\3\4")],
        [m.encode_cancel(12345, b"k" * 32)],
        [hello, m.encode_password("secret")],
        [hello, hello, *scram],
        [hello, m.encode_terminate()],
        [m.encode_startup({"user": "", "database": ""}), *scram],
    ]


@dataclass(frozen=True)
class Stream:
    """Bytes to send, how many of their messages are mutated, and whether the framing is whole."""

    data: bytes
    mutated: int
    tame: bool


_ODD = (b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"'", b'"', b";", b"--", b"/*", b"$1", b"$$")
_LENGTHS = (0, 1, 3, 4, 5, 8, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3FFFFFFF, 10_000, 10_001, 65_536)


def _flip(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return bytes((rng.randrange(256),))
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((rng.choice(_ODD), rng.randbytes(rng.randrange(1, 9)))) + data[at:]


def _delete(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 1, 2, 8)) :]


def _swell(rng: random.Random, data: bytes) -> bytes:
    """One part many times over."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at : at + rng.randrange(1, 20)] * rng.randrange(2, 60) + data[at:]


def _number(rng: random.Random, data: bytes) -> bytes:
    """A count or a length inside the body becomes another."""
    if len(data) < 4:
        return data + b"\0\0"
    at = rng.randrange(len(data) - 3)
    return data[:at] + struct.pack(">I", rng.choice(_LENGTHS)) + data[at + 4 :]


_TAME: tuple[Callable[[random.Random, bytes], bytes], ...] = (_flip, _flip, _insert, _insert, _delete, _swell, _number)


def _wild(rng: random.Random, message: bytes, others: list[bytes]) -> bytes:
    match rng.randrange(7):
        case 0:  # another length
            return message[:1] + struct.pack(">I", rng.choice(_LENGTHS)) + message[5:]
        case 1:  # nearly the right length
            (length,) = struct.unpack(">I", message[1:5])
            return message[:1] + struct.pack(">I", max(0, length + rng.choice((-5, -1, 1, 4, 300)))) + message[5:]
        case 2:  # cut short
            return message[: rng.randrange(1, len(message))]
        case 3:  # any type at all
            return bytes((rng.randrange(256),)) + message[1:]
        case 4:
            return _flip(rng, message)
        case 5:
            return _splice(rng, message, rng.choice(others))
        case _:
            return rng.randbytes(rng.randrange(1, 64))


def _splice(rng: random.Random, one: bytes, other: bytes) -> bytes:
    return one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other)) :]


def mutate(rng: random.Random, conversations: list[list[bytes]], *, wild: bool) -> Stream:
    """One mutated conversation."""
    messages = list(rng.choice(conversations))
    everything = [each for conversation in conversations for each in conversation]
    mutated = 0
    match rng.randrange(6):
        case 0:
            rng.shuffle(messages)
            mutated = len(messages)
        case 1:
            at = rng.randrange(len(messages))
            again = messages[at:] * rng.choice((1, 2, 8))
            messages, mutated = messages + again, len(again)
        case 2:
            strangers = rng.choices(everything, k=rng.randrange(1, 6))
            at = rng.randrange(len(messages) + 1)
            messages, mutated = messages[:at] + strangers + messages[at:], len(strangers)
        case _:
            pass
    for i, message in enumerate(messages):
        if rng.random() < 0.5:
            body = rng.choice(_TAME)(rng, message[5:])
            kind = rng.choice(tuple(m.FRONTEND_NAMES)) if rng.random() < 0.05 else message[0]
            messages[i] = m.encode(kind, body)
            mutated += 1
    if wild:
        messages.append(_wild(rng, rng.choice(everything), everything))
        mutated += 1
    return Stream(b"".join(messages), min(mutated, len(messages)), not wild)


def mutate_knock(rng: random.Random, conversations: list[list[bytes]]) -> Stream:
    """A mutated beginning of a connection: nothing is known about its framing."""
    messages = list(rng.choice(conversations))
    mutated = 0
    while mutated == 0:
        for i, message in enumerate(messages):
            choice = rng.random()
            if choice < 0.5:
                untyped = message[:1] == b"\0"
                body = rng.choice(_TAME)(rng, message[4 if untyped else 5 :])
                messages[i] = struct.pack(">I", len(body) + 4) + body if untyped else m.encode(message[0], body)
            elif choice < 0.7:
                messages[i] = _wild(rng, message, messages)
            mutated += choice < 0.7
    return Stream(b"".join(messages), mutated, False)
