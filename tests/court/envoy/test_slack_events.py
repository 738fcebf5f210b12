"""What Slack delivers, and which of it is for us: one table for each way in which it comes."""

from __future__ import annotations

from typing import Any

import pytest

from kingdom.court.envoy.channels.base import IN_THREAD, Heard
from kingdom.court.envoy.channels.slack_events import LONGEST_TEXT, Identity, Listed

CONFIG = {"teams": [], "channels": ["C0OPEN"], "people": ["U0ANN"]}
ME = Identity("T0HOME", "U0BOT")
MESSAGE = {"type": "message", "user": "U0ANN", "text": "hello", "channel": "C0OPEN", "ts": "5.5"}
DIRECT = {**MESSAGE, "channel": "D0ANN", "channel_type": "im"}
REPLY = {**MESSAGE, "thread_ts": "1.1"}
MENTION = {**MESSAGE, "type": "app_mention", "text": "<@U0BOT> hello"}


def as_said(said: Heard | None) -> tuple[str, str, str | None] | None:
    return said and (said.type, said.text, said.thread)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (MESSAGE, None),
        ({**MESSAGE, "thread_ts": "5.5"}, None),
        (DIRECT, ("channel.message", "hello", None)),
        ({**DIRECT, "channel": "D0BEN", "thread_ts": "1.1"}, ("channel.message", "hello", "1.1")),
        (REPLY, (IN_THREAD, "hello", "1.1")),
        ({**REPLY, "text": "you too, <@U0BOT>"}, None),
        ({**REPLY, "text": "you too, <@U0BEN>"}, (IN_THREAD, "you too, <@U0BEN>", "1.1")),
        ({**REPLY, "channel": "C0OTHER"}, None),
        (MENTION, ("app_mention", "hello", None)),
        ({**MENTION, "thread_ts": "1.1"}, ("app_mention", "hello", "1.1")),
        ({**MENTION, "thread_ts": "5.5"}, ("app_mention", "hello", None)),
        ({**MENTION, "channel": "D0ANN", "channel_type": "im"}, None),
        ({**MENTION, "type": "reaction_added"}, None),
        ({**MENTION, "text": " <@U0BOT|kingdom>: <@U0BEN> hello "}, ("app_mention", "<@U0BEN> hello", None)),
        ({**MENTION, "text": "hello <@U0BOT> there"}, ("app_mention", "hello <@U0BOT> there", None)),
        ({**MENTION, "text": "a &lt;b&gt; &amp; c"}, ("app_mention", "a <b> & c", None)),
        ({**MENTION, "text": "x" * (LONGEST_TEXT + 1)}, ("app_mention", "x" * LONGEST_TEXT, None)),
        ({**MENTION, "text": None}, None),
        ({**MENTION, "user": "U0BEN"}, None),
        ({**MENTION, "user": "U0BOT"}, None),
        ({**MENTION, "bot_id": "B1"}, None),
        ({**MENTION, "subtype": "message_changed"}, None),
        ({**MENTION, "team": "T0HOME", "user_team": "T0HOME"}, ("app_mention", "hello", None)),
        ({**MENTION, "team": "T0OTHER"}, None),
        ({**MENTION, "user_team": "T0OTHER"}, None),
        ({**MENTION, "ts": "5"}, None),
        ({**MENTION, "ts": "1234567890123.5"}, None),
        ({**MENTION, "thread_ts": "x"}, None),
        ({**MENTION, "channel": "c0open"}, None),
        ([MENTION], None),
    ],
)
def test_an_event_is_for_us_or_not(event: Any, said: tuple[str, str, str | None] | None) -> None:
    assert as_said(Listed(CONFIG, ME).event({"team_id": "T0HOME", "event": event})) == said


@pytest.mark.parametrize(
    ("teams", "team", "is_heard"),
    [([], "T0HOME", True), ([], "T0OTHER", False), (["T0OTHER"], "T0OTHER", True), (["T0OTHER"], "T0HOME", False)],
)
def test_teams_that_are_named_take_the_place_of_our_own(teams: list[str], team: str, is_heard: bool) -> None:
    listed = Listed({**CONFIG, "teams": teams}, ME)
    assert (listed.event({"team_id": team, "event": MENTION}) is not None) is is_heard
    pressed = press(team={"id": team}, user={"id": "U0ANN", "team_id": team})
    assert (listed.press(pressed) is not None) is is_heard


