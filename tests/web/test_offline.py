"""What was written without a connection arrives once and in order, and what was missed is read."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from kingdom.hall.topics.names import MESSAGES
from tests.hall.gateway.halls import Hall
from tests.ports import free_port
from tests.web.conftest import run_hall
from tests.web.screens import Screens, pair, write

MANY = 20
NUMBERED = [f"message {number:02}" for number in range(MANY)]


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Return a hall whose gateway comes back on the port where its pages look for it."""
    yield from run_hall(port=free_port())


def test_twenty_messages_written_offline_arrive_once_and_in_order_on_both_screens(hall: Hall, screens: Screens) -> None:
    anna, ben, room = pair(screens, hall)
    anna.say("before")
    expect(ben.message("before")).to_be_visible()
    anna.context.set_offline(True)
    expect(anna.page.locator(".banner")).to_contain_text("No connection")
    for text in NUMBERED:
        anna.say(text)
    expect(anna.timeline.get_by_text("Waits for the connection")).to_have_count(MANY)
    expect(anna.page.locator(".banner")).to_contain_text(f"{MANY} messages wait")
    ben.say("meanwhile")
    expect(ben.message("meanwhile")).to_be_visible()
    anna.context.set_offline(False)
    expect(ben.message(NUMBERED[-1])).to_be_visible()
    expect(anna.timeline.locator(".state")).to_have_count(0)
    wanted = ["before", "meanwhile", *NUMBERED]
    assert anna.texts() == ben.texts() == wanted
    assert ben.person
    assert [message["content"] for message in ben.person.history(room)] == wanted


def test_a_reload_loses_nothing_of_what_waits(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    hall.kill("gateway")
    expect(anna.page.locator(".banner")).to_contain_text("No connection")
    for text in NUMBERED[:3]:
        anna.say(text)
    expect(anna.timeline.locator(".state")).to_have_count(3)
    hall.start("gateway")
    anna.page.reload()
    expect(ben.message(NUMBERED[2])).to_be_visible()
    expect(anna.message(NUMBERED[2])).to_be_visible()
    expect(anna.timeline.locator(".state")).to_have_count(0)
    assert anna.texts() == ben.texts() == NUMBERED[:3]


def test_what_was_missed_is_read_however_much_it_is(hall: Hall, screens: Screens) -> None:
    anna, ben, room = pair(screens, hall)
    ben.say("the last one that anna saw")
    expect(anna.message("the last one")).to_be_visible()
    anna.context.set_offline(True)
    expect(anna.page.locator(".banner")).to_contain_text("No connection")
    missed = [f"missed {number:03}" for number in range(230)]
    assert ben.person
    write(ben.person, room, missed)
    anna.context.set_offline(False)
    expect(anna.message(missed[-1])).to_be_visible()
    assert anna.texts() == ["the last one that anna saw", *missed]


def test_a_gateway_that_is_killed_while_people_write_loses_and_doubles_nothing(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    for number in range(30):
        if number == 10:
            hall.kill("gateway")
        if number == 20:
            hall.start("gateway")
        (anna, ben)[number % 2].say(f"word {number:02}")
    wanted = {f"word {number:02}" for number in range(30)}
    for screen in (anna, ben):
        expect(screen.timeline.locator("article .text")).to_have_count(30)
        expect(screen.timeline.locator(".state")).to_have_count(0)
    texts = anna.texts()
    assert texts == ben.texts()
    assert set(texts) == wanted
    for own in (0, 1):
        of_one = [text for text in texts if int(text[-2:]) % 2 == own]
        assert of_one == sorted(of_one)


def test_a_worker_that_is_away_keeps_what_was_sent_on_the_screen(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    hall.kill("worker")
    anna.say("taken, and not stored yet")
    expect(anna.message("taken, and").get_by_text("Sent", exact=True)).to_be_visible()
    anna.page.reload()
    expect(anna.message("taken, and").get_by_text("Sent", exact=True)).to_be_visible()
    hall.start("worker")
    expect(ben.message("taken, and")).to_be_visible()
    expect(anna.timeline.locator(".state")).to_have_count(0)
    assert anna.texts() == ["taken, and not stored yet"]


def test_what_a_closed_tab_had_queued_is_sent_by_another_tab_of_its_account(hall: Hall, screens: Screens) -> None:
    anna, ben, room = pair(screens, hall)
    other = anna.tab().room(room)
    anna.context.set_offline(True)
    for tab in (anna, other):
        expect(tab.page.locator(".banner")).to_contain_text("No connection")
    for text in NUMBERED[:3]:
        anna.say(text)
    expect(other.timeline.get_by_text("Waits for the connection")).to_have_count(3)
    anna.page.close()
    anna.context.set_offline(False)
    expect(ben.message(NUMBERED[2])).to_be_visible()
    expect(other.timeline.locator(".state")).to_have_count(0)
    assert other.texts() == ben.texts() == NUMBERED[:3]


def test_two_tabs_of_an_account_send_each_message_once_and_show_one_state(hall: Hall, screens: Screens) -> None:
    anna, ben, room = pair(screens, hall)
    other = anna.tab().room(room)
    anna.context.set_offline(True)
    for tab in (anna, other):
        expect(tab.page.locator(".banner")).to_contain_text("No connection")
    for number, text in enumerate(NUMBERED):
        (anna, other)[number % 2].say(text)
    for tab in (anna, other):
        expect(tab.timeline.get_by_text("Waits for the connection")).to_have_count(MANY)
    anna.context.set_offline(False)
    expect(ben.message(NUMBERED[-1])).to_be_visible()
    for tab in (anna, other):
        expect(tab.timeline.locator(".state")).to_have_count(0)
        expect(tab.timeline.get_by_role("article")).to_have_count(MANY)
    assert anna.texts() == other.texts() == ben.texts() == NUMBERED
    sent = [line for path in (hall.places.topics / MESSAGES).glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len([line for line in sent if room in line]) == MANY, "no tab sent what the other one had"
