"""What comes of a soldier: a result, a question, another try, a rest; and nothing of it is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk, Item
from kingdom.base.disk.codec import read_json
from kingdom.base.home import schemas
from kingdom.base.records import notes
from kingdom.base.records.backlog import refresh_due
from kingdom.base.records.messages import Result, Task
from kingdom.base.records.queues import Queues
from kingdom.base.records.soldiers import RawReport, Started
from kingdom.base.words import choices_in
from kingdom.court.general import report
from kingdom.court.general.job import GeneralJob
from kingdom.court.king.context import KingContext
from kingdom.court.king.orders import KingOrders
from kingdom.court.soldiers import engine_homes
from kingdom.court.soldiers.handle import Look
from tests.base.records.test_soldiers import ORDER
from tests.court.general.rig import GENERAL, SLEEPS, SOON, TASK, GeneralRig, says, started_ago
from tests.fixtures import MORNING, Clock, here, put, read, services, task, write
from tests.shell_roles import runs
from tests.waiting import wait_until

# A general may die before its soldiers: that is what these tests are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_success_is_reported_and_nothing_is_left(general: GeneralRig) -> None:
    general.runs(
        'grep -q "Look at github.pr.review_requested" || exit 9; echo hello; mkdir empty; '
        + says(status="success", summary="fine", memory_updates=["tabs"], colour="blue", metrics={"tokens_used": 5})
    )
    put(general.home, "tasks", "pending", **task())
    result = general.result()
    assert (result["status"], result["summary"], result["colour"]) == ("success", "fine", "blue")
    assert result["metrics"]["tokens_used"] == 5
    assert (result["metrics"]["retry_count"], result["metrics"]["duration_seconds"] >= 0) == (0, True)
    assert (here(general.home, "tasks", "pending"), here(general.home, "tasks", "in_progress")) == ([], [TASK])
    assert general.traces() == []
    assert not general.places.workspace(GENERAL, TASK).exists()
    assert general.places.session_log(f"soldier-{TASK}-0", "out").read_text() == "hello\n"
    assert "- tabs" in (general.places.general_memory(GENERAL) / "learned-patterns.md").read_text()
    assert general.events() == ["task.started", "soldier.spawned", "soldier.completed"]
    soldier = {"soldier_id": f"soldier-{TASK}-0", "task_id": TASK}
    assert general.told("soldier.spawned") == [soldier]
    assert general.told("task.started") == general.told("soldier.completed") == [{**soldier, "attempt": 0}]
    assert general.log()[1:] == [
        f"info starts soldier-{TASK}-0 for github.pr.review_requested",
        f"info {TASK}: success",
    ]


def test_a_question_keeps_the_workspace_and_leaves_a_checkpoint(general: GeneralRig) -> None:
    general.runs("echo half >work; " + says(status="needs_human", question="which?", session_id="s-1"))
    put(general.home, "tasks", "pending", **task(payload={"pr_number": "7"}, thread_task_id="task-1"))
    result = general.result()
    assert result["question"] == "which?"
    assert result["kept"] == [str(general.places.workspace(GENERAL, TASK))]
    assert result["checkpoint_path"] == str(general.places.checkpoint(TASK))
    kept = read_json(general.places.checkpoint(TASK))
    assert (kept["target_general"], kept["session_id"], kept["payload"]) == (GENERAL, "s-1", {"pr_number": "7"})
    assert (kept["thread_task_id"], kept["question"]) == ("task-1", "which?")
    assert (Path(kept["workspace"]) / "work").read_text() == "half\n"
    assert general.places.session_id(TASK).read_text() == "s-1\n"
    assert general.places.soldier_id(TASK).read_text() == f"soldier-{TASK}-0\n"


ASKS_TWICE = """pwd >>$KINGDOM_HOME/workspaces_seen; echo line >>../seen
said='"status": "needs_human", "question": "which?"'
[ $(wc -l <../seen) = 3 ] && said='"status": "success"'
echo "{$said}" >$KINGDOM_RESULT_PATH"""


SECOND, THIRD = "task-20260207-002", "task-20260207-003"


def answered(general: GeneralRig, asked: str, name: str) -> None:
    """As the king would take an answer to a question."""
    general.places.queue_file("tasks", "in_progress", asked).rename(
        general.places.queue_file("tasks", "completed", asked)
    )
    payload = {"original_task_id": asked, "human_response": "yes"}
    about = read_json(general.places.checkpoint(asked))["matter"]
    put(
        general.home,
        "tasks",
        "pending",
        **task(name, type="resume", payload=payload, thread_task_id=TASK, matter=about),
    )


def test_a_question_after_a_question_is_asked_in_the_same_workspace(general: GeneralRig) -> None:
    general.runs(ASKS_TWICE)
    put(general.home, "tasks", "pending", **task())
    assert general.result()["status"] == "needs_human"
    answered(general, TASK, SECOND)
    general.restart()
    assert general.result(SECOND)["status"] == "needs_human"
    kept = read_json(general.places.checkpoint(SECOND))
    workspace = general.places.workspace(GENERAL, TASK)
    assert (kept["workspace"], kept["thread_task_id"]) == (str(workspace), TASK)
    assert (kept["type"], kept["matter"]) == ("resume", "github.pr.review_requested")
    answered(general, SECOND, THIRD)
    general.restart()
    assert general.result(THIRD)["status"] == "success"
    assert set((general.home / "workspaces_seen").read_text().split()) == {str(workspace)}
    assert not workspace.exists()


def test_a_workspace_kept_for_an_answer_is_removed_though_its_general_was_killed(general: GeneralRig) -> None:
    workspace = general.places.workspace(GENERAL, TASK)
    workspace.mkdir(parents=True)
    write(general.places.checkpoint(TASK), {"workspace": str(workspace)})
    write(general.places.result(TASK), {"task_id": TASK, "status": "needs_human", "question": "which?"})
    write(general.places.result(SECOND), {"task_id": SECOND, "status": "success"})
    resumed = task(SECOND, type="resume", payload={"original_task_id": TASK})
    put(general.home, "tasks", "completed", **resumed)
    general.soldier(SECOND).control_folder.mkdir(parents=True)
    general.restart()
    assert not workspace.exists()


@pytest.mark.parametrize("status", ["success", "failed"])
def test_a_workspace_of_a_done_task_that_a_killed_general_has_left_goes_and_one_of_a_failed_task_stays(
    general: GeneralRig, status: str
) -> None:
    workspace = general.places.workspace(GENERAL, TASK)
    workspace.mkdir(parents=True)
    write(general.places.result(TASK), {"task_id": TASK, "status": status})
    general.restart()
    assert workspace.exists() == (status == "failed")


def test_what_is_out_of_scope_is_not_tried_again(general: GeneralRig) -> None:
    general.runs(says(status="skipped", reason="merged"))
    put(general.home, "tasks", "pending", **task())
    assert general.result()["reason"] == "merged"
    assert len(general.engines()) == 1


def test_a_failure_is_tried_again_after_a_pause_then_final(general: GeneralRig, clock: Clock) -> None:
    general.runs(says(status="failed", error="no tests"))
    put(general.home, "tasks", "pending", **task(colour="blue"))
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("attempt"), "a second try")
    waiting = read(general.home, "tasks", "in_progress", TASK)
    assert (waiting["attempt"], waiting["not_before"], waiting["colour"]) == (1, "2026-02-07T10:01:00Z", "blue")
    assert waiting["waits_because"] == "attempt 1 failed: no tests"
    assert general.told("task.retried") == [{"task_id": TASK, "attempt": 1, "error": "no tests"}]
    assert f"warn {TASK} failed (no tests); retries after 2026-02-07T10:01:00Z" in general.log()
    assert general.traces() == []
    clock.pass_(59)
    for _ in range(3):
        general.job.turn(None)
    general.restart().turn(None)
    assert len(general.engines()) == 1, "it waits"
    clock.pass_(1)
    result = general.result()
    assert (result["status"], result["error"], result["metrics"]["retry_count"]) == ("failed", "no tests", 1)
    assert len(general.engines()) == 2
    assert general.places.workspace(GENERAL, TASK).exists(), "kept for whoever looks into it"


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
def test_without_a_valid_result_it_failed_with_what_was_seen(general: GeneralRig, what: str) -> None:
    script, seen = NO_RESULTS[what]
    general.runs(script)
    put(general.home, "tasks", "pending", **task(attempt=1))
    result = general.result()
    assert result["status"] == "failed"
    assert seen in result["error"]


def test_a_soldier_cannot_answer_for_another_task(general: GeneralRig) -> None:
    general.runs(says(status="success") + "\nsed -i s/001/002/ $KINGDOM_RESULT_PATH")
    put(general.home, "tasks", "pending", **task(attempt=1))
    result = general.result()
    assert (result["task_id"], result["status"]) == (TASK, "failed")
    assert result["error"] == f"no valid result: its task_id is task-20260207-002, and this is {TASK}"


def test_a_result_may_leave_out_whose_it_is(general: GeneralRig) -> None:
    general.runs('echo \'{"status": "success"}\' >$KINGDOM_RESULT_PATH')
    put(general.home, "tasks", "pending", **task())
    assert general.result()["status"] == "success"
    assert general.result()["task_id"] == TASK


def test_a_soldier_that_cannot_even_start_uses_up_a_retry(general: GeneralRig, monkeypatch: pytest.MonkeyPatch) -> None:
    (general.home / "broken" / "kingdom").mkdir(parents=True)
    (general.home / "broken" / "kingdom" / "__init__.py").write_text("raise ImportError('a broken house')\n")
    monkeypatch.setenv("PYTHONPATH", str(general.home / "broken"))
    general.runs(says(status="success"))
    put(general.home, "tasks", "pending", **task(attempt=1))
    result = general.result()
    assert (result["status"], general.engines()) == ("failed", [])
    assert "its soldier died without a report" in result["error"]
    assert "a broken house" in result["error"]
    assert general.events().count("soldier.spawned") == 1


def test_a_killed_soldier_is_a_failure_and_takes_its_engine_along(general: GeneralRig) -> None:
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task())
    engine = general.engine()
    children = general.home / "children"
    general.until(lambda: children.exists() and children.read_text().endswith("\n"), "the engine has a child")
    started = general.started()
    assert started is not None
    os.kill(started.pid, signal.SIGKILL)
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("attempt"), "a second try")
    assert not runs(engine)
    assert not runs(int(children.read_text()))
    assert [told["reason"] for told in general.told("soldier.killed")] == ["it died without a report"]


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_down_with_soldiers_does_not_use_up_a_retry(general: GeneralRig, signal_number: int) -> None:
    (general.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    general.runs(f"ls >>$KINGDOM_HOME/found; touch litter $KINGDOM_HOME/looked.$$\n{SLEEPS}")
    general.restart()
    put(general.home, "tasks", "pending", **task())
    general.engine()
    wait_until(lambda: [*general.home.glob("looked.*")], SOON, "the first has looked around", (general.home,))
    notes.note_stopped_by_down(general.places, general.services.disk, general.soldier().control_folder)
    soldier = general.started()
    assert soldier is not None
    os.kill(soldier.pid, signal_number)
    wait_until(lambda: not general.soldier().is_running(), SOON, "the soldier's end")
    general.restart()
    general.engine(2)
    second = general.started()
    assert second is not None
    assert second.attempt == 0
    wait_until(lambda: len([*general.home.glob("looked.*")]) == 2, SOON, "so has the second", (general.home,))
    assert (general.home / "found").read_text() == "", "its workspace is a fresh one"
    assert f"info {TASK} starts again: its soldier was ended by `down --soldiers`" in general.log()
    os.kill(second.pid, signal.SIGKILL)
    assert general.result()["error"].startswith("its soldier died"), "the next one was not called back"


def test_a_report_of_an_earlier_try_comes_too_late(general: GeneralRig) -> None:
    general.runs(says(status="success", summary="in time"))
    late = {"task_id": TASK, "attempt": 0, "code": 0, "result": {"status": "success", "summary": "too late"}}
    put(general.home, "tasks", "in_progress", **task(attempt=1))
    write(general.places.raw_result(TASK), late)
    assert general.result()["summary"] == "in time"


def test_a_result_that_is_there_already_stands(general: GeneralRig) -> None:
    general.runs(f"{says(status='success')}")
    write(general.places.result(TASK), {"task_id": TASK, "status": "failed", "error": "first"})
    put(general.home, "tasks", "in_progress", **task())
    for _ in range(3):
        general.job.turn(None)
    assert (general.engines(), general.result()["error"]) == ([], "first")


def test_a_cancelled_task_ends_at_once_and_is_not_tried_again(general: GeneralRig) -> None:
    general.runs(SLEEPS)
    put(general.home, "tasks", "pending", **task())
    engine = general.engine()
    notes.note_cancelled(general.places, general.services.disk, TASK, "kim")
    assert general.result()["error"] == "cancelled by kim"
    assert [told["reason"] for told in general.told("soldier.killed")] == ["cancelled by kim"]
    assert not runs(engine)


class Meanwhile(Disk):
    """Something else happens between the reading of a task and its rewriting."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def rewrite_all(self, items: Iterable[Item]) -> None:
        self.then()
        super().rewrite_all(items)


