"""The bookkeeping of answers: who gets which frame, however the bytes are cut."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from proxy import messages as m
from proxy.expected import RELAYED
from proxy.link import FLUSH, SYNC, Answer, Link, LinkLost, ShadowError, drop

READY = m.encode_ready_for_query(m.IDLE)
IN_BLOCK = m.encode_ready_for_query(m.IN_TRANSACTION)
PARSED, BOUND, CLOSED = m.PARSE_COMPLETE_FRAME, m.BIND_COMPLETE_FRAME, m.CLOSE_COMPLETE_FRAME
DONE = m.encode_command_complete("SELECT 1")
ROW = m.encode_data_row([b"1", None])
FIELDS = m.encode_row_description([m.Field("n", 0, 0, 23, 4, -1, 0)])
ERROR = m.encode(m.ERROR_RESPONSE, b"SERROR\0C22012\0Mdivision by zero\0\0")
NOTICE = m.encode(m.NOTICE_RESPONSE, b"SNOTICE\0C00000\0Mlook\0\0")
COPY_IN = m.encode(m.COPY_IN_RESPONSE, b"\0\0\0")


class Wire(asyncio.Transport):
    """The server's side of the socket."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closed = True


@dataclass
class Heard:
    """A listener that remembers."""

    told: bytes = b""
    events: list[str] = field(default_factory=list)

    def to_client(self, data: bytes) -> None:
        self.told += data

    def batch_failed(self) -> None:
        self.events.append("failed")

    def copy_started(self) -> None:
        self.events.append("copy")

    def copy_ended(self) -> None:
        self.events.append("copied")

    def link_lost(self) -> None:
        self.events.append("lost")

    def link_writable(self, writable: bool) -> None:
        self.events.append("writable" if writable else "full")


def connected() -> tuple[Link, Heard, Wire]:
    heard, wire = Heard(), Wire()
    link = Link(heard)
    link.connection_made(wire)
    link.capture = None  # the login is over
    return link, heard, wire


def test_a_simple_query_and_its_answer_pass_unchanged() -> None:
    link, heard, wire = connected()
    query = m.encode_query("SELECT 1")
    link.relay([m.QUERY], query)
    assert wire.sent == query and link.busy
    link.data_received(FIELDS + ROW + DONE + IN_BLOCK)
    assert heard.told == FIELDS + ROW + DONE + IN_BLOCK
    assert not link.busy and link.status == m.IN_TRANSACTION


def conversation(link: Link) -> list[tuple[int, bytes]]:
    """Relayed messages with one of ours between them; returns what ours got."""
    ours = Answer()
    link.relay([m.PARSE, m.BIND], b"")
    link.send(m.PARSE, b"", drop)
    link.send(m.BIND, b"", drop)
    link.send(m.EXECUTE, b"", ours.take)
    link.send(m.CLOSE, b"", drop)
    link.relay([m.DESCRIBE, m.EXECUTE, m.SYNC], b"")
    return ours.frames


STREAM = PARSED + BOUND + PARSED + BOUND + NOTICE + ROW + ROW + DONE + CLOSED + FIELDS + ROW + NOTICE + DONE + READY
TOLD = PARSED + BOUND + NOTICE + FIELDS + ROW + NOTICE + DONE + READY


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 64, 1000])
def test_the_cut_of_the_bytes_does_not_matter(size: int) -> None:
    link, heard, _ = connected()
    frames = conversation(link)
    for at in range(0, len(STREAM), size):
        link.data_received(STREAM[at : at + size])
    assert heard.told == TOLD
    assert frames == [(m.DATA_ROW, ROW), (m.DATA_ROW, ROW), (m.COMMAND_COMPLETE, DONE)]
    assert not link.busy and heard.events == []


def test_two_pieces_cut_anywhere_give_the_same() -> None:
    for at in range(1, len(STREAM)):
        link, heard, _ = connected()
        frames = conversation(link)
        link.data_received(STREAM[:at])
        assert TOLD.startswith(heard.told)  # only whole frames, so that a message of ours fits between any two
        link.data_received(STREAM[at:])
        assert heard.told == TOLD and len(frames) == 3 and not link.busy


