"""Lines of JSON that a program prints become events; it is bounded, and told when they are safe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.court.sentinel.sentinels import Sentinel
from tests.fixtures import Clock
from tests.shell_roles import runs
from tests.waiting import SOON, wait_until

Build = Callable[..., Sentinel]


@pytest.fixture
def build(home: Path, clock: Clock) -> Build:
    """A sentinel whose program is a shell script."""

    def built(script: str, **more: Any) -> Sentinel:
        polling = {"command": {"run": ["/bin/sh", "-c", script], **more}}
        return Sentinel(home, clock, polling, {"TOKEN_OF_MINE": "canary-55", "OTHER": "canary-66"})

    return built


def test_a_line_becomes_an_event(build: Build) -> None:
    line = {"id": "42", "type": "backup.failed", "payload": {"disk": "sda"}, "repo": "acme/shop", "priority": "high"}
    sentinel = build(f"echo '{json.dumps(line)}'")
    assert sentinel.settle() == ["evt-command-42"]
    event = sentinel.one()
    assert (event["type"], event["source"], event["repo"]) == ("command.backup.failed", "command", "acme/shop")
    assert (event["priority"], event["payload"]) == ("high", {"disk": "sda"})


def test_the_same_line_is_one_event_however_often_it_is_said(build: Build) -> None:
    sentinel = build("""echo '{"type": "a", "payload": {"x": 1}}'; echo '{"payload": {"x": 1}, "type": "a"}'""")
    for _ in range(3):
        sentinel.look(300)
    assert len(sentinel.events()) == 1


@pytest.mark.parametrize("line", ["no json", "[]", '{"payload": {}}', '{"type": "a", "payload": 3}', '{"type": ""x}'])
def test_a_line_that_makes_no_event_is_told_and_keeps_none_back(build: Build, line: str) -> None:
    sentinel = build(f"""echo '{line}'; echo '{{"id": "1", "type": "good"}}'""")
    assert sentinel.settle() == ["evt-command-1"]
    sentinel.look(300)
    assert sentinel.said().count("makes no event") == 1, "the same line is not told at each run"


@pytest.mark.parametrize("odd", [1, 10, 12])
def test_of_many_such_lines_ten_are_told_and_their_number_once(build: Build, odd: int) -> None:
    sentinel = build(f"seq 1 {odd}")
    for _ in range(3):
        sentinel.look(300)
    assert sentinel.said().count("this line makes no event") == min(odd, 10)
    assert sentinel.said().count("in all make no event") == (odd > 10)
    assert odd <= 10 or f"{odd} lines in all" in sentinel.said()


def test_no_program_speaks_for_a_person(build: Build) -> None:
    sentinel = build("""echo '{"id": "1", "type": "console.human_response", "payload": {"task_id": "task-1"}}'""")
    sentinel.settle()
    assert sentinel.types() == ["command.console.human_response"]


def test_it_is_given_the_named_lines_of_env_and_no_other(build: Build) -> None:
    script = (
        """printf '{"id": "1", "type": "a", "payload": {"env": "%s|%s|%s"}}\\n' "$TOKEN_OF_MINE" "$OTHER" "$PWD" """
    )
    sentinel = build(script, env=["TOKEN_OF_MINE", "NOT_THERE"])
    sentinel.settle()
    assert sentinel.one()["payload"]["env"] == f"canary-55||{sentinel.places.home}"


def test_it_is_told_once_its_events_are_safe(build: Build, home: Path) -> None:
    script = """echo '{"id": "1", "type": "a"}'; exec >&-; read word; ls queue/events/pending state/sentinel/seen >seen
    echo "$word" >>seen"""
    sentinel = build(script)
    sentinel.settle()
    assert (home / "seen").read_text().splitlines()[-1] == "ok"
    assert (home / "seen").read_text().count("evt-command-1") == 2


def test_one_that_fails_is_told_once_and_what_it_said_before_counts(build: Build) -> None:
    sentinel = build("""echo '{"id": "1", "type": "a"}'; echo "no disk canary-66" >&2; exit 3""")
    for _ in range(3):
        sentinel.look(3600)
    assert sentinel.events() == ["evt-command-1"]
    assert sentinel.said().count("it ended with 3: no disk") == 1
    assert sentinel.shows("command")["state"] == "down"


def test_what_one_said_before_it_failed_is_cut_to_a_line(build: Build) -> None:
    sentinel = build("printf 'x%.0s' $(seq 300) >&2; exit 3")
    sentinel.settle()
    assert f"it ended with 3: {'x' * 199}…\n" in sentinel.said()


def test_one_that_ends_in_time_is_waited_for(build: Build) -> None:
    sentinel = build("""sleep 0.3; echo '{"id": "1", "type": "a"}'""", timeout_seconds=1)
    assert sentinel.settle() == ["evt-command-1"]
    assert sentinel.shows("command")["state"] == "ok"


def test_after_its_end_it_runs_nothing(build: Build, home: Path) -> None:
    """A look may be about to begin in its thread."""
    (watcher,) = (watch._watcher for watch in build("touch ran").job._watches if watch.name == "command")
    watcher.close()
    assert watcher.fetch() is None
    assert watcher._child is None


def test_one_that_does_not_end_is_ended_with_all_that_it_has_started(build: Build, home: Path) -> None:
    script = """echo '{"id": "1", "type": "a"}'; sleep 600 & echo $! >child; sleep 600"""
    sentinel = build(script, timeout_seconds=1)
    sentinel.settle()
    child = int((home / "child").read_text())
    wait_until(lambda: not runs(child), SOON, "its child is gone")
    assert sentinel.events() == ["evt-command-1"]
    assert "did not end within 1 s" in sentinel.said()


NUMBERS = """i=0; while [ $i -lt 250 ]; do i=$((i+1)); echo "{\\"id\\": \\"$i\\", \\"type\\": \\"a\\"}"; done"""


def test_more_lines_than_are_made_at_once_follow_before_it_is_told(build: Build, home: Path) -> None:
    sentinel = build(
        f"{NUMBERS}; exec >&-; read word; echo $word >told; ls state/sentinel/seen >>told", most_events=100
    )
    assert len(sentinel.settle()) == 250
    told = (home / "told").read_text().splitlines()
    assert (told[0], len(told)) == ("ok", 251)
    assert sentinel.shows("command")["state"] == "ok"


def test_lines_that_are_held_back_come_although_they_are_said_once(home: Path, clock: Clock) -> None:
    polling = {"command": {"run": ["/bin/sh", "-c", f"[ -e said ] || {{ touch said; {NUMBERS}; }}"]}}
    sentinel = Sentinel(home, clock, polling, {}, breaker={"events_per_hour": 100})
    assert len(sentinel.settle()) == 100
    assert sentinel.shows("command")["state"] == "held"
    assert [len(sentinel.look(3600)) for _ in range(3)] == [200, 250, 250]
    assert sentinel.shows("command")["state"] == "ok"


def test_one_that_prints_without_end_is_bounded(build: Build) -> None:
    sentinel = build("""echo '{"id": "1", "type": "a"}'; exec yes "$(head -c 4000 /dev/zero | tr '\\0' x)" """)
    sentinel.settle()
    assert sentinel.events() == ["evt-command-1"]
    assert "it printed more than 16 MB" in sentinel.said()
    assert 0 < sentinel.said().count("makes no event") <= 10


def test_a_turn_never_waits_for_it_and_the_end_of_the_sentinel_is_its_end(build: Build, home: Path) -> None:
    sentinel = build("echo $$ >pid; sleep 600")
    sentinel.job.turn({})
    wait_until(lambda: (home / "pid").exists() and (home / "pid").read_text().strip(), SOON, "the program runs")
    pid = int((home / "pid").read_text())
    assert sentinel.job.turn({}).busy
    sentinel.job.close()
    wait_until(lambda: not runs(pid), SOON, "it is gone")


def test_what_a_killed_life_has_left_is_ended_first(build: Build, home: Path) -> None:
    script = "echo $$ >>pids; sleep 600"
    build(script).job.turn({})
    wait_until(lambda: (home / "pids").exists() and (home / "pids").read_text().strip(), SOON, "the program runs")
    left = int((home / "pids").read_text())
    build(script, timeout_seconds=1).settle()
    assert not runs(left)


def test_a_program_that_is_not_there_is_told(home: Path, clock: Clock) -> None:
    sentinel = Sentinel(home, clock, {"command": {"run": ["/no/such/program"]}}, {})
    sentinel.settle()
    assert "/no/such/program: No such file or directory" in sentinel.said()
