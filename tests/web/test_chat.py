"""What people see of each other in a room."""

import pytest
import requests
from playwright.sync_api import expect

from kingdom.cli.main import main
from kingdom.hall.database import accounts
from kingdom.hall.database.opening import open_database
from tests.hall.gateway.halls import PASSWORD, SECONDS, Hall, Person
from tests.waiting import wait_until
from tests.web.screens import PHONE, RARELY, Figure, Screen, Screens, pair, storage, write


def test_two_people_read_each_other_at_once_and_in_order(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    for number in range(5):
        anna.say(f"from anna {number}")
        expect(ben.message(f"from anna {number}")).to_be_visible()
        ben.say(f"from ben {number}")
        expect(anna.message(f"from ben {number}")).to_be_visible()
    wanted = [f"from {name} {number}" for number in range(5) for name in ("anna", "ben")]
    assert anna.texts() == ben.texts() == wanted
    expect(anna.timeline.locator(".state")).to_have_count(0)


def test_the_history_comes_while_one_scrolls_up_and_stays_where_one_reads(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    room = person.room()
    write(person, room, [f"message {number:03}" for number in range(130)])
    screen = screens(person).room(room)
    expect(screen.message("message 129")).to_be_in_viewport()
    expect(screen.message("message 079")).to_have_count(0)
    screen.timeline.evaluate("list => list.scrollTop = 300")
    expect(screen.message("message 035")).to_have_count(1)
    expect(screen.message("message 095")).to_be_in_viewport()
    screen.timeline.evaluate("list => list.scrollTop = 0")
    screen.timeline.evaluate("list => list.scrollTop = 0")
    expect(screen.message("message 000")).to_have_count(1)
    expect(screen.page.get_by_text("This is where the room begins.")).to_have_count(1)
    assert screen.texts() == [f"message {number:03}" for number in range(130)]
    screen.page.get_by_role("button", name="To the newest").click()
    expect(screen.message("message 129")).to_be_in_viewport()


def test_unread_messages_are_counted_until_they_are_seen(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    quiet, busy = anna.room(ben), anna.room(ben)
    screen = screens(ben).room(quiet)
    write(anna, busy, ["one", "two"])
    row = screen.rooms().filter(has_text="2 unread")
    expect(row).to_have_count(1)
    expect(screen.page).to_have_title("(1) Kingdom")
    row.get_by_role("link").click()
    expect(screen.timeline.get_by_role("separator", name="New")).to_be_visible()
    expect(screen.rooms().filter(has_text="unread")).to_have_count(0)
    expect(screen.page).to_have_title("Kingdom")
    newest = anna.history(busy)[-1]["id"]

    def is_marked() -> bool:
        members = ben.call("GET", f"/rooms/{busy}/members").json()
        return newest in [row["lastReadMessageId"] for row in members if row["userId"] == ben.id]

    wait_until(is_marked, SECONDS, "the mark")


def test_a_writer_sees_who_has_read_the_newest_message(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    anna.say("have you seen this?")
    assert ben.person
    expect(anna.page.get_by_text(f"Read by {ben.person.email.partition('@')[0]}")).to_be_visible()


def test_people_come_and_go(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    there = anna.page.locator(".there")
    expect(there).to_have_text("2 of 2 here")
    ben.close()
    expect(there).to_have_text("1 of 2 here")


def test_typing_is_seen_and_ends(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    ben.box.press_sequentially("I")
    expect(anna.page.locator(".typing")).to_contain_text("is typing…")
    ben.box.fill("")
    expect(anna.page.locator(".typing")).to_be_empty()


def test_two_syllables_are_found_inside_words(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    room = person.room()
    write(person, room, ["오늘회의는 세 시입니다", "점심은 국수", *(f"filler {number}" for number in range(120))])
    screen = screens(person).room(room)
    expect(screen.message("오늘회의는")).to_have_count(0)
    screen.page.locator("#find").fill("회의")
    screen.page.locator("#find").press("Enter")
    found = screen.page.locator(".found li")
    expect(found).to_have_count(1)
    expect(found.locator("mark")).to_have_text("회의")
    found.get_by_role("link").click()
    expect(screen.message("오늘회의는 세 시입니다")).to_be_in_viewport()
    screen.page.get_by_role("button", name="To the newest").click()
    expect(screen.message("filler 119")).to_be_in_viewport()


def test_old_messages_are_followed_down_to_the_newest(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    room = person.room()
    write(person, room, [f"message {number:03}" for number in range(160)])
    first = person.history(room, limit=1, before=person.history(room, limit=100)[0]["id"])[0]
    screen = screens(person).open(f"/room/{room}/{first['id']}")
    expect(screen.message(first["content"])).to_be_in_viewport()
    for text in ("message 100", "message 150", "message 159"):
        screen.timeline.evaluate("list => list.scrollTop = list.scrollHeight")
        expect(screen.message(text)).to_have_count(1)
    expect(screen.message("message 159")).to_have_count(1)
    texts = screen.texts()
    assert texts == [f"message {number:03}" for number in range(int(texts[0][-3:]), 160)]


def test_a_removed_message_is_gone_from_every_screen(hall: Hall, screens: Screens, figure: Figure) -> None:
    anna, ben, room = pair(screens, hall)
    anna.say("said too much")
    anna.say("and this stays")
    expect(ben.message("and this stays")).to_be_visible()
    anna.message("said too much").hover()
    anna.message("said too much").get_by_role("button").click()
    began = anna.page.evaluate("performance.now()")
    anna.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    for screen in (anna, ben):
        expect(screen.message("said too much")).to_have_count(0)
        expect(screen.message("This message was removed")).to_be_visible()
    took = anna.page.evaluate("performance.now()") - began
    figure(f"removed on both screens {took:.0f} ms after the click")
    assert anna.person
    assert [message["content"] for message in anna.person.history(room)][:2] == ["", "and this stays"]
    late = screens(ben.person).room(room)
    expect(late.message("and this stays")).to_be_visible()
    assert late.texts() == ["This message was removed", "and this stays"]


def test_nobody_can_remove_what_another_member_wrote(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    anna.say("mine")
    expect(ben.message("mine")).to_be_visible()
    ben.message("mine").hover()
    expect(ben.message("mine").get_by_role("button")).to_have_count(0)


def test_a_room_is_made_joined_by_its_link_and_left(hall: Hall, screens: Screens) -> None:
    anna, ben = screens(hall.person()).open(), screens(hall.person()).open()
    anna.page.get_by_role("button", name="New room").click()
    anna.page.get_by_label("Name of the room").fill("garden")
    anna.page.get_by_role("button", name="Create").click()
    expect(anna.page.get_by_role("heading", name="garden", level=1)).to_be_visible()
    ben.page.goto(anna.page.url)
    ben.page.get_by_role("button", name="Join").click()
    expect(ben.page.get_by_role("heading", name="garden", level=1)).to_be_visible()
    expect(anna.page.locator(".there")).to_have_text("2 of 2 here")
    ben.say("here I am")
    expect(anna.message("here I am")).to_be_visible()
    ben.page.get_by_role("button", name="Leave this room").click()
    ben.page.get_by_role("dialog").get_by_role("button", name="Leave").click()
    expect(ben.rooms().filter(has_text="garden")).to_have_count(0)
    expect(anna.page.locator(".there")).to_contain_text("1 of")


@pytest.mark.parametrize(
    ("locale", "name", "why"),
    [
        ("en-GB", "Name of the room", "Name of the room: Must have 1 to 100 characters"),
        ("ko-KR", "방 이름", "방 이름: 1자 이상 100자 이하여야 합니다"),
    ],
)
def test_a_name_of_blanks_is_refused_with_the_reason(
    hall: Hall, screens: Screens, locale: str, name: str, why: str
) -> None:
    page = screens(hall.person(), locale=locale).open().page
    page.locator(".side .head button").click()
    page.get_by_label(name).fill("  ")
    page.get_by_label(name).press("Enter")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(why)


def test_people_over_the_talk_go_by_escape_a_tap_beside_them_and_a_narrower_window(
    hall: Hall, screens: Screens
) -> None:
    person = hall.person()
    room = person.room()
    screen = screens(person, size=PHONE).room(room)
    panel, toggle = screen.page.locator(".panel"), screen.page.get_by_role("button", name="People")
    for close in (lambda: screen.box.press("Escape"), lambda: screen.page.mouse.click(20, 300)):
        toggle.click()
        expect(panel).to_be_visible()
        close()
        expect(panel).to_be_hidden()
        expect(toggle).to_have_attribute("aria-expanded", "false")
    wide = screens(person).room(room)
    wide.box.press("Escape")
    expect(wide.page.locator(".panel")).to_be_visible()
    wide.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    expect(wide.page.locator(".panel")).to_be_hidden()


def test_a_draft_waits_in_its_room(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    first, second = person.room(), person.room()
    screen = screens(person).room(first)
    screen.box.fill("half a sentence")
    screen.open(f"/room/{second}")
    expect(screen.box).to_be_empty()
    screen.open(f"/room/{first}")
    expect(screen.box).to_have_value("half a sentence")


def test_a_draft_outlives_the_end_of_its_session_for_its_writer_alone(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    screen = screens(anna).room(room)
    screen.box.fill("half a sentence")
    for session in anna.call("GET", "/auth/sessions").json():
        anna.call("POST", f"/auth/sessions/{session['id']}/end")
    expect(screen.page.get_by_role("alert")).to_contain_text("Your session has ended")
    sign_in(screen, ben)
    expect(screen.box).to_be_empty()
    screen.open("/account").page.get_by_role("button", name="Sign out").click()
    screen.open(f"/room/{room}")
    sign_in(screen, anna)
    expect(screen.box).to_have_value("half a sentence")
    screen.box.press("Enter")
    expect(screen.message("half a sentence")).to_have_count(1)
    assert not [key for key in storage(screen) if "draft" in key]
    screen.box.fill("another one")
    screen.open("/account").page.get_by_role("button", name="Sign out").click()
    expect(screen.page.get_by_label("Email")).to_be_visible()
    assert not [key for key in storage(screen) if "draft" in key], "who signs out leaves nothing half-written behind"


def sign_in(screen: Screen, person: Person) -> None:
    screen.page.get_by_label("Email").fill(person.email)
    screen.page.get_by_label("Password").fill(PASSWORD)
    screen.page.get_by_label("Password").press("Enter")
    expect(screen.page.get_by_role("navigation")).to_be_visible()


def test_a_new_membership_is_seen_at_once(hall: Hall, screens: Screens) -> None:
    anna, ben = hall.person(), hall.person()
    screen = screens(ben)
    screen.context.add_init_script(RARELY)
    screen.open()
    expect(screen.page.get_by_text("No rooms yet")).to_be_visible()
    room = anna.room(ben)
    screen.rooms().filter(has_text="a room").get_by_role("link").click()
    expect(screen.page.locator(".people li")).to_have_count(2)
    hall.person().call("POST", f"/rooms/{room}/join")
    expect(screen.page.locator(".people li")).to_have_count(3)


def test_who_is_banned_is_called_so_while_the_room_is_open(
    hall: Hall, screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINGDOM_HOME", str(hall.places.home))
    anna, ben = hall.person(), hall.person()
    screen = screens(anna)
    screen.context.add_init_script(RARELY)
    people = screen.room(anna.room(ben)).page.locator(".people")
    row = people.get_by_role("listitem").filter(has_text=ben.email.partition("@")[0])
    expect(row).to_contain_text("away")
    assert main(("hall", "ban", ben.id)) == 0
    expect(row).to_contain_text("banned")
    assert main(("hall", "unban", ben.id)) == 0
    expect(row).to_contain_text("away")


def test_namesakes_are_told_apart_and_owners_known(hall: Hall, screens: Screens) -> None:
    domains = ("first.example", "second.example")
    for domain in domains:
        given = {"email": f"anna@{domain}", "password": PASSWORD}
        assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    first, second = (Person(hall.url, f"anna@{domain}") for domain in domains)
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    database.run(lambda db: accounts.give_role(db, second.id, accounts.OWNER))
    database.close()
    people = screens(first).room(first.room(second)).page.locator(".people li")
    expect(people.filter(has_text="first.example")).to_contain_text("(you)")
    expect(people.filter(has_text="second.example")).to_contain_text("owner")
    expect(people.filter(has_text="first.example")).not_to_contain_text("owner")


def test_the_words_of_a_search_stand_in_its_box_as_long_as_it_is_shown(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    room = person.room()
    screen = screens(person).open("/search?q=words")
    find = screen.page.locator("#find")
    expect(find).to_have_value("words")
    screen.room(room)
    expect(find).to_have_value("")


def test_messages_that_belong_together_stand_at_even_distances(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    room = person.room()
    write(person, room, [f"line {number}" for number in range(6)])
    screen = screens(person, size=PHONE).open(f"/room/{room}")
    expect(screen.message("line 5")).to_be_visible()
    rows = screen.timeline.get_by_role("article")
    heights = rows.evaluate_all("rows => rows.slice(1).map((row) => row.getBoundingClientRect().height)")
    texts = rows.locator(".text").evaluate_all("texts => texts.map((text) => text.getBoundingClientRect().height)")
    assert {round(height) for height in heights} == {round(texts[0]) + 2}


def test_who_joins_by_a_link_may_write_at_once(hall: Hall, screens: Screens) -> None:
    screen = screens(hall.person()).open(f"/room/{hall.person().room()}")
    screen.page.get_by_role("button", name="Join").focus()
    screen.page.keyboard.press("Enter")
    expect(screen.box).to_be_focused()


def test_what_follows_a_block_of_code_follows_at_once(hall: Hall, screens: Screens) -> None:
    anna = hall.person()
    screen = screens(anna).room(anna.room())
    screen.say("so:\n```\nmake up\n```\n- and more")
    expect(screen.message("and more").locator(".text")).to_have_js_property("textContent", "so:\nmake up- and more")


def test_what_was_found_is_shown_in_a_room_that_is_read_already(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    room = person.room()
    write(person, room, [f"message {number:03}" for number in range(45)])
    screen = screens(person, size=PHONE).room(room)
    expect(screen.message("message 044")).to_be_in_viewport()
    screen.open(f"/search?room={room}&q=message 001")
    expect(screen.page.get_by_role("link", name="Back to a room")).to_have_attribute("href", f"#/room/{room}")
    screen.page.locator(".found a").click()
    expect(screen.message("message 001")).to_be_in_viewport()
    expect(screen.message("message 044")).not_to_be_in_viewport()


def test_accents_that_pile_up_cover_no_other_message(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    anna.say("what stands above")
    ben.say("a" + "\u0301" * 80 + " piled up")
    above, piled = anna.message("what stands above"), anna.message("piled up")
    expect(piled).to_be_visible()
    expect(anna.timeline.locator(".state, .readers")).to_have_count(0)
    seen = above.screenshot()
    piled.evaluate("row => row.style.visibility = 'hidden'")
    assert above.screenshot() == seen