def test_a_sink_may_change_or_keep_a_frame() -> None:
    link, heard, _ = connected()
    link.send(m.EXECUTE, b"", lambda kind, frame: b"<row>" if kind == m.DATA_ROW else None)
    link.send(m.EXECUTE, b"")
    link.data_received(ROW + DONE + ROW + DONE)
    assert heard.told == b"<row>" + ROW + DONE


def test_whoever_waits_hears_of_the_answer() -> None:
    async def story() -> None:
        link, heard, wire = connected()
        done = link.ask(m.CLOSE, b"close" + FLUSH, drop)
        assert wire.sent == b"close" + FLUSH
        link.data_received(CLOSED)
        await asyncio.wait_for(done, 60)
        assert heard.told == b"" and not link.busy

    asyncio.run(story())


def test_an_error_goes_to_whoever_waits_and_not_to_the_client() -> None:
    async def story() -> None:
        link, heard, _ = connected()
        link.relay([m.PARSE], b"")
        link.send(m.BIND, b"", drop)
        done = link.ask(m.EXECUTE, b"", drop)
        link.data_received(PARSED + ERROR)
        with pytest.raises(ShadowError) as refused:
            await done
        assert refused.value.frame == ERROR and heard.told == PARSED and heard.events == ["failed"]
        link.send(m.SYNC, SYNC)
        link.data_received(READY)
        assert heard.told == PARSED + READY and not link.busy

    asyncio.run(story())


def test_an_error_skips_to_the_next_sync_and_no_further() -> None:
    async def story() -> None:
        link, heard, _ = connected()
        link.relay([m.PARSE, m.BIND, m.EXECUTE, m.SYNC, m.PARSE], b"")
        done = link.ask(m.EXECUTE, b"", drop)
        link.data_received(PARSED + ERROR + READY)
        assert heard.told == PARSED + ERROR + READY and heard.events == [] and not done.done()
        link.data_received(PARSED + DONE)
        await asyncio.wait_for(done, 60)
        assert heard.told == PARSED + ERROR + READY + PARSED

    asyncio.run(story())


def test_an_error_skips_a_simple_query_inside_a_batch() -> None:
    link, heard, _ = connected()
    link.relay([m.PARSE, m.QUERY, m.SYNC], b"")
    link.data_received(ERROR + READY)
    assert heard.told == ERROR + READY and not link.busy


def test_sinks_of_answers_that_never_come_are_told_the_last_first() -> None:
    link, heard, _ = connected()
    undone: list[str] = []

    def sink(name: str):  # type: ignore[no-untyped-def]
        return lambda kind, frame: undone.append(name) if kind == m.ERROR_RESPONSE else frame

    link.send(m.PARSE, b"", sink("a"))
    link.send(m.PARSE, b"", sink("b"))
    link.send(m.PARSE, b"", sink("c"))
    link.data_received(PARSED + ERROR)
    assert undone == ["c", "b"] and heard.told == PARSED + ERROR and heard.events == ["failed"]


def test_an_error_in_a_simple_query_leaves_the_rest_alone() -> None:
    link, heard, _ = connected()
    link.relay([m.QUERY, m.QUERY], b"")
    link.send(m.SYNC, SYNC, lambda kind, frame: frame)
    link.data_received(ERROR + READY + DONE + READY + READY)
    assert heard.told == ERROR + READY + DONE + READY + READY
    assert heard.events == [] and not link.busy


@pytest.mark.parametrize("ours", [False, True])
def test_a_copy_is_announced_and_its_early_sync_forgotten(ours: bool) -> None:
    link, heard, _ = connected()
    link.relay([m.EXECUTE], b"")
    link.send(m.SYNC, SYNC, (lambda kind, frame: frame) if ours else None)
    link.data_received(COPY_IN)
    assert heard.events == ["copy"] and link.copying_in
    link.relay([m.COPY_DATA, m.COPY_DONE, m.SYNC], b"")
    link.data_received(m.encode_command_complete("COPY 1") + READY)
    assert heard.events == ["copy", "copied"] and not link.copying_in and not link.busy
    # Nothing special is left behind: the next answers are relayed as they are.
    link.relay([m.QUERY], b"")
    link.data_received(ROW + DONE + READY)
    assert heard.told.endswith(ROW + DONE + READY) and not link.busy


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("kind", [m.QUERY, m.EXECUTE])
def test_a_copy_that_fails_is_over(kind: int, ours: bool) -> None:
    link, heard, _ = connected()
    link.relay([kind], b"")
    if ours:
        link.send(m.SYNC, SYNC, lambda kind, frame: frame)
    link.data_received(COPY_IN + ERROR)
    assert heard.events[:2] == ["copy", "copied"] and not link.copying_in
    assert heard.told == COPY_IN + ERROR


