"""The parts of a gateway that need no process: limits, presence, membership, tokens, frames, hosts and origins."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import bcrypt
import jwt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame, Opcode

from kingdom.base.disk.atomic import Disk
from kingdom.base.errors import BadHome
from kingdom.hall.database.base import Unavailable
from kingdom.hall.database.passwords import is_outdated
from kingdom.hall.gateway import frames
from kingdom.hall.gateway.frames import FRAMES, LARGEST_INCOMING, Listener, WebSocket, text_frame
from kingdom.hall.gateway.guesses import Guesses
from kingdom.hall.gateway.limits import Limit, Rate
from kingdom.hall.gateway.membership import FRESH_SECONDS, Membership
from kingdom.hall.gateway.passwords import Passwords
from kingdom.hall.gateway.presence import TTL_SECONDS, Presence, PresenceChange
from kingdom.hall.gateway.refusals import HttpRefusal
from kingdom.hall.gateway.tokens import ALGORITHM, AUDIENCE, LIFETIME_SECONDS, SECRET, Tokens, find_secret
from tests.fixtures import Clock
from tests.waiting import SOON, stays


def test_a_caller_may_ask_so_often_and_then_as_time_passes() -> None:
    clock = Clock()
    rate = Rate(Limit(3, 6.0), clock)
    assert [rate.wait_seconds("a") > 0 for _ in range(4)] == [False, False, False, True]
    assert rate.wait_seconds("b") == 0
    wait = rate.wait_seconds("a")
    assert wait == pytest.approx(2.0, abs=0.01)
    clock.pass_(wait)
    assert rate.wait_seconds("a") == 0
    assert rate.wait_seconds("a") > 0
    clock.pass_(6)
    assert [rate.wait_seconds("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_wrong_passwords_count_for_an_account_and_an_address_and_many_for_all_of_them() -> None:
    clock, told = Clock(), list[str]()
    guesses = Guesses(Rate(Limit(2, 60.0), clock), Rate(Limit(5, 60.0), clock), told.append, clock)

    def refused(address: str, account: str = "anna") -> bool:
        try:
            guesses.check(account, address)
        except HttpRefusal as refusal:
            return refusal.status == 429 and 0 < refusal.retry_after <= 30
        return False

    for address, count in (("1", 2), ("2", 2)):
        assert not refused(address), "who guesses elsewhere locks nobody out"
        for _ in range(count):
            guesses.note_wrong("anna", address, "her-id")
        assert refused(address)
    assert (refused("3"), refused("1", "ben")) == (False, False)
    guesses.note_wrong("anna", "3", "her-id")
    assert (refused("3"), refused("4"), refused("1", "ben")) == (True, True, False)
    assert [("the user her-id" in line, "anna" in line) for line in told] == [(True, False)], "once a minute"
    clock.pass_(60)
    assert not any(refused(address) for address in "1234")


def test_presence_counts_the_sockets_of_a_user() -> None:
    clock = Clock()
    presence = Presence(clock)
    assert presence.seen("phone", "anna", ["room"]) == [PresenceChange("room", "anna", True)]
    assert presence.seen("desk", "anna", ["room"]) == []
    assert presence.gone("phone") == []
    assert presence.seen("desk", "anna", ["other"]) == [
        PresenceChange("room", "anna", False),
        PresenceChange("other", "anna", True),
    ]
    assert presence.users_in("other") == ["anna"]
    assert presence.gone("desk") == [PresenceChange("other", "anna", False)]
    assert presence.gone("desk") == []


def test_a_socket_that_is_silent_is_no_longer_there() -> None:
    clock = Clock()
    presence = Presence(clock)
    presence.seen("phone", "anna", ["room"])
    presence.seen("desk", "ben", ["room"])
    clock.pass_(TTL_SECONDS - 1)
    presence.seen("desk", "ben", ["room"])
    clock.pass_(1)
    assert presence.expire() == [PresenceChange("room", "anna", False)]
    assert presence.users_in("room") == ["ben"]


class Members:
    """A store that says who is a member, or is away."""

    def __init__(self) -> None:
        self.answers: list[bool | Exception] = []
        self.meanwhile: Any = None

    async def read(self, work: Any, seconds: float) -> bool:
        answer = self.answers.pop(0)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_known_member_may_send_while_the_database_is_away_and_a_stranger_may_not() -> None:
    store, clock = Members(), Clock()
    membership = Membership(store, clock)  # type: ignore[arg-type]
    store.answers = [True, Unavailable(why="away"), Unavailable(why="away")]
    assert asyncio.run(membership.ask("room", "anna"))
    assert membership.knows("room", "anna")
    clock.pass_(FRESH_SECONDS)
    assert not membership.knows("room", "anna")
    assert asyncio.run(membership.ask("room", "anna"))
    with pytest.raises(Unavailable):
        asyncio.run(membership.ask("room", "ben"))


def test_an_end_that_meets_an_answer_under_way_wins() -> None:
    store = Members()
    membership = Membership(store, Clock())  # type: ignore[arg-type]
    store.answers = [True, False]
    store.meanwhile = lambda: membership.ends("room", "anna")
    assert not asyncio.run(membership.ask("room", "anna"))
    assert not membership.knows("room", "anna")


GOOD = {"sub": "anna", "email": "a@b.c", "sid": "one", "iat": 1_000, "exp": 5_000, "aud": AUDIENCE}
KEY = b"k" * 64
TOKENS: list[tuple[str, Any, bool]] = [
    ("ours", jwt.encode(GOOD, KEY, ALGORITHM), True),
    ("another key", jwt.encode(GOOD, b"x" * 64, ALGORITHM), False),
    ("no signature", jwt.encode(GOOD, "", "none"), False),
    ("another algorithm", jwt.encode(GOOD, KEY, "HS512"), False),
    ("another audience", jwt.encode({**GOOD, "aud": "elsewhere"}, KEY, ALGORITHM), False),
    ("no audience", jwt.encode({k: v for k, v in GOOD.items() if k != "aud"}, KEY, ALGORITHM), False),
    ("ended", jwt.encode({**GOOD, "exp": 2_000}, KEY, ALGORITHM), False),
    ("no end", jwt.encode({k: v for k, v in GOOD.items() if k != "exp"}, KEY, ALGORITHM), False),
    ("from the future", jwt.encode({**GOOD, "iat": 10_000}, KEY, ALGORITHM), False),
    ("no subject", jwt.encode({k: v for k, v in GOOD.items() if k != "sub"}, KEY, ALGORITHM), False),
    ("no session", jwt.encode({k: v for k, v in GOOD.items() if k != "sid"}, KEY, ALGORITHM), False),
    ("nothing", "", False),
    ("nonsense", "a.b.c", False),
    ("no text", 7, False),
    ("not ASCII", "왕.국.임", False),
]


@pytest.mark.parametrize(("_", "token", "is_good"), TOKENS, ids=[row[0] for row in TOKENS])
def test_only_our_own_tokens_are_good_and_only_until_they_end(_: str, token: Any, is_good: bool) -> None:
    caller = Tokens(KEY, lambda: 2_000.0).read(token)
    assert (caller is not None) is is_good
    if caller is not None:
        assert caller == ("anna", "a@b.c", "one", 1_000.0, 5_000.0)


def test_a_clock_that_is_set_back_an_hour_ends_no_session() -> None:
    token = Tokens(KEY, lambda: 9_000.0).make("anna", "a@b.c", "one")
    assert Tokens(KEY, lambda: 9_000.0 - 3_600).read(token)


def test_a_token_holds_for_a_day() -> None:
    token = Tokens(KEY, lambda: 1_000.0).make("anna", "a@b.c", "one")
    assert Tokens(KEY, lambda: 999.0 + LIFETIME_SECONDS).read(token)
    assert Tokens(KEY, lambda: 1_000.0 + LIFETIME_SECONDS).read(token) is None


def test_the_secret_is_made_once_and_for_us_alone(home: Path) -> None:
    path = home / "gateway" / "secret"
    disk = Disk(home / "tmp", durability="process")
    disk.sweep_scratch()
    made = find_secret({}, path, disk)
    assert len(made) >= 32
    assert find_secret({}, path, disk) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert (
        find_secret({SECRET: "a secret of 32 characters at least"}, path, disk) == b"a secret of 32 characters at least"
    )
    with pytest.raises(BadHome, match="shorter"):
        find_secret({SECRET: "short"}, path, disk)


def test_passwords_of_either_kind_are_verified_and_old_ones_are_outdated() -> None:
    passwords = Passwords()
    ours = asyncio.run(passwords.hash("long enough"))
    theirs = bcrypt.hashpw(b"long enough", bcrypt.gensalt(4)).decode()
    for known in (ours, theirs):
        assert asyncio.run(passwords.verify(known, "long enough"))
        assert not asyncio.run(passwords.verify(known, "wrong one"))
    long = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert asyncio.run(passwords.verify(long, "x" * 90))
    assert not asyncio.run(passwords.verify(None, "nobody"))
    assert not asyncio.run(passwords.verify("no hash", "long enough"))
    assert [is_outdated(known) for known in (ours, theirs)] == [False, True]
    passwords.close()


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_frame_is_what_the_protocol_says(size: int) -> None:
    payload = b"x" * size
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


def test_small_frames_are_sent_without_delay() -> None:
    async def talk(frames: WebSocket, client: ClientConnection) -> None:
        connection = frames.transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    with_a_web_socket(talk)


UNFINISHED = {
    "nothing": b"",
    "a part of a line": b"GET / HT",
    "no end of the head": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "a part of the body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\nabc",
    "a second one in part": b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT",
}


@pytest.mark.parametrize("begun", UNFINISHED.values(), ids=UNFINISHED)
def test_a_request_that_does_not_come_whole_is_not_waited_for(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "REQUEST_SECONDS", 0.3)
    answered = begun.count(b"\r\n\r\nGET")

    async def run() -> None:
        async with served(_answer_later) as (reader, writer):
            writer.write(begun)
            dribble = asyncio.ensure_future(_dribble(writer))
            assert (await asyncio.wait_for(_told(reader), SOON)).count(b"200 OK") == answered
            dribble.cancel()

    asyncio.run(run())


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "REQUEST_SECONDS", 0.1)

    async def run() -> None:
        async with served(_answer_later) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await asyncio.wait_for(reader.read(), SOON)

    asyncio.run(run())


async def _answer_later(scope: Any, receive: Any, send: Any) -> None:
    """Take a request whole, and answer it after a while."""
    while (event := await receive()).get("more_body"):
        pass
    if event["type"] == "http.request":
        await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def _told(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other side ends the connection, also when it does not read any more."""
    told = b""
    with suppress(ConnectionResetError):
        while part := await reader.read(65_536):
            told += part
    return told


