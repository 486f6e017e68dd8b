"""When a group is tested does not depend on its own numbers, and the bounds on N and on all doubts hold."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mechanisms.decision import Estimates, Mask
from mechanisms.verdicts import Tuning, Verdicts, _lower, _Mistaken, _mistakes

STEPS = 12
Course = list[tuple[Mask, Mask, Estimates]]


def course(rng: np.random.Generator, cells: int) -> Course:
    """What the steps show: more and more is decided, and now and then a group changes its mind."""
    looks = []
    kind, by_proofs = rng.random(cells), bool(rng.integers(2))
    for step in range(STEPS):
        known = rng.random(cells) < (step + 1) / STEPS
        negative = known & (kind < 0.9) & (rng.random(cells) < 0.98)
        sure = known & (kind >= 0.9) & ~negative
        # Some courses have proofs and poor credits, others the reverse.
        credits = np.where(sure, 1 - rng.random(cells) / 5, 0.5 - (2 if by_proofs else 0.2) * rng.random(cells))
        looks.append((negative, sure & by_proofs, credits))
    return looks


def step_of_test(kind: type[Verdicts], looks: Course, group: int) -> int | None:
    """The step at which a group is tested."""
    cells = len(looks[0][0])
    verdicts = kind(cells, Decimal("0.2"), Decimal("0.05"), Tuning())
    for step, look in enumerate(looks):
        verdicts.look(*look)
        if not verdicts._waiting[group]:
            return step
    return None


def swayed(kind: type[Verdicts], seed: int, cells: int) -> bool:
    """Whether a group's own numbers move the step at which it is tested."""
    rng = np.random.default_rng(seed)
    looks = course(rng, cells)
    group = int(rng.integers(cells))
    changed: Course = []
    for negative, proven, credits in looks:
        verdict = rng.integers(3)
        own = np.arange(cells) == group
        changed.append(
            (
                np.where(own, verdict == 0, negative),
                np.where(own, verdict == 1, proven),
                np.where(own, 1 - 7 * rng.random(), credits),
            )
        )
    return step_of_test(kind, looks, group) != step_of_test(kind, changed, group)


class OwnStep(Verdicts):
    """A mutant: a group's own numbers have a say in when it is tested."""

    def look(self, negative: Mask, proven: Mask, credits: Estimates) -> bool:
        undecided = ~(negative | proven)
        if np.count_nonzero(undecided) <= self._allowed * np.count_nonzero(negative):
            self._waiting[:] = False
        return self.settled


@pytest.mark.parametrize("cells", [1, 2, 5, 30, 120, 400])
def test_a_groups_own_numbers_have_no_say_in_when_it_is_tested(cells: int) -> None:
    assert not any(swayed(Verdicts, seed, cells) for seed in range(300))


def test_a_group_that_is_step_of_test_its_own_step_is_caught() -> None:
    assert any(swayed(OwnStep, seed, 30) for seed in range(150))


def test_groups_are_tested_somewhere_on_the_way() -> None:
    looks = course(np.random.default_rng(3), 120)
    assert {step_of_test(Verdicts, looks, group) for group in range(120)} - {None, 0}


@given(
    cells=st.integers(0, 60),
    refuted=st.integers(-1, 60),
    looks=st.lists(st.tuples(st.sampled_from([0.5, 0.1, 0.01]), st.sampled_from([0.1, 1e-4]), st.integers(0, 60))),
)
def test_the_lower_bound_is_the_least_number_that_agrees_with_what_was_refuted(
    cells: int, refuted: int, looks: list[tuple[float, float, int]]
) -> None:
    refuted = min(refuted, cells)
    mistaken = tuple(_Mistaken(*look) for look in looks)

    def agrees(number: int) -> bool:
        wrongly = sum(min(look.most, _mistakes(cells - number, look.bound, look.doubt)) for look in mistaken)
        return number + wrongly >= refuted

    assert _lower(refuted, cells, mistaken) == min(number for number in range(cells + 1) if agrees(number))


