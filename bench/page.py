"""The page of the hall: what a browser loads, and how soon somebody reads the first message."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Any

import requests

from bench.figures import Row, median, row
from bench.homes import folder
from tests.hall.gateway.halls import SECONDS, Hall, Person

MESSAGES = 60
ABOUT = (
    "The page from its gateway on loopback, in Chromium without a window, on the same two cores. Bytes are bodies as "
    "they travel to a browser that has nothing yet; one that has been here before asks for the index alone. *To the "
    f"first message* is from the start of the navigation until the newest of {MESSAGES} messages of a room can be "
    "read by somebody who is signed in: page, modules, account, rooms, socket, history."
)


def run(quick: bool) -> dict[str, Any]:
    if shutil.which("chromium") is None:
        raise RuntimeError("no chromium here: bin/setup web")
    hall = Hall(folder(), {"registration": "open", "port": 0})
    try:
        hall.start("gateway")
        hall.start("worker")
        rows = [*_weight(hall), *_first_message(hall, 3 if quick else 15)]
    finally:
        hall.close()
    return {"title": "The page of the hall", "about": ABOUT, "rows": rows}


def _weight(hall: Hall) -> list[Row]:
    index = requests.get(hall.url, timeout=SECONDS).text
    parts = ["/", *(f"/{path}" for path in re.findall(r'(?:src|href)="([^"]+)"', index))]
    plain = [_size(hall.url + part, "identity") for part in parts]
    packed = [_size(hall.url + part, "gzip") for part in parts]
    return [
        row(f"the page, {len(parts)} parts, packed", goal="", met=None, ours=sum(packed) / 1000, unit="kB"),
        row("the page, as it is", goal="", met=None, ours=sum(plain) / 1000, unit="kB"),
    ]


def _size(url: str, encoding: str) -> int:
    with requests.get(url, headers={"Accept-Encoding": encoding}, stream=True, timeout=SECONDS) as answer:
        assert answer.status_code == 200, url
        return len(answer.raw.read(decode_content=False))


def _first_message(hall: Hall, rounds: int) -> list[Row]:
    from playwright.sync_api import sync_playwright

    from tests.web.screens import Screen, write

    person = Person(hall.url)
    room = person.room()
    write(person, room, [f"message {number}" for number in range(MESSAGES)])
    newest = f"message {MESSAGES - 1}"
    cold, warm = [], []
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for _ in range(rounds):
            screen = Screen(browser, hall.url, person)
            for times in (cold, warm):
                began = time.perf_counter()
                screen.open(f"/room/{room}")
                screen.message(newest).wait_for()
                times.append((time.perf_counter() - began) * 1000)
                screen.page.goto("about:blank")
            screen.close()
        browser.close()
    return [
        row("to the first message, nothing cached", goal="", met=None, ours=median(cold), unit="ms"),
        row("to the first message, been here before", goal="", met=None, ours=median(warm), unit="ms"),
    ]
