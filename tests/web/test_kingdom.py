"""The kingdom on the page: its questions with their answers as buttons, and what it does now."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from kingdom.disk.codec import read_json
from kingdom.disk.lock import holder_pid
from kingdom.hall import accounts, own_rooms
from kingdom.hall.base import Connection
from kingdom.hall.ids import iso
from kingdom.hall.opening import open_database
from tests.fixtures import event, put, task
from tests.gateway.halls import SECONDS, Hall, Person
from tests.waiting import wait_until
from tests.web.screens import Screens, speak

QUESTION = "May I push to main?\n- Yes, push\n- No, open a pull request"
CHOICES = ["Yes, push", "No, open a pull request"]


def change(hall: Hall, work: Callable[[Connection], Any]) -> None:
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    database.run(work)
    database.close()


def task_room(hall: Hall, *people: Person, name: str = "gen-pr · acme/site #7") -> str:
    """Return a new room of the kingdom with these people."""
    room, now = own_rooms.room_of(f"msg-{time.time_ns()}"), iso(time.time())

    def open_room(db: Connection) -> None:
        own_rooms.open_room(db, room, name, own_rooms.TASK, now)
        rows = [{"room_id": room, "user_id": person.id, "joined_at": now} for person in people]
        db.each("add_member", rows)

    change(hall, open_room)
    return room


def test_a_question_has_its_answers_as_buttons_until_one_is_given(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    room = task_room(hall, anna, ben)
    here, there = screens(anna).room(room), screens(ben).room(room)
    speak(hall, room, QUESTION, {"taskId": "task-1", "code": "question", "choices": CHOICES})
    buttons = here.page.get_by_role("group", name="Answers").get_by_role("button")
    expect(buttons).to_have_text(CHOICES)
    expect(here.message("May I push").locator(".text")).to_have_text("May I push to main?")
    buttons.nth(1).click()
    expect(there.message(CHOICES[1]).last).to_be_visible()
    for screen in (here, there):
        expect(screen.page.get_by_role("group", name="Answers")).to_have_count(0)
    expect(here.timeline.locator(".state")).to_have_count(0)
    last = ben.history(room)[-1]
    assert (last["senderId"], last["type"], last["content"]) == (anna.id, "TEXT", CHOICES[1])
    speak(hall, room, "Thank you.", {"taskId": "task-1", "code": "resumed"})
    expect(there.message("Thank you.")).to_be_visible()


def test_a_question_that_the_kingdom_does_not_ask_any_more_has_no_buttons(hall: Hall, screens: Screens) -> None:
    anna = hall.person()
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    room = task_room(hall, anna)
    screen = screens(anna).room(room)
    expect(screen.page.locator(".people .is-there").filter(has_text="kingdom")).to_have_count(1)
    speak(hall, room, QUESTION, {"taskId": "task-1", "code": "question", "choices": CHOICES})
    expect(screen.message("No, open a pull request")).to_be_visible()
    expect(screen.page.get_by_role("group", name="Answers")).to_have_count(0)


def test_a_tasks_room_is_called_by_what_the_task_is_about_and_a_line_leads_to_it(hall: Hall, screens: Screens) -> None:
    anna, name = hall.person(), "task-20260207-001: tidy the <i>docs</i>"
    throne, task = task_room(hall, anna, name="all tasks"), task_room(hall, anna, name=name)
    screen = screens(anna).room(throne)
    row = screen.rooms().filter(has_text="tidy").locator(".name")
    expect(row).to_have_text("tidy the <i>docs</i> task-20260207-001")
    speak(hall, throne, f"→ {name}")
    screen.timeline.get_by_role("link", name="tidy the <i>docs</i>").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("tidy the <i>docs</i>")
    assert screen.page.url.endswith(f"/room/{task}")


def test_owners_see_what_the_kingdom_does_and_others_do_not(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    told = anna.call("GET", "/kingdom").json()
    screen = screens(anna).open()
    screen.page.locator(".strip").click()
    expect(screen.page.locator(".told")).to_have_text(told["line"])
    for name in ("Needs a person", "Failed", "Running", "Waiting"):
        expect(screen.page.get_by_role("region", name=name)).to_be_visible()
    expect(screen.page.locator(".roles li .name")).to_have_text([role["name"] for role in told["roles"]])
    other = screens(ben).open("/kingdom")
    expect(other.page.get_by_text("Owners and people of the throne room see here")).to_be_visible()
    expect(other.page.locator(".strip")).to_be_hidden()


def test_an_owner_discards_an_event_that_waits(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    change(hall, lambda db: own_rooms.open_room(db, own_rooms.THRONE_ROOM, "throne room", own_rooms.THRONE, iso(0)))
    change(hall, lambda db: own_rooms.join_all(db, ben.id, iso(0)))
    name = "evt-test-20261119-1"
    (hall.places.folder("events", "pending") / f"{name}.json").write_text(json.dumps(event(name)))
    screen = screens(anna).open("/kingdom")
    waiting = screen.page.get_by_role("region", name="Waiting")
    waiting.get_by_role("button", name="Discard it").click()
    screen.page.get_by_role("dialog").get_by_role("button", name="Discard it").click()
    folder = hall.places.folder("orders", "pending")
    order = wait_until(lambda: [read_json(path) for path in folder.glob("*.json")], SECONDS, "an order", [folder])[0]
    assert (order["action"], order["target"]) == ("discard", name)
    # The king does not run here.
    expect(screen.page.get_by_role("alert")).to_have_text("The king has not come to it yet; it is not forgotten.")
    other = screens(ben).open("/kingdom")
    expect(other.page.get_by_role("region", name="Waiting").get_by_role("listitem").first).to_be_visible()
    expect(other.page.get_by_role("button", name="Discard it")).to_have_count(0)


def test_an_owner_restarts_a_role_and_tries_a_failed_task_again(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    change(hall, lambda db: own_rooms.open_room(db, own_rooms.THRONE_ROOM, "throne room", own_rooms.THRONE, iso(0)))
    change(hall, lambda db: own_rooms.join_all(db, ben.id, iso(0)))
    (hall.places.config / "system.yaml").write_text("roles: {gateway: true, worker: false}\n")
    failed = task(outcome="failed")
    put(hall.places.home, "tasks", "completed", **failed)
    screen = screens(anna).open("/kingdom")
    button = screen.page.get_by_role("button", name="Restart it: gateway")
    button.focus()
    screen.page.keyboard.press("Enter")
    dialog = screen.page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Restart gateway?")
    dialog.get_by_role("button", name="Restart it").press("Enter")
    expect(dialog).to_have_count(0)
    expect(screen.page.locator(".roles li").filter(has_text="gateway")).to_contain_text("restarts")
    expect(button).to_have_count(0)
    wish = read_json(hall.places.restart("gateway"))
    assert (wish["pid"], wish["by"]) == (holder_pid(hall.places.lock("gateway")), anna.email)
    screen.page.get_by_role("button", name=f"Try it again: {failed['id']}").click()
    dialog.get_by_role("button", name="Try it again").click()
    folder = hall.places.folder("orders", "pending")
    wait_until(lambda: ("retry", failed["id"]) in orders_in(folder), SECONDS, "an order", [folder])
    other = screens(ben).open("/kingdom")
    expect(other.page.locator(".roles li").first).to_be_visible()
    expect(other.page.get_by_role("button", name="Restart it")).to_have_count(0)
    expect(other.page.get_by_role("button", name="Try it again")).to_have_count(0)


def orders_in(folder: Path) -> list[tuple[str, str]]:
    return [(order["action"], order["target"]) for order in map(read_json, folder.glob("*.json"))]
