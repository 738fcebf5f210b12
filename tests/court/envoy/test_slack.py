"""What the envoy posts in Slack, and what it hears there, by the library that Slack keeps."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from slack_sdk.socket_mode.builtin import connection

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.court.envoy.channels.base import ChannelDown
from kingdom.court.envoy.channels.slack import SlackChannel as SlackChannel
from kingdom.demo.standins.slack import BOT_USER, Slack
from tests.court.envoy.envoys import TASK, Envoy, threads, traces
from tests.court.envoy.slacks import SOON, listening, slack_envoy, turn_until
from tests.fixtures import Clock, all_of, here, message, put, read, write

GENERAL = "C0KINGDOM"
WAY_BACK = {"general": "gen-pr", "task_id": TASK, "session_id": "s-1", "repo": "acme/shop"}


@pytest.fixture
def slack() -> Iterator[Slack]:
    with Slack() as slack:
        yield slack


@pytest.fixture
def begin(home: Path, clock: Clock, slack: Slack) -> Iterator[Callable[..., Envoy]]:
    """Start an envoy that listens."""
    begun: list[Envoy] = []

    def begin(**config: Any) -> Envoy:
        begun.append(slack_envoy(home, clock, slack, **config))
        return listening(begun[-1], slack)

    yield begin
    for envoy in begun:
        envoy.job.close()


@pytest.fixture
def envoy(begin: Callable[..., Envoy]) -> Envoy:
    return begin()


def sent(home: Path, envoy: Envoy, *names: str) -> None:
    """Wait until these messages are filed."""
    envoy.job.turn(None)
    turn_until(envoy, lambda: set(names) <= set(here(home, "messages", "sent")), f"{names} are sent")


def begin_thread(home: Path) -> None:
    put(home, "messages", "pending", **message("msg-1", "thread_start", task_id=TASK, channel="kingdom"))


def texts(slack: Slack) -> list[str]:
    return [post["text"] for post in slack.from_kingdom()]


def heard(envoy: Envoy, slack: Slack) -> None:
    """Wait until all that was delivered is acknowledged."""
    turn_until(envoy, lambda: slack.lines and not slack.unacknowledged(), "everything is acknowledged")


def ask(home: Path, envoy: Envoy, content: str = "[question] Which one?", **fields: Any) -> None:
    """A task that has begun in Slack asks."""
    begin_thread(home)
    context = {"checkpoint_path": "x", "reply_context": WAY_BACK}
    fields = {"task_id": TASK, "context": context, "urgency": "high", "content": content, **fields}
    put(home, "messages", "pending", **message("msg-2", "human_input_request", **fields))
    sent(home, envoy, "msg-1", "msg-2")


# What is posted


def test_a_task_has_a_thread_in_slack_and_its_channel_is_remembered_by_id(
    home: Path, envoy: Envoy, slack: Slack
) -> None:
    begin_thread(home)
    put(home, "messages", "pending", **message("msg-2", "thread_update", task_id=TASK))
    put(home, "messages", "pending", **message("msg-3", task_id=TASK, code="completed", channel="kingdom"))
    sent(home, envoy, "msg-1", "msg-2", "msg-3")
    first, *others = slack.from_kingdom()
    assert (first["channel"], first.get("thread_ts")) == (GENERAL, None)
    assert [(post["channel"], post["thread_ts"]) for post in others] == [(GENERAL, first["ts"])] * 2
    posted = read(home, "messages", "sent", "msg-1")["posted"]
    assert posted == {"channel": "slack", "room": GENERAL, "thread": None, "post": first["ts"]}
    assert read_json(Places(home).own("envoy") / "slack" / "rooms.json") == {"kingdom": GENERAL}
    assert traces(home) == []


def test_a_messages_mapping_is_a_file_that_other_envoys_read(home: Path, envoy: Envoy, slack: Slack) -> None:
    ask(home, envoy, channel="kingdom")
    (first, _) = slack.from_kingdom()
    assert threads(home)[TASK].items() >= {"thread_ts": first["ts"], "channel": "C0KINGDOM"}.items()
    (row,) = json.loads((Places(home).own("envoy") / "awaiting-responses.json").read_text())
    assert (
        row.items()
        >= {"task_id": TASK, "thread_ts": first["ts"], "channel": GENERAL, "reply_context": WAY_BACK}.items()
    )
    assert row["asked_at"] == "2026-02-07T10:00:00Z"


def test_what_answers_nobody_goes_to_slacks_default_channel(home: Path, envoy: Envoy, slack: Slack) -> None:
    put(home, "messages", "pending", **message("msg-1", urgency="urgent"))
    sent(home, envoy, "msg-1")
    assert [post["channel"] for post in slack.from_kingdom()] == [GENERAL]


def test_nothing_in_a_text_calls_people(home: Path, envoy: Envoy, slack: Slack) -> None:
    put(home, "messages", "pending", **message("msg-1", content="<!channel> <@U0ANN> a & b\x00 <http://evil|bank>"))
    sent(home, envoy, "msg-1")
    assert texts(slack) == ["&lt;!channel&gt; &lt;@U0ANN&gt; a &amp; b &lt;http://evil|bank&gt;"]


def test_a_long_text_becomes_several_posts_in_one_thread(home: Path, envoy: Envoy, slack: Slack) -> None:
    lines = [f"line {number} {'x' * 80}" for number in range(100)]
    put(home, "messages", "pending", **message("msg-1", content="\n".join(lines)))
    sent(home, envoy, "msg-1")
    first, *others = slack.from_kingdom()
    assert "\n".join(texts(slack)) == "\n".join(lines)
    assert len(others) == 3
    assert all(len(text) < 3000 for text in texts(slack))
    assert {post.get("thread_ts") for post in others} == {first["ts"]}


def test_what_nobody_can_take_is_refused_three_times_and_filed(home: Path, envoy: Envoy, slack: Slack) -> None:
    put(home, "messages", "pending", **message("msg-1", channel="nowhere"))
    envoy.job.turn(None)
    turn_until(envoy, lambda: envoy.job.turn(None) and here(home, "messages", "failed"), "it is given up")
    why = read(home, "messages", "failed", "msg-1")["refused_because"]
    assert why.startswith("slack did not take the message: channel_not_found: there is none of that name")


def test_how_a_task_stands_is_shown_on_the_persons_message(home: Path, envoy: Envoy, slack: Slack) -> None:
    ts = slack.say(f"<@{BOT_USER}> review it")
    heard(envoy, slack)
    asked_by = {"source": "slack", "channel": "C0GENERAL", "message_ts": ts, "user": "U0ANN"}
    here_it_is = {"task_id": TASK, "channel": "C0GENERAL", "thread_ts": ts, "source_ref": asked_by}
    said = next(post for post in slack.posts if post["ts"] == ts)
    steps = [("thread_start", "started", "eyes"), ("human_input_request", "question", "raising_hand")]
    steps += [("thread_update", "resumed", "eyes"), ("notification", "completed", "white_check_mark")]
    for number, (kind, code, emoji) in enumerate(steps):
        put(home, "messages", "pending", **message(f"msg-{number}", kind, code=code, **here_it_is))
        sent(home, envoy, f"msg-{number}")
        turn_until(envoy, lambda emoji=emoji: said.get("reactions") == [emoji], f"{emoji} stands there")
    assert {post["thread_ts"] for post in slack.from_kingdom()} == {ts}


def test_a_post_whose_answer_was_lost_is_found_on_a_later_page(home: Path, envoy: Envoy, slack: Slack) -> None:
    begin_thread(home)
    sent(home, envoy, "msg-1")
    (first,) = slack.from_kingdom()
    slack.most_per_page = 2
    for number in range(5):
        slack.say(f"I wait {number}", channel=GENERAL, thread_ts=first["ts"], user="U0EVE")
    slack.fail("chat.postMessage", cut=True)
    put(home, "messages", "pending", **message("msg-2", "thread_update", task_id=TASK, content="soon"))
    sent(home, envoy, "msg-2")
    assert texts(slack)[1:] == ["soon"]
    assert len([method for method, _ in slack.calls if method == "conversations.replies"]) == 4


# What is heard


def test_the_envoy_is_woken_by_what_is_said(envoy: Envoy, slack: Slack) -> None:
    envoy.services.alarm.clear()
    slack.say("hello", channel="D0ANN")
    assert select.select([envoy.services.alarm.fileno()], [], [], SOON)[0]


def test_a_mention_a_direct_message_and_nothing_else_begin_something(home: Path, envoy: Envoy, slack: Slack) -> None:
    mention = slack.say(f"<@{BOT_USER}> brief me &amp; hurry")
    direct = slack.say("and privately", channel="D0ANN")
    slack.say("just talking")
    slack.say("an edit", subtype="message_changed")
    slack.say("a bot", bot_id="B1")
    slack.say("a reply to somebody", thread_ts="1.2")
    slack.say("we ourselves", user=BOT_USER, channel="D0ANN")
    heard(envoy, slack)
    events = {event["id"]: event for event in all_of(home, "events", "pending")}
    ids = [f"evt-slack-mention-{mention}", f"evt-slack-msg-{direct}"]
    assert sorted(events) == [id.replace(".", "-") for id in ids]
    assert {event["type"] for event in events.values()} == {"slack.app_mention", "slack.channel.message"}
    assert {event["payload"]["text"] for event in events.values()} == {"brief me & hurry", "and privately"}
    payload = events[ids[0].replace(".", "-")]["payload"]
    assert (
        payload.items() >= {"user_id": "U0ANN", "user": "U0ANN", "channel": "C0GENERAL", "message_ts": mention}.items()
    )


def test_an_answer_in_the_thread_of_a_question_and_a_pressed_button_are_the_same(
    home: Path, envoy: Envoy, slack: Slack
) -> None:
    ask(home, envoy, "[question] Where to?\n- staging\n- production")
    _, question = slack.from_kingdom()
    slack.press(question["ts"], "staging")
    slack.say("to production", channel=GENERAL, thread_ts=question["thread_ts"])
    heard(envoy, slack)
    events = all_of(home, "events", "pending")
    assert {(event["type"], event["priority"], event["payload"]["task_id"]) for event in events} == {
        ("slack.human_response", "high", TASK)
    }
    assert {event["payload"]["human_response"] for event in events} == {"staging", "to production"}
    assert all(event["payload"]["reply_context"] == WAY_BACK for event in events)
    turn_until(envoy, lambda: "actions" not in str(question["blocks"]), "the buttons are gone")
    assert "staging — <@U0ANN>" in str(question["blocks"])


@pytest.mark.parametrize(
    ("content", "choices"),
    [
        ("[question] Which?\n1. main\n2. dev", ["main", "dev"]),
        ("[question] Which?\n\n* a\n* b\n\n", ["a", "b"]),
        ("[question] (a) one\n(b) two", ["two"]),
        ("[question] Which?\n- only one", []),
        ("[question] Which?\n- same\n- same", []),
        (f"[question] Which?\n- {'x' * 80}\n- y", []),
        ("[question] Is it - perhaps - so?", []),
    ],
)
def test_a_question_that_lists_answers_has_buttons(content: str, choices: list[str]) -> None:
    from kingdom.base.words import choices_in

    assert list(choices_in(content)) == (choices if len(choices) > 1 else [])


def test_a_reply_where_a_question_had_no_checkpoint_goes_on_with_the_conversation(
    home: Path, envoy: Envoy, slack: Slack
) -> None:
    ask(home, envoy, context={"reply_context": WAY_BACK})
    slack.say("yes", channel=GENERAL, thread_ts=slack.from_kingdom()[0]["ts"])
    heard(envoy, slack)
    (event,) = all_of(home, "events", "pending")
    assert (event["type"], event["payload"]["reply_context"]) == ("slack.thread.reply", WAY_BACK)
    assert "task_id" not in event["payload"]


def test_for_an_hour_people_go_on_with_what_has_ended_and_are_then_told_that_nobody_listens(
    home: Path, envoy: Envoy, clock: Clock, slack: Slack
) -> None:
    begin_thread(home)
    done = {"task_id": TASK, "code": "completed", "context": {"reply_context": WAY_BACK}}
    put(home, "messages", "pending", **message("msg-2", **done))
    sent(home, envoy, "msg-1", "msg-2")
    thread = slack.from_kingdom()[0]["ts"]
    for number in (1, 2):
        clock.pass_(3000)
        slack.say(f"and this? {number}", channel=GENERAL, thread_ts=thread)
        heard(envoy, slack)
    events = all_of(home, "events", "pending")
    assert [event["type"] for event in events] == ["slack.thread.reply"] * 2
    assert {event["payload"]["reply_context"]["session_id"] for event in events} == {"s-1"}
    clock.pass_(3601)
    for _ in range(3):
        slack.say("anybody?", channel=GENERAL, thread_ts=thread)
    heard(envoy, slack)
    envoy.job.turn(None)
    turn_until(envoy, lambda: len(slack.from_kingdom()) == 3 and not here(home, "messages", "pending"), "they are told")
    assert "this conversation has ended" in texts(slack)[-1]
    assert slack.from_kingdom()[-1]["thread_ts"] == thread
    assert len(all_of(home, "events", "pending")) == 2


def test_a_newer_kings_reply_opens_a_conversation(home: Path, envoy: Envoy, clock: Clock, slack: Slack) -> None:
    asked_in = {"source": "slack", "channel": "C0GENERAL", "message_ts": "1.2"}
    where = {"channel": "C0GENERAL", "thread_ts": "1.2", "source_ref": asked_in, "task_id": TASK}
    tracked = {"reply_context": WAY_BACK, "ttl_seconds": 60}
    put(home, "messages", "pending", **message("msg-1", "thread_reply", track_conversation=tracked, **where))
    sent(home, envoy, "msg-1")
    rows = read_json(Places(home).own("envoy") / "conversation-threads.json")
    assert rows["1.2"].items() >= {"task_id": TASK, "channel": "C0GENERAL", "reply_context": WAY_BACK}.items()
    slack.say("go on", thread_ts="1.2")
    heard(envoy, slack)
    assert [event["type"] for event in all_of(home, "events", "pending")] == ["slack.thread.reply"]
    clock.pass_(61)
    slack.say("too late", thread_ts="1.2")
    heard(envoy, slack)
    assert len(all_of(home, "events", "pending")) == 1


# Who is heard


@pytest.mark.parametrize(
    ("config", "said", "is_heard"),
    [
        ({}, {}, True),
        ({"people": []}, {}, False),
        ({"people": ["*"]}, {"user": "U0BEN"}, True),
        ({}, {"user": "U0BEN"}, False),
        ({"channels": ["C0KINGDOM"]}, {}, False),
        ({"channels": ["C0GENERAL"]}, {}, True),
        ({"teams": ["T0OTHER"]}, {}, False),
        ({}, {"team": "T0OTHER"}, False),
        ({}, {"user_team": "T0OTHER"}, False),
        ({}, {"ts": "../../etc"}, False),
        ({}, {"thread_ts": "x"}, False),
        ({}, {"channel": "C1/.."}, False),
        ({}, {"user": None}, False),
        ({}, {"user": 5}, False),
    ],
)
def test_only_who_is_listed_is_heard(
    home: Path, begin: Callable[..., Envoy], slack: Slack, config: dict[str, Any], said: dict[str, Any], is_heard: bool
) -> None:
    envoy = begin(**config)
    slack.say(f"<@{BOT_USER}> hello", **said)
    heard(envoy, slack)
    assert bool(here(home, "events", "pending")) is is_heard


def test_what_another_team_delivers_and_what_is_forged_leads_to_nothing(home: Path, envoy: Envoy, slack: Slack) -> None:
    ask(home, envoy, "[question] Where to?\n- staging\n- production")
    thread = slack.from_kingdom()[0]["ts"]
    said = {"type": "message", "channel": GENERAL, "user": "U0ANN", "text": "staging", "ts": "9.9", "thread_ts": thread}
    slack.deliver_event(said, team="T0EVIL")
    slack.press(slack.from_kingdom()[1]["ts"], "staging", team="T0EVIL")
    slack.press(slack.from_kingdom()[1]["ts"], "staging", user="U0EVIL")
    for payload in ({}, {"event": []}, {"event": {"type": "message"}}, {"type": "block_actions"}, {"team_id": 5}):
        slack.deliver("events_api", payload)
        slack.deliver("interactive", payload)
    slack.deliver("slash_commands", {"text": "drop it"})
    heard(envoy, slack)
    assert here(home, "events", "pending") == []


def test_what_is_delivered_again_or_out_of_order_is_one_event(home: Path, envoy: Envoy, slack: Slack) -> None:
    event = {"type": "message", "channel_type": "im", "channel": "D0ANN", "user": "U0ANN", "text": "hi"}
    for ts in ("3.1", "1.1", "2.1", "1.1", "3.1", "1.1"):
        slack.deliver_event({**event, "ts": ts})
    heard(envoy, slack)
    assert here(home, "events", "pending") == [f"evt-slack-msg-{n}-1" for n in (1, 2, 3)]


def test_a_dead_line_is_left_also_when_the_wall_clock_stands_still(
    home: Path, envoy: Envoy, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack's library would not see it: it measures silence by the clock that may be set back."""
    monkeypatch.setattr(connection, "time", SimpleNamespace(time=lambda: 0.0))
    slack.deaf = True
    ts = slack.say("hello", channel="D0ANN")
    turn_until(envoy, lambda: slack.lines > 1, "the envoy has another line")
    slack.deaf = False
    heard(envoy, slack)
    assert here(home, "events", "pending") == [f"evt-slack-msg-{ts.replace('.', '-')}"]


