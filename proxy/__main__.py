"""The command line: ``pgveil init | serve | demo | status``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from pydantic import ValidationError

from mechanisms.errors import Refusal
from provenance.errors import MigrationError
from provenance.migrate import migrate
from proxy import demo
from proxy.embedded import OLDEST, Cluster, EmbeddedError
from proxy.runtime import running
from proxy.server import Server
from proxy.settings import Settings
from proxy.shadow import ShadowError
from proxy.status import application_name, demo_dsn, status

_OPTIONS = tuple(Settings.model_fields)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class CannotStart(Exception):  # noqa: N818 - a sentence for the operator
    """Something outside of pgveil is not as it must be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (it failed, and says why) or 2 (the command line is wrong)."""
    options = vars(_parser().parse_args(arguments))
    command: Callable[[dict[str, Any]], int] = options.pop("command")
    level = (options.get("log_level") or os.environ.get("PGVEIL_LOG_LEVEL") or _LEVEL[command]).upper()
    logging.basicConfig(
        level=level if level in _LEVELS else "INFO",  # what is wrong with it is said where all options are checked
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        return command(options)
    except ValidationError as error:
        for problem in error.errors():
            print(f"pgveil: {_complaint(problem['loc'], problem['type'], problem['msg'])}", file=sys.stderr)
        return 2
    except Refusal as refusal:
        print(f"pgveil: {refusal.message}", file=sys.stderr)
        return 1
    except (psycopg.Error, CannotStart, EmbeddedError, MigrationError, ShadowError, OSError) as error:
        print(f"pgveil: {str(error).strip()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _complaint(where: tuple[int | str, ...], kind: str, message: str) -> str:
    """What is wrong with an option, in the words of the command line."""
    message = message.removeprefix("Value error, ")
    if not where:
        return message
    option = f"--{str(where[0]).replace('_', '-')} (or PGVEIL_{str(where[0]).upper()})"
    if kind == "missing":
        return f"{option} is required: the connection string of a PostgreSQL, such as postgresql://user@host/database"
    return f"{option}: {message}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pgveil",
        description="Differential privacy in front of PostgreSQL.",
        epilog="Every option can be given as PGVEIL_<OPTION> in the environment, for example PGVEIL_UPSTREAM.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Callable[[dict[str, Any]], int], text: str, *options: str) -> None:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(command=run)
        for option in options:
            info = Settings.model_fields[option]
            shown = info.default and not info.is_required() and (option != "log_level" or name == "serve")
            told = f"{info.description} (default: {info.default})" if shown else info.description
            command.add_argument(f"--{option.replace('_', '-')}", metavar=_METAVARS[option], help=told)

    add("init", _init, "create or upgrade the provenance schema and the roles (idempotent)", "upstream", "provenance")
    add("serve", _serve, "run the proxy", *_OPTIONS)
    add("demo", _demo, "run the proxy on demo data in embedded databases", "listen", "home", "log_level")
    add("demo-load", _demo_load, "load the demo data into an existing, empty database and register it", "upstream")
    add("status", _status, "show health and budgets in a table", "upstream", "provenance", "listen", "home")
    return parser


_METAVARS = {
    "upstream": "DSN",
    "provenance": "DSN",
    "shadow": "DSN",
    "listen": "HOST:PORT",
    "home": "DIR",
    "anchor": "FILE",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "max_connections": "N",
    "max_message": "BYTES",
    "startup_seconds": "SECONDS",
    "question_seconds": "SECONDS",
    "readers": "N",
    "log_level": "LEVEL",
}


def _settings(options: dict[str, Any]) -> Settings:
    return Settings(**{name: value for name, value in options.items() if value is not None})


@contextlib.contextmanager
def _reaching(what: str, option: str) -> Iterator[None]:
    """Say which of the databases it was; libpq's own words name host, port and user, never the password."""
    try:
        yield
    except psycopg.OperationalError as error:
        reason = " ".join(str(error).split())
        raise CannotStart(f"cannot reach {what} ({option}): {reason}") from None


def _migrate(settings: Settings) -> list[str]:
    which = ("the provenance database", "--provenance") if settings.provenance else ("the database", "--upstream")
    with _reaching(*which):
        return migrate(settings.provenance_dsn)


def _init(options: dict[str, Any]) -> int:
    applied = _migrate(_settings(options))
    for name in applied:
        print(f"applied {name}")
    print("pgveil: the provenance schema is up to date")
    if applied:
        print(_NEXT)
    return 0


_NEXT = """next, in that database, with your own names and passwords:
  SELECT provenance.create_administrator('admin', 'a password');
  SELECT provenance.create_analyst('alice', 'a password', 5);     -- privilege 1 to 10
  SELECT provenance.protect('patients', unit_column => 'patient_id');
then: pgveil serve --upstream ..."""


