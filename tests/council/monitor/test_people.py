"""What agents write to `user` reaches people as messages of the kingdom, once each."""

from __future__ import annotations

from typing import Any

import pytest

from kingdom.council.monitor import people
from tests.council.monitor.conftest import Open
from tests.council.monitor.councils import DONE, TOLD, Council
from tests.fixtures import all_of


def posts(council: Council) -> list[dict[str, Any]]:
    return all_of(council.home, "messages", "pending")


PROGRESS = {"from_agent": "leader", "msg_type": "progress_update"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{repository: acme/shop, summary: seen}", "[council] leader (acme/shop): seen"),
        ("{repository: a, summary: half, stage: tests, percent: 50}", "[council] leader (a, tests, 50 %): half"),
        ("{repository: a, summary: ready, final: true}", "[council] leader (a, done): ready"),
        ("{repository: '', summary: |-\n  one\n  two}", None),
        ("repository: ''\nsummary: |-\n  one\n  two\n", "[council] leader: one\ntwo"),
        ('summary: "\\e[31mred"', "[council] leader: [31mred"),
        ("{title: a title}", "[council] leader: a title"),
        ("{nothing: known}", "[council] leader: progress_update"),
        (f"summary: {'x' * 9000}", f"[council] leader: {'x' * 3982}"),
    ],
)
def test_people_read_what_a_message_says(body: str, said: str | None, council: Open) -> None:
    opened = council()
    opened.write("user", thread_id="t-1", body=body, **PROGRESS)
    opened.settle()
    if said is None:
        assert (posts(opened), len(opened.names("dead_letter"))) == ([], 1)
        return
    (post,) = posts(opened)
    assert post["content"].replace("\x1b", "").replace("␛", "") == said
    assert (post["context"], post["urgency"]) == ({"thread": "t-1", "from": "leader"}, "normal")
    assert opened.everything == []


def test_what_is_urgent_comes_as_such(council: Open) -> None:
    opened = council()
    opened.write("user", priority="critical", body="summary: now", **PROGRESS)
    opened.settle()
    assert [post["urgency"] for post in posts(opened)] == ["high"]


def test_a_message_that_people_were_handed_before_a_kill_comes_once(council: Open) -> None:
    opened = council()
    sent = opened.write("user", body="summary: x", **PROGRESS)
    raw = sent.read_bytes()
    opened.settle()
    opened.write("user", folder="processed", name=sent.name, raw=raw)
    opened.start()
    opened.settle()
    assert (len(posts(opened)), opened.everything) == (1, [])


def test_so_many_a_minute_and_the_others_wait(council: Open) -> None:
    opened = council()
    for number in range(people.MOST_A_MINUTE + 2):
        opened.write("user", body=f"summary: number {number}", **PROGRESS)
    opened.settle()
    assert len(posts(opened)) == people.MOST_A_MINUTE
    assert len(opened.names("user")) == 2
    opened.start()
    opened.settle()
    assert len(posts(opened)) == people.MOST_A_MINUTE + 2


def test_with_a_row_of_its_own_user_is_a_program_like_others(council: Open) -> None:
    opened = council(user=TOLD + DONE)
    sent = opened.write("user", body="summary: x", **PROGRESS)
    opened.settle()
    assert (opened.told, posts(opened)) == ([f"user {sent.name}"], [])
