"""Assemble the parts of a gateway, and keep them going."""

from __future__ import annotations

import asyncio
import glob
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kingdom.base.disk.codec import read_json_or
from kingdom.base.errors import BadConfig
from kingdom.base.home.config import Config
from kingdom.base.runtime.role import Services
from kingdom.base.words import count
from kingdom.hall.database.base import DatabaseRefused, Unavailable
from kingdom.hall.database.ids import new_uuid
from kingdom.hall.database.opening import open_database
from kingdom.hall.database.records import HallCommand, Signal
from kingdom.hall.gateway.admission import Admission
from kingdom.hall.gateway.clients import ChatClient, Clients
from kingdom.hall.gateway.delivery import Names, RoomDelivery
from kingdom.hall.gateway.engine import EngineIO
from kingdom.hall.gateway.guesses import Guesses
from kingdom.hall.gateway.limits import Limit, Rate
from kingdom.hall.gateway.membership import Membership
from kingdom.hall.gateway.orders import PageOrders
from kingdom.hall.gateway.page_files import PageFiles
from kingdom.hall.gateway.panel import Panel
from kingdom.hall.gateway.passwords import Passwords
from kingdom.hall.gateway.presence import Presence
from kingdom.hall.gateway.proxies import Proxies
from kingdom.hall.gateway.refusals import HttpRefusal, answer, on_refusal
from kingdom.hall.gateway.rest import OPERATIONS, Rest
from kingdom.hall.gateway.rooms import Rooms
from kingdom.hall.gateway.sessions import LOOK_SECONDS, ChatSessions
from kingdom.hall.gateway.siblings import Siblings
from kingdom.hall.gateway.sockets import UNDELIVERED, Sockets
from kingdom.hall.gateway.store import ChatStore
from kingdom.hall.gateway.tokens import SECRET, Tokens, find_secret
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome, TopicsAway, kit_of
from kingdom.hall.topics.names import COMMANDS, MESSAGES, PASSING

SOCKETS = "/socket.io"
HOUSEKEEPING_SECONDS = 1.0
CHECK_SECONDS = 2.5
ORDER_SECONDS = 5.0
RED_SECONDS = 60.0
"""How long /health tells that events were lost on the way to this gateway."""
BUSY = "busy"


