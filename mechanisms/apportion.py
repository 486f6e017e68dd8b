"""A question's accuracy divided among its statistics: which noise each of them gets, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mechanisms.accuracy import Accuracy
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import WIDE, Coin, amount_within, epsilon_of, exact_product, exact_sum, round_down
from mechanisms.noise import DiscreteLaplace
from mechanisms.number import SMALLEST_RHO, number_at, number_for, price_of_magnitude
from mechanisms.threshold import Share, for_interval, interval_at, tslm, tslm_at

_SPARE = Decimal("1e-7")
"""Of a given price, what is left for roundings where a number comes from a synopsis and not from noise of its own."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of one statistic, in lattice numbers."""

    sensitivity: int  # the most that one unit moves it in one cell
    margin: int
    decided: bool  # an atom of HAVING compares it
    shown: bool  # its value is part of the answer


def apportion(
    asks: Sequence[Ask],
    accuracy: Accuracy,
    *,
    longest: int,
    touched: int,
    coin: Coin,
    delta: Decimal,
    magnitude: Decimal | None = None,
) -> tuple[Share, ...]:
    """One share for each statistic; with a ``magnitude`` all have noise of that mean size, whatever was asked for.

    ``longest`` is the size of the largest prime implicant of the HAVING tree, ``touched`` the number of cells that
    one unit moves; ``delta`` turns the coin into epsilon. *Guarantee*: a group that truly qualifies satisfies every
    atom of some prime implicant, and is missed only if one of them is missed: at most ``longest`` times beta/longest
    (union bound; the noises may be shared).
    """
    if not asks:
        return ()
    beta = round_down(WIDE.divide(accuracy.beta, Decimal(max(1, longest))))
    if accuracy.epsilon is not None and magnitude is None:
        return _at_price(asks, accuracy.epsilon, beta, accuracy.confidence, touched, coin, delta)
    if magnitude is None:
        shares = tuple(_cheapest(ask, beta, accuracy.confidence, coin) for ask in asks)
    else:
        shares = tuple(_of_magnitude(ask, magnitude, beta, accuracy.confidence, coin) for ask in asks)
    total = own_epsilon(shares, touched, delta)
    if accuracy.max_epsilon is not None and total > accuracy.max_epsilon:
        factor = WIDE.divide(total, accuracy.max_epsilon)
        raise AccuracyUnreachable(
            "the accuracy asked for costs more than one question may spend",
            detail=f"needed: epsilon {total:.6f}; allowed: {accuracy.max_epsilon}",
            hint=f"A margin about {factor:.2f} times as wide would do (veil.margin), or SET veil.epsilon."
            if magnitude is None
            else "The noise of this relation is fixed: SET veil.max_epsilon higher, or ask for fewer numbers at once.",
        )
    return shares


def at_least(
    asks: Sequence[Ask],
    shares: Sequence[Share],
    amount: Decimal,
    accuracy: Accuracy,
    *,
    longest: int,
    touched: int,
    coin: Coin,
) -> tuple[Share, ...]:
    """The same shares with finer noise, in the same proportions, so that together they are worth ``amount``.

    *Guarantee*: if they cost less before, they cost at most ``amount`` but for rounding; beta and confidence are kept,
    and margins and intervals become narrower.
    """
    total = exact_product(exact_sum(share.loss(coin).amount for share in shares), touched)
    if not 0 < total < amount:
        return tuple(shares)
    beta = round_down(WIDE.divide(accuracy.beta, Decimal(max(1, longest))))
    factor = WIDE.divide(amount, total)
    root = WIDE.sqrt(factor) if coin is Coin.ZCDP else factor  # epsilon-DP costs epsilon^2/2 there

    def finer(ask: Ask, share: Share) -> Share:
        if isinstance(share.noise, DiscreteLaplace):
            price = max(share.price, round_down(WIDE.multiply(share.price, root)))
            at = interval_at if share.beta is None else tslm_at
            return at(ask.sensitivity, price, accuracy.confidence if share.beta is None else beta)
        price = max(share.price, round_down(WIDE.multiply(share.price, factor)))
        return number_at(coin, ask.sensitivity, price, accuracy.confidence)

    return tuple(finer(ask, share) for ask, share in zip(asks, shares, strict=True))


