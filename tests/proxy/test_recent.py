"""The bounded memory: what was used last stays, and never more than its weight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.recent import Recent


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    memory: Recent[str, int] = Recent(3)
    for place, name in enumerate("abc"):
        memory.put(name, place)
    assert memory.get("a") == 0  # a use
    memory.put("d", 3)
    assert [memory.get(name) for name in "abcd"] == [0, None, 2, 3]


def test_a_heavy_entry_is_not_kept_and_takes_the_old_one_of_its_name_away() -> None:
    memory: Recent[str, int] = Recent(100)
    memory.put("a", 1, 10)
    memory.put("a", 2, 11)
    assert memory.get("a") is None and len(memory) == 0


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6)), max_size=60))
def test_the_weight_never_exceeds_the_bound_and_a_found_value_is_the_last_one_put(puts: list[tuple[int, int]]) -> None:
    memory: Recent[int, int] = Recent(20)
    weights: dict[int, int] = {}
    for step, (key, weight) in enumerate(puts):
        memory.put(key, step, weight)
        weights[key] = weight
        last = {k: max(i for i, (other, _) in enumerate(puts[: step + 1]) if other == k) for k in weights}
        found = {k: memory.get(k) for k in weights}
        assert all(value is None or value == last[k] for k, value in found.items())
        assert sum(weights[k] for k, value in found.items() if value is not None) <= 20
