"""Checks of a message's way through the gateway; each returns what is wrong."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import requests
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from kingdom.base.disk.atomic import make_folder
from kingdom.hall.database import accounts
from kingdom.hall.database.ids import iso, new_uuid, next_ulid
from kingdom.hall.database.opening import open_database
from kingdom.hall.database.persist import Arrival, persist
from kingdom.hall.database.records import MessageCreated, MessagePersisted, Signal
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome, TopicsKit
from kingdom.hall.topics.names import MESSAGES, PASSING, PERSISTED, SIGNALS
from tests.hall.gateway.halls import PASSWORD, SECONDS, Hall, Person

COUNT = 40
FAILED = {"status": "FAILED", "error": "Message delivery failed"}


async def wrong_order(hall: Hall) -> list[str]:
    """Messages of one socket that do not wait for each other enter the topic in the order in which they came."""
    anna = hall.person()
    rooms = [anna.room() for _ in range(4)]
    sent = [(rooms[number % 4], str(uuid.uuid4())) for number in range(COUNT)]
    async with anna.socket() as hers:
        for room in rooms:
            await hers.call("joinRoom", {"roomId": room})
        answers = await asyncio.gather(*(hers.send(room, "x", clientMsgId=key) for room, key in sent))
    found = [f"answered {answer}" for answer in answers if answer["status"] != "ACCEPTED"]
    return found + _another_order(hall, [key for _, key in sent])


def _another_order(hall: Hall, keys: list[str]) -> list[str]:
    kept = [json.loads(line)["value"]["clientMsgId"] for line in _lines(hall.places.topics / MESSAGES)]
    mine = [key for key in kept if key in keys]
    return [] if mine == keys else [f"the topic has them in another order: {mine[:5]}…"]


async def wrong_turns(hall: Hall) -> list[str]:
    """A message waits for one before it, whose sender the database must tell to be a member."""
    anna = hall.person()
    known, looked_up = anna.room(), hall.person().room()
    with closing(open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)) as database:
        member = {"room_id": looked_up, "user_id": anna.id, "joined_at": iso(time.time())}
        database.run(lambda db: db.each("add_member", [member]))
    sent = [(room, str(uuid.uuid4())) for room in (known, known, looked_up, known)]
    messages = [{"roomId": room, "clientMsgId": key, "content": "x"} for room, key in sent]
    first, *others = (f'42{at}["sendMessage",{json.dumps(message)}]' for at, message in enumerate(messages))
    address = hall.url.replace("http", "ws", 1)
    async with connect(f"{address}/socket.io/?EIO=4&transport=websocket") as socket:
        await socket.recv()
        await socket.send(f'40{{"token":"{anna.token}"}}')
        await socket.recv()
        await socket.send(first)
        answers = [await socket.recv()]
        # In one piece, as from a client whose network was away.
        socket.transport.write(b"".join(Frame(Opcode.TEXT, packet.encode()).serialize(mask=True) for packet in others))
        answers += [await asyncio.wait_for(socket.recv(), SECONDS) for _ in others]
    found = [f"answered {answer!r}" for answer in answers if "ACCEPTED" not in str(answer)]
    return found + _another_order(hall, [key for _, key in sent])


def _lines(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


async def wrong_when_the_topic_is_away(hall: Hall) -> list[str]:
    """Nothing is accepted that the topic does not have; /health says so; it recovers by itself."""
    anna = hall.person()
    room = anna.room()
    topic = hall.places.topics / MESSAGES
    found = []
    async with anna.socket(room) as hers:
        await hers.send(room, "before")
        aside = topic.with_name("aside")
        topic.rename(aside)
        topic.write_text("in the way")
        key = str(uuid.uuid4())
        answer = await hers.send(room, "meanwhile", clientMsgId=key)
        if answer != {"clientMsgId": key, **FAILED}:
            found.append(f"without a topic: {answer}")
        health = requests.get(f"{hall.url}/health", timeout=SECONDS)
        if health.status_code != 503 or list(health.json()["error"]) != ["topics"]:
            found.append(f"without a topic /health says {health.text}")
        topic.unlink()
        aside.rename(topic)
        answer = await hers.send(room, "after")
        if answer["status"] != "ACCEPTED":
            found.append(f"with the topic back: {answer}")
    return found


async def wrong_redelivery(hall: Hall) -> list[str]:
    """Check that an event published twice by a killed worker is delivered once."""
    anna = hall.person()
    room = anna.room()
    first = _persisted(anna, room, next_ulid(1_000))
    second = _persisted(anna, room, next_ulid(2_000, first.message_id))
    async with anna.socket(room) as hers:
        _publish(hall, [first, second, first, second])
        last = replace(_persisted(anna, room, next_ulid(3_000, second.message_id)), content="", removed=True)
        _publish(hall, [last])
        await hers.wait("newMessage", lambda told: told["id"] == last.message_id)
        told = [(message["id"], message["content"], message.get("removed")) for message in hers.all("newMessage")]
    wanted = [(event.message_id, event.content, event.removed) for event in (first, second, last)]
    return [] if told == wanted else [f"told {told} instead of {wanted}"]


async def wrong_about(hall: Hall) -> list[str]:
    """Check that what a message is about reaches sockets and history, and that nobody can send it themselves."""
    anna = hall.person()
    room, about = anna.room(), {"taskId": "task-1", "code": "question", "choices": ["yes", "no"]}
    event = MessageCreated(new_uuid(), room, anna.id, new_uuid(), "SYSTEM", "?", "2026-11-19T01:02:03.123Z", about)
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    [stored] = database.run(lambda db: persist(db, [Arrival(event, MESSAGES, "of a question")], time.time()))
    database.close()
    assert stored is not None
    async with anna.socket(room) as hers:
        _publish(hall, [stored])
        told = await hers.wait("newMessage")
        key = str(uuid.uuid4())
        await hers.send(room, "her own", clientMsgId=key, about=about)
    lines = [json.loads(line)["value"] for line in _lines(hall.places.topics / MESSAGES)]
    [sent] = [value for value in lines if value["clientMsgId"] == key]
    found = [f"she sent {sent['about']}"] if "about" in sent else []
    return found + [
        f"{what} says {said.get('about')}"
        for what, said in (("the socket", told), ("the history", anna.history(room)[0]))
        if said.get("about") != about
    ]


def _persisted(person: Person, room: str, message: str) -> MessagePersisted:
    return MessagePersisted(message, room, person.id, new_uuid(), "TEXT", "x", "2026-11-19T01:02:03.123Z")


def _publish(hall: Hall, events: list[MessagePersisted]) -> None:
    _append(hall, [(PERSISTED, event.key, event.to_json()) for event in events])


def _append(hall: Hall, events: list[tuple[str, str, bytes]]) -> None:
    scratch = hall.places.scratch("tests")
    make_folder(scratch)
    kit = TopicsKit(hall.places.topics, scratch, "process", lambda: None, {}, PASSING)
    topics = open_topics("files", kit)
    producer = topics.producer()
    outcomes: list[Any] = []
    for topic, key, value in events:
        producer.append(topic, key, value, lambda outcome, why: outcomes.append(outcome))
    assert producer.flush(SECONDS)
    assert outcomes == [PublishOutcome.STORED] * len(events)
    topics.close()


async def wrong_after_leaving(hall: Hall) -> list[str]:
    """Check that a person who has left a room receives nothing from it."""
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    async with anna.socket(room) as hers, ben.socket(room) as his:
        ben.call("POST", f"/rooms/{room}/leave")
        _publish(hall, [_persisted(anna, room, next_ulid(1_000))])
        await hers.wait("newMessage")
        await his.call("heartbeat")
        answer = await his.send(room)
        found = ["a message after leaving"] if his.all("newMessage") else []
        return found + ([] if answer["status"] == "FAILED" else ["it may still send"])


async def wrong_after_the_end_of_a_session(hall: Hall) -> list[str]:
    """A session that was ended is disconnected at once, and its token is good for nothing."""
    anna = hall.person()
    room = anna.room()
    async with anna.socket(room) as hers:
        ended = jwt.decode(anna.token, options={"verify_signature": False})["sid"]
        _signal(hall, Signal("session_ended", "worker", {"userId": anna.id, "sessions": [ended]}))
        reason = await hers.wait("disconnect")
    status = anna.call("GET", "/rooms").status_code
    return [] if (reason, status) == ("server disconnect", 401) else [f"disconnected by {reason}, then {status}"]


async def wrong_removals(hall: Hall) -> list[str]:
    """Check that a member cannot have the message of somebody else removed, and its sender can."""
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    event = MessageCreated(new_uuid(), room, anna.id, new_uuid(), "TEXT", "hers", "2026-11-19T01:02:03.123Z")
    [stored] = database.run(lambda db: persist(db, [Arrival(event, MESSAGES, "none")], time.time()))
    database.close()
    assert stored is not None
    path = f"/rooms/{room}/messages/{stored.message_id}/remove"
    statuses = [person.call("POST", path).status_code for person in (ben, anna)]
    return [] if statuses == [403, 202] else [f"another member and the sender get {statuses}"]


def wrong_for_members(hall: Hall) -> list[str]:
    """Check that somebody who is neither an owner nor in the throne room sees and orders nothing of the kingdom."""
    anna, order = hall.person(), {"action": "cancel", "target": "task-1"}
    answers = [anna.call("GET", "/kingdom"), anna.call("POST", "/kingdom/orders", json=order)]
    answers += [anna.call("GET", "/kingdom/orders/ord-1")]
    given = list(hall.places.folder("orders", "pending").glob("*.json"))
    return [f"{answer.url} gets {answer.status_code}" for answer in answers if answer.status_code != 403] + [
        f"an order is given: {path.name}" for path in given
    ]


def wrong_invitations(hall: Hall) -> list[str]:
    """An invitation lets in as often as it says, and what is none lets nobody in, wherever anybody may register."""
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    code = database.run(lambda db: accounts.new_invite(db, accounts.Invitation(accounts.OWNER), 1, 60.0, time.time()))
    database.close()
    found = []
    for invite, status in ((code, 201), (code, 403), ("guessed", 403)):
        given = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD, "invite": invite}
        got = requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code
        if got != status:
            found.append(f"an invitation gets {got} instead of {status}")
    return found


def _signal(hall: Hall, signal: Signal) -> None:
    _append(hall, [(SIGNALS, str(signal.facts["userId"]), signal.to_json())])


async def wrong_poller(hall: Hall) -> list[str]:
    """Check that a client that stops polling is disconnected before it costs much memory."""
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    poll = {"EIO": "4", "transport": "polling"}
    with requests.Session() as session:
        opened = session.get(f"{hall.url}/socket.io/", params=poll, timeout=SECONDS).text
        poll["sid"] = opened.partition('"sid":"')[2].partition('"')[0]
        for packet in (f'40{{"token":"{ben.token}"}}', f'420["joinRoom",{{"roomId":"{room}"}}]'):
            session.post(f"{hall.url}/socket.io/", params=poll, data=packet, timeout=SECONDS)
        async with anna.socket(room) as hers:
            last = ""
            for _ in range(100):
                last = next_ulid(1_000, last or None)
                event = _persisted(anna, room, last)
                _publish(hall, [replace(event, content="x" * 4000)])
            await hers.wait("newMessage", lambda told: told["id"] == last)
        answer = session.get(f"{hall.url}/socket.io/", params=poll, timeout=SECONDS)
    return [] if answer.status_code == 400 else [f"a client that did not read gets {len(answer.content)} bytes"]


Check = Callable[[Hall], Awaitable[list[str]]]
CHECKS: tuple[Check, ...] = (
    wrong_order,
    wrong_turns,
    wrong_when_the_topic_is_away,
    wrong_redelivery,
    wrong_about,
    wrong_after_leaving,
    wrong_after_the_end_of_a_session,
    wrong_removals,
    wrong_poller,
)