def test_mistakes_are_exceeded_as_rarely_as_is_told() -> None:
    for qualifying in (1, 2, 7, 50, 1000, 100_000):
        for bound in (0.5, 0.045, 1e-6):
            for doubt in (0.1, 1e-5, 1e-12):
                most = _mistakes(qualifying, bound, doubt)
                assert stats.binom.sf(most, qualifying, bound) <= doubt * (1 + 1e-9)
                assert most == 0 or stats.binom.sf(most - 1, qualifying, bound) > doubt * (1 - 1e-9)


@pytest.mark.parametrize("alpha", ["0.01", "0.1", "0.5"])
def test_all_doubts_and_excesses_and_wrong_proofs_and_what_is_allowed_add_up_to_alpha(alpha: str) -> None:
    tuning, cells = Tuning(), 10
    verdicts = Verdicts(cells, Decimal(alpha), Decimal("0.05"), tuning)
    verdicts._mistaken = []
    excess = doubt = 0.0
    everyone = np.ones(cells, dtype=np.bool_)
    for _ in range(3000):
        verdicts._waiting[:] = True
        verdicts.look(everyone, ~everyone, np.zeros(cells))
        # E[max(0, S - luck)] <= exp(-rate luck - 1) / rate for a sum S with E[exp(rate S)] <= 1.
        excess += np.exp(-verdicts.rate * verdicts._luck(cells) - 1) / verdicts.rate / cells
        doubt += verdicts._mistaken.pop().doubt
    for _ in range(tuning.looks):
        verdicts.look_again(everyone, ~everyone, Decimal("0.001"))
        doubt += verdicts._mistaken.pop().doubt
    assert excess > 0 < doubt
    assert excess + doubt + float(verdicts.wrong) + verdicts._allowed <= float(alpha) * (1 + 1e-12)


def test_what_lucky_credits_exceed_their_luck_by_is_within_its_part_of_alpha() -> None:
    """Credits that are as fair as they must be: 1 with a small chance, and else so little that E[exp(rate h)] = 1."""
    cells = 400
    verdicts = Verdicts(cells, Decimal("0.1"), Decimal("0.05"), Tuning())
    verdicts._steps = 1
    rate, part = verdicts.rate, verdicts._excess * verdicts._part()
    ones, parts = np.arange(cells + 1), []
    for chance in (1e-5, 1e-4, 1e-3, 1e-2, 0.1):
        low = np.log1p(-chance * np.expm1(rate) / (1 - chance)) / rate
        exceeded = np.maximum(0.0, ones + (cells - ones) * low - verdicts._luck(cells))
        parts.append(exceeded @ stats.binom.pmf(ones, cells, chance) / cells / part)
    assert 0.02 < max(parts) <= 1


@given(refuted=st.integers(0, 400))
def test_the_fewer_are_known_not_to_qualify_the_more_luck_is_reckoned_with(refuted: int) -> None:
    verdicts = Verdicts(400, Decimal("0.1"), Decimal("0.05"), Tuning())
    assert verdicts._luck(refuted) >= verdicts._luck(refuted + 1) >= 0


def test_what_is_certified_is_few_enough() -> None:
    for undecided, certified in ((9, True), (14, False)):
        verdicts = Verdicts(120, Decimal("0.1"), Decimal("0.05"), Tuning(most_spare=-10.0))
        negative = np.arange(120) >= undecided
        verdicts.look(negative, ~negative & False, np.full(120, -1.0))
        assert verdicts.settled
        assert verdicts.certified is certified


def test_a_late_look_decides_only_what_is_undecided() -> None:
    verdicts = Verdicts(3, Decimal("0.5"), Decimal("0.05"), Tuning())
    first, second, third = np.eye(3, dtype=np.bool_)
    verdicts._waiting[:] = False
    verdicts.refuted |= first
    verdicts._proven |= second
    verdicts.look_again(second | third, first | third, Decimal("0.001"))
    assert verdicts.refuted.tolist() == [True, False, True]
    assert not verdicts.undecided.any()
