"""The thread of a channel: in which order it works, what it reports, and how one sees that it does not move."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kingdom.base.runtime.wake import Alarm
from kingdom.court.envoy.channels.base import Channel, ChannelRefused, Post, PostDraft, Stuck
from kingdom.court.envoy.poster import MOST_MARKS, Poster
from tests.fixtures import Clock
from tests.waiting import SOON, wait_until


class Gated(Channel):
    """Every call waits until the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.calls: list[str] = []
        self.known: dict[str, Post] = {}

    def post(self, draft: PostDraft) -> Post:
        self.calls.append(f"post {draft.id}")
        assert self.gate.wait(SOON)
        if draft.id == "refused":
            raise ChannelRefused(channel="gated", why="no")
        return Post(draft.id, draft.room)

    def find(self, draft: PostDraft) -> Post | None:
        return self.known.get(draft.id)

    def mark(self, room: str, post: str, code: str) -> None:
        assert self.gate.wait(SOON)
        self.calls.append(f"mark {post}")


@pytest.fixture
def channel() -> Gated:
    return Gated()


@pytest.fixture
def poster(channel: Gated, clock: Clock) -> Iterator[Poster]:
    poster = Poster(channel, Alarm(), clock)
    yield poster
    channel.gate.set()
    poster.close(SOON)


def draft(name: str) -> PostDraft:
    return PostDraft(name, "room", "words")


def at_work(channel: Gated) -> None:
    wait_until(lambda: channel.calls, SOON, "it is at work")


def test_who_waits_for_a_post_comes_before_marks_and_an_end_before_both(channel: Gated, poster: Poster) -> None:
    poster.post("1", draft("1"), look_first=False)
    at_work(channel)
    poster.mark("room", "1", "done")
    poster.post("2", draft("2"), look_first=False)
    channel.gate.set()
    wait_until(lambda: len(channel.calls) == 3, SOON, "all is done")
    assert channel.calls == ["post 1", "post 2", "mark 1"]
    channel.gate.clear()
    poster.post("3", draft("3"), look_first=False)
    wait_until(lambda: len(channel.calls) == 4, SOON, "it is at work again")
    poster.post("4", draft("4"), look_first=False)
    threading.Timer(0.05, channel.gate.set).start()
    poster.close(SOON)
    assert channel.calls[3:] == ["post 3"]
    assert [attempt.message_id for attempt in poster.attempts()] == ["1", "2", "3"]
    with pytest.raises(Stuck, match="has ended"):
        poster.check(15.0)


def test_what_became_of_each_post_is_reported_once(channel: Gated, poster: Poster) -> None:
    channel.known["found"] = Post("p-1", "room")
    channel.gate.set()
    for name, look_first in (("found", True), ("found", False), ("new", True), ("refused", False)):
        poster.post(name, draft(name), look_first=look_first)
    found = []
    wait_until(lambda: found.extend(poster.attempts()) or len(found) == 4, SOON, "all are reported")
    outcomes = [attempt.outcome for attempt in found]
    assert outcomes[:3] == [Post("p-1", "room"), Post("found", "room"), Post("new", "room")]
    assert isinstance(outcomes[3], ChannelRefused)
    assert (channel.calls, poster.attempts()) == (["post found", "post new", "post refused"], [])


def test_a_call_that_does_not_return_is_seen_by_its_time(channel: Gated, poster: Poster, clock: Clock) -> None:
    clock.pass_(1000)
    poster.check(15.0)
    poster.post("1", draft("1"), look_first=False)
    at_work(channel)
    clock.pass_(15.0)
    poster.check(15.0)
    clock.pass_(0.5)
    with pytest.raises(Stuck, match="has not returned for 15 s"):
        poster.check(15.0)
    channel.gate.set()
    wait_until(poster.attempts, SOON, "it has returned")
    wait_until(lambda: poster._begun is None, SOON, "it is done")
    clock.pass_(1000)
    poster.check(15.0)


def test_only_so_many_marks_wait(channel: Gated, poster: Poster) -> None:
    poster.post("1", draft("1"), look_first=False)
    at_work(channel)
    for number in range(MOST_MARKS + 5):
        poster.mark("room", str(number), "done")
    channel.gate.set()
    wait_until(lambda: len(channel.calls) == MOST_MARKS + 1, SOON, "all are marked")
    poster.mark("room", "another", "done")
    wait_until(lambda: channel.calls[-1] == "mark another", SOON, "there is room again")
    assert (MOST_MARKS, channel.calls[-2]) == (200, "mark 199")
