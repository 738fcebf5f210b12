"""The page on replacing a role: its king works word for word, through restarts, and ours stands by beside it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.base.home.places import find_data
from tests.faults import trees
from tests.journey.kingdoms import KINGDOM, Kingdom, answer
from tests.waiting import stays

TYPE = "review.wanted"
DIES_BEFORE = (
    "if new tasks",
    'mv "queue/$1/pending/.$2.tmp"',
    'mv "$event" queue/events/dispatched/',
    "if new messages",
    "event=queue/events/dispatched/",
    'mv "$task" queue/tasks/completed/',
)
"""Steps of the page's king, before each of which it is killed."""

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


def examples() -> list[str]:
    page = (find_data() / "docs" / "replacing-a-role.md").read_text()
    return re.findall(r"```sh\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "king.sh"
    path.write_text(examples()[0])
    return path


@contextmanager
def reigning(kingdom: Kingdom, script: Path, general: str) -> Iterator[subprocess.Popen[bytes]]:
    """The page's king at work; it is killed at the end."""
    with subprocess.Popen(["sh", str(script), str(kingdom.home), general]) as king:
        try:
            yield king
        finally:
            king.kill()


@pytest.fixture
def replaced(own: Kingdom) -> Kingdom:
    """A kingdom whose king was stopped by the page's own words, with a general that answers in the task's words."""
    asks = answer(status="needs_human", question="which?")
    fine = answer(status="success", summary="did it")
    bad = answer(status="failed", error="it broke")
    run = f'case $(cat "$KINGDOM_TASK_FILE") in\n*please-fail*) {bad} ;;\n*please-ask*) {asks} ;;\n*) {fine} ;;\nesac'
    (own.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    own.ok("generals", "install", str(own.general("gen-echo", run, subscribes=[TYPE])))
    stop = examples()[1].partition("sh king.sh")[0]
    path = f"PATH={KINGDOM.parent}:$PATH"
    subprocess.run(["sh", "-euc", f"export {path} KINGDOM_HOME={own.home}\n{stop}"], cwd=own.home, check=True)
    assert not own.runs("king")
    return own


@trees.in_campaigns
def test_a_shell_king_is_seen_and_serves_and_ours_stands_by(replaced: Kingdom, script: Path) -> None:
    own = replaced
    with reigning(own, script, "gen-herald"):
        own.until_there(own.places.heartbeat("king"))
        assert "played by another program" in own.run("status").stdout
        event = own.ok("say", "--no-wait", "hello").strip()
        own.until_there(own.places.queue_file("events", "completed", event))
        own.ok("start", "king")
        own.until(lambda: "stands by" in own.places.role_log("king").read_text(), "ours stands by")
        assert "played by another program" in own.run("status").stdout
    own.places.heartbeat("king").unlink()
    own.until(lambda: own.runs("king"), "ours has taken over")
    assert own.run("say", "--timeout", "1", "hello").returncode != 3, "the king is there"


def test_a_shell_king_may_be_killed_at_any_step_and_answers_each_event_once(replaced: Kingdom, script: Path) -> None:
    own, whole, dying = replaced, script.read_text(), script.with_name("dying.sh")
    for number, step in enumerate(DIES_BEFORE):
        assert whole.count(step) == 1, step
        dying.write_text(whole.replace(step, f"kill -9 $$; {step}"))
        own.event(f"evt-{number}", TYPE)
        with reigning(own, dying, "gen-echo") as king:
            own.until(lambda king=king: king.poll() is not None, f"it has died before {step}")
            assert king.returncode == -signal.SIGKILL
        with reigning(own, script, "gen-echo"):
            own.until_there(own.places.queue_file("tasks", "completed", f"task-evt-{number}"))
    tasks = [f"task-evt-{number}" for number in range(len(DIES_BEFORE))]
    sent = own.places.folder("messages", "sent")
    own.until(lambda: all(own.messages(task) for task in tasks), "all are answered", sent)
    assert sorted(task["id"] for task in own.all("tasks", "completed")) == tasks
    assert len(own.all("events", "completed")) == len(tasks)
    assert all(own.messages(task) == [f"[complete] {TYPE} — did it"] for task in tasks)
    assert own.all("tasks", "pending") == own.all("messages", "pending") == []


def test_a_result_of_before_a_restart_ends_no_new_task(replaced: Kingdom, script: Path) -> None:
    own = replaced
    with reigning(own, script, "gen-echo"):
        own.event("evt-1", TYPE)
        own.until_there(own.places.queue_file("tasks", "completed", "task-evt-1"))
    own.ok("stop", "gen-echo")
    with reigning(own, script, "gen-echo"):
        own.event("evt-2", TYPE)
        (task,) = own.until(lambda: own.all("tasks", "pending"), "its task", own.places.folder("tasks", "pending"))
        assert not own.places.result(task["id"]).exists()
        stays(lambda: not own.all("events", "completed")[1:], 1.0, "evt-2 is not completed, as nobody works on it")
        own.ok("start", "gen-echo")
        own.until_there(own.places.queue_file("tasks", "completed", "task-evt-2"))
    assert [task["id"] for task in own.all("tasks", "completed")] == ["task-evt-1", "task-evt-2"]


def test_say_is_answered_through_a_shell_king(replaced: Kingdom, script: Path) -> None:
    own = replaced
    with reigning(own, script, "gen-echo"):
        own.until_there(own.places.heartbeat("king"))
        for words, code, said in (
            ("please-do", 0, "[complete] console.message — did it"),
            ("please-fail", 1, "[failed] it broke"),
            ("please-ask", 0, "[question] which?"),
        ):
            done = own.run("say", words)
            assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
