"""The page of the hall: what a browser loads, and how soon somebody reads the first message."""

from __future__ import annotations

import os
import re
import shutil

import requests

from bench.figures import Found, seconds
from bench.homes import folder
from tests.hall.gateway.halls import SECONDS, Hall, Person

MESSAGES = 60


def run(quick: bool) -> Found:
    if shutil.which("chromium") is None:
        raise RuntimeError("no chromium here: bin/setup web")
    found = Found()
    hall = Hall(folder(), {"registration": "open", "port": 0})
    try:
        hall.start("gateway")
        hall.start("worker")
        index = requests.get(hall.url, timeout=SECONDS).text
        parts = ["/", *(f"/{path}" for path in re.findall(r'(?:src|href)="([^"]+)"', index))]
        for what, encoding in (("packed", "gzip"), ("as it is", "identity")):
            found.add("the page", what, [sum(_size(hall.url + part, encoding) for part in parts) / 1000])
        _first_message(found, hall, 3 if quick else 15)
    finally:
        hall.close()
    return found


def _size(url: str, encoding: str) -> int:
    with requests.get(url, headers={"Accept-Encoding": encoding}, stream=True, timeout=SECONDS) as answer:
        assert answer.status_code == 200, url
        return len(answer.raw.read(decode_content=False))


def _first_message(found: Found, hall: Hall, rounds: int) -> None:
    from playwright.sync_api import sync_playwright

    from tests.web.screens import Screen, write

    person = Person(hall.url)
    room = person.room()
    write(person, room, [f"message {number}" for number in range(MESSAGES)])
    times: dict[str, list[float]] = {"nothing cached": [], "been here before": []}
    options = ["--no-sandbox"] if os.geteuid() == 0 else []

    def read(screen: Screen) -> None:
        screen.open(f"/room/{room}")
        screen.message(f"message {MESSAGES - 1}").wait_for()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for _ in range(rounds):
            screen = Screen(browser, hall.url, person)
            for took in times.values():
                took.append(seconds(lambda screen=screen: read(screen)) * 1e3)
                screen.page.goto("about:blank")
            screen.close()
        browser.close()
    for case, took in times.items():
        found.add("to the first message", case, took)
