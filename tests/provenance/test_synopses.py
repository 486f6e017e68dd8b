"""What was released is kept: the first answer stored is the one that everybody sees."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from psycopg import Connection

from mechanisms.values import Noisy
from provenance.ledger import Ledger
from provenance.model import Charge
from provenance.synopses import Sameness, Stored, Synopses, pack, unpack


@given(
    hnp.arrays(
        np.int64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0), elements=st.integers(-(2**63), 2**63 - 1)
    )
)
def test_packing_loses_nothing(values: Any) -> None:
    back = unpack(pack(Stored(Noisy(values)))).noisy.values
    assert back.dtype == np.int64 and back.shape == values.shape and (back == values).all()


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"XXX" + b[3:], lambda b: b"PVS\3" + b[4:]]
)
def test_another_form_is_an_error(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="unknown form"):
        unpack(spoil(pack(Stored(Noisy(np.ones((1, 3), np.int64))))))


def test_a_decision_is_stored_with_what_was_promised() -> None:
    decided = Stored(Noisy(np.zeros((1, 4), np.int64)), np.array([0, 3]), {"alpha": 0.1, "expected_false": 1.5})
    back = unpack(pack(decided))
    assert back.kept is not None and back.kept.tolist() == [0, 3] and back.facts == decided.facts


def test_an_answer_that_an_earlier_version_stored_is_still_read() -> None:
    head = struct.pack("<3sBII", b"PVS", 1, 1, 2)
    numbers = np.array([7, 8], dtype="<i8").tobytes()
    plain, named = unpack(head + numbers), unpack(head + numbers + b'[["a"], [null]]')
    assert plain.noisy.values.tolist() == [[7, 8]] and plain.noisy.keys is None and plain.kept is None
    assert named.noisy.keys == (("a",), (None,))


def test_the_first_answer_is_the_one_that_is_shown(
    ready: str, owner: Connection, pools: Callable[..., Any], charge_of: Callable[..., Charge]
) -> None:
    charge = charge_of(owner, "0.0001")
    key = Sameness("alice", charge.relation_id, charge.data_version, charge.fingerprint, "margin=50")

    async def run() -> None:
        async with pools(ready, 8) as pool:
            store = Synopses(pool)
            assert await store.find(key) is None
            receipts = [await Ledger(pool).charge(charge) for _ in range(6)]
            drawn = [Stored(Noisy(np.full((2, 5), n, np.int64))) for n in range(6)]
            shown = await asyncio.gather(*(store.keep(key, n, r) for n, r in zip(drawn, receipts, strict=True)))
            kept = await store.find(key)
            assert kept is not None and kept.noisy.values.shape == (2, 5)
            assert all((one.noisy.values == kept.noisy.values).all() for one in shown)
            assert await store.find(replace(key, accuracy="margin=51")) is None
            assert await store.find(replace(key, analyst="bob")) is None
            with pytest.raises(ValueError, match="receipt"):
                await store.keep(replace(key, analyst="bob"), drawn[0], receipts[0])
            owner.execute("SELECT provenance.refresh('patient')")
            assert await store.find(key) is None

    asyncio.run(run())
