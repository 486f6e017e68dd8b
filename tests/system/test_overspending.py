"""Two proxies on one ledger, many clients at once: limits hold to the last digit, and noise is seen once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy

from mechanisms.loss import Coin, amount_within, epsilon_of

CLIENTS = 16
DELTA = Decimal("0.0000000005")  # what the demo's delta leaves for the conversion of coin into epsilon


@pytest.fixture(scope="module")
def ledger(new_upstream: Callable[[], str]) -> str:
    """A database whose limits are this module's own."""
    return new_upstream()


@pytest.fixture(scope="module")
def pair(ledger: str, shadow_server, tmp_path_factory) -> Iterator[tuple[Proxy, Proxy]]:  # type: ignore[no-untyped-def]
    """Two proxy processes that share nothing but the databases."""
    place = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(running_proxy(ledger, shadow_server.admin_dsn, place / f"{name}.log"))
            for name in ("one", "two")
        )
        yield one, two


def payer(upstream: str, epsilon: str | None = None, privilege: int = 10) -> str:
    """An analyst whose decisions have a fixed price."""
    return new_analyst(upstream, epsilon, privilege, mechanism="tslm")


def question(number: int) -> str:
    """Questions that are all different and all cost the same."""
    return f"SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > {number}"


def rush(pair: tuple[Proxy, Proxy], analysts: list[str], texts: list[list[str]]) -> tuple[int, list[psycopg.Error]]:
    """One client per list of texts, on the two proxies in turn, all starting together: answers and refusals."""
    start = threading.Barrier(len(texts))

    def client(number: int) -> tuple[int, list[psycopg.Error]]:
        answered, refused = 0, []
        with pair[number % 2].connect(analysts[number % len(analysts)]) as session:
            start.wait(120)
            for text in texts[number]:
                try:
                    session.execute(text)
                    answered += 1
                except psycopg.Error as error:
                    refused.append(error)
        return answered, refused

    with ThreadPoolExecutor(len(texts)) as pool:
        done = list(pool.map(client, range(len(texts))))
    return sum(answered for answered, _ in done), [error for _, errors in done for error in errors]


def price(proxy: Proxy, upstream: str) -> Decimal:
    """What one of the questions costs, in coin."""
    who = payer(upstream)
    with proxy.connect(who) as session:
        session.execute(question(1))
    ((_, _, amount, _),) = charges(upstream, who)
    return Decimal(amount)


def different(each: int) -> list[list[str]]:
    return [[question(1 + each * client + i) for i in range(each)] for client in range(CLIENTS)]


def all_refused_by_the_limit(refused: list[psycopg.Error], whose: str) -> None:
    for error in refused:
        assert error.sqlstate == "53400"
        assert whose in (error.diag.message_primary or "")
        detail = error.diag.message_detail or ""
        # What is left of a limit that others share is not told.
        assert "asked" in detail and ("left" in detail) is (whose != "protected database")


def smallest_epsilon(amount: Decimal) -> Decimal:
    """The smallest limit that is worth this amount of coin."""
    return epsilon_of(Coin.ZCDP, amount, DELTA)


@pytest.mark.parametrize("fitting", [1, 9])
def test_exactly_as_many_questions_are_answered_as_fit(pair: tuple[Proxy, Proxy], ledger: str, fitting: int) -> None:
    each = price(pair[0], ledger)
    limit = smallest_epsilon(fitting * each)
    assert fitting * each <= amount_within(Coin.ZCDP, limit, DELTA) < (fitting + 1) * each
    who = payer(ledger, epsilon=f"{limit:f}")
    answered, refused = rush(pair, [who], different(1))
    assert (answered, len(refused)) == (fitting, CLIENTS - fitting)
    all_refused_by_the_limit(refused, who)
    spent = sum((Decimal(row[2]) for row in charges(ledger, who)), Decimal(0))
    assert spent == fitting * each  # so the next digit is what refused the rest


def test_a_limit_one_digit_too_small_admits_one_question_less(pair: tuple[Proxy, Proxy], ledger: str) -> None:
    each = price(pair[0], ledger)
    limit = smallest_epsilon(3 * each) - Decimal("1e-18")
    assert amount_within(Coin.ZCDP, limit, DELTA) < 3 * each
    who = payer(ledger, epsilon=f"{limit:f}")
    answered, refused = rush(pair, [who], different(1))
    assert (answered, len(refused)) == (2, CLIENTS - 2)


