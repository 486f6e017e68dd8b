"""Options of the proxy: command line first, then PGVEIL_* in the environment, then the default."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Everything that an operator can turn."""

    model_config = SettingsConfigDict(env_prefix="PGVEIL_", frozen=True, extra="ignore")

    upstream: SecretStr = Field(description="DSN of the protected PostgreSQL")
    provenance: SecretStr | None = Field(None, description="DSN of the provenance database; default: the upstream")
    shadow: SecretStr | None = Field(None, description="DSN of the shadow PostgreSQL; default: an embedded one")
    listen: str = Field("127.0.0.1:6543", description="HOST:PORT to serve on")
    home: Path = Field(Path(".pgveil"), description="state of the embedded databases")
    anchor: Path | None = Field(None, description="file that knows the last charge; default: one in the home")
    tls_cert: Path | None = Field(None, description="certificate chain for TLS")
    tls_key: Path | None = Field(None, description="private key for TLS")
    max_connections: int = Field(200, ge=1, description="client sessions at once")
    max_message: int = Field(64 * 1024 * 1024, ge=1024, description="largest message from a client, in bytes")
    startup_seconds: float = Field(20.0, gt=0, description="time a client has to log in")
    question_seconds: float = Field(300.0, gt=0, description="time the protected database has for one question")
    readers: int = Field(8, ge=1, description="connections to the protected database")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")

    @field_validator("upstream", "provenance", "shadow")
    @classmethod
    def _is_a_dsn(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                conninfo_to_dict(value.get_secret_value())
            except ProgrammingError:  # its text quotes the DSN, and with it a password
                raise ValueError(
                    "not a PostgreSQL connection string, for example postgresql://user@host:5432/database"
                ) from None
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _capital(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("listen")
    @classmethod
    def _has_a_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) < 65536:
            raise ValueError("expected HOST:PORT, for example 127.0.0.1:6543")
        return value

    @field_validator("home")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("tls_cert", "tls_key")
    @classmethod
    def _is_there(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError(f"there is no file {value}")
        return value

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together")
        return self

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def provenance_dsn(self) -> str:
        return (self.provenance or self.upstream).get_secret_value()

    @property
    def upstream_dsn(self) -> str:
        return self.upstream.get_secret_value()
