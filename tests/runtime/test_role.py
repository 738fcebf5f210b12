"""Being a role: one at a time, a beat after every turn, a clean end, and no end for what passes.

The king stands for all of them: all run the same loop."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.runtime.role import BEAT_BYTES, Heartbeat
from tests.fixtures import Clock, event, founded, here, install, put, write
from tests.waiting import stays, wait_until

SOON = 20.0
A_WHILE = 0.3


class Castle:
    """A home, and the kings that a test starts in it."""

    def __init__(self, home: Path) -> None:
        self.home, self.places = home, founded(home)
        self.started: list[subprocess.Popen[str]] = []
        install(home, "gen-pr", subscribes=["github.pr.*"])
        (self.places.config / "king.yaml").write_text("concurrency: {max_soldiers: 100}\n")

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return self.run("-m", "kingdom.king", *words, **env)

    def run(self, *words: str, **env: str) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
        king = subprocess.Popen(
            [sys.executable, *words],
            env={**clean, "KINGDOM_HOME": str(self.home), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(king)
        return king

    def reign(self, **env: str) -> subprocess.Popen[str]:
        """A king who has come to rest."""
        king = self.start(**env)
        self.until(lambda: self.beat()["pid"] == king.pid and self.beat()["state"] == "idle", "a king at rest")
        return king

    def until(self, seen: Callable[[], object], what: str) -> None:
        def safely() -> object:
            try:
                return seen()
            except (FileNotFoundError, ValueError, KeyError):
                return False

        folders = (self.places.folder("events", "dispatched"), self.places.folder("events", "dead"), self.places.logs)
        wait_until(safely, SOON, what, folders)

    def beat(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.places.heartbeat("king").read_text())
        return record

    def log(self) -> str:
        return self.places.role_log("king").read_text()

    def dispatched(self, name: str) -> None:
        self.until(lambda: name in here(self.home, "events", "dispatched"), f"{name} dispatched")


def ended(king: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = king.communicate(timeout=SOON)
    return king.returncode, said


@pytest.fixture
def castle(home: Path) -> Iterator[Castle]:
    castle = Castle(home)
    yield castle
    for king in castle.started:
        king.kill()
        king.communicate()


def test_arrivals_wake_it_at_once(castle: Castle) -> None:
    castle.reign()
    put(castle.home, "events", "pending", **event("evt-1"))
    castle.dispatched("evt-1")
    castle.until(lambda: castle.beat()["worked"] and castle.beat()["state"] == "idle", "rest again")


def test_polling_alone_must_do_and_does(castle: Castle) -> None:
    (castle.places.config / "system.yaml").write_text("wake: poll\n")
    (castle.places.config / "king.yaml").write_text("intervals: {event_check_seconds: 0.1}\n")
    castle.reign()
    put(castle.home, "events", "pending", **event("evt-1"))
    castle.dispatched("evt-1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_when_told_to(castle: Castle, number: signal.Signals) -> None:
    king = castle.reign()
    king.send_signal(number)
    assert ended(king) == (0, "")
    assert (castle.beat()["state"], castle.beat()["pid"]) == ("stopped", king.pid)
    assert castle.log().endswith("king: stops\n")


def test_told_to_end_in_the_middle_of_its_work_it_finishes_what_it_began(castle: Castle) -> None:
    for number in range(150):
        put(castle.home, "events", "pending", **event(f"evt-{number}"))
    (castle.places.config / "king.yaml").write_text("concurrency: {max_soldiers: 200}\n")
    king = castle.start()
    castle.until(lambda: here(castle.home, "events", "dispatched"), "the first one")
    king.terminate()
    assert ended(king)[0] == 0
    done = here(castle.home, "events", "dispatched")
    assert len(done) == len(here(castle.home, "tasks", "pending")) == len(here(castle.home, "messages", "pending"))
    assert len(done) + len(here(castle.home, "events", "pending")) == 150
    assert os.listdir(castle.places.scratch("king")) == []


def test_once_is_until_nothing_is_left(castle: Castle) -> None:
    put(castle.home, "events", "pending", **event("evt-1"))
    (castle.places.folder("events", "pending") / "half.json").write_text('{"id": ')
    assert ended(castle.start("--once")) == (0, "")
    assert here(castle.home, "events", "dispatched") == ["evt-1"]
    assert here(castle.home, "events", "dead") == ["half"], "once it was clear that nobody is writing it"


# --- one at a time


def test_a_second_one_leaves_and_names_the_first(castle: Castle) -> None:
    king = castle.reign()
    code, said = ended(castle.start())
    assert code == 75
    assert f"another king holds {castle.places.lock('king')} (pid {king.pid})" in said
    assert said.count("\n") == 1
    assert castle.beat()["pid"] == king.pid


def test_one_whose_lock_was_replaced_stops_writing_and_leaves(castle: Castle) -> None:
    old = castle.reign()
    castle.places.lock("king").unlink()
    new = castle.reign()
    put(castle.home, "events", "pending", **event("evt-1"))
    code, said = ended(old)
    assert code == 75
    assert "was replaced while this king ran; it stops writing" in said
    castle.dispatched("evt-1")
    assert len(here(castle.home, "tasks", "pending")) == 1
    castle.until(lambda: castle.beat()["pid"] == new.pid, "the new one's beat")
    stays(lambda: castle.beat()["pid"] == new.pid, A_WHILE, "the new one's beat alone")


# --- configuration


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("config/king.yaml", "colour: red\n", "king.yaml:1: colour: unknown key 'colour'"),
        ("config/system.yaml", "timezone: Mars/Base\n", "system.yaml: timezone: there is no time zone 'Mars/Base'"),
        ("config/system.yaml", "wake: [", "system.yaml:"),
        (".env", "no setting\n", ".env:1: line: must read NAME=value"),
    ],
)
def test_what_it_cannot_start_with_is_told_in_a_line(castle: Castle, file: str, text: str, told: str) -> None:
    (castle.home / file).write_text(text)
    (castle.home / file).chmod(0o600)
    code, said = ended(castle.start())
    assert code == 78
    assert told in said
    assert said.count("\n") == 1
    assert told in castle.log()
    assert castle.beat()["state"] == "stopped"


def test_a_home_that_is_none_is_told_in_a_line(castle: Castle) -> None:
    code, said = ended(castle.start(KINGDOM_HOME=str(castle.home / "nowhere")))
    assert (code, said.count("\n")) == (78, 1)
    assert "kingdom init" in said


def test_new_configuration_is_taken_over_and_a_broken_one_is_not(castle: Castle) -> None:
    (castle.places.config / "king.yaml").write_text("slack: {default_channel: one}\n")
    king = castle.reign()

    def change(text: str, told: str) -> None:
        write_text(castle.places.config / "king.yaml", text)
        king.send_signal(signal.SIGUSR1)
        castle.until(lambda: told in castle.log(), told)

    change("slack: [half", "keeps its old configuration")
    put(castle.home, "events", "pending", **event("evt-1"))
    castle.dispatched("evt-1")
    change("slack: {default_channel: two}\n", "took over new configuration")
    put(castle.home, "events", "pending", **event("evt-2"))
    castle.dispatched("evt-2")
    letters = [json.loads(path.read_text()) for path in castle.places.folder("messages", "pending").glob("*.json")]
    assert sorted(letter["channel"] for letter in letters) == ["one", "two"]
    assert castle.log().count("keeps its old configuration") == 1
    assert king.poll() is None


def write_text(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    os.replace(draft, path)


def test_secrets_that_come_later_are_struck_out_too(castle: Castle) -> None:
    king = castle.reign()
    (castle.home / ".env").touch(0o600)
    write_text(castle.home / ".env", "A_TOKEN=canary-123\n")
    (castle.home / ".env").chmod(0o600)
    king.send_signal(signal.SIGUSR1)
    castle.until(lambda: "took over" in castle.log(), "the new secret")
    put(castle.home, "events", "pending", **event("evt-1", "says.canary-123"))
    castle.until(lambda: "[hidden]" in castle.log(), "a word of it")
    assert "canary" not in castle.log() + castle.places.events_log.read_text()


DEFECTIVE = """
from kingdom.runtime import role

