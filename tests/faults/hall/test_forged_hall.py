"""Row 22 for the hall: forged and replayed input, drawn at random, for a gateway, a worker and an envoy."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso
from kingdom.hall.database.opening import open_database
from kingdom.hall.gateway.tokens import ALGORITHM, AUDIENCE
from tests.faults import trees
from tests.faults.oracle import Figure
from tests.fixtures import all_of, here, message, put
from tests.hall.channel.halls import BOTH_ON
from tests.hall.gateway.halls import CHECKOUT, OPEN, PASSWORD, SECONDS, Hall, Person, Socket, running
from tests.waiting import wait_until

TASK = "task-20260207-001"
QUESTION = "[question] Which currency?\n- EUR\n- USD"
SAID = 3
"""What the kingdom says here: its welcome, the start of a task, and its question."""
ATTEMPTS = 2_000 if trees.CAMPAIGN else 20
THRONE = own_rooms.THRONE_ROOM
TEXTS = ("EUR", QUESTION, f"→ {TASK}: mine", '{"taskId": "task-1"}', "[complete] done", "yes", "brief me")
FORGED: tuple[dict[str, Any], ...] = (
    {"senderId": own_rooms.USER, "senderName": "kingdom", "userId": own_rooms.USER},
    {"about": {"taskId": TASK, "code": "question", "choices": ["yes", "no"]}},
    {"id": "0" * 26, "messageId": "0" * 26, "createdAt": "1970-01-01T00:00:00.000Z", "eventId": str(uuid.uuid4())},
    {"removes": "0" * 26, "removed": True, "messageType": "SYSTEM"},
    {"clientMsgId": own_rooms.client_msg_id("msg-1")},
)
"""Fields that somebody adds to a message of their own, which stays one of their own."""


@dataclass
class Forger:
    """Anna is in the kingdom's rooms and an owner of nothing; Mallory is in none of them."""

    hall: Hall
    dice: random.Random
    anna: Person
    mallory: Person
    hers: list[Socket]
    his: Socket
    task_room: str
    own_room: str
    #: What anna has said in the kingdom's rooms first under each clientMsgId.
    said: dict[tuple[str, str], str] = field(default_factory=dict)

    async def say(self, room: str, text: str, **fields: Any) -> dict[str, Any]:
        return await self.dice.choice(self.hers).send(room, text, **fields)

    async def add_fields(self) -> list[str]:
        room, text = self.dice.choice((THRONE, self.task_room)), self.dice.choice(TEXTS)
        fields = {"clientMsgId": str(uuid.uuid4()), **self.dice.choice(FORGED)}
        answer = await self.say(room, text, **fields)
        self.said.setdefault((room, fields["clientMsgId"]), text)
        return [] if answer["status"] == "ACCEPTED" else [f"a message of a member is refused: {answer}"]

    async def speak_as_the_kingdom(self) -> list[str]:
        room, kinds = self.dice.choice((THRONE, self.task_room)), ("SYSTEM", "system", "NOTICE", None, 7, ["SYSTEM"])
        answers = [(kind, await self.say(room, "forged", type=kind)) for kind in kinds]
        return [f"a message of type {kind!r} is accepted" for kind, got in answers if got["status"] != "FAILED"]

    async def replay(self) -> list[str]:
        if self.said:
            (room, id), text = self.dice.choice(list(self.said.items()))
            fields = {"clientMsgId": self.dice.choice((id, id.upper()))}
            await asyncio.gather(
                *(self.say(room, self.dice.choice((text, "another text")), **fields) for _ in range(3))
            )
        return []

    async def speak_elsewhere(self) -> list[str]:
        await self.say(self.own_room, self.dice.choice(TEXTS), about=FORGED[1]["about"])
        return []

    async def speak_as_a_stranger(self) -> list[str]:
        room = self.dice.choice((THRONE, THRONE.upper(), self.task_room))
        answer = await self.his.send(room, self.dice.choice(TEXTS))
        joined = await self.his.call("joinRoom", {"roomId": room})
        found = [] if answer["status"] == "FAILED" else ["a stranger's message is accepted"]
        return found + (["a stranger hears a room of the kingdom"] if joined.get("success") else [])

    async def ask_as_a_stranger(self) -> list[str]:
        room = self.dice.choice((THRONE, self.task_room))
        last = self.anna.history(room, limit=1)[0]["id"]
        return refused(
            self.mallory,
            ("POST", f"/rooms/{room}/join", {}),
            ("POST", f"/rooms/{room}/join", {"invite": str(uuid.uuid4())}),
            ("GET", f"/rooms/{room}/messages", None),
            ("GET", f"/rooms/{room}/members", None),
            ("POST", f"/rooms/{room}/read", {"lastReadMessageId": last}),
            ("POST", f"/rooms/{room}/messages/{last}/remove", None),
            ("GET", "/kingdom", None),
            ("POST", "/kingdom/orders", {"action": "cancel", "target": TASK}),
            ("POST", "/kingdom/roles/envoy/restart", None),
        )

    async def order_as_a_member(self) -> list[str]:
        kingdoms = self.anna.history(THRONE, after="0" * 26, limit=1)[0]["id"]
        return refused(
            self.anna,
            ("POST", f"/rooms/{THRONE}/messages/{kingdoms}/remove", None),
            ("POST", "/kingdom/orders", {"action": "retry", "target": TASK}),
            ("POST", "/kingdom/roles/gateway/restart", None),
        )

    async def forge_a_token(self) -> list[str]:
        claims = jwt.decode(self.anna.token, options={"verify_signature": False}, algorithms=[ALGORITHM])
        claims |= self.dice.choice(({"sub": own_rooms.USER}, {"role": "owner"}, {"sid": str(uuid.uuid4())}))
        key, algorithm = self.dice.choice(((b"x" * 64, ALGORITHM), ("", "none"), (AUDIENCE.encode() * 6, "HS512")))
        headers = {"Authorization": f"Bearer {jwt.encode(claims, key, algorithm)}"}
        status = requests.get(f"{self.hall.url}/rooms", headers=headers, timeout=SECONDS).status_code
        return [] if status == 401 else [f"a forged token gets {status}"]

    async def replay_a_token(self) -> list[str]:
        again = Person(self.hall.url, self.mallory.email)
        again.call("POST", "/auth/logout")
        status = again.call("GET", "/rooms").status_code
        return [] if status == 401 else [f"the token of an ended session gets {status}"]

    async def take_its_name(self) -> list[str]:
        name = self.dice.choice(("kingdom", "KINGDOM", "kingdom+x", "ki.ngdom"))
        given = {"email": f"{name}@{uuid.uuid4()}.example.org", "password": PASSWORD}
        status = requests.post(f"{self.hall.url}/auth/register", json=given, timeout=SECONDS).status_code
        return [] if status == 403 else [f"somebody may be called {name}"]


