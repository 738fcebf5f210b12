"""A general and real soldiers: one at a time for each task, tried again within its cap, and nothing of them left."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.disk.atomic import Disk, Item
from kingdom.disk.codec import read_json
from kingdom.errors import BadConfig
from kingdom.general.campaign import Campaign
from kingdom.home.places import Places
from kingdom.king.orders import Orders
from kingdom.records import notes
from kingdom.records.queues import Queues
from kingdom.runtime.processes import end_carriers, started_at
from kingdom.runtime.role import Services
from kingdom.soldiers.handle import Barrack
from kingdom.times import stamp
from tests.fixtures import MORNING, Clock, here, install, put, read, services, task, write
from tests.standins import runs
from tests.waiting import wait_until

# A general may die before its soldiers: that is what these tests are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TASK = "task-20260207-001"
GENERAL = "gen-pr"
SOON = 30.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Army:
    """One home, one general, and lives of it one after another."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self.home, self.clock, self.places = home, clock, Places(home)
        king = {"retry": {"max_attempts": 2, "backoff_seconds": 60}}
        services(home, "king", clock, king=king)
        self.manifest()
        package = self.places.package(GENERAL)
        package.mkdir(parents=True)
        (package / "prompt.md").write_text("Look at {{TASK_TYPE}}.\n")
        self.services: Services
        self.awake = self.wake()

    def manifest(self, **fields: Any) -> None:
        install(self.home, GENERAL, **{"sandbox": "off", "timeout_seconds": 30, **fields})

    def runs(self, script: str) -> None:
        """What the soldiers' engine does. Each life of it leaves a line in `lives`."""
        program = self.places.package(GENERAL) / "run"
        program.write_text(f"#!/bin/sh\necho $$ >>{self.home}/lives\n{script}\n")
        program.chmod(0o755)

    def wake(self) -> Campaign:
        """A new life of the general."""
        self.services = services(self.home, GENERAL, self.clock)
        self.awake = Campaign(self.services)
        return self.awake

    def until(self, seen: Callable[[], object], what: str) -> None:
        def turn_and_look() -> object:
            self.awake.turn(None)
            return seen()

        folders = (self.places.results, self.places.soldiers, self.home)
        wait_until(turn_and_look, SOON, what, folders)
        self.services.log.flush()

    def ended(self, name: str = TASK) -> dict[str, Any]:
        self.until(self.places.result(name).exists, f"the result of {name}")
        return read_json(self.places.result(name))

    def lives(self) -> list[int]:
        path = self.home / "lives"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def fighting(self, count: int = 1) -> int:
        """The engine's pid, once so many have lived."""
        self.until(lambda: len(self.lives()) >= count, f"soldier {count}")
        return self.lives()[count - 1]

    def barrack(self, name: str = TASK) -> Barrack:
        return Barrack(self.places, GENERAL, name)

    def left(self) -> list[str]:
        """Traces of soldiers."""
        rooms = [*self.places.soldiers.iterdir(), *self.barrack().camp.parent.iterdir()]
        rows = json.loads(self.places.sessions.read_text()) if self.places.sessions.exists() else []
        raw = [path.name for path in self.places.results.glob("*-raw.json")]
        return [*(path.name for path in rooms if not path.name.startswith(".")), *map(str, rows), *raw]

    def events(self) -> list[str]:
        return [json.loads(line)["type"] for line in self.places.events_log.read_text().splitlines()]


@pytest.fixture
def army(home: Path, clock: Clock) -> Iterator[Army]:
    army = Army(home, clock)
    yield army
    for path in here(home, "tasks", "in_progress"):
        army.barrack(path).end()
    # Here and not in somebody else's test: a dead general's soldiers are told of when it is forgotten.
    del army.awake
    gc.collect()


def says(**fields: Any) -> str:
    return f"cat >$KINGDOM_RESULT_PATH <<'END'\n{json.dumps({'task_id': TASK, **fields})}\nEND"


