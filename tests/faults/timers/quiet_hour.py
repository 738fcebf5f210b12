"""An hour in which little happens: two people in browsers and three with stock clients are in one room of the hall.

Every minute one of them says something. Nobody may be disconnected or seem to leave, every message must reach
everybody, and the gateway's memory must stay flat. MINUTES=5 python -m tests.faults.timers.quiet_hour
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import socketio
from playwright.sync_api import Browser, expect, sync_playwright

from kingdom.base.disk.codec import read_json
from tests.hall.gateway.halls import CHECKOUT, SECONDS, Hall, Person, running
from tests.web.screens import Screen, launch

MINUTE = 60.0
HEARTBEAT_SECONDS = 20.0
"""As docs/chat.md asks of clients."""
MOST_GROWTH_KB = 4096
TRANSPORTS = (["websocket"], ["polling"], ["polling", "websocket"])


@dataclass
class Seen:
    """What one person saw."""

    name: str
    drops: int = 0
    flaps: int = 0
    texts: list[str] = field(default_factory=list)
    #: From here on nothing counts.
    is_over: bool = False

    def note_drop(self, *_: object) -> None:
        """Count the end of a connection."""
        self.drops += not self.is_over

    def note_presence(self, told: dict[str, object]) -> None:
        """Count that somebody seems to have left."""
        self.flaps += not told["on"] and not self.is_over


class StockClient:
    """Somebody with the stock Python client, which comes back when it was cut, but reads no history."""

    def __init__(self, name: str, person: Person, room: str, transports: list[str]) -> None:
        self.seen = Seen(name)
        self._person, self._room, self._transports = person, room, transports
        self._client = socketio.AsyncClient(handle_sigint=False)
        self._client.on("connect", self._join)
        self._client.on("disconnect", self.seen.note_drop)
        self._client.on("newMessage", lambda message: self.seen.texts.append(message["content"]))
        self._client.on("presence", self.seen.note_presence)

    async def arrive(self) -> None:
        """Connect; the room is joined in each connection anew."""
        token = {"token": self._person.token}
        await self._client.connect(self._person.url, auth=token, transports=self._transports, wait_timeout=int(SECONDS))
        self._beats = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            if self._client.connected:
                await self._client.emit("heartbeat", {})
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def say(self, text: str) -> None:
        """Send a message, and wait until it is accepted."""
        message = {"roomId": self._room, "clientMsgId": str(uuid.uuid4()), "content": text}
        answer = await self._client.call("sendMessage", message, timeout=SECONDS)
        assert answer["status"] == "ACCEPTED", answer

    async def leave(self) -> None:
        """Disconnect for good."""
        self._beats.cancel()
        await self._client.shutdown()

    async def _join(self) -> None:
        answer = await self._client.call("joinRoom", {"roomId": self._room}, timeout=SECONDS)
        assert answer == {"success": True}, answer


class Reader:
    """Somebody with the hall's page in a browser."""

    def __init__(self, name: str, browser: Browser, person: Person, room: str) -> None:
        self.seen = Seen(name)
        self.screen = Screen(browser, person.url, person)
        self.screen.page.on("websocket", lambda socket: socket.on("close", self.seen.note_drop))
        self.screen.room(room)

    def say(self, text: str) -> None:
        """Write a message."""
        self.screen.say(text)

    def leave(self) -> None:
        """Note what is on the screen, and close it."""
        self.seen.texts = self.screen.texts()
        self.screen.close()


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread: that of this thread is the browsers'."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def memory_kb(pid: int) -> int:
    """Return the memory that a process has for itself and its part of what it shares."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found
    return int(found[1])


@dataclass
class Outcome:
    """What became of a quiet time."""

    minutes: int
    sent: list[str]
    everybody: list[Seen]
    #: Once a minute.
    memory: list[int]
    unexpected_ends: int

    @property
    def wrong(self) -> list[str]:
        """What must not be."""
        found = [f"{one.name} was disconnected {one.drops} times" for one in self.everybody if one.drops]
        found += [f"{one.name} saw others leave {one.flaps} times" for one in self.everybody if one.flaps]
        found += [f"{one.name} saw {one.texts}, not {self.sent}" for one in self.everybody if one.texts != self.sent]
        if self.unexpected_ends:
            found.append(f"the gateway counts {self.unexpected_ends} ends for no known reason")
        if self.growth_kb > MOST_GROWTH_KB:
            found.append(f"the gateway's memory grew from {self.memory[0]} to {self.memory[-1]} KB")
        return found

    @property
    def growth_kb(self) -> int:
        return self.memory[-1] - self.memory[0]

    def __str__(self) -> str:
        drops, flaps = sum(one.drops for one in self.everybody), sum(one.flaps for one in self.everybody)
        lost = sum(len(set(self.sent) - set(one.texts)) for one in self.everybody)
        return (
            f"{self.minutes} quiet minutes, {len(self.sent)} messages to {len(self.everybody)} people: {drops} drops,"
            f" {flaps} flaps, {lost} lost, {self.unexpected_ends} unexpected ends, gateway {self.memory[0]} to"
            f" {self.memory[-1]} KB (most {max(self.memory)})"
        )


def run(browsers: Sequence[Browser], minutes: int, tree: Path = CHECKOUT) -> Outcome:
    """Let people be in one room for so long; one of them speaks in each minute."""
    with running("gateway", "worker", tree=tree) as hall, _event_loop() as loop:
        people = [hall.person() for _ in range(len(browsers) + len(TRANSPORTS))]
        room = people[0].room(*people[1:])
        readers = [Reader(f"browser {at}", browser, people[at], room) for at, browser in enumerate(browsers)]
        clients = [
            StockClient(f"client by {' and '.join(transports)}", person, room, transports)
            for person, transports in zip(people[len(browsers) :], TRANSPORTS, strict=True)
        ]

        def do(work: object) -> None:
            asyncio.run_coroutine_threadsafe(work, loop).result(2 * SECONDS)  # type: ignore[arg-type]

        for client in clients:
            do(client.arrive())
        sent, memory = [], []
        for minute in range(minutes + 1):
            sent.append(f"minute {minute}")
            speaker = minute % len(people)
            if speaker < len(readers):
                readers[speaker].say(sent[-1])
            else:
                do(clients[speaker - len(readers)].say(sent[-1]))
            _wait_for(readers, sent[-1])
            memory.append(memory_kb(hall.pid("gateway")))
            print(f"minute {minute} of {minutes}: gateway {memory[-1]} KB", flush=True)
            if minute < minutes:
                readers[0].screen.page.wait_for_timeout(MINUTE * 1000)
        everybody = [one.seen for one in [*readers, *clients]]
        for seen in everybody:
            seen.is_over = True
        for reader in readers:
            reader.leave()
        for client in clients:
            do(client.leave())
        return Outcome(minutes, sent, everybody, memory, _unexpected_ends(hall))


def _wait_for(readers: Sequence[Reader], text: str) -> None:
    """Wait until everybody in a browser reads a message, but note, instead of failing, who does not."""
    for reader in readers:
        try:
            expect(reader.screen.message(text)).to_be_visible()
        except AssertionError as error:
            print(f"{reader.seen.name} does not show {text!r}: {error}", flush=True)


def _unexpected_ends(hall: Hall) -> int:
    figures = read_json(hall.places.gateway_figures("gateway"))
    return int(figures["unexpected_ends"])


def main() -> int:
    with ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browsers = [stack.enter_context(launch(playwright)) for _ in range(2)]
        outcome = run(browsers, int(os.environ.get("MINUTES", "60")))
    print(outcome)
    for line in outcome.wrong:
        print(f"WRONG: {line}")
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
