"""Who comes in by the page, and how one goes out."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import jwt
import pytest
from playwright.sync_api import Page, expect

from kingdom.gateway.tokens import ALGORITHM, AUDIENCE
from tests.gateway.halls import CHECKOUT, PASSWORD, SECONDS, Hall, Person
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
