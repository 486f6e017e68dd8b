"""The stated limits of one row's work: how many digits, how many characters, and how much time.

*Guarantee*: they are constants. Whether a term is within them follows from column types, declared bounds and the
analyst's constants, so a refusal is the same on every database (``sqlrewrite.term.Term`` refuses, while planning).

Costs are counted in units of about 10 nanoseconds of PostgreSQL's executor, as measured (time of the backend's core,
PostgreSQL 18, two shared cores of an AMD EPYC under load, 300,000 rows): a sum of integers 30 ns, products of numeric
130 to 170, ``round`` 170, a remainder 430, a float to a rounded numeric 870, ``date_trunc`` 270, a moment to text 270;
of a text of 256 characters ``lower`` 1,000, ``length`` 600, ``left`` 2,400, LIKE '%b%' 600; where every character
begins the pattern LIKE takes 4 for each of them and 0.8 more for each byte of the longest run between two % (16,000 for
80 letters, 55,000 for 80 characters of four bytes); a bpchar of 4,000 bytes beside a constant 2,500; a member of IN 20
to 40 (the table of members is made for the first row).
``MOST_COST`` is therefore about 10 microseconds for a row on an idle machine and 16 under load, and some
40 for a row that is made to be slow; a text that is stored out of line is fetched in 10 to 20 more.
"""

from __future__ import annotations

from typing import Final

MOST_DIGITS: Final = 50
"""Of any number that is worked out in a row, before and after the point together: thirteen words of ``numeric``."""

STORED_DIGITS: Final = 40
"""A ``numeric(p,s)`` of at most so many digits enters arithmetic as it is."""

KEPT_DIGITS: Final = 24
KEPT_PLACES: Final = 9
"""A number of any other type enters arithmetic rounded to 9 places, and as NULL from 10^15 on ..."""

DECLARED_DIGITS: Final = 16
DECLARED_RESERVE: Final = 2
"""... or, where bounds up to 10^e are declared, as NULL beyond 10^(e+2), and rounded to 14 - e places."""

KEY_DIGITS: Final = 29
KEY_PLACES: Final = 20
"""Such a number as a key itself: NULL beyond 10^29, and rounded to 20 places."""

STORED_BYTES: Final = 64
"""A ``numeric`` that takes more (some hundred digits) is compared as NULL, and added up as its upper bound."""

OTHER_BYTES: Final = 256
"""A value of a type without a stated size, neither a number nor a text, that takes more is NULL."""

UNIT_BYTES: Final = 1000
"""A row whose privacy unit is named by a longer text has none: it counts nowhere."""

TEXT_LENGTH: Final = 256
"""Of a longer text only so many characters count, in comparisons, patterns, functions and keys ..."""

DOMAIN_LENGTH: Final = 64
"""... and where a domain is declared, so many, or one more than its longest member has."""

CONSTANT_LENGTH: Final = 1000
"""Of a text constant, in characters."""

PADDED_BYTES: Final = 1024
"""A ``bpchar`` that takes more, trailing blanks included, is NULL in orders, patterns, functions and keys: PostgreSQL
has no function that reads only its beginning."""

EQUAL_BYTES: Final = 4 * CONSTANT_LENGTH
"""A text or ``bpchar`` that takes more differs from every constant (a ``bpchar`` even if the rest of it is blanks;
a ``character(n)`` that could be so long is refused)."""

PATTERN_LENGTH: Final = 100
PATTERN_WILDCARDS: Final = 8
"""Of a LIKE pattern: characters, and runs of ``%``."""

MEMBER_COST: Final = 2
"""Of a member of an IN list."""

MOST_COST: Final = 1600
"""Of all terms of a question together, for one row."""