def test_a_success_is_reported_and_nothing_is_left(army: Army) -> None:
    army.runs(
        'grep -q "Look at github.pr.review_requested" || exit 9; echo hello; touch here; '
        + says(status="success", summary="fine", memory_updates=["tabs"], colour="blue", metrics={"tokens_used": 5})
    )
    put(army.home, "tasks", "pending", **task())
    result = army.ended()
    assert (result["status"], result["summary"], result["colour"]) == ("success", "fine", "blue")
    assert result["metrics"]["tokens_used"] == 5
    assert (result["metrics"]["retry_count"], result["metrics"]["duration_seconds"] >= 0) == (0, True)
    assert (here(army.home, "tasks", "pending"), here(army.home, "tasks", "in_progress")) == ([], [TASK])
    assert army.left() == []
    assert not army.places.workspace(GENERAL, TASK).exists()
    assert army.places.session_log(f"soldier-{TASK}-0", "out").read_text() == "hello\n"
    assert "- tabs" in (army.places.general_memory(GENERAL) / "learned-patterns.md").read_text()
    assert army.events() == ["task.started", "soldier.spawned", "soldier.completed"]


def test_a_question_keeps_the_ground_and_leaves_a_checkpoint(army: Army) -> None:
    army.runs("echo half >work; " + says(status="needs_human", question="which?", session_id="s-1"))
    put(army.home, "tasks", "pending", **task(payload={"pr_number": "7"}, thread_task_id="task-1"))
    assert army.ended()["question"] == "which?"
    kept = read_json(army.places.checkpoint(TASK))
    assert (kept["target_general"], kept["session_id"], kept["payload"]) == (GENERAL, "s-1", {"pr_number": "7"})
    assert (kept["thread_task_id"], kept["question"]) == ("task-1", "which?")
    assert (Path(kept["workspace"]) / "work").read_text() == "half\n"


ASKS_TWICE = """pwd >>$KINGDOM_HOME/grounds; echo line >>work
said='"status": "needs_human", "question": "which?"'
[ $(wc -l <work) = 3 ] && said='"status": "success"'
echo "{$said}" >$KINGDOM_RESULT_PATH"""
SECOND, THIRD = "task-20260207-002", "task-20260207-003"


def answered(army: Army, asked: str, name: str) -> None:
    """As the king would take an answer to a question."""
    army.places.queue_file("tasks", "in_progress", asked).rename(army.places.queue_file("tasks", "completed", asked))
    payload = {"original_task_id": asked, "human_response": "yes"}
    about = read_json(army.places.checkpoint(asked))["matter"]
    put(army.home, "tasks", "pending", **task(name, type="resume", payload=payload, thread_task_id=TASK, matter=about))


def test_a_question_after_a_question_is_asked_on_the_same_ground(army: Army) -> None:
    army.runs(ASKS_TWICE)
    put(army.home, "tasks", "pending", **task())
    assert army.ended()["status"] == "needs_human"
    answered(army, TASK, SECOND)
    army.wake()
    assert army.ended(SECOND)["status"] == "needs_human"
    kept = read_json(army.places.checkpoint(SECOND))
    ground = army.places.workspace(GENERAL, TASK)
    assert (kept["workspace"], kept["thread_task_id"]) == (str(ground), TASK)
    assert (kept["type"], kept["matter"]) == ("resume", "github.pr.review_requested")
    answered(army, SECOND, THIRD)
    army.wake()
    assert army.ended(THIRD)["status"] == "success"
    assert set((army.home / "grounds").read_text().split()) == {str(ground)}
    assert not ground.exists()


def test_ground_that_was_kept_for_an_answer_goes_though_its_general_was_killed(army: Army) -> None:
    ground = army.places.workspace(GENERAL, TASK)
    ground.mkdir(parents=True)
    write(army.places.checkpoint(TASK), {"workspace": str(ground)})
    write(army.places.result(TASK), {"task_id": TASK, "status": "needs_human", "question": "which?"})
    write(army.places.result(SECOND), {"task_id": SECOND, "status": "success"})
    resumed = task(SECOND, type="resume", payload={"original_task_id": TASK})
    put(army.home, "tasks", "completed", **resumed)
    army.barrack(SECOND).camp.mkdir(parents=True)
    army.wake()
    assert not ground.exists()


def test_what_is_out_of_scope_is_not_tried_again(army: Army) -> None:
    army.runs(says(status="skipped", reason="merged"))
    put(army.home, "tasks", "pending", **task())
    assert army.ended()["reason"] == "merged"
    assert len(army.lives()) == 1