@pytest.mark.parametrize("result", [{"status": "failed", "error": "no"}, {"status": "failed", "quota": {}}], ids=str)
@pytest.mark.parametrize("general_first", [True, False])
def test_neither_a_cancellation_nor_a_try_is_lost(
    general: GeneralRig, result: dict[str, Any], general_first: bool
) -> None:
    """The king cancels while its general notes the next try."""
    king = services(general.home, "king", general.clock)

    def cancel() -> None:
        put(general.home, "orders", "pending", id="ord-1", action="cancel", target=TASK, by="kim", created_at=MORNING)
        context = KingContext(king)
        orders = KingOrders(context)
        refresh_due(context.backlogs, None, 0.0)
        orders.carry_out_next()

    general.runs(says(**result))
    put(general.home, "tasks", "pending", **task())
    general.restart()
    disk = Meanwhile(general.places.scratch(GENERAL), durability="process")
    disk.then = (lambda: None) if general_first else cancel
    given = replace(
        general.services, disk=disk, queues=Queues(general.places, disk, general.services.log, general.clock)
    )
    general.restart(given)
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("not_before"), "the next try")
    if general_first:
        cancel()
    assert read(general.home, "tasks", "in_progress", TASK)["attempt"] == ("quota" not in result)
    assert general.result()["error"] == "cancelled by kim"


