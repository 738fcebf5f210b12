"""Slack's Web API as the channel uses it: what is looked for, over how many pages, and what each refusal means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.envoy.channels import Channels, slack
from kingdom.court.envoy.channels.base import ChannelDown, ChannelLocked, ChannelRefused, PostDraft, RoomBusy
from kingdom.demo.standins.slack import Slack
from tests.court.envoy.slacks import settings, slack_services
from tests.fixtures import Clock

WRITTEN = "2026-02-07T10:00:00Z"
DRAFT = PostDraft("msg-1", "C0ROOM001", "hello", written_at=WRITTEN)


@pytest.fixture
def service() -> Iterator[Slack]:
    with Slack() as service:
        service.channels["C0ROOM001"] = "room"
        yield service


@pytest.fixture
def channel(home: Path, service: Slack) -> Iterator[slack.SlackChannel]:
    channels = Channels(slack_services(home, Clock(), settings(service)))
    channel = channels.get("slack")
    assert isinstance(channel, slack.SlackChannel)
    yield channel
    channels.close()


def asked(service: Slack, method: str) -> list[dict[str, Any]]:
    return [given for name, given in service.calls if name == method]


@pytest.mark.parametrize(("behind", "is_found", "pages"), [(0, True, 1), (3, True, 2), (19, True, 10), (20, False, 10)])
def test_a_room_is_looked_up_over_ten_pages_of_names(
    channel: slack.SlackChannel,
    service: Slack,
    monkeypatch: pytest.MonkeyPatch,
    behind: int,
    is_found: bool,
    pages: int,
) -> None:
    monkeypatch.setattr(slack, "PAGE", 2)
    post = channel.post(DRAFT)
    service.channels = {f"C0OTHER{n:03d}": f"other-{n}" for n in range(behind)} | {"C0ROOM001": "room", "C0LAST": "z"}
    found = channel.find(DRAFT._replace(room="#room"))
    assert found == (post if is_found else None)
    assert len(asked(service, "conversations.list")) == pages


def test_a_post_is_looked_for_on_every_page_from_ten_minutes_before_it_was_written(
    channel: slack.SlackChannel, service: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "PAGE", 2)
    post = channel.post(DRAFT)
    for number in range(5):
        service.say(f"meanwhile {number}", channel="C0ROOM001")
    assert channel.find(DRAFT) == post
    looks = asked(service, "conversations.history")
    assert [look.get("cursor") for look in looks] == [None, "2", "4"]
    assert {look["oldest"] for look in looks} == {"1770457800.000000"}
    assert channel.find(DRAFT._replace(written_at="")) == post
    assert "oldest" not in asked(service, "conversations.history")[-1]


def test_a_reply_is_looked_for_in_its_thread(channel: slack.SlackChannel, service: Slack) -> None:
    first = channel.post(DRAFT)
    reply = DRAFT._replace(id="msg-2", thread=first.id)
    second = channel.post(reply)
    assert channel.find(reply) == second
    (look,) = asked(service, "conversations.replies")
    assert (look["ts"], asked(service, "conversations.history")) == (first.id, [])


def test_by_its_name_a_room_is_looked_up_no_more_once_something_was_posted_there(
    channel: slack.SlackChannel, service: Slack
) -> None:
    by_name = DRAFT._replace(room="room")
    assert channel.room("room") == "room"
    post = channel.post(by_name)
    assert (post.room, channel.room("room")) == ("C0ROOM001", "C0ROOM001")
    assert channel.find(by_name) == post
    assert asked(service, "conversations.list") == []


REFUSALS: list[tuple[dict[str, Any], type[ChannelRefused], float, str]] = [
    ({"status": 429, "retry_after": 7}, RoomBusy, 7.0, "it asks for a pause"),
    ({"status": 429, "retry_after": -7}, RoomBusy, 0.0, "it asks for a pause"),
    ({"error": "ratelimited"}, RoomBusy, 1.0, "it asks for a pause"),
    ({"error": "token_revoked"}, ChannelLocked, 0.0, "token_revoked; `kingdom connect slack` takes new tokens"),
    ({"error": "internal_error"}, ChannelDown, 0.0, "internal_error"),
    ({"status": 503}, ChannelDown, 0.0, ""),
    ({"status": 500, "error": "channel_not_found"}, ChannelDown, 0.0, "channel_not_found"),
    ({"garbage": True}, ChannelDown, 0.0, ""),
    ({"half": True}, ChannelDown, 0.0, ""),
    ({"cut": True}, ChannelDown, 0.0, ""),
    ({"error": "not_in_channel"}, ChannelRefused, 0.0, "not_in_channel: invite the app there"),
    ({"error": "msg_too_long"}, ChannelRefused, 0.0, "msg_too_long"),
]


@pytest.mark.parametrize(("fault", "kind", "after", "why"), REFUSALS, ids=lambda part: str(part)[:40])
def test_each_refusal_means_one_thing(
    channel: slack.SlackChannel,
    service: Slack,
    fault: dict[str, Any],
    kind: type[ChannelRefused],
    after: float,
    why: str,
) -> None:
    service.fail("chat.postMessage", **fault)
    with pytest.raises(ChannelRefused) as refused:
        channel.post(DRAFT)
    assert type(refused.value) is kind
    assert getattr(refused.value, "after", 0.0) == after
    assert str(refused.value).endswith(f": {why}" if why else "")


def test_a_mark_takes_the_place_of_the_one_before(channel: slack.SlackChannel, service: Slack) -> None:
    post = channel.post(DRAFT)
    (shown,) = service.from_kingdom()
    done = ["raising_hand", "white_check_mark"]  # a question was open until then
    for code, reactions in [("started", ["eyes"]), ("question", done[:1]), ("completed", done), ("unknown", done)]:
        channel.mark("C0ROOM001", post.id, code)
        assert shown.get("reactions") == reactions, code
