"""Everybody can use the page: by keys, with a screen reader, on a phone, in the dark, in Korean."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso
from kingdom.hall.database.opening import open_database
from tests.hall.gateway.halls import Hall, Person
from tests.web.access import AXE, obstacles, too_wide
from tests.web.screens import DESK, PHONE, TABLET, Figure, Screen, Screens, pair, speak, storage, write

TASK_ROOM = own_rooms.room_of("msg-of-a-task")
VIEWS: dict[str, Callable[[Screen, str], None]] = {
    "the entrance": lambda screen, room: leave(screen),
    "no room": lambda screen, room: unfold(screen),
    "a room": lambda screen, room: (screen.room(room), None)[1],
    "a task's room": lambda screen, room: show(screen, f"/room/{TASK_ROOM}", ".taken"),
    "the people of a room": lambda screen, room: people(screen, room),
    "a dialog": lambda screen, room: dialog(screen),
    "what was found": lambda screen, room: show(screen, "/search?q=words", ".found mark"),
    "the kingdom": lambda screen, room: show(screen, "/kingdom", ".roles"),
    "the account": lambda screen, room: show(screen, "/account", ".sessions li"),
    "an unknown room": lambda screen, room: show(screen, f"/room/{room[:-4]}0000", "main .card, main button.main"),
}


def show(screen: Screen, path: str, seen: str) -> None:
    screen.open(path)
    expect(screen.page.locator(seen).first).to_be_visible()


def unfold(screen: Screen) -> None:
    show(screen, "/", "summary")
    screen.page.locator("summary").click()


def people(screen: Screen, room: str) -> None:
    screen.room(room)
    panel = screen.page.locator(".panel")
    if not panel.is_visible():
        screen.page.get_by_role("button", name="People").click()
    expect(panel).to_be_visible()


def dialog(screen: Screen) -> None:
    show(screen, "/", "nav")
    screen.page.get_by_role("button", name="New room").click()
    expect(screen.page.get_by_role("dialog")).to_be_visible()


def leave(screen: Screen) -> None:
    screen.open("/")
    screen.page.evaluate("localStorage.removeItem('kingdom.token')")
    screen.page.reload()
    expect(screen.page.get_by_role("heading", name="Sign in to the hall")).to_be_visible()


def owner_with_a_room(hall: Hall) -> tuple[Person, str]:
    """Return an owner, for whom the kingdom is visible, in a room with a bit of everything."""
    anna, ben = hall.person(), hall.person()
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    database.run(lambda db: own_rooms.open_room(db, own_rooms.THRONE_ROOM, "throne room", "throne", iso(0)))
    for task, name in (
        (TASK_ROOM, "task-20260207-001: a question"),
        (own_rooms.room_of("msg-2"), "task-20260207-002: x"),
    ):
        database.run(lambda db, task=task, name=name: own_rooms.open_room(db, task, name, own_rooms.TASK, iso(0)))
    database.run(lambda db: own_rooms.join_all(db, anna.id, iso(0)))
    database.close()
    for code, text, choices in (
        ("started", "[start] it", []),
        ("question", "[question] Which?\n- one\n- two", ["one", "two"]),
    ):
        speak(hall, TASK_ROOM, text, {"taskId": "task-20260207-001", "code": code, "choices": choices})
    write(anna, TASK_ROOM, ["two"])
    room = anna.room(ben)
    write(
        ben,
        room,
        ["words to look for", "`code` and https://example.org/a/long/path", "```\na = 1\n```", "나란히 쓴 한국어 문장"],
    )
    write(anna, room, ["an answer", "supercalifragilisticexpialidocious" * 6])
    return anna, room


@pytest.mark.skipif(
    not AXE.exists(), reason="NO AXE-CORE HERE, SO NOTHING LOOKS FOR OBSTACLES ON THE PAGE: tests/web/install.sh"
)
@pytest.mark.parametrize("colors", ["light", "dark"])
def test_nothing_hinders_anybody_in_any_view(hall: Hall, screens: Screens, colors: str, figure: Figure) -> None:
    anna, room = owner_with_a_room(hall)
    found = []
    for size in (DESK, PHONE):
        screen = screens(anna, color_scheme=colors, size=size)
        for name in sorted(VIEWS, key=lambda name: name == "the entrance"):
            VIEWS[name](screen, room)
            found += [f"{name} at {size[0]} px, {colors}: {line}" for line in obstacles(screen)]
            if screen.page.get_by_role("dialog").count():
                screen.page.keyboard.press("Escape")
    figure(f"axe-core: {len(VIEWS)} views at 2 widths, {colors}: {len(found)} findings")
    assert found == []


@pytest.mark.parametrize("size", [PHONE, TABLET, DESK], ids=lambda size: f"{size[0]} px")
def test_every_view_fits_its_window(hall: Hall, screens: Screens, size: tuple[int, int]) -> None:
    anna, room = owner_with_a_room(hall)
    screen = screens(anna, size=size)
    found = []
    for name in sorted(VIEWS, key=lambda name: name == "the entrance"):
        VIEWS[name](screen, room)
        found += [f"{name}: {line}" for line in too_wide(screen)]
        if screen.page.get_by_role("dialog").count():
            screen.page.keyboard.press("Escape")
    assert found == []


def focused(screen: Screen) -> str:
    """Return how a screen reader would call what has the focus."""
    named = "e.getAttribute('aria-label') ?? (e.textContent.trim() || e.labels?.[0]?.textContent || e.id)"
    told: Any = screen.page.evaluate(f"(e => e === document.body ? '' : {named})(document.activeElement)")
    return str(told)


def tab_to(screen: Screen, name: str, most: int = 40) -> None:
    for _ in range(most):
        screen.page.keyboard.press("Tab")
        if name in focused(screen):
            return
    raise AssertionError(f"Tab does not come to {name!r}")


def test_keys_alone_lead_through_everything(hall: Hall, screens: Screens) -> None:
    from tests.hall.gateway.halls import PASSWORD

    person = hall.person()
    screen = screens().open()
    keys = screen.page.keyboard
    expect(screen.page.get_by_label("Email")).to_be_focused()
    keys.type(person.email)
    keys.press("Tab")
    keys.type(PASSWORD)
    keys.press("Enter")
    expect(screen.page.get_by_role("navigation")).to_be_visible()
    # A new room, said into, a line break, and a removed message.
    tab_to(screen, "New room")
    keys.press("Enter")
    keys.type("by keys")
    keys.press("Enter")
    expect(screen.box).to_be_focused()
    keys.type("first")
    keys.press("Shift+Enter")
    keys.type("second")
    keys.press("Enter")
    expect(screen.message("first\nsecond")).to_have_count(1)
    keys.type("to be removed")
    keys.press("Enter")
    expect(screen.message("to be removed")).to_have_count(1)
    expect(screen.timeline.locator(".state")).to_have_count(0)
    keys.press("Shift+Tab")
    expect(screen.timeline).to_be_focused()
    keys.press("ArrowUp")
    expect(screen.message("to be removed")).to_be_focused()
    keys.press("Tab")
    assert "Remove this message" in focused(screen)
    keys.press("Enter")
    expect(screen.page.get_by_role("dialog")).to_be_visible()
    keys.press("Escape")
    expect(screen.page.get_by_role("dialog")).to_have_count(0)
    keys.press("Shift+Tab")
    keys.press("Delete")
    tab_to(screen, "Remove")
    keys.press("Enter")
    expect(screen.message("This message was removed")).to_have_count(1)
    # The way back to the box, another room, search, the account, and out.
    expect(screen.page.get_by_role("dialog")).to_have_count(0)
    screen.timeline.focus()
    keys.press("Escape")
    expect(screen.box).to_be_focused()
    person.room()
    expect(screen.rooms().filter(has_text="a room")).to_have_count(1)
    keys.press("Alt+ArrowDown")
    expect(screen.page.get_by_role("heading", name="a room", level=1)).to_be_visible()
    keys.press("Control+k")
    keys.type("second")
    keys.press("Enter")
    expect(screen.page.locator(".found li")).to_have_count(1)
    tab_to(screen, "second")
    keys.press("Enter")
    expect(screen.message("first")).to_be_in_viewport()
    tab_to(screen, "Account")
    keys.press("Enter")
    tab_to(screen, "Sign out")
    keys.press("Enter")
    expect(screen.page.get_by_label("Email")).to_be_focused()


def test_the_skip_links_lead_where_they_say(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    screen = screens(person).room(person.room())
    assert screen.page.evaluate("document.querySelector('a, button, input').textContent") == "Skip to the content"
    screen.page.locator(".skip").first.focus()
    screen.page.keyboard.press("Enter")
    expect(screen.page.get_by_role("main")).to_be_focused()
    screen.page.keyboard.press("Tab")
    assert focused(screen) == "Skip to the message box"
    screen.page.keyboard.press("Enter")
    expect(screen.box).to_be_focused()


def test_enter_sends_nothing_while_a_syllable_is_composed(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    devtools = anna.context.new_cdp_session(anna.page)
    anna.box.focus()
    devtools.send("Input.imeSetComposition", {"text": "안녕하세", "selectionStart": 4, "selectionEnd": 4})
    expect(anna.box).to_have_value("안녕하세")
    # What a browser sends for the Enter that ends a composition.
    pressed = {"key": "Process", "code": "Enter", "windowsVirtualKeyCode": 229}
    devtools.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **pressed})
    anna.box.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True, "cancelable": True})
    expect(anna.box).to_have_value("안녕하세")
    devtools.send("Input.insertText", {"text": "안녕하세요"})
    expect(anna.box).to_have_value("안녕하세요")
    anna.box.press("Enter")
    expect(ben.message("안녕하세요")).to_be_visible()
    assert ben.texts() == ["안녕하세요"]


def test_a_screen_reader_hears_of_new_messages(hall: Hall, screens: Screens) -> None:
    anna, ben, _ = pair(screens, hall)
    assert anna.person
    anna.say("listen")
    name = anna.person.email.partition("@")[0]
    expect(ben.page.locator("[aria-live=polite]#told")).to_contain_text(f"{name}: listen")
    assert ben.page.get_by_role("banner").count() + ben.page.get_by_role("navigation").count() >= 1
    expect(ben.page.get_by_role("main")).to_have_count(1)


def test_the_page_speaks_korean_and_remembers_it(hall: Hall, screens: Screens) -> None:
    person = hall.person()
    assert "kingdom.language" not in storage(screens(person).room(person.room())), "only a choice is kept"
    room = person.room()
    korean = screens(person, locale="ko-KR").open(f"/room/{room}")
    expect(korean.page.get_by_label("a room에 쓰기")).to_be_visible()
    expect(korean.page.locator("html")).to_have_attribute("lang", "ko")
    english = screens(person).open("/account")
    english.page.get_by_text("한국어").click()
    expect(english.page.get_by_role("heading", name="계정")).to_be_visible()
    english.page.reload()
    expect(english.page.get_by_role("heading", name="계정")).to_be_visible()
    nodes = "[...document.querySelectorAll('#page *')].flatMap((e) => [...e.childNodes])"
    said = "filter((node) => node.nodeType === 3).map((node) => node.textContent.trim()).filter(Boolean)"
    texts: list[str] = english.page.evaluate(f"{nodes}.{said}")
    own = {"Kingdom", "English", "Enter", "Shift Enter", "Ctrl K", "Delete", "Esc", person.email, "a room"}
    foreign = [text for text in texts if text.isascii() and any(map(str.isalpha, text)) and text not in own]
    names = {person.email.partition("@")[0]}
    assert [text for text in foreign if text not in names and "python-requests" not in text] == []


@pytest.mark.parametrize("colors", ["light", "dark"])
def test_the_theme_is_the_systems_until_one_is_chosen(hall: Hall, screens: Screens, colors: str) -> None:
    screen = screens(hall.person(), color_scheme=colors).open("/account")
    paper = "getComputedStyle(document.body).backgroundColor"
    expect(screen.page.locator(".sessions li")).to_have_count(1)
    before = screen.page.evaluate(paper)
    other = "Light" if colors == "dark" else "Dark"
    screen.page.get_by_text(other, exact=True).click()
    assert screen.page.evaluate(paper) != before
    screen.page.reload()
    expect(screen.page.locator(".sessions li")).to_have_count(1)
    assert screen.page.evaluate(paper) != before
