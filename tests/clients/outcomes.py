"""What came of every check of every client, the page that tells it, and the table of the README."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from matrix import CHECKS, SUPERSET, SUPERSET_CHECKS, Client

_HEAD = """# Clients

Written by `make matrix` from a run of `tests/clients` against a real proxy on the demo data; nothing here is claimed
without that run.

**yes**: seen to work. **no**: pgveil's fault, see below. **partly**: see below. –: not offered by the client, or not
tried with it. Empty: not run.

"""

_SUPERSET = """## Apache Superset

Started for real, driven by its REST API and, for the picture, by a browser.

"""

BEGIN, END = "<!-- clients -->", "<!-- /clients -->"


def short(page: str) -> str:
    """The page in one line per client: how many checks were seen to work, and which do not."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:1] == "|"]
    lines = ["| client | version | seen to work | does not work yet |", "|---|---|---|---|"]
    head: list[str] = []
    for (name, version, *cells), after in zip(rows, [*rows[1:], [""]], strict=True):
        if name.startswith("---") or after[0].startswith("---"):
            head = head if name.startswith("---") else cells
            continue
        said = dict(zip(head, cells, strict=True))
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

    def _table(self, head: str, names: Iterable[str], checks: Iterable[str]) -> str:
        checks = list(checks)
        lines = [f"| {head} | version | {' | '.join(checks)} |", f"|---|---|{'---|' * len(checks)}"]
        for name in names:
            cells = [self.seen.get((name, check), "") for check in checks]
            lines.append(f"| {name} | {self.versions.get(name, '')} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def page(self, clients: Iterable[Client]) -> str:
        clients = list(clients)
        parts = [_HEAD + self._table("client", [one.name for one in clients], CHECKS), _checks("The checks", CHECKS)]
        parts += [_SUPERSET + self._table("tool", [SUPERSET], SUPERSET_CHECKS)]
        parts += [_checks("The checks of Superset", SUPERSET_CHECKS)]
        for title, outcome in (("What does not work yet", "no"), ("What is done in part", "partly"), ("Left out", "–")):
            told = [
                f"- {who}, {what}: {why}"
                for (who, what), why in sorted(self.reasons.items())
                if self.seen[who, what] == outcome
            ]
            if told:
                parts += [f"## {title}", "\n".join(told)]
        absent = [f"- {one.name}: {one.missing}" for one in clients if one.missing]
        if SUPERSET not in self.versions:
            absent.append(f"- {SUPERSET}")
        if absent:
            parts += ["## Not run on this machine", "\n".join(absent)]
        return "\n\n".join(parts) + "\n"


def _checks(title: str, checks: Mapping[str, str]) -> str:
    return f"## {title}\n" + "".join(f"\n- **{name}**: {what}" for name, what in checks.items())
