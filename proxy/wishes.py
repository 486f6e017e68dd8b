"""The ``veil.`` settings of a session, checked: what the analyst wishes of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from mechanisms.accuracy import Accuracy, Margin, number
from mechanisms.errors import BadSetting
from mechanisms.named import MECHANISMS
from proxy.veil_settings import SETTINGS

_TRUE: Final = frozenset(("on", "true", "yes", "1", "t", "y"))
_FALSE: Final = frozenset(("off", "false", "no", "0", "f", "n", ""))
_AUTO: Final = "auto"
_CERTIFIED: Final = ("alpha", "beta")
_RELAX: Final = "relax"
_EXHAUSTED: Final = ("error", _RELAX)


@dataclass(frozen=True, slots=True)
class Wishes:
    """Accuracy and manner of one answer."""

    accuracy: Accuracy
    raw: bool
    support: int | None = None
    mechanism: str | None = None  # None: the best that is known
    mirror: bool = False  # alpha is kept for every group, and beta is certified
    reuse: bool = False  # a decision may take noise that was shown before
    relax: bool = False  # a number that a limit refuses may be one of a nearby region that is known

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> Wishes:
        """Check every setting before anything is spent; a bad one is 22023."""
        return _read(tuple(settings.items()))


@lru_cache(maxsize=256)  # a session asks many questions under the same settings
def _read(items: tuple[tuple[str, str], ...]) -> Wishes:
    settings = dict(items)
    for name in settings:
        if name not in SETTINGS:
            raise BadSetting(
                f'unrecognized configuration parameter "{name}"',
                detail="pgveil knows " + ", ".join(sorted(SETTINGS)) + ".",
                hint=f"Write RESET {name}.{_meant(name)}",
            )
    values = {name: settings.get(name) or default for name, default in SETTINGS.items()}
    mechanism = _one_of(values, "veil.mechanism", (_AUTO, *MECHANISMS))
    certified = _one_of(values, "veil.certify", _CERTIFIED)
    exhausted = _one_of(values, "veil.on_exhausted", _EXHAUSTED)
    support = number("support", values["veil.support"]) if values["veil.support"] else None
    if support is not None and (support < 1 or support != support.to_integral_value()):
        raise BadSetting("veil.support is a whole number of rows, 1 or more", hint="Write SET veil.support = 200.")
    epsilon, most = values["veil.epsilon"], values["veil.max_epsilon"]
    accuracy = Accuracy(
        beta=number("beta", values["veil.beta"]),
        alpha=number("alpha", values["veil.alpha"]),
        margin=Margin.parse(values["veil.margin"]),
        confidence=number("confidence", values["veil.confidence"]),
        epsilon=number("epsilon", epsilon) if epsilon else None,
        max_epsilon=number("max_epsilon", most) if most else None,
    )
    if accuracy.epsilon is not None and accuracy.max_epsilon is not None and accuracy.epsilon > accuracy.max_epsilon:
        raise BadSetting("veil.epsilon is above veil.max_epsilon", hint="RESET one of them.")
    return Wishes(
        accuracy,
        _flag(values, "veil.raw"),
        None if support is None else int(support),
        None if mechanism == _AUTO else mechanism,
        certified == "beta",
        _flag(values, "veil.reuse"),
        exhausted == _RELAX,
    )


def _meant(name: str) -> str:
    near = get_close_matches(name, SETTINGS, 1)
    return f" Perhaps you meant {near[0]}." if near else ""


def _one_of(values: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    word = values[name].strip().lower()
    if word not in allowed:
        raise BadSetting(f"{name} cannot be {values[name][:40]!r}", hint=f"This version knows: {', '.join(allowed)}.")
    return word


def _flag(values: Mapping[str, str], name: str) -> bool:
    word = values[name].strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise BadSetting(f"{name} is a switch, not {values[name][:40]!r}", hint="Write on or off.")