def test_an_arbitrary_limit_holds_to_the_last_digit(pair: tuple[Proxy, Proxy], ledger: str) -> None:
    who = payer(ledger, epsilon="0.3141592653589793")
    answered, refused = rush(pair, [who], different(2))
    assert answered >= 1 and refused
    all_refused_by_the_limit(refused, who)
    rows = charges(ledger, who)
    spent = sum((Decimal(row[2]) for row in rows), Decimal(0))
    most = amount_within(Coin.ZCDP, Decimal("0.3141592653589793"), DELTA)
    assert len(rows) == answered and spent <= most < spent + Decimal(rows[0][2])


def test_the_table_limit_binds_analysts_together(pair: tuple[Proxy, Proxy], ledger: str) -> None:
    each = price(pair[0], ledger)
    who = [payer(ledger) for _ in range(CLIENTS)]
    with psycopg.connect(ledger, autocommit=True) as direct:

        def balance() -> Decimal:
            row = direct.execute("SELECT amount FROM provenance.balance WHERE scope = 'table'").fetchone()
            assert row is not None
            return Decimal(row[0])

        before = balance()
        limit = smallest_epsilon(before + 7 * each)
        (old,) = direct.execute("SELECT epsilon FROM provenance.deployment").fetchone() or (None,)
        direct.execute("UPDATE provenance.analyst SET epsilon_limit = NULL")  # those of other tests lie above it
        direct.execute("UPDATE provenance.deployment SET epsilon = %s", (limit,))
        try:
            answered, refused = rush(pair, who, different(1))
            after = balance()
        finally:
            direct.execute("UPDATE provenance.deployment SET epsilon = %s", (old,))
    assert answered == 7 and after == before + 7 * each <= amount_within(Coin.ZCDP, limit, DELTA)
    assert len(refused) == CLIENTS - 7
    all_refused_by_the_limit(refused, "protected database")
    assert sum(len(charges(ledger, name)) for name in who) == 7


def test_the_same_question_at_the_same_moment_shows_the_same_numbers(pair: tuple[Proxy, Proxy], ledger: str) -> None:
    who = payer(ledger)
    start = threading.Barrier(8)
    text = "SELECT disease, count(*) FROM patient_data GROUP BY disease ORDER BY disease"

    def client(number: int) -> tuple[tuple[object, ...], ...]:
        with pair[number % 2].connect(who) as session:
            start.wait(120)
            return tuple(session.execute(text).fetchall())

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(client, range(8)))
    assert len(answers) == 1
    with psycopg.connect(ledger) as direct:
        kept = direct.execute("SELECT charge FROM provenance.synopsis WHERE analyst = %s", (who,)).fetchall()
        rows = charges(ledger, who)
        (total,) = direct.execute(
            "SELECT amount FROM provenance.balance WHERE scope = 'analyst' AND name = %s", (who,)
        ).fetchone() or (None,)
    assert len(kept) == 1 and kept[0][0] in {row[0] for row in rows}
    assert 1 <= len(rows) <= 8 and total == sum(row[2] for row in rows)


def test_of_the_same_question_at_the_same_moment_only_what_fits_is_charged(
    pair: tuple[Proxy, Proxy], ledger: str
) -> None:
    each = price(pair[0], ledger)
    who = payer(ledger, epsilon=f"{smallest_epsilon(2 * each):f}")
    answered, refused = rush(pair, [who], [[question(500)]] * 8)
    rows = charges(ledger, who)
    assert 1 <= len(rows) <= 2 and answered >= len(rows) and answered + len(refused) == 8
    all_refused_by_the_limit(refused, who)


def test_decisions_in_stages_never_overspend_together(pair: tuple[Proxy, Proxy], ledger: str) -> None:
    who = new_analyst(ledger, epsilon="0.5")
    texts = [[question(300 + 10 * client + i) for i in range(3)] for client in range(8)]
    answered, refused = rush(pair, [who], texts)
    assert {error.sqlstate for error in refused} <= {"53400", "54000"} and answered + len(refused) == 24
    assert refused, "there is not enough for all of them"
    with psycopg.connect(ledger) as direct:
        row = direct.execute(
            "SELECT amount FROM provenance.balance WHERE scope = 'analyst' AND name = %s", (who,)
        ).fetchone()
        history = "SELECT charged, settled FROM provenance.history WHERE analyst = %s"
        paid = direct.execute(history, (who,)).fetchall()
    assert row is not None and row[0] == sum((charged for charged, _ in paid), Decimal(0))
    assert row[0] <= amount_within(Coin.ZCDP, Decimal("0.5"), DELTA)
    assert all(settled for _, settled in paid), "what was reserved and not reached has come back"