class Clumsy:
    def __init__(self, services):
        if {fails_at_once}:
            raise ValueError("canary-123 at once")
        self._services = services

    def folders(self):
        return ()

    def turn(self, arrivals):
        self._services.log.info("has done half of it")
        raise ValueError("canary-123 is what it died of")

raise SystemExit(role.run(role.RoleSpec("king", "king"), Clumsy))
"""


@pytest.mark.parametrize(
    ("fails_at_once", "told"), [(False, "[hidden] is what it died of"), (True, "[hidden] at once")]
)
def test_a_defect_is_told_with_its_traceback_and_without_secrets(
    castle: Castle, fails_at_once: bool, told: str
) -> None:
    (castle.home / ".env").touch(0o600)
    (castle.home / ".env").write_text("A_TOKEN=canary-123\n")
    code, said = ended(castle.run("-c", DEFECTIVE.format(fails_at_once=fails_at_once)))
    assert (code, said.count("\n")) == (1, 1)
    assert f"king: ended by a defect of its own, see {castle.places.role_log('king')}" in said
    assert "ends by a defect of its own: Traceback (most recent call last)" in castle.log()
    assert told in castle.log()
    assert fails_at_once or "has done half of it" in castle.log(), "what the turn had to say is not lost"
    logs = "".join(path.read_text() for path in castle.places.logs.glob("*.log"))
    assert "canary" not in logs + said


def test_how_it_writes_and_wakes_is_taken_over_and_its_launcher_is_not(castle: Castle) -> None:
    (castle.places.config / "king.yaml").write_text("intervals: {event_check_seconds: 30}\n")
    (castle.places.config / "system.yaml").write_text("wake: poll\nlauncher: tmux\n")
    king = castle.reign()
    write_text(castle.places.config / "system.yaml", "wake: inotify\nlauncher: supervisord\ndurability: process\n")
    king.send_signal(signal.SIGUSR1)
    told = "took over new configuration; launcher takes effect at the next `kingdom up`"
    castle.until(lambda: told in castle.log(), "the new configuration")
    put(castle.home, "events", "pending", **event("evt-1"))
    castle.dispatched("evt-1")
    stat = Path(f"/proc/{king.pid}/fd")
    assert any(os.readlink(fd) == "anon_inode:inotify" for fd in stat.iterdir())
    king.terminate()
    assert ended(king) == (0, "")


UNFIT = """
from kingdom.runtime import role
from kingdom.errors import Usage

