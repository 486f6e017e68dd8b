"""Where one statement of a script ends and the next begins, and what is a word rather than a quoted text.

PostgreSQL still parses every piece by itself on the shadow, so a wrong cut is a syntax error there, not a leak.
"""

from __future__ import annotations

from sqlrewrite.lex import Kind, tokens


def split(text: str) -> list[str]:
    """The statements of a script, without the semicolons; empty ones (only blanks and comments) are left out."""
    pieces: list[str] = []
    start, filled = 0, False
    atomic, previous = 0, ""
    for token in tokens(text):
        word = token.word or ""
        if word == "atomic" and previous == "begin":
            atomic = 1  # a SQL-standard function body: its semicolons are its own
        elif atomic and word == "case":
            atomic += 1
        elif atomic and word == "end":
            atomic -= 1
        previous = word
        if token.kind is Kind.END and not atomic:
            if filled:
                pieces.append(text[start : token.start])
            start, filled = token.stop, False
        else:
            filled = True
    if filled:
        pieces.append(text[start:])
    return pieces


def words(text: str) -> list[str]:
    """Every identifier and keyword outside string constants and comments, folded as PostgreSQL folds them."""
    return [name for token in tokens(text) if (name := token.name) is not None]