class Application:
    """One gateway as an ASGI application."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._config = services.config
        clock, monotonic = services.clock, services.monotonic
        limits = services.config["limits"]
        self._rates = {name: Rate(_limit(limits[name]), monotonic) for name in RATES}
        secret_path = services.places.own("gateway") / "secret"
        secret = find_secret({**services.secrets, **_environment()}, secret_path, services.disk)
        tokens = Tokens(secret, clock)
        self._store = ChatStore(open_database(services.config, services.secrets, services.places))
        self._topics = open_topics(services.config["transport"], kit_of(services, services.config, PASSING))
        self._producer = self._topics.producer()
        self._clients = Clients(lambda: int(self._config["limits"]["queued_bytes"]), self._cut)
        membership = Membership(self._store, monotonic)
        here = f"the {services.name} of {socket.gethostname()}:{services.places.home}"
        self._siblings = Siblings(self._store, here, secret, clock)
        memory = services.places.ended_sessions
        self._sessions = ChatSessions(self._store, memory, services.unsynced, services.log.warn, clock)
        self._rooms = Rooms(
            f"{services.name}-{new_uuid()}", self._clients, membership, Presence(monotonic), self._producer
        )
        self._sockets = Sockets(
            self._clients,
            self._rooms,
            membership,
            tokens,
            self._producer,
            self._rates["messages"],
            self._rates["calls"],
            self._sessions,
            services.log.error,
            clock,
        )
        self._engine = EngineIO(self._sockets)
        self._delivery = RoomDelivery(
            self._topics, self._clients, Names(self._store), self._hear, self._lost, services.log.warn
        )
        self._passwords = Passwords()
        self._checks = ThreadPoolExecutor(2, thread_name_prefix="checks")
        self._rest = Rest(
            self._store,
            tokens,
            self._passwords,
            self._rates,
            Guesses(self._rates["wrong_passwords"], self._rates["account_guesses"], services.log.warn, monotonic),
            self._rooms,
            self._health,
            self._sessions,
            self._order,
            Panel(services.places, self._checks, clock).look,
            PageOrders(services.places, services.queues, services.disk, clock),
            clock,
        )
        self._proxies = Proxies(services.log.warn)
        self._admission = Admission(self._serve, self._rates["requests"], self._proxies)
        self._routes = _routes(self._rest, self._failed)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._red_until = 0.0
        self._cuts = 0
        self._ends_told = self._ended_at = 0
        self.configure(services.config)

    def configure(self, config: Config) -> None:
        """Take over what may change while it runs."""
        try:
            self._proxies.configure(config["trusted_proxies"])
        except ValueError as error:
            path = self._services.places.config / "hall.yaml"
            raise BadConfig(path=path, line="", key="trusted_proxies", why=error) from None
        self._config = config
        for name, rate in self._rates.items():
            rate.limit = _limit(config["limits"][name])
        own = [config["host"]] if config["host"] not in ("0.0.0.0", "::") else []
        self._admission.configure([*config["hosts"], *own], config["origins"], config["public_url"])
        self._rest.registration = config["registration"]

    @property
    def moved(self) -> asyncio.Event:
        """Note that the reader of topics has finished a round."""
        return self._delivery.moved

    def check(self) -> None:
        """Raise what has ended a part that must not end."""
        self._delivery.check()
        for task in self._tasks:
            if task.done():
                task.result()

    def start(self) -> None:
        """Begin to read the topics and to look after the sockets. Once."""
        if not self._tasks:
            self._delivery.start()
            lasting = (self._keep_house, self._watch_stores, self._watch_sessions)
            self._tasks = [asyncio.ensure_future(task()) for task in lasting]

    async def drain(self, seconds: float) -> None:
        """Take no more messages, and answer those that were taken."""
        self._is_stopping = True
        self._sockets.refuses = UNDELIVERED
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._checks, self._producer.flush, seconds)
        self._sockets.answer_settled()

    async def close(self, seconds: float) -> None:
        """End every part."""
        for task in self._tasks:
            task.cancel()
        self._delivery.stop()
        await self._delivery.ended(seconds)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._checks, self._topics.close)
        self._passwords.close()
        await loop.run_in_executor(self._checks, self._store.close)
        self._checks.shutdown(wait=False)

    def figures(self) -> dict[str, int]:
        """Return what there has been since this gateway began."""
        return {
            "sockets": len(self._clients.by_pipe),
            "refused_sockets": self._sockets.refused_sockets,
            "cut_sockets": self._cuts,
            "unexpected_ends": self._sockets.unexpected_ends,
            "unexpected_end_at": self._ended_at,
            "accepted": self._sockets.accepted,
            "failed": self._sockets.failed,
            "delivered": self._delivery.delivered,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._admission(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(SOCKETS):
            await self._routes(scope, receive, send)
        elif self._is_stopping or not self._delivery.follows:
            await answer(HttpRefusal(503, "Service unavailable", retry_after=1))(scope, receive, send)
        elif len(self._clients.by_pipe) >= self._config["limits"]["connections"] and b"sid" not in parse_qs(
            scope["query_string"]
        ):
            await answer(HttpRefusal(503, "Too many connections", retry_after=10))(scope, receive, send)
        else:
            await self._engine.handle(scope, receive, send)

    def _cut(self, client: ChatClient) -> None:
        self._cuts += 1
        client.pipe.drop()

    def _lost(self, why: str) -> None:
        """Cut everybody, so that they come back and read what they have missed from the history."""
        self._services.log.error(f"alert: {why}; every socket is cut and resumes from the history")
        self._red_until = self._services.monotonic() + RED_SECONDS
        for client in list(self._clients.by_pipe.values()):
            client.pipe.drop()

    async def _hear(self, signal: Signal) -> None:
        ended = signal.facts.get("sessions")
        if signal.kind == "session_ended" and isinstance(ended, list):
            await self._sessions.end(ended)
            self._sockets.disconnect_ended()
        else:
            self._rooms.hear(signal)

    @property
    def differ(self) -> str:
        """Why other gateways of this database refuse tokens of this one, or "" if they do not."""
        return self._siblings.differ

    async def learn_siblings(self) -> None:
        """Find out whether all gateways of a shared database have one secret, and say it when that changes."""
        with suppress(Unavailable, DatabaseRefused):
            if self._store.is_shared and await self._siblings.look(self._services.monotonic()):
                if self.differ:
                    self._services.log.error(f"alert: {self.differ}")
                else:
                    self._services.log.info("all gateways of this database sign tokens with one secret")

    async def learn_sessions(self) -> None:
        """Learn which sessions were ended, and disconnect those; nothing while the database is away."""
        with suppress(Unavailable, DatabaseRefused):
            if await self._sessions.look():
                self._sockets.disconnect_ended()

    async def _watch_sessions(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.learn_sessions()
            await self.learn_siblings()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            self._sockets.end_sessions()
            self._rooms.expire()
            self._tell_unexpected_ends()

    def _tell_unexpected_ends(self) -> None:
        new = self._sockets.unexpected_ends - self._ends_told
        if new:
            self._ends_told += new
            self._ended_at = int(self._services.clock())
            seconds = self._sockets.ended_after
            self._services.log.error(
                f"ended {count(new, 'socket')} for no known reason, the last one after {seconds:.1f} s"
            )

    async def _watch_stores(self) -> None:
        """Refuse messages while too many of those taken in are not stored yet, or nothing could store them any more."""
        loop = asyncio.get_running_loop()
        taken, lag, lost = -1, 0, ""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            # A server says by itself that it is away; asking it could take as long as it hangs.
            before, lost = lost, "" if self._store.is_shared else await self._store.lost()
            if lost and not before:
                self._services.log.error(f"alert: {lost}; messages are refused until it is back")
            if self._sockets.accepted != taken or lag:
                taken = self._sockets.accepted
                with suppress(TopicsAway):
                    lag = await loop.run_in_executor(self._checks, self._lag)
            if not self._is_stopping:
                is_busy = lag > self._config["limits"]["worker_lag"]
                self._sockets.refuses = UNDELIVERED if lost else BUSY if is_busy else ""

    def _lag(self) -> int:
        return self._topics.lag(self._config["kafka"]["group"], MESSAGES)

    async def _order(self, key: str, command: HallCommand) -> bool:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[bool] = loop.create_future()

        def settle(is_stored: bool) -> None:
            if not told.done():
                told.set_result(is_stored)

        def done(outcome: PublishOutcome, why: str) -> None:
            loop.call_soon_threadsafe(settle, outcome is PublishOutcome.STORED)

        self._producer.append(COMMANDS, key, command.to_json(), done)
        with suppress(TimeoutError):
            return await asyncio.wait_for(told, ORDER_SECONDS)
        return False

    async def _health(self) -> dict[str, str]:
        database, topics = await asyncio.gather(self._is_database_up(), self._are_topics_up())
        return {
            "database": "up" if database else "down",
            "topics": "up" if topics else "down",
            "worker": "up" if self._is_worker_up() else "down",
            **({"secret": "down"} if self.differ else {}),
        }

    async def _is_database_up(self) -> bool:
        try:
            await self._store.check(CHECK_SECONDS)
        except (Unavailable, DatabaseRefused):
            return False
        return True

    async def _are_topics_up(self) -> bool:
        if self._delivery.away or not self._delivery.follows or self._services.monotonic() < self._red_until:
            return False
        checked = asyncio.get_running_loop().run_in_executor(self._checks, self._topics.check)
        try:
            await asyncio.wait_for(asyncio.shield(checked), CHECK_SECONDS)
        except (TopicsAway, TimeoutError):
            return False
        return True

    def _is_worker_up(self) -> bool:
        """Return whether any worker's heartbeat is fresh, and tells of no trouble."""
        threshold = self._services.system["heartbeat"]["threshold_seconds"]
        pattern = f"{glob.escape(str(self._services.places.state))}/worker*/heartbeat"
        since = self._services.clock() - threshold
        return any(_works(path, since) for path in map(Path, glob.glob(pattern)))

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Answer a defect of ours, or a database that is away."""
        self._services.log.error(f"{request.method} {request.url.path} failed: {type(error).__name__}: {error}")
        if isinstance(error, Unavailable):
            return answer(HttpRefusal(503, "Service unavailable", retry_after=1))
        return answer(HttpRefusal(500, "Internal server error"))


RATES = ("messages", "calls", "registrations", "logins", "wrong_passwords", "account_guesses", "searches", "requests")


def _limit(config: Mapping[str, Any]) -> Limit:
    return Limit(int(config["count"]), float(config["seconds"]))


def _environment() -> dict[str, str]:
    return {SECRET: os.environ[SECRET]} if SECRET in os.environ else {}


def _works(heartbeat: Path, since: float) -> bool:
    """Return whether a worker stores messages, as far as its heartbeat and its snapshot say."""
    try:
        beat = read_json_or(heartbeat, {}).get("state")
        is_fresh = os.stat(heartbeat).st_mtime >= since
    except OSError:
        return False
    waits = read_json_or(heartbeat.with_name("worker.json"), {}).get("state") == "waiting"
    return is_fresh and beat not in ("stopped", "crashed", "degraded") and not waits


def _routes(rest: Rest, failed: Callable[[Request, Exception], Any]) -> Starlette:
    methods: dict[str, dict[str, Any]] = {}
    for (method, path), operation in OPERATIONS.items():
        methods.setdefault(path, {})[method] = operation

    def route(path: str, operations: dict[str, Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            operation = operations["GET" if request.method == "HEAD" else request.method]
            result: Response = await operation(rest, request)
            return result

        return Route(path, endpoint, methods=list(operations))

    files = PageFiles()

    async def page(request: Request) -> Response:
        return files.answer(request)

    return Starlette(
        routes=[
            *(route(path, operations) for path, operations in methods.items()),
            *(Route(path, page) for path in ("/", "/pages/{part:path}")),
        ],
        exception_handlers={
            HttpRefusal: on_refusal,
            HTTPException: _on_http_exception,
            Unavailable: failed,
            Exception: failed,
        },
    )


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = answer(HttpRefusal(error.status_code, str(error.detail)))
    found.headers.update(error.headers or {})
    return found