def test_it_is_acknowledged_when_its_event_is_safe_and_not_before(home: Path, envoy: Envoy, slack: Slack) -> None:
    pending = Places(home).folder("events", "pending")
    pending.rename(pending.with_name("gone"))
    slack.say("hello", channel="D0ANN")
    with pytest.raises(OSError, match="No such file"):
        turn_until(envoy, lambda: False, "it fails")
    assert len(slack.unacknowledged()) == 1
    pending.with_name("gone").rename(pending)
    heard(envoy, slack)
    assert len(here(home, "events", "pending")) == 1


@pytest.mark.parametrize(("seconds", "is_told"), [(8.0, False), (10.2, True)])
def test_a_line_that_is_renewed_within_ten_seconds_is_nobodys_business(
    envoy: Envoy, slack: Slack, seconds: float, is_told: bool
) -> None:
    turn_until(envoy, lambda: slack.lines, "it listens")
    channel = envoy.job._channels.get("slack")
    assert isinstance(channel, SlackChannel)
    channel._line.down_since = time.monotonic() - seconds
    with pytest.raises(ChannelDown) if is_told else nullcontext():
        assert channel.read() == []


# Reminders


def test_people_are_reminded_every_day_and_after_a_week_the_owner_is_told(
    home: Path, envoy: Envoy, clock: Clock, slack: Slack
) -> None:
    ask(home, envoy, content=f"[question] Which one? {'x' * 300}")
    thread = slack.from_kingdom()[0]["ts"]
    for _ in range(8):
        clock.pass_(86_400)
        for _ in range(3):
            envoy.job.turn(None)
        turn_until(envoy, lambda: not here(home, "messages", "pending"), "all is sent")
    reminders = [post for post in slack.from_kingdom() if post["text"].startswith("[reminder]")]
    assert [post["thread_ts"] for post in reminders] == [thread] * 8
    assert "has waited for an answer for 8 days: Which one? " in reminders[-1]["text"]
    assert len(reminders[-1]["text"].partition("8 days: ")[2]) == 300, "of a long one its beginning"
    alerts = [post for post in slack.from_kingdom() if post["text"].startswith("[alert]")]
    assert [post.get("thread_ts") for post in alerts] == [None]
    assert f"the question of {TASK} has waited for an answer for 7 days" in alerts[0]["text"]


