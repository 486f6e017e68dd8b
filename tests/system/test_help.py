"""veil.help(): in every client, true, and with examples that run."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from proxies import Proxy
from test_psql import psql, through

from proxy.help import TOPICS
from proxy.veil_settings import SETTINGS


def lines(session: psycopg.Connection[Any], text: str) -> list[str]:
    return [row[0] for row in session.execute(text.encode()).fetchall()]


def test_the_first_page_lists_the_topics(session: psycopg.Connection[Any]) -> None:
    page = lines(session, "SELECT veil.help()")
    assert page == lines(session, "SELECT * FROM veil.help()")
    assert all(topic in "\n".join(page) for topic in TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_has_its_lines(session: psycopg.Connection[Any], topic: str) -> None:
    page = lines(session, f"SELECT * FROM veil.help('{topic}')")
    assert page == list(TOPICS[topic]) == lines(session, f"SELECT veil.help(' {topic.upper()}')")
    assert all(line.isascii() and len(line) <= 160 for line in page)


def test_an_unknown_topic_is_told_the_known_ones(session: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='there is no help on "weather"') as caught:
        session.execute("SELECT veil.help('weather')")
    assert all(topic in (caught.value.diag.message_hint or "") for topic in TOPICS)


def test_every_setting_is_explained(session: psycopg.Connection[Any]) -> None:
    page = lines(session, "SELECT veil.help('settings')")
    for name, default in SETTINGS.items():
        assert any(line.startswith(f"{name} = {default or 'unset'}: ") for line in page)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_example_runs(session: psycopg.Connection[Any], topic: str) -> None:
    """On the demo; decisions are only explained, since a real one may fail to be certified, if rarely."""
    for line in TOPICS[topic]:
        if line.startswith("  "):
            assert line.endswith(";")
            session.execute(f"EXPLAIN {line}".encode() if "HAVING" in line and "EXPLAIN" not in line else line.encode())


def test_psql_shows_the_functions(proxy: Proxy, analyst: str) -> None:
    listed = psql(through(proxy, analyst), "\\df+ veil.help")
    assert "topic text" in listed and "Help on one topic" in listed
