"""What a question costs nothing for: numbers that follow from releases which the analyst knows whole.

*Guarantee*: a free number is a function of the question and of releases that this analyst has paid for, of the present
data version, and of one snapshot unless the tables are frozen. Nothing is read, drawn or written for it, so it tells
nothing new, however often it is asked and whatever is asked beside it: averaging free numbers cannot get beyond what
the releases say.

Of a table that changes the latest snapshot is taken in which all numbers are precise enough, and what follows holds
within it. Of all that is known the fewest releases are taken that are precise enough, the oldest first, and of several
views the one that was known first. So the same question at the same accuracy shows the same numbers after more has been
learned, on every proxy, and nothing has to be stored for that. What is known through added noise is replaced when the
noise is narrowed: numbers that need it are stored by the till, like those that cost something.
"""

from __future__ import annotations

from fractions import Fraction

from mechanisms.synopsis import Known
from provenance.releases import Held


def enough(held: Held, precision: Fraction) -> Known | None:
    """The fewest releases that are known whole and have this precision together; None if all of them do not."""
    have, taken = Fraction(0), set[int]()
    for release in held.releases:
        if release.id in held.known.whole:
            have += release.precision
            taken.add(release.id)
            if have >= precision:
                return Known(frozenset(taken))
    return None