def test_settings_are_followed_in_any_encoding() -> None:
    link, heard, _ = connected()
    link.relay([m.QUERY], b"")
    status = m.encode_parameter_status("client_encoding", "LATIN1")
    odd = m.encode(m.PARAMETER_STATUS, b"session_authorization\0zo\xeb\0")
    link.data_received(status + odd + DONE + READY)
    assert link.parameters["client_encoding"] == "LATIN1" and heard.told == status + odd + DONE + READY


def test_a_lost_connection_ends_every_wait() -> None:
    async def story() -> None:
        link, heard, _ = connected()
        first, second = link.ask(m.EXECUTE, b"", drop), link.ask(m.CLOSE, b"", drop)
        link.connection_lost(None)
        for done in (first, second):
            with pytest.raises(LinkLost):
                await done
        assert heard.events == ["lost"] and link.lost and not link.busy
        for act in (lambda: link.write(b""), lambda: link.send(m.SYNC, SYNC), lambda: link.ask(m.SYNC, SYNC, drop)):
            with pytest.raises(LinkLost):
                act()

    asyncio.run(story())


def test_a_closed_link_says_goodbye_once_and_takes_no_more() -> None:
    link, _, wire = connected()
    link.close()
    link.close()
    assert wire.sent == m.encode_terminate() and wire.closed
    with pytest.raises(LinkLost):
        link.write(b"")


def test_a_full_socket_holds_the_client_back() -> None:
    link, heard, _ = connected()
    link.pause_writing()
    link.resume_writing()
    assert heard.events == ["full", "writable"]


def test_bytes_of_the_login_are_kept_raw() -> None:
    async def story() -> None:
        heard = Heard()
        link = Link(heard)
        assert link.capture is not None
        link.data_received(b"R\0\0")
        assert await link.capture.get() == b"R\0\0" and heard.told == b""
        link.connection_lost(None)
        assert await link.capture.get() == b""

    asyncio.run(story())


def test_frames_of_ours_go_out_together_and_in_order() -> None:
    link, _, wire = connected()
    link.send(m.PARSE, b"a", drop)
    link.send(m.BIND, b"b", drop)
    assert wire.sent == b"" and link.busy
    link.relay([m.EXECUTE], b"c")  # the client's own stand behind them
    assert wire.sent == b"abc"
    link.send(m.SYNC, b"d")
    link.flush()
    link.flush()
    assert wire.sent == b"abcd"


@pytest.mark.parametrize("how", ["one", "batch"])
def test_the_hot_path_overtakes_nothing(how: str) -> None:
    link, _, wire = connected()
    link.send(m.PARSE, b"a", drop)
    if how == "one":
        link.relay_one(RELAYED[m.QUERY], b"b")
    else:
        link.relay_batch([RELAYED[m.SYNC]], b"b")
    assert wire.sent == b"ab"


def test_a_lost_connection_takes_nothing_more() -> None:
    link, _, wire = connected()
    link.send(m.PARSE, b"a", drop)
    link.connection_lost(None)
    link.flush()
    assert wire.sent == b""
    with pytest.raises(LinkLost):
        link.send(m.PARSE, b"b", drop)
    with pytest.raises(LinkLost):
        link.write(b"c")


def test_what_was_not_sent_goes_out_before_the_goodbye() -> None:
    link, _, wire = connected()
    link.send(m.PARSE, b"a", drop)
    link.close()
    assert wire.sent == b"a" + m.encode_terminate() and wire.closed
