"""The kingdom in its rooms, in a browser: real roles under their launcher, questions with buttons, a killed gateway."""

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator

import pytest
import requests
from playwright.sync_api import Browser, expect

from tests.faults.oracle import Figure
from tests.hall.gateway.halls import PASSWORD, SECONDS, Person
from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom
from tests.journey.test_hall import asked, check_one_answer, owner
from tests.ports import free_port
from tests.web.screens import Screen

TASK = "task-20260207-001"
ROUNDS = 6
Open = Callable[[Person, str], Screen]


@pytest.fixture(scope="module")
def kingdom() -> Iterator[Kingdom]:
    """A kingdom whose hall has two gateways."""

    def prepare(kingdom: Kingdom) -> None:
        (kingdom.places.config / "system.yaml").write_text("launcher: tmux\n")
        hall = {"port": free_port(), "instances": {"gateway": {"b": free_port()}}}
        (kingdom.places.config / "hall.yaml").write_text(json.dumps(hall))

    yield from founded("tmux", prepare)


@pytest.fixture
def screen(browser: Browser) -> Iterator[Open]:
    opened: list[Screen] = []

    def open_screen(person: Person, room: str) -> Screen:
        opened.append(Screen(browser, person.url, person))
        return opened[-1].room(room)

    yield open_screen
    complaints = [line for one in opened for line in one.complaints]
    for one in opened:
        one.close()
    assert complaints == []


def invited(kingdom: Kingdom, url: str, *options: str) -> Person:
    code = kingdom.ok("hall", "invite", *options).strip().rpartition("/")[2]
    given = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD, "invite": code}
    assert requests.post(f"{url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    return Person(url, given["email"])


def test_a_question_of_a_task_is_answered_by_a_button_and_the_task_goes_on(kingdom: Kingdom, screen: Open) -> None:
    anna = owner(kingdom)
    task, room = asked(kingdom, anna)
    page = screen(anna, room)
    expect(page.page.get_by_role("button", name="the shop")).to_be_visible()
    page.page.get_by_role("button", name="the site").click()
    expect(page.message("it is done: the site").locator(".code")).to_have_text("Done")
    expect(page.page.get_by_role("button", name="the shop")).to_have_count(0)
    check_one_answer(kingdom, anna, task, room)
    [answer] = [line for line in anna.history(room) if line["type"] == "TEXT"]
    assert (answer["content"], answer["senderId"]) == ("the site", anna.id)


def test_with_one_of_two_gateways_killed_nothing_is_lost_or_doubled_on_either_screen(
    kingdom: Kingdom, screen: Open, figure: Figure
) -> None:
    first, second = ((kingdom.places.own(role) / "address").read_text().strip() for role in ("gateway", "gateway-b"))
    say(kingdom, "thread_start", "start")
    anna = invited(kingdom, first, "--room", "throne")
    room = str(kingdom.until(lambda: rooms_of(anna).get(TASK), "the room"))
    ben = invited(kingdom, second, "--room", "throne")
    hers, his = screen(anna, room), screen(ben, room)
    for number in range(ROUNDS):
        if number == ROUNDS // 2:
            os.kill(int(kingdom.beat("gateway-b")["pid"]), signal.SIGKILL)
        hers.say(f"anna {number}")
        his.say(f"ben {number}")
        say(kingdom, "thread_update", f"kingdom {number}")
    wanted = sorted(f"{who} {number}" for who in ("anna", "ben", "kingdom") for number in range(ROUNDS))
    for page in (hers, his):
        for text in wanted:
            expect(page.message(text)).to_have_count(1)
        expect(page.timeline.locator(".state")).to_have_count(0)
    told = [line["content"] for line in anna.history(room)]
    assert sorted(text for text in told if text in wanted) == wanted
    for page in (hers, his):
        expect(page.timeline.locator("article")).to_have_count(len(told))
        assert page.texts() == hers.texts(), "both have them in one order"
    seen = [text for text in his.texts() if text in wanted]
    assert seen == [text for text in told if text in wanted], "the order of the history"
    figure(f"two gateways, one killed: {len(wanted)} messages of two people and the kingdom, 0 lost, 0 doubled")


def say(kingdom: Kingdom, type: str, text: str) -> None:
    """Let the kingdom say something in the room of a task."""
    message = {"id": f"msg-{uuid.uuid4()}", "type": type, "content": text, "task_id": TASK}
    kingdom.put("messages", message["id"], {**message, "created_at": "2026-11-18T09:00:00Z"})


def rooms_of(person: Person) -> dict[str, str]:
    """Return the rooms of tasks by their tasks."""
    return {room["name"].partition(":")[0]: room["id"] for room in person.call("GET", "/rooms").json()}