def _serve(options: dict[str, Any]) -> int:
    settings = _settings(options)
    with _stoppable():
        with _reaching("the protected database", "--upstream"):
            psycopg.connect(settings.upstream_dsn).close()
        if settings.shadow is not None:
            with _reaching("the shadow", "--shadow"):
                psycopg.connect(settings.shadow.get_secret_value()).close()
        _migrate(settings)
        _run(settings, lambda host, port: [f"pgveil ready on {host}:{port}"])
    return 0


def _demo(options: dict[str, Any]) -> int:
    home = Path(options.get("home") or os.environ.get("PGVEIL_HOME") or ".pgveil").absolute()
    given = {"home": home, "listen": options.get("listen"), "log_level": options.get("log_level")}
    _settings({**given, "upstream": f"dbname={demo.DATABASE}"})  # a wrong option is told before anything is started
    with _stoppable():
        cluster, dsn = demo.prepare(home)
        with contextlib.ExitStack() as stack:
            stack.callback(cluster.stop)
            alone = {"shadow": None, "provenance": None}  # whatever the environment says
            settings = _settings({**given, "upstream": dsn}).model_copy(update=alone)
            _run(settings, _invitation)
    return 0


def _demo_load(options: dict[str, Any]) -> int:
    settings = _settings(options)
    dsn = settings.upstream_dsn
    _migrate(settings)
    demo.load(dsn)
    demo.register(dsn)
    print("pgveil: the demo data are loaded and registered")
    return 0


def _status(options: dict[str, Any]) -> int:
    home = Path(options.get("home") or os.environ.get("PGVEIL_HOME") or ".pgveil").absolute()
    if not options.get("upstream") and "PGVEIL_UPSTREAM" not in os.environ:
        options["upstream"] = demo_dsn(home)
    text, healthy = status(_settings(options))
    print(text)
    return 0 if healthy else 1


# A server's log is read by its operator; the other commands print what they have to say.
_LEVEL: dict[Callable[[dict[str, Any]], int], str] = {
    _init: "WARNING",
    _serve: "INFO",
    _demo: "WARNING",
    _demo_load: "WARNING",
    _status: "WARNING",
}


def _invitation(host: str, port: int) -> list[str]:
    return [
        f"pgveil ready on {host}:{port}",
        "",
        f"  PGPASSWORD=alice psql -h {host} -p {port} -U alice {demo.DATABASE}",
        "",
        "  then, for example:",
        "    \\d patient_data",
        "    SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500;",
        "    SELECT gender, count(*), avg(age) FROM patient_data GROUP BY gender;",
        "    EXPLAIN SELECT city FROM orders GROUP BY city HAVING sum(amount) > 1000000;",
        "",
        "  other analysts: bob, carol; administrator: admin; each password is the name. Ctrl-C stops everything.",
    ]


def _run(settings: Settings, greeting: Callable[[str, int], list[str]]) -> None:
    """Serve until a signal says stop, with an embedded shadow unless another is named."""
    os.environ["PGAPPNAME"] = application_name()  # how ``pgveil status`` knows a replica when it sees one
    with contextlib.ExitStack() as stack:
        if settings.shadow is not None:
            shadow_dsn = settings.shadow.get_secret_value()
        else:
            settings.home.mkdir(parents=True, exist_ok=True)
            wanted = {"max_connections": str(settings.max_connections + 20)}
            # The oldest server that serves: every client works with a server that is older than itself, but psql 15 has
            # no \\l on a later one.
            cluster = Cluster(settings.home / "shadow", settings=wanted, version=OLDEST)
            shadow_dsn = stack.enter_context(cluster).dsn("postgres")
        _event_loop()(_serve_until_stopped(settings, shadow_dsn, greeting))


async def _serve_until_stopped(settings: Settings, shadow_dsn: str, greeting: Callable[[str, int], list[str]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running(settings, shadow_dsn) as runtime:
        try:
            server = Server(runtime)
            port = await server.start()
            # What stands now stays: the collector need not walk over it, nor after each of a question's small values.
            gc.freeze()
            gc.set_threshold(10_000, 10, 10)
        except ssl.SSLError as error:
            raise CannotStart(f"cannot use the certificate of --tls-cert with --tls-key: {error.reason}") from None
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {settings.listen}: {os.strerror(error.errno) if error.errno else error}"
                " (--listen HOST:PORT chooses another place)"
            ) from None
        for line in greeting(settings.address[0], port):
            print(line, flush=True)
        await stop.wait()
        print("pgveil: stopping", flush=True)
        await server.stop()


def _event_loop() -> Callable[[Any], Any]:
    # Threads that work on measured rows leave the processor to the event loop ten times as often as usual.
    sys.setswitchinterval(0.0005)
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM before the event loop runs ends the program as Ctrl-C does, so that what was started is stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


if __name__ == "__main__":
    sys.exit(main())
