"""What the commands show of files that lie there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import Lock
from kingdom.base.errors import BadConfig, TookTooLong
from kingdom.base.home.code import installed_code
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.records import notes, refusals
from kingdom.base.times import stamp
from kingdom.base.words import duration, one_line, printable, table
from kingdom.cli import overview, say
from kingdom.cli.main import main
from kingdom.court.reasons import Reasons
from kingdom.court.soldiers import disk_space
from kingdom.hall.gateway.panel import panel
from tests.cli.conftest import Held, Terminal
from tests.fixtures import beats, install, write
from tests.waiting import SOON, wait_until


def test_nobody_runs(terminal: Terminal) -> None:
    said = terminal("status")
    assert (said.code, said.err) == (1, "")
    assert [row.split()[:3] for row in said.out.splitlines() if row.startswith("  king ")] == [
        ["king", "not", "running"]
    ]


def test_status_as_json_is_the_picture(terminal: Terminal) -> None:
    terminal.event("pending", "evt-1")
    picture = json.loads(terminal("status", "--json").out)
    assert (picture["well"], picture["queues"]["events"]["pending"]) == (False, 1)
    assert picture["oldest"]["id"] == "evt-1"


HEAVY = (
    "click ctypes dataclasses inspect shutil rich yaml jsonschema fastjsonschema supervisor psutil croniter requests "
    "urllib.request xmlrpc zoneinfo kingdom.court.steward kingdom.base.records.messages kingdom.base.runtime.wake"
)


def test_status_loads_little(terminal: Terminal) -> None:
    """It is typed all day, so it may take 100 ms: no parser of options, no YAML reader, no launcher, no validator."""
    terminal.task("completed", "task-1", outcome="failed")
    code = "import sys; from kingdom.cli.main import main; main(['status']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = set(done.stderr.split())
    assert "task-1" in done.stdout
    assert not loaded & set(HEAVY.split())


def listed(terminal: Terminal, *words: str) -> list[str]:
    """The ids in a list, below its head."""
    head, *rows = terminal.ok(*words).splitlines()
    assert head.split()[:2] in (["event", "state"], ["task", "state"])
    return [row.split()[0] for row in rows]


def test_lists_are_filtered(terminal: Terminal) -> None:
    long_ago, lately = stamp(time.time() - 7200), stamp(time.time() - 60)
    terminal.event("pending", "evt-1", type="github.pr.mentioned", created_at=lately)
    terminal.event("completed", "evt-2", type="github.issue.assigned", created_at=long_ago)
    assert listed(terminal, "events", "--type", "github.*", "--state", "completed") == ["evt-2"]
    assert listed(terminal, "events", "--type", "github.pr.*") == ["evt-1"]
    assert listed(terminal, "events", "--since", "1h") == ["evt-1"]
    assert sorted(listed(terminal, "events", "--since", "2026-11-01")) == ["evt-1", "evt-2"]
    terminal.task("pending", "task-1", created_at=lately)
    terminal.task("completed", "task-2", target_general="gen-herald", created_at=long_ago)
    assert listed(terminal, "tasks", "--general", "gen-herald") == ["task-2"]
    assert listed(terminal, "tasks", "--general", "briefing") == ["task-1"]
    assert listed(terminal, "tasks", "--since", "90m", "--type", "a.b") == ["task-1"]
    assert terminal("tasks", "--since", "soon").code == 2


def test_events_and_why_they_were_discarded(terminal: Terminal) -> None:
    terminal.event("pending", "evt-1")
    terminal.event("completed", "evt-2", status="completed", task_id="task-1")
    terminal.event("completed", "evt-3", status="discarded", discarded_reason="nobody wants it")
    assert sorted(listed(terminal, "events")) == ["evt-1", "evt-2", "evt-3"]
    assert listed(terminal, "events", "--state", "pending") == ["evt-1"]
    discarded = terminal.ok("events", "--discarded")
    assert discarded.splitlines()[1].split()[0] == "evt-3"
    assert "nobody wants it" in discarded
    told = json.loads(terminal.ok("events", "ls", "--discarded", "--json"))
    assert (told["id"], told["lies_in"]) == ("evt-3", "queue/events/completed")


def test_the_newest_come_first_and_no_more_than_asked(terminal: Terminal) -> None:
    for number in range(5):
        os.utime(terminal.task("completed", f"task-{number}", outcome="success"), (1000 + number,) * 2)
    assert listed(terminal, "tasks", "-n", "2") == ["task-4", "task-3"]


def test_one_task_with_its_result(terminal: Terminal) -> None:
    terminal.task("completed", "task-1", outcome="success")
    terminal.places.result("task-1").write_text('{"summary": "all done"}\n')
    said = terminal.ok("tasks", "task-1")
    assert said.startswith(f"{terminal.places.queue_file('tasks', 'completed', 'task-1')}:\n")
    assert '{"summary": "all done"}' in said


def test_a_file_is_found_by_path_too(terminal: Terminal) -> None:
    path = terminal.event("pending", "evt-1")
    assert '"id": "evt-1"' in terminal.ok("queue", "show", str(path))
    assert '"id": "evt-1"' in terminal.ok("events", "evt-1.json")


def test_what_lies_in_dead_tells_why(terminal: Terminal) -> None:
    terminal.event("dead", "evt-1").with_name("evt-1.json.reason").write_text('{"reason": "not JSON"}')
    assert "not JSON" in terminal.ok("events", "--state", "dead")
    assert "not JSON" in terminal.ok("queue", "ls", "events/dead")
    assert terminal.ok("queue", "show", "evt-1").endswith("It lies here because not JSON\n")
    assert "could not be used and lies in queue/events/dead: not JSON" in terminal.ok("why", "evt-1")


def test_unfinished_files_are_not_shown(terminal: Terminal) -> None:
    for name in (".evt-1.json", "evt-2.tmp"):
        (terminal.places.folder("events", "pending") / name).write_text("{")
    assert terminal("events").out == ""


def test_all_queues_at_a_glance(terminal: Terminal) -> None:
    terminal.event("pending", "evt-1")
    first = terminal.ok("queue").splitlines()[0]
    assert first == "events    1 pending, 0 dispatched, 0 completed, 0 dead"
    assert json.loads(terminal.ok("queue", "ls", "--json"))["events"]["pending"] == 1


def hold(terminal: Terminal, health: str, age: float = 0.0) -> None:
    vitals = {"timestamp": stamp(time.time() - age), "health": health, "system": {}}
    terminal.places.resources.write_text(json.dumps(vitals))


def test_why_names_the_gate_that_holds_an_event(terminal: Terminal, king_runs: None) -> None:
    install(terminal.places.home, "gen-model", keywords=["think"])
    terminal.event("pending", "evt-1", type="console.message", payload={"text": "think"})
    terminal.event("pending", "evt-2", type="console.message", payload={"text": "brief me"})
    hold(terminal, "yellow")
    assert "nothing holds it" in terminal.ok("why", "evt-1")
    hold(terminal, "red")
    told = terminal.ok("why", "evt-1")
    assert "it waits: the machine is red (by its vitals), so only what needs no model starts until" in told
    assert "(its own priority is normal)" in told
    assert "it will go to gen-model, by its word 'think'" in told
    assert "nothing holds it" in terminal.ok("why", "evt-2")


def test_why_names_the_tasks_that_hold_an_event(terminal: Terminal, king_runs: None) -> None:
    hold(terminal, "green")
    install(terminal.places.home, "gen-model", subscribes=["a.*"])
    beats(terminal.places.home, "gen-briefing")
    for number in range(3):
        terminal.task("in_progress", f"task-{number}")
    terminal.task("in_progress", "task-rests", not_before=stamp(time.time() + 600), waits_because="an attempt failed")
    terminal.event("pending", "evt-1")
    told = terminal.ok("why", "evt-1")
    assert "it waits: concurrency.max_soldiers is 3, and 3 tasks run or could run now" in told
    shown = terminal("status").out
    assert re.search(r"^ *tasks +0 +4 ", shown, re.M), "in progress are four"
    assert re.search(r"^ *task-rests  gen-briefing, goes on in .*: an attempt failed$", shown, re.M), "and one rests"
    assert "it will go to gen-model, by its subscribes 'a.*'" in told
    terminal.event("pending", "evt-2", type="nobody.wants")
    told = terminal.ok("why", "evt-2")
    assert "it waits: the king has not come to it yet; nothing holds it" in told
    assert "rule tried: subscribes 'nobody.*' → nobody" in told


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"headline": "#7 Fix the sum", "text": "hello"}, "from test, about '#7 Fix the sum'; it waits"),
        ({"text": "hello"}, "from test, saying 'hello'; it waits"),
        ({}, "from test; it waits"),
    ],
)
def test_why_says_what_an_event_is_about(terminal: Terminal, payload: dict[str, Any], told: str) -> None:
    terminal.event("pending", "evt-1", payload=payload)
    assert told in terminal.ok("why", "evt-1")


def test_why_says_that_the_king_does_not_run(terminal: Terminal) -> None:
    terminal.event("pending", "evt-1")
    assert "it waits: the king does not run; `" in terminal.ok("why", "evt-1")


def test_why_follows_an_event_to_its_messages(terminal: Terminal) -> None:
    letters = {"start": "msg-1"}
    terminal.event("completed", "evt-1", status="completed", task_id="task-1", letters=letters)
    terminal.task("completed", "task-1", outcome="failed", letters={"final": "msg-2"})
    terminal.places.result("task-1").write_text('{"error": "it broke"}')
    sent = {"type": "thread_start", "content": "[start]", "posted": {"channel": "console", "room": "console"}}
    terminal.put("messages", "sent", "msg-1", **sent)
    refused = {"tries": 3, "refused_because": "no such room " + "x" * 200}
    terminal.put("messages", "failed", "msg-2", type="notification", content="x", **refused)
    told = terminal.ok("why", "evt-1")
    assert "error: it broke" in told
    assert "msg-1 (thread_start): '[start]' was sent on console, in console" in told
    assert f"msg-2 (notification): 'x' was not sent, refused 3 times: no such room {'x' * 186}…;" in told
    story = json.loads(terminal.ok("why", "task-1", "--json"))
    assert [part["id"] for part in story["followed_by"]] == ["msg-1", "msg-2"]
    assert story == {
        **json.loads(terminal.ok("why", "evt-1", "--json"))["followed_by"][0],
        "version": 1,
        "kind": "why",
    }


def test_why_says_when_on_every_line(terminal: Terminal) -> None:
    today = time.time() - 1 if time.localtime(time.time() - 1)[:3] == time.localtime()[:3] else time.time()
    terminal.event("completed", "evt-1", status="completed", task_id="task-1", created_at=stamp(today))
    terminal.task("completed", "task-1", outcome="failed", created_at=stamp(today), retried_as=["task-2"])
    terminal.places.result("task-1").write_text('{"error": "it broke"}')
    rows = terminal.ok("why", "evt-1").splitlines()
    assert len(rows) == 5
    assert all(re.match(r"\d\d:\d\d:\d\d  ", row) for row in rows), rows
    terminal.event("completed", "evt-1", status="completed", task_id="task-1", created_at="2020-01-01T12:00:00Z")
    rows = terminal.ok("why", "evt-1").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", row) for row in rows), rows


def test_why_takes_the_beginning_of_an_id_and_without_one_the_newest(terminal: Terminal) -> None:
    nobody = terminal("why")
    assert (nobody.code, nobody.err.count("\n")) == (1, 1)
    os.utime(terminal.event("completed", "evt-console-17", status="completed"), (2000, 2000))
    os.utime(terminal.event("completed", "evt-console-18", status="completed", task_id="task-1"), (1000, 1000))
    assert "evt-console-17 is a" in terminal.ok("why")
    terminal.task("completed", "task-1", event_id="evt-console-18", outcome="success")
    assert "evt-console-18 is a" in terminal.ok("why").splitlines()[0]
    terminal.task("completed", "task-2", event_id="schedule-daily", outcome="success")
    assert "evt-console-17 is a" in terminal.ok("why", "evt-console-17")
    assert "task-2 is a" in terminal.ok("why", "task-2")
    many = terminal("why", "evt-console")
    assert (many.code, many.err.count("\n")) == (1, 1)
    assert "named 'evt-console'; so begin evt-console-17, evt-console-18" in many.err
    assert '"id": "task-1"' in terminal.ok("tasks", "task-1")
    terminal.event("pending", "evt-other")
    assert "evt-other is a" in terminal.ok("why", "evt-o")
    assert '"id": "evt-other"' in terminal.ok("queue", "show", "evt-o")


def test_why_names_the_retries_of_a_task(terminal: Terminal) -> None:
    terminal.task("completed", "task-1", outcome="failed", retried_as=["task-7"])
    assert "it was retried as task-7; `" in terminal.ok("why", "task-1")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"target_general": "gen-gone"}, "gen-gone is not installed"),
        ({"target_general": "gen-herald"}, "gen-herald does not run"),
    ],
)
def test_why_a_task_waits(task: dict[str, str], said: str, terminal: Terminal) -> None:
    terminal.task("pending", "task-1", **task)
    assert said in terminal.ok("why", "task-1")


def test_why_a_task_waits_for_another_of_its_general(terminal: Terminal) -> None:
    terminal.places.manifest("gen-briefing").write_text(
        terminal.places.manifest("gen-briefing").read_text() + "\nmax_soldiers: 1\n"
    )
    terminal.task("pending", "task-2")
    with closing(Held(terminal.places, "gen-briefing")):
        assert "gen-briefing has not taken it yet" in terminal.ok("why", "task-2")
        soldier = terminal.places.control_folder("gen-briefing", "task-1")
        soldier.mkdir(parents=True)
        lock = Lock(soldier / "lock", "soldier")
        lock.acquire()
        try:
            assert "1 soldier of gen-briefing is running and its max_soldiers is 1" in terminal.ok("why", "task-2")
        finally:
            lock.release()


def test_why_an_event_waits_for_the_tasks_of_its_general(terminal: Terminal) -> None:
    manifest = terminal.places.manifest("gen-briefing")
    manifest.write_text(manifest.read_text() + "\nmax_soldiers: 1\nsubscribes: [slow.work]\n")
    beats(terminal.places.home, "gen-briefing")
    terminal.task("pending", "task-1")
    terminal.event("pending", "evt-2", type="slow.work")
    with closing(Held(terminal.places, "king")):
        why = terminal.ok("why", "evt-2")
    assert "1 soldier of gen-briefing is running and its max_soldiers is 1" in why


def test_what_a_king_who_notes_nothing_made_is_found_by_what_it_names(terminal: Terminal) -> None:
    """Another program's: it moves files, and leaves what stands in them."""
    with closing(say.ReplyListener(terminal.places)) as ear:
        terminal.event("dispatched", "evt-1")
        terminal.task("in_progress", "task-1", event_id="evt-1", status="pending")
        terminal.task("completed", "task-2", event_id="evt-2", status="pending")
        terminal.put("messages", "sent", "msg-2", type="notification", task_id="task-2", content="another's")
        terminal.put("messages", "sent", "msg-1", type="notification", task_id="task-1", content="[complete] done")
        assert [message["id"] for message in ear.messages("evt-1", SOON)] == ["msg-1"]
    told = terminal.ok("why", "evt-1")
    assert "it is dispatched, in queue/events/dispatched" in told
    assert re.search(r"task-1 is a .*\n.*it came from evt-1\n.*msg-1 \(notification\): '\[complete\] done' was", told)
    write(terminal.places.result("task-2"), {"status": "success"})
    assert "it ended: success" in terminal.ok("why", "task-2")
    terminal.places.result("task-2").unlink()
    assert "it ended: its result is no longer kept" in terminal.ok("why", "task-2")


