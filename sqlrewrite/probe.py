"""Probes: tools ask for the shape of an answer by throwing the answer away."""

from __future__ import annotations

from sqlrewrite.blocks import Block
from sqlrewrite.outputs import bare


def is_probe(block: Block) -> bool:
    """Whether the answer is thrown away whatever it is: LIMIT 0 here, or LIMIT 0 or a false WHERE around it."""
    inner: Block | None = block
    below = block
    while inner is not None:
        limit = [t.text for t in inner.clause("limit")] or [t.text for t in inner.tail.get("limit", ())]
        if limit == ["0"]:
            return True
        where = [t.form for t in bare(inner.clause("where"))]
        if inner is not block and where in (['"false"'], ["1", "=", "0"], ["0", "=", "1"], ["1", "=", "2"]):
            # SELECT (question), count(*) FROM t WHERE false still has a row, with the question's answer in it.
            from_ = inner.clause("from")
            if from_ and from_[0].start <= below.start < from_[-1].stop:
                return True
        below, inner = inner, inner.parent
    return False