def test_a_failure_is_tried_again_after_a_pause_then_final(army: Army, clock: Clock) -> None:
    army.runs(says(status="failed", error="no tests"))
    put(army.home, "tasks", "pending", **task(colour="blue"))
    army.until(lambda: read(army.home, "tasks", "in_progress", TASK).get("attempt"), "a second try")
    waiting = read(army.home, "tasks", "in_progress", TASK)
    assert (waiting["attempt"], waiting["not_before"], waiting["colour"]) == (1, "2026-02-07T10:01:00Z", "blue")
    assert waiting["waits_because"] == "try 1 failed: no tests"
    assert army.left() == []
    clock.pass_(59)
    for _ in range(3):
        army.awake.turn(None)
    army.wake().turn(None)
    assert len(army.lives()) == 1, "it waits"
    clock.pass_(1)
    result = army.ended()
    assert (result["status"], result["error"], result["metrics"]["retry_count"]) == ("failed", "no tests", 1)
    assert len(army.lives()) == 2
    assert army.places.workspace(GENERAL, TASK).exists(), "kept for whoever looks into it"


NO_RESULTS: dict[str, tuple[str, str]] = {
    "nothing, and says why": ("echo boom >&2; exit 3", r"no result (ended with code 3): boom"),
    "nothing, and is content": ("echo done", r"no result (ended with code 0): done"),
    "half a file": (
        "printf '{\"status\"' >$KINGDOM_RESULT_PATH",
        "no result (ended with code 0): its result cannot be read",
    ),
    "an outcome that is none": (says(status="great"), "no valid result: result: status"),
    "a question without words": (says(status="needs_human"), "no valid result: result: must contain ['question']"),
    "a pipe": ("mkfifo $KINGDOM_RESULT_PATH", "not a regular file"),
    "a link": ("ln -s /etc/hostname $KINGDOM_RESULT_PATH", "a symbolic link"),
}


@pytest.mark.parametrize("what", NO_RESULTS)
def test_without_a_valid_result_it_failed_with_what_was_seen(army: Army, what: str) -> None:
    script, seen = NO_RESULTS[what]
    army.runs(script)
    put(army.home, "tasks", "pending", **task(attempt=1))
    result = army.ended()
    assert result["status"] == "failed"
    assert seen in result["error"]


def test_a_soldier_cannot_answer_for_another_task(army: Army) -> None:
    army.runs(says(status="success") + "\nsed -i s/001/002/ $KINGDOM_RESULT_PATH")
    put(army.home, "tasks", "pending", **task(attempt=1))
    result = army.ended()
    assert (result["task_id"], result["status"]) == (TASK, "failed")
    assert result["error"] == f"no valid result: its task_id is task-20260207-002, and this is {TASK}"


def test_a_result_may_leave_out_whose_it_is(army: Army) -> None:
    army.runs('echo \'{"status": "success"}\' >$KINGDOM_RESULT_PATH')
    put(army.home, "tasks", "pending", **task())
    assert army.ended()["status"] == "success"
    assert army.ended()["task_id"] == TASK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/opt/no/such -x\n", "run:1 begins with `#!/opt/no/such`, and there is no /opt/no/such here"),
        ("#!/bin/sh\r\ntrue\r\n", "run:1 ends as on Windows (CR LF), so its interpreter /bin/sh is not found"),
    ],
)
def test_a_program_without_its_interpreter_needs_set_up(army: Army, text: str, said: str) -> None:
    army.runs("")
    (army.places.package(GENERAL) / "run").write_text(text)
    put(army.home, "tasks", "pending", **task())
    result = army.ended()
    assert (result["status"], result["reason"]) == ("skipped", f"needs set-up: {army.places.package(GENERAL)}/{said}")


@pytest.mark.parametrize("lacking", ["run", "prompt.md", "a prompt that is text", "its engine"])
def test_a_general_that_is_not_set_up_says_so(army: Army, lacking: str) -> None:
    army.runs(says(status="success"))
    if lacking == "run":
        (army.places.package(GENERAL) / "run").chmod(0o644)
    elif lacking == "prompt.md":
        (army.places.package(GENERAL) / "prompt.md").unlink()
    elif lacking == "its engine":
        army.manifest(engine="claude")
    else:
        (army.places.package(GENERAL) / "prompt.md").write_bytes(b"\xff\xfe")
    put(army.home, "tasks", "pending", **task())
    army.wake()
    result = army.ended()
    assert (result["status"], army.lives()) == ("skipped", [])
    assert result["reason"].startswith("needs set-up: ")


