"""Readers that do not read, callers that ask too much, many that come at once, and ends that lose nothing."""

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import socketio

from kingdom.hall.database import accounts
from kingdom.hall.database.opening import open_database
from tests.faults.oracle import Figure
from tests.hall.gateway.halls import OPEN, PASSWORD, SECONDS, Hall, Person, Socket, running

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]
QUEUED_BYTES = 65_536
CONNECTIONS = 8
GOOD_READERS = 100 if os.environ.get("KINGDOM_CAMPAIGN") else 5
ROUNDS = 40 if os.environ.get("KINGDOM_CAMPAIGN") else 30
LIMITS = {"messages": {"count": 20_000, "seconds": 1}, "queued_bytes": QUEUED_BYTES}


@pytest.fixture
def own() -> Iterator[Hall]:
    """A hall of a test's own, whose roles it may end."""
    with running("gateway", "worker", config={**OPEN, "limits": LIMITS}) as hall:
        yield hall


class StuckReader:
    """A web socket that joins a room and then reads nothing any more."""

    def __init__(self, person: Person, room: str) -> None:
        address = urlsplit(person.url)
        assert address.hostname
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(SECONDS)
        self._socket.connect((address.hostname, address.port))
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        lines = ["GET /socket.io/?EIO=4&transport=websocket HTTP/1.1", f"Host: {address.netloc}", "Upgrade: websocket"]
        lines += ["Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        self._read_until(b"sid")
        self._send(f'40{{"token":"{person.token}"}}')
        self._read_until(b"40{")
        self._send(f'420["joinRoom",{{"roomId":"{room}"}}]')
        self._read_until(b'[{"success":true}]')

    def _send(self, text: str) -> None:
        payload = text.encode()
        size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        self._socket.sendall(b"\x81" + size + b"\0\0\0\0" + payload)

    def _read_until(self, wanted: bytes) -> None:
        seen = b""
        while wanted not in seen:
            seen += self._socket.recv(4096)

    def read_to_the_end(self) -> int:
        """How many bytes come before the connection ends."""
        total = 0
        try:
            while part := self._socket.recv(1 << 20):
                total += len(part)
        except ConnectionResetError:
            pass
        finally:
            self._socket.close()
        return total


async def test_a_reader_that_is_stuck_is_cut_and_keeps_nobody_waiting(own: Hall, figure: Figure) -> None:
    anna, ben = own.person(), own.person()
    room = anna.room(ben)
    stuck = StuckReader(ben, room)
    readers = [anna.socket(room) for _ in range(GOOD_READERS)]
    sockets = [await reader.__aenter__() for reader in readers]
    content = "x" * 4900
    try:
        for _ in range(ROUNDS):
            await asyncio.gather(*(sockets[0].send(room, content) for _ in range(50)))
        await sockets[0].send(room, "last")
        for one in sockets:
            await one.wait("newMessage", lambda told: told["content"] == "last", 4 * SECONDS)
            assert not one.all("disconnect")
            assert len(one.all("newMessage")) == ROUNDS * 50 + 1
        # Besides what may wait for it here it got what the kernel holds for a connection.
        assert stuck.read_to_the_end() < ROUNDS * 50 * len(content)
        assert (await sockets[0].call("heartbeat")) == {"success": True}
        figure(f"row 27 a reader that is stuck: cut, {GOOD_READERS} others got all {ROUNDS * 50 + 1} messages")
    finally:
        for reader in readers:
            await reader.__aexit__(None, None, None)


async def test_a_stop_answers_what_was_taken_in_and_lets_clients_come_back(own: Hall, figure: Figure) -> None:
    anna = own.person()
    room = anna.room()
    async with anna.socket(room) as hers:
        sends = [asyncio.ensure_future(hers.send(room, str(number))) for number in range(300)]
        await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
        os.kill(own.pid("gateway"), signal.SIGTERM)
        await hers.wait("disconnect")
        # A client comes back by itself after that. Only refused and ended sessions get a server disconnect.
        assert hers.all("disconnect")[0] in ("transport close", "transport error")
        answered = {task.result()["clientMsgId"]: task.result()["status"] for task in sends if task.done()}
        for task in sends:
            task.cancel()
    assert own.ended("gateway") == 0
    accepted = {sent for sent, status in answered.items() if status == "ACCEPTED"}
    assert accepted
    own.url = ""
    own.start("gateway")
    async with anna.socket(room, url=own.url) as hers:
        await hers.send(room, "last")
        await hers.wait("newMessage", lambda told: told["content"] == "last")
    kept: list[str] = []
    after = ""
    while page := anna.history(room, own.url, limit=100, **({"after": after} if after else {"after": "0" * 26})):
        kept += [message["clientMsgId"] for message in page]
        after = page[-1]["id"]
    lost, doubled = len(accepted - set(kept)), len(kept) - len(set(kept))
    figure(f"row 27 a stop under load: {len(accepted)} accepted, {lost} lost, {doubled} doubled")
    assert (lost, doubled) == (0, 0)


async def test_a_reconnect_storm_is_survived(own: Hall, figure: Figure) -> None:
    anna = own.person()
    room = anna.room()
    own.kill("gateway")
    own.url = ""
    own.start("gateway")
    anna.url = own.url

    async def come_back() -> Socket:
        client = socketio.AsyncClient(reconnection=False)
        back = Socket(client)
        await client.connect(own.url, auth={"token": anna.token}, transports=["websocket"], wait_timeout=SECONDS)
        assert await back.call("joinRoom", {"roomId": room}) == {"success": True}
        return back

    sockets = await asyncio.gather(*(come_back() for _ in range(150)))
    try:
        assert (await sockets[0].send(room, "here again"))["status"] == "ACCEPTED"
        for one in sockets:
            await one.wait("newMessage")
        figure(f"row 27 coming back at once: {len(sockets)} of 150 are told what is said then")
    finally:
        await asyncio.gather(*(socket.client.shutdown() for socket in sockets))


@pytest.fixture(scope="module")
def strict() -> Iterator[Hall]:
    """A gateway with small limits, without a worker."""
    few: dict[str, Any] = {"count": 3, "seconds": 3600}
    with running("gateway", config={**OPEN, "limits": {"messages": few, "logins": few, "worker_lag": 1}}) as hall:
        yield hall


@pytest.fixture(scope="module")
def narrow() -> Iterator[Hall]:
    """A gateway that takes few sockets, each of which may ask little."""
    limits = {"calls": {"count": 3, "seconds": 3600}, "connections": CONNECTIONS}
    with running("gateway", config={**OPEN, "limits": limits}) as hall:
        yield hall


async def test_while_the_worker_lags_messages_fail_as_busy(strict: Hall) -> None:
    ben = strict.person()
    room = ben.room()
    async with ben.socket(room) as his:
        answer = await his.send(room)
        async with asyncio.timeout(SECONDS):
            while answer["error" if answer["status"] == "FAILED" else "status"] != "busy":
                async with ben.socket(room) as another:  # each socket has a limit of its own
                    answer = await another.send(room)
        assert answer["retryAfterMs"] > 0


async def test_a_socket_may_ask_so_often_and_then_tells_nobody_anything(narrow: Hall) -> None:
    anna, ben = narrow.person(), narrow.person()
    room = anna.room(ben)
    async with ben.socket(room) as his, anna.socket(room) as hers:
        answers = [await hers.call("typing", {"roomId": room, "on": bool(number % 2)}) for number in range(4)]
        assert answers[:2] == [{"success": True}] * 2
        for answer in [*answers[2:], await hers.call("joinRoom", {"roomId": room}), await hers.call("heartbeat")]:
            assert (answer["success"], answer["error"]) == (False, "Too many requests")
            assert answer["retryAfterMs"] > 0
        assert await his.call("heartbeat") == {"success": True}
        assert [told["on"] for told in his.all("typing")] == [False, True]


@pytest.mark.parametrize("query", ["", "&xsid=1", "&t=sid=1", "&sid="])
async def test_no_more_sockets_than_the_limit_says_whatever_else_is_asked(query: str, narrow: Hall) -> None:
    anna = narrow.person()
    path = f"{narrow.url}/socket.io/?EIO=4&transport=polling{query}"
    async with AsyncExitStack() as opened:
        # Those of another test may not be forgotten yet.
        for _ in range(CONNECTIONS + 1):
            asked = requests.get(path, headers=anna.headers, timeout=SECONDS)
            if asked.status_code != 200:
                break
            socket = await opened.enter_async_context(anna.socket())
            assert await socket.call("heartbeat") == {"success": True}
        assert (asked.status_code, asked.json()["message"]) == (503, "Too many connections")


async def test_limits_say_when_to_come_back(strict: Hall) -> None:
    anna = strict.person()
    room = anna.room()
    async with anna.socket(room) as hers:
        answers = [await hers.send(room) for _ in range(4)]
        # `busy` perhaps, since nothing stores what waits here: either way it says when to come back.
        assert answers[-1]["status"] == "FAILED"
        assert answers[-1]["retryAfterMs"] > 0
        async with anna.socket(room) as another:
            answer = await another.send(room)
            while answer["status"] == "ACCEPTED":
                answer = await another.send(room, clientMsgId=str(uuid.uuid4()))
            assert answer["error"] in ("busy", "Too many messages")
    refused = None
    for _ in range(4):
        given = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD}
        refused = requests.post(f"{strict.url}/auth/login", json=given, timeout=SECONDS)
    assert refused is not None
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert refused.json()["message"] == "Too many requests"


async def test_a_closed_hall_takes_no_invitation_but_the_owners(home: Path) -> None:
    hall = Hall(home, {"port": 0, "registration": "closed"})
    try:
        hall.start("gateway")
        database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
        now = time.time()
        member, owner = (
            database.run(lambda db, role=role: accounts.new_invite(db, accounts.Invitation(role), 1, 60.0, now))  # type: ignore[misc]
            for role in (accounts.MEMBER, accounts.OWNER)
        )
        database.close()
        given = {"email": "a@example.org", "password": PASSWORD}
        told = [
            requests.post(f"{hall.url}/auth/register", json=given | invite, timeout=SECONDS)
            for invite in ({}, {"invite": member}, {"invite": owner})
        ]
        assert [answer.status_code for answer in told] == [403, 403, 201]
        assert told[0].json()["message"] == "Registration is closed"
    finally:
        hall.close()