def build(services):
    raise Usage(message="canary-123 is no good")

raise SystemExit(role.run(role.RoleSpec("king", "king"), build))
"""


def test_why_it_does_not_start_is_told_without_secrets(castle: Castle) -> None:
    (castle.home / ".env").touch(0o600)
    (castle.home / ".env").write_text("A_TOKEN=canary-123\n")
    assert ended(castle.run("-c", UNFIT)) == (2, "king: [hidden] is no good\n")
    assert "does not start: [hidden] is no good" in castle.log()
    assert castle.beat()["state"] == "stopped"


TALKATIVE = """
from kingdom.runtime import role

class Talkative:
    def __init__(self, services):
        self._services = services

    def folders(self):
        return ()

    def reload(self, services):
        self._services = services

    def close(self):
        pass

    def turn(self, arrivals):
        self._services.log.info(f"writes for {self._services.disk.durability}")
        return role.Turn(worked=False, wait=30)

raise SystemExit(role.run(role.RoleSpec("king", "king"), Talkative))
"""


def test_how_durably_it_writes_is_taken_over(castle: Castle) -> None:
    king = castle.run("-c", TALKATIVE)
    castle.until(lambda: "writes for power" in castle.log(), "its first turn")
    write_text(castle.places.config / "system.yaml", "durability: process\n")
    king.send_signal(signal.SIGUSR1)
    castle.until(lambda: "writes for process" in castle.log(), "its next turn")


# --- what passes


def test_a_missing_folder_is_no_end(castle: Castle) -> None:
    castle.reign()
    folder = castle.places.folder("events", "pending")
    folder.rmdir()
    castle.until(lambda: castle.beat()["state"] == "degraded", "its trouble shown")
    folder.mkdir()
    castle.until(lambda: castle.beat()["state"] == "idle", "rest again")
    put(castle.home, "events", "pending", **event("evt-1"))
    castle.dispatched("evt-1")


def test_a_full_disk_is_no_end_and_the_heart_beats_on_it(castle: Castle) -> None:
    """No file may grow beyond what a heartbeat takes: what a full disk is to a writer."""
    king = castle.reign()
    castle.until(lambda: castle.log(), "a word")
    resource.prlimit(king.pid, resource.RLIMIT_FSIZE, (BEAT_BYTES, resource.RLIM_INFINITY))
    put(castle.home, "events", "pending", **event("evt-1", payload={"long": "x" * 1000}))
    castle.until(lambda: castle.beat()["state"] == "degraded", "its trouble shown")
    before = castle.beat()["seq"]
    castle.until(lambda: castle.beat()["seq"] > before, "the next beat")
    resource.prlimit(king.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    castle.dispatched("evt-1")
    castle.until(lambda: castle.beat()["state"] != "degraded", "its recovery shown")
    assert len(here(castle.home, "tasks", "pending")) == len(here(castle.home, "messages", "pending")) == 1
    assert os.listdir(castle.places.scratch("king")) == []
    for line in castle.places.events_log.read_text().splitlines()[1:]:
        assert line.startswith("{"), "at most torn, never run together"


def test_a_damaged_queue_makes_no_loop(castle: Castle) -> None:
    castle.places.own("king").mkdir()
    write(castle.places.own("king") / "schedule-sent.json", {"gen-x:daily": {"handled": "never"}})
    (castle.places.own("king") / "task-seq").write_bytes(b"\xff")
    (castle.places.own("king") / "done.idx").write_bytes(b"\0\xff\n")
    king = castle.reign()
    put(castle.home, "events", "pending", **event("evt-1"))
    castle.dispatched("evt-1")
    assert king.poll() is None


# --- the beat


def test_a_beat_is_one_record_of_fixed_size(home: Path) -> None:
    heart = Heartbeat(home / "gen-x" / "heartbeat", "gen-" + "x" * 60, Clock())
    for state in ("starting", "working", "idle", "degraded"):
        heart.beat(state, worked=state == "working")
        data = (home / "gen-x" / "heartbeat").read_bytes()
        assert len(data) == BEAT_BYTES
        assert json.loads(data)["state"] == state
    assert json.loads(data) == {
        "pid": os.getpid(),
        "role": "gen-" + "x" * 60,
        "seq": 4,
        "state": "degraded",
        "time": "2026-02-07T10:00:00Z",
        "worked": True,
    }


# --- being asked for


def test_a_general_that_nobody_names_is_refused_in_a_line(castle: Castle) -> None:
    code, said = ended(castle.run("-m", "kingdom.general", "--once"))
    assert (code, said) == (78, "which general? python -m kingdom.general gen-briefing\n")
