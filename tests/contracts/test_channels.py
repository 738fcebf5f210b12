"""What every channel must do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.envoy.channels import CHANNELS, Channels
from kingdom.envoy.channels.base import Channel
from kingdom.home import schemas
from tests.fixtures import Clock, services

SETTINGS = ("channel", "intervals", "retry")
"""Keys of envoy.yaml that are no channel's part."""


@pytest.fixture(params=[*CHANNELS, "pigeon"])
def opened(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Channel]:
    """Open the channel as a new process would, over the same home."""
    monkeypatch.setitem(CHANNELS, "pigeon", "tests.envoy.pigeon:Pigeon")
    given = services(home, "envoy", Clock())
    return lambda: Channels(given).get(request.param)


def test_the_configuration_knows_every_channel() -> None:
    known = schemas.load("config/envoy")["properties"]
    assert set(known["channel"]["enum"]) == set(CHANNELS)
    assert known.keys() - {*SETTINGS, *CHANNELS} == set()


def test_a_post_is_found_by_its_message(opened: Callable[[], Channel]) -> None:
    channel = opened()
    post = channel.post("msg-1", "room", "hello", None)
    assert channel.find("msg-1") == post
    assert channel.find("msg-10") is None


def test_a_post_is_found_by_a_later_process(opened: Callable[[], Channel]) -> None:
    post = opened().post("msg-1", "room", "hello", None)
    assert opened().find("msg-1") == post


def test_no_two_posts_share_an_id_and_a_thread_takes_any_of_them(opened: Callable[[], Channel]) -> None:
    channel = opened()
    first = channel.post("msg-1", "room", "one", None)
    others = [channel.post(f"msg-{n}", "room", "more", first) for n in range(2, 10)]
    assert len({first, *others}) == 9


@pytest.mark.parametrize("text", ["", "왕 ⚔\n<b>&amp;</b>\u2028\x00", "x" * 100_000, '{"letter": "msg-2"}\n'])
def test_any_text_can_be_posted_and_carries_nothing_but_itself(opened: Callable[[], Channel], text: str) -> None:
    channel = opened()
    post = channel.post("msg-1", "a room", text, None)
    assert (channel.find("msg-1"), channel.find("msg-2")) == (post, None)


def test_nothing_is_found_where_nothing_was_posted(opened: Callable[[], Channel]) -> None:
    assert opened().find("msg-1") is None


def test_where_nobody_has_said_anything_nothing_is_read(opened: Callable[[], Channel]) -> None:
    channel = opened()
    assert list(channel.read()) == []
    channel.acknowledge([])
    assert all(folder.is_dir() for folder in channel.folders())
    channel.close()
