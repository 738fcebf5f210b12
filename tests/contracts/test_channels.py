"""What every channel must do."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from kingdom.envoy.channels import CHANNELS
from kingdom.envoy.channels.base import Channel
from kingdom.home import schemas
from tests.fixtures import Clock, services


@pytest.fixture(params=CHANNELS)
def opened(request: pytest.FixtureRequest, home: Path) -> Callable[[], Channel]:
    """A life of the channel over the same home."""
    module, attribute = CHANNELS[request.param].split(":")
    given = services(home, "envoy", Clock())

    def open_again() -> Channel:
        channel: Channel = getattr(import_module(module), attribute)(
            given.places.own("envoy") / request.param, given.disk, given.clock
        )
        assert channel.name == request.param
        return channel

    return open_again


def test_the_configuration_knows_every_channel() -> None:
    assert set(schemas.load("config/envoy")["properties"]["channel"]["enum"]) == set(CHANNELS)


def test_a_post_is_found_by_its_letter(opened: Callable[[], Channel]) -> None:
    channel = opened()
    post = channel.post("msg-1", "room", "hello", None)
    assert channel.find("msg-1") == post
    assert channel.find("msg-10") is None


def test_a_post_is_found_in_a_later_life(opened: Callable[[], Channel]) -> None:
    post = opened().post("msg-1", "room", "hello", None)
    assert opened().find("msg-1") == post


def test_no_two_posts_share_an_id_and_a_thread_takes_any_of_them(opened: Callable[[], Channel]) -> None:
    channel = opened()
    first = channel.post("msg-1", "room", "one", None)
    others = [channel.post(f"msg-{n}", "room", "more", first) for n in range(2, 10)]
    assert len({first, *others}) == 9


@pytest.mark.parametrize("text", ["", "왕 ⚔\n<b>&amp;</b>\u2028\x00", "x" * 100_000, '{"letter": "msg-2"}\n'])
def test_any_text_can_be_said_and_carries_nothing_but_itself(opened: Callable[[], Channel], text: str) -> None:
    channel = opened()
    post = channel.post("msg-1", "a room", text, None)
    assert (channel.find("msg-1"), channel.find("msg-2")) == (post, None)


def test_nothing_is_found_where_nothing_was_said(opened: Callable[[], Channel]) -> None:
    assert opened().find("msg-1") is None
