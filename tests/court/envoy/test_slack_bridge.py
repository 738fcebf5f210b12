"""Slack by way of an existing bridge: files in the shapes that it reads and writes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.court.envoy.job import EnvoyJob
from tests.court.envoy.envoys import TASK, Envoy, settle, threads, traces
from tests.court.envoy.slacks import turn_until
from tests.fixtures import Clock, all_of, here, message, put, read, services, write

HEARD = {"type": "message", "channel": "D0ANN", "user_id": "U0ANN", "text": "brief me", "thread_ts": None}


class Bridge:
    """The other program, as far as its files go."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "state" / "slack-bridge"
        self.done: list[dict[str, Any]] = []

    def live(self) -> None:
        (self.folder / "bridge-health").touch()

    def work(self, **answer: Any) -> None:
        """Do what lies in the outbox."""
        for path in sorted((self.folder / "outbox").glob("*.json")):
            errand = json.loads(path.read_text())
            self.done.append(errand)
            said = {"ok": True, "ts": f"{len(self.done)}.5", "channel": "C0KINGDOM", "error": None, **answer}
            write(self.folder / "outbox-results" / path.name, {"msg_id": errand["msg_id"], **said})
            path.unlink()

    def take(self) -> list[dict[str, Any]]:
        """Take what lies in the outbox, and answer later."""
        paths = sorted((self.folder / "outbox").glob("*.json"))
        taken = [json.loads(path.read_text()) for path in paths]
        for path in paths:
            path.unlink()
        return taken

    def answer(self, errand: dict[str, Any]) -> None:
        done = {"msg_id": errand["msg_id"], "ok": True, "ts": "8.8", "channel": "C0KINGDOM", "error": None}
        write(self.folder / "outbox-results" / f"{errand['msg_id']}.json", done)

    def hear(self, ts: str, **fields: Any) -> None:
        said = {**HEARD, "ts": ts, "event_ts": ts, **fields}
        write(self.folder / "socket-inbox" / f"{ts.replace('.', '-')}-{said['type']}.json", said)


@pytest.fixture
def envoy(home: Path, clock: Clock) -> Iterator[Envoy]:
    part = {"transport": "bridge", "people": ["U0ANN"], "seconds_between_posts": 0, "call_seconds": 0.3}
    given = services(home, "envoy", clock, envoy={"slack": part, "retry": {"backoff_seconds": 0}})
    envoy = Envoy(given, EnvoyJob(given))
    envoy.job.turn(None)
    yield envoy
    envoy.job.close()


@pytest.fixture
def bridge(home: Path, envoy: Envoy) -> Bridge:
    bridge = Bridge(home)
    bridge.live()
    return bridge


def sent(home: Path, envoy: Envoy, bridge: Bridge, *names: str, **answer: Any) -> None:
    envoy.job.turn(None)
    turn_until(envoy, lambda: bridge.work(**answer) or set(names) <= set(here(home, "messages", "sent")), "sent")


def test_messages_replies_and_reactions_pass_through_the_outbox(home: Path, envoy: Envoy, bridge: Bridge) -> None:
    put(home, "messages", "pending", **message("msg-1", "thread_start", task_id=TASK, code="started"))
    put(home, "messages", "pending", **message("msg-2", task_id=TASK, code="completed", content="<done>"))
    sent(home, envoy, bridge, "msg-1", "msg-2")
    posts = [errand for errand in bridge.done if errand["action"].startswith("send")]
    assert [(errand["msg_id"], errand["action"], errand["thread_ts"]) for errand in posts] == [
        ("msg-1-send_message", "send_message", None),
        ("msg-2-send_reply", "send_reply", read(home, "messages", "sent", "msg-1")["posted"]["post"]),
    ]
    assert [errand["text"] for errand in posts] == ["content of msg-1", "&lt;done&gt;"]
    assert {errand["channel"] for errand in posts} == {"kingdom", "C0KINGDOM"}
    assert threads(home) == {}
    turn_until(envoy, lambda: bridge.work() or len(bridge.done) == 5, "the reactions are there")
    reactions = [(errand["action"], errand["emoji"]) for errand in bridge.done if "reaction" in errand["action"]]
    assert sorted(reactions) == [
        ("add_reaction", "eyes"),
        ("add_reaction", "white_check_mark"),
        ("remove_reaction", "eyes"),
    ]
    assert traces(home) == []


def log(home: Path) -> str:
    path = Places(home).role_log("envoy")
    return path.read_text() if path.exists() else ""


def test_an_answer_that_comes_late_is_waited_for_and_nothing_is_posted_twice(
    home: Path, clock: Clock, envoy: Envoy, bridge: Bridge
) -> None:
    put(home, "messages", "pending", **message("msg-1"))
    taken: list[dict[str, Any]] = []

    def tried_again() -> bool:
        envoy.job.turn(None)
        bridge.live()
        taken.extend(bridge.take())
        return "its bridge has not answered" in log(home)

    turn_until(envoy, tried_again, "the envoy has given up waiting once")
    reborn = Envoy(envoy.services, EnvoyJob(envoy.services))
    until = time.monotonic() + 2
    turn_until(reborn, lambda: tried_again() and time.monotonic() > until, "it has tried again, in its next life too")
    assert [errand["msg_id"] for errand in taken] == ["msg-1-send_message"]
    bridge.answer(taken[0])
    turn_until(reborn, lambda: bridge.live() or here(home, "messages", "sent") == ["msg-1"], "it is sent")
    reborn.job.close()
    assert read(home, "messages", "sent", "msg-1")["posted"]["post"] == "8.8"