def test_a_soldier_that_cannot_even_start_is_a_try_too(army: Army, monkeypatch: pytest.MonkeyPatch) -> None:
    (army.home / "broken" / "kingdom").mkdir(parents=True)
    (army.home / "broken" / "kingdom" / "__init__.py").write_text("raise ImportError('a broken house')\n")
    monkeypatch.setenv("PYTHONPATH", str(army.home / "broken"))
    army.runs(says(status="success"))
    put(army.home, "tasks", "pending", **task(attempt=1))
    result = army.ended()
    assert (result["status"], army.lives()) == ("failed", [])
    assert "its soldier died without a report" in result["error"]
    assert "a broken house" in result["error"]
    assert army.events().count("soldier.spawned") == 1


# --- soldiers that are out

FIGHTS = "sleep 300 & echo $! >>$KINGDOM_HOME/children; wait"


def test_a_killed_soldier_is_a_failure_and_takes_its_engine_along(army: Army) -> None:
    army.runs(FIGHTS)
    put(army.home, "tasks", "pending", **task())
    engine = army.fighting()
    children = army.home / "children"
    army.until(lambda: children.exists() and children.read_text().endswith("\n"), "the engine has a child")
    started = army.barrack().started()
    assert started is not None
    os.kill(started.pid, signal.SIGKILL)
    army.until(lambda: read(army.home, "tasks", "in_progress", TASK).get("attempt"), "a second try")
    assert not runs(engine)
    assert not runs(int(children.read_text()))
    assert "soldier.killed" in army.events()


HIDES = {
    "setsid": "setsid sleep 300 & echo $! >>$KINGDOM_HOME/children",
    "nohup": "nohup sleep 300 >/dev/null 2>&1 & echo $! >>$KINGDOM_HOME/children",
    "double fork": "(setsid sh -c 'echo $$ >>$KINGDOM_HOME/children; exec sleep 300' &) ; sleep 0.1",
    "without its marker": "(env -i H=$KINGDOM_HOME setsid sh -c 'echo $$ >>$H/children; exec sleep 300' &) ; sleep 0.1",
    "deaf": "(trap '' TERM; setsid sh -c 'echo $$ >>$KINGDOM_HOME/children; exec sleep 300' &) ; sleep 0.1",
}


