"""Everything that a page elsewhere or a forger tries is refused, and the gateway listens where it says."""

import re
from collections.abc import Iterator

import pytest
import requests

from tests.faults.oracle import Figure
from tests.hall.gateway import flow_checks, web_table
from tests.hall.gateway.halls import CHECKOUT, OPEN, SECONDS, Hall, running
from tests.waiting import wait_until

MOST_LOGINS, MOST_GUESSES = 30, 4
CONFIG = {
    **OPEN,
    "hosts": ["listed.example"],
    "origins": [web_table.LISTED],
    "limits": {
        "logins": {"count": MOST_LOGINS, "seconds": 3600},
        "wrong_passwords": {"count": MOST_GUESSES, "seconds": 3600},
    },
}


@pytest.fixture(scope="module")
def web() -> Iterator[Hall]:
    with running("gateway", config=CONFIG) as hall:
        yield hall


def test_tokens_that_are_not_ours_are_refused(web: Hall, figure: Figure) -> None:
    person = web.person()
    wrong = web_table.wrong_tokens(web, person)
    figure(f"row 23 tokens: {len(web_table.forged(web, person))} kinds, {len(wrong)} wrong")
    assert not wrong, wrong


def test_hosts_and_origins_that_are_not_listed_are_refused(web: Hall, figure: Figure) -> None:
    wrong = web_table.wrong_hosts_and_origins(web)
    asked = sum(map(len, web_table.hosts_and_origins(web)))
    figure(f"row 23 Hosts and Origins: {asked} on {len(web_table.PATHS)} kinds of request, {len(wrong)} wrong")
    assert not wrong, wrong


def test_other_pages_can_send_and_ask_nothing(web: Hall) -> None:
    assert web_table.wrong_cross_site(web, web.person()) == []


def test_markup_is_text(web: Hall) -> None:
    assert web_table.wrong_html(web, web.person()) == []


def test_it_listens_on_the_declared_port_of_loopback_alone(web: Hall, figure: Figure) -> None:
    wrong = web_table.wrong_listeners(web)
    figure(f"row 24 listeners: {len(wrong)} wrong")
    assert not wrong, wrong


def test_the_page_and_its_parts_are_cached_by_what_is_in_them(web: Hall) -> None:
    index = requests.get(web.url, timeout=SECONDS)
    assert "default-src 'none'; script-src 'self';" in index.headers["Content-Security-Policy"]
    assert index.headers["Cache-Control"] == "no-cache"
    known = requests.get(web.url, headers={"If-None-Match": index.headers["ETag"]}, timeout=SECONDS)
    assert (known.status_code, known.content) == (304, b"")
    parts = re.findall(r'(?:src|href)="(pages/[^"]+)"', index.text)
    assert {part.rpartition(".")[2] for part in parts} == {"css", "js", "svg"}
    for part in parts:
        plain = requests.get(f"{web.url}/{part}", headers={"Accept-Encoding": "identity"}, timeout=SECONDS)
        packed = requests.get(f"{web.url}/{part}", headers={"Accept-Encoding": "gzip"}, timeout=SECONDS)
        assert (plain.status_code, plain.content == packed.content) == (200, True), part
        assert (packed.headers["Content-Encoding"], packed.headers["ETag"]) == ("gzip", plain.headers["ETag"])
        assert "immutable" in plain.headers["Cache-Control"]
    for absent in ("pages/", "pages/0/main.js", "pages/../app.py", parts[0] + "x", "pages/vendor/socket.io.LICENSE"):
        assert requests.get(f"{web.url}/{absent}", timeout=SECONDS).status_code == 404, absent


def test_the_page_has_each_of_its_texts_in_both_languages() -> None:
    pages = CHECKOUT / "kingdom/hall/gateway/pages"
    english, korean = ((pages / f"words-{name}.js").read_text("utf-8") for name in ("en", "ko"))
    keys = [set(re.findall(r"^  (\w+):", text, re.MULTILINE)) for text in (english, korean)]
    assert keys[0] == keys[1]
    scripts = "".join(path.read_text("utf-8") for path in [*pages.glob("*.js"), *pages.glob("views/*.js")])
    assert set(re.findall(r'\bt\("(\w+)"', scripts)) - keys[0] == set()


def test_an_invitation_lets_in_as_often_as_it_says(web: Hall) -> None:
    assert flow_checks.wrong_invitations(web) == []


def test_somebody_outside_the_throne_room_sees_and_orders_nothing_of_the_kingdom(web: Hall) -> None:
    assert flow_checks.wrong_for_members(web) == []


def test_the_password_of_one_account_cannot_be_guessed_at_will(web: Hall) -> None:
    assert web_table.wrong_guesses(web, MOST_GUESSES) == []
    wait_until(lambda: "too many wrong passwords of the user " in web.log(), SECONDS, "the log tells of it")
    assert "@example.org" not in web.log()


def test_passwords_cannot_be_guessed_at_will(web: Hall) -> None:
    assert web_table.wrong_rates(web, MOST_LOGINS) == []
