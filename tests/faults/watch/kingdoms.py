"""Whole kingdoms of real roles under a real launcher, and faults for them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kingdom.base.home.places import Places
from kingdom.base.runtime.processes import carries
from kingdom.court.steward import STEWARDS, pick
from kingdom.court.steward.base import Steward
from tests.faults import homes, oracle, trees
from tests.shell_roles import runs
from tests.waiting import wait_until

LAUNCHERS = [name for name in STEWARDS if name != "tmux" or shutil.which("tmux")]
THRESHOLD = 2.0
REPLACED_WITHIN = THRESHOLD + 20.0
PATIENT = {"system": {"heartbeat": {"threshold_seconds": 60}}}
"""Nobody is to be taken for hung while a busy machine loads all roles."""
BACK_WITHIN = 30.0
UP_SECONDS = 30.0
ROLES = ("chamberlain", "envoy", "king", "mailbox", "sentinel", homes.GENERAL)
ROLE_FAULTS = Path(__file__).with_name("role_faults.py")


def one_of(launcher: str) -> list[str]:
    """Return this launcher alone for the quick suite, where it is installed; every one for a campaign."""
    return LAUNCHERS if trees.CAMPAIGN or launcher not in LAUNCHERS else [launcher]


@dataclass
class Kingdom:
    tree: Path
    places: Places
    launcher: str
    env: Mapping[str, str]
    told: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.places.home

    @property
    def steward(self) -> Steward:
        return pick(self.places, self.launcher)

    def cli(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        program = "import sys; from kingdom.cli.main import main; sys.exit(main())"
        return trees.run(self.tree, self.home, ["-c", program, *words], timeout=timeout, env=self.env)

    def up(self) -> None:
        done = self.cli("up")
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        self.wait_for_beats(*ROLES)

    def beat(self, role: str) -> dict[str, Any]:
        with suppress(FileNotFoundError, ValueError):
            record: dict[str, Any] = json.loads(self.places.heartbeat(role).read_text())
            return record
        return {"pid": 0, "seq": 0, "state": "never"}

    def pid(self, role: str) -> int:
        return int(self.beat(role)["pid"])

    def pids(self) -> dict[str, int]:
        return {role: self.pid(role) for role in ROLES}

    def lives_on(self, lives: Mapping[str, int]) -> bool:
        """Return whether no role has been replaced since."""
        return all(runs(pid) and self.pid(role) == pid for role, pid in lives.items())

    def wait_for_beats(self, *roles: str, seconds: float = UP_SECONDS, not_by: Mapping[str, int] | None = None) -> None:
        """Wait until each role runs and has finished a turn; with `not_by` in another process than that."""
        old = not_by or {}
        wait_until(
            lambda: all(self.works(role) and self.pid(role) != old.get(role) for role in roles),
            seconds,
            f"{', '.join(roles)} beat (now {[(role, self.beat(role), self.word(role)) for role in roles]})",
        )

    def works(self, role: str) -> bool:
        beat = self.beat(role)
        return beat["state"] in ("idle", "working") and runs(int(beat["pid"]))

    def word(self, role: str) -> object:
        with suppress(Exception):  # only told when something has gone wrong already
            return self.steward.statuses().get(role)
        return None

    def cause_fault(self, role: str, kind: str) -> int:
        """Cause a fault, and return the pid that it hit."""
        pid = self.pid(role)
        if kind == "stop":
            os.kill(pid, signal.SIGSTOP)
        elif kind == "kill":
            os.kill(pid, signal.SIGKILL)
        else:
            (self.home / f"fault-{pid}").write_text(kind)
            os.kill(pid, signal.SIGUSR2)
        return pid

    def launcher_pid(self) -> int:
        return next(
            pid for pid in self.processes() if Path(f"/proc/{pid}/comm").read_text().startswith(COMM[self.launcher])
        )

    def processes(self) -> list[int]:
        """Return every process of this home: roles, launcher, soldiers."""
        ours = frozenset({b"KINGDOM_HOME=" + os.fsencode(self.home)})
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if pid != os.getpid() and runs(pid) and carries(pid, ours)]

    def role_processes(self, role: str) -> list[int]:
        """Interpreters of this role, not bin/role that waits."""
        module = "kingdom.general" if role.startswith("gen-") else f"kingdom.{role}"
        return [pid for pid in self.processes() if module in command_line(pid) and role in " ".join(command_line(pid))]

    def logs(self) -> str:
        texts = [
            path.read_text(errors="replace")[-1500:] for path in sorted(self.places.logs.glob("*.*")) if path.is_file()
        ]
        return "\n".join(texts)

    def missed(self) -> list[str]:
        """Return the roles whose heartbeat stopped, as the watchers logged it."""
        lines = self.places.events_log.read_text().splitlines()
        events = [json.loads(line) for line in lines if '"system.heartbeat_missed"' in line]
        return [f"{event['data']['role']} was taken for hung" for event in events]

    def messages(self, *states: str) -> list[dict[str, Any]]:
        folders = [self.places.folder("messages", state) for state in states or ("pending", "sent", "failed")]
        return [json.loads(path.read_text()) for folder in folders for path in folder.glob("*.json")]


COMM = {"tmux": "tmux: server", "supervisord": "python"}


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


@contextmanager
def kingdom(
    launcher: str,
    *,
    tree: Path | None = None,
    config: Mapping[str, dict[str, Any]] | None = None,
    env: Mapping[str, str] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Iterator[Kingdom]:
    """Return a kingdom that is not up yet; its processes are killed at the end."""
    home = trees.new_folder()
    tree = tree or trees.program()
    roles = {"mailbox": True, "gateway": False, "worker": False}
    system = {"launcher": launcher, "heartbeat": {"threshold_seconds": THRESHOLD}, "roles": roles}
    # A busy machine must not hold events back: these checks are not about the gate.
    calm = {"thresholds": {"yellow": 100, "orange": 100, "red": 100}}
    settings = {
        "system": {**system, **(config or {}).get("system", {})},
        "chamberlain": {"intervals": {"roll_call_seconds": 0.5}, **calm, **(config or {}).get("chamberlain", {})},
        **{name: value for name, value in (config or {}).items() if name not in ("system", "chamberlain")},
    }
    places = homes.make(home, config=settings)
    if manifest is not None:
        homes.install(home, homes.GENERAL, **manifest)
    court = Kingdom(tree, places, launcher, {"KINGDOM_PYTHON": str(_python(tree, home)), **(env or {})})
    try:
        yield court
    finally:
        _end(court)
        trees.remove(home)


def _python(tree: Path, home: Path) -> Path:
    """The launchers hand on no PYTHONPATH, so the interpreter that they are given sets it."""
    shutil.copy(ROLE_FAULTS, home / "sitecustomize.py")
    wrapper = home / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={home}:{tree} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def _end(court: Kingdom) -> None:
    for _ in range(50):
        left = court.processes()
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(AssertionError):
            wait_until(lambda: not court.processes(), 0.2, "all gone")


def since(began: float) -> float:
    return time.monotonic() - began


# Load: events for a general whose soldiers say that they were there.

SOLDIER = """#!/bin/sh
# Says when it begins and when it has ended; one whose task the home's file "slow" names takes longer.
cat >/dev/null
echo "$KINGDOM_TASK_ID $$" >>"$KINGDOM_HOME/begun"
sleep "$(cat "$KINGDOM_HOME/slow" 2>/dev/null || echo 0.05)"
printf '{"task_id": "%s", "status": "success", "summary": "done"}' "$KINGDOM_TASK_ID" >"$KINGDOM_RESULT_PATH"
echo "$KINGDOM_TASK_ID $$" >>"$KINGDOM_HOME/ended"
"""
WORKING_GENERAL = {"engine": "command", "sandbox": "off", "max_soldiers": 4}


class Load:
    """Keep creating events, and check what became of them."""

    def __init__(self, court: Kingdom) -> None:
        self._court = court
        self.put = 0
        package = court.places.package(homes.GENERAL)
        package.mkdir(parents=True, mode=0o700, exist_ok=True)
        (package / "prompt.md").write_text("Do {{TASK_ID}}")
        (package / "run").write_text(SOLDIER)
        (package / "run").chmod(0o700)

    def arrive(self, count: int = 1) -> None:
        for _ in range(count):
            self.put += 1
            event = homes.event(f"evt-github-{self.put}-x", priority="high", repo=None)
            homes.put(self._court.home, "events", "pending", event)

    def lines(self, name: str) -> list[str]:
        try:
            return (self._court.home / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def done(self) -> int:
        return len(list(self._court.places.folder("events", "completed").glob("*.json")))

    def wait_done(self, seconds: float) -> None:
        wait_until(lambda: self.done() >= self.put, seconds, f"{self.put} events are completed, not {self.done()}")

    def wrong(self) -> list[str]:
        """Each event once: one task, one soldier, one message at its start and one at its end."""
        home = self._court.home
        found = [*oracle.half_visible(home), *oracle.in_one_place(home), *oracle.parked(home)]
        found += oracle.exactly("events completed", self.put, self.done())
        tasks = oracle.contents(home, "tasks")
        found += oracle.exactly("tasks", self.put, len(tasks))
        found += oracle.exactly("events that have a task", self.put, len({task["event_id"] for task in tasks}))
        found += [f"{task['id']} is {task['state']}" for task in tasks if task["state"] != "completed"]
        begun = [line.split()[0] for line in self.lines("begun")]
        found += [f"{task} was served {begun.count(task)} times" for task in set(begun) if begun.count(task) > 1]
        messages = [message for message in oracle.contents(home, "messages") if message.get("task_id")]
        found += oracle.exactly("messages at the start and at the end", 2 * self.put, len(messages))
        return found
