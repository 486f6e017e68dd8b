"""What came of every check of every client, the page that tells it, and the table of the README."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from matrix import CHECKS, Client

_HEAD = """# Clients

Written by `make matrix` from a run of `tests/clients` against a real proxy on the demo data; nothing here is claimed
without that run.

**yes**: seen to work. **no**: pgveil's fault, see below. **partly**: see below. –: not offered by the client, or not
tried with it. Empty: not run.

"""

BEGIN, END = "<!-- clients -->", "<!-- /clients -->"


def short(page: str) -> str:
    """The page in one line per client: how many checks were seen to work, and which do not."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:1] == "|"]
    (head, _), clients = rows[:2], rows[2:]
    lines = ["| client | version | seen to work | does not work yet |", "|---|---|---|---|"]
    for name, version, *cells in clients:
        said = dict(zip(head[2:], cells, strict=True))
        tried = [what for what in said.values() if what in ("yes", "partly", "no")]
        missing = ", ".join(check for check, what in said.items() if what == "no")
        worked = f"{len(tried) - tried.count('no')} of {len(tried)}" if tried else "not run"
        partly = f" ({tried.count('partly')} in part)" if "partly" in tried else ""
        lines.append(f"| {name} | {version} | {worked}{partly} | {missing or '–'} |")
    return "\n".join(lines)


def block(readme: str) -> str:
    """What stands between the marks."""
    return readme.partition(BEGIN)[2].partition(END)[0].strip()


def filled(readme: str, page: str) -> str:
    """The README with the short table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{short(page)}\n{END}{after}"


@dataclass
class Outcomes:
    """``yes``, ``no`` or a dash for each client and check."""

    versions: dict[str, str] = field(default_factory=dict)
    seen: dict[tuple[str, str], str] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, client: str, check: str, outcome: str, reason: str = "") -> None:
        self.seen[client, check] = outcome
        self.reasons.pop((client, check), None)
        if reason and not reason.startswith("not offered"):
            self.reasons[client, check] = reason

    def page(self, clients: Iterable[Client]) -> str:
        clients = list(clients)
        lines = [f"| client | version | {' | '.join(CHECKS)} |", f"|---|---|{'---|' * len(CHECKS)}"]
        for one in clients:
            cells = [self.seen.get((one.name, check), "") for check in CHECKS]
            lines.append(f"| {one.name} | {self.versions.get(one.name, '')} | {' | '.join(cells)} |")
        parts = [_HEAD + "\n".join(lines), "## The checks", *(f"- **{name}**: {what}" for name, what in CHECKS.items())]
        for title, outcome in (("What does not work yet", "no"), ("What is done in part", "partly"), ("Left out", "–")):
            told = [
                f"- {who}, {what}: {why}"
                for (who, what), why in sorted(self.reasons.items())
                if self.seen[who, what] == outcome
            ]
            if told:
                parts += [f"## {title}", "\n".join(told)]
        absent = [f"- {one.name}: {one.missing}" for one in clients if one.missing]
        if absent:
            parts += ["## Not run on this machine", "\n".join(absent)]
        return "\n\n".join(parts).replace("\n\n- **", "\n- **") + "\n"
