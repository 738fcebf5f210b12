"""Run a hall for tests: its roles as processes in a home, and people who use it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import requests
import socketio
from engineio.payload import Payload

from kingdom.base.home.places import Places
from tests.fixtures import founded
from tests.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[3]
PASSWORD = "long enough"
# What this client takes in one answer to a poll: others have no such limit.
Payload.max_decode_packets = 1000
START_SECONDS = 60.0
SECONDS = 30.0
"""Longer than anything takes on a busy machine."""
OPEN: Mapping[str, Any] = {"registration": "open", "port": 0}


class Hall:
    """Roles of the chat in one home."""

    def __init__(
        self,
        home: Path,
        config: Mapping[str, Any] = OPEN,
        tree: Path = CHECKOUT,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`tree` holds the program that runs; `env` is added to its environment."""
        home.chmod(0o700)
        self.places: Places = founded(home, hall=config)
        self._tree = tree
        path = f"{tree}:{env['PYTHONPATH']}" if "PYTHONPATH" in env else str(tree)
        self._environment = {**os.environ, **env, "KINGDOM_HOME": str(home), "PYTHONPATH": path}
        self._roles: dict[str, subprocess.Popen[bytes]] = {}
        self.urls: dict[str, str] = {}
        """Where each gateway listens, the first one also under `url`."""
        self.url = ""

    def start(self, role: str) -> str:
        """Start a role, `gateway-b` as an instance; return where it listens, "" for a worker."""
        module, _, name = role.partition("-")
        own = self.places.own(role)
        address = own / "address"
        address.unlink(missing_ok=True)
        out = self.places.home / f"{role}.out"
        with out.open("ab") as told:
            command = [sys.executable, "-m", f"kingdom.{module}", *([name] if name else [])]
            self._roles[role] = subprocess.Popen(
                command, cwd=self._tree, env=self._environment, stdout=told, stderr=told
            )

        def is_ready() -> bool:
            assert self._roles[role].poll() is None, f"{role} has ended: {out.read_text()}"
            return address.exists() if module == "gateway" else '"idle"' in _text(own / "heartbeat")

        wait_until(is_ready, START_SECONDS, f"{role} is ready", [own] if own.exists() else [])
        self.urls[role] = url = address.read_text().strip() if module == "gateway" else ""
        self.url = self.url or url
        return url

    def pid(self, role: str) -> int:
        return self._roles[role].pid

    def kill(self, role: str) -> None:
        """End a role as a crash would."""
        process = self._roles.pop(role)
        process.kill()
        process.wait()

    def stop(self, role: str) -> int:
        """End a role as its launcher would, and return its exit code."""
        self._roles[role].send_signal(signal.SIGTERM)
        return self.ended(role)

    def ended(self, role: str) -> int:
        """Wait for the end of a role that was asked to end, and return its exit code."""
        return self._roles.pop(role).wait(SECONDS)

    def close(self) -> None:
        """End what is still running."""
        for process in self._roles.values():
            process.terminate()
        for role in list(self._roles):
            try:
                self._roles.pop(role).wait(SECONDS)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{role} does not end") from None

    def log(self) -> str:
        return _text(self.places.system_log)

    def person(self, url: str = "") -> Person:
        """Return somebody new who has signed in."""
        return Person(url or self.url)


@contextmanager
def running(
    *roles: str, config: Mapping[str, Any] = OPEN, tree: Path = CHECKOUT, system: Mapping[str, Any] | None = None
) -> Iterator[Hall]:
    """Return a hall in a home of its own, in which these roles run."""
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    hall = Hall(home, config, tree)
    if system is not None:
        founded(home, system=system)
    try:
        for role in roles:
            hall.start(role)
        yield hall
    finally:
        hall.close()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def two_gateways(config: Mapping[str, Any], system: Mapping[str, Any] | None = None) -> Iterator[tuple[Hall, str]]:
    """Return a hall with two gateways and a worker, and where the second gateway listens."""
    both = {"port": 0, "instances": {"gateway": {"b": 0}}, **config}
    with running("gateway", "gateway-b", "worker", config=both, system=system) as hall:
        yield hall, hall.urls["gateway-b"]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


class Person:
    """Somebody with an account."""

    def __init__(self, url: str, email: str = "") -> None:
        """Register somebody new, or sign in with an email that is registered."""
        self.url = url
        self.email = email or f"{uuid.uuid4()}@example.org"
        registered = "" if email else self._post("/auth/register", 201)["id"]
        self.token = self._post("/auth/login", 200)["accessToken"]
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.id: str = registered or self.call("GET", "/auth/me").json()["id"]

    def _post(self, path: str, status: int) -> dict[str, Any]:
        answer = requests.post(self.url + path, json={"email": self.email, "password": PASSWORD}, timeout=SECONDS)
        assert answer.status_code == status, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def call(self, method: str, path: str, url: str = "", **given: Any) -> requests.Response:
        return requests.request(method, (url or self.url) + path, headers=self.headers, timeout=SECONDS, **given)

    def room(self, *others: Person) -> str:
        """Return a new room with these members."""
        room = str(self.call("POST", "/rooms", json={"name": "a room"}).json()["id"])
        for other in others:
            assert other.call("POST", f"/rooms/{room}/join").status_code == 201
        return room

    def history(self, room: str, url: str = "", **query: Any) -> list[dict[str, Any]]:
        answer = self.call("GET", f"/rooms/{room}/messages", url, params=query)
        assert answer.status_code == 200, answer.text
        told: list[dict[str, Any]] = answer.json()
        return told

    @asynccontextmanager
    async def socket(self, *rooms: str, url: str = "", transports: list[str] | None = None) -> AsyncIterator[Socket]:
        """A socket of this person that has joined rooms."""
        client = socketio.AsyncClient(reconnection=False)
        socket = Socket(client)
        await client.connect(url or self.url, auth={"token": self.token}, transports=transports or ["websocket"])
        try:
            for room in rooms:
                assert await socket.call("joinRoom", {"roomId": room}) == {"success": True}
            yield socket
        finally:
            await client.shutdown()


class Socket:
    """A connected socket, and everything that it was told."""

    def __init__(self, client: socketio.AsyncClient) -> None:
        self.client = client
        self.told: list[tuple[str, Any]] = []
        self._news = asyncio.Event()
        client.on("*", self._hear)
        client.on("disconnect", lambda reason=None: self._hear("disconnect", reason))
        client.on("connect", lambda: self._hear("connect"))

    def _hear(self, event: str, *data: Any) -> None:
        self.told.append((event, data[0] if data else None))
        self._news.set()

    async def call(self, event: str, data: Any = None) -> Any:
        return await self.client.call(event, data, timeout=SECONDS)

    async def send(self, room: str, content: str = "hello", **fields: Any) -> dict[str, Any]:
        """Send a message and return the answer."""
        message = {"roomId": room, "clientMsgId": str(uuid.uuid4()), "content": content, **fields}
        answer: dict[str, Any] = await self.call("sendMessage", message)
        return answer

    def all(self, event: str) -> list[Any]:
        return [data for name, data in self.told if name == event]

    async def wait(self, event: str, fits: Callable[[Any], bool] = lambda data: True, seconds: float = SECONDS) -> Any:
        """Return what the first fitting event brought, which may have come already."""
        async with asyncio.timeout(seconds):
            while True:
                for data in self.all(event):
                    if fits(data):
                        return data
                self._news.clear()
                await self._news.wait()
