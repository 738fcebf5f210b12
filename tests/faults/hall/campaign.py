"""People chat in rooms while parts of the hall are killed; then what they saw is checked.

A client does what the web client does: it sends again under the same clientMsgId until a message is ACCEPTED, and after
a reconnect it joins, then reads on from its last message, and drops what it has seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import requests
import socketio

from tests.hall.gateway.halls import Hall, Person
from tests.waiting import SOON, wait_until

CALL_SECONDS = 15.0
PAUSE_SECONDS = 0.1
PAGE = 100
GONE = (socketio.exceptions.SocketIOError, aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError)


class Seen(NamedTuple):
    """One message on a screen."""

    id: str
    client_msg_id: str
    content: str


@dataclass
class Client:
    """One person in one room."""

    person: Person
    room: str
    name: str
    messages: int
    #: Seconds between two messages: there must be time for kills.
    pause: float = 0.0
    screen: list[Seen] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    reconnects: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _shown: set[str] = field(default_factory=set)
    _early: list[Seen] | None = None

    async def live(self) -> None:
        """Send and receive until told to end, with a new socket whenever one breaks."""
        sending = [(f"{self.name}-{number}", str(uuid.uuid4())) for number in range(self.messages)]
        while not self.ended.is_set():
            with suppress(*GONE):
                async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.person.token}"}) as web:
                    await self._once(web, sending)
            self.reconnects += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _once(self, web: aiohttp.ClientSession, sending: list[tuple[str, str]]) -> None:
        """Use one socket, from its connection to its end."""
        socket = socketio.AsyncClient(reconnection=False, handle_sigint=False, http_session=web)
        lost = asyncio.Event()
        socket.on("newMessage", self._hear)
        socket.on("disconnect", lambda *_: lost.set())
        token = {"token": self.person.token}
        try:
            await socket.connect(self.person.url, auth=token, transports=["websocket"], wait_timeout=int(CALL_SECONDS))
            await self._resume(socket, web)
            await self._talk(socket, sending, lost)
            await _first(lost, self.ended)
        finally:
            with suppress(*GONE):
                await socket.shutdown()

    async def _talk(self, socket: Any, sending: list[tuple[str, str]], lost: asyncio.Event) -> None:
        while sending and not lost.is_set():
            content, id = sending[0]
            message = {"roomId": self.room, "clientMsgId": id, "content": content}
            answer = await socket.call("sendMessage", message, timeout=CALL_SECONDS)
            self.answers[str(answer.get("error", answer["status"]))] += 1
            if answer["status"] == "ACCEPTED":
                self.accepted[id] = content
                sending.pop(0)
                await asyncio.sleep(self.pause)
            else:
                await asyncio.sleep(answer.get("retryAfterMs", 100) / 1000)

    async def _resume(self, socket: Any, web: aiohttp.ClientSession) -> None:
        """Join, then read what was missed; later messages are shown after it."""
        self._early = []
        joined = await socket.call("joinRoom", {"roomId": self.room}, timeout=CALL_SECONDS)
        if not joined.get("success"):
            raise ValueError(joined)
        while page := await self._page(web):
            self._show(page)
            if len(page) < PAGE:
                break
        early, self._early = self._early, None
        self._show(early)

    async def _page(self, web: aiohttp.ClientSession) -> list[Seen]:
        query = {"limit": str(PAGE), "after": self.screen[-1].id if self.screen else "0" * 26}
        url = f"{self.person.url}/rooms/{self.room}/messages"
        async with web.get(url, params=query, timeout=aiohttp.ClientTimeout(CALL_SECONDS)) as answer:
            if answer.status != 200:
                raise ValueError(answer.status)
            return [Seen(row["id"], row["clientMsgId"], row["content"]) for row in await answer.json()]

    def _hear(self, message: dict[str, Any]) -> None:
        seen = Seen(message["messageId"], message["clientMsgId"], message["content"])
        if self._early is not None:
            self._early.append(seen)
        else:
            self._show([seen])

    def _show(self, lines: Sequence[Seen]) -> None:
        for line in lines:
            if line.client_msg_id not in self._shown:
                self._shown.add(line.client_msg_id)
                self.screen.append(line)


@dataclass
class Outcome:
    """The result of a campaign."""

    wrong: list[str]
    line: str


@dataclass(frozen=True)
class Plan:
    """The numbers of messages and kills."""

    messages: int
    #: Undisturbed, people would talk for so many seconds.
    talking: float
    #: All must be over by then.
    seconds: float
    most_kills: int
    seed: int = 1
    clients: int = 20
    rooms: int = 5


async def talk(hall: Hall, kills: Mapping[str, Callable[[], None]], plan: Plan) -> Outcome:
    """Let people chat while something is killed and restarted at random moments."""
    clients, rooms, messages = plan.clients, plan.rooms, plan.messages
    people = [hall.person() for _ in range(clients)]
    groups = [people[at::rooms] for at in range(rooms)]
    names = [group[0].room(*group[1:]) for group in groups]
    share = messages // clients
    members = [
        Client(person, names[at % rooms], f"client {at}", share + (at < messages % clients), plan.talking / share)
        for at, person in enumerate(people)
    ]
    began = time.monotonic()
    until = began + plan.seconds
    living = [asyncio.create_task(member.live()) for member in members]
    dice = random.Random(plan.seed)
    killed: Counter[str] = Counter()

    def is_sent() -> bool:
        return all(len(member.accepted) == member.messages for member in members)

    while killed.total() < plan.most_kills and not is_sent() and time.monotonic() < until:
        await asyncio.sleep(dice.uniform(0.3, 1.5))
        what = dice.choice([name for name in kills if not killed[name]] or list(kills))
        await asyncio.to_thread(kills[what])
        killed[what] += 1

    def is_shown() -> bool:
        return all(
            len(member.screen) >= sum(m.messages for m in members if m.room == member.room) for member in members
        )

    while not is_shown() and time.monotonic() < until:
        await asyncio.sleep(PAUSE_SECONDS)
    took = time.monotonic() - began
    for member in members:
        member.ended.set()
    await asyncio.gather(*living)
    histories = {
        room: await asyncio.to_thread(_history, group[0], room) for room, group in zip(names, groups, strict=True)
    }
    wrong = [line for member in members for line in judge(member, histories[member.room])]
    wrong += [line for room, history in histories.items() for line in _doubles(room, history)]
    told = sum(len(history) for history in histories.values())
    failed = sum((member.answers for member in members), Counter[str]())
    sockets = sum(member.reconnects for member in members)
    return Outcome(
        wrong,
        f"{told} messages of {clients} clients in {rooms} rooms, killed {dict(killed)}, {sockets} sockets, answers"
        f" {dict(failed)}: {len(wrong)} wrong, {took:.0f} s",
    )


def by_fsck(hall: Hall) -> list[str]:
    """Return what `kingdom fsck` finds in the home, while its roles run."""
    command = [sys.executable, "-m", "kingdom", "fsck", "--json"]
    environment = {**os.environ, "KINGDOM_HOME": str(hall.places.home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    return [f"{found['path']}: {found['what']}" for found in json.loads(done.stdout)["findings"]]


def judge(member: Client, history: Sequence[Seen]) -> list[str]:
    """Return what is wrong with one member's messages and screen."""
    wrong = []
    there = Counter(line.client_msg_id for line in history)
    for id, content in member.accepted.items():
        if there[id] != 1:
            wrong.append(f"{content!r} was ACCEPTED and is {there[id]} times in history")
    if len(member.accepted) != member.messages:
        wrong.append(f"{member.name} could send {len(member.accepted)} of {member.messages} messages")
    if member.screen != list(history):
        wrong.append(f"the screen of {member.name}: {_difference(member.screen, history)}")
    own = [line.content for line in history if line.client_msg_id in member.accepted]
    if own != list(member.accepted.values()):
        wrong.append(f"{member.name}'s messages are in another order than they were sent")
    return wrong


def _difference(screen: Sequence[Seen], history: Sequence[Seen]) -> str:
    for at, (shown, stored) in enumerate(zip(screen, history, strict=False)):
        if shown != stored:
            return f"line {at} is {shown}, and {stored} in history"
    return f"{len(screen)} lines, and {len(history)} in history"


def _doubles(room: str, history: Sequence[Seen]) -> list[str]:
    counts = Counter(line.content for line in history)
    return [f"{content!r} is {count} times in {room}" for content, count in counts.items() if count > 1]


def _history(person: Person, room: str) -> list[Seen]:
    lines: list[Seen] = []
    while page := _history_page(person, room, lines[-1].id if lines else "0" * 26):
        lines += [Seen(row["id"], row["clientMsgId"], row["content"]) for row in page]
    return lines


def _history_page(person: Person, room: str, after: str) -> list[dict[str, Any]]:
    """Return the next messages, once the database is back after its last kill."""

    def asked() -> requests.Response | None:
        answer = person.call("GET", f"/rooms/{room}/messages", params={"limit": PAGE, "after": after})
        return None if answer.status_code == 503 else answer

    answer = wait_until(asked, SOON, "the history can be read")
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()
    return rows


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
