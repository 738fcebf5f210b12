"""Everything that a page elsewhere or a forger tries is refused, and the gateway listens where it says."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.oracle import Figure
from tests.gateway import flow_checks, web_table
from tests.gateway.halls import OPEN, Hall

MOST_LOGINS = 20
CONFIG = {
    **OPEN,
    "hosts": ["listed.example"],
    "origins": [web_table.LISTED],
    "limits": {"logins": {"count": MOST_LOGINS, "seconds": 3600}},
}


@pytest.fixture(scope="module")
def web() -> Iterator[Hall]:
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    hall = Hall(home, CONFIG)
    try:
        hall.start("gateway")
        yield hall
    finally:
        hall.close()
        shutil.rmtree(home, ignore_errors=True)


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


def test_an_invitation_lets_in_as_often_as_it_says(web: Hall) -> None:
    assert flow_checks.wrong_invitations(web) == []


def test_passwords_cannot_be_guessed_at_will(web: Hall) -> None:
    assert web_table.wrong_rates(web, MOST_LOGINS) == []