def test_the_next_try_is_noted_when_the_ground_of_this_one_is_cleared(general: GeneralRig) -> None:
    """A kill in between plans this try again: it must not find what was left."""
    general.runs(f"while [ ! -e {general.home}/go ]; do sleep 0.01; done\n{says(status='failed', error='no')}")
    put(general.home, "tasks", "pending", **task())
    general.engine()
    workspace = general.places.workspace(GENERAL, TASK)
    there: list[bool] = []
    disk = Meanwhile(general.places.scratch(GENERAL), durability="process")
    disk.then = lambda: there.append(workspace.exists())
    queues = Queues(general.places, disk, general.services.log, general.clock)
    general.restart(replace(general.services, disk=disk, queues=queues))
    assert workspace.exists()
    (general.home / "go").touch()
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("attempt"), "the next try")
    assert there == [False]


RESTED = {"rests command:gen-pr": {"until": MORNING, "probe": None}}


@pytest.mark.parametrize("what", ["dies without a report", "is cancelled", "is not set up", "has no workspace"])
def test_a_probe_that_comes_to_nothing_holds_nobody(general: GeneralRig, what: str) -> None:
    (general.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    (general.places.config / "general.yaml").write_text('repositories: {url: "/nowhere/{repo}"}\n')
    write(general.places.budgets, RESTED)
    general.runs(SLEEPS)
    if what == "is not set up":
        (general.places.package(GENERAL) / "prompt.md").unlink()
    general.restart()
    put(general.home, "tasks", "pending", **task(repo="acme/none" if what == "has no workspace" else None))
    if what == "dies without a report":
        general.runs("exit 1")
    if what == "is cancelled":
        general.engine()
        notes.note_cancelled(general.places, general.services.disk, TASK, "kim")
    general.result()
    assert read_json(general.places.budgets)["rests command:gen-pr"]["probe"] is None


def test_a_probe_whose_try_failed_lets_another_one_probe(general: GeneralRig) -> None:
    write(general.places.budgets, RESTED)
    general.runs("exit 1")
    put(general.home, "tasks", "pending", **task())
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("attempt") == 1, "the next try")
    assert read_json(general.places.budgets)["rests command:gen-pr"]["probe"] is None


