"""People in front of the page: each has a browser context of their own, with their session in its storage."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Playwright, expect

from kingdom.base.home import config
from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import MessageCreated
from kingdom.hall.topics import base as topics
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome
from kingdom.hall.topics.names import MESSAGES, PASSING
from tests.hall.gateway.halls import SECONDS, Hall, Person

expect.set_options(timeout=SECONDS * 1000)
#: A script by which the page does not look again by itself every ten seconds.
RARELY = "const again = setInterval; window.setInterval = (work, ms) => again(work, ms === 10000 ? 1e9 : ms)"
PHONE, TABLET, DESK = (360, 740), (768, 1024), (1280, 800)
NAMES = ("chromium", "chromium-browser", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of the machine's own Chromium."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def launch(playwright: Playwright) -> Iterator[Browser]:
    """Run a browser."""
    # /dev/shm is small in containers; names of attackers lead here; as root it does not start with a sandbox.
    options = ["--disable-dev-shm-usage", "--host-resolver-rules=MAP *.example 127.0.0.1"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    started = playwright.chromium.launch(executable_path=find_chromium(), args=options)
    yield started
    started.close()


class Screen:
    """One person's page."""

    def __init__(self, browser: Browser, url: str, person: Person | None = None, **options: Any) -> None:
        """Open the page, signed in as a person unless that is None. `options` are those of a browser context."""
        width, height = options.pop("size", DESK)
        stored = {"kingdom.token": person.token} if person else {}
        stored |= options.pop("stored", {})
        entries = [{"name": name, "value": value} for name, value in stored.items()]
        self.person = person
        self.url = url
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height},
            storage_state={"cookies": [], "origins": [{"origin": url, "localStorage": entries}]},
            **{"locale": "en-GB", **options},
        )
        self.context.set_default_timeout(SECONDS * 1000)
        #: What the browser complained about: errors of scripts, and what the policy of the page kept out.
        self.complaints: list[str] = []
        self.page: Page = self._open_tab()

    def tab(self) -> Screen:
        """Return the same person's page in another tab of the browser."""
        other = copy(self)
        other.page = self._open_tab()
        return other

    def _open_tab(self) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        # A request that is refused or cut is told too; each test says itself what becomes of that.
        if message.type == "error" and "Failed to load resource" not in message.text and "ERR_" not in message.text:
            self.complaints.append(message.text)

    def close(self) -> None:
        self.context.close()

    def open(self, path: str = "/") -> Screen:
        self.page.goto(f"{self.url}/#{path}")
        return self

    def room(self, room: str) -> Screen:
        """Go into a room, and return when it is joined and its newest messages are there."""
        self.open(f"/room/{room}")
        expect(self.timeline).to_be_visible()
        expect(self.page.locator(".start", has_text="Loading…")).to_have_count(0)
        expect(self.page.locator(".panel .is-there", has_text="(you)")).to_have_count(1)
        return self

    @property
    def timeline(self) -> Locator:
        return self.page.get_by_role("log")

    @property
    def box(self) -> Locator:
        return self.page.locator("#write")

    def say(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def message(self, text: str) -> Locator:
        return self.timeline.get_by_role("article").filter(has_text=text)

    def texts(self) -> list[str]:
        """Return the messages that are seen, the oldest first."""
        return self.timeline.locator("article .text").all_inner_texts()

    def rooms(self) -> Locator:
        return self.page.get_by_role("navigation").get_by_role("listitem")


def apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something asynchronous: this thread's loop is the browser's."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work())).result(SECONDS * 4)


def write(person: Person, room: str, contents: Sequence[str]) -> None:
    """Let a person write messages into a room, and return when all are stored."""

    async def work() -> None:
        async with person.socket(room) as socket:
            for content in contents:
                answer = await socket.send(room, content)
                assert answer["status"] == "ACCEPTED", answer
            await socket.wait("newMessage", lambda told: told["content"] == contents[-1])

    apart(work)


Screens = Callable[..., Screen]
Figure = Callable[[str], None]
"""Tells a figure for the summary at the end."""


def speak(hall: Hall, room: str, text: str, about: dict[str, Any] | None = None) -> None:
    """Let the kingdom say something, as its envoy does: in the topic."""
    kit = topics.TopicsKit(
        folder=hall.places.topics,
        scratch=hall.places.topic_scratch("test"),
        durability="process",
        guard=lambda: None,
        settings=config.load(hall.places, "hall"),
        passing=PASSING,
        wake="inotify",
        secrets={},
    )
    kit.scratch.mkdir(parents=True, exist_ok=True)
    opened = open_topics("files", kit)
    stored: Future[PublishOutcome] = Future()
    now = iso(time.time())
    event = MessageCreated(new_uuid(), room, own_rooms.USER, new_uuid(), "SYSTEM", text, now, about)
    opened.producer().append(MESSAGES, room, event.to_json(), lambda outcome, why: stored.set_result(outcome))
    assert stored.result(SECONDS) is PublishOutcome.STORED
    opened.close()


def pair(screens: Screens, hall: Hall) -> tuple[Screen, Screen, str]:
    """Return two people in front of one room."""
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    return screens(anna).room(room), screens(ben).room(room), room


def storage(screen: Screen) -> dict[str, str]:
    """Return what the page keeps in the browser."""
    found: dict[str, str] = json.loads(screen.page.evaluate("JSON.stringify(localStorage)"))
    return found
