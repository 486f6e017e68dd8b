"""Options: the command line before the environment before the default, and a sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from proxy.settings import Settings

DSN = "postgresql://reader:swordfish@db.example:5433/clinic"


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("PGVEIL_")]:
        monkeypatch.delenv(name)


def test_what_is_given_comes_before_the_environment_and_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(upstream=DSN).listen == "127.0.0.1:6543"
    monkeypatch.setenv("PGVEIL_LISTEN", "0.0.0.0:7000")
    assert Settings(upstream=DSN).address == ("0.0.0.0", 7000)
    assert Settings(upstream=DSN, listen="[::1]:0").address == ("::1", 0)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_option_has_a_name_in_the_environment(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    values = {"listen": "localhost:1", "home": str(tmp_path), "tls_cert": str(file), "tls_key": str(file)}
    value = values.get(name, DSN if name in ("upstream", "provenance", "shadow") else "4096")
    value = "debug" if name == "log_level" else value
    if name.startswith("tls_"):  # they go together
        monkeypatch.setenv("PGVEIL_TLS_CERT", str(file))
        monkeypatch.setenv("PGVEIL_TLS_KEY", str(file))
    monkeypatch.setenv("PGVEIL_UPSTREAM", DSN)
    monkeypatch.setenv(f"PGVEIL_{name.upper()}", value)
    read = getattr(Settings(), name)  # type: ignore[call-arg]
    assert read != Settings.model_fields[name].default
    assert Settings.model_fields[name].description


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("listen", "6543", "expected HOST:PORT"),
        ("listen", "localhost:", "expected HOST:PORT"),
        ("listen", "localhost:65536", "expected HOST:PORT"),
        ("upstream", "swordfish", "not a PostgreSQL connection string"),
        ("shadow", "postgresql://u:swordfish@[h/x", "not a PostgreSQL connection string"),
        ("tls_cert", "nowhere.pem", "there is no file nowhere.pem"),
        ("max_connections", "0", "greater than or equal to 1"),
        ("startup_seconds", "-1", "greater than 0"),
        ("max_message", "lots", "valid integer"),
        ("log_level", "loud", "'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
    ],
)
def test_a_bad_value_is_told_in_a_sentence_without_the_secret(option: str, value: str, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**{"upstream": DSN, option: value})  # type: ignore[arg-type]
    (problem,) = refused.value.errors()
    assert problem["loc"] == (option,) and words in problem["msg"]
    assert "swordfish" not in problem["msg"]


def test_certificate_and_key_go_together(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.touch()
    with pytest.raises(ValidationError, match="--tls-cert and --tls-key go together"):
        Settings(upstream=DSN, tls_cert=file)


def test_a_password_is_not_printed() -> None:
    settings = Settings(upstream=DSN, shadow=DSN)
    assert "swordfish" not in repr(settings) + str(settings)
    assert settings.upstream_dsn == DSN == settings.provenance_dsn


def test_the_home_is_where_it_was_when_the_program_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(upstream=DSN).home == tmp_path / ".pgveil"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings(upstream=DSN).listen = "elsewhere:1"  # type: ignore[misc]
