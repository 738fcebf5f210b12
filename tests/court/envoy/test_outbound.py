"""Every message is posted once, the most urgent first, whatever was interrupted before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.court.envoy.channels import Channels
from kingdom.court.envoy.channels.base import PostDraft
from kingdom.court.envoy.job import EnvoyJob
from tests import syncs
from tests.court.envoy import grumpy
from tests.court.envoy.envoys import TASK, open_thread, posted, settle, threads, traces, transcript, turn
from tests.fixtures import MORNING, Clock, here, message, put, read, services, write


def test_without_a_word_of_arrivals_it_looks_by_itself_in_time(home: Path, clock: Clock) -> None:
    monotonic = Clock()
    given = replace(
        services(home, "envoy", clock, envoy={"intervals": {"message_check_seconds": 7}}), monotonic=monotonic
    )
    job = EnvoyJob(given)
    assert job.turn({}).wait == 7
    put(home, "messages", "pending", **message("msg-1"))
    monotonic.pass_(6)
    assert not job.turn({}).worked
    monotonic.pass_(1)
    assert job.turn({}).worked
    assert posted(home) == ["msg-1"]


def test_a_message_is_posted_and_filed_with_its_address(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message(channel="dev-eddy", colour="blue"))
    settle(home, clock)
    (line,) = transcript(home)
    assert (line["letter"], line["room"], line["text"]) == ("msg-1", "dev-eddy", "content of msg-1")
    filed = read(home, "messages", "sent", "msg-1")
    assert (filed["status"], filed["colour"]) == ("sent", "blue")
    assert filed["posted"] == {"channel": "console", "room": "dev-eddy", "post": line["ts"], "thread": None}
    assert (here(home, "messages", "pending"), traces(home)) == ([], [])


@pytest.mark.parametrize("channel", ["slack", "webhook", "email"])
def test_what_belongs_on_a_channel_that_is_not_set_up_is_posted_on_the_default_one(
    channel: str, home: Path, clock: Clock
) -> None:
    """As when its part was taken out of envoy.yaml, or when an event says that it came from there."""
    services(home, "envoy", clock)
    mapped = {"thread_ts": "1.2", "channel": "C1", "on": channel}
    write(Places(home).own("envoy") / "thread-mappings.json", {TASK: mapped})
    asked_there = {"source": channel, "channel": "C1", "thread_ts": "1.2"}
    put(home, "messages", "pending", **message("msg-1", source_ref=asked_there, thread_ts="1.2", channel="C1"))
    put(home, "messages", "pending", **message("msg-2", type="thread_update", task_id=TASK))
    settle(home, clock)
    assert posted(home) == ["msg-1", "msg-2"]
    assert read(home, "messages", "sent", "msg-1")["posted"]["channel"] == "console"
    assert read(home, "messages", "sent", "msg-2")["posted"]["thread"] is None


def test_the_most_urgent_is_posted_first(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message("msg-4", created_at="2026-01-01T00:00:00Z"))
    put(home, "messages", "pending", **message("msg-5"))
    put(home, "messages", "pending", **message("msg-20"))
    put(home, "messages", "pending", **message("msg-2", urgency="high"))
    put(home, "messages", "pending", **message("msg-3", urgency="urgent"))
    settle(home, clock)
    assert posted(home) == ["msg-3", "msg-2", "msg-4", "msg-5", "msg-20"]


def test_more_than_one_batch_keeps_the_order(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    names = [f"msg-{number:03d}" for number in range(70)]
    for name in names:
        put(home, "messages", "pending", **message(name))
    settle(home, clock)
    assert posted(home) == names


def intent(home: Path, name: str = "msg-1") -> None:
    write(Places(home).own("envoy") / "intents" / f"{name}.json", {"letter": name, "since": MORNING})


def post_by_hand(home: Path, clock: Clock, name: str = "msg-1") -> str:
    return Channels(services(home, "envoy", clock)).get("console").post(PostDraft(name, "room", "x")).id


def _posted(home: Path, clock: Clock) -> None:
    intent(home)
    post_by_hand(home, clock)


def _receipt(home: Path, clock: Clock) -> None:
    intent(home)
    ts = post_by_hand(home, clock)
    write(Places(home).own("envoy") / "receipts" / "msg-1.json", {"letter": "msg-1", "post": ts})


INTERRUPTED: dict[str, Callable[[Path, Clock], object]] = {
    "before it was posted": lambda home, clock: intent(home),
    "before the receipt": _posted,
    "on a channel that posts at once": post_by_hand,
    "before it was filed": _receipt,
}


@pytest.mark.parametrize("moment", INTERRUPTED)
@pytest.mark.parametrize("type", ["notification", "thread_start"])
def test_an_envoy_killed_at_any_moment_posts_it_once(home: Path, clock: Clock, moment: str, type: str) -> None:
    services(home, "envoy", clock)
    (Places(home).own("envoy") / "intents").mkdir(parents=True)
    (Places(home).own("envoy") / "receipts").mkdir()
    INTERRUPTED[moment](home, clock)
    put(home, "messages", "pending", **message(type=type, task_id=TASK))
    settle(home, clock)
    assert posted(home) == ["msg-1"]
    assert (here(home, "messages", "sent"), traces(home)) == (["msg-1"], [])
    assert read(home, "messages", "sent", "msg-1")["posted"]["post"] == transcript(home)[0]["ts"]
    if type == "thread_start":
        assert threads(home)[TASK]["thread_ts"] == transcript(home)[0]["ts"]


def test_traces_of_a_message_that_was_filed_are_cleared(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    (Places(home).own("envoy") / "intents").mkdir(parents=True)
    intent(home)
    put(home, "messages", "sent", **message())
    settle(home, clock)
    assert (traces(home), posted(home)) == ([], [])


@pytest.mark.parametrize("broken", ["thread-mappings.json", "sent"])
def test_an_error_after_the_post_does_not_repeat_it(home: Path, clock: Clock, broken: str) -> None:
    """Something unwritable stands in for a full disk; once it is gone the message is filed."""
    envoy = settle(home, clock)
    path = Places(home).folder("messages", "sent") if broken == "sent" else Places(home).own("envoy") / broken
    if broken != "thread-mappings.json":
        path.rmdir()
    else:
        path.mkdir()
    open_thread(home)
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            turn(envoy, turns=2)
    if broken != "thread-mappings.json":
        path.mkdir()
    else:
        path.rmdir()
    settle(home, clock, envoy)
    assert (posted(home), here(home, "messages", "sent")) == (["msg-1"], ["msg-1"])


@pytest.mark.parametrize("place", ["sent", "failed"])
def test_a_message_under_a_used_id_is_set_aside_not_posted_for_ever(home: Path, clock: Clock, place: str) -> None:
    services(home, "envoy", clock)
    put(home, "messages", place, **message(content="the first"))
    put(home, "messages", "pending", **message(content="the first", created_at="2026-02-08T10:00:00Z"))
    envoy = settle(home, clock)
    turn(envoy, turns=3)
    assert (posted(home), here(home, "messages", "dead"), here(home, "messages", "pending")) == ([], ["msg-1"], [])
    reason = read_json(Places(home).folder("messages", "dead") / "msg-1.json.reason")["reason"]
    assert reason == f"{place}/ has a message of this id already"
    assert read(home, "messages", place, "msg-1")["content"] == "the first"


ON_GRUMPY = {"source_ref": {"source": "grumpy"}, "channel": "C1"}


def test_three_refusals_end_in_failed_with_the_reason(home: Path, clock: Clock) -> None:
    envoy = settle(home, clock)
    grumpy.refusals[:] = ["busy", "still busy", "no such room"]
    put(home, "messages", "pending", **message(**ON_GRUMPY))
    tries = []
    for _ in range(4):
        settle(home, clock, envoy)
        tries.append((here(home, "messages", "pending"), here(home, "messages", "failed")))
        clock.pass_(20)
    assert tries == [(["msg-1"], []), (["msg-1"], []), ([], ["msg-1"]), ([], ["msg-1"])]
    filed = read(home, "messages", "failed", "msg-1")
    assert (filed["status"], filed["tries"]) == ("failed", 3)
    assert filed["refused_because"] == "grumpy did not take the message: no such room"
    said = Places(home).role_log("envoy").read_text()
    for number, why in enumerate(("busy", "still busy", "no such room"), 1):
        assert f"msg-1 was refused ({number} of 3): grumpy did not take the message: {why}" in said
    assert (grumpy.posted, traces(home)) == ([], [])


def test_a_refused_message_waits_and_holds_nobody_up(home: Path, clock: Clock) -> None:
    envoy = settle(home, clock)
    grumpy.refusals[:] = ["busy"]
    put(home, "messages", "pending", **message("msg-1", urgency="urgent", **ON_GRUMPY))
    put(home, "messages", "pending", **message("msg-2", **ON_GRUMPY))
    settle(home, clock, envoy)
    assert [name for name, _, _ in grumpy.posted] == ["msg-2"]
    settle(home, clock, envoy)
    assert len(grumpy.posted) == 1, "not before its time"
    clock.pass_(5)
    settle(home, clock)
    assert [name for name, _, _ in grumpy.posted] == ["msg-2", "msg-1"]
    assert here(home, "messages", "sent") == ["msg-1", "msg-2"]


@pytest.mark.parametrize("fields", [{"tries": "many"}, {"tries": -1}, {"not_before": "later"}, {"not_before": 5}])
def test_strange_fields_of_foreign_writers_set_it_aside(home: Path, clock: Clock, fields: dict[str, Any]) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message("msg-1", **fields))
    put(home, "messages", "pending", **message("msg-2"))
    settle(home, clock)
    assert (here(home, "messages", "dead"), posted(home)) == (["msg-1"], ["msg-2"])


@pytest.mark.parametrize("place", ["sent", "failed"])
def test_another_message_under_a_used_id_is_a_new_message_and_posted_once(home: Path, clock: Clock, place: str) -> None:
    services(home, "envoy", clock)
    put(home, "messages", place, **message(content="the first"))
    for _ in range(3):
        put(home, "messages", "pending", **message(content="the second"))
        settle(home, clock)
        assert "msg-1" not in here(home, "messages", "pending"), "it has an id of its own, or is a repetition"
    (line,) = transcript(home)
    assert line["text"] == "the second"
    assert read(home, "messages", place, "msg-1")["content"] == "the first"
    assert here(home, "messages", "pending") == []
    assert here(home, "messages", "dead") == ["msg-1"], "the third and its repetition"


FILED = [
    "sync drafts, state/envoy/console/2026-02-07.jsonl",
    "show state/envoy",
    "sync state/envoy",
    "show messages/pending, messages/sent",
    "sync messages/pending, messages/sent",
]


def test_posts_of_a_group_and_their_threads_are_durable_before_they_are_filed(
    home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one sync of what was posted, one of the threads, one of the files."""
    given = services(home, "envoy", clock)
    given.disk.durability = "power"
    job = EnvoyJob(given)
    put(home, "messages", "pending", **message("msg-0"))
    job.turn(None)
    for number in range(1, 5):
        about = f"task-20260207-00{number}"
        put(home, "messages", "pending", **message(f"msg-{number}-1", type="thread_start", task_id=about))
        put(home, "messages", "pending", **message(f"msg-{number}-2", task_id=about))
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, home)
        job.turn(None)
    assert steps.take() == FILED
    assert len(posted(home)) == len(here(home, "messages", "sent")) == 9


def test_a_post_that_an_envoy_was_killed_over_is_durable_before_it_is_filed(
    home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = services(home, "envoy", clock)
    put(home, "messages", "pending", **message())
    post_by_hand(home, clock)
    given.disk.durability = "power"
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, home)
        EnvoyJob(given).turn(None)
    first = steps.take()[0]
    assert first.startswith("sync drafts, ")
    assert "state/envoy/console/2026-02-07.jsonl" in first
    assert (posted(home), here(home, "messages", "sent")) == (["msg-1"], ["msg-1"])
