"""A general and real soldiers: one at a time for each task, within its time, found again by its next life."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadConfig
from kingdom.base.home import manifests, schemas
from kingdom.base.records import notes, sessions
from kingdom.base.records.messages import Result, SessionRow, Task
from kingdom.base.records.sessions import Sessions
from kingdom.base.runtime.processes import Markers, end_carriers, started_at
from kingdom.base.times import stamp
from kingdom.court.general import report
from kingdom.court.general.job import GeneralJob, _is_asked_by_a_person
from kingdom.court.soldiers.starter import Starter
from tests import syncs
from tests.court.general.rig import GENERAL, SLEEPS, SOON, TASK, GeneralRig, says, started_ago, unwritable
from tests.fixtures import Clock, here, put, read, services, task, write
from tests.shell_roles import runs
from tests.waiting import wait_until

# A general may die before its soldiers: that is what these tests are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/opt/no/such -x\n", "run:1 begins with `#!/opt/no/such`, and there is no /opt/no/such here"),
        ("#!/bin/sh\r\ntrue\r\n", "run:1 ends as on Windows (CR LF), so its interpreter /bin/sh is not found"),
    ],
)
def test_a_program_without_its_interpreter_needs_set_up(general: GeneralRig, text: str, said: str) -> None:
    general.runs("")
    (general.places.package(GENERAL) / "run").write_text(text)
    put(general.home, "tasks", "pending", **task())
    result = general.result()
    assert (result["status"], result["reason"]) == (
        "skipped",
        f"needs set-up: {general.places.package(GENERAL)}/{said}",
    )


@pytest.mark.parametrize("lacking", ["run", "prompt.md", "a prompt that is text", "its engine"])
def test_a_general_that_is_not_set_up_says_so(general: GeneralRig, lacking: str) -> None:
    general.runs(says(status="success"))
    if lacking == "run":
        (general.places.package(GENERAL) / "run").chmod(0o644)
    elif lacking == "prompt.md":
        (general.places.package(GENERAL) / "prompt.md").unlink()
    elif lacking == "its engine":
        general.manifest(engine="claude")
    else:
        (general.places.package(GENERAL) / "prompt.md").write_bytes(b"\xff\xfe")
    put(general.home, "tasks", "pending", **task())
    general.restart()
    result = general.result()
    assert (result["status"], general.engines()) == ("skipped", [])
    assert result["reason"].startswith("needs set-up: ")


def test_a_task_takes_two_turns_of_its_general(general: GeneralRig) -> None:
    """One claims it and starts its soldier, the next one reports: neither asks for another one."""
    general.runs(says(status="success", summary="done"))
    put(general.home, "tasks", "pending", **task())
    job = general.restart()
    first = job.turn(None)
    assert (first.worked, first.settled, first.busy) == (True, True, True)
    assert first.wait == 1.0, "its time runs"
    assert [row.task_id for row in sessions.read(general.places)] == [TASK]
    wait_until(lambda: not general.soldier().is_running(), SOON, "the soldier's end")
    last = job.turn({})
    assert (last.worked, last.settled, last.busy, general.traces()) == (True, True, False, [])
    assert read_json(general.places.result(TASK))["status"] == "success"
    idle = job.turn({})
    assert not idle.worked
    assert 1.0 < idle.wait <= job._period(), "nobody's time runs"


HIDES = {
    "setsid": "setsid sleep 300 & echo $! >>$KINGDOM_HOME/children",
    "nohup": "nohup sleep 300 >/dev/null 2>&1 & echo $! >>$KINGDOM_HOME/children",
    "double fork": "(setsid sh -c 'echo $$ >>$KINGDOM_HOME/children; exec sleep 300' &) ; sleep 0.1",
    "without its marker": "(env -i H=$KINGDOM_HOME setsid sh -c 'echo $$ >>$H/children; exec sleep 300' &) ; sleep 0.1",
    "deaf": "(trap '' TERM; setsid sh -c 'echo $$ >>$KINGDOM_HOME/children; exec sleep 300' &) ; sleep 0.1",
}


@pytest.mark.parametrize("how", HIDES)
def test_nothing_of_a_soldier_outlives_its_task(general: GeneralRig, how: str) -> None:
    general.runs(f"{HIDES[how]}\nwhile [ ! -s $KINGDOM_HOME/children ]; do :; done\n{says(status='success')}")
    put(general.home, "tasks", "pending", **task())
    general.result()
    (child,) = map(int, (general.home / "children").read_text().split())
    assert not runs(child)


def test_a_restarted_general_finds_its_soldier_at_work(general: GeneralRig) -> None:
    general.runs(f"while [ ! -e $KINGDOM_HOME/go ]; do sleep 0.05; done\n{says(status='success')}")
    put(general.home, "tasks", "pending", **task())
    general.engine()
    for _ in range(3):
        general.restart().turn(None)
        general.job.turn(None)
    started = general.started()
    assert started is not None
    assert os.getsid(started.pid) == started.pid, "what ends the general's session does not end it"
    (general.home / "go").touch()
    assert select.select([general.services.exits], [], [], SOON)[0], "its end wakes the general"
    assert general.result()["status"] == "success"
    assert len(general.engines()) == 1


def test_a_general_that_was_away_finds_the_report(general: GeneralRig) -> None:
    general.runs(says(status="success", summary="meanwhile"))
    put(general.home, "tasks", "pending", **task())
    general.engine()
    wait_until(lambda: not general.soldier().is_running(), SOON, "the soldier's end")
    general.restart()
    assert general.result()["summary"] == "meanwhile"
    assert len(general.engines()) == 1


def test_a_general_killed_between_start_and_note_adopts_its_soldier(general: GeneralRig) -> None:
    general.runs(f"while [ ! -e $KINGDOM_HOME/go ]; do sleep 0.05; done\n{says(status='success')}")
    put(general.home, "tasks", "pending", **task())
    general.engine()
    (general.soldier().control_folder / "started").unlink()
    general.restart().turn(None)
    adopted = general.started()
    assert adopted is not None
    assert runs(adopted.pid)
    (general.home / "go").touch()
    assert general.result()["status"] == "success"
    assert len(general.engines()) == 1


def test_what_an_earlier_life_was_removing_goes_when_the_next_one_starts(general: GeneralRig) -> None:
    half = [general.places.workspace(GENERAL, "x").parent / ".x-1.gone", general.places.soldiers / ".x-2.gone"]
    for folder in half:
        (folder / "deep").mkdir(parents=True)
    general.restart()
    wait_until(lambda: not any(folder.exists() for folder in half), SOON, "both are gone")


def test_what_ended_while_no_general_was_running_is_cleared(general: GeneralRig) -> None:
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task())
    engine = general.engine()
    general.places.queue_file("tasks", "in_progress", TASK).rename(
        general.places.queue_file("tasks", "completed", TASK)
    )
    general.restart()
    wait_until(lambda: not runs(engine), SOON, "the soldier's end")
    general.job.turn(None)
    assert general.traces() == []


def test_what_a_soldier_printed_is_without_secrets_though_its_task_ended_before_it(general: GeneralRig) -> None:
    general.runs(f"echo token-5f0c2b9a7e6d\n{SLEEPS}")
    put(general.home, "tasks", "pending", **task())
    general.engine()
    (printed,) = general.places.session_logs.glob("*.out")
    wait_until(lambda: "token-" in printed.read_text(), SOON, "the first line", (printed.parent,))
    done = general.places.queue_file("tasks", "completed", TASK)
    general.places.queue_file("tasks", "in_progress", TASK).rename(done)
    given = services(general.home, GENERAL, general.clock)
    general.restart(replace(given, secrets={"TOKEN": "token-5f0c2b9a7e6d"}))
    assert "token-" not in printed.read_text()


def test_a_task_that_has_a_result_is_the_kings_from_now_on(general: GeneralRig) -> None:
    put(general.home, "tasks", "in_progress", **task())
    write(general.places.result(TASK), {"task_id": TASK, "status": "success"})
    assert not general.job.turn(None).busy
    assert general.job._general._handles == {}, "and nothing of it is kept here"


def _write_its_result(general: GeneralRig) -> None:
    write(general.places.result(TASK), {"task_id": TASK, "status": "killed"})


def _complete_it(general: GeneralRig) -> None:
    _write_its_result(general)
    os.rename(*(general.places.queue_file("tasks", state, TASK) for state in ("in_progress", "completed")))


def _take_it_away(general: GeneralRig) -> None:
    general.places.queue_file("tasks", "in_progress", TASK).unlink()


@pytest.mark.parametrize("sees_it", ["by itself", "in its folder"])
@pytest.mark.parametrize("end", [_write_its_result, _complete_it, _take_it_away])
def test_a_soldier_ends_with_its_task_whoever_ended_that(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch, end: Any, sees_it: str
) -> None:
    """As by a result that a person or another program wrote, which the king then takes."""
    monkeypatch.setattr("kingdom.court.general.job.LOOK_SECONDS", 0.0)
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task())
    child = general.engine()
    end(general)
    general.job.turn({} if sees_it == "by itself" else None)
    assert not runs(child)
    assert not general.soldier().is_running()
    assert general.traces() == []
    assert f"warn {TASK}: its soldier is ended, as its task was ended by somebody else" in general.log()
    assert [told["task_id"] for told in general.told("soldier.killed")] == [TASK]
    assert sessions.read(general.places) == []


@pytest.mark.parametrize("sandbox", ["off", "on"])
def test_a_general_without_a_sandbox_says_so(general: GeneralRig, sandbox: str) -> None:
    general.manifest(sandbox=sandbox)
    before = general.places.system_log.read_text() if general.places.system_log.exists() else ""
    general.restart()
    general.services.log.flush()
    said = general.places.system_log.read_text() if general.places.system_log.exists() else ""
    assert ("NO SANDBOX" in said.removeprefix(before)) == (sandbox == "off")


def test_a_task_never_has_two_soldiers(general: GeneralRig) -> None:
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task())
    general.engine()
    (general.soldier().control_folder / "started").unlink()
    order = read_json(general.soldier().control_folder / "order.json")
    result = general.soldier().result_path
    result.write_text("{}")
    starter = Starter(general.home, general.services.log, general.services.alarm)
    assert general.soldier().start(general.services.unsynced, order, dict(os.environ), starter) is None
    assert result.exists(), "what the first one wrote stays"
    other = GeneralJob(services(general.home, GENERAL, general.clock))
    for _ in range(3):
        other.turn(None)
    assert len(general.engines()) == 1


@pytest.mark.parametrize("how", ["fails", "is ended by down", "meets a limit"])
def test_what_begins_again_does_so_at_the_very_next_turn(general: GeneralRig, how: str) -> None:
    (general.places.config / "king.yaml").write_text("retry: {max_attempts: 2, backoff_seconds: 0}\n")
    endings = {
        "fails": says(status="failed", error="no"),
        "is ended by down": SLEEPS,
        "meets a limit": says(status="failed", quota={}),
    }
    general.runs(f"while [ ! -e {general.home}/go ]; do sleep 0.01; done\n{endings[how]}")
    job = general.restart()
    put(general.home, "tasks", "pending", **task())
    general.engine()  # until then no turn meets the soldier's end
    (serving,) = job._starter._busy.values()
    (general.home / "go").touch()
    if how == "is ended by down":
        notes.note_stopped_by_down(general.places, general.services.disk, general.soldier().control_folder)
        os.kill(general.started().pid, signal.SIGTERM)  # type: ignore[union-attr]
    wait_until(lambda: select.select([serving.socket], [], [], 0)[0], SOON, "the soldier's end is told")
    first = general.started()
    looked = job.turn({})
    assert (looked.worked, looked.settled, looked.busy) == (True, False, True)
    if how == "meets a limit":
        write(general.places.budgets, {})  # the account works again
    job.turn({})
    seen = [look.started for _, look in job._last_looks.values()]
    assert first not in seen, "what was seen of the first is no look at the second"
    wait_until(lambda: len(general.engines()) == 2, SOON, "the next soldier", (general.home,))
    general.until(lambda: len(job._starter._children) <= 1, "the first one is waited for")


def test_a_soldier_that_was_started_directly_is_waited_for_when_it_has_ended(general: GeneralRig) -> None:
    general.runs(says(status="success"))
    general.job._starter._slow_until = time.monotonic() + 60
    put(general.home, "tasks", "pending", **task())
    general.result()
    wait_until(lambda: (general.job.turn({}), general.job._starter._children)[1] == [], SOON, "its end is taken")


def test_a_task_that_was_taken_away_before_it_was_claimed_is_forgotten(general: GeneralRig) -> None:
    general.manifest(max_soldiers=1)
    general.runs(SLEEPS)
    for name in ("task-1", "task-2"):
        put(general.home, "tasks", "pending", **task(name))
    job = general.restart()
    general.engine()
    general.places.queue_file("tasks", "pending", "task-2").unlink()
    general.manifest(max_soldiers=2)
    job.turn({general.places.manifests: []})
    assert (job._pending.waiting, here(general.home, "tasks", "in_progress")) == ([], ["task-1"])
    assert [line for line in general.log() if "task-2" in line] == []


def test_a_task_that_cannot_be_read_is_the_kings_to_set_aside(general: GeneralRig) -> None:
    path = general.places.queue_file("tasks", "pending", TASK)
    path.write_text("{")
    os.utime(path, (0, 0))
    assert not general.job.turn(None).worked
    assert path.exists()


def test_what_a_soldier_of_a_task_with_a_result_has_left_goes(general: GeneralRig) -> None:
    put(general.home, "tasks", "in_progress", **task())
    write(general.places.result(TASK), {"task_id": TASK, "status": "success"})
    general.soldier().control_folder.mkdir(parents=True)
    general.places.workspace(GENERAL, TASK).mkdir(parents=True)
    write(general.places.queue_file("tasks", "in_progress", "task-9"), task("task-9", "gen-other"))
    assert not general.job.turn(None).worked
    assert (general.traces(), general.places.workspace(GENERAL, TASK).exists()) == ([], False)


def test_a_general_that_starts_takes_its_own_rows_off_the_list_and_no_others(general: GeneralRig) -> None:
    rows = Sessions(general.places, general.services.unsynced)
    for name, of in (("task-1", GENERAL), ("task-2", "gen-other")):
        rows.add(SessionRow(soldier=f"soldier-{name}-0", task_id=name, general=of))
    rows.write()
    general.restart().turn(None)
    assert [row.task_id for row in sessions.read(general.places)] == ["task-2"]


def test_a_manifest_is_read_again_with_new_configuration(general: GeneralRig) -> None:
    general.job.turn(None)
    general.manifest(timeout_seconds=77)
    general.job.reload(general.services)
    assert general.job._general.manifest.timeout_seconds == 77


@pytest.mark.parametrize(
    ("fields", "asked"),
    [({}, False), ({"type": "resume"}, True), ({"reply_to": {"source": "console"}}, True)],
)
def test_who_answers_or_writes_to_us_is_a_person(fields: dict[str, Any], asked: bool) -> None:
    assert _is_asked_by_a_person(Task.from_json(schemas.check("task", task(**fields)))) is asked


def test_a_result_that_came_in_between_is_kept_and_that_is_told(general: GeneralRig) -> None:
    write(general.places.result(TASK), {"task_id": TASK, "status": "success", "summary": "the first"})
    late = Result(task_id=TASK, status="failed", error="the second")
    given = Task.from_json(schemas.check("task", task()))
    assert report.finish(general.job._general, given, general.soldier(), late)
    report.write_results(general.job._general)
    assert read_json(general.places.result(TASK))["summary"] == "the first"
    assert f"warn {TASK} has a result already, which is kept" in general.log()


def test_a_result_that_cannot_be_written_fails_the_turn_and_is_written_by_a_later_one(general: GeneralRig) -> None:
    general.runs(f"while [ ! -e {general.home}/go ]; do sleep 0.01; done\n{says(status='success')}")
    put(general.home, "tasks", "pending", **task())
    general.engine()
    (general.home / "go").touch()
    wait_until(general.places.raw_result(TASK).exists, SOON, "the report", (general.places.results,))
    with unwritable(general):
        general.job.turn(None)
    assert general.result()["status"] == "success"


def test_a_general_without_a_name_is_refused() -> None:
    run = subprocess.run([sys.executable, "-m", "kingdom.general", "pr"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (78, "which general? python -m kingdom.general gen-briefing\n")


def test_a_soldier_that_does_not_end_is_killed_a_second_after_its_term(general: GeneralRig, clock: Clock) -> None:
    (general.places.config / "general.yaml").write_text("timeouts: {term_seconds: 60}\n")
    general.runs(AT_TERM["is deaf"])
    general.restart()
    put(general.home, "tasks", "pending", **task(attempt=1))
    engine = general.engine()
    clock.now = float(int(time.time()) + 100)
    started_ago(general, 40)
    general.job.turn(None)
    clock.pass_(61)
    assert not general.job.turn(None).worked
    assert runs(engine)
    clock.pass_(1)
    general.job.turn(None)
    wait_until(lambda: not runs(engine), SOON, "its end")


def test_a_folder_that_cannot_be_listed_is_an_error_of_the_turn_and_time_runs_out_all_the_same(
    general: GeneralRig, clock: Clock
) -> None:
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task())
    general.engine()
    clock.now = time.time() + 100
    started_ago(general, 40)
    pending = general.places.folder("tasks", "pending")
    pending.rename(general.home / "aside")
    with pytest.raises(OSError, match="pending"):
        general.job.turn(None)
    (general.home / "aside").rename(pending)
    assert (general.soldier().control_folder / "stopping").exists()


@pytest.mark.parametrize(
    ("served", "silent", "ends"),
    [(270, 100, False), (310, 100, True), (310, 1, False), (570, 1, False), (610, 1, True)],
)
def test_a_soldier_has_its_time_and_a_little_more_while_it_is_at_work(
    general: GeneralRig, clock: Clock, served: float, silent: float, ends: bool
) -> None:
    general.manifest(timeout_seconds=300)
    general.restart()
    general.runs(f"echo at work; {SLEEPS}")
    put(general.home, "tasks", "pending", **task())
    general.engine()
    out = general.places.session_log(f"soldier-{TASK}-0", "out")
    wait_until(lambda: out.read_text(), SOON, "a word of it")
    clock.now = out.stat().st_mtime + silent
    started_ago(general, served)
    assert general.job.turn(None).worked is ends
    assert (general.soldier().look(0).stopping is not None) is ends


@pytest.mark.parametrize(
    ("seconds", "silent", "allowed"),
    [
        (29.5, 0, 30),
        (30.0, 0, 45),
        (31.0, 60, 46),
        (31.0, 60.5, 30),
        (50.0, 0, 60),
        (90.0, 0, 60),
        (5.0, 1000, 30),
    ],
)
def test_how_much_time_a_soldier_has(
    general: GeneralRig, clock: Clock, seconds: float, silent: float, allowed: float
) -> None:
    rules = "{extension_seconds: 15, most: 2, active_within_seconds: 60}"
    (general.places.config / "general.yaml").write_text(f"timeouts: {rules}\n")
    job = general.restart()
    given = Task.from_json(schemas.check("task", task()))
    out = general.places.session_log(f"soldier-{TASK}-0", "out")
    out.write_text("a word")
    os.utime(out, (clock() - silent, clock() - silent))
    assert job._allowed_seconds(given, seconds) == allowed


def test_to_tell_a_task_to_wait_is_work_and_to_let_it_wait_is_none(general: GeneralRig) -> None:
    write(general.places.budgets, {"rests command:gen-pr": {"until": "2026-02-07T16:00:00Z", "probe": None}})
    put(general.home, "tasks", "in_progress", **task())
    general.runs(SLEEPS)
    job = general.restart()
    assert [job.turn(None).worked for _ in range(3)] == [True, False, False]
    assert read(general.home, "tasks", "in_progress", TASK)["not_before"] == "2026-02-07T16:00:00Z"


AT_TERM = {
    "ends": SLEEPS,
    "is deaf": f"trap : TERM; while :; do {SLEEPS}; done",
    "reports a success": f"end() {{\n{says(status='success')}\nexit 0\n}}\ntrap end TERM\n{SLEEPS}",
}


@pytest.mark.parametrize("what", AT_TERM)
def test_a_soldier_out_of_time_is_ended_with_its_tree(general: GeneralRig, clock: Clock, what: str) -> None:
    (general.places.config / "general.yaml").write_text("timeouts: {term_seconds: 0.2}\n")
    general.runs(AT_TERM[what])
    general.restart()
    put(general.home, "tasks", "pending", **task(attempt=1))
    general.engine()
    clock.now = time.time() + 100
    started_ago(general, 40)
    general.job.turn(None)
    clock.pass_(2)
    result = general.result()
    assert result["status"] == "failed"
    assert re.match(r"timeout: it took 4\d s \(timeout_seconds of gen-pr is 30\)", result["error"])
    wait_until(lambda: not any(runs(pid) for pid in general.engines()), SOON, "its end")
    soldier = {"soldier_id": f"soldier-{TASK}-1", "task_id": TASK}
    assert general.told("soldier.timeout") == [{**soldier, "timeout_seconds": 30}]
    assert any(re.search(f"the soldier of {TASK} has taken 4. s and is asked to end", line) for line in general.log())
    if what == "is deaf":
        assert {"reason": "it did not end when it was out of time", **soldier} in general.told("soldier.killed")


def test_a_general_takes_only_its_own_and_no_more_than_it_may(general: GeneralRig) -> None:
    general.manifest(max_soldiers=2)
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task("task-9", "gen-other"))
    for number, priority in enumerate(("low", "normal", "high", "normal")):
        put(general.home, "tasks", "pending", **task(f"task-{number}", priority=priority))
    general.restart()
    general.engine(2)
    assert here(general.home, "tasks", "in_progress") == ["task-1", "task-2"]
    assert here(general.home, "tasks", "pending") == ["task-0", "task-3", "task-9"]


def test_a_task_that_rests_leaves_its_generals_room_to_others(general: GeneralRig, clock: Clock) -> None:
    general.manifest(max_soldiers=1)
    general.runs(SLEEPS)
    put(general.home, "tasks", "in_progress", **task("task-1", not_before=stamp(clock() + 3600)))
    put(general.home, "tasks", "pending", **task("task-2"))
    general.restart()
    general.engine()
    assert general.soldier("task-2").is_running()
    assert not general.job.turn({}).worked
    clock.pass_(3601)
    general.job.turn(None)
    assert not general.soldier("task-1").is_running(), "its place is taken"


def test_a_task_that_has_rested_takes_its_room_again(general: GeneralRig, clock: Clock) -> None:
    general.manifest(max_soldiers=1)
    general.runs(SLEEPS)
    put(general.home, "tasks", "in_progress", **task("task-1", not_before=stamp(clock() + 3600)))
    general.restart().turn(None)
    clock.pass_(3601)
    general.engine()
    put(general.home, "tasks", "pending", **task("task-2"))
    general.job.turn(None)
    assert here(general.home, "tasks", "pending") == ["task-2"]


def test_tasks_that_come_back_all_at_once_get_no_more_soldiers_than_the_king_allows(
    general: GeneralRig, clock: Clock
) -> None:
    general.runs(SLEEPS)
    for number in range(5):
        put(general.home, "tasks", "in_progress", **task(f"task-{number}", not_before=stamp(clock() - 1)))
    general.restart()
    general.engine(3)
    general.job.turn(None)
    assert [general.soldier(f"task-{number}").is_running() for number in range(5)] == [True, True, True, False, False]
    put(general.home, "tasks", "pending", **task("task-9", type="resume"))
    general.engine(4)
    assert general.soldier("task-9").is_running(), "what people answer passes every gate"
    for name in ("task-0", "task-9"):
        general.soldier(name).kill()
    general.engine(5)
    assert general.soldier("task-3").is_running()


def test_a_general_without_a_bound_of_its_own_takes_all_that_waits(general: GeneralRig, clock: Clock) -> None:
    for number in range(20):
        put(general.home, "tasks", "in_progress", **task(f"task-{number}", not_before=stamp(clock() + 3600)))
    general.runs(says(status="success"))
    put(general.home, "tasks", "pending", **task())
    general.restart()
    assert general.result()["status"] == "success"


def test_a_manifest_that_breaks_again_in_the_same_way_is_logged_again(general: GeneralRig) -> None:
    for text in ("name: [", None, "name: ["):
        general.manifest() if text is None else general.places.manifest(GENERAL).write_text(text)
        general.job.turn(None)
        general.job.turn(None)
    general.services.log.flush()
    assert general.places.role_log(GENERAL).read_text().count("keeps its old manifest") == 2


def test_a_manifest_that_cannot_be_opened_is_read_at_the_next_look(general: GeneralRig) -> None:
    path = general.places.manifest(GENERAL)
    path.unlink()
    path.symlink_to(path.name)
    general.job.turn(None)
    assert [line for line in general.log() if line.startswith("error keeps its old manifest: ")]
    path.unlink()
    general.manifest(timeout_seconds=77)
    general.job.turn(None)
    assert general.job._general.manifest.timeout_seconds == 77


def test_a_manifest_is_read_again_when_it_arrives_and_noted_as_in_use(general: GeneralRig) -> None:
    assert manifests.is_in_use(general.places, GENERAL, GENERAL)
    general.job.turn(None)
    general.manifest(timeout_seconds=77)
    assert not manifests.is_in_use(general.places, GENERAL, GENERAL)
    general.job.turn({general.places.manifests: [f"{GENERAL}.yaml"]})
    assert manifests.is_in_use(general.places, GENERAL, GENERAL)
    assert general.places.manifests in tuple(general.job.folders())


def test_a_broken_manifest_keeps_the_old_one(general: GeneralRig) -> None:
    general.runs(says(status="success"))
    general.places.manifest(GENERAL).write_text("name: [")
    put(general.home, "tasks", "pending", **task())
    assert general.result()["status"] == "success"
    assert "keeps its old manifest" in general.places.role_log(GENERAL).read_text()


def test_a_manifest_of_another_name_keeps_the_old_one(general: GeneralRig) -> None:
    before = general.job._general.manifest
    path = general.places.manifest(GENERAL)
    path.write_text(path.read_text().replace(GENERAL, "gen-other"))
    general.job.turn(None)
    assert general.job._general.manifest == before
    with pytest.raises(BadConfig, match="says 'gen-other', but the file is called"):
        general.restart()


def test_new_configuration_beside_a_broken_king_yaml_is_not_taken_over(general: GeneralRig) -> None:
    general.runs(says(status="success", memory_updates=["x" * 5000]))
    (general.places.config / "king.yaml").write_text("retry: [")
    with pytest.raises(BadConfig):
        general.job.reload(services(general.home, GENERAL, general.clock, general={"memory": {"largest_bytes": 1}}))
    put(general.home, "tasks", "pending", **task())
    general.result()
    assert (general.places.general_memory(GENERAL) / "learned-patterns.md").stat().st_size > 1000


def test_a_general_at_work_follows_the_retry_of_king_yaml(general: GeneralRig) -> None:
    (general.places.config / "general.yaml").write_text("intervals: {task_check_seconds: 0.1}\n")
    (general.places.config / "king.yaml").write_text("retry: {max_attempts: 5, backoff_seconds: 0}\n")
    general.runs(says(status="failed", error="no"))
    words = [sys.executable, "-m", "kingdom.general", GENERAL]
    process = subprocess.Popen(words, env={**os.environ, "KINGDOM_HOME": str(general.home)})
    log = general.places.role_log(GENERAL)
    try:
        wait_until(lambda: log.exists() and "starts, pid" in log.read_text(), SOON, "the general is up")
        (general.places.config / "king.yaml").write_text("retry: {max_attempts: [")
        wait_until(lambda: "keeps its old configuration" in log.read_text(), SOON, "it says no to a broken one")
        (general.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
        wait_until(lambda: "took over new configuration" in log.read_text(), SOON, "it takes over a good one")
        put(general.home, "tasks", "pending", **task())
        wait_until(general.places.result(TASK).exists, SOON, "the one try")
    finally:
        process.terminate()
        process.wait(SOON)
    assert len(general.engines()) == 1


@pytest.mark.parametrize("what", ["manifest", "task", "started"])
def test_time_runs_out_also_while_a_file_is_under_a_lease(general: GeneralRig, clock: Clock, what: str) -> None:
    general.runs(f"echo a word; {SLEEPS}")
    put(general.home, "tasks", "pending", **task(attempt=1))
    general.engine()
    out = general.places.session_log(f"soldier-{TASK}-1", "out")
    wait_until(out.read_text, SOON, "a word of it")
    started_ago(general, 40)
    clock.now = out.stat().st_mtime + 1
    general.job.turn(None)
    assert not (general.soldier().control_folder / "stopping").exists()
    clock.pass_(100)
    files = {
        "manifest": general.places.manifest(GENERAL),
        "task": general.places.queue_file("tasks", "in_progress", TASK),
        "started": general.soldier().control_folder / "started",
    }
    os.utime(files[what])
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(files[what], os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    try:
        with nullcontext() if what == "manifest" else pytest.raises(BlockingIOError):
            general.job.turn(None)
        assert (general.soldier().control_folder / "stopping").exists()
        kept = [line for line in general.log() if line.startswith("error keeps its old manifest: ")]
        assert len(kept) == (what == "manifest")
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)
    clock.pass_(30)
    general.result()


def test_soldiers_cost_their_general_no_descriptor(general: GeneralRig) -> None:
    general.runs('echo \'{"status": "success"}\' >$KINGDOM_RESULT_PATH')
    put(general.home, "tasks", "pending", **task())
    general.result()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        put(general.home, "tasks", "pending", **task(f"task-{number}"))
        general.result(f"task-{number}")

    def is_closed() -> bool:
        general.services.exits.note()  # as the loop does when they have woken it
        # One more at most: the socket of a warm server that was not there for the first.
        return len(os.listdir("/proc/self/fd")) <= before + 1

    general.until(is_closed, "what watched their ends is closed")


def test_a_soldier_sees_only_what_it_was_given(general: GeneralRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "canary-1")
    (general.home / ".env").write_text("GH_TOKEN=canary-2\nGIVEN=canary-3\n")
    (general.home / ".env").chmod(0o600)
    general.manifest(env=["GIVEN"])
    general.runs(f"env >$KINGDOM_HOME/env; {says(status='success')}")
    put(general.home, "tasks", "pending", **task())
    general.restart()
    general.result()
    seen = (general.home / "env").read_text()
    assert [f"canary-{number}" in seen for number in (1, 2, 3)] == [False, False, True]


def test_the_helpers_of_these_tests_know_a_process_from_its_successor() -> None:
    assert started_at(os.getpid()) is not None
    assert end_carriers(Markers(frozenset({b"NOBODY=HERE"}))) == 0


def test_claims_become_durable_while_soldiers_start_and_results_together(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    general.runs('echo \'{"status": "success"}\' >$KINGDOM_RESULT_PATH')
    general.services.disk.durability = "power"
    names = [f"task-20260207-00{number}" for number in range(1, 4)]
    for name in names:
        put(general.home, "tasks", "pending", **task(name))
    start = general.job._starter.start
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, general.home)
        asking = lambda *words: [steps.note("ask", f"{general.home}/a soldier"), start(*words)][1]  # noqa: E731
        patch.setattr(general.job._starter, "start", asking)
        general.job.turn(None)
    asked = steps.take()
    claimed = asked.index("sync tasks/in_progress, tasks/pending")
    assert claimed > asked.index("ask a soldier")
    assert "ask a soldier" not in asked[claimed:], "all are asked for before one is waited for"
    reports = [general.places.raw_result(name) for name in names]
    wait_until(lambda: all(map(Path.exists, reports)), SOON, "three reports", (general.places.results,))
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, general.home)
        general.job.turn(None)
    done = steps.take()
    assert done[:3] == ["sync drafts", "show state/results", "sync state/results"]
    assert not [step for step in done[3:] if step.startswith("sync")]
    assert all(general.places.result(name).exists() for name in names)