def test_what_an_earlier_run_has_written_is_no_result_of_this_one(general: GeneralRig) -> None:
    general.runs("exit 1")
    general.soldier().folder.mkdir(parents=True)
    write(general.soldier().result_path, {"task_id": TASK, "status": "success"})
    put(general.home, "tasks", "pending", **task(attempt=1))
    assert general.result()["status"] == "failed"


def test_a_limit_is_noted_on_the_account_that_was_asked(general: GeneralRig) -> None:
    (general.places.config / "system.yaml").write_text("default_engine: claude\n")
    general.manifest(supported_engines=["command"])
    general.runs(f"until [ -e {general.home}/go ]; do sleep 0.05; done\n" + says(status="failed", quota={}))
    general.restart()
    put(general.home, "tasks", "pending", **task())
    general.engine()
    general.manifest(engine="claude")
    general.job.turn(None)
    (general.home / "go").touch()
    general.until(general.places.budgets.exists, "the file of budgets")
    assert list(read_json(general.places.budgets)) == ["rests command:gen-pr"]


def test_a_damaged_note_of_what_was_spent_counts_as_nothing(general: GeneralRig) -> None:
    general.runs(says(status="failed", error="no"))
    put(general.home, "tasks", "pending", **task(attempt=1, spent_usd="much"))
    assert general.result()["error"] == "no"


@pytest.mark.parametrize(
    ("limits", "metrics", "said"),
    [
        ({"budget_usd": 1.0}, {"cost_usd": 0.6}, "its budget of 1 USD is used up"),
        ({"budget_tokens": 100}, {"tokens_used": 60}, "its budget of 100 tokens is used up"),
    ],
)
def test_a_task_that_has_used_up_its_budget_is_not_tried_again(
    general: GeneralRig, clock: Clock, limits: dict[str, Any], metrics: dict[str, Any], said: str
) -> None:
    (general.places.config / "king.yaml").write_text("retry: {max_attempts: 9, backoff_seconds: 0}\n")
    general.manifest(limits=limits)
    general.runs(says(status="failed", error="no", metrics=metrics))
    general.restart()
    put(general.home, "tasks", "pending", **task())
    assert general.result()["error"] == f"no (and {said})"
    assert len(general.engines()) == 2


def test_plugins_of_another_engine_are_a_warning_in_the_result(general: GeneralRig) -> None:
    general.manifest(cc_plugins=["friday"])
    general.runs(says(status="success"))
    general.restart()
    put(general.home, "tasks", "pending", **task())
    warning = "cc_plugins (friday) are for the engine claude, which was not used"
    assert general.result()["warnings"] == [warning]
    assert f"warn the result of {TASK}: {warning}" in general.log()


LEAKS = {
    "a summary": {"status": "success", "summary": "it is canary-1234"},
    "an error": {"status": "failed", "error": "denied: canary-1234"},
    "a question": {"status": "needs_human", "question": "is canary-1234 right?"},
    "a proclamation": {"status": "success", "proclamation": {"channel": "C1", "message": "canary-1234"}},
    "a lesson": {"status": "success", "memory_updates": ["the token is canary-1234"]},
}


@pytest.mark.parametrize("what", LEAKS)
def test_a_secret_in_the_words_of_a_soldier_is_redacted(general: GeneralRig, what: str) -> None:
    general.services.log.redact(["canary-1234"])
    general.runs(says(**LEAKS[what]))
    put(general.home, "tasks", "pending", **task())
    general.until(lambda: general.places.result(TASK).exists() or "attempt" in read_task(general), "an outcome")
    written = [*general.places.results.iterdir(), *general.places.memory.rglob("*.md")]
    written += [general.places.queue_file("tasks", "in_progress", TASK)]
    told = "".join(path.read_text() for path in written)
    assert "[hidden]" in told
    assert "canary-1234" not in told


def read_task(general: GeneralRig) -> dict[str, Any]:
    return {key: part for key, part in read(general.home, "tasks", "in_progress", TASK).items() if part}


@pytest.mark.parametrize("what", ["raised", "removed", "the account works again"])
def test_what_waits_for_a_budget_or_an_account_starts_when_that_is_free(general: GeneralRig, what: str) -> None:
    spent = {"gen-pr": {"usd": 2.0, "tokens": 0}}
    held: dict[str, Any] = {f"spent {MORNING[:10]}": spent}
    if what == "the account works again":
        held = {"rests command:gen-pr": {"until": "2026-02-07T16:00:00Z", "probe": None}}
    write(general.places.budgets, held)
    (general.places.config / "general.yaml").write_text("budgets: {general_day_usd: 1}\n")
    general.runs(says(status="success"))
    general.restart()
    put(general.home, "tasks", "pending", **task())
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("not_before"), "it waits")
    for _ in range(3):
        general.job.turn(None)
    general.services.log.flush()
    assert general.places.role_log(GENERAL).read_text().count("waits: ") == 1
    if what == "the account works again":
        write(general.places.budgets, {})
    else:
        more = "budgets: {general_day_usd: 9}\n" if what == "raised" else ""
        (general.places.config / "general.yaml").write_text(more)
        general.job.reload(services(general.home, GENERAL, general.clock))
    assert general.result()["status"] == "success"