async def _dribble(writer: asyncio.StreamWriter) -> None:
    """Send a byte now and then, so that the connection is never quiet."""
    while True:
        await asyncio.sleep(0.05)
        writer.write(b"a")


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a listener."""
    listener = Listener(app)
    reader, writer = await asyncio.open_connection("127.0.0.1", await listener.listen("127.0.0.1", 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        await listener.close(SOON)


def _sent(payload: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


WHOLE, OTHER = _sent(b"whole"), _sent("käse".encode())
WAYS = {
    "whole": ([WHOLE], ["whole"], 1000),
    "in pieces": ([WHOLE[at : at + 1] for at in range(len(WHOLE))], ["whole"], 1000),
    "many at once": ([WHOLE + OTHER + WHOLE[:3], WHOLE[3:]], ["whole", "käse", "whole"], 1000),
    "of any size": (
        [_sent(b"x" * size) for size in (0, 125, 126, 65_535, 65_536)],
        ["x" * size for size in (0, 125, 126, 65_535, 65_536)],
        1000,
    ),
    "in fragments, and what came between": (
        [_sent(b"la", fin=False) + _sent(b"", Opcode.PING) + _sent(b"ter", Opcode.CONT), WHOLE],
        ["later", "whole"],
        1000,
    ),
    "bytes": ([_sent(b"\xff", Opcode.BINARY), WHOLE], ["whole"], 1000),
    "too large": ([_sent(b"x" * (LARGEST_INCOMING + 1)), WHOLE], [], 1009),
    "not masked": ([Frame(Opcode.TEXT, b"bare").serialize(mask=False) + WHOLE], [], 1002),
    "no text": ([_sent(b"whole \xff"), WHOLE], [], 1007),
}


@pytest.mark.parametrize("way", WAYS)
def test_texts_arrive_whole_and_in_order_however_they_are_cut(way: str) -> None:
    pieces, expected, code = WAYS[way]
    taken = Taken()

    async def talk(frames: WebSocket, client: ClientConnection) -> None:
        frames.reader = taken
        for piece in pieces:
            frames.data_received(piece)
        frames.close()
        await client.wait_closed()
        assert client.close_code == code

    with_a_web_socket(talk)
    assert taken.texts == expected


class Taken:
    """A reader that keeps what it takes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def take(self, packet: str) -> None:
        self.texts.append(packet)

    def lost(self, unexpected: bool) -> None: ...


