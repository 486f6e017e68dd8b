"""Refusals as bytes: whole, well-formed and silent about what they must not say."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import BadSetting, Refusal
from proxy import errors
from proxy.codec import Frames
from proxy.messages import ERROR_RESPONSE, NOTICE_RESPONSE, decode_fields

CLASSES = {
    "08P01": errors.ProtocolViolation("x"),
    "28P01": errors.AuthenticationFailed("x"),
    "28000": errors.InvalidAuthorization("x"),
    "53300": errors.TooManyConnections("x"),
    "57014": errors.QueryCancelled(),
    "57P01": errors.AdminShutdown(),
    "58000": errors.ProtectedDatabaseFailed(),
    "XX000": errors.Incident(),
    "0A000": errors.UnsupportedProtocol("x"),
}


@pytest.mark.parametrize("sqlstate", CLASSES)
def test_each_refusal_carries_its_sqlstate(sqlstate: str) -> None:
    refusal = CLASSES[sqlstate]
    fields = decode_fields(errors.error_fields(refusal, "FATAL"))
    assert fields["C"] == sqlstate
    assert fields["S"] == fields["V"] == "FATAL"
    assert fields["M"] == refusal.message


def test_detail_hint_and_position_are_told_where_there_are_any() -> None:
    refusal = BadSetting("bad", detail="3 > 1", hint="write 1", position=17)
    assert decode_fields(errors.error_fields(refusal)) == {
        "S": "ERROR",
        "V": "ERROR",
        "C": "22023",
        "M": "bad",
        "D": "3 > 1",
        "H": "write 1",
        "P": "17",
    }
    assert set(decode_fields(errors.error_fields(BadSetting("bad")))) == set("SVCM")


@given(st.text(st.characters(exclude_categories=())), st.text(), st.text())
def test_any_text_makes_one_whole_frame_with_the_same_fields(message: str, detail: str, hint: str) -> None:
    raw = errors.error_fields(Refusal(message, detail=detail, hint=hint))
    ((kind, frame),) = Frames(100_000).feed(raw)
    assert kind == ERROR_RESPONSE
    assert frame == raw
    fields = decode_fields(frame)
    assert set(fields) == set("SVCMDH")
    assert fields["D"] == detail.replace("\0", "\ufffd")


def test_a_nul_cannot_forge_a_field() -> None:
    fields = decode_fields(errors.error_fields(Refusal("x\0C00000\0")))
    assert fields["C"] == "XX000"


def test_an_overlong_error_fits_into_what_libpq_accepts_before_login() -> None:
    raw = errors.error_fields(Refusal("é" * 50_000, detail="日" * 50_000, hint="h" * 50_000))
    assert len(raw) < 30_000
    assert decode_fields(raw)["D"].rstrip(".").strip("日") == ""


def test_a_notice_keeps_a_long_detail_whole() -> None:
    detail = "[" + "1," * 100_000 + "1]"
    raw = errors.notice("veil: answered", detail)
    assert raw[0] == NOTICE_RESPONSE
    fields = decode_fields(raw)
    assert fields["D"] == detail
    assert fields["C"] == "00000"
    assert fields["S"] == "NOTICE"
    assert "H" not in fields
    assert decode_fields(errors.notice("m", "d", "h", "01000"))["H"] == "h"


def test_an_unknown_exception_becomes_an_incident_that_quotes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        try:
            int("canary-private-1")
        except ValueError as error:
            raise KeyError("canary-private-2") from error

    with caplog.at_level(logging.ERROR, logger="pgveil"):
        try:
            fails()
        except KeyError as error:
            refusal = errors.as_refusal(error)
    assert isinstance(refusal, errors.Incident)
    raw = errors.error_fields(refusal)
    assert b"canary-private" not in raw
    assert refusal.number.encode() in raw
    (record,) = caplog.records
    told = record.getMessage()
    assert refusal.number in told
    assert "KeyError" in told
    assert "ValueError" in told
    assert "in fails" in told
    assert "canary-private-1" not in told.replace('int("canary-private-1")', "")  # the source line itself is public
    assert "canary-private-2" not in told.replace('KeyError("canary-private-2")', "")


def test_incident_numbers_differ() -> None:
    assert len({errors.Incident().number for _ in range(100)}) == 100


def test_a_refusal_stays_what_it_is_and_cancellation_has_its_own_sqlstate() -> None:
    refusal = BadSetting("x")
    assert errors.as_refusal(refusal) is refusal
    assert isinstance(errors.as_refusal(asyncio.CancelledError()), errors.QueryCancelled)


def test_the_protected_database_s_words_never_pass() -> None:
    with pytest.raises(TypeError):
        errors.ProtectedDatabaseFailed("division by zero")  # type: ignore[call-arg]
