"""The table of clients in the README is the one that was seen."""

from __future__ import annotations

from matrix import CHECKS, CLIENTS, ROOT, SUPERSET, SUPERSET_CHECKS
from outcomes import BEGIN, END, Outcomes, block, filled, short


def test_the_readme_says_what_the_page_says() -> None:
    page, readme = (ROOT / "docs" / "CLIENTS.md").read_text(), (ROOT / "README.md").read_text()
    assert readme.count(BEGIN) == readme.count(END) == 1
    assert block(readme) == short(page)
    assert len(short(page).splitlines()) == 2 + len(CLIENTS) + 1  # and Superset


def test_every_client_has_a_line_with_what_was_seen() -> None:
    found = Outcomes()
    for client in CLIENTS[:2]:
        found.versions[client.name] = "7"
        for check in CHECKS:
            found.note(client.name, check, "yes")
    found.note(CLIENTS[0].name, "tls", "no", "broken")
    found.note(CLIENTS[0].name, "copy", "–")
    found.note(CLIENTS[1].name, "connect", "partly", "half")
    page = found.page(CLIENTS)
    first, second, third, *_, last = short(page).splitlines()[2:]
    assert first == f"| {CLIENTS[0].name} | 7 | {len(CHECKS) - 2} of {len(CHECKS) - 1} | tls |"
    assert second == f"| {CLIENTS[1].name} | 7 | {len(CHECKS)} of {len(CHECKS)} (1 in part) | – |"
    assert "not run" in third
    assert last == f"| {SUPERSET} |  | not run | – |" and f"- {SUPERSET}" in page
    found.versions[SUPERSET] = "6"
    for check in SUPERSET_CHECKS:
        found.note(SUPERSET, check, "yes")
    found.note(SUPERSET, "lab", "no", "broken")
    many = len(SUPERSET_CHECKS)
    assert short(found.page(CLIENTS)).splitlines()[-1] == f"| {SUPERSET} | 6 | {many - 1} of {many} | lab |"
    assert block(filled(f"a {BEGIN} old {END} b", page)) == short(page)
    assert filled(f"a {BEGIN} old {END} b", page).startswith("a ") and filled(f"a {BEGIN}{END} b", page).endswith(" b")