def with_a_web_socket(talk: Callable[[WebSocket, ClientConnection], Awaitable[None]]) -> None:
    """Let a test have both ends of a web socket."""
    ends: asyncio.Queue[WebSocket] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        ends.put_nowait(scope["state"][FRAMES])

    async def run() -> None:
        listener = Listener(app)
        port = await listener.listen("127.0.0.1", 0)
        try:
            async with connect(f"ws://127.0.0.1:{port}/", close_timeout=SOON) as client:
                await talk(await ends.get(), client)
        finally:
            await listener.close(SOON)

    asyncio.run(asyncio.wait_for(run(), SOON))


def test_frames_of_two_threads_arrive_whole_and_in_order_when_the_reader_is_slow() -> None:
    texts = [f"{number} ".ljust(50_000, "x") for number in range(200)]
    ways: list[bool] = []

    async def talk(frames: WebSocket, client: ClientConnection) -> None:
        client.transport.pause_reading()
        for text in texts:
            frame = text_frame(text.encode())
            ways.append(await asyncio.to_thread(frames.put_at_once, frame))
            if not ways[-1]:
                frames.put(frame)
        client.transport.resume_reading()
        assert [await client.recv() for _ in texts] == texts
        assert await asyncio.to_thread(frames.put_at_once, text_frame(b"again"))
        assert await client.recv() == "again"

    with_a_web_socket(talk)
    assert ways == sorted(ways, reverse=True)
    assert set(ways) == {True, False}