def own_epsilon(shares: Sequence[Share], touched: int, delta: Decimal) -> Decimal:
    """What the question itself loses, as the epsilon of (epsilon, delta)-DP, where one unit moves ``touched`` cells.

    *Guarantee*: pure steps add up with the epsilon of all Gaussian ones together, and so does everything in rho; both
    bounds hold, and the smaller one is told.
    """
    pure = [share.epsilon for share in shares if isinstance(share.noise, DiscreteLaplace)]
    gaussian = (share.price for share in shares if not isinstance(share.noise, DiscreteLaplace))
    rho = exact_product(exact_sum(gaussian), touched)
    steps = exact_product(exact_sum(pure), touched)
    if not rho:
        return steps
    apart = exact_sum((steps, epsilon_of(Coin.ZCDP, rho, delta)))
    together = exact_product(exact_sum(share.loss(Coin.ZCDP).amount for share in shares), touched)
    return min(apart, epsilon_of(Coin.ZCDP, together, delta))


def _cheapest(ask: Ask, beta: Decimal, confidence: Decimal, coin: Coin) -> Share:
    if not ask.decided:
        return number_for(coin, ask.sensitivity, ask.margin, confidence)
    share = tslm(ask.sensitivity, ask.margin, beta)
    if not ask.shown:
        return share
    number = for_interval(ask.sensitivity, ask.margin, confidence)
    return share if share.epsilon >= number.epsilon else tslm_at(ask.sensitivity, number.epsilon, beta)


def _of_magnitude(ask: Ask, magnitude: Decimal, beta: Decimal, confidence: Decimal, coin: Coin) -> Share:
    if ask.decided:
        return tslm_at(ask.sensitivity, price_of_magnitude(Coin.PURE, magnitude), beta)
    return number_at(coin, ask.sensitivity, price_of_magnitude(coin, magnitude), confidence)


def _at_price(
    asks: Sequence[Ask], epsilon: Decimal, beta: Decimal, confidence: Decimal, touched: int, coin: Coin, delta: Decimal
) -> tuple[Share, ...]:
    """Equal parts of the epsilon: of a pair such as an average's sum and count, neither may be known much worse.

    With bounds m +- h the error of an average at its true value v is that of (S - (v - m) N) / n, where S is the
    centred sum and N the count: at |v - m| = h both weigh the same, so equal parts are best in the worst case.
    """
    parts = Decimal(len(asks))
    each = round_down(WIDE.divide(epsilon, parts * touched))
    numbers = sum(not ask.decided for ask in asks)
    if coin is Coin.ZCDP and numbers:
        # What the numbers lose together counts once: in rho their parts add up without the overhead of each.
        ours = round_down(WIDE.divide(WIDE.multiply(epsilon, Decimal(numbers)), parts))
        within = WIDE.multiply(amount_within(coin, ours, delta), 1 - _SPARE)
        rho = round_down(WIDE.divide(within, Decimal(numbers * touched)))
        if rho < SMALLEST_RHO:
            smallest = epsilon_of(coin, SMALLEST_RHO * numbers * touched, delta) * len(asks) / numbers
            raise AccuracyUnreachable(
                "the epsilon is too small for any answer",
                detail=f"asked: {epsilon:f}; numbers: {numbers}, in as many as {touched} groups of one privacy unit",
                hint=f"The smallest epsilon that can be used is about {smallest:.6f}.",
            )
    else:
        rho = each
    return tuple(
        tslm_at(ask.sensitivity, each, beta) if ask.decided else number_at(coin, ask.sensitivity, rho, confidence)
        for ask in asks
    )
