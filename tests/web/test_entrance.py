"""Who comes in by the page, and how one goes out."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import jwt
import pytest
import requests
from playwright.sync_api import Page, expect

from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso
from kingdom.hall.database.opening import open_database
from kingdom.hall.gateway.tokens import ALGORITHM, AUDIENCE
from tests.hall.gateway.halls import CHECKOUT, PASSWORD, SECONDS, Hall, Person
from tests.web.conftest import run_hall
from tests.web.screens import Screens, storage


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Return a hall that only people with an invitation enter."""
    yield from run_hall(registration="invite")


def kingdom(hall: Hall, *words: str) -> str:
    command = [sys.executable, "-m", "kingdom", *words]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**hall._environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def fill(page: Page, email: str, password: str = PASSWORD) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")


@pytest.fixture(scope="module")
def owner(hall: Hall, browser: object) -> str:
    """Return the email of somebody who has taken the owner's link on the page."""
    from tests.web.screens import Screen

    email = f"{uuid.uuid4()}@example.org"
    screen = Screen(browser, hall.url)  # type: ignore[arg-type]
    asked: list[str] = []
    screen.page.on("request", lambda request: asked.append(request.url))
    link = kingdom(hall, "hall", "invite", "--owner")
    code = link.rpartition("/")[2]
    screen.page.goto(link)
    fill(screen.page, email)
    expect(screen.page.get_by_text("Choose a room")).to_be_visible()
    assert code not in screen.page.url
    assert not [url for url in asked if code in url or "token=ey" in url]
    screen.page.get_by_role("link", name="Account").click()
    expect(screen.page.get_by_text(f"{email} · owner")).to_be_visible()
    assert screen.complaints == []
    screen.close()
    return email


def test_the_one_time_link_makes_an_owner_whose_code_and_token_stand_in_no_address(owner: str) -> None:
    assert "@" in owner


def test_a_wrong_password_is_told_and_the_right_one_enters(hall: Hall, owner: str, screens: Screens) -> None:
    screen = screens().open()
    fill(screen.page, owner, "not this one")
    expect(screen.page.get_by_role("alert")).to_have_text("Invalid credentials")
    fill(screen.page, owner)
    expect(screen.page.get_by_role("navigation")).to_be_visible()


def test_owners_are_told_beside_the_rooms_link_how_somebody_gets_an_account(
    hall: Hall, owner: str, screens: Screens
) -> None:
    sentence = "Whoever has no account yet needs an invitation: kingdom hall invite in the terminal prints its link."
    person = Person(hall.url, owner)
    room = person.room(member := Person(hall.url, registered(hall)))
    expect(screens(person).room(room).page.locator(".bring + p")).to_have_text(sentence)
    expect(screens(member).room(room).page.get_by_text("kingdom hall invite")).to_have_count(0)
    korean = screens(person, locale="ko-KR").open(f"/room/{room}")
    expect(korean.page.locator(".bring + p code")).to_have_text("kingdom hall invite")


def test_a_password_is_changed_and_the_other_sessions_end(hall: Hall, screens: Screens) -> None:
    email, new = registered(hall), "another long one"
    persons = [Person(hall.url, email) for _ in range(2)]
    here, elsewhere = (screens(person).open("/account") for person in persons)
    page = here.page
    expect(page.locator(".sessions li")).to_have_count(2)
    for current, wanted, alert in (
        ("not this one", new, "This is not the current password"),
        (PASSWORD, new, ""),
    ):
        page.get_by_label("Current password").fill(current)
        page.get_by_label("New password").fill(wanted)
        page.get_by_label("New password").press("Enter")
        expect(page.locator(".password [role=alert]")).to_have_text(alert)
    expect(page.locator(".password [role=status]")).to_have_text("The password is changed.")
    expect(page.locator(".sessions li")).to_have_count(1)
    expect(elsewhere.page.get_by_role("alert")).to_contain_text("Your session has ended")
    fill(elsewhere.page, email, new)
    expect(elsewhere.page.get_by_role("navigation")).to_be_visible()


def test_an_invitation_lets_in_once_and_says_so_to_the_second(hall: Hall, owner: str, screens: Screens) -> None:
    link = kingdom(hall, "hall", "invite")
    first, second = screens(), screens()
    for screen in (first, second):
        screen.page.goto(link)
    fill(first.page, f"{uuid.uuid4()}@example.org")
    expect(first.page.get_by_text("Choose a room")).to_be_visible()
    fill(second.page, f"{uuid.uuid4()}@example.org")
    expect(second.page.get_by_role("alert")).to_have_text("This invitation is no longer valid")


