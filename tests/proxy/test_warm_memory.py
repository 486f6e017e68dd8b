"""What is worked out for many forms of questions on the same views does not pile up."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from provenance.releases import Held, Place
from proxy import warm
from proxy.warm import Knowledge


def test_many_forms_are_not_all_remembered() -> None:
    held: dict[Place, Held] = defaultdict(Held)
    knowledge = Knowledge("", held)
    plan: Any = SimpleNamespace(question=SimpleNamespace(relation=SimpleNamespace(id=1, data_version=1)))
    share: Any = SimpleNamespace(grid=SimpleNamespace(parts=1))
    for form in range(5 * warm._FORMS):
        sheet: Any = SimpleNamespace(base=SimpleNamespace(view=SimpleNamespace(digest=f"form {form}")))
        several = (Hashed(sheet),)
        assert knowledge.in_order(plan, share, several) == []  # type: ignore[arg-type]
        assert len(knowledge.order) <= warm._FORMS


class Hashed:
    """A sheet is told by which it is."""

    def __init__(self, sheet: Any) -> None:
        self.base = sheet.base
