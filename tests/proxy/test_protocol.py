"""A walk over the whole state table."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import messages as m
from proxy.errors import ProtocolViolation
from proxy.protocol import EVENTS, FRONTEND, TABLE, Action, Event, Machine, State, Step

ALL_BYTES = range(256)
VIOLATION = None

H, R, S, C = Action.HANDLE, Action.RELAY, Action.SKIP, Action.CLOSE

# The same facts as in the table, drawn the other way round: one row per message, one column per state.
#                   AUTHENTICATING READY COPY_IN FAILED
PICTURE = {
    m.QUERY: (VIOLATION, H, R, S),
    m.PARSE: (VIOLATION, H, R, S),
    m.BIND: (VIOLATION, H, R, S),
    m.DESCRIBE: (VIOLATION, H, R, S),
    m.EXECUTE: (VIOLATION, H, R, S),
    m.CLOSE: (VIOLATION, H, R, S),
    m.FUNCTION_CALL: (VIOLATION, H, R, S),
    m.FLUSH: (VIOLATION, H, S, S),
    m.SYNC: (VIOLATION, H, S, H),
    m.COPY_DATA: (VIOLATION, S, H, S),
    m.COPY_DONE: (VIOLATION, S, H, S),
    m.COPY_FAIL: (VIOLATION, S, H, S),
    m.PASSWORD: (H, VIOLATION, VIOLATION, VIOLATION),
    m.TERMINATE: (C, C, C, C),
}
COLUMNS = (State.AUTHENTICATING, State.READY, State.COPY_IN, State.FAILED)


def outcome(state: State, kind: int) -> Step | None:
    machine = Machine(state)
    try:
        action = machine.receive(kind)
    except ProtocolViolation as violation:
        assert violation.sqlstate == "08P01"
        assert machine.state is state
        return VIOLATION
    return Step(machine.state, action)


def test_the_picture_names_every_message_of_the_frontend() -> None:
    assert set(PICTURE) == FRONTEND


@pytest.mark.parametrize(("kind", "column"), list(itertools.product(PICTURE, range(len(COLUMNS)))))
def test_every_message_does_in_every_state_what_the_picture_says(kind: int, column: int) -> None:
    step = outcome(COLUMNS[column], kind)
    assert (None if step is None else step.action) is PICTURE[kind][column]


@pytest.mark.parametrize("state", State)
def test_every_byte_has_an_outcome_in_every_state_and_no_unknown_byte_is_let_in(state: State) -> None:
    for kind in ALL_BYTES:
        step = outcome(state, kind)
        if kind not in FRONTEND:
            assert step is VIOLATION


def test_nothing_typed_is_allowed_before_startup() -> None:
    assert all(outcome(State.STARTUP, kind) is VIOLATION for kind in ALL_BYTES)


def test_failed_is_left_by_sync_and_goodbye_only() -> None:
    leaving = {kind: step.next for kind, step in TABLE[State.FAILED].items() if step.next is not State.FAILED}
    assert leaving == {m.SYNC: State.READY, m.TERMINATE: State.CLOSED}
    events = {event for event, state in EVENTS[State.FAILED].items() if state is not State.FAILED}
    assert events == {Event.CLOSED}


def test_nothing_but_an_event_leads_out_of_authentication_into_work() -> None:
    assert {step.next for step in TABLE[State.AUTHENTICATING].values()} == {State.AUTHENTICATING, State.CLOSED}
    into_ready = {(s, e) for s, row in EVENTS.items() for e, n in row.items() if n is State.READY}
    assert (State.AUTHENTICATING, Event.AUTHENTICATED) in into_ready
    assert not any(state is State.STARTUP for state, _ in into_ready)
    assert not any(e is Event.AUTHENTICATED for s, e in into_ready if s is not State.AUTHENTICATING)


def test_closed_is_final() -> None:
    assert set(TABLE[State.CLOSED].values()) == {Step(State.CLOSED, Action.SKIP)}
    assert set(EVENTS[State.CLOSED].values()) == {State.CLOSED}


def test_every_state_is_reachable_and_every_state_can_end() -> None:
    def reach(start: State) -> set[State]:
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            found = {step.next for step in TABLE[state].values()} | set(EVENTS[state].values())
            todo.extend(found - seen)
            seen |= found
        return seen

    assert reach(State.STARTUP) == set(State)
    assert all(State.CLOSED in reach(state) for state in State)


def test_an_event_that_cannot_be_is_our_bug_not_the_client_s() -> None:
    with pytest.raises(RuntimeError, match="AUTHENTICATED in state STARTUP"):
        Machine().happen(Event.AUTHENTICATED)


def test_a_session_with_an_error_in_the_middle_of_a_batch() -> None:
    machine = Machine()
    machine.happen(Event.STARTED)
    assert machine.receive(m.PASSWORD) is H
    machine.happen(Event.AUTHENTICATED)
    assert [machine.receive(k) for k in (m.PARSE, m.BIND)] == [H, H]
    machine.happen(Event.ERROR_IN_EXTENDED)
    assert [machine.receive(k) for k in (m.EXECUTE, m.QUERY, m.FLUSH, m.SYNC, m.QUERY)] == [S, S, S, H, H]
    assert machine.receive(m.TERMINATE) is C
    assert machine.receive(m.QUERY) is S


def test_a_copy_that_fails_leaves_nothing_behind() -> None:
    machine = Machine(State.READY)
    assert machine.receive(m.QUERY) is H
    machine.happen(Event.COPY_STARTED)
    assert [machine.receive(k) for k in (m.COPY_DATA, m.FLUSH, m.SYNC)] == [H, S, S]
    machine.happen(Event.COPY_ENDED)
    assert [machine.receive(k) for k in (m.COPY_DATA, m.COPY_FAIL, m.QUERY)] == [S, S, H]


@given(st.lists(st.sampled_from([*sorted(FRONTEND), *Event]), max_size=40))
def test_no_walk_leaves_the_table(walk: list[int | Event]) -> None:
    machine = Machine()
    for move in walk:
        try:
            if isinstance(move, Event):
                machine.happen(move)
            else:
                machine.receive(move)
        except (ProtocolViolation, RuntimeError):
            pass
        assert machine.state in State
    before = machine.state
    machine.happen(Event.CLOSED)
    assert machine.state is State.CLOSED, before
