"""When each group of a certified decision is tested, and what all the tests together certify.

*Guarantee* (beta): the step at which group j is tested is a function of the numbers of the other groups only.

*Guarantee* (N): the groups that qualify and are refuted at step s are independent events of probability at most beta
each, so they are at most ``_mistakes`` many except with probability doubt_s; and N, the number of groups that do not
qualify, is at least what was refuted less the mistakes of every step at which somebody was tested.

The groups that are kept and do not qualify are bounded in two ways, and either may certify:

- *by proofs*: they are undecided, or were proven to qualify by mistake, which happens to one with probability
  ``wrong``: the undecided may be ``allowed`` N;
- *by credits*: let h be credits with E[exp(rate h)] <= 1 for every group that does not qualify (``credit``), and S_s
  their sum over those groups at step s. Then false <= sum max(0, kept - h) + S_s. Since max(0, x) <= exp(rate x - 1) /
  rate, S_s exceeds luck_s = -ln(e rate excess_s N) / rate by excess_s N at most on average: so sum max(0, kept - h) +
  luck_s may be ``allowed`` N. With many groups this is sharper: one that surely qualifies adds nothing, long before its
  proof. (N is not known; what is known to be less makes luck_s larger.)

*Guarantee* (alpha): let W be the groups that are wrongly proven. Unless a doubt comes true, an answer has at most
``allowed`` N false groups, and W more if it stands by proofs, and max(0, S_s - luck_s) more if it stands by credits.
E[W] <= wrong N, and the excesses of all steps add up to ``excess`` N on average, whichever step it was. So
E[false/N; answered] <= allowed + wrong + excess + doubt = alpha.

Each step, and each place of the late looks, has its own part of ``doubt`` and of ``excess``, used or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np
import scipy  # its parts are loaded where they are first used: a proxy starts without them

from mechanisms.decision import Estimates, Mask
from mechanisms.loss import round_down

_STEPS = 100
"""So many steps have equal parts of what is kept for all steps."""
_FINE = 2.0**20
"""What a group adds to a sum is a whole multiple of 1 over this: so sums of the others are exact."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Public constants; they move accuracy and price, and no guarantee rests on their values.

    ``wrong``, ``doubt`` and ``excess`` are parts of alpha; the rest is for groups that are false as far as is known.
    """

    coarse: int = 10  # how many times the first shift is doubled at the very start
    first: float = 1.2  # the first shift of a clause, as a share of its scale
    add: float = 0.11  # below this share the next clause joins
    last: float = 0.002  # below this share it gives up
    ratio: float = 1.02**3  # from one step to the next ...
    hasty: float = 0.5  # ... and squared above this share, where little is decided
    main: Decimal = Decimal("0.96")  # of beta, for the main tests; the rest is for late looks
    looks: int = 20
    late: float = 0.6  # the shift of the first late look, as a share of the scale
    finer: float = 0.75  # how much smaller that of each next one is
    choosing_pure: float = 0.25  # price of the choosing step in units of sensitivity / scale
    choosing_zcdp: float = 1.0
    refuting: float = 0.7  # the share of groups that the first clause should refute
    spare: float = 0.1  # of the false groups allowed, what the stopping rule keeps in reserve ...
    most_spare: float = 3.0  # ... up to so many
    wrong: Decimal = Decimal("0.01")  # of alpha, for wrong proofs
    doubt: Decimal = Decimal("0.01")  # of alpha, for bounds that do not hold
    excess: Decimal = Decimal("0.02")  # of alpha, for the luck of the credits
    steep: float = 60.0  # the credits' rate, squared, times the false groups allowed


@dataclass(frozen=True, slots=True)
class _Mistaken:
    """A look at which groups that qualify may have been refuted: with what chance each, and at most how many."""

    bound: float
    doubt: float
    most: int


class Verdicts:
    """Which groups have been tested, and how; it changes with every look."""

    def __init__(self, cells: int, alpha: Decimal, beta: Decimal, tuning: Tuning) -> None:
        self._cells, self._beta, self._looks = cells, float(beta), tuning.looks
        self.wrong = round_down(alpha * tuning.wrong)
        self.late_wrong = round_down(self.wrong * (1 - tuning.main))
        self._doubt_in_all, self._excess = float(alpha * tuning.doubt), float(alpha * tuning.excess)
        self._allowed = float(alpha * (1 - tuning.wrong - tuning.doubt - tuning.excess))
        self._spare = min(tuning.most_spare, tuning.spare * self._allowed * cells)
        # Credits at a small rate are earned early and need much luck, which is a small part of what many groups allow.
        self.rate = min(3.0, math.sqrt(tuning.steep / (self._allowed * max(1, cells))))
        self._steps = 0
        self._waiting = np.ones(cells, dtype=np.bool_)
        self.refuted: Mask = np.zeros(cells, dtype=np.bool_)
        self._proven: Mask = np.zeros(cells, dtype=np.bool_)
        self._credits: Estimates = np.zeros(cells)
        self._mistaken: list[_Mistaken] = []  # of every look that refuted somebody
        self._now = 0, math.inf  # refuted, and false as it seems, at the last step

    @property
    def settled(self) -> bool:
        """Whether every group has been tested."""
        return not self._waiting.any()

    @property
    def undecided(self) -> Mask:
        """The groups that were tested and neither refuted nor proven."""
        return ~(self.refuted | self._proven | self._waiting)

    @property
    def certified(self) -> bool:
        """Whether there are few enough of them for alpha."""
        lower = self._least()
        return self.settled and min(self._false(lower)) <= self._allowed * lower

    @property
    def expected_false(self) -> float:
        """A bound on the expected number of groups that are kept and do not qualify."""
        beside = float(self.wrong) + self._doubt_in_all + self._excess
        return min(float(self._cells), min(self._false(self._least())) + beside * self._cells)

    @property
    def smallest_alpha(self) -> float:
        """About the alpha that would be certified with noise as wide as it is now, if not with the same luck."""
        refuted, false = self._now
        return min(1.0, false / max(1, _lower(refuted, self._cells, self._alone())) / 0.7)

    def promising(self, negative: Mask) -> bool:
        """Whether credits can certify at all with so many refuted: their luck alone must not be too much.

        Where they cannot, no group's test can come of them, whichever they are: so no group has a say in its own.
        """
        refuted = int(np.count_nonzero(negative))
        return self._luck(refuted) <= self._allowed * refuted

    def look(self, negative: Mask, proven: Mask, credits: Estimates) -> bool:
        """Take the verdicts of one step; those groups are tested by it whose fellows are decided well enough."""
        self._steps += 1
        self._credits = credits
        undecided = ~(negative | proven)
        own = np.ceil(np.maximum(0.0, ~negative - credits) * _FINE) / _FINE
        refuted, open_, owed = int(np.count_nonzero(negative)), int(np.count_nonzero(undecided)), float(own.sum())
        # What the others look like to a group: its own part is taken out, and something is kept in reserve for it.
        spare = self._spare
        lucky = self._luck(refuted) + spare
        self._now = refuted, min(open_ + spare, owed + lucky)
        most = self._allowed * refuted
        if open_ > 1 and open_ - 1 + spare > most and owed - float(own.max()) + lucky > most:
            return False
        alone = self._alone()
        fewer, least = (_lower(number, self._cells, alone) for number in (refuted - 1, refuted))
        lower = np.where(negative, fewer, least)
        luck = np.where(negative, self._luck(fewer), self._luck(least))
        others = open_ - undecided.astype(np.int64)
        enough = np.minimum(others, owed - own + luck) + spare <= self._allowed * lower
        enough |= others == 0  # with so few groups that not one may stay undecided
        tested = self._waiting & enough
        if tested.any():
            self.refuted |= tested & negative
            self._proven |= tested & proven
            self._waiting &= ~tested
            self._mistaken.append(_Mistaken(self._beta, self._doubt(), int(np.count_nonzero(tested & negative))))
        return self.settled

    def look_again(self, negative: Mask, proven: Mask, beta: Decimal) -> None:
        """A late look at groups that stayed undecided."""
        undecided = self.undecided
        self.refuted |= undecided & negative
        self._proven |= undecided & proven & ~negative
        refuted = int(np.count_nonzero(undecided & negative))
        self._mistaken.append(_Mistaken(float(beta), self._doubt_in_all / 2 / self._looks, refuted))

    def _least(self) -> int:
        """The least number of groups that do not qualify."""
        return _lower(int(self.refuted.sum()), self._cells, tuple(self._mistaken))

    def _false(self, lower: int) -> tuple[float, float]:
        """The undecided, and the bound by credits."""
        undecided = float(np.count_nonzero(~(self.refuted | self._proven)))
        return undecided, float(np.maximum(0.0, ~self.refuted - self._credits).sum()) + self._luck(lower)

    def _luck(self, negatives: int) -> float:
        """What the credits of so many groups that do not qualify may come to at this step."""
        excess = self.rate * math.e * self._excess * self._part() * negatives
        return max(0.0, -math.log(excess) / self.rate) if excess > 0 else math.inf

    def _alone(self) -> tuple[_Mistaken, ...]:
        """As if all had been tested at this step."""
        return (_Mistaken(self._beta, self._doubt(), self._cells),)

    def _doubt(self) -> float:
        """Of this step: half of all doubt is for the steps, and half for late looks."""
        return self._doubt_in_all / 2 * self._part()

    def _part(self) -> float:
        """This step's part: the first hundred have two thirds in equal parts, all others the rest."""
        later = self._steps - _STEPS
        return 2 / (3 * _STEPS) if later <= 0 else 1 / (3 * later * (later + 1))


def _lower(refuted: int, cells: int, mistaken: tuple[_Mistaken, ...]) -> int:
    """The least number N of groups that do not qualify, given how many were refuted.

    N is at least what was refuted less the mistakes among the other ``cells`` - N. The right side grows with N, so from
    N = 0 upwards every number that is too small forces a larger one, and the first that is not is the least.
    """

    def forced(number: int) -> int:
        return refuted - sum(min(look.most, _mistakes(cells - number, look.bound, look.doubt)) for look in mistaken)

    number = 0
    while (more := forced(number)) > number:
        number = more
    return number


@lru_cache(maxsize=65536)
def _mistakes(qualifying: int, bound: float, doubt: float) -> int:
    """The most of so many qualifying groups that are refuted at one step, except with probability ``doubt``."""
    if qualifying <= 0:
        return 0
    mean, log = qualifying * bound, -math.log(doubt)
    most = min(qualifying, math.ceil(mean + log / 3 + math.sqrt(log * log / 9 + 2 * log * mean)))  # Bernstein
    counts = np.arange(max(0, math.floor(mean)), most + 1)
    enough = scipy.special.bdtrc(counts, qualifying, bound) <= doubt
    return int(counts[int(np.argmax(enough))]) if enough.any() else most
