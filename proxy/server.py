"""Sockets: accept, secure, log in, and then hand every byte to the session. Small and boring on purpose."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Mapping
from typing import Final, cast

import psycopg

from mechanisms.errors import Refusal
from provenance.registry import Account
from proxy import messages as m
from proxy.auth import ScramExchange, new_cancel_key
from proxy.binding import end_point
from proxy.codec import (
    LOGIN_LIMITS,
    TLS_HANDSHAKE,
    CancelRequest,
    Frames,
    GSSENCRequest,
    SSLRequest,
    StartupMessage,
    StartupReader,
)
from proxy.errors import (
    AdminShutdown,
    DatabaseUnreachable,
    InvalidAuthorization,
    NoSuchDatabase,
    ProtocolViolation,
    QueryCancelled,
    TooManyConnections,
    as_refusal,
    error_fields,
)
from proxy.link import LinkLost, ShadowError
from proxy.login import Greeting, Target, cancel, connect
from proxy.protocol import Event, Machine
from proxy.runtime import ADMIN_ROLE, Runtime
from proxy.session import Session
from proxy.tls import names_protocol, secure, tls_context

log = logging.getLogger("pgveil")

_FATAL: Final = "FATAL"
_OWN_PARAMETERS: Final = frozenset(("user", "database"))
_AHEAD: Final = 4  # SASL messages that a client may send before it is asked; the exchange has two


class Server:
    """All connections of one listening socket."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        settings = runtime.settings
        self.tls: ssl.SSLContext | None = None
        self.binding: bytes | None = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            self.tls = tls_context(settings.tls_cert, settings.tls_key)
            self.binding = end_point(settings.tls_cert)
        self.clients: set[Client] = set()
        self.by_pid: dict[int, Client] = {}
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; returns the port (which the system chose if 0 was asked for)."""
        host, port = self.runtime.settings.address
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Client(self), host, port, backlog=512)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Take no more clients and say goodbye to those that are here."""
        if self._listener is not None:
            self._listener.close()
        for client in list(self.clients):
            client.fail(AdminShutdown())
        self.runtime.pacing.close()  # whoever could learn from the time has been told
        for _ in range(20):
            if not self.clients:
                break
            await asyncio.sleep(0.05)

    def new_pid(self) -> int:
        """A number for BackendKeyData that no other session here has."""
        while True:
            pid = secrets.randbelow(2**31 - 1) + 1
            if pid not in self.by_pid:
                return pid

    async def cancel(self, request: CancelRequest) -> None:
        """Cancel what the session with that number and secret does; a wrong guess gets the same silence."""
        client = self.by_pid.get(request.pid)
        if client is not None and secrets.compare_digest(client.key, request.key):
            await client.cancel()


