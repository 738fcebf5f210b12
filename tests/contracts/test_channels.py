"""What every channel must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kingdom.base.home import schemas
from kingdom.court.envoy.channels import CHANNELS, Channels
from kingdom.court.envoy.channels.base import Channel, PostDraft
from kingdom.demo.standins.slack import Slack
from tests.court.envoy.servers import Hook, MailServer, by_hook, by_mail, mail_server
from tests.court.envoy.slacks import SECRETS, settings, slack_services
from tests.fixtures import Clock
from tests.hall.channel.halls import working
from tests.hall.worker.hall import Hall

SETTINGS = ("channel", "intervals", "retry")
"""Keys of envoy.yaml that are no channel's part."""
HELLO = PostDraft("msg-1", "C0ROOM001", "hello", written_at="2026-02-07T10:00:00Z")


class Outside(NamedTuple):
    slack: Slack
    hook: Hook
    mail: MailServer

    def settings(self, channel: str) -> dict[str, Any]:
        """What envoy.yaml says of a channel."""
        if channel == "slack":
            return settings(self.slack)
        return {"hall": {"hall": {}}, "webhook": {"webhook": {}}, "email": {"email": by_mail(self.mail)}}.get(
            channel, {}
        )


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Slack() as slack, Hook() as hook, mail_server() as mail:
        slack.channels["C0ROOM001"] = "room"
        yield Outside(slack, hook, mail)


@pytest.fixture(params=[*CHANNELS, "pigeon"])
def opened(
    request: pytest.FixtureRequest, home: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Channel]]:
    """Open the channel as a new process would, over the same home."""
    monkeypatch.setitem(CHANNELS, "pigeon", "tests.court.envoy.pigeon:Pigeon")
    given = slack_services(home, Clock(), outside.settings(request.param))
    given = replace(given, secrets={**SECRETS, **by_hook(outside.hook)})
    all_channels: list[Channels] = []

    def open_() -> Channel:
        all_channels.append(Channels(given))
        return all_channels[-1].get(request.param)

    with worker_of_the_hall(home) if request.param == "hall" else nullcontext():
        yield open_
        for channels in all_channels:
            channels.close()


@contextmanager
def worker_of_the_hall(home: Path) -> Iterator[None]:
    hall = Hall(home, Clock())
    with working(hall):
        yield
    hall.close()


def test_the_configuration_knows_every_channel() -> None:
    known = schemas.load("config/envoy")["properties"]
    assert set(known["channel"]["enum"]) == set(CHANNELS)
    assert known.keys() - {*SETTINGS, *CHANNELS} == set()


def test_a_post_is_found_by_its_message(opened: Callable[[], Channel]) -> None:
    channel = opened()
    post = channel.post(HELLO)
    assert channel.find(HELLO) == post
    assert channel.find(HELLO._replace(id="msg-10")) is None


def test_a_post_is_found_by_a_later_process(opened: Callable[[], Channel]) -> None:
    post = opened().post(HELLO)
    assert opened().find(HELLO) == post


def test_no_two_posts_share_an_id_and_a_thread_takes_any_of_them(opened: Callable[[], Channel]) -> None:
    channel = opened()
    first = channel.post(HELLO)
    others = [channel.post(HELLO._replace(id=f"msg-{n}", thread=first.id)) for n in range(2, 6)]
    assert len({first, *others}) == 5


@pytest.mark.parametrize("text", ["", "왕 ⚔\n<b>&amp;</b>\u2028\x00", "x" * 100_000, '{"letter": "msg-2"}\n'])
def test_any_text_can_be_posted_and_carries_nothing_but_itself(opened: Callable[[], Channel], text: str) -> None:
    channel = opened()
    post = channel.post(HELLO._replace(text=text))
    assert (channel.find(HELLO), channel.find(HELLO._replace(id="msg-2"))) == (post, None)


def test_nothing_is_found_where_nothing_was_posted(opened: Callable[[], Channel]) -> None:
    assert opened().find(HELLO) is None


def test_where_nobody_has_said_anything_nothing_is_read(opened: Callable[[], Channel]) -> None:
    channel = opened()
    assert list(channel.read()) == []
    channel.acknowledge([])
    assert all(folder.is_dir() for folder in channel.folders())