def test_a_question_of_another_envoy_is_waited_for_in_slack(home: Path, slack: Slack, clock: Clock) -> None:
    own = Places(home).own("envoy")
    own.mkdir(parents=True)
    asked = {"task_id": TASK, "thread_ts": "5.5", "channel": GENERAL, "asked_at": "2026-02-07T09:00:00Z"}
    (own / "awaiting-responses.json").write_text(json.dumps([{**asked, "reply_context": {"task_id": TASK}}]))
    write(own / "thread-mappings.json", {TASK: {"thread_ts": "5.5", "channel": GENERAL}})
    envoy = listening(slack_envoy(home, clock, slack), slack)
    clock.pass_(86_400)
    envoy.job.turn(None)
    turn_until(envoy, lambda: not here(home, "messages", "pending"), "people are reminded")
    (reminder,) = slack.from_kingdom()
    assert reminder["text"] == "[reminder] this question has waited for an answer for 1 day"
    slack.say("yes", channel=GENERAL, thread_ts="5.5")
    heard(envoy, slack)
    (event,) = all_of(home, "events", "pending")
    assert (event["type"], event["payload"]["human_response"]) == ("slack.human_response", "yes")
    envoy.job.close()


def test_people_are_told_elsewhere_and_once_that_slack_does_not_take_our_token(
    home: Path, envoy: Envoy, clock: Clock, slack: Slack
) -> None:
    for number in (1, 2):
        slack.fail("chat.postMessage", error="token_revoked", times=2)
        put(home, "messages", "pending", **message(f"msg-{number}"))
        sent(home, envoy, f"msg-{number}")
        envoy.job.turn(None)
        clock.pass_(60)
    alerts = [message for message in all_of(home, "messages", "sent") if message.get("code") == "alert"]
    assert [alert["posted"]["channel"] for alert in alerts] == ["console"] * 2, "one for each time that it began"
    assert "slack does not take our token: token_revoked; `kingdom connect slack` takes new" in alerts[0]["content"]
    assert len(slack.from_kingdom()) == 2, "nothing of it in Slack"