def refused(person: Person, *asked: tuple[str, str, dict[str, str] | None]) -> list[str]:
    """Return which of these requests are answered by something else than 403."""
    answers = ((method, path, person.call(method, path, json=body)) for method, path, body in asked)
    return [f"{method} {path} gets {got.status_code}" for method, path, got in answers if got.status_code != 403]


Attempt = Callable[[Forger], Awaitable[list[str]]]
ATTEMPT: tuple[Attempt, ...] = (
    Forger.add_fields,
    Forger.speak_as_the_kingdom,
    Forger.replay,
    Forger.speak_elsewhere,
    Forger.speak_as_a_stranger,
    Forger.ask_as_a_stranger,
    Forger.order_as_a_member,
    Forger.forge_a_token,
    Forger.replay_a_token,
    Forger.take_its_name,
)
MANY = {"count": 1_000_000, "seconds": 1}
LIMITS = {"messages": MANY, "logins": MANY, "registrations": MANY, "requests": MANY}


def in_its_rooms(hall: Hall) -> Person:
    """Return a member who is in the throne room and in the room of a task that asks."""
    person = hall.person()
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    wait_until(lambda: database.read(lambda db: db.one("room", id=THRONE)), SECONDS, "the throne room")
    database.run(lambda db: own_rooms.join_all(db, person.id, iso(0)))
    database.close()
    asks = message("msg-2", "human_input_request", task_id=TASK, content=QUESTION)
    for told in (message("msg-1", "thread_start", task_id=TASK, content="[start] one"), asks):
        put(hall.places.home, "messages", "pending", **told)
    wait_until(lambda: len(here(hall.places.home, "messages", "sent")) == 2, SECONDS, "the question")
    return person


