"""What happens on sockets, seen by a client of the same protocol."""

import asyncio
import time
import uuid
from typing import Any

import jwt
import pytest
import socketio
from websockets.asyncio.client import connect

from kingdom.hall.gateway.tokens import ALGORITHM, AUDIENCE
from tests.hall.gateway.halls import SECONDS, Hall, Socket

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]
"""What the hall promises for things that end; tests wait longer where a busy machine may be late."""


async def test_a_message_is_accepted_stored_and_told_to_everybody_once(hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    async with anna.socket(room) as hers, ben.socket(room) as his:
        sent = str(uuid.uuid4())
        assert await hers.send(room, "안녕 👑", clientMsgId=sent) == {"clientMsgId": sent, "status": "ACCEPTED"}
        told = await his.wait("newMessage")
        assert await hers.wait("newMessage") == told
    (kept,) = ben.history(room)
    assert told == {**kept, "messageId": kept["id"]}
    assert (kept["content"], kept["type"], kept["clientMsgId"]) == ("안녕 👑", "TEXT", sent)
    assert (kept["senderId"], kept["senderName"]) == (anna.id, anna.email.partition("@")[0])
    (listed,) = ben.call("GET", "/rooms").json()
    assert (listed["lastMessageId"], listed["lastMessageAt"], listed["unread"]) == (kept["id"], kept["createdAt"], 1)


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], ["polling", "websocket"]], ids="-".join)
async def test_messages_of_one_socket_keep_their_order_on_every_transport(transports: list[str], hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    contents = [f"number {number}" for number in range(60)]
    async with anna.socket(room, transports=transports) as hers, ben.socket(room, transports=transports) as his:
        answers = await asyncio.gather(*(hers.send(room, content) for content in contents))
        assert {answer["status"] for answer in answers} == {"ACCEPTED"}
        await his.wait("newMessage", lambda told: told["content"] == contents[-1])
        assert [told["content"] for told in his.all("newMessage")] == contents
    assert [kept["content"] for kept in ben.history(room, limit=100)] == contents


async def test_a_repetition_is_accepted_and_dropped(hall: Hall) -> None:
    anna = hall.person()
    room = anna.room()
    async with anna.socket(room) as hers:
        again = str(uuid.uuid4())
        for content in ("first", "second"):
            answer = await hers.send(room, content, clientMsgId=again)
            assert answer == {"clientMsgId": again, "status": "ACCEPTED"}
        await hers.send(room, "third")
        await hers.wait("newMessage", lambda told: told["content"] == "third")
        assert [told["content"] for told in hers.all("newMessage")] == ["first", "third"]


INVALID: list[tuple[str, Any]] = [
    ("nothing", None),
    ("a text", "hello"),
    ("a list", []),
    ("no room", {"clientMsgId": str(uuid.uuid4()), "content": "x"}),
    ("no uuid", {"roomId": "here", "clientMsgId": str(uuid.uuid4()), "content": "x"}),
    ("no client id", {"roomId": str(uuid.uuid4()), "content": "x"}),
    ("a type of the kingdom", {"type": "SYSTEM"}),
    ("no type", {"type": None}),
    ("an unknown type", {"type": "VIDEO"}),
    ("no content", {"content": ""}),
    ("a number", {"content": 1}),
    ("U+0000", {"content": "a\0b"}),
    ("a lone surrogate", {"content": "\ud83d"}),
    ("too long", {"content": "x" * 5001}),
    ("too long in UTF-16", {"content": "👑" * 2501}),
]


async def test_what_is_no_message_fails_with_one_sentence(hall: Hall) -> None:
    anna = hall.person()
    room = anna.room()
    good = {"roomId": room, "clientMsgId": str(uuid.uuid4()), "content": "x"}
    async with anna.socket(room) as hers:
        for name, payload in INVALID:
            if isinstance(payload, dict) and not {"roomId", "clientMsgId"} & set(payload):
                payload = {**good, **payload}
            failed = {"clientMsgId": "", "status": "FAILED", "error": "Invalid message format"}
            assert await hers.call("sendMessage", payload) == failed, name
        assert (await hers.send(room, "👑" * 2500, type="IMAGE"))["status"] == "ACCEPTED"


async def test_who_is_no_member_neither_joins_nor_sends(hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room()
    async with ben.socket() as his:
        for elsewhere in (room, str(uuid.uuid4())):
            failed = await his.call("joinRoom", {"roomId": elsewhere})
            assert failed == {"success": False, "error": "Not a member of this room"}
            answer = await his.send(elsewhere)
            assert (answer["status"], answer["error"]) == ("FAILED", "Not a member of this room")
        assert (await his.call("joinRoom", {"roomId": "here"}))["success"] is False
        assert (await his.call("joinRoom"))["success"] is False


async def test_who_has_not_joined_is_told_nothing(hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    async with anna.socket(room) as hers, ben.socket() as his:
        await hers.send(room)
        await hers.wait("newMessage")
        assert his.all("newMessage") == []


async def test_leaving_ends_the_delivery_and_the_right_to_send(hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    async with anna.socket(room) as hers, ben.socket(room) as his:
        assert ben.call("POST", f"/rooms/{room}/leave").status_code == 201
        await hers.send(room)
        await hers.wait("newMessage")
        assert his.all("newMessage") == []
        assert (await his.send(room))["error"] == "Not a member of this room"


async def test_presence_typing_and_marks_are_told_to_the_room(hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    async with anna.socket(room) as hers:
        async with ben.socket(room) as his:
            there = {"roomId": room, "userId": ben.id}
            assert await hers.wait("presence", lambda told: told["userId"] == ben.id) == {**there, "on": True}
            assert await his.wait("presence", lambda told: told["userId"] == anna.id)
            assert await his.call("heartbeat") == {"success": True}
            assert await his.call("typing", {"roomId": room, "on": True}) == {"success": True}
            assert await hers.wait("typing") == {**there, "on": True}
            mark = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
            ben.call("POST", f"/rooms/{room}/read", json={"lastReadMessageId": mark})
            assert await hers.wait("read") == {**there, "lastReadMessageId": mark}
            assert his.all("typing") == []
        await hers.wait("presence", lambda told: told == {**there, "on": False})


async def test_every_call_is_answered(hall: Hall) -> None:
    anna = hall.person()
    async with anna.socket() as hers:
        assert (await hers.call("nonsense", {"a": 1}))["success"] is False
        assert (await hers.call("typing", {"roomId": str(uuid.uuid4()), "on": True}))["success"] is False


@pytest.mark.parametrize("packet", ["4212", "42", "421[]", '421["sendMessage"]', "421[[1],2]"])
async def test_what_is_no_event_does_not_end_the_connection(packet: str, hall: Hall) -> None:
    anna = hall.person()
    async with connect(f"{hall.url.replace('http', 'ws', 1)}/socket.io/?EIO=4&transport=websocket") as socket:
        await socket.recv()
        await socket.send(f'40{{"token":"{anna.token}"}}')
        await socket.recv()
        await socket.send(packet)
        await socket.send('427["heartbeat",{}]')
        answer = ""
        while not str(answer).startswith("437"):
            answer = await asyncio.wait_for(socket.recv(), SECONDS)


def _forged(hall: Hall, **claims: Any) -> str:
    secret = (hall.places.own("gateway") / "secret").read_bytes()
    now = int(time.time())
    whole = {"sub": str(uuid.uuid4()), "email": "a@b.c", "iat": now, "exp": now + 60, "aud": AUDIENCE, **claims}
    return jwt.encode(whole, secret, ALGORITHM)


@pytest.mark.parametrize("transport", ["websocket", "polling"])
@pytest.mark.parametrize("auth", [None, {}, {"token": "bad"}, {"token": 7}, "expired"], ids=str)
async def test_a_bad_token_sees_connect_then_disconnect(auth: Any, transport: str, hall: Hall) -> None:
    client = socketio.AsyncClient(reconnection=False)
    socket = Socket(client)
    if auth == "expired":
        auth = {"token": _forged(hall, exp=int(time.time()) - 1)}
    await client.connect(hall.url, auth=auth, transports=[transport])
    try:
        assert await socket.wait("disconnect") == "server disconnect"
        assert [event for event, _ in socket.told] == ["connect", "disconnect"]
    finally:
        await client.shutdown()


async def test_a_token_in_the_header_does_as_well(hall: Hall) -> None:
    anna = hall.person()
    client = socketio.AsyncClient(reconnection=False)
    await client.connect(hall.url, headers=anna.headers, transports=["websocket"])
    try:
        assert await client.call("heartbeat", timeout=SECONDS) == {"success": True}
    finally:
        await client.shutdown()


async def test_a_token_that_ends_ends_its_socket(hall: Hall) -> None:
    client = socketio.AsyncClient(reconnection=False)
    socket = Socket(client)
    claims = jwt.decode(hall.person().token, options={"verify_signature": False})
    ends = {"token": _forged(hall, **{**claims, "exp": int(time.time()) + 2})}
    await client.connect(hall.url, auth=ends, transports=["websocket"])
    try:
        assert await socket.call("heartbeat") == {"success": True}
        assert await socket.wait("disconnect") == "server disconnect"
    finally:
        await client.shutdown()


async def test_pages_of_history_run_from_old_to_new(hall: Hall) -> None:
    anna = hall.person()
    room = anna.room()
    async with anna.socket(room) as hers:
        for number in range(7):
            await hers.send(room, str(number))
        await hers.wait("newMessage", lambda told: told["content"] == "6")
    ids = [kept["id"] for kept in anna.history(room)]
    assert ids == sorted(ids)

    def page(**query: Any) -> str:
        return "".join(kept["content"] for kept in anna.history(room, **query))

    assert page(limit=3) == "456"
    assert page(limit=3, before=ids[4]) == "123"
    assert page(limit=3, after=ids[1]) == "234"
    assert page(limit=3, before=ids[6], after=ids[1]) == "345"
    assert page(limit=100, before=ids[6], after=ids[4]) == "5"
    assert page(after=ids[6]) == ""


async def test_the_poll_of_a_client_that_leaves_is_answered_at_once(hall: Hall) -> None:
    anna = hall.person()
    async with anna.socket(anna.room(), transports=["polling"]) as hers:
        left = asyncio.create_task(hers.client.disconnect())
        done, _ = await asyncio.wait([left], timeout=SECONDS)
        assert done, "its poll waits for its time-out"
