"""The page keeps to what a gateway asks of it: it waits as long as it is told, and says when history was cut."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from kingdom.hall.database import retention
from kingdom.hall.database.opening import open_database
from tests.hall.gateway.halls import Hall
from tests.web.conftest import run_hall
from tests.web.screens import Screens, pair, write


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Return a hall that takes few messages at once."""
    yield from run_hall(limits={"messages": {"count": 2, "seconds": 2}})


def test_messages_over_the_limit_wait_as_long_as_they_are_told_and_keep_their_order(
    hall: Hall, screens: Screens
) -> None:
    anna, ben, room = pair(screens, hall)
    sent: list[str | bytes] = []
    anna.page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    anna.page.reload()
    anna.room(room)
    wanted = [f"quick {number}" for number in range(6)]
    for text in wanted:
        anna.say(text)
    expect(ben.message(wanted[-1])).to_be_visible()
    expect(anna.timeline.locator(".state")).to_have_count(0)
    assert anna.texts() == ben.texts() == wanted
    tries = [frame for frame in sent if isinstance(frame, str) and "sendMessage" in frame]
    assert len(wanted) < len(tries) <= 3 * len(wanted)


def test_what_is_refused_is_kept_with_its_reason_and_can_be_tried_again(hall: Hall, screens: Screens) -> None:
    anna, ben, room = pair(screens, hall)
    assert anna.person
    # Elsewhere: the page has not heard of it yet.
    anna.page.route(f"**/rooms/{room}/*", lambda route: route.abort())
    anna.context.set_offline(True)
    anna.say("am I still in?")
    assert anna.person.call("POST", f"/rooms/{room}/leave").status_code == 201
    anna.page.route("**/rooms", lambda route: route.abort())
    anna.context.set_offline(False)
    failed = anna.timeline.locator(".state.failed")
    expect(failed).to_contain_text("Not sent: Not a member of this room.")
    assert anna.person.call("POST", f"/rooms/{room}/join").status_code == 201
    anna.page.unroute_all()
    failed.get_by_role("button", name="Try again").click()
    expect(ben.message("am I still in?")).to_be_visible()
    expect(failed).to_have_count(0)


def test_a_cut_history_is_told(hall: Hall, screens: Screens) -> None:
    anna, ben, room = pair(screens, hall)
    assert ben.person
    ben.say("long ago")
    expect(anna.message("long ago")).to_be_visible()
    anna.context.set_offline(True)
    expect(anna.page.locator(".banner")).to_contain_text("No connection")
    write(ben.person, room, ["gone", "newest"])
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    while database.run(lambda db: retention.cut(db, 1, time.time() + 2 * retention.DAY, 1000)):
        pass
    database.close()
    assert [message["content"] for message in ben.person.history(room)] == ["newest"]
    anna.context.set_offline(False)
    expect(anna.message("newest")).to_be_visible()
    expect(anna.timeline.get_by_role("separator", name="Older messages were deleted")).to_be_visible()