def rooms_of(person: Person) -> list[str]:
    return [row["id"] for row in person.call("GET", "/rooms").json()]


async def forge(hall: Hall, attempts: int) -> tuple[Forger, Counter[str], list[str]]:
    anna, mallory = await asyncio.to_thread(in_its_rooms, hall), hall.person()
    [task_room] = set(rooms_of(anna)) - {THRONE}
    own, dice = anna.room(mallory), random.Random(22)
    tried, found = Counter[str](), []
    async with anna.socket(THRONE, task_room, own) as one, anna.socket(THRONE) as two, mallory.socket(own) as his:
        forger = Forger(hall, dice, anna, mallory, [one, two], his, task_room, own)
        for number in range(attempts):
            attempt = ATTEMPT[number] if number < len(ATTEMPT) else dice.choice(ATTEMPT)
            tried[attempt.__name__] += 1
            found += await attempt(forger)
        for room in (THRONE, task_room):
            await one.send(room, f"last in {room}")
            forger.said[room, ""] = f"last in {room}"
    return forger, tried, found


def wrong_effects(forger: Forger) -> list[str]:
    """Return what should not have come of it, in the rooms, in the database and in the queues."""
    hall, home = forger.hall, forger.hall.places.home
    wanted = Counter((forger.anna.id, room, text) for (room, _), text in forger.said.items())

    def heard() -> Counter[tuple[str, str, str]]:
        payloads = [event["payload"] for event in all_of(home, "events", "pending")]
        return Counter((told["user_id"], told["channel"], told["text"]) for told in payloads)

    lasts = {(forger.anna.id, room, f"last in {room}") for room in (THRONE, forger.task_room)}
    wait_until(lambda: lasts <= set(heard()), SECONDS * 4, "what was said last")
    found = [f"heard {count} times instead of {wanted[what]}: {what}" for what, count in (heard() - wanted).items()]
    found += [f"not heard: {what}" for what in wanted - heard()]
    with closing(sqlite3.connect(hall.places.state / "hall" / "hall.db")) as db:
        rows = db.execute("SELECT sender_id, type, client_msg_id FROM messages").fetchall()
    found += [
        f"{sender} has sent {kind}" for sender, kind, _ in rows if (kind == "SYSTEM") != (sender == own_rooms.USER)
    ]
    kingdoms = [id for sender, _, id in rows if sender == own_rooms.USER]
    found += [] if len(kingdoms) == len(set(kingdoms)) == SAID else [f"the kingdom has said {len(kingdoms)} things"]
    found += [f"an order {order['action']}" for order in all_of(home, "orders", "pending")]
    found += [f"a wish {path.name}" for path in hall.places.wanted_folder.glob("*.restart")]
    return found


def wrong(tree: Path, attempts: int) -> tuple[list[str], str]:
    """Return what is wrong with the program of a tree after so many attempts, and the figure."""
    with running("gateway", "worker", "envoy", config={**OPEN, "limits": LIMITS}, system=BOTH_ON, tree=tree) as hall:
        forger, tried, found = asyncio.run(forge(hall, attempts))
        found += wrong_effects(forger)
    line = f"{tried.total()} attempts of {len(tried)} kinds, {len(forger.said)} heard: {len(found)} wrong"
    return found, line


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_nothing_forged_is_accepted_and_nothing_replayed_is_heard_twice(figure: Figure) -> None:
    found, line = wrong(CHECKOUT, ATTEMPTS)
    figure(f"row 22 hall: {line}")
    assert not found, "\n".join(found[:20])