@pytest.mark.parametrize("how", HIDES)
def test_nothing_of_a_soldier_outlives_its_task(army: Army, how: str) -> None:
    army.runs(f"{HIDES[how]}\nwhile [ ! -s $KINGDOM_HOME/children ]; do :; done\n{says(status='success')}")
    put(army.home, "tasks", "pending", **task())
    army.ended()
    (child,) = map(int, (army.home / "children").read_text().split())
    assert not runs(child)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_a_soldier_that_was_called_back_costs_its_task_no_try(army: Army, signal_number: int) -> None:
    (army.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    army.runs(FIGHTS)
    army.wake()
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    notes.note_stopped_by_down(army.places, army.services.disk, army.barrack().camp)
    soldier = army.barrack().started()
    assert soldier is not None
    os.kill(soldier.pid, signal_number)
    wait_until(lambda: not army.barrack().lives(), SOON, "the soldier's end")
    army.wake()
    army.fighting(2)
    second = army.barrack().started()
    assert second is not None
    assert second.attempt == 0
    os.kill(second.pid, signal.SIGKILL)
    assert army.ended()["error"].startswith("its soldier died"), "the next one was not called back"


def test_a_restarted_general_finds_its_soldier_at_work(army: Army) -> None:
    army.runs(f"while [ ! -e $KINGDOM_HOME/go ]; do sleep 0.05; done\n{says(status='success')}")
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    for _ in range(3):
        army.wake().turn(None)
        army.awake.turn(None)
    (army.home / "go").touch()
    assert army.ended()["status"] == "success"
    assert len(army.lives()) == 1


def test_a_general_that_was_away_finds_the_report(army: Army) -> None:
    army.runs(says(status="success", summary="meanwhile"))
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    wait_until(lambda: not army.barrack().lives(), SOON, "the soldier's end")
    army.wake()
    assert army.ended()["summary"] == "meanwhile"
    assert len(army.lives()) == 1


def test_a_general_killed_between_start_and_note_adopts_its_soldier(army: Army) -> None:
    army.runs(f"while [ ! -e $KINGDOM_HOME/go ]; do sleep 0.05; done\n{says(status='success')}")
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    (army.barrack().camp / "started").unlink()
    army.wake().turn(None)
    adopted = army.barrack().started()
    assert adopted is not None
    assert runs(adopted.pid)
    (army.home / "go").touch()
    assert army.ended()["status"] == "success"
    assert len(army.lives()) == 1


def test_what_ended_while_no_general_was_awake_is_cleared(army: Army) -> None:
    army.runs(FIGHTS)
    put(army.home, "tasks", "pending", **task())
    engine = army.fighting()
    army.places.queue_file("tasks", "in_progress", TASK).rename(army.places.queue_file("tasks", "completed", TASK))
    army.wake()
    wait_until(lambda: not runs(engine), SOON, "the soldier's end")
    army.awake.turn(None)
    assert army.left() == []


def test_a_task_is_never_fought_by_two(army: Army) -> None:
    army.runs(FIGHTS)
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    (army.barrack().camp / "started").unlink()
    order = read_json(army.barrack().camp / "order.json")
    result = army.barrack().result_path
    result.write_text("{}")
    assert army.barrack().march(army.services.unsynced, order, dict(os.environ)) is None
    assert result.exists(), "what the first one wrote stays"
    other = Campaign(services(army.home, GENERAL, army.clock))
    for _ in range(3):
        other.turn(None)
    assert len(army.lives()) == 1


def test_a_report_of_an_earlier_try_comes_too_late(army: Army) -> None:
    army.runs(says(status="success", summary="in time"))
    late = {"task_id": TASK, "attempt": 0, "code": 0, "result": {"status": "success", "summary": "too late"}}
    put(army.home, "tasks", "in_progress", **task(attempt=1))
    write(army.places.raw_result(TASK), late)
    assert army.ended()["summary"] == "in time"


def test_a_result_that_is_there_already_stands(army: Army) -> None:
    army.runs(f"{says(status='success')}")
    write(army.places.result(TASK), {"task_id": TASK, "status": "failed", "error": "first"})
    put(army.home, "tasks", "in_progress", **task())
    for _ in range(3):
        army.awake.turn(None)
    assert (army.lives(), army.ended()["error"]) == ([], "first")


# --- time


def has_served(army: Army, seconds: float) -> None:
    """As if the soldier had started so long ago."""
    started = army.barrack().started()
    assert started is not None
    ticks = int(seconds * os.sysconf("SC_CLK_TCK"))
    path = army.barrack().camp / "started"
    write(path, {**read_json(path), "start": started.start - ticks})


@pytest.mark.parametrize(
    ("served", "silent", "ends"), [(29, 100, False), (31, 100, True), (31, 1, False), (59, 1, False), (61, 1, True)]
)
def test_a_soldier_has_its_time_and_a_little_more_while_it_is_at_work(
    army: Army, clock: Clock, served: float, silent: float, ends: bool
) -> None:
    army.runs(f"echo at work; {FIGHTS}")
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    out = army.places.session_log(f"soldier-{TASK}-0", "out")
    wait_until(lambda: out.read_text(), SOON, "a word of it")
    clock.now = out.stat().st_mtime + silent
    has_served(army, served)
    army.awake.turn(None)
    assert (army.barrack().told_to_end() is not None) is ends


@pytest.mark.parametrize("deaf", [False, True])
def test_a_soldier_out_of_time_is_ended_with_its_tree(army: Army, clock: Clock, deaf: bool) -> None:
    (army.places.config / "general.yaml").write_text("timeouts: {term_seconds: 0.2}\n")
    army.runs(f"{'trap : TERM;' if deaf else ''} while :; do {FIGHTS}; done" if deaf else FIGHTS)
    army.wake()
    put(army.home, "tasks", "pending", **task(attempt=1))
    army.fighting()
    clock.now = time.time() + 100
    has_served(army, 40)
    army.awake.turn(None)
    clock.pass_(2)
    result = army.ended()
    assert result["status"] == "failed"
    assert re.match(r"timeout: it took 4\d s \(timeout_seconds of gen-pr is 30\)", result["error"])
    wait_until(lambda: not any(runs(pid) for pid in army.lives()), SOON, "its end")
    assert "soldier.timeout" in army.events()


# --- which tasks


def test_a_general_takes_only_its_own_and_no_more_than_it_may(army: Army) -> None:
    army.manifest(max_soldiers=2)
    army.runs(FIGHTS)
    put(army.home, "tasks", "pending", **task("task-9", "gen-other"))
    for number, priority in enumerate(("low", "normal", "high", "normal")):
        put(army.home, "tasks", "pending", **task(f"task-{number}", priority=priority))
    army.wake()
    army.fighting(2)
    assert here(army.home, "tasks", "in_progress") == ["task-1", "task-2"]
    assert here(army.home, "tasks", "pending") == ["task-0", "task-3", "task-9"]


def test_a_task_that_rests_leaves_its_generals_room_to_others(army: Army, clock: Clock) -> None:
    army.manifest(max_soldiers=1)
    army.runs(FIGHTS)
    put(army.home, "tasks", "in_progress", **task("task-1", not_before=stamp(clock() + 3600)))
    put(army.home, "tasks", "pending", **task("task-2"))
    army.wake()
    army.fighting()
    assert army.barrack("task-2").lives()
    clock.pass_(3601)
    army.awake.turn(None)
    assert not army.barrack("task-1").lives(), "its place is taken"


def test_tasks_that_come_back_all_at_once_get_no_more_soldiers_than_the_king_allows(army: Army, clock: Clock) -> None:
    army.runs(FIGHTS)
    for number in range(5):
        put(army.home, "tasks", "in_progress", **task(f"task-{number}", not_before=stamp(clock() - 1)))
    army.wake()
    army.fighting(3)
    army.awake.turn(None)
    assert [army.barrack(f"task-{number}").lives() for number in range(5)] == [True, True, True, False, False]
    put(army.home, "tasks", "pending", **task("task-9", type="resume"))
    army.fighting(4)
    assert army.barrack("task-9").lives(), "what people answer passes every gate"
    for name in ("task-0", "task-9"):
        army.barrack(name).end()
    army.fighting(5)
    assert army.barrack("task-3").lives()


def test_a_general_without_a_bound_of_its_own_takes_all_that_waits(army: Army, clock: Clock) -> None:
    for number in range(20):
        put(army.home, "tasks", "in_progress", **task(f"task-{number}", not_before=stamp(clock() + 3600)))
    army.runs(says(status="success"))
    put(army.home, "tasks", "pending", **task())
    army.wake()
    assert army.ended()["status"] == "success"


def test_a_cancelled_task_ends_at_once_and_is_not_tried_again(army: Army) -> None:
    army.runs(FIGHTS)
    put(army.home, "tasks", "pending", **task())
    engine = army.fighting()
    notes.note_cancelled(army.places, army.services.disk, TASK, "kim")
    assert army.ended()["error"] == "cancelled by kim"
    assert not runs(engine)


class Meanwhile(Disk):
    """Something else happens between the reading of a task and its rewriting."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def rewrite_all(self, items: Iterable[Item]) -> None:
        self.then()
        super().rewrite_all(items)


@pytest.mark.parametrize("result", [{"status": "failed", "error": "no"}, {"status": "failed", "quota": {}}], ids=str)
@pytest.mark.parametrize("general_first", [True, False])
def test_neither_a_cancellation_nor_a_try_is_lost(army: Army, result: dict[str, Any], general_first: bool) -> None:
    """The king cancels while its general notes the next try."""
    king = services(army.home, "king", army.clock)

    def cancel() -> None:
        put(army.home, "orders", "pending", id="ord-1", action="cancel", target=TASK, by="kim", created_at=MORNING)
        orders = Orders(king, lambda: 10.0, lambda: "task-none")
        orders.look(None)
        assert orders.obey()

    army.runs(says(**result))
    put(army.home, "tasks", "pending", **task())
    army.wake()
    disk = Meanwhile(army.places.scratch(GENERAL), durability="process")
    disk.then = (lambda: None) if general_first else cancel
    army.services = replace(army.services, disk=disk, queues=Queues(army.places, disk, army.services.log, army.clock))
    army.awake = Campaign(army.services)
    army.until(lambda: read(army.home, "tasks", "in_progress", TASK).get("not_before"), "the next try")
    if general_first:
        cancel()
    assert read(army.home, "tasks", "in_progress", TASK)["attempt"] == ("quota" not in result)
    assert army.ended()["error"] == "cancelled by kim"


RESTED = {"rests command:gen-pr": {"until": MORNING, "probe": None}}


@pytest.mark.parametrize("what", ["dies without a report", "is cancelled", "is not set up", "has no ground"])
def test_a_probe_that_comes_to_nothing_holds_nobody(army: Army, what: str) -> None:
    (army.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    (army.places.config / "general.yaml").write_text('repositories: {url: "/nowhere/{repo}"}\n')
    write(army.places.budgets, RESTED)
    army.runs(FIGHTS)
    if what == "is not set up":
        (army.places.package(GENERAL) / "prompt.md").unlink()
    army.wake()
    put(army.home, "tasks", "pending", **task(repo="acme/none" if what == "has no ground" else None))
    if what == "dies without a report":
        army.runs("exit 1")
    if what == "is cancelled":
        army.fighting()
        notes.note_cancelled(army.places, army.services.disk, TASK, "kim")
    army.ended()
    assert read_json(army.places.budgets)["rests command:gen-pr"]["probe"] is None


def test_a_limit_is_noted_on_the_account_that_was_asked(army: Army) -> None:
    (army.places.config / "system.yaml").write_text("default_engine: claude\n")
    army.manifest(supported_engines=["command"])
    army.runs(f"until [ -e {army.home}/go ]; do sleep 0.05; done\n" + says(status="failed", quota={}))
    army.wake()
    put(army.home, "tasks", "pending", **task())
    army.fighting()
    army.manifest(engine="claude")
    army.awake.turn(None)
    (army.home / "go").touch()
    army.until(army.places.budgets.exists, "the purse")
    assert list(read_json(army.places.budgets)) == ["rests command:gen-pr"]


def test_a_damaged_note_of_what_was_spent_ends_nobody(army: Army) -> None:
    army.runs(says(status="failed", error="no"))
    put(army.home, "tasks", "pending", **task(attempt=1, spent_usd="much"))
    assert army.ended()["error"] == "no"


@pytest.mark.parametrize(
    ("limits", "metrics", "said"),
    [
        ({"budget_usd": 1.0}, {"cost_usd": 0.6}, "its budget of 1 USD is used up"),
        ({"budget_tokens": 100}, {"tokens_used": 60}, "its budget of 100 tokens is used up"),
    ],
)
def test_a_task_that_has_used_up_its_budget_is_not_tried_again(
    army: Army, clock: Clock, limits: dict[str, Any], metrics: dict[str, Any], said: str
) -> None:
    (army.places.config / "king.yaml").write_text("retry: {max_attempts: 9, backoff_seconds: 0}\n")
    army.manifest(limits=limits)
    army.runs(says(status="failed", error="no", metrics=metrics))
    army.wake()
    put(army.home, "tasks", "pending", **task())
    assert army.ended()["error"] == f"no (and {said})"
    assert len(army.lives()) == 2


def test_plugins_of_another_engine_are_a_warning_in_the_result(army: Army) -> None:
    army.manifest(cc_plugins=["friday"])
    army.runs(says(status="success"))
    army.wake()
    put(army.home, "tasks", "pending", **task())
    assert army.ended()["warnings"] == ["cc_plugins (friday) are for the engine claude, which did not do this work"]


def test_a_manifest_that_breaks_again_in_the_same_way_is_told_again(army: Army) -> None:
    for text in ("name: [", None, "name: ["):
        army.manifest() if text is None else army.places.manifest(GENERAL).write_text(text)
        army.awake.turn(None)
        army.awake.turn(None)
    army.services.log.flush()
    assert army.places.role_log(GENERAL).read_text().count("keeps its old manifest") == 2


def test_a_broken_manifest_keeps_the_old_one(army: Army) -> None:
    army.runs(says(status="success"))
    army.places.manifest(GENERAL).write_text("name: [")
    put(army.home, "tasks", "pending", **task())
    assert army.ended()["status"] == "success"
    assert "keeps its old manifest" in army.places.role_log(GENERAL).read_text()


def test_new_configuration_beside_a_broken_king_yaml_is_not_taken_over(army: Army) -> None:
    army.runs(says(status="success", memory_updates=["x" * 5000]))
    (army.places.config / "king.yaml").write_text("retry: [")
    with pytest.raises(BadConfig):
        army.awake.reload(services(army.home, GENERAL, army.clock, general={"memory": {"largest_bytes": 1}}))
    put(army.home, "tasks", "pending", **task())
    army.ended()
    assert (army.places.general_memory(GENERAL) / "learned-patterns.md").stat().st_size > 1000


def test_a_general_at_work_follows_the_retry_of_king_yaml(army: Army) -> None:
    (army.places.config / "general.yaml").write_text("intervals: {task_check_seconds: 0.1}\n")
    (army.places.config / "king.yaml").write_text("retry: {max_attempts: 5, backoff_seconds: 0}\n")
    army.runs(says(status="failed", error="no"))
    words = [sys.executable, "-m", "kingdom.general", GENERAL]
    general = subprocess.Popen(words, env={**os.environ, "KINGDOM_HOME": str(army.home)})
    log = army.places.role_log(GENERAL)
    try:
        wait_until(lambda: log.exists() and "starts, pid" in log.read_text(), SOON, "the general is up")
        (army.places.config / "king.yaml").write_text("retry: {max_attempts: [")
        wait_until(lambda: "keeps its old configuration" in log.read_text(), SOON, "it says no to a broken one")
        (army.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
        wait_until(lambda: "took over new configuration" in log.read_text(), SOON, "it takes over a good one")
        put(army.home, "tasks", "pending", **task())
        wait_until(army.places.result(TASK).exists, SOON, "the one try")
    finally:
        general.terminate()
        general.wait(SOON)
    assert len(army.lives()) == 1


def test_soldiers_cost_their_general_no_descriptor(army: Army) -> None:
    army.runs('echo \'{"status": "success"}\' >$KINGDOM_RESULT_PATH')
    put(army.home, "tasks", "pending", **task())
    army.ended()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        put(army.home, "tasks", "pending", **task(f"task-{number}"))
        army.ended(f"task-{number}")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_soldier_sees_only_what_it_was_given(army: Army, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "canary-1")
    (army.home / ".env").write_text("GH_TOKEN=canary-2\nGIVEN=canary-3\n")
    (army.home / ".env").chmod(0o600)
    army.manifest(env=["GIVEN"])
    army.runs(f"env >$KINGDOM_HOME/env; {says(status='success')}")
    put(army.home, "tasks", "pending", **task())
    army.wake()
    army.ended()
    seen = (army.home / "env").read_text()
    assert [f"canary-{number}" in seen for number in (1, 2, 3)] == [False, False, True]


SPILT = {
    "a summary": {"status": "success", "summary": "it is canary-1234"},
    "an error": {"status": "failed", "error": "denied: canary-1234"},
    "a question": {"status": "needs_human", "question": "is canary-1234 right?"},
    "a proclamation": {"status": "success", "proclamation": {"channel": "C1", "message": "canary-1234"}},
    "a lesson": {"status": "success", "memory_updates": ["the token is canary-1234"]},
}


@pytest.mark.parametrize("what", SPILT)
def test_a_secret_that_a_soldier_spills_is_struck_out(army: Army, what: str) -> None:
    army.services.log.redact(["canary-1234"])
    army.runs(says(**SPILT[what]))
    put(army.home, "tasks", "pending", **task())
    army.until(lambda: army.places.result(TASK).exists() or "attempt" in read_task(army), "an outcome")
    written = [*army.places.results.iterdir(), *army.places.memory.rglob("*.md")]
    written += [army.places.queue_file("tasks", "in_progress", TASK)]
    told = "".join(path.read_text() for path in written)
    assert "[hidden]" in told
    assert "canary-1234" not in told


def read_task(army: Army) -> dict[str, Any]:
    return {key: each for key, each in read(army.home, "tasks", "in_progress", TASK).items() if each}


def test_the_helpers_of_these_tests_know_a_process_from_its_successor() -> None:
    assert started_at(os.getpid()) is not None
    assert end_carriers(frozenset({b"NOBODY=HERE"})) == 0
