"""What other pages and what people write may try with the page, in a real browser: rows 22 and 23 of reliability.md."""

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from kingdom.hall.database.own_rooms import USER
from tests.hall.gateway.halls import Hall
from tests.web import forgeries
from tests.web.screens import Figure, Screens, apart, pair, storage

QUESTION = {"about": {"taskId": "task-1", "code": "question", "choices": ["yes", "no"]}}
FORGED = ({"type": "SYSTEM"}, {"senderId": USER}, {"senderName": "kingdom"}, QUESTION)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """Return the address of another page, on another port of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title>")

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def test_markup_in_names_and_messages_is_text(hall: Hall, screens: Screens, figure: Figure) -> None:
    wrong = forgeries.wrong_markup(hall, screens)
    figure(f"row 23 markup in a browser: {len(forgeries.MARKUP)} texts, {len(wrong)} wrong")
    assert wrong == []


def test_a_picture_is_a_link_that_is_not_loaded(hall: Hall, screens: Screens) -> None:
    assert forgeries.wrong_pictures(hall, screens) == []


def test_the_policy_of_the_page_holds_against_what_gets_in(hall: Hall, screens: Screens, figure: Figure) -> None:
    wrong = forgeries.wrong_policy(hall, screens)
    figure(f"row 23 content security policy: {len(forgeries.INTRUSIONS)} intrusions, {len(wrong)} wrong")
    assert wrong == []


def test_another_page_can_ask_read_and_frame_nothing(
    hall: Hall, screens: Screens, elsewhere: str, figure: Figure
) -> None:
    wrong = forgeries.wrong_elsewhere(hall, screens, elsewhere)
    figure(f"row 23 another origin in a browser: {len(forgeries.REACHES)} ways, {len(wrong)} wrong")
    assert wrong == []


def test_a_rebound_name_is_not_served(hall: Hall, screens: Screens) -> None:
    assert forgeries.wrong_rebinding(hall, screens) == []


def test_nobody_speaks_as_the_kingdom(hall: Hall, screens: Screens, figure: Figure) -> None:
    anna, ben, room = pair(screens, hall)
    assert anna.person
    person = anna.person
    answers: list[dict[str, object]] = []

    async def forge() -> None:
        async with person.socket(room) as socket:
            for fields in FORGED:
                answers.append(await socket.send(room, f"forged {len(answers)}", **fields))

    apart(forge)
    expect(ben.message("forged 3")).to_be_visible()
    forged = ben.timeline.locator("article.kingdoms").all_inner_texts()
    figure(f"row 22 forged messages in a browser: {len(answers)} tried, {len(forged)} shown as the kingdom's")
    assert answers[0]["status"] == "FAILED"
    assert forged == []
    expect(ben.timeline.get_by_role("group", name="Answers")).to_have_count(0)


def test_the_token_reaches_no_other_origin(hall: Hall, screens: Screens, elsewhere: str) -> None:
    anna = screens(hall.person()).open()
    expect(anna.page.get_by_role("navigation")).to_be_visible()
    assert "kingdom.token" in storage(anna)
    assert anna.context.cookies() == []
    anna.page.goto(elsewhere)
    assert storage(anna) == {}
