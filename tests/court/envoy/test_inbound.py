"""What people say on a channel becomes one event, whatever is delivered again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import schemas
from kingdom.base.home.places import Places
from kingdom.base.runtime.role import Services
from kingdom.court.envoy.channels import Channels
from kingdom.court.envoy.channels.base import IN_THREAD, Heard
from kingdom.court.envoy.inbound import AT_WORK
from kingdom.court.envoy.job import EnvoyJob
from tests.court.envoy import pigeon
from tests.court.envoy.envoys import TASK, Envoy, settle
from tests.fixtures import Clock, all_of, founded, here, message, put, services
from tests.waiting import wait_until

SOON = 20.0
HELLO = Heard(id="1770458400.000100", type="channel.message", user="U1", text="brief me ⚔", room="C1")


@pytest.fixture
def loft(home: Path) -> Path:
    return pigeon.loft(founded(home).own("envoy") / "pigeon")


def listening(given: Services) -> Services:
    return replace(given, config={**given.config, "pigeon": {}})


@pytest.fixture
def envoy(home: Path, clock: Clock, loft: Path) -> Envoy:
    given = listening(services(home, "envoy", clock))
    return Envoy(given, EnvoyJob(given))


def log(home: Path) -> str:
    return Places(home).role_log("envoy").read_text()


def test_what_a_person_says_becomes_an_event_and_is_acknowledged(
    home: Path, clock: Clock, envoy: Envoy, loft: Path
) -> None:
    pigeon.say(loft, HELLO)
    settle(home, clock, envoy)
    (event,) = all_of(home, "events", "pending")
    assert schemas.check("event", event)
    assert (event["id"], event["type"]) == ("evt-pigeon-msg-1770458400-000100", "pigeon.channel.message")
    assert (event["source"], event["priority"]) == ("pigeon", "normal")
    assert event["payload"] == {
        "user_id": "U1",
        "user": "U1",
        "text": "brief me ⚔",
        "channel": "C1",
        "message_ts": "1770458400.000100",
    }
    assert list((loft / "said").iterdir()) == []
    assert "evt-pigeon-msg-1770458400-000100" in log(home)


@pytest.mark.parametrize(
    ("said", "id"),
    [
        (HELLO._replace(type="app_mention"), "evt-pigeon-mention-1770458400-000100"),
        (HELLO._replace(thread="17.1"), "evt-pigeon-reply-17-1-1770458400-000100"),
        (HELLO._replace(id="a~b"), "evt-pigeon-msg-a+7e+b"),
    ],
)
def test_the_id_of_an_event_is_made_of_the_channels(
    home: Path, clock: Clock, envoy: Envoy, loft: Path, said: Heard, id: str
) -> None:
    pigeon.say(loft, said)
    settle(home, clock, envoy)
    assert here(home, "events", "pending") == [id]


@pytest.mark.parametrize("state", ["pending", "dispatched", "completed", "dead"])
def test_what_is_delivered_again_is_acknowledged_and_no_new_event(
    home: Path, clock: Clock, envoy: Envoy, loft: Path, state: str
) -> None:
    pigeon.say(loft, HELLO)
    settle(home, clock, envoy)
    pending = Places(home).folder("events", "pending") / "evt-pigeon-msg-1770458400-000100.json"
    pending.rename(Places(home).folder("events", state) / pending.name)
    pigeon.say(loft, HELLO)
    settle(home, clock, envoy)
    assert sum(len(here(home, "events", known)) for known in ("pending", "dispatched", "completed", "dead")) == 1
    assert list((loft / "said").iterdir()) == []


def ask(home: Path, name: str, task: str, **words: str) -> dict[str, Any]:
    """A question of a task on the pigeon, in the thread of TASK."""
    way_back = {"general": "gen-pr", "task_id": task, "thread_task_id": TASK}
    context = {"checkpoint_path": "x", "reply_context": way_back}
    fields = {"channel": "C1", "source_ref": {"source": "pigeon"}, "context": context, **words}
    put(home, "messages", "pending", **message(name, "human_input_request", task_id=TASK, **fields))
    return way_back


def test_a_reply_in_the_thread_of_a_question_answers_it(home: Path, clock: Clock, envoy: Envoy, loft: Path) -> None:
    source = {"source": "pigeon"}
    put(home, "messages", "pending", **message("msg-1", "thread_start", task_id=TASK, channel="C1", source_ref=source))
    way_back = ask(home, "msg-2", TASK)
    settle(home, clock, envoy)
    pigeon.say(loft, HELLO._replace(text="yes", thread="post-msg-1"))
    pigeon.say(loft, HELLO._replace(id="2", text="elsewhere", thread="post-msg-9"))
    pigeon.say(loft, HELLO._replace(id="3", text="another room", thread="post-msg-1", room="C2"))
    settle(home, clock, envoy)
    events = {event["payload"]["text"]: event for event in all_of(home, "events", "pending")}
    assert (events["yes"]["type"], events["yes"]["priority"]) == ("pigeon.human_response", "high")
    assert events["yes"]["payload"]["task_id"] == TASK
    assert events["yes"]["payload"]["human_response"] == "yes"
    assert events["yes"]["payload"]["reply_context"] == way_back
    assert {events[text]["type"] for text in ("elsewhere", "another room")} == {"pigeon.channel.message"}
    assert '"message.human_response"' in Places(home).events_log.read_text()


QUESTION = "[question] Push it?\n- Yes, push\n- No, open a pull request"


def resumed(home: Path, clock: Clock, envoy: Envoy) -> dict[str, Any]:
    """Let TASK ask with choices on the pigeon, and have its answer. Return the way back to it."""
    source = {"source": "pigeon"}
    put(home, "messages", "pending", **message("msg-1", "thread_start", task_id=TASK, channel="C1", source_ref=source))
    way_back = ask(home, "msg-2", TASK, content=QUESTION)
    settle(home, clock, envoy)
    put(home, "messages", "pending", **message("msg-3", "thread_update", task_id=TASK, context={"answers": TASK}))
    settle(home, clock, envoy)
    return way_back


def ended(home: Path, clock: Clock, envoy: Envoy, task: str) -> dict[str, Any]:
    """Let the task that an answer became end, and return the context of replies to it."""
    context = {"general": "gen-pr", "task_id": task, "thread_task_id": TASK}
    put(home, "messages", "pending", **message("msg-4", task_id=TASK, context={"reply_context": context}))
    settle(home, clock, envoy)
    return context


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("has_ended", [False, True])
def test_another_choice_of_a_question_that_has_its_answer_is_another_answer_to_it_at_any_time(
    home: Path, clock: Clock, envoy: Envoy, loft: Path, has_ended: bool, again: bool
) -> None:
    way_back = resumed(home, clock, envoy)
    if has_ended:
        ended(home, clock, envoy, "task-20260207-002")
    if again:
        envoy.job.close()
        envoy = Envoy(envoy.services, EnvoyJob(envoy.services))
    pigeon.say(loft, HELLO._replace(type=IN_THREAD, text="no,  open a pull request", thread="post-msg-1"))
    settle(home, clock, envoy)
    [event] = all_of(home, "events", "pending")
    assert (event["type"], event["payload"]["task_id"]) == ("pigeon.human_response", TASK)
    assert event["payload"]["reply_context"] == way_back
    assert here(home, "messages", "pending") == []


def test_other_words_after_the_end_go_on_with_the_conversation(
    home: Path, clock: Clock, envoy: Envoy, loft: Path
) -> None:
    resumed(home, clock, envoy)
    context = ended(home, clock, envoy, "task-20260207-002")
    pigeon.say(loft, HELLO._replace(type=IN_THREAD, text="Yes, push. And tag it", thread="post-msg-1"))
    settle(home, clock, envoy)
    [event] = all_of(home, "events", "pending")
    assert (event["type"], event["payload"]["reply_context"]) == ("pigeon.thread.reply", context)


def test_while_a_task_is_at_work_each_reply_is_told_that_it_was_not_passed_on(
    home: Path, clock: Clock, envoy: Envoy, loft: Path
) -> None:
    resumed(home, clock, envoy)
    for id in ("1", "2"):
        pigeon.say(loft, HELLO._replace(id=id, type=IN_THREAD, text="be quick", thread="post-msg-1"))
        settle(home, clock, envoy)
    told = [(post["thread"], post["text"]) for post in pigeon.posts(loft)[-2:]]
    assert told == [("post-msg-1", AT_WORK)] * 2
    ended(home, clock, envoy, "task-20260207-002")
    pigeon.say(loft, HELLO._replace(id="2", type=IN_THREAD, text="be quick", thread="post-msg-1"))
    settle(home, clock, envoy)
    assert all_of(home, "events", "pending") == [], "delivered again, it stays as it was told"
    assert len(pigeon.posts(loft)) == 6


def test_who_replies_after_the_end_of_a_conversation_is_told_once_where_a_new_one_begins(
    home: Path, clock: Clock, envoy: Envoy, loft: Path
) -> None:
    resumed(home, clock, envoy)
    ended(home, clock, envoy, "task-20260207-002")
    clock.pass_(2 * 3600)
    before = len(pigeon.posts(loft))
    for id in ("1", "2"):
        pigeon.say(loft, HELLO._replace(id=id, type=IN_THREAD, text="more", thread="post-msg-1"))
        settle(home, clock, envoy)
    told = [post["text"] for post in pigeon.posts(loft)[before:]]
    assert told == ["this conversation has ended; write a new message outside this thread"]


def test_a_reply_answers_the_latest_question_of_its_thread(home: Path, clock: Clock, envoy: Envoy, loft: Path) -> None:
    source = {"source": "pigeon"}
    put(home, "messages", "pending", **message("msg-1", "thread_start", task_id=TASK, channel="C1", source_ref=source))
    for number in (3, 2):
        ask(home, f"msg-{number}", f"task-20260207-00{number}")
        settle(home, clock, envoy)
        clock.pass_(60)
    pigeon.say(loft, HELLO._replace(thread="post-msg-1"))
    settle(home, clock, envoy)
    (event,) = all_of(home, "events", "pending")
    assert event["payload"]["task_id"] == "task-20260207-002"


def test_what_cannot_be_written_as_it_is_does_not_stop_the_envoy(
    home: Path, clock: Clock, envoy: Envoy, loft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered = [[HELLO._replace(text="half \ud83d")], []]
    monkeypatch.setattr(pigeon.Pigeon, "read", lambda _: delivered.pop(0))
    monkeypatch.setattr(pigeon.Pigeon, "acknowledge", lambda _self, _said: None)
    settle(home, clock, envoy)
    (event,) = all_of(home, "events", "pending")
    assert event["payload"]["text"] == "half ?"


def test_a_channel_that_is_down_is_logged_once_and_holds_nobody_up(
    home: Path, clock: Clock, envoy: Envoy, loft: Path
) -> None:
    (loft / "gone").touch()
    pigeon.say(loft, HELLO)
    put(home, "messages", "pending", **message())
    for _ in range(3):
        settle(home, clock, envoy)
    assert log(home).count("the loft cannot be reached: the pigeons are out") == 1
    assert (here(home, "messages", "sent"), here(home, "events", "pending")) == (["msg-1"], [])
    (loft / "gone").unlink()
    settle(home, clock, envoy)
    assert len(here(home, "events", "pending")) == 1


def test_a_channel_that_does_not_take_our_token_is_told_of_elsewhere_once_until_it_does(
    home: Path, clock: Clock, envoy: Envoy, loft: Path
) -> None:
    for told in (1, 1, 2):
        (loft / "locked").touch()
        settle(home, clock, envoy)
        assert len(here(home, "messages", "sent")) == told
        clock.pass_(60)
        if told == 1 and (loft / "again").exists():
            (loft / "locked").unlink()
            settle(home, clock, envoy)
        (loft / "again").touch()
    assert log(home).count("pigeon can be read again") == 1


def test_a_channel_that_is_not_switched_on_is_not_listened_to(home: Path, clock: Clock, loft: Path) -> None:
    pigeon.say(loft, HELLO)
    settle(home, clock)
    assert here(home, "events", "pending") == []


def test_a_channel_works_with_its_kit(home: Path, clock: Clock) -> None:
    given = services(home, "envoy", clock)
    given = replace(given, config={**given.config, "pigeon": {"loft": 3}}, secrets={"PIGEON_TOKEN": "x"})
    kit = Channels(given)._kit("pigeon")
    assert (kit.config, kit.secrets, kit.folder) == (
        {"loft": 3},
        {"PIGEON_TOKEN": "x"},
        given.places.own("envoy") / "pigeon",
    )
    assert "PIGEON_TOKEN" not in repr(kit)


def test_the_folders_of_a_channel_wake_the_envoy(envoy: Envoy, loft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pigeon.Pigeon, "folders", lambda _: (loft / "said",))
    assert list(envoy.job.folders()) == [envoy.services.places.folder("messages", "pending"), loft / "said"]


def test_new_configuration_opens_the_channels_anew(home: Path, clock: Clock, envoy: Envoy, loft: Path) -> None:
    settle(home, clock, envoy)
    gc.collect()  # else what earlier tests have left open may be closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        envoy.job.reload(envoy.services)
        pigeon.say(loft, HELLO)
        settle(home, clock, envoy)
    assert len(here(home, "events", "pending")) == 1
    assert len(os.listdir("/proc/self/fd")) <= before


ENVOY = """
from dataclasses import replace
from kingdom.court.envoy.channels import CHANNELS
from kingdom.court.envoy.job import EnvoyJob
from kingdom.base.runtime import role