def test_signing_out_ends_the_session_and_leaves_nothing_in_the_browser(
    hall: Hall, owner: str, screens: Screens
) -> None:
    person = Person(hall.url, owner)
    screen = screens(person).open("/account")
    screen.page.get_by_role("button", name="Sign out").click()
    expect(screen.page.get_by_role("heading", name="Sign in to the hall")).to_be_visible()
    assert not {"kingdom.token", "kingdom.me"} & storage(screen).keys()
    # Who signs in next does not begin where this one was.
    expect(screen.page).to_have_url(f"{hall.url}/#/")
    assert person.call("GET", "/auth/me").status_code == 401


def test_a_session_that_is_ended_elsewhere_is_out_at_once(hall: Hall, owner: str, screens: Screens) -> None:
    first, second = Person(hall.url, owner), Person(hall.url, owner)
    there, here = screens(second).open(), screens(first).open("/account")
    expect(there.page.get_by_role("navigation")).to_be_visible()
    expect(here.page.get_by_text("this one")).to_be_visible()
    here.page.locator(".sessions li", has_not_text="this one").first.get_by_role("button").click()
    expect(there.page.get_by_role("alert")).to_contain_text("Your session has ended")
    expect(here.page.get_by_role("navigation")).to_be_visible()


def test_a_token_that_is_over_or_forged_leads_to_the_entrance(hall: Hall, owner: str, screens: Screens) -> None:
    person = Person(hall.url, owner)
    secret = (hall.places.own("gateway") / "secret").read_bytes()
    now = int(time.time())
    claims = {"sub": person.id, "email": owner, "sid": person.id, "aud": AUDIENCE, "iat": now - 90, "exp": now - 1}
    good = {**claims, "exp": now + 60}
    for token in (
        jwt.encode(claims, secret, ALGORITHM),
        jwt.encode(good, "", "none"),
        jwt.encode(good, b"x" * 64, ALGORITHM),
    ):
        screen = screens(stored={"kingdom.token": token}).open()
        expect(screen.page.get_by_role("heading", name="Sign in to the hall")).to_be_visible()
        assert "kingdom.token" not in storage(screen)


def test_who_registers_is_told_how_long_a_password_is(hall: Hall, screens: Screens) -> None:
    screen = screens().open("/join/some-code")
    expect(screen.page.get_by_label("Password")).to_have_accessible_description("6 characters at least")
    screen.page.get_by_role("button", name="Sign in").click()
    expect(screen.page.get_by_text("6 characters at least")).to_have_count(0)


def test_a_room_that_is_not_there_and_one_that_is_closed_look_the_same(hall: Hall, screens: Screens) -> None:
    person = Person(hall.url, registered(hall))
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    closed = own_rooms.room_of("msg-1")
    database.run(lambda db: own_rooms.open_room(db, closed, "a task", own_rooms.TASK, iso(0)))
    database.close()
    seen = []
    for room in (closed, str(uuid.uuid4())):
        screen = screens(person).open(f"/room/{room}")
        screen.page.get_by_role("button", name="Join").click()
        expect(screen.page.get_by_role("alert")).to_have_text("There is no such room, or it is joined by invitation.")
        expect(screen.page.get_by_role("heading", level=1)).to_have_count(1)
        seen.append(screen.page.get_by_role("main").inner_text())
    assert seen[0] == seen[1]
    assert "There is no such room, or you are not in it." in seen[0]


def test_a_member_asks_for_nothing_that_is_refused_and_comes_into_the_only_room(hall: Hall, screens: Screens) -> None:
    person = Person(hall.url, registered(hall))
    screen = screens(person)
    asked: list[tuple[str, int]] = []
    screen.page.on("response", lambda told: asked.append((urlsplit(told.url).path, told.status)))
    screen.open()
    expect(screen.page.get_by_text("Choose a room")).to_be_visible()
    screen.open("/kingdom")
    expect(screen.page.get_by_text("Owners and people of the throne room see here")).to_be_visible()
    assert ("/rooms", 200) in asked
    assert [told for told in asked if told[1] >= 400 or told[0] == "/kingdom"] == []
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    database.run(lambda db: own_rooms.open_room(db, own_rooms.THRONE_ROOM, "throne room", own_rooms.THRONE, iso(0)))
    row = {"room_id": own_rooms.THRONE_ROOM, "user_id": person.id, "joined_at": iso(0)}
    database.run(lambda db: db.one("add_member", **row))
    database.close()
    screen.open("/").page.reload()
    expect(screen.page.get_by_role("heading", name="throne room", level=1)).to_be_visible()
    expect(screen.page.locator(".strip")).to_be_visible()
    screen.open("/")
    expect(screen.page.get_by_text("Choose a room")).to_be_visible()


def registered(hall: Hall) -> str:
    """Return the email of somebody who has come by an invitation."""
    email, code = f"{uuid.uuid4()}@example.org", kingdom(hall, "hall", "invite").rpartition("/")[2]
    given = {"email": email, "password": PASSWORD, "invite": code}
    assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    return email
