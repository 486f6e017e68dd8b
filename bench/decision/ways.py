"""The mechanisms by name, some with a setting: ``probe``, ``naive:margin=20``, ``probe:first=90``, ``tslm:u=5``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from mechanisms.certify import cert
from mechanisms.decision import Problem, Solver
from mechanisms.loss import Coin
from mechanisms.probe import probe, probe_ent, probe_naive
from mechanisms.progressive import dppwlm, ppwlm
from mechanisms.shifted import margins_of, naive, tslm

EVERY = ("tslm", "naive", "ppwlm", "dppwlm", "probe_naive", "probe", "probe_star", "probe_ent", "cert", "cert, zcdp")
"""All that are run side by side."""
_USUAL = Fraction(12, 100)  # of the range: what ProBE gives to mechanisms that do not choose their margin


@dataclass(frozen=True, slots=True)
class Way:
    """A mechanism with its settings, on a coin."""

    make: Callable[[Problem], Solver]
    coin: Coin = Coin.PURE


def way(name: str) -> Way:
    """What a name stands for."""
    match name.partition(":"):
        case "tslm", _, setting:
            return Way(lambda problem: tslm(problem, _margins(problem, setting)))
        case "ppwlm", _, setting:
            return Way(lambda problem: ppwlm(problem, _margins(problem, setting)))
        case "dppwlm", _, setting:
            return Way(lambda problem: dppwlm(problem, _margins(problem, setting)))
        case "naive", _, setting:
            share = Fraction(_number(setting, "margin"), 100) if setting else _USUAL
            return Way(lambda problem: naive(problem, share))
        case "probe", _, setting:
            first = Decimal(_number(setting, "first")) / 100 if setting else Decimal("0.5")
            return Way(lambda problem: probe(problem, first=first))
        case "probe_star", _, "":
            return Way(lambda problem: probe(problem, scale="scale"))
        case "probe_naive", _, "":
            return Way(probe_naive)
        case "probe_ent", _, "":
            return Way(probe_ent)
        case "cert", _, "":
            return Way(cert)
        case "cert, zcdp", _, "":
            return Way(cert, Coin.ZCDP)
        case _:
            raise ValueError(f"there is no mechanism {name}")


def _margins(problem: Problem, setting: str) -> tuple[int, ...]:
    """The same margin for every test if it is told, else the usual share of each test's range."""
    return (_number(setting, "u"),) * len(problem.tests) if setting else margins_of(problem, _USUAL)


def _number(setting: str, name: str) -> int:
    key, _, value = setting.partition("=")
    if key != name:
        raise ValueError(f"there is no setting {key}; there is {name}")
    return int(value)
