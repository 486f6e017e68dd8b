"""A monotone tree over atoms: what HAVING becomes once NOT has been pushed inwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Leaf(Generic[A]):
    atom: A


@dataclass(frozen=True, slots=True)
class And(Generic[A]):
    parts: tuple[Condition[A], ...]


@dataclass(frozen=True, slots=True)
class Or(Generic[A]):
    parts: tuple[Condition[A], ...]


Condition: TypeAlias = Leaf[A] | And[A] | Or[A]


def atoms(condition: Condition[A]) -> Iterator[A]:
    """Every atom from left to right, repetitions included."""
    match condition:
        case Leaf(atom):
            yield atom
        case And(parts) | Or(parts):
            for part in parts:
                yield from atoms(part)


def holds(condition: Condition[A], truth: Callable[[A], bool]) -> bool:
    """The tree's value, given each atom's."""
    match condition:
        case Leaf(atom):
            return truth(atom)
        case And(parts):
            return all(holds(part, truth) for part in parts)
        case Or(parts):
            return any(holds(part, truth) for part in parts)