def test_a_pause_before_the_next_try_is_not_cut_short_by_a_budget(general: GeneralRig) -> None:
    general.runs(says(status="failed", error="no"))
    put(general.home, "tasks", "pending", **task())
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("attempt") == 1, "the first try")
    write(general.places.budgets, {})
    for _ in range(3):
        general.job.turn(None)
    assert len(general.engines()) == 1


@pytest.mark.parametrize("ending", ["fails", "dies", "meets a limit"])
def test_every_try_has_a_fresh_workspace(general: GeneralRig, clock: Clock, ending: str) -> None:
    said = {
        "fails": says(status="failed", error="no"),
        "dies": "exit 1",
        "meets a limit": says(status="failed", quota={"resets_at": MORNING}),
    }[ending]
    general.runs(
        f"ls >>$KINGDOM_HOME/found; touch litter\nif [ ! -e $KINGDOM_HOME/second ]; then\n{said}\nexit 0\nfi\n"
        + says(status="success")
    )
    put(general.home, "tasks", "pending", **task())
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("not_before"), "the first try")
    (general.home / "second").touch()
    clock.pass_(70)
    assert general.result()["status"] == "success"
    assert (general.home / "found").read_text() == ""


DEAR = says(status="success", metrics={"cost_usd": 2.0, "tokens_used": 70}) + "\nexec sleep 60"


def _begin_a_dear_one(general: GeneralRig, monkeypatch: pytest.MonkeyPatch, budget_usd: float) -> GeneralJob:
    """Give a general a task whose soldier says that it has used 2 USD, and goes on."""
    monkeypatch.setattr("kingdom.court.general.job.BUDGET_SECONDS", 0.0)
    general.manifest(limits={"budget_usd": budget_usd})
    general.runs(DEAR)
    job = general.restart()
    put(general.home, "tasks", "pending", **task())
    return job


def _cost(general: GeneralRig) -> dict[str, Any]:
    row: dict[str, Any] = read_json(general.places.budgets)[f"spent {MORNING[:10]}"][GENERAL]
    return {"usd": row["usd"], "tokens": row["tokens"], "tasks": list(row["tasks"])}