@pytest.mark.parametrize(
    ("lists", "is_heard"),
    [
        ({"people": ["*"], "channels": ["*"]}, True),
        ({"people": ["*"], "channels": []}, False),
        ({"people": [], "channels": ["*"]}, False),
        ({"people": ["U0BEN"], "channels": ["C0CLOSED"]}, True),
        ({"people": ["U0BEN"], "channels": ["C0OPEN"]}, False),
    ],
)
def test_everybody_and_everywhere_are_a_star(lists: dict[str, list[str]], is_heard: bool) -> None:
    said = {**MENTION, "user": "U0BEN", "channel": "C0CLOSED"}
    assert (Listed({**CONFIG, **lists}, ME).event({"team_id": "T0HOME", "event": said}) is not None) is is_heard


def press(**parts: Any) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "team": {"id": "T0HOME"},
        "user": {"id": "U0ANN", "team_id": "T0HOME"},
        "channel": {"id": "C0OPEN"},
        "message": {"user": "U0BOT", "ts": "2.2", "thread_ts": "1.1"},
        "actions": [{"action_id": "kingdom-answer-1", "value": "yes", "action_ts": "5.5"}],
        **parts,
    }


ANSWERED = (IN_THREAD, "yes", "1.1")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, ANSWERED),
        ({"type": "view_submission"}, None),
        ({"message": {"user": "U0BOT", "ts": "2.2"}}, (IN_THREAD, "yes", "2.2")),
        ({"message": {"ts": "2.2"}}, (IN_THREAD, "yes", "2.2")),
        ({"message": {"user": "U0BEN", "ts": "2.2"}}, None),
        ({"user": {"id": "U0ANN"}}, ANSWERED),
        ({"user": {"id": "U0ANN", "team_id": "T0OTHER"}}, None),
        ({"user": {"id": "U0BEN", "team_id": "T0HOME"}}, None),
        ({"team": {"id": "T0OTHER"}}, None),
        ({"team": None}, None),
        ({"channel": {"id": "C0OTHER"}}, None),
        ({"channel": {"id": "D0ANN"}}, ANSWERED),
        ({"channel": "C0OPEN"}, None),
        ({"actions": []}, None),
        ({"actions": ["kingdom-answer-1"]}, None),
        ({"actions": {"action_id": "kingdom-answer-1"}}, None),
        ({"actions": [{"action_id": "other-1", "value": "yes", "action_ts": "5.5"}]}, None),
        ({"actions": [{"action_id": "kingdom-answer-1", "value": 5, "action_ts": "5.5"}]}, None),
    ],
)
def test_a_pressed_button_is_for_us_or_not(parts: dict[str, Any], said: tuple[str, str, str | None] | None) -> None:
    assert as_said(Listed(CONFIG, ME).press(press(**parts))) == said


RELAYED = {"type": "message", "user_id": "U0ANN", "text": "hello", "channel": "D0ANN", "ts": "5.5"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ("channel.message", "hello", None)),
        ({"thread_ts": "1.1"}, ("channel.message", "hello", "1.1")),
        ({"channel": "C0OPEN"}, None),
        ({"channel": "C0OPEN", "type": "thread_reply", "thread_ts": "1.1"}, (IN_THREAD, "hello", "1.1")),
        ({"channel": "C0OPEN", "type": "app_mention"}, ("app_mention", "hello", None)),
        ({"channel": "C0OTHER", "type": "app_mention"}, None),
        ({"type": "file_shared"}, None),
        ({"user_id": "U0BOT"}, None),
        ({"user_id": "U0BEN"}, None),
        ({"channel": None}, None),
    ],
)
def test_what_a_bridge_has_heard_is_for_us_or_not(
    fields: dict[str, Any], said: tuple[str, str, str | None] | None
) -> None:
    assert as_said(Listed(CONFIG, ME).relayed({**RELAYED, **fields})) == said
