"""The decision mechanisms by name, as ``veil.mechanism`` has them.

==============  ====================================================  ==========================  ==================
name            what it does                                          promises                    from
==============  ====================================================  ==========================  ==================
``tslm``        one look, at the margins asked for                    beta                        MIDE, Alg. 1
``naive``       one look at 12 % of the range, beta in equal parts    beta                        thesis, ch. 6
``ppwlm``       looks in geometric steps down to the margin           beta                        MIDE, Alg. 2
``dppwlm``      the same, the next step chosen by min-entropy         beta                        MIDE, Alg. 3-4
``probe_naive`` two phases, beta in equal parts                       beta, alpha as printed      ProBE, Alg. 1-4
``probe``       two phases, beta by Eq. 25                            beta, alpha as printed      ProBE, Alg. 1-4
``probe_ent``   ``dppwlm`` for each test, with beta handed on         beta, alpha as printed      ProBE, Alg. 5
``cert``        looks until a certificate holds; what ``auto`` picks  beta, alpha                 here
==============  ====================================================  ==========================  ==================

"As printed": Eq. 26 of ProBE counts a false group that lies above the threshold with weight beta, although it may be
there with probability one half, so alpha is broken where many groups lie just below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mechanisms.certify import cert
from mechanisms.decision import Problem, Solver
from mechanisms.mirror import answered, mirrored
from mechanisms.probe import probe, probe_ent, probe_naive
from mechanisms.progressive import dppwlm, ppwlm
from mechanisms.shifted import naive, tslm

_Maker = Callable[[Problem, Sequence[int]], Solver]

MECHANISMS: Mapping[str, _Maker] = MappingProxyType(
    {
        "tslm": lambda problem, margins: tslm(problem, margins),
        "naive": lambda problem, margins: naive(problem),
        "ppwlm": lambda problem, margins: ppwlm(problem, margins),
        "dppwlm": lambda problem, margins: dppwlm(problem, margins),
        "probe_naive": lambda problem, margins: probe_naive(problem),
        "probe": lambda problem, margins: probe(problem),
        "probe_ent": lambda problem, margins: probe_ent(problem),
        "cert": lambda problem, margins: cert(problem),
    }
)


def solver(name: str, problem: Problem, margins: Sequence[int], *, mirror: bool = False) -> Solver:
    """The mechanism at work on a problem; ``margins`` are those of the tests, for the ones that are told them.

    With ``mirror`` alpha is kept for every group and beta is certified.
    """
    if not mirror:
        return MECHANISMS[name](problem, margins)
    return answered(MECHANISMS[name](mirrored(problem), margins), problem)