def test_a_soldier_that_uses_up_its_budget_is_ended_and_what_it_had_used_is_counted(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _begin_a_dear_one(general, monkeypatch, budget_usd=1.5)
    result = general.result()
    assert (result["status"], result["metrics"]["cost_usd"]) == ("failed", 2.0)
    assert result["error"].count("its budget of 1.5 USD is used up") == 1
    assert f"warn the soldier of {TASK} is asked to end: its budget of 1.5 USD is used up" in general.log()
    assert _cost(general) == {"usd": 2.0, "tokens": 70, "tasks": [TASK]}


def test_a_soldier_is_ended_when_others_spend_what_was_left_for_it(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.court.general.job.BUDGET_SECONDS", 0.0)
    (general.places.config / "general.yaml").write_text("budgets: {day_usd: 5, reserve_percent: 0}\n")
    general.runs(DEAR)
    job = general.restart()
    put(general.home, "tasks", "pending", **task())
    said = general.soldier().result_path
    general.until(lambda: said.exists() and said.stat().st_size, "it has used 2 of 5 USD")
    job.turn(None)
    assert not [line for line in general.log() if "asked to end" in line]
    job._general.budgets.record_cost("gen-other", "claude", "task-2", {"cost_usd": 3.5}, general.clock())
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("not_before"), "it waits for tomorrow")
    assert f"warn the soldier of {TASK} is asked to end: its budget of 1.5 USD is used up" in general.log()
    assert _cost(general)["usd"] == 2.0


def test_what_a_killed_soldier_had_used_is_counted_once(general: GeneralRig) -> None:
    general.runs(DEAR)
    put(general.home, "tasks", "pending", **task())
    said = general.soldier().result_path
    general.until(lambda: said.exists() and said.stat().st_size, "it has said what it used")
    notes.note_cancelled(general.places, general.services.disk, TASK, "me")
    assert general.result()["error"] == "cancelled by me"
    assert _cost(general) == {"usd": 2.0, "tokens": 70, "tasks": [TASK]}


def test_of_an_engines_home_only_the_session_is_kept_and_its_use_is_noted(general: GeneralRig) -> None:
    (general.places.home / ".env").write_text("KEY=sk-0123456789abcdef\n")
    (general.places.home / ".env").chmod(0o600)
    given = replace(services(general.home, GENERAL, general.clock), secrets={"KEY": "sk-0123456789abcdef"})
    job = general.restart(given)
    own = engine_homes.EngineHome(general.places, GENERAL, TASK)
    session = own.home / ".claude" / "projects" / "s-1.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text("shown sk-0123456789abcdef\n")
    (own.home / "litter").write_text("x")
    soldier = general.soldier()
    soldier.control_folder.mkdir(parents=True)
    order = ORDER._replace(engine="claude", home=str(own.home))
    write(soldier.control_folder / "order.json", order.to_json())
    told = RawReport(0, result={"session_id": "s-1", "session_totals": {"cost_usd": 0.5}})
    kept = engine_homes.keep_session(job._general.services, GENERAL, soldier.order, told)
    assert kept == told, "nothing of the owner's was lent"
    assert (own.totals("s-1"), (own.home / "litter").exists()) == ({"cost_usd": 0.5}, False)
    assert session.read_text() == f"shown {'*' * 19}\n"


def test_tokens_of_the_owner_that_were_lent_stand_neither_in_what_was_printed_nor_in_the_report(
    general: GeneralRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = "lent-0123456789abcdef"
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".codex").mkdir()
    write(tmp_path / ".codex/auth.json", {"tokens": {"access_token": lent}})
    order = ORDER._replace(engine="codex", **{name: str(general.home / name) for name in ("prompt", "out", "err")})
    order = order._replace(home=str(engine_homes.EngineHome(general.places, GENERAL, TASK).home))
    for path in (order.out, order.err):
        Path(path).write_text(f"it is {lent}\n")
    soldier = general.soldier()
    soldier.control_folder.mkdir(parents=True)
    write(soldier.control_folder / "order.json", order.to_json())
    told = RawReport(0, result={"task_id": TASK, "status": "success", "summary": f"it is {lent}"}, output_tail=lent)
    kept = engine_homes.keep_session(general.job._general.services, GENERAL, soldier.order, told)
    assert kept.result is not None
    assert (kept.result["summary"], kept.output_tail) == ("it is [hidden]", "[hidden]")
    one = Task.from_json(schemas.check("task", task()))
    assert report.receive(general.job._general, one, soldier, Look(False, None, None, None), told)
    report.write_results(general.job._general)
    assert read_json(general.places.result(TASK))["summary"] == "it is [hidden]"
    assert [Path(path).read_text() for path in (order.out, order.err)] == [f"it is {'*' * len(lent)}\n"] * 2


ENDS: Mapping[str, tuple[str, str, str | None]] = {
    "well": (says(status="success", summary="done"), "summary", "done"),
    "well, without a word": (says(status="success"), "summary", None),
    "badly": (says(status="failed", error="no compiler", final=True), "error", "no compiler"),
    "as none of its business": (says(status="skipped", reason="not ours"), "reason", "not ours"),
    "with a question": (says(status="needs_human", question="Which?"), "question", "Which?"),
    "with a choice": (says(status="needs_human", question="Which?\n- a\n- b"), "question", "Which?\n- a\n- b"),
    "by a cancel": ("touch $KINGDOM_HOME/there; exec sleep 300", "error", "cancelled by kim"),
    "over its time": ("touch $KINGDOM_HOME/there; exec sleep 300", "error", "timeout: it took"),
    "by a kill": ("touch $KINGDOM_HOME/there; exec sleep 300", "error", "its soldier died without a report"),
}
"""What its program does at the end, where the result says so, and how that begins."""


@pytest.mark.parametrize("how", ENDS)
def test_work_is_kept_however_its_task_ends_and_its_result_names_where(general: GeneralRig, how: str) -> None:
    script, key, words = ENDS[how]
    (general.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    general.restart()
    general.runs(f"echo mine >work\n{script}")
    put(general.home, "tasks", "pending", **task())
    if "sleep" in script:
        general.until((general.home / "there").exists, "it works")
        end_early(general, how)
    result = general.result()
    where = f"workspace/{GENERAL}/{TASK}"
    assert "kept" not in (result.get(key) or ""), "what it said stays as it said it"
    assert (result.get(key) or "").startswith(words or "")
    assert result["kept"] == [str(general.home / where)]
    assert (general.home / where / "work").read_text() == "mine\n"
    general.restart()
    assert (general.home / where / "work").exists(), "a restart leaves it"


def end_early(general: GeneralRig, how: str) -> None:
    if how == "by a cancel":
        notes.note_cancelled(general.places, general.services.disk, TASK, "kim")
    elif how == "over its time":
        started_ago(general, 1000)
    else:
        started = general.started()
        assert started is not None
        os.kill(started.pid, signal.SIGKILL)


def test_a_soldier_can_commit_where_nobody_has_a_name(general: GeneralRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(general.home / "nobody"))
    general.manifest(sandbox="on")
    (general.places.config / "general.yaml").write_text(f"trusted: [{GENERAL}]\n")
    general.restart()
    general.runs("git init -q . && echo mine >work && git add work && git commit -qm work\n" + says(status="success"))
    put(general.home, "tasks", "pending", **task())
    (kept,) = general.result()["kept"]
    told = subprocess.run(
        ["git", "-C", kept, "log", "--format=%s by %an <%ae>"], check=True, capture_output=True, text=True
    )
    assert told.stdout == "work by Kingdom <kingdom@localhost>\n"


def test_a_soldier_without_a_repository_finds_none_around_the_home(general: GeneralRig) -> None:
    subprocess.run(["git", "init", "-q", general.home], check=True)
    general.runs("git rev-parse --git-dir >found 2>&1\n" + says(status="success"))
    put(general.home, "tasks", "pending", **task())
    (kept,) = general.result()["kept"]
    assert "not a git repository" in Path(kept, "found").read_text()


OWNERS = """\
[include]
\tpath = .more
[user]
\tname = Ann
\temail = ann@b.c
[alias]
\tst = status --short
\tpay = !pay
[core]
\thooksPath = {hooks}
\tquotePath = false
[http]
\textraHeader = secret-canary
[url "https://secret-canary@b.c/"]
\tinsteadOf = https://b.c/
[credential]
\thelper = "!echo secret-canary"
[commit]
\tgpgSign = true
"""
ASKS_GIT = """
{ git config --list --name-only --includes; git config --list; } >settings
git init -q . && echo mine >work && git add work && git -c commit.gpgSign=false commit -qm work
"""
KEPT_OFF = ("alias.pay", "core.hookspath", "http.extraheader", "url.https://secret-canary@b.c/.insteadof")


@pytest.mark.parametrize("sandbox", ["off", "on"])
def test_a_name_to_commit_in_leaves_the_rest_of_the_owners_git_as_it_is(
    sandbox: str, general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sandbox only the settings that are no secrets and start nothing."""
    owners = general.home / "owner's"
    (owners / "hooks").mkdir(parents=True)
    (owners / "hooks/pre-commit").write_text(f"#!/bin/sh\ntouch {general.home}/hooked\n")
    (owners / "hooks/pre-commit").chmod(0o755)
    (owners / ".gitconfig").write_text(OWNERS.replace("{hooks}", str(owners / "hooks")))
    (owners / ".more").write_text("[init]\n\tdefaultBranch = trunk\n")
    (owners / ".config/git").mkdir(parents=True)
    (owners / ".config/git/config").write_text('[pull]\n\trebase\n[alias]\n\todd = "log \\"b\\" #c"\n')
    monkeypatch.setenv("HOME", str(owners))
    (general.places.config / "system.yaml").write_text("runtime: {git: {name: Kim}}\n")
    general.manifest(sandbox=sandbox)
    (general.places.config / "general.yaml").write_text(f"trusted: [{GENERAL}]\n")
    general.restart()
    general.runs(ASKS_GIT + says(status="success"))
    put(general.home, "tasks", "pending", **task())
    (kept,) = map(Path, general.result()["kept"])
    settings = (kept / "settings").read_text()
    words = ["git", "-C", str(kept), "log", "--format=%an <%ae>"]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "Kim <kingdom@localhost>\n"
    assert (kept / ".git/HEAD").read_text() == "ref: refs/heads/trunk\n"
    for setting in ("alias.st=status --short", "core.quotepath=false", "pull.rebase", 'alias.odd=log "b" #c'):
        assert f"\n{setting}\n" in settings
    is_open = sandbox == "off"
    assert settings.count("secret-canary") == (4 if is_open else 0)
    assert [name for name in KEPT_OFF if f"{name}\n" in settings] == (list(KEPT_OFF) if is_open else [])
    assert (general.home / "hooked").exists() == is_open


def test_a_search_that_does_not_end_holds_nobody_up_and_its_workspace_is_kept(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = general.home / "origin"
    origin.mkdir()
    for words in (
        ("init", "-q"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"),
    ):
        subprocess.run(["git", "-C", str(origin), *words], check=True)
    (general.places.config / "general.yaml").write_text(f"repositories: {{known: {{acme/app: {origin}}}}}\n")
    programs = general.home / "bin"
    programs.mkdir()
    git = shutil.which("git")
    (programs / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *read-tree*) touch {general.home}/searched; exec sleep 600;; esac\nexec {git} "$@"\n'
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    general.restart()
    general.runs(says(status="success", summary="done").replace(TASK, "$KINGDOM_TASK_ID").replace("'END'", "END"))
    put(general.home, "tasks", "pending", **task(repo="acme/app"))
    general.until((general.home / "searched").exists, "its workspace is searched")
    put(general.home, "tasks", "pending", **task(SECOND))
    assert general.result(SECOND)["status"] == "success"
    assert not general.places.result(TASK).exists(), "another task was served meanwhile"
    (searching,) = general.job._general.workspaces._searches.values()
    general.job._general.workspaces._searches = {
        folder: search._replace(until=0.0) for folder, search in general.job._general.workspaces._searches.items()
    }
    assert general.result()["kept"] == [str(general.places.workspace(GENERAL, TASK))]
    assert searching.child.poll() is not None, "it was ended"


def test_choices_of_a_question_stay_at_its_end(general: GeneralRig) -> None:
    general.runs("touch work; " + says(status="needs_human", question="Which?\n- a\n- b"))
    put(general.home, "tasks", "pending", **task())
    assert choices_in(general.result()["question"]) == ("a", "b")


@pytest.mark.parametrize("ending", ["fails", "dies", "meets a limit"])
def test_work_of_an_earlier_try_is_kept_beside_and_named_at_the_end(
    general: GeneralRig, clock: Clock, ending: str
) -> None:
    said = {
        "fails": says(status="failed", error="no"),
        "dies": "exit 1",
        "meets a limit": says(status="failed", quota={"resets_at": MORNING}),
    }[ending]
    first = f"if [ ! -e $KINGDOM_HOME/second ]; then echo first >work\n{said}\nexit 0\nfi\n"
    general.runs(first + says(status="success"))
    put(general.home, "tasks", "pending", **task())
    general.until(lambda: read(general.home, "tasks", "in_progress", TASK).get("not_before"), "the first try")
    (general.home / "second").touch()
    clock.pass_(70)
    result = general.result()
    (kept,) = result["kept"]
    assert (Path(kept) / "work").read_text() == "first\n"
    assert not general.places.workspace(GENERAL, TASK).exists(), "the last try left nothing"


def test_a_workspace_is_searched_anew_after_another_try_in_it(general: GeneralRig, clock: Clock) -> None:
    """An answer's task goes on where its question was asked: the first time nothing is left there, then work is."""
    general.runs(says(status="needs_human", question="Which?"))
    put(general.home, "tasks", "pending", **task())
    assert general.result()["status"] == "needs_human"
    general.runs("exit 3")
    answered(general, TASK, SECOND)
    general.until(lambda: read(general.home, "tasks", "in_progress", SECOND).get("not_before"), "the first try")
    general.runs('echo mine >work\necho \'{"status": "success"}\' >$KINGDOM_RESULT_PATH')
    clock.pass_(70)
    assert general.result(SECOND)["kept"] == [str(general.places.workspace(GENERAL, TASK))]
    assert (general.places.workspace(GENERAL, TASK) / "work").read_text() == "mine\n"


def test_a_soldier_cannot_say_what_is_kept(general: GeneralRig) -> None:
    general.runs(says(status="success", kept=["/etc"]))
    put(general.home, "tasks", "pending", **task())
    assert general.result()["kept"] == []
    assert not general.places.workspace(GENERAL, TASK).exists()


def test_a_workspace_that_cannot_be_removed_for_a_kill_goes_at_the_next_start(general: GeneralRig) -> None:
    own = general.places.workspace(GENERAL, TASK)
    (own / ".git").mkdir(parents=True)
    (own / ".git" / "HEAD").touch()
    write(general.places.result(TASK), {"task_id": TASK, "status": "success", "kept": []})
    general.restart()
    assert not own.exists(), "its result says that there was nothing in it"
    (own / ".git").mkdir(parents=True)
    (own / ".git" / "HEAD").touch()
    write(general.places.result(TASK), {"task_id": TASK, "status": "success"})
    general.restart()
    assert own.exists(), "nobody has looked"


def test_what_a_soldier_adds_to_its_copy_of_the_memory_is_there_with_its_result(general: GeneralRig) -> None:
    lent = general.places.lent_memory(GENERAL)
    general.runs(f"mkdir -p {lent}; echo '- tabs are four wide' >>{lent}/learned-patterns.md; {says(status='success')}")
    put(general.home, "tasks", "pending", **task())
    general.result()
    learned = general.places.general_memory(GENERAL) / "learned-patterns.md"
    assert learned.read_text() == "- tabs are four wide\n"


def test_a_run_that_is_reported_twice_is_counted_once(general: GeneralRig) -> None:
    one = Task.from_json(schemas.check("task", task()))
    used = Result(task_id=TASK, status="failed", error="no", metrics={"cost_usd": 2.0, "tokens_used": 70})
    for start in (99, 99, 111):
        look = Look(False, Started(7, start, 0), None, None)
        report._record_cost(general.job._general, one, "command:gen-pr", used, look)
    assert _cost(general)["usd"] == 4.0


def test_the_account_of_a_soldier_that_left_no_order_is_that_of_the_engine_it_would_have(general: GeneralRig) -> None:
    assert report._account(general.job._general, general.soldier()) == "command:gen-pr"
    general.job._general.manifest = replace(general.job._general.manifest, engine="of-another-kingdom")
    assert report._account(general.job._general, general.soldier()) == "of-another-kingdom"


def test_a_soldier_within_its_budget_leaves_its_general_at_rest(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _begin_a_dear_one(general, monkeypatch, budget_usd=2.5)
    said = general.soldier().result_path
    general.until(lambda: said.exists() and said.stat().st_size, "it has used 2 of 2.5 USD")
    assert not job.turn({}).worked


def test_a_list_of_soldiers_that_a_power_cut_has_torn_can_be_read_after_a_look(general: GeneralRig) -> None:
    for torn in (b"", b'[\n  {"task_id": "task-1"'):
        general.places.sessions.write_bytes(torn)
        general.job.turn(None)
        assert json.loads(general.places.sessions.read_text()) == []


def test_a_soldier_whose_engine_has_printed_very_much_keeps_to_its_engines_own_bound(
    general: GeneralRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.court.general.job.BUDGET_SECONDS", 0.0)
    monkeypatch.setattr("kingdom.court.general.job.LOOK_SECONDS", 0.0)
    general.manifest(limits={"budget_usd": 1.5})
    general.runs(f"until [ -e {general.home}/go ]; do sleep 0.05; done\n{DEAR}")
    job = general.restart()
    put(general.home, "tasks", "pending", **task())
    general.engine()
    out = general.places.session_log(f"soldier-{TASK}-0", "out")
    os.truncate(out, (4 << 20) + 1)
    (general.home / "go").touch()
    said = general.soldier().result_path
    wait_until(lambda: said.exists() and said.stat().st_size, SOON, "it has used too much", (said.parent,))
    assert not job.turn({}).worked
    os.truncate(out, 4 << 20)
    assert job.turn({}).worked
    assert f"warn the soldier of {TASK} is asked to end: its budget of 1.5 USD is used up" in general.log()


def test_what_its_sandbox_lacked_is_told(general: GeneralRig) -> None:
    one = Task.from_json(schemas.check("task", task()))
    for lacks in (None, "this kernel has no Landlock"):
        told = RawReport(0, result={"task_id": TASK, "status": "success"}, missing_sandbox=lacks)
        report.receive(general.job._general, one, general.soldier(), Look(False, None, None, None), told)
    lines = [line for line in general.log() if "NO WHOLE SANDBOX" in line]
    assert lines == [f"warn NO WHOLE SANDBOX for the soldier of {TASK}: this kernel has no Landlock"]
