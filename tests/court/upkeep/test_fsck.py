"""fsck: each damage made by hand is found under its rule, and mended if it can be; a healthy home raises no alarm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.wing import FsckFinding
from kingdom.court.upkeep.checks import CHECKS, COURT
from kingdom.court.upkeep.fsck import Check, FsckFault, View, look, mend
from tests.court.upkeep.homes import ASKED, DAY, MORNING, RUNS, T1, healthy
from tests.fixtures import Clock, event, message, put, task, write

NOW = Clock().now + 3600
OLD = 7200


def found(home: Path) -> list[FsckFinding]:
    return look(Places(home), CHECKS, lambda: NOW)


def repair(home: Path) -> list[FsckFinding]:
    places = Places(home)
    return mend(places, CHECKS, Disk(places.scratch("cli"), durability="process"), lambda: NOW)


def left(path: Path, seconds: float = OLD) -> None:
    os.utime(path, (NOW - seconds,) * 2, follow_symlinks=False)


Damage = Callable[[Places], object]


def move(kind: str, src: str, dst: str, name: str) -> Damage:
    return lambda at: (at.folder(kind, src) / f"{name}.json").rename(at.folder(kind, dst) / f"{name}.json")


def drop(path: Callable[[Places], Path]) -> Damage:
    return lambda at: path(at).unlink()


def spoil(path: Callable[[Places], Path], content: str = '{"id": ') -> Damage:
    return lambda at: path(at).write_text(content)


def queued(kind: str, state: str, name: str) -> Callable[[Places], Path]:
    return lambda at: at.folder(kind, state) / f"{name}.json"


def copied(kind: str, src: str, dst: str, name: str) -> Damage:
    return lambda at: queued(kind, dst, name)(at).write_bytes(queued(kind, src, name)(at).read_bytes())


def stale(path: Callable[[Places], Path]) -> Damage:
    return lambda at: (path(at).write_text("half"), left(path(at)))


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)
    return path


def second_task(at: Places) -> None:
    put(at.home, "tasks", "pending", **task("task-20260207-000", event_id="evt-3"))


def second_message(at: Places) -> None:
    copy = {**read_json(queued("messages", "sent", f"msg-{DAY}-002")(at)), "id": f"msg-{DAY}-000"}
    put(at.home, "messages", "pending", **copy)


def no_letters(at: Places) -> None:
    path = queued("tasks", "completed", T1)(at)
    write(path, {**read_json(path), "letters": {}})


def fifo(at: Places) -> None:
    os.mkfifo(queued("tasks", "pending", "task-pipe")(at))


def swapped_lock(at: Places) -> None:
    (at.own("king") / "lock").mkdir()


DAMAGES: dict[str, tuple[str, Damage, bool]] = {
    "an event cut in half": ("queues", spoil(queued("events", "pending", "evt-4")), True),
    "an event of 0 bytes": ("queues", spoil(queued("events", "pending", "evt-4"), ""), True),
    "a task that is a pipe": ("queues", fifo, True),
    "a message without content": ("queues", spoil(queued("messages", "pending", "msg-x"), '{"id": "msg-x"}'), True),
    "a stranger in a queue": (
        "queues",
        lambda at: (at.folder("orders", "pending") / "readme.txt").write_text("x"),
        True,
    ),
    "an event under another name": (
        "queues",
        spoil(queued("events", "pending", "evt-9"), json.dumps(event("evt-8"))),
        True,
    ),
    "a sent message cut in half": ("queues", spoil(queued("messages", "sent", f"msg-{DAY}-002")), True),
    "a result cut in half": ("results", spoil(lambda at: at.result(T1)), True),
    "a result of another task": ("results", spoil(lambda at: at.result(T1), '{"task_id": "task-9"}'), True),
    "a checkpoint of zeros": ("results", spoil(lambda at: at.checkpoint(ASKED), "\0\0\0"), True),
    "sessions.json cut in half": ("state", spoil(lambda at: at.sessions, "[{"), True),
    "thread-mappings.json cut in half": ("state", spoil(lambda at: at.conversations()[0], "{"), True),
    "reports.json cut in half": ("state", spoil(lambda at: at.own("chamberlain") / "reports.json", "{"), True),
    "alerts.json of another form": ("state", spoil(lambda at: at.own("chamberlain") / "alerts.json", "[]"), True),
    "a task in two states": ("one-place", copied("tasks", "in_progress", "completed", RUNS), True),
    "an event in two states": ("one-place", copied("events", "completed", "dispatched", "evt-1"), True),
    "a parked file without its reason": (
        "reasons",
        drop(lambda at: at.folder("events", "dead") / "evt-bad.json.reason"),
        True,
    ),
    "two tasks of one event": ("one-task", second_task, False),
    "two messages of one cause": ("one-message", second_message, True),
    "an event whose task is gone": ("lost-task", drop(queued("tasks", "in_progress", RUNS)), False),
    "an event that ended before its task": ("ended-early", move("events", "dispatched", "completed", "evt-3"), False),
    "a damaged line of done.idx": (
        "index",
        lambda at: at.replay_index.write_text(at.replay_index.read_text() + "x\n"),
        True,
    ),
    "a torn end of done.idx": (
        "index",
        lambda at: at.replay_index.write_text(at.replay_index.read_text() + "2026"),
        True,
    ),
    "done.idx is a folder": ("index", lambda at: (at.replay_index.unlink(), at.replay_index.mkdir()), True),
    "done.idx is a link": (
        "index",
        lambda at: (at.replay_index.rename(at.home / "x"), at.replay_index.symlink_to(at.home / "x")),
        True,
    ),
    "home.json cut in half": ("version", spoil(lambda at: at.version), False),
    "home.json of a newer Kingdom": ("version", spoil(lambda at: at.version, '{"version": 99}'), False),
    "done.idx is gone": ("replays", drop(lambda at: at.replay_index), True),
    "the last message of a task is gone": ("promises", drop(queued("messages", "sent", f"msg-{DAY}-002")), True),
    "the first message of a task is gone": ("promises", drop(queued("messages", "sent", f"msg-{DAY}-005")), True),
    "nobody was told of an end": ("last-word", no_letters, False),
    "the result of an ended task is gone": ("outcome", drop(lambda at: at.result(T1)), False),
    "the checkpoint of a question is gone": ("questions", drop(lambda at: at.checkpoint(ASKED)), True),
    "a result of nothing": ("orphans", lambda at: write(at.result("task-9"), {"task_id": "task-9"}), True),
    "a prompt of nothing": ("orphans", lambda at: at.prompt("task-9").write_text("x"), True),
    "a workspace of nothing": ("orphans", lambda at: at.workspace("gen-pr", "task-9").mkdir(), True),
    "a control folder of nothing": ("orphans", lambda at: at.control_folder("gen-pr", "task-9").mkdir(), True),
    "a folder of a soldier of nothing": ("orphans", lambda at: at.soldier_folder("task-9").mkdir(), True),
    "a row of sessions.json of nothing": (
        "sessions",
        lambda at: at.sessions.write_text(json.dumps([{"task_id": "task-9", "soldier": "soldier-task-9-0"}])),
        True,
    ),
    "a receipt of nothing": ("receipts", lambda at: write(at.posting()[1] / "msg-9.json", {"letter": "msg-9"}), True),
    "a counter that went back": ("numbers", lambda at: (at.own("king") / "task-seq").write_text(f"{DAY}:001\n"), True),
    "a counter of zeros": ("numbers", lambda at: (at.own("king") / "msg-seq").write_text("\0\0\0"), True),
    "a counter that is a folder": (
        "numbers",
        lambda at: ((at.own("king") / "msg-seq").unlink(), (at.own("king") / "msg-seq").mkdir()),
        True,
    ),
    "a counter of zeros of which no number is in use": (
        "numbers",
        lambda at: (at.own("chamberlain") / "msg-seq").write_text("\0"),
        True,
    ),
    "queue/ is open to others": ("permissions", lambda at: at.queue.chmod(0o755), True),
    ".env is open to others": ("secrets", lambda at: at.env_file.chmod(0o644), True),
    "a copy of .env is open to others": (
        "secrets",
        lambda at: ((at.home / ".env.bak").write_text("A=b"), (at.home / ".env.bak").chmod(0o644)),
        True,
    ),
    "a lock that is a folder": ("locks", swapped_lock, True),
    "a lock that is a pipe": ("locks", lambda at: os.mkfifo(at.own("king") / "lock"), True),
    "a lock that is a link": ("locks", lambda at: (at.own("king") / "lock").symlink_to(at.env_file), True),
    "an unfinished file in a queue": ("litter", stale(lambda at: at.folder("events", "pending") / ".evt.tmp"), True),
    "an unfinished file of a writer": ("litter", stale(lambda at: at.scratch("king") / "1-1"), True),
    "a folder of a queue is gone": ("folders", lambda at: at.folder("orders", "done").rmdir(), True),
    "a queue is gone": ("folders", lambda at: shutil.rmtree(at.folder("tasks", "pending").parent), True),
    "logs/ is a file": ("folders", lambda at: (shutil.rmtree(at.logs), at.logs.write_text("x")), True),
    "a folder of a queue is a file": (
        "folders",
        lambda at: (at.folder("orders", "done").rmdir(), at.folder("orders", "done").write_text("x")),
        True,
    ),
    "a mark of two words": ("wanted", lambda at: (at.wanted_folder / "king").write_text("down now"), True),
    "a mark that says nothing": ("wanted", lambda at: (at.wanted_folder / "king").write_text("maybe"), True),
}
"""By what was done to a home: the check that finds it, the damage, whether it can be repaired."""


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_repaired(home: Path, name: str) -> None:
    check_damage(home, *DAMAGES[name])


def check_damage(home: Path, check: str, damage: Damage, can_be_repaired: bool) -> None:
    damage(healthy(home, NOW - 60))
    findings = found(home)
    assert check in {finding.check for finding in findings}, findings
    assert all(finding.rule and finding.what for finding in findings)
    repaired = {finding.check: finding.repaired for finding in repair(home)}
    assert repaired[check] is can_be_repaired
    still = found(home)
    assert [finding for finding in still if finding.repair] == [], "what can be repaired is"
    assert (check in {finding.check for finding in still}) is not can_be_repaired


def test_every_check_has_a_damage_but_that_of_another_owner() -> None:
    assert {check.name for check in COURT} - {check for check, _, _ in DAMAGES.values()} == {"owner"}


def test_what_another_program_keeps_in_a_workspace_is_no_finding(home: Path) -> None:
    """A general that keeps one clone of each repository, and instructions beside them."""
    places = healthy(home, NOW - 60)
    room = places.workspace("gen-pr", "any").parent
    (room / "our-repo" / ".git").mkdir(parents=True)
    (room / "CLAUDE.md").write_text("be kind")
    (places.results / "stats.json").write_text("{}")
    (places.prompts / "notes.md").write_text("mine")
    assert found(home) == []


def test_a_healthy_home_raises_no_alarm_and_is_not_changed(home: Path, record_property: Callable[..., None]) -> None:
    healthy(home, NOW - 60)
    before = {path: path.lstat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    assert found(home) == []
    assert repair(home) == []
    repaired = sum(can_be for _, _, can_be in DAMAGES.values())
    record_property("figure", f"fsck: {len(DAMAGES)} damages to find, {repaired} to repair; a healthy home: 0 alarms")
    assert {path: path.lstat().st_mtime_ns for path in home.rglob("*") if path.is_file()} == before


def test_a_repaired_home_is_healthy_after_all_damages_that_can_be_repaired(home: Path) -> None:
    places = healthy(home, NOW - 60)
    for name in (
        "a result of nothing",
        "a counter that went back",
        "done.idx is gone",
        "an event cut in half",
        "queue/ is open to others",
    ):
        DAMAGES[name][1](places)
    repair(home)
    assert found(home) == []


def test_nothing_is_deleted_by_a_repair(home: Path) -> None:
    places = healthy(home, NOW - 60)
    write(places.result("task-9"), {"task_id": "task-9", "status": "success"})
    repair(home)
    [aside] = list(places.set_aside.rglob("*.json"))
    assert read_json(aside)["task_id"] == "task-9"


@pytest.mark.parametrize(("number", "about"), [("002", T1), ("005", RUNS)], ids=["the last one", "the first one"])
def test_a_lost_message_is_told_of(home: Path, number: str, about: str) -> None:
    places = healthy(home, NOW - 60)
    queued("messages", "sent", f"msg-{DAY}-{number}")(places).unlink()
    repair(home)
    told = read_json(queued("messages", "pending", f"msg-{DAY}-{number}")(places))
    assert told["task_id"] == about
    assert f"kingdom why {about}" in told["content"]


def test_of_two_states_the_later_one_stays(home: Path) -> None:
    places = healthy(home, NOW - 60)
    DAMAGES["a task in two states"][1](places)
    repair(home)
    assert [path.parent.name for path in places.queue.glob(f"tasks/*/{RUNS}.json")] == ["completed"]


@pytest.mark.parametrize("content", [f"{DAY}:001\n", "\0", "3", ""])
def test_a_counter_goes_on_after_the_highest_number_in_use(home: Path, content: str) -> None:
    places = healthy(home, NOW - 60)
    counter = places.own("king") / "task-seq"
    counter.write_text(content)
    repair(home)
    assert counter.read_text() == f"{DAY}:003\n"


def test_only_the_damaged_line_of_the_index_is_dropped(home: Path) -> None:
    places = healthy(home, NOW - 60)
    lines = places.replay_index.read_text()
    places.replay_index.write_text(f"{lines}no line\nof us all\n")
    assert [finding.what for finding in found(home)] == ["line 4 is damaged", "line 5 is damaged"]
    repair(home)
    assert places.replay_index.read_text() == lines


def test_what_moves_meanwhile_is_no_finding(home: Path) -> None:
    places = healthy(home, NOW - 60)
    queued("messages", "sent", f"msg-{DAY}-002")(places).rename(home / "away")

    def arrives() -> None:
        (home / "away").rename(queued("messages", "sent", f"msg-{DAY}-002")(places))

    assert look(places, CHECKS, lambda: NOW, arrives) == []


def test_nine_tenths_of_its_days_long_nothing_was_deleted_for_its_age(home: Path) -> None:
    places = healthy(home, NOW)
    view = View(places, NOW)
    limit = NOW - view.days["queue_days"] * 86_400 * 0.9
    assert view.is_young(limit + 1, "queue_days")
    assert not any(view.is_young(at, "queue_days") for at in (limit - 1, "no time", None))


@pytest.mark.parametrize("id", [None, 5, [], "../completed/evt-1", "evt-9"])
def test_what_is_no_id_is_the_id_of_nothing(home: Path, id: object) -> None:
    view = View(healthy(home, NOW), NOW)
    assert view.is_made("events", "evt-1")
    assert not view.is_made("events", id)


@pytest.mark.parametrize(("seconds", "is_found"), [(3600.5, True), (3599, False)])
def test_an_unfinished_file_is_somebodys_for_an_hour(home: Path, seconds: float, is_found: bool) -> None:
    places = healthy(home, NOW - 60)
    left(write_text(places.scratch("king") / "1-1", "half"), seconds)
    assert ("litter" in {finding.check for finding in found(home)}) == is_found


HALFWAY: dict[str, Damage] = {
    "an event that was noted and not dispatched": lambda at: put(
        at.home, "events", "pending", **event("evt-5", task_id="task-20260207-004", letters={"start": f"msg-{DAY}-007"})
    ),
    "a result that the king has not seen": lambda at: write(at.result(RUNS), {"task_id": RUNS, "status": "success"}),
    "an event that came again": copied("events", "completed", "pending", "evt-1"),
    "a task whose event ended, noted with its outcome": lambda at: (
        write(queued("tasks", "in_progress", RUNS)(at), task(RUNS, event_id="evt-3", outcome="success")),
        queued("events", "dispatched", "evt-3")(at).rename(queued("events", "completed", "evt-3")(at)),
    ),
    "an intent of a message that is being posted": lambda at: (
        put(at.home, "messages", "pending", **message("msg-9")),
        write(at.posting()[0] / "msg-9.json", {"letter": "msg-9"}),
    ),
    "a foreign task without an event": lambda at: put(at.home, "tasks", "pending", **task("task-7", event_id="theirs")),
    "a task that was tried again": lambda at: (
        put(at.home, "tasks", "pending", **task("task-20260207-000", event_id="evt-1")),
        put(
            at.home,
            "orders",
            "done",
            id="order-1",
            action="retry",
            target=T1,
            by="owner",
            created_at=MORNING,
            made="task-20260207-000",
        ),
    ),
    "a task that was tried again, as it says itself": lambda at: (
        put(at.home, "tasks", "pending", **task("task-20260207-000", event_id="evt-1")),
        write(
            queued("tasks", "completed", T1)(at),
            {**read_json(queued("tasks", "completed", T1)(at)), "retried_as": ["task-20260207-000"]},
        ),
    ),
    "a result of hours ago": lambda at: left(at.result(T1)),
    "scheduled runs of one schedule": lambda at: [
        put(at.home, "tasks", "pending", **task(name, event_id="schedule-morning", scheduled_for=due))
        for name, due in (("task-20260206-001", "2026-02-06T09:00:00Z"), ("task-20260206-002", "2026-02-07T09:00:00Z"))
    ],
    "what retention left of an old task": lambda at: (
        queued("tasks", "completed", T1)(at).unlink(),
        queued("messages", "sent", f"msg-{DAY}-001")(at).unlink(),
        queued("messages", "sent", f"msg-{DAY}-002")(at).unlink(),
        write(
            queued("events", "completed", "evt-1")(at),
            {**read_json(queued("events", "completed", "evt-1")(at)), "created_at": "2025-02-07T10:00:00Z"},
        ),
    ),
}


@pytest.mark.parametrize("name", HALFWAY)
def test_what_a_kill_or_the_night_may_leave_is_no_damage(home: Path, name: str) -> None:
    HALFWAY[name](healthy(home, NOW - 60))
    assert found(home) == []


def test_one_repair_that_fails_keeps_nobody_from_the_others(home: Path) -> None:
    def of(name: str) -> Check:
        def fails(mender: object, fault: FsckFault) -> None:
            if name == "bad":
                raise OSError(28, "No space left on device")

        return Check(name, "a rule", lambda view: iter([FsckFault(home / name, "wrong")]), "mended", fails)

    places = healthy(home, NOW - 60)
    findings = mend(places, [of("bad"), of("good")], Disk(places.scratch("cli")), lambda: NOW)
    assert [(finding.check, finding.repaired) for finding in findings] == [("bad", False), ("good", True)]
