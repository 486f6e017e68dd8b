"""The smallest form of a decision: prime implicants and implicates of a monotone tree.

An implicant is a set of atoms that together make the tree true, an implicate one whose failure together makes it
false. The tree is monotone, so multiplying out and dropping what another covers gives exactly the prime ones. An atom
may imply another (count >= 5 implies count >= 3): the stronger stands for both in a conjunction, the weaker in a
disjunction. Two atoms may also leave no number (count >= 6 and count <= 5: they *clash*) or every one (count >= 6 or
count <= 5: they *cover*). What they decide is decided by the text: ``And(())`` is true, ``Or(())`` false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Final, TypeAlias, TypeVar

from mechanisms.condition import And, Condition, Leaf, Or, atoms
from sqlrewrite.errors import TooComplex
from sqlrewrite.question import Atom, KeyThreshold

A = TypeVar("A")
Implies: TypeAlias = Callable[[A, A], bool]
Term: TypeAlias = frozenset[A]
Pair: TypeAlias = Callable[[Atom, Atom], bool]
Join: TypeAlias = Callable[[tuple[Condition[Atom], ...]], Condition[Atom]]

ALWAYS: Final[Condition[Atom]] = And(())
NEVER: Final[Condition[Atom]] = Or(())
MAX_TERMS = 64
_MAX_PRODUCTS = 4096


def implies(one: Atom, other: Atom) -> bool:
    """Whether the first atom can only hold where the second does, by their thresholds on one statistic."""
    if (one.statistic, one.direction) != (other.statistic, other.direction):
        return False
    if isinstance(one.threshold, int) and isinstance(other.threshold, int):
        return one.direction * (one.threshold - other.threshold) >= 0
    return one.threshold == other.threshold


def prime_implicants(condition: Condition[Atom]) -> tuple[Term[Atom], ...]:
    """The least sets of atoms that make the condition true."""
    return expand(condition, implies, conjunctions=True)


def prime_implicates(condition: Condition[Atom]) -> tuple[Term[Atom], ...]:
    """The least sets of atoms one of which must hold."""
    return expand(condition, implies, conjunctions=False)


def clash(one: Atom, other: Atom) -> bool:
    """Whether no number satisfies both, by their thresholds on one statistic; a threshold that is NULL satisfies
    nothing.
    """
    ends = _ends(one, other)
    if ends is None:
        return False
    low, high = ends
    if isinstance(low, int) and isinstance(high, int):
        return low > high
    if isinstance(low, KeyThreshold) and isinstance(high, KeyThreshold):
        return (low.key, low.factor) == (high.key, high.factor) and (low.strict or high.strict)
    return False


def cover(one: Atom, other: Atom) -> bool:
    """Whether every number satisfies one of them; thresholds of keys may be NULL, and then none does."""
    ends = _ends(one, other)
    return ends is not None and isinstance(ends[0], int) and isinstance(ends[1], int) and ends[0] <= ends[1] + 1


def _ends(one: Atom, other: Atom) -> tuple[int | KeyThreshold, int | KeyThreshold] | None:
    """From where on the one and up to where the other atom of a statistic holds."""
    if one.statistic != other.statistic or one.direction == other.direction:
        return None
    return (one.threshold, other.threshold) if one.direction > 0 else (other.threshold, one.threshold)


def possible(condition: Condition[Atom], clash: Pair = clash) -> list[Term[Atom]]:
    """The prime implicants that some numbers satisfy."""
    return [term for term in prime_implicants(condition) if not any(clash(*pair) for pair in combinations(term, 2))]


def doubtful(condition: Condition[Atom], cover: Pair = cover) -> list[Term[Atom]]:
    """The prime implicates that some numbers do not satisfy."""
    return [term for term in prime_implicates(condition) if not any(cover(*pair) for pair in combinations(term, 2))]


def minimise(condition: Condition[Atom], clash: Pair = clash, cover: Pair = cover) -> Condition[Atom]:
    """An equal tree with as few leaves as the written one, the implicants or the implicates have.

    *Guarantee*: ``ALWAYS`` or ``NEVER`` only where all numbers satisfy the tree, or none: it says nothing of the data.
    """
    written = _flat(_undecided(condition, clash, cover))
    candidates = [written, _tree(possible(written, clash), inner=And, outer=Or)]
    try:
        candidates.append(_tree(doubtful(written, cover), inner=Or, outer=And))
    except TooComplex:
        pass  # then this form is not the smallest one either
    return min(candidates, key=lambda tree: sum(1 for _ in atoms(tree)))


def _undecided(condition: Condition[Atom], clash: Pair, cover: Pair) -> Condition[Atom]:
    """The written tree without the parts that are decided by themselves."""
    if isinstance(condition, Leaf):
        return condition
    kind, ends, neutral = (And, NEVER, ALWAYS) if isinstance(condition, And) else (Or, ALWAYS, NEVER)
    parts = tuple(_undecided(part, clash, cover) for part in condition.parts)
    if ends in parts:
        return ends
    tree = _joined(tuple(part for part in parts if part != neutral), kind)
    if not possible(tree, clash):
        return NEVER
    try:
        return tree if doubtful(tree, cover) else ALWAYS
    except TooComplex:
        return tree


def expand(condition: Condition[A], weaker: Implies[A], conjunctions: bool) -> tuple[Term[A], ...]:
    """Prime implicants (``conjunctions``) or implicates; ``weaker(a, b)`` tells that a implies b."""

    def covers(one: A, other: A) -> bool:  # with ``other`` in a term, ``one`` says nothing new
        return weaker(other, one) if conjunctions else weaker(one, other)

    def terms(part: Condition[A]) -> list[Term[A]]:
        match part:
            case Leaf(atom):
                return [frozenset((atom,))]
            case And(inner) | Or(inner):
                choices = [terms(each) for each in inner]
                if isinstance(part, And) is not conjunctions:
                    return _absorbed([term for choice in choices for term in choice], covers)
                found: list[Term[A]] = [frozenset()]
                for choice in choices:
                    if len(found) * len(choice) > _MAX_PRODUCTS:
                        raise _too_many()
                    found = _absorbed([_reduced(a | b, covers) for a in found for b in choice], covers)
                return found

    return tuple(terms(condition))


def _reduced(term: Term[A], covers: Implies[A]) -> Term[A]:
    """A term without the atoms that another of it stands for."""
    kept: list[A] = []
    for atom in term:
        if any(covers(atom, other) for other in kept):
            continue
        kept = [other for other in kept if not covers(other, atom)]
        kept.append(atom)
    return frozenset(kept)


def _absorbed(found: Iterable[Term[A]], covers: Implies[A]) -> list[Term[A]]:
    """Terms that are not made superfluous by a shorter or weaker one."""
    kept: list[Term[A]] = []
    for term in sorted(set(found), key=len):
        if any(_absorbs(other, term, covers) for other in kept):
            continue
        kept = [other for other in kept if not _absorbs(term, other, covers)]
        kept.append(term)
        if len(kept) > MAX_TERMS:
            raise _too_many()
    return kept


def _absorbs(one: Term[A], other: Term[A], covers: Implies[A]) -> bool:
    """Whether ``one`` holds wherever ``other`` does (for conjunctions; dually for disjunctions)."""
    return all(any(covers(atom, stronger) for stronger in other) for atom in one)


def _tree(terms: Sequence[Term[Atom]], inner: Join, outer: Join) -> Condition[Atom]:
    parts = tuple(_joined(tuple(Leaf(atom) for atom in sorted(term, key=order)), inner) for term in terms)
    return _joined(parts, outer)


def _joined(parts: tuple[Condition[Atom], ...], kind: Join) -> Condition[Atom]:
    return parts[0] if len(parts) == 1 else kind(parts)


def order(atom: Atom) -> tuple[int, int, str]:
    """A stable order of atoms."""
    return atom.statistic, atom.direction, str(atom.threshold)


def _flat(condition: Condition[Atom]) -> Condition[Atom]:
    match condition:
        case Leaf():
            return condition
        case And(parts) | Or(parts):
            conjunction = isinstance(condition, And)
            found: list[Condition[Atom]] = []
            for part in map(_flat, parts):
                alike = not isinstance(part, Leaf) and isinstance(part, And) is conjunction
                for each in part.parts if alike and not isinstance(part, Leaf) else (part,):
                    if each not in found:
                        found.append(each)
            leaves = [part.atom for part in found if isinstance(part, Leaf)]
            kept = _reduced(
                frozenset(leaves), lambda one, other: implies(other, one) if conjunction else implies(one, other)
            )
            shorter = tuple(p for p in found if not isinstance(p, Leaf) or p.atom in kept)
            return _joined(shorter, And if conjunction else Or)


def _too_many() -> TooComplex:
    return TooComplex(
        f"this HAVING has more than {MAX_TERMS} ways to be true or false",
        hint="ask it in several questions, or write it with fewer alternatives",
    )