def test_messages_of_a_task_that_our_general_has_retried_are_found_too(terminal: Terminal) -> None:
    """It has written the task anew, with an empty list of messages; the king notes none."""
    terminal.event("dispatched", "evt-1")
    terminal.task("in_progress", "task-1", event_id="evt-1", attempt=1, letters={})
    terminal.put("messages", "sent", "msg-1", type="thread_start", task_id="task-1", content="[start] hello")
    assert "msg-1 (thread_start): '[start] hello' was sent" in terminal.ok("why", "evt-1")


def test_why_an_event_was_discarded_though_a_general_would_take_it_now(terminal: Terminal) -> None:
    found = {"status": "discarded", "discarded_code": "unclaimed", "discarded_reason": "no general subscribes to it"}
    terminal.event("completed", "evt-1", type="slow.work", **found)
    assert "rule tried: " in (before := terminal.ok("why", "evt-1"))
    install(terminal.places.home, "gen-late", subscribes=["slow.work"])
    told = terminal.ok("why", "evt-1")
    assert "it was discarded: no general subscribes to it" in told
    assert "gen-late would take it now, by its subscribes 'slow.work'; `" in told
    assert "queue requeue evt-1` puts it in again" in told
    assert "it will go to" not in before + told


ENDED_IN_SILENCE: dict[str, tuple[dict[str, Any], str, str]] = {
    "done": ({"status": "success", "summary": "3 rooms"}, "notification", "[complete] github.pr.mentioned — 3 rooms"),
    "failed": (
        {"status": "failed", "kept": ["/srv/castle/workspace/gen-pr/task-1"]},
        "notification",
        "[failed] unknown\nIts work is kept in workspace/gen-pr/task-1; `kingdom tasks work task-1` shows it.",
    ),
    "asked": ({"status": "needs_human", "question": "which?"}, "human_input_request", "[question] which?"),
}


