"""Channel binding and require_auth, as libpq asks for them: who stands in between is not let in."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from proxies import Proxy
from raw_wire import Wire, errors
from secured import make_certificate, man_in_the_middle

from proxy import messages as m


def test_a_client_may_require_channel_binding(secure: Proxy, analyst: str) -> None:
    for wish in ("require", "prefer", "disable"):
        with secure.connect(analyst, sslmode="require", channel_binding=wish) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)


def test_without_tls_the_client_itself_refuses(secure: Proxy, analyst: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="channel binding required"):
        secure.connect(analyst, sslmode="disable", channel_binding="require")


def test_somebody_in_between_does_not_pass(secure: Proxy, analyst: str, tmp_path: Path) -> None:
    """With another certificate; where the client does not care, the same relay reads everything."""
    with man_in_the_middle(secure.port, make_certificate(tmp_path, "localhost")) as port:
        with secure.connect(analyst, port=port, sslmode="require", channel_binding="disable") as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        for wish in ("require", "prefer"):
            with pytest.raises(psycopg.OperationalError, match="SCRAM channel binding check failed"):
                secure.connect(analyst, port=port, sslmode="require", channel_binding=wish)


def test_the_offer_cannot_be_taken_back_unnoticed(secure: Proxy, analyst: str, tmp_path: Path) -> None:
    with man_in_the_middle(secure.port, make_certificate(tmp_path, "localhost"), strip=True) as port:
        with pytest.raises(psycopg.OperationalError, match="SCRAM channel binding negotiation error"):
            secure.connect(analyst, port=port, sslmode="require", channel_binding="prefer")
        with pytest.raises(psycopg.OperationalError, match="channel binding is required"):
            secure.connect(analyst, port=port, sslmode="require", channel_binding="require")


def test_binding_is_not_offered_in_the_clear(secure: Proxy, analyst: str) -> None:
    with Wire(secure.port) as wire:
        wire.send(m.encode_startup({"user": analyst, "database": secure.database}))
        ((_, frame),) = wire.until(m.AUTHENTICATION)
        assert frame == m.encode_authentication_sasl(["SCRAM-SHA-256"])
        wire.send(m.encode_sasl_initial("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc"))
        (told,) = errors(wire.the_rest())
        assert (told["C"], told["M"]) == ("08P01", "client selected an invalid SASL authentication mechanism")


@pytest.mark.parametrize("mode", ["disable", "require"])
@pytest.mark.parametrize("method", ["scram-sha-256", "!password,!md5,!none"])
def test_a_client_may_require_scram(secure: Proxy, analyst: str, mode: str, method: str) -> None:
    with secure.connect(analyst, sslmode=mode, require_auth=method) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("method", ["password", "md5", "none", "!scram-sha-256"])
def test_a_client_that_requires_another_method_hangs_up(secure: Proxy, analyst: str, method: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"authentication method requirement .* failed"):
        secure.connect(analyst, require_auth=method)