def test_a_bridge_that_was_away_is_given_again_what_it_had_taken(home: Path, envoy: Envoy, bridge: Bridge) -> None:
    put(home, "messages", "pending", **message("msg-1"))
    turn_until(envoy, lambda: envoy.job.turn(None) and bridge.take(), "it has taken it")
    os.utime(bridge.folder / "bridge-health", (1, 1))
    turn_until(envoy, lambda: "has not reported" in log(home), "it says so")
    bridge.live()
    sent(home, envoy, bridge, "msg-1")


def test_a_result_is_a_receipt_for_an_envoy_that_was_killed_before_it_had_its_own(
    home: Path, clock: Clock, envoy: Envoy, bridge: Bridge
) -> None:
    write(Places(home).own("envoy") / "intents" / "msg-1.json", {"letter": "msg-1", "since": "2026-02-07T10:00:00Z"})
    done = {"msg_id": "msg-1-send_message", "ok": True, "ts": "7.7", "channel": "C0KINGDOM", "error": None}
    write(bridge.folder / "outbox-results" / "msg-1-send_message.json", done)
    put(home, "messages", "pending", **message("msg-1"))
    envoy.job.reload(envoy.services)
    sent(home, envoy, bridge, "msg-1")
    assert bridge.done == []
    assert read(home, "messages", "sent", "msg-1")["posted"]["post"] == "7.7"


def test_what_the_bridge_hears_becomes_events_and_its_files_go(home: Path, envoy: Envoy, bridge: Bridge) -> None:
    bridge.hear("1.1")
    bridge.hear("2.1", type="app_mention", channel="C0GENERAL", text="<@U0BOT> review")
    bridge.hear("3.1", type="thread_reply", channel="C0GENERAL", thread_ts="9.9", text="to somebody else")
    bridge.hear("4.1", user_id="U0EVIL")
    settle(home, Clock(), envoy)
    assert here(home, "events", "pending") == ["evt-slack-mention-2-1", "evt-slack-msg-1-1"]
    assert [event["payload"]["text"] for event in all_of(home, "events", "pending")] == ["review", "brief me"]
    assert os.listdir(bridge.folder / "socket-inbox") == []


@pytest.mark.parametrize("content", [b"{half", b"[]", b'{"type": 5}', b"", b'{"ts": {}}'])
def test_a_file_that_cannot_be_read_holds_nobody_up(home: Path, envoy: Envoy, bridge: Bridge, content: bytes) -> None:
    (bridge.folder / "socket-inbox" / "0-message.json").write_bytes(content)
    bridge.hear("1.1")
    settle(home, Clock(), envoy)
    assert here(home, "events", "pending") == ["evt-slack-msg-1-1"]
    assert os.listdir(bridge.folder / "socket-inbox") == []


def test_a_bridge_that_gives_no_sign_of_life_loses_nothing(home: Path, envoy: Envoy, bridge: Bridge) -> None:
    os.utime(bridge.folder / "bridge-health", (1, 1))
    put(home, "messages", "pending", **message("msg-1"))
    turn_until(envoy, lambda: "has not reported" in log(home), "it says so")
    assert (here(home, "messages", "pending"), os.listdir(bridge.folder / "outbox")) == (["msg-1"], [])
    bridge.live()
    sent(home, envoy, bridge, "msg-1")
    assert [errand["msg_id"] for errand in bridge.done if "send" in errand["action"]] == ["msg-1-send_message"]


@pytest.mark.parametrize(("age", "is_silent"), [(15.0, False), (30.2, True)])
def test_a_bridge_has_half_a_minute_to_give_a_sign_of_life(
    home: Path, envoy: Envoy, bridge: Bridge, age: float, is_silent: bool
) -> None:
    os.utime(bridge.folder / "bridge-health", (time.time() - age,) * 2)
    envoy.job.turn({})
    envoy.services.log.flush()
    assert ("has not reported" in log(home)) == is_silent


def test_what_slack_refuses_the_bridge_is_filed_with_the_reason(home: Path, envoy: Envoy, bridge: Bridge) -> None:
    put(home, "messages", "pending", **message("msg-1"))

    def given_up() -> object:
        envoy.job.turn(None)
        bridge.work(ok=False, error="not_in_channel")
        return here(home, "messages", "failed")

    turn_until(envoy, given_up, "it is given up")
    assert "invite the app there" in read(home, "messages", "failed", "msg-1")["refused_because"]


def test_a_bridge_outside_of_the_home_is_refused(home: Path, clock: Clock) -> None:
    part = {"transport": "bridge", "bridge_folder": "../elsewhere"}
    given = services(home, "envoy", clock, envoy={"slack": part})
    settle(home, clock, Envoy(given, EnvoyJob(given)))
    assert "lies outside the home" in Places(home).role_log("envoy").read_text()
    assert not (home.parent / "elsewhere").exists()