@pytest.mark.parametrize("how", ENDED_IN_SILENCE)
def test_say_tells_how_an_event_ended_of_which_no_message_tells(
    how: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's king wrote none: it is told soon, and not at the end of the time alone."""
    monkeypatch.setattr(say, "QUIET_SECONDS", 0.0)
    result, kind, said = ENDED_IN_SILENCE[how]
    terminal.event("completed", "evt-1")
    terminal.task("completed", "task-1", event_id="evt-1", type="github.pr.mentioned")
    write(terminal.places.result("task-1"), {"task_id": "task-1", **result})
    with closing(say.ReplyListener(terminal.places)) as ear:
        (told,) = ear.messages("evt-1", SOON)
    assert (told["type"], told["task_id"], told["content"]) == (kind, "task-1", said)


@pytest.mark.parametrize("noted", [None, {"final": "msg-1"}], ids=["another king's", "ours"])
def test_say_tells_how_an_event_ended_when_time_is_up_before_its_message_is_sent(
    noted: dict[str, str] | None, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(say, "QUIET_SECONDS", 0.0)
    terminal.event("completed", "evt-1")
    terminal.task("completed", "task-1", event_id="evt-1", type="a.b", **({"letters": noted} if noted else {}))
    about = {} if noted else {"task_id": "task-1"}
    terminal.put("messages", "pending", "msg-1", type="notification", content="[complete] a.b — done", **about)
    write(terminal.places.result("task-1"), {"task_id": "task-1", "status": "success", "summary": "done"})
    began = time.monotonic()
    with closing(say.ReplyListener(terminal.places)) as ear:
        (told,) = ear.messages("evt-1", 1.5)
    assert told["content"] == "[complete] a.b — done"
    assert time.monotonic() - began >= 1.5, "until then the message may come"


def test_a_role_that_another_program_plays_is_not_called_missing(terminal: Terminal) -> None:
    """By none of the commands."""
    terminal.event("pending", "evt-1")
    terminal.task("pending", "task-1")
    terminal.put("messages", "pending", "msg-1", type="notification", content="done")
    for role in ("king", "envoy", "gen-briefing"):
        make_folder(terminal.places.own(role))
        terminal.places.heartbeat(role).write_text("alive")
    (terminal.places.config / "envoy.yaml").write_text("channel: console\n")
    assert "nothing holds it" in terminal.ok("why", "evt-1")
    assert "gen-briefing has not taken it yet" in terminal.ok("why", "task-1")
    assert "waits for the envoy\n" in terminal.ok("queue", "ls", "messages/pending") + terminal.ok("why", "msg-1")
    assert re.search("^gen-briefing +runs ", terminal.ok("generals"), re.M)
    assert "while another program plays the king; `" in terminal("tasks", "cancel", "task-1").out


def test_a_task_without_a_soldier_waits_when_no_more_may_run(terminal: Terminal) -> None:
    terminal.task("in_progress", "task-1")
    lock = Lock(terminal.places.control_folder("gen-briefing", "task-2") / "lock", "soldier")

    def shown() -> tuple[list[str], list[str]]:
        waiting = Reasons(terminal.places, "kingdom").waiting(overview.look(terminal.places))
        running = panel(terminal.places, time.time())["running"]
        assert terminal("status").out.count("task-1 ") == 1
        return [row["taskId"] for row in running], [row.why for row in waiting]

    with closing(Held(terminal.places, "gen-briefing")):
        (terminal.places.config / "king.yaml").write_text("concurrency: {max_soldiers: 1}\n")
        beat = {"pid": os.getpid(), "role": "gen-briefing", "seq": 1, "state": "idle", "time": stamp(time.time())}
        write(terminal.places.heartbeat("gen-briefing"), beat)
        assert shown() == (["task-1"], []), "a soldier is about to start"
        lock.path.parent.mkdir(parents=True)
        lock.acquire()
        held = "it waits for a soldier: 1 soldier is running and concurrency.max_soldiers is 1"
        assert shown() == ([], [held])
        assert re.search(rf"^waiting\n *task-1  gen-briefing, made .* ago: {held}$", terminal("status").out, re.M)
        lock.release()


LATER = stamp(time.time() + 3600)
UNDER_WAY: dict[str, tuple[dict[str, Any], str]] = {
    "between two tries": (
        {"attempt": 1, "not_before": LATER, "waits_because": "attempt 1 failed: x"},
        "attempt 1 failed: x; it",
    ),
    "an older file": ({"attempt": 1, "not_before": LATER}, "attempt 1 failed; it goes on at "),
    "a used up budget": (
        {"not_before": LATER, "waits_because": "budgets.day_usd is 5"},
        "budgets.day_usd is 5; it goes",
    ),
    "no time": ({"not_before": "soon"}, "is about to start a soldier or to report"),
    "long ago": ({"not_before": "2026-01-01T00:00:00Z"}, "is about to start a soldier or to report"),
}


@pytest.mark.parametrize("what", UNDER_WAY)
def test_why_a_task_under_way_waits(what: str, terminal: Terminal) -> None:
    fields, said = UNDER_WAY[what]
    with closing(Held(terminal.places, "gen-briefing")):
        terminal.task("in_progress", "task-1", **fields)
        assert said in terminal.ok("why", "task-1")


def test_say_tells_what_it_waits_for_once_for_each_reason(
    terminal: Terminal, king_runs: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(say, "QUIET_SECONDS", 0.0)
    install(terminal.places.home, "gen-model", keywords=["think"])
    terminal.event("pending", "evt-1", type="console.message", payload={"text": "think"})

    def told(seconds: float = 0.1) -> list[str]:
        with pytest.raises(TookTooLong):
            list(ear.messages("evt-1", seconds))
        return capsys.readouterr().err.splitlines()

    with closing(say.ReplyListener(terminal.places)) as ear, closing(Held(terminal.places, "gen-briefing")):
        hold(terminal, "red")
        (line,) = told(1.2)
        assert line.startswith("it waits: the machine is red (by its vitals), so only what needs no model")
        hold(terminal, "orange", age=500)
        (line,) = told()
        assert line.startswith("it waits: the machine is orange (the vitals are 50")
        hold(terminal, "orange", age=510)
        assert told() == []
        terminal.places.queue_file("events", "pending", "evt-1").unlink()
        terminal.event("dispatched", "evt-1", task_id="task-1")
        terminal.task("in_progress", "task-1", not_before=LATER, waits_because="attempt 1 failed: no tests")
        (line,) = told()
        assert line.startswith("task-1: attempt 1 failed: no tests; it goes on at ")
        terminal.places.queue_file("tasks", "in_progress", "task-1").unlink()
        terminal.task("completed", "task-1", outcome="success", letters={"final": "msg-1"})
        terminal.put("messages", "pending", "msg-1", type="notification", content="done")
        (line,) = told()
        assert "waits: the envoy does not run; `" in line


@pytest.mark.parametrize(
    ("envoy", "said"),
    [
        ("{}", "waits: the worker does not run; `"),
        ("channel: console", "waits for the envoy\n"),
        ("slack: {}", "waits for the envoy\n"),
    ],
)
def test_a_message_for_the_hall_waits_for_its_worker(envoy: str, said: str, terminal: Terminal) -> None:
    (terminal.places.config / "envoy.yaml").write_text(f"{envoy}\n")
    terminal.put("messages", "pending", "msg-1", type="notification", content="done")
    with closing(Held(terminal.places, "envoy")):
        assert said in terminal.ok("why", "msg-1")
        with closing(Held(terminal.places, "worker-b")):
            assert "waits for the envoy\n" in terminal.ok("why", "msg-1")


def test_an_order_waits_for_its_king(terminal: Terminal) -> None:
    terminal.task("completed", "task-1", outcome="failed")
    before = stamp(time.time())
    said = terminal("tasks", "retry", "task-1")
    assert said.code == 3
    order = said.out.split()[0]
    given = json.loads(terminal.places.queue_file("orders", "pending", order).read_text())
    assert before <= given["created_at"] <= stamp(time.time())
    assert "waits for the king, which does not run" in said.out
    assert "retry task-1" in terminal.ok("why", order)


ORDERS_BY_PREFIX = (
    (("tasks", "retry"), "task-20261118-00", "task-20261118-001"),
    (("tasks", "cancel"), "task-2", "task-20261118-001"),
    (("events", "discard"), "evt-a", "evt-alone"),
    (("queue", "requeue"), "msg", "msg-1"),
)


@pytest.mark.parametrize(("command", "typed", "meant"), ORDERS_BY_PREFIX)
def test_an_order_takes_the_beginning_of_an_id(
    command: tuple[str, ...], typed: str, meant: str, terminal: Terminal
) -> None:
    terminal.task("completed", "task-20261118-001", outcome="failed")
    terminal.event("pending", "evt-alone")
    terminal.put("messages", "failed", "msg-1")
    assert terminal(*command, typed).code == 3
    (order,) = terminal.places.folder("orders", "pending").iterdir()
    assert json.loads(order.read_text())["target"] == meant


def test_an_order_about_several_or_nothing_is_not_given(terminal: Terminal) -> None:
    for number in (1, 2):
        terminal.task("completed", f"task-{number}", outcome="failed")
    said = terminal("tasks", "cancel", "task")
    assert (said.code, said.err) == (1, "kingdom: no task named 'task'; so begin task-1, task-2\n")
    assert terminal("tasks", "retry", "evt-1").err == "kingdom: no task named 'evt-1'\n"
    assert terminal("tasks", "retry", "").code == 1
    assert list(terminal.places.folder("orders", "pending").iterdir()) == []


def test_a_success_is_retried_only_when_it_is_asked_for_again(terminal: Terminal) -> None:
    terminal.task("completed", "task-1", outcome="success")
    said = terminal("tasks", "retry", "task-1")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "task-1 has succeeded; `" in said.err
    assert "tasks retry task-1 --again` does its work a second time" in said.err
    assert list(terminal.places.folder("orders", "pending").iterdir()) == []
    assert terminal("tasks", "retry", "task-1", "--again").code == 3
    terminal.task("completed", "task-2", outcome="failed")
    assert terminal("tasks", "retry", "task-2").code == 3
    assert len(list(terminal.places.folder("orders", "pending").iterdir())) == 2


def test_a_run_that_is_held_is_shown_with_the_reason(terminal: Terminal) -> None:
    plan = {"schedule": "gen-a:daily", "next": "2026-11-19T09:00:00Z", "last": None}
    held = {**plan, "held_since": stamp(time.time() - 600), "held_because": "the machine is red"}
    free = {**plan, "schedule": "gen-b:daily", "held_since": None, "held_because": None}
    plans = terminal.places.own("king") / "schedules.json"
    plans.parent.mkdir(exist_ok=True)
    plans.write_text(json.dumps({"schedules": [held, free, plan]}))
    assert "due and held back\n  gen-a:daily, for 10 min: the machine is red\n\n" in terminal("status").out
    assert json.loads(terminal("status", "--json").out)["held_runs"] == [held]


def test_a_task_between_two_tries_is_shown_with_what_it_waits_for(terminal: Terminal) -> None:
    terminal.task("in_progress", "task-1", attempt=1, not_before=LATER, waits_because="attempt 1 failed: no tests")
    terminal.task("in_progress", "task-2", attempt=1)
    terminal.task("in_progress", "task-3", target_general="gen-gone")
    started = {"task_id": "task-2", "soldier": "soldier-2", "started_at": stamp(time.time() - 300)}
    terminal.places.sessions.write_text(json.dumps([started]))
    said = terminal("status").out
    assert re.search(r"waiting\n  task-1  gen-briefing, goes on in \d+ min: attempt 1 failed: no tests\n", said)
    assert re.search(r"running\n.*\n  task-2  gen-briefing  a.b, attempt 2  for 5 min\n", said)
    assert re.search(r"\n  task-3  gen-gone, made \d+ \w+ ago: gen-gone is not installed; `", said)


def ask(terminal: Terminal, task: str = "task-1") -> None:
    terminal.task("completed", task, outcome="needs_human")
    terminal.places.result(task).write_text('{"question": "which?"}')
    asked = {"target_general": "gen-briefing", "payload": {"headline": "QP-1 Prices"}}
    terminal.places.checkpoint(task).write_text(json.dumps(asked))


def test_a_question_is_shown_until_it_is_answered(terminal: Terminal) -> None:
    ask(terminal)
    assert "it waits for your answer: " in terminal.ok("why", "task-1")
    assert "Unanswered: task-1; `" in terminal.ok("report")
    said = terminal("status").out
    assert re.search(r"needs you\n  task-1  [\d.]+ s, gen-briefing asks about QP-1 Prices: which\?\n", said)
    assert ' say --answer task-1 "..."\n' in said
    terminal.ok("say", "--no-wait", "--answer", "task-1", "the first")
    notes.note_answer(terminal.places, home.disk(terminal.places), "task-1", "evt-9")
    terminal.event("completed", "evt-9", type="console.human_response", task_id="task-2")
    told = terminal.ok("why", "task-1")
    assert "your answer" not in told
    assert "it was answered by evt-9 and goes on as task-2; `" in told
    assert json.loads(terminal.ok("report", "--json"))["questions"] == []
    assert json.loads(terminal("status", "--json").out)["questions"] == []
    late = terminal("say", "--no-wait", "--answer", "task-1", "the second")
    assert (late.code, late.err.count("\n")) == (78, 1)
    assert "the question of task-1 is already answered; `" in late.err


def test_the_list_of_questions_says_what_is_asked(terminal: Terminal) -> None:
    ask(terminal, "task-1")
    head, row = terminal.ok("tasks", "--asking").splitlines()
    assert head.split() == ["task", "general", "age", "question"]
    assert re.fullmatch(r"task-1  gen-briefing  [\d.]+ s +which\?", row)


def test_an_old_question_is_reported_as_long_as_it_waits(terminal: Terminal) -> None:
    ask(terminal)
    for path in (terminal.places.checkpoint("task-1"), terminal.places.queue_file("tasks", "completed", "task-1")):
        os.utime(path, (1000, 1000))
    assert "Unanswered: task-1; `" in terminal.ok("report")


def test_the_end_of_a_log(terminal: Terminal) -> None:
    terminal.places.role_log("king").write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert terminal.ok("logs", "king", "-n", "2") == "line 49998\nline 49999\n"
    assert terminal.ok("logs", "king", "-n", "0") == ""
    assert len(terminal.ok("logs", "king", "-n", "40000").splitlines()) == 40_000


def test_what_a_soldier_still_says_is_followed_to_its_end(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    places = terminal.places
    folder = places.control_folder("gen-x", "task-1")
    folder.mkdir(parents=True)
    said = places.session_log("soldier-task-1-0", "out")
    said.write_text("one\n")
    lock = Lock(folder / "lock", "soldier")
    lock.acquire()
    following = threading.Thread(target=main, args=(["attach", "task-1"],))
    following.start()
    heard = wait_until(lambda: capsys.readouterr().out, SOON, "what it has said")
    with said.open("a") as more:
        more.write("two\n")
    lock.release()
    following.join(SOON)
    assert heard + capsys.readouterr().out == "one\ntwo\n"


def test_what_a_soldier_says_cannot_steer_the_terminal(terminal: Terminal) -> None:
    said = terminal.places.session_log("soldier-task-1-0", "out")
    said.write_bytes("\033[2J\033]0;owned\a하나\n\x9b31mtwo\tcells\n".encode())
    assert terminal.ok("attach", "task-1") == "[2J]0;owned하나\n31mtwo\tcells\n"
    terminal.places.role_log("king").write_bytes(b"\033[31mred\n")
    assert terminal.ok("logs", "king") == "[31mred\n"


def test_a_report_counts_what_ended(terminal: Terminal) -> None:
    terminal.event("completed", "evt-1", status="completed")
    terminal.event("completed", "evt-2", status="discarded")
    terminal.task("completed", "task-1", outcome="success")
    terminal.places.result("task-1").write_text('{"metrics": {"duration_seconds": 4.0}}')
    told = json.loads(terminal.ok("report", "--json"))
    assert told["events"] == {"a.b": 1, "a.b (discarded)": 1}
    assert told["tasks"] == {"gen-briefing": {"success": 1}}
    assert told["median_seconds"] == {"gen-briefing": 4.0}
    os.utime(terminal.task("completed", "task-0", outcome="failed"), (1000, 1000))
    assert "1 task ended" in terminal.ok("report")


def test_nothing_happened(terminal: Terminal) -> None:
    assert terminal.ok("report", "--days", "2") == "Nothing happened in the last 2 d.\n"


def test_text_from_outside_cannot_steer_the_terminal(terminal: Terminal) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\rrm"
    assert printable(evil) == "]0;owned[2J31mrm"
    terminal.event("completed", "evt-1", status="discarded", discarded_reason=evil, payload={"text": evil}, type=evil)
    for words in (("events",), ("events", "evt-1"), ("why", "evt-1"), ("report",), ("queue", "ls", "events")):
        assert not {"\x1b", "\x9b", "\x07", "\r"} & set(terminal.ok(*words)), words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (2.4, "2.4 s"),
        (59, "59 s"),
        (119, "119 s"),
        (121, "2 min"),
        (7300, "2 h"),
        (200_000, "2 d"),
        (86400 * 729, "729 d"),
        (86400 * 3650, "10 y"),
        (2.5e11, "more than 100 y"),
    ],
)
def test_spans(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_lines_are_cut_and_columns_stand_straight() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 200, 10) == "xxxxxxxxx…"
    assert table([("현황", "x"), ("abcd", "y")], indent="") == "현황  x\nabcd  y"


@pytest.mark.parametrize("written", ["soon", "", None, 7, "2026-13-45T00:00:00Z"])
def test_a_damaged_time_keeps_no_command_from_showing_the_rest(terminal: Terminal, written: object) -> None:
    places = terminal.places
    places.sessions.write_text(json.dumps([{"task_id": "task-1", "soldier": "soldier-1", "started_at": written}]))
    plan = {"schedule": "gen-a:daily", "next": written or "soon", "held_since": written or "soon"}
    make_folder(places.own("king"))
    (places.own("king") / "schedules.json").write_text(json.dumps({"schedules": [plan]}))
    terminal.task("pending", "task-2", created_at=written, not_before=written)
    assert "gen-a:daily, for ?" in terminal("status").out
    assert "task-2" in terminal.ok("tasks")
    assert "task-2" in terminal.ok("why", "task-2")


def test_somebody_without_a_name_may_speak_and_give_orders(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where a uid stands in no list."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    terminal("say", "--no-wait", "hello")
    terminal.task("completed", "task-1", outcome="failed")
    terminal("tasks", "retry", "task-1")
    (event,) = terminal.places.folder("events", "pending").glob("*.json")
    (order,) = terminal.places.folder("orders", "pending").glob("*.json")
    assert json.loads(event.read_text())["payload"]["user"] == "uid-54321"
    assert json.loads(order.read_text())["by"] == "uid-54321"


@pytest.mark.parametrize(
    ("health", "said"),
    [
        ("green", ""),
        ("yellow", "; only what people say, what has high priority and what needs no model starts"),
        ("red", "; only what needs no model starts"),
    ],
)
def test_status_says_what_a_busy_machine_means(terminal: Terminal, health: str, said: str) -> None:
    vitals = {"timestamp": stamp(time.time()), "health": health, "system": {"cpu_percent": 71.0}}
    terminal.places.resources.write_text(json.dumps(vitals))
    assert terminal("status").out.splitlines()[0] == f"{terminal.places.home}: {health}, cpu 71 %{said}"


def test_all_who_look_call_a_role_hung_by_the_same_rule(terminal: Terminal, king_runs: None) -> None:
    (terminal.places.config / "system.yaml").write_text("heartbeat: {threshold_seconds: 10}\n")
    beat = terminal.places.heartbeat("king")
    beat.write_text(json.dumps({"pid": os.getpid(), "state": "idle"}))
    os.utime(beat, (time.time() - 30, time.time() - 30))
    assert "silent, hung?" in terminal("status").out
    assert "king holds its lock and its heartbeat has stopped" in terminal("doctor").out


MISSING = [
    ("absent", "not running: `{command} start envoy`"),
    ("quarantined", "quarantined after a crash loop: read logs/envoy.log, then `{command} start envoy`"),
]


@pytest.mark.parametrize(("state", "said"), MISSING)
def test_status_names_a_role_that_should_run_first(terminal: Terminal, king_runs: None, state: str, said: str) -> None:
    terminal.task("completed", "task-1", outcome="failed")
    terminal.places.heartbeat("king").write_text(json.dumps({"pid": os.getpid(), "state": "idle"}))
    for row in home.rows(terminal.places):
        if row.name not in ("king", "envoy"):
            terminal.places.wanted(row.name).write_text("down\n")
    if state != "absent":
        terminal.places.wanted("envoy").write_text(f"{state}\n")
    shown = terminal("status").out
    assert f"\nnot at work\n  envoy  {said.format(command=home.command())}\n" in shown
    assert shown.index("not at work") < shown.index("failed  ")
    assert "gen-herald  " not in shown.partition("\n  role ")[0], "somebody stopped it"


def test_status_is_not_content_with_a_full_disk(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as roles:
        for role in home.rows(terminal.places):
            roles.enter_context(closing(Held(terminal.places, role.name)))
            beat = {"pid": os.getpid(), "role": role.name, "seq": 1, "state": "idle", "code": installed_code()}
            write(terminal.places.heartbeat(role.name), beat)
        assert "no room" not in terminal.ok("status")
        monkeypatch.setattr(disk_space, "FULL_PERCENT", 0.0)
        said = terminal("status")
    assert said.code == 1
    assert re.search(r"^no room\n *the disk is \d+ % full: .* make room on the disk of ", said.out, re.M)


def test_status_counts_the_restarts_of_a_role(terminal: Terminal, king_runs: None) -> None:
    terminal.places.starts("envoy").write_text("streak 0\nrestarts 3\n")
    shown = terminal("status").out
    assert re.search(r"\n  envoy +not running +- +3 +- +never\n", shown), shown
    assert re.search(r"\n  chamberlain +not running +- +0 +- +never\n", shown), shown


def test_a_missing_role_comes_back_by_itself_while_its_watcher_is_at_work(terminal: Terminal, king_runs: None) -> None:
    """The king watches the chamberlain, and the chamberlain everybody else."""
    terminal.places.heartbeat("king").write_text(json.dumps({"pid": os.getpid(), "state": "idle"}))
    shown = terminal("status").out
    assert f"\n  chamberlain  not running: it comes back by itself, or by `{home.command()} start chamberlain`" in shown
    assert f"\n  envoy  not running: `{home.command()} start envoy`\n" in shown


def test_what_is_said_to_a_role_that_refuses_its_configuration_is_answered_with_what_is_wrong(
    terminal: Terminal, king_runs: None
) -> None:
    make_folder(terminal.places.own("envoy"))
    refuse(terminal.places)
    said = terminal("say", "hello")
    wrong = (
        f"{terminal.places.config}/envoy.yaml:3: intervals: is a text; correct that, or put your words into the queue"
    )
    assert (said.code, said.err) == (3, f"kingdom: the envoy is not running; {wrong} with --no-wait\n")


def stop_through_launcher(places: Places) -> None:
    write(places.roll_call("chamberlain"), {"stopped": ["envoy"]})


def refuse(places: Places) -> None:
    error = BadConfig(path=places.config / "envoy.yaml", line=":3", key="intervals", why="is a text")
    refusals.note(places, home.disk(places), "envoy", error, {})


@pytest.mark.parametrize(
    ("is_watched", "begin", "said"),
    [
        (True, stop_through_launcher, "its launcher was asked to stop it, and it stays down until `{start}`"),
        (True, refuse, "{config}/envoy.yaml:3: intervals: is a text; correct that, then it comes back by itself"),
        (False, refuse, "{config}/envoy.yaml:3: intervals: is a text; correct that, then `{start}`"),
    ],
)
def test_what_will_become_of_a_missing_role_is_what_its_watcher_does(
    terminal: Terminal, king_runs: None, is_watched: bool, begin: Callable[[Places], None], said: str
) -> None:
    places = terminal.places
    make_folder(places.own("envoy"))
    make_folder(places.own("chamberlain"))
    begin(places)
    with ExitStack() as held:
        for role in ("king", *(["chamberlain"] if is_watched else [])):
            make_folder(places.own(role))
            places.heartbeat(role).write_text(json.dumps({"pid": os.getpid(), "state": "idle"}))
            if role != "king":
                held.enter_context(closing(Held(places, role)))
        shown = terminal("status").out
        found = terminal("doctor").out
        why = Reasons(places, home.command()).keeps_messages()
    start = f"{home.command()} start envoy"
    assert f"\n  envoy  not running: {said.format(start=start, config=places.config)}\n" in shown
    assert "envoy stays down: " in found if begin is stop_through_launcher else "envoy does not start: " in found
    assert why is not None
    assert ("its launcher was asked to stop it" if begin is stop_through_launcher else "envoy.yaml:3: ") in why
    assert ("comes back by itself" in why) is (is_watched and begin is refuse)


def test_status_says_how_a_kingdom_that_is_down_is_started(terminal: Terminal) -> None:
    first = f"\nnot at work\n  none of 8 roles: `{home.command()} up` starts the kingdom\n"
    assert first in terminal("status").out
    said = terminal("doctor").out
    assert (
        "roles: none runs; missing: chamberlain, envoy, king, sentinel, gateway, worker, gen-briefing, gen-herald\n"
        in said
    )


def test_a_worker_of_the_hall_is_shown_with_what_it_stored_and_what_waits_for_it(terminal: Terminal) -> None:
    said = {"state": "working", "stored": 41, "lag": 3, "dead": 0, "gaps": 0}
    path = terminal.places.worker_snapshot("worker")
    path.parent.mkdir()
    path.write_text(json.dumps(said))
    assert "worker  41 messages stored, 3 waiting\n" in terminal("status").out
    assert json.loads(terminal("status", "--json").out)["workers"] == [{"role": "worker", **said}]
    path.write_text(json.dumps({**said, "state": "waiting", "why": "the database is away", "dead": 1, "gaps": 2}))
    shown = terminal("status").out
    assert "worker  41 messages stored, 3 waiting, 1 dead letter, 2 gaps in its topic; it waits: the database" in shown


def test_a_council_that_runs_is_shown_with_who_is_at_work(terminal: Terminal) -> None:
    said = {
        "waiting": 3,
        "retrying": 1,
        "at_work": {"leader": "x.mime"},
        "told": 9,
        "done": 5,
        "retried": 2,
        "buried": 1,
    }
    path = terminal.places.council_figures
    path.parent.mkdir()
    path.write_text(json.dumps(said))
    assert "leader" not in terminal("status").out, "it does not run"
    with closing(Held(terminal.places, "council")):
        shown = terminal("status").out
        assert "council  leader at work, 3 messages waiting, 1 to be retried, 1 dead letter\n" in shown
        assert json.loads(terminal("status", "--json").out)["council"] == said
        figures = terminal("metrics").out
    assert 'kingdom_council_messages{state="retrying"} 1\n' in figures
    assert "kingdom_council_told_total 9\n" in figures


def test_a_gateway_that_runs_is_shown_with_what_it_has_answered(terminal: Terminal) -> None:
    said = {"sockets": 3, "accepted": 41, "failed": 2, "delivered": 164, "refused_sockets": 0, "cut_sockets": 0}
    path = terminal.places.gateway_figures("gateway")
    path.parent.mkdir()
    path.write_text(json.dumps(said))
    assert "accepted" not in terminal("status").out, "nobody answers"
    with closing(Held(terminal.places, "gateway")):
        assert "gateway  3 sockets, 41 messages accepted, 2 failed\n" in terminal("status").out
        assert json.loads(terminal("status", "--json").out)["gateways"] == [{"role": "gateway", **said}]
        shown = terminal("metrics").out
    assert 'kingdom_hall_sockets{role="gateway"} 3\n' in shown
    assert 'kingdom_hall_answers_total{role="gateway",outcome="failed"} 2\n' in shown


def test_each_watcher_is_shown_with_its_last_and_its_next_look(terminal: Terminal) -> None:
    now = time.time()
    well = {"state": "ok", "why": "", "looked_at": stamp(now - 12), "next_at": stamp(now + 3000)}
    shut = {"state": "refused", "why": "Bad credentials", "next_at": stamp(now + 3000)}
    make_folder(terminal.places.own("sentinel"))
    terminal.places.watchers.write_text(json.dumps({"github": well, "jira": shut, "files": {"state": "off"}}))
    assert "github" not in terminal("status").out, "nobody looks"
    with closing(Held(terminal.places, "sentinel")):
        shown = terminal("status").out
        seen = json.loads(terminal("status", "--json").out)["watchers"]
    assert re.search(r"\ngithub  ok, looked 1\d s ago, next in (49|50) min\n", shown), shown
    assert re.search(r"\njira  refused, has not looked yet, next in \d+ min: Bad credentials\n", shown), shown
    assert "files" not in shown
    assert [row["watcher"] for row in seen] == ["github", "jira"]


def spent(usd: float, account: str = "claude", task: str = "task-1") -> dict[str, Any]:
    row = {"usd": usd, "tokens": 1000}
    return {**row, "accounts": {account: row}, "tasks": {task: row}}


def test_the_report_of_money_adds_up_what_the_ledger_and_the_generals_know(terminal: Terminal) -> None:
    today, before = stamp(time.time())[:10], stamp(time.time() - 2 * 86400)[:10]
    terminal.places.ledger.parent.mkdir(exist_ok=True)
    old = {"gen-pr": spent(1.5), "gen-jira": spent(0.25, "codex", "task-2")}
    write(terminal.places.ledger, {before: old, "2020-01-01": {"gen-pr": spent(99)}, today: {"gen-pr": spent(1)}})
    write(terminal.places.budgets, {f"spent {today}": {"gen-pr": spent(8)}})
    (terminal.places.config / "general.yaml").write_text("budgets: {day_usd: 10}\n")
    told = terminal.ok("report", "--money")
    assert told.startswith("9.75 USD and 3,000 tokens were spent in the last 30 d.\n")
    assert f"Budget day_usd, {today}: 8.00 of 10 USD (80%)." in told
    for line in (f"{before}", "gen-jira", "codex", "task-2"):
        assert re.search(rf"^  {line} +(0.25|1.75) ", told, re.MULTILINE)
    assert "9.50 USD" in terminal.ok("report", "--money", "--general", "gen-pr")
    assert "8.00 USD" in terminal.ok("report", "--money", "--since", "1d")
    found = json.loads(terminal.ok("report", "--money", "--json"))["money"]
    assert (found["usd"], found["generals"]["gen-jira"]) == (9.75, {"usd": 0.25, "tokens": 1000})


def test_nothing_was_spent(terminal: Terminal) -> None:
    nothing = "Nothing was spent in the last 30 d, as far as engines report it.\n"
    assert terminal.ok("report", "--money") == nothing


def test_a_report_of_one_general_counts_its_tasks_alone(terminal: Terminal) -> None:
    terminal.event("completed", "evt-1", status="completed")
    terminal.task("completed", "task-1", outcome="success")
    terminal.task("completed", "task-2", outcome="failed", target_general="gen-pr")
    told = json.loads(terminal.ok("report", "--general", "gen-pr", "--since", "1h", "--json"))
    assert (told["events"], told["tasks"]) == ({}, {"gen-pr": {"failed": 1}})