CHANNELS["pigeon"] = "tests.court.envoy.pigeon:Pigeon"

def build(services):
    return EnvoyJob(replace(services, config={**services.config, "pigeon": {}}))

raise SystemExit(role.run(role.RoleSpec("envoy", "envoy"), build))
"""
"""It looks by itself after ten minutes: what happens sooner, happens because it was woken."""


@pytest.fixture
def start(home: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        tree = str(Path(__file__).resolve().parent.parent.parent.parent)
        env = {**os.environ, "KINGDOM_HOME": str(home), "PYTHONPATH": tree}
        started.append(subprocess.Popen([sys.executable, "-c", ENVOY], env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("wake", ["inotify", "poll"])
def test_it_wakes_at_once_and_a_kill_before_the_acknowledgement_doubles_nothing(
    home: Path, loft: Path, start: Callable[[], subprocess.Popen[bytes]], wake: str
) -> None:
    places = founded(home, envoy={"intervals": {"message_check_seconds": 600}}, system={"wake": wake})

    def started() -> subprocess.Popen[bytes]:
        envoy = start()
        heartbeat = places.heartbeat("envoy")
        awake = f'"pid": {envoy.pid},'
        wait_until(
            lambda: heartbeat.exists() and awake in (text := heartbeat.read_text()) and '"idle"' in text,
            SOON,
            "an envoy at rest",
        )
        return envoy

    envoy = started()
    (loft / "deadly").touch()
    pigeon.say(loft, HELLO)
    assert envoy.wait(SOON) == -9
    assert len(here(home, "events", "pending")) == 1, "it is safe before it is acknowledged"
    assert len(list((loft / "said").iterdir())) == 1
    (loft / "deadly").unlink()
    started()
    assert len(here(home, "events", "pending")) == 1, "it was delivered again, and is the same event"
    assert list((loft / "said").iterdir()) == []
    pigeon.say(loft, HELLO._replace(id="2"))
    wait_until(lambda: len(here(home, "events", "pending")) == 2, SOON, "the second event")
    put(home, "messages", "pending", **message("msg-1", channel="C1", source_ref={"source": "pigeon"}))
    if wake == "inotify":
        wait_until(lambda: here(home, "messages", "sent") == ["msg-1"], SOON, "it speaks, too")
        assert pigeon.posts(loft)[0]["room"] == "C1"