class Client(asyncio.Protocol):
    """One connection, from its first byte; after the login ``session`` takes over."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session: Session | None = None
        self.machine = Machine()
        self.pid, self.key = 0, b""
        self._transport: asyncio.Transport | None = None
        self._startup: StartupReader | None = StartupReader()
        self._frames = Frames(server.runtime.settings.max_message, LOGIN_LIMITS)
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._upgrading = self._secured = False
        self._early = b""  # what was decrypted before there was a transport to answer on
        self._target: Target | None = None
        self._greeting: Greeting | None = None
        self._background: set[asyncio.Task[None]] = set()

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not of that class
        if self._upgrading:
            return
        self.server.clients.add(self)
        settings = self.server.runtime.settings
        if len(self.server.clients) > 2 * settings.max_connections + 32:
            # Somebody opens connections and says nothing: no word for them, and no descriptor either.
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(settings.startup_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.clients.discard(self)
        if self.server.by_pid.get(self.pid) is self:
            del self.server.by_pid[self.pid]
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()
        if self.session is not None:
            self.session.close()

    def data_received(self, data: bytes) -> None:
        try:
            if self.session is not None:
                self.session.receive(data)
            elif self._upgrading and not self._secured:
                self._early += data
            elif self._startup is not None:
                self._open(data)
            else:
                for kind, frame in self._frames.feed(data):
                    self.machine.receive(kind)
                    if kind == m.TERMINATE:
                        self._close()
                        return
                    if self._inbox.qsize() >= _AHEAD:
                        raise ProtocolViolation("too many messages before authentication")
                    self._inbox.put_nowait(frame)
        except LinkLost:
            self._close()
        except Exception as error:
            self.fail(as_refusal(error))

    def pause_writing(self) -> None:
        if self.session is not None:
            self.session.client_writable(False)

    def resume_writing(self) -> None:
        if self.session is not None:
            self.session.client_writable(True)

    # -- startup ------------------------------------------------------------------------------------------------

    def _open(self, data: bytes) -> None:
        reader = self._startup
        assert reader is not None and self._transport is not None
        if reader.untouched and not self._secured and data.startswith(TLS_HANDSHAKE):
            if self.server.tls is None:
                self._close()  # as PostgreSQL does: a client that speaks TLS reads nothing else
            else:
                self._upgrade(data)
            return
        packet = reader.feed(data)
        while packet is not None:
            match packet:
                case SSLRequest():
                    reader.refuse_leftover()
                    if self.server.tls is None or self._upgrading:
                        self._transport.write(b"N")
                    else:
                        self._transport.write(b"S")
                        self._upgrade()
                    return
                case GSSENCRequest():
                    reader.refuse_leftover()
                    self._transport.write(b"N")
                    return
                case CancelRequest():
                    self._spawn(self._cancel_and_close(packet))
                    return
                case StartupMessage():
                    self._startup = None
                    self.machine.happen(Event.STARTED)
                    self._task = asyncio.get_running_loop().create_task(self._log_in(packet))
                    if reader.leftover:
                        self.data_received(reader.leftover)
                    return
            packet = reader.feed(b"")

    def _upgrade(self, hello: bytes = b"") -> None:
        assert self._transport is not None
        self._upgrading = True
        self._transport.pause_reading()
        self._spawn(self._secure(hello))

    async def _secure(self, hello: bytes) -> None:
        assert self._transport is not None and self.server.tls is not None
        try:
            self._transport = await secure(self._transport, self, self.server.tls, hello)
        except (OSError, ssl.SSLError):
            # uvloop tells nobody that a connection is lost in the middle of its handshake.
            self._transport.abort()
            self.connection_lost(None)
            return
        self._secured = True
        if hello and not names_protocol(self._transport):
            self._close()
        elif self._early:
            self.data_received(self._early)

    async def _log_in(self, startup: StartupMessage) -> None:
        try:
            await self._greet(startup)
        except ShadowError as error:
            # Native: an unknown setting in the startup options, a full shadow. Nothing private is there.
            self._write(error.frame)
            self._close()
        except (psycopg.Error, OSError, LinkLost, TimeoutError) as error:
            log.error("login failed: a database of ours cannot be reached: %s %s", type(error).__name__, error)
            self.fail(DatabaseUnreachable())
        except Exception as error:
            self.fail(as_refusal(error))

    async def _greet(self, startup: StartupMessage) -> None:
        server, runtime = self.server, self.server.runtime
        if startup.minor > m.LATEST_MINOR or startup.unknown_options:
            minor = min(startup.minor, m.LATEST_MINOR)
            self._write(m.encode_negotiate_protocol_version(minor, startup.unknown_options))
        user = startup.parameters.get("user", "")
        if not user:
            raise InvalidAuthorization("no PostgreSQL user name specified in startup packet")
        if len(server.clients) > runtime.settings.max_connections:
            raise TooManyConnections("sorry, too many clients already")
        account = await runtime.registry.account(user)
        await self._authenticate(user, account)
        assert account is not None
        if startup.parameters.get("database", user) != runtime.database:
            name = startup.parameters.get("database", user)
            raise NoSuchDatabase(
                f'database "{name}" does not exist', hint=f'This proxy serves the database "{runtime.database}".'
            )
        await self._join(account, startup)

    async def _authenticate(self, user: str, account: Account | None) -> None:
        binding = self.server.binding if self._secured else None
        verifier = account.verifier if account else None
        exchange = ScramExchange(user, verifier, self.server.runtime.mock_secret, binding)
        self._write(m.encode_authentication_sasl(exchange.mechanisms))
        first = m.decode_sasl_initial(await self._inbox.get())
        self._write(m.encode_sasl_continue(exchange.first(first.data, first.mechanism)))
        final = exchange.final(m.decode_sasl_response(await self._inbox.get()).data)
        if self._frames.pending or not self._inbox.empty():
            raise ProtocolViolation("received data after the last SASL message")
        # What comes next is for the session, which has yet to be opened: let it wait in the socket.
        if self._transport is not None:
            self._transport.pause_reading()
        self._write(m.encode_sasl_final(final) + m.encode_authentication_ok())

    async def _join(self, account: Account, startup: StartupMessage) -> None:
        """Connect the session with the PostgreSQL where its text runs."""
        runtime = self.server.runtime
        wanted = {
            name: value
            for name, value in startup.parameters.items()
            if name not in _OWN_PARAMETERS and not name.startswith("_pq_.")
        }
        session = Session(runtime, account.name, account.administrator, runtime.settings.max_message)
        if account.administrator:
            self._target = runtime.admin_target
            who = {"user": ADMIN_ROLE, "password": runtime.admin_password}
            database = runtime.admin_database
            link, greeting = await connect(self._target, session, **who, database=database, parameters=wanted)
        else:
            self._target = target = runtime.shadow_target
            analyst = await runtime.registry.analyst(account.name)
            wanted = _with_defaults(wanted, analyst.settings if analyst else {})
            session.note_settings(" ".join(wanted) + " " + wanted.get("options", ""))
            who = {"user": account.name, "password": runtime.shadow.password(account.name)}
            link, greeting = await runtime.enter(
                account.name, lambda name: connect(target, session, **who, database=name, parameters=wanted)
            )
        if self._transport is None or self._transport.is_closing():
            link.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._greeting = greeting
        self.pid = self.server.new_pid()
        self.key = new_cancel_key(32 if startup.minor >= 2 else 4)
        self.server.by_pid[self.pid] = self
        self.machine.happen(Event.AUTHENTICATED)
        session.open(self._transport, link)
        self._write(
            greeting.parameters + m.encode_backend_key_data(self.pid, self.key) + m.encode_ready_for_query(m.IDLE)
        )
        self.session = session
        self._transport.resume_reading()

    # -- the end ------------------------------------------------------------------------------------------------

    async def _cancel_and_close(self, request: CancelRequest) -> None:
        """libpq takes the end of the connection for "delivered": it must not come earlier."""
        await self.server.cancel(request)
        self._close()

    async def cancel(self) -> None:
        """The client's second connection asked to stop what this one does."""
        if self.session is None or self.session.cancel():
            return
        if self._target is not None and self._greeting is not None:
            await _forward_cancel(self._target, self._greeting)

    def fail(self, refusal: Refusal) -> None:
        """Say why, and hang up."""
        self._write(error_fields(refusal, _FATAL))
        self._close()

    def _too_slow(self) -> None:
        log.info("a client took too long to log in")
        if self._upgrading and not self._secured and self._transport is not None:
            self._transport.abort()  # which ends the handshake, and with it the connection
            self.connection_lost(None)
        elif self._startup is None:  # PostgreSQL's own words; before a StartupMessage nobody knows what is spoken
            self.fail(QueryCancelled("canceling authentication due to timeout"))
        else:
            self._close()

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self.session is not None:
            self.session.close()
        if self._transport is not None:
            self._transport.close()


async def _forward_cancel(target: Target, greeting: Greeting) -> None:
    try:
        await cancel(target, greeting)
    except (OSError, TimeoutError):
        log.warning("a cancel request did not reach the shadow")


def _with_defaults(wanted: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """An analyst's own defaults, overridden by what the client asks for at startup.

    They travel in front of the client's own ``options``: PostgreSQL lets a later -c win, but a parameter of its own
    wins over any -c.
    """
    own = ["-c " + _escaped(f"{name}={value}") for name, value in defaults.items() if name.startswith("veil.")]
    options = " ".join((*own, *([wanted["options"]] if wanted.get("options") else [])))
    return {**wanted, **({"options": options} if options else {})}


def _escaped(word: str) -> str:
    """One word inside ``options``, where blanks separate and a backslash escapes."""
    return word.replace("\\", "\\\\").replace(" ", "\\ ")
