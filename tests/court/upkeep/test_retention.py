"""Retention: what is old goes, and nothing that somebody still waits for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from kingdom.court.chamberlain.cleanup import Cleanup
from kingdom.court.soldiers.cleanup import remove_tree
from kingdom.court.upkeep import retention, rotation
from kingdom.court.upkeep.retention import RULES, Cleaning, Deleter
from tests.fixtures import Clock, event, founded, message, put, services, task, write

DAY = 86_400
MOMENT = 1 / DAY
T, ASKED = "task-20260101-001", "task-20260101-002"

KINDS = {
    "ended events": "queue/events/completed/evt-1.json",
    "ended tasks": f"queue/tasks/completed/{T}.json",
    "sent messages": "queue/messages/sent/msg-1.json",
    "orders that were carried out": "queue/orders/done/order-1.json",
    "results": f"state/results/{T}.json",
    "notes of answers": f"state/king/answered/{T}.json",
    "prompts": f"state/prompts/{T}.md",
    "output of soldiers": f"logs/sessions/soldier-{T}-0.out",
    "workspaces": f"workspace/gen-pr/{T}",
    "marks of seen events": "state/sentinel/seen/evt-1",
    "rotated logs": "logs/events.log.20260101-000000",
}
"""One thing of each rule."""

KEPT = [
    "queue/events/pending/evt-1.json",
    "queue/events/dispatched/evt-1.json",
    "queue/events/dead/evt-1.json",
    "queue/events/dead/evt-1.json.reason",
    f"queue/tasks/pending/{T}.json",
    f"queue/tasks/in_progress/{T}.json",
    f"queue/tasks/dead/{T}.json",
    "queue/messages/pending/msg-1.json",
    "queue/messages/failed/msg-1.json",
    "queue/messages/dead/msg-1.json",
    "queue/orders/pending/order-1.json",
    "state/king/done.idx",
    "state/king/task-seq",
    "logs/events.log",
    "logs/king.log",
    "logs/notes.txt",
    "memory/shared/lesson.md",
    "workspace/queue/leader",
    "workspace/queue/dead_letter/x_dlq_1.mime",
    "queue/events/completed/.evt-1.json.tmp",
]


def age(path: Path, days: float, now: float) -> None:
    os.utime(path, (now - days * DAY,) * 2, follow_symlinks=False)


def lay(home: Path, name: str, days: float, now: float) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.startswith("workspace/"):
        (path / "deep").mkdir(parents=True)
        (path / "deep" / "file").write_text("work")
    else:
        path.write_text("{}")
    age(path, days, now)
    return path


def younger(name: str) -> str:
    """Another name of the same kind."""
    return (
        name.replace(T, "task-20260101-003")
        .replace("-1.json", "-2.json")
        .replace("000000", "000001")
        .replace("seen/evt-1", "seen/evt-2")
    )


def clean(home: Path, now: float, dry: bool = False, counts_events: bool = True, disk: type[Disk] = Disk) -> Cleaning:
    places = Places(home)
    deleter = None if dry else Deleter(disk(places.scratch("chamberlain")), remove_tree, counts_events=counts_events)
    cleaning = Cleaning(places, config.load(places, "chamberlain")["retention"], now, deleter)
    while cleaning.go_on(0.0):
        continue
    return cleaning


@pytest.mark.parametrize("what", KINDS)
def test_what_is_old_goes_and_what_is_younger_stays(home: Path, what: str) -> None:
    founded(home)
    rule, now = next(rule for rule in RULES if rule.what == what), Clock().now
    days = float(config.load(Places(home), "chamberlain")["retention"][rule.days])
    old, young = lay(home, KINDS[what], days + MOMENT, now), lay(home, younger(KINDS[what]), days - MOMENT, now)
    cleaning = clean(home, now)
    assert (old.exists(), young.exists()) == (False, True)
    assert cleaning.tally.files == {what: 1}


def test_every_rule_has_a_row_here() -> None:
    assert [rule.what for rule in RULES] == list(KINDS)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_over_stays_however_old_it_is(home: Path, name: str) -> None:
    founded(home)
    now = Clock().now
    path = lay(home, name, 4000, now)
    clean(home, now)
    assert path.exists()


OF_A_FAILED_TASK = ("ended events", "ended tasks", "results")


@pytest.mark.parametrize("retried", [False, True], ids=["nobody has retried", "was retried"])
def test_a_failed_task_stays_with_its_event_and_result_until_it_is_retried(home: Path, retried: bool) -> None:
    founded(home)
    now = Clock().now
    laid = [lay(home, name, 400, now) for name in KINDS.values()]
    ended = {"outcome": "failed", **({"retried_as": ["task-20260101-003"]} if retried else {})}
    write(home / KINDS["ended tasks"], task(T, **ended))
    write(home / KINDS["ended events"], event("evt-1", status="failed", task_id=T))
    for path in laid:
        age(path, 400, now)
    cleaned = clean(home, now).tally.files.keys()
    assert cleaned == KINDS.keys() - (() if retried else OF_A_FAILED_TASK)
    assert [(home / KINDS[what]).exists() for what in OF_A_FAILED_TASK] == [not retried] * 3


@pytest.mark.parametrize("state", [None, "pending", "in_progress"])
@pytest.mark.parametrize("name", [T, f"{T}.earlier-1"])
def test_kept_work_goes_after_thirty_days_unless_its_task_waits(home: Path, name: str, state: str | None) -> None:
    founded(home)
    now = Clock().now
    if state is not None:
        put(home, "tasks", state, **task(T))
    paths = [lay(home, f"workspace/gen-pr/{name}", 29, now), lay(home, f"workspace/gen-jira/{name}", 31, now)]
    clean(home, now)
    assert [path.exists() for path in paths] == [True, state is not None]


def of_an_old_task(home: Path, now: float) -> list[Path]:
    """All that a task of 40 days ago has left."""
    founded(home)
    names = [
        *(f"state/results/{ASKED}{ending}" for ending in (".json", "-checkpoint.json", "-session-id", "-soldier-id")),
        f"state/prompts/{ASKED}.md",
        f"logs/sessions/soldier-{ASKED}-0.out",
        f"workspace/gen-pr/{ASKED}",
    ]
    paths = [lay(home, name, 40, now) for name in names]
    paths.append(put(home, "tasks", "completed", **task(ASKED, event_id="evt-asked")))
    paths.append(put(home, "events", "completed", **event("evt-asked")))
    paths.append(put(home, "messages", "sent", **message("msg-asked", task_id=ASKED)))
    for path in paths:
        age(path, 40, now)
    return paths


def remaining(paths: list[Path]) -> list[str]:
    return [path.name for path in paths if path.exists()]


def answered(home: Path) -> None:
    write_old(home / f"state/king/answered/{ASKED}.json", {"task_id": ASKED, "event_id": "evt-answer"})


def write_old(path: Path, thing: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, thing)
    age(path, 40, Clock().now)


REASONS = {
    "an open question": lambda home: None,
    "a question that waits in a thread": lambda home: (
        answered(home),
        write(home / "state/envoy/awaiting-responses.json", {ASKED: {"task_id": ASKED}}),
    ),
    "an open conversation": lambda home: (
        answered(home),
        write(
            home / "state/envoy/conversation-threads.json",
            {"17.2": {"task_id": "task-9", "expires_at": "2099-01-01T00:00:00Z", "reply_context": {"task_id": ASKED}}},
        ),
    ),
    "an open thread": lambda home: (
        answered(home),
        write(home / "state/envoy/thread-mappings.json", {ASKED: {"thread_ts": "1", "channel": "c"}}),
    ),
    "a task that goes on with it": lambda home: (
        answered(home),
        put(home, "tasks", "in_progress", **task("task-9", type="resume", payload={"original_task_id": ASKED})),
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_all_of_an_open_question_or_conversation_stays(home: Path, reason: str) -> None:
    now = Clock().now
    paths = of_an_old_task(home, now)
    (home / "state/envoy").mkdir(parents=True, exist_ok=True)
    REASONS[reason](home)
    clean(home, now)
    assert remaining(paths) == [path.name for path in paths]


def test_when_it_was_answered_and_is_over_all_of_it_goes(home: Path) -> None:
    now = Clock().now
    paths = of_an_old_task(home, now)
    answered(home)
    (home / "state/envoy").mkdir(parents=True, exist_ok=True)
    over = {"17.2": {"task_id": ASKED, "expires_at": stamp(now)}}
    write(home / "state/envoy/conversation-threads.json", over)
    clean(home, now)
    # The workspace goes with the next cleaning at the latest: it stays as long as its task is there.
    clean(home, now)
    assert remaining(paths) == []
    assert not (home / f"state/king/answered/{ASKED}.json").exists()


def test_the_question_goes_before_the_note_of_its_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = Clock().now
    of_an_old_task(home, now)
    answered(home)
    order: list[str] = []
    monkeypatch.setattr(retention, "sync_folder", lambda folder: order.append(f"sync {folder.name}"))

    class Noting(Disk):
        def remove(self, path: Path) -> None:
            order.append(str(path.relative_to(home)))
            super().remove(path)

    cleaning = Cleaning(
        Places(home),
        config.load(Places(home), "chamberlain")["retention"],
        now,
        Deleter(Noting(Places(home).scratch("chamberlain"), durability="process"), remove_tree),
    )
    cleaning.go_on(60)
    steps = [f"state/results/{ASKED}-checkpoint.json", "sync results", f"state/king/answered/{ASKED}.json"]
    assert [step for step in order if step in steps] == steps


def test_logs_that_nobody_has_counted_stay(home: Path) -> None:
    founded(home)
    now = Clock().now
    path = lay(home, KINDS["rotated logs"], 4000, now)
    cleaning = clean(home, now, counts_events=False)
    assert (path.exists(), cleaning.tally.total) == (True, 0)


def test_a_dry_run_counts_and_deletes_nothing(home: Path) -> None:
    founded(home)
    now = Clock().now
    paths = [lay(home, name, 400, now) for name in KINDS.values() if T not in name or "queue" not in name]
    size = sum(path.lstat().st_size for path in paths)
    would = clean(home, now, dry=True).tally
    assert remaining(paths) == [path.name for path in paths]
    assert would == clean(home, now).tally
    assert (would.total, would.bytes) == (len(paths), size)


def test_a_link_stays_whatever_it_leads_to(home: Path) -> None:
    founded(home)
    now = Clock().now
    elsewhere = lay(home, "elsewhere.json", 400, now)
    link = home / "queue/events/completed/evt-1.json"
    link.symlink_to(elsewhere)
    clean(home, now)
    assert link.is_symlink()


def test_what_somebody_else_has_deleted_is_not_counted(home: Path) -> None:
    founded(home)
    now = Clock().now
    path = lay(home, KINDS["ended events"], 400, now)

    class Late(Disk):
        def remove(self, path: Path) -> None:
            raise FileNotFoundError(path)

    cleaning = clean(home, now, disk=Late)
    assert (path.exists(), cleaning.tally.total) == (True, 0)


def test_a_year_is_cleaned_in_slices(home: Path) -> None:
    founded(home)
    now = Clock().now
    for number in range(300):
        lay(home, f"queue/events/completed/evt-{number}.json", 100, now)
    places = Places(home)
    deleter = Deleter(Disk(places.scratch("chamberlain"), durability="process"), remove_tree)
    cleaning = Cleaning(places, config.load(places, "chamberlain")["retention"], now, deleter)
    slices = 1
    while cleaning.go_on(0.0):
        slices += 1
    assert slices >= 300, "a slice without time looks at one file"
    assert not list(places.folder("events", "completed").iterdir())


# Logs.


def cleanup(home: Path, clock: Clock, **files: object) -> Cleanup:
    system = {"timezone": "UTC"}
    return Cleanup(services(home, "chamberlain", clock, system=system, **files))  # type: ignore[arg-type]


def first_line(at: str) -> str:
    return f'{{"ts": "{at}", "type": "system.startup", "actor": "king", "data": {{}}}}\n'


@pytest.mark.parametrize(
    ("name", "begun", "megabytes", "is_rotated"),
    [
        ("events.log", "2026-02-06T23:59:59Z", 0, True),
        ("events.log", "2026-02-07T00:00:00Z", 0, False),
        ("events.log", "2026-02-07T00:00:00Z", 1.1, True),
        ("events.log", "yesterday", 0, False),
        ("king.log", "2026-01-01T00:00:00Z", 0, False),
        ("king.log", "2026-01-01T00:00:00Z", 1.1, True),
        ("king.out", "2026-01-01T00:00:00Z", 1.1, False),
    ],
)
def test_logs_get_another_name(home: Path, name: str, begun: str, megabytes: float, is_rotated: bool) -> None:
    files = {"chamberlain": {"retention": {"log_max_mb": 1}}}
    ours = cleanup(home, Clock(), **files)
    content = first_line(begun) + "x" * int(megabytes * (1 << 20))
    (home / "logs" / name).write_text(content)
    ours.rotate_logs()
    ours.rotate_logs()
    there = {path.name: path.read_text() for path in (home / "logs").iterdir() if path.is_file()}
    assert there == {f"{name}.20260207-100000" if is_rotated else name: content}


def test_two_rotations_in_one_second_take_two_names(home: Path) -> None:
    ours = cleanup(home, Clock())
    for number in (1, 2):
        (home / "logs/events.log").write_text(first_line(f"2026-02-0{number}T00:00:00Z"))
        ours.rotate_logs()
    names = sorted(path.name for path in (home / "logs").glob("events.log*"))
    assert names == ["events.log.20260207-100000", "events.log.20260207-100000-2"]
    assert all(any(rule.takes(name) for rule in RULES if rule.what == "rotated logs") for name in names)


def test_no_event_is_lost_or_doubled_while_others_write(home: Path, figure: Callable[[str], None]) -> None:
    clock = Clock()
    ours = services(home, "chamberlain", clock, system={"timezone": "UTC"})
    written = 0
    for _ in range(20):
        for _ in range(5):
            written += 1
            ours.log.event("message.sent", msg_id=f"msg-{written}", task_id=None, channel="console")
            ours.log.flush()
        list(rotation.rotate(ours.places, ours.disk, 0.0001, 0, clock(), None))  # type: ignore[arg-type]
        clock.pass_(1)
    lines = [line for path in (home / "logs").glob("events.log*") for line in path.read_text().splitlines()]
    lost, doubled = written - len(set(lines)), len(lines) - len(set(lines))
    figure(f"row 17 rotation: {written} lines over 20 rotations, {lost} lost, {doubled} doubled")
    assert (lost, doubled) == (0, 0)