@pytest.mark.parametrize("next_text", ["", "next"])
def test_the_rest_of_a_frame_comes_before_the_next_one(next_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(frames: WebSocket, client: ClientConnection) -> None:
        write = os.write
        monkeypatch.setattr("os.write", lambda fd, data: write(fd, data[: len(data) // 2 or 1]))
        assert frames.put_at_once(text_frame(b"in two parts"))
        assert not frames.put_at_once(text_frame(b"between them"))
        monkeypatch.undo()
        if next_text:
            frames.put(text_frame(next_text.encode()))
        assert await client.recv() == "in two parts"
        if next_text:
            assert await client.recv() == next_text

    with_a_web_socket(talk)


def test_a_frame_for_who_has_gone_does_not_reach_who_has_the_number_of_the_socket_now() -> None:
    async def talk(frames: WebSocket, client: ClientConnection) -> None:
        number = frames.transport.get_extra_info("socket").fileno()
        client.transport.abort()
        while frames.transport.get_extra_info("socket").fileno() >= 0:
            await asyncio.sleep(0)
        others: list[socket.socket] = []
        try:
            while all(other.fileno() != number for other in others):
                others += socket.socketpair()
            assert not await asyncio.to_thread(frames.put_at_once, text_frame(b"not for you"))
            for other in others:
                other.setblocking(False)
                with pytest.raises(BlockingIOError):
                    other.recv(1)
        finally:
            for other in others:
                other.close()

    with_a_web_socket(talk)


def test_a_socket_is_not_given_up_while_another_thread_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    is_sending, was_ours = threading.Event(), list[bool]()

    async def talk(frames: WebSocket, client: ClientConnection) -> None:
        number = frames.transport.get_extra_info("socket").fileno()
        before, write_any = os.fstat(number), os.write

        def write(fd: int, data: bytes) -> int:
            if fd != number:
                return write_any(fd, data)
            is_sending.set()
            stays(lambda: os.path.samestat(before, os.fstat(fd)), 0.3, "the number is the socket's")
            was_ours.append(True)
            return len(data)

        monkeypatch.setattr("os.write", write)
        sent = asyncio.create_task(asyncio.to_thread(frames.put_at_once, text_frame(b"here")))
        await asyncio.to_thread(is_sending.wait, SOON)
        frames.cut()
        assert await sent

    with_a_web_socket(talk)
    assert was_ours == [True]
