"""The kingdom on the page: its questions with their answers as buttons, and what it does now."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.lock import holder_pid
from kingdom.base.words import Said
from kingdom.hall.database import accounts, own_rooms
from kingdom.hall.database.base import Transaction
from kingdom.hall.database.ids import iso
from kingdom.hall.database.opening import open_database
from tests.fixtures import event, put, task
from tests.fixtures import write as write_json
from tests.hall.gateway.halls import SECONDS, Hall, Person
from tests.waiting import wait_until
from tests.web.screens import RARELY, Screens, speak

QUESTION = "May I push to main?\n- Yes, push\n- No, open a pull request"
CHOICES = ["Yes, push", "No, open a pull request"]
#: What the kingdom writes: its code, the text, and what of that stands behind the mark.
TOLD = [
    ("started", "[start] hall.message", "hall.message"),
    ("resumed", "answer received, resuming", "answer received, resuming"),
    ("completed", "[complete] resume of a thing", "resume of a thing"),
    ("failed", "[failed] why\n[failed] stays", "why\n[failed] stays"),
    ("unanswerable", "[failed] nobody asks", "nobody asks"),
    ("skipped", "[skipped] out of scope", "out of scope"),
    (None, "[alert] the disk is full", "the disk is full"),
    ("proclamation", "[start] of a proclamation", "[start] of a proclamation"),
    ("question", "[question] May I?", "May I?"),
]
ENGLISH = ["Started", "Goes on", "Done", "Failed", "Too late", "Skipped", "Alert", "", "Question"]
KOREAN = ["시작", "재개", "완료", "실패", "늦음", "건너뜀", "알림", "", "질문"]


def change(hall: Hall, work: Callable[[Transaction], Any]) -> None:
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    database.run(work)
    database.close()


def task_room(hall: Hall, *people: Person, name: str = "gen-pr · acme/site #7") -> str:
    """Return a new room of the kingdom with these people."""
    room, now = own_rooms.room_of(f"msg-{time.time_ns()}"), iso(time.time())

    def open_room(db: Transaction) -> None:
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
        expect(screen.timeline.locator(".choices").get_by_role("listitem")).to_have_text(
            [CHOICES[0], f"{CHOICES[1]} (chosen)"]
        )
    expect(here.timeline.locator(".state")).to_have_count(0)
    last = ben.history(room)[-1]
    assert (last["senderId"], last["type"], last["content"]) == (anna.id, "TEXT", CHOICES[1])
    speak(hall, room, "Thank you.", {"taskId": "task-1", "code": "resumed"})
    expect(there.message("Thank you.")).to_be_visible()


def test_the_line_beside_the_rooms_knows_of_a_question_as_soon_as_it_is_seen(hall: Hall, screens: Screens) -> None:
    anna, asks = hall.person(), "task-20260207-003"
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    room = task_room(hall, anna)
    screen = screens(anna)
    screen.context.add_init_script(RARELY)
    strip = screen.room(room).page.locator(".strip")
    expect(strip).to_have_text("Does not run")

    def taken() -> str:
        return str(anna.call("GET", "/kingdom").json()["takenAt"])

    # The gateway shows everybody the same picture for a second: this one is from just before the question.
    before = taken()
    wait_until(lambda: taken() != before, SECONDS, "a new picture")
    checkpoint = write_json(hall.places.checkpoint(asks), {"question": QUESTION, "target_general": "gen-pr"})
    speak(hall, room, QUESTION, {"taskId": asks, "code": "question", "choices": CHOICES})
    expect(screen.page.get_by_role("group", name="Answers")).to_be_visible()
    expect(strip).to_have_text("1 question for you")
    checkpoint.unlink()


@pytest.mark.parametrize(("locale", "marks"), [("en-GB", ENGLISH), ("ko-KR", KOREAN)])
def test_what_the_kingdom_tells_is_marked_in_the_readers_language(
    hall: Hall, screens: Screens, locale: str, marks: list[str]
) -> None:
    anna = hall.person()
    room = task_room(hall, anna)
    for code, text, _ in TOLD:
        speak(hall, room, text, {"taskId": "task-1", "code": code} if code else None)
    screen = screens(anna, locale=locale).open(f"/room/{room}")
    rows = screen.timeline.locator("article .text")
    expect(rows).to_have_text([f"{mark} {rest}".strip() for mark, (_, _, rest) in zip(marks, TOLD, strict=True)])
    expect(rows.locator(".code")).to_have_text([mark for mark in marks if mark])


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


def test_a_room_of_people_that_is_called_like_a_tasks_is_shown_as_it_is_called(hall: Hall, screens: Screens) -> None:
    anna, name = hall.person(), "task-20260207-001: send the password"
    task = task_room(hall, anna, name=name)
    people = anna.call("POST", "/rooms", json={"name": name}).json()["id"]
    screen = screens(anna).room(task).room(people)
    rows = {room: screen.page.locator(f'.rooms li[data-room="{room}"]') for room in (task, people)}
    expect(rows[people].locator(".name")).to_have_text(name)
    expect(rows[task].locator(".name")).to_have_text("send the password task-20260207-001")
    crown = "The kingdom's own room"
    expect(rows[task].get_by_role("img", name=crown)).to_have_count(1)
    expect(rows[people].get_by_role("img", name=crown)).to_have_count(0)
    title = screen.page.get_by_role("heading", level=1)
    expect(title).to_have_text(name)
    expect(title.get_by_role("img")).to_have_count(0)
    screen.room(task)
    expect(title).to_have_text("send the password")
    expect(title.get_by_role("img", name=crown)).to_have_count(1)
    screen.open(f"/search?room={task}&q=nothing")
    expect(title).to_have_text("Search in send the password")


def test_rooms_of_tasks_stand_below_those_of_people_and_the_ended_ones_are_folded(hall: Hall, screens: Screens) -> None:
    anna, asks = hall.person(), "task-20260207-004"
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    checkpoint = write_json(hall.places.checkpoint(asks), {"question": QUESTION, "target_general": "gen-pr"})
    names = {f"{asks}: asks": "asks", "task-20260207-005: unread": "unread", "task-20260207-006: ended": "ended"}
    rooms = {about: task_room(hall, anna, name=name) for name, about in names.items()}
    people = anna.room()
    speak(hall, rooms["unread"], "[complete] look at this", {"taskId": "task-20260207-005", "code": "completed"})
    screen = screens(anna).room(people)
    heads = screen.page.get_by_role("navigation").get_by_role("heading", level=2)
    expect(heads).to_have_text(["Rooms", "Tasks"])
    tasks = screen.page.locator("h2 + .rooms .name")
    expect(tasks).to_have_text([f"unread {'task-20260207-005'}", f"asks {asks}"])
    ended = screen.page.locator(".rooms .name", has_text="ended")
    expect(ended).to_be_hidden()
    fold = screen.page.locator("summary")
    expect(fold).to_have_text("Ended: 1")
    fold.press("Enter")
    expect(ended).to_be_visible()
    ended.click()
    # The room that is open is never folded.
    expect(tasks.filter(has_text="ended")).to_be_visible()
    expect(fold).to_be_hidden()
    checkpoint.unlink()


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


def test_the_kingdom_says_in_korean_why_things_wait_and_what_others_say_stays(hall: Hall, screens: Screens) -> None:
    anna, name = hall.person(), "evt-test-20261119-2"
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    path = hall.places.folder("events", "pending") / f"{name}.json"
    path.write_text(json.dumps(event(name)))
    os.utime(path, (1, 1))
    for number, why in ((8, "cancelled by anna"), (9, "no such branch")):
        failed = task(id=f"task-20260207-00{number}", outcome="failed")
        put(hall.places.home, "tasks", "completed", **failed)
        write_json(hall.places.result(failed["id"]), {"error": why})
    screen = screens(anna, locale="ko-KR").open("/kingdom")
    told = "진행 중인 것이 없습니다. 실행 중이 아닌 역할: chamberlain, king. 시작하려면: `kingdom up`"
    expect(screen.page.locator(".told")).to_have_text(told)
    expect(screen.page.get_by_role("region", name="대기")).to_contain_text(
        "king 역할이 실행 중이 아닙니다. 시작하려면: `kingdom up`"
    )
    failures = screen.page.get_by_role("region", name="실패")
    expect(failures).to_contain_text("anna 님이 취소했습니다")
    expect(failures).to_contain_text("no such branch")


def test_why_an_order_is_refused_is_told_in_korean(hall: Hall, screens: Screens) -> None:
    anna, name = hall.person(), "evt-test-20261119-3"
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    path = hall.places.folder("events", "pending") / f"{name}.json"
    path.write_text(json.dumps(event(name)))
    os.utime(path, (1, 1))
    screen = screens(anna, locale="ko-KR").open("/kingdom")
    screen.page.get_by_role("region", name="대기").get_by_role("button", name="버리기").first.click()
    folder = hall.places.folder("orders", "pending")
    before = set(folder.glob("*.json"))
    screen.page.get_by_role("dialog").get_by_role("button", name="버리기").click()
    [written] = wait_until(lambda: set(folder.glob("*.json")) - before, SECONDS, "an order", [folder])
    why = Said("order_no_event", f"no event {name} is waiting", event=name)
    answered = {**read_json(written), "outcome": f"refused: {why}", "code": "refused", "says": why.to_json()}
    put(hall.places.home, "orders", "done", **answered)
    written.unlink()
    expect(screen.page.get_by_role("alert")).to_have_text(f"기다리는 {name} 이벤트가 없습니다")
    path.unlink()


def test_a_task_is_called_by_what_its_room_is_about(hall: Hall, screens: Screens) -> None:
    anna, failed = hall.person(), task(id="task-20260207-011", outcome="failed")
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    task_room(hall, anna, name=f"{failed['id']}: tidy the docs")
    put(hall.places.home, "tasks", "completed", **failed)
    failures = screens(anna).open("/kingdom").page.get_by_role("region", name="Failed")
    row = failures.get_by_role("listitem").filter(has_text="tidy the docs")
    expect(row.get_by_role("button", name="Try it again: tidy the docs")).to_be_visible()
    row.get_by_role("link", name="tidy the docs").click()
    expect(failures.page.get_by_role("heading", level=1)).to_have_text("tidy the docs")


def test_an_owner_puts_back_a_message_that_could_not_be_sent(hall: Hall, screens: Screens) -> None:
    anna = hall.person()
    change(hall, lambda db: accounts.give_role(db, anna.id, accounts.OWNER))
    put(hall.places.home, "messages", "failed", id="msg-20260207-king-007", refused_because="no such channel")
    screen = screens(anna).open("/kingdom")
    failures = screen.page.get_by_role("region", name="Failed")
    failures.get_by_role("button", name="Put it back: messages/failed/msg-20260207-king-007.json").click()
    screen.page.get_by_role("dialog").get_by_role("button", name="Put it back").click()
    folder = hall.places.folder("orders", "pending")
    wanted = ("requeue", "msg-20260207-king-007")
    wait_until(lambda: wanted in orders_in(folder), SECONDS, "an order", [folder])
