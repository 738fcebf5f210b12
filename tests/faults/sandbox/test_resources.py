"""Soldiers that take all they can get: capped, told by the resource's name, gone as a whole, and no role is slow.

Every one of them is bounded by itself as well, so that a cap that fails costs a test and not the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults import oracle, trees
from tests.faults.sandbox import rigs
from tests.faults.sandbox.rigs import GENERAL, Rig
from tests.machine import needs_sandbox
from tests.waiting import LATER, SOON, wait_until

pytestmark = needs_sandbox

SLOWEST_TURN_SECONDS = 5.0
MOST_CHILDREN = 400
ENDS_AFTER = 150.0
"""Seconds: a soldier gives way, so on a busy machine two of processor time take long."""

START = f"""
import os, sys, time
END = time.monotonic() + {ENDS_AFTER}
def forked(count):
    # As many as the machine gives, and never more than {MOST_CHILDREN}.
    for _ in range(min(count, {MOST_CHILDREN})):
        try:
            if os.fork() == 0:
                return True
        except OSError:
            time.sleep(0.01)
    return False
def rest():
    while time.monotonic() < END:
        time.sleep(0.5)
"""

HOGS: dict[str, tuple[str, dict[str, int], str]] = {
    "a fork bomb": ("forked(400)\nrest()", {"processes": 40}, "processes, more than 40"),
    "a fork bomb of orphans": (
        """
for _ in range(400):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        rest()
        os._exit(0)
    os.wait()
rest()
""",
        {"processes": 40},
        "processes, more than 40",
    ),
    "a memory hog": (
        """
kept = []
for _ in range(40):
    kept.append(b"x" * (16 << 20)); time.sleep(0.02)
rest()
""",
        {"memory_mb": 128},
        "MB of memory, more than 128",
    ),
    "a memory hog of many": (
        """
if forked(16):
    kept = b"x" * (40 << 20)
rest()
""",
        {"memory_mb": 256},
        "MB of memory, more than 256",
    ),
    "a memory hog in files without a name": (
        """
for _ in range(40):
    os.write(os.memfd_create("m"), b"x" * (16 << 20)); time.sleep(0.02)
rest()
""",
        {"memory_mb": 128},
        "MB of memory, more than 128",
    ),
    "a memory hog at once": ("""kept = b"x" * (900 << 20)\nrest()""", {"memory_mb": 128}, "MemoryError"),
    "a spinner": ("while time.monotonic() < END: pass", {"cpu_seconds": 2}, "processor time"),
    "many spinners": (
        "forked(8)\nwhile time.monotonic() < END: pass",
        {"cpu_seconds": 3},
        "s of processor time, more than 3",
    ),
    "short lives that spin": (
        """
while time.monotonic() < END:
    pid = os.fork()
    if pid == 0:
        until = time.process_time() + 0.2
        while time.process_time() < until: pass
        os._exit(0)
    os.waitpid(pid, 0)
""",
        {"cpu_seconds": 2},
        "s of processor time, more than 2",
    ),
    "a babbler": (
        """
for _ in range(150):
    sys.stdout.write("x" * (1 << 20)); sys.stdout.flush()
rest()
""",
        {},
        "more than 64 MB of output",
    ),
}

QUICK = ("a fork bomb", "a memory hog of many", "a babbler")

FILLERS = {
    "files": """
for number in range(150):
    with open(f"f{number}", "wb") as file: file.write(b"x" * (1 << 20))
rest()
""",
    "its own log": """
for _ in range(150):
    sys.stdout.write("x" * (1 << 20)); sys.stdout.flush()
rest()
""",
    "its room": """
os.chdir(os.environ["TMPDIR"])
for number in range(150):
    with open(f"f{number}", "wb") as file: file.write(b"x" * (1 << 20))
rest()
""",
}
SMALL_DISK_MB = 64


@dataclass
class Pulse:
    """How long a role's beat stood still, at the longest and in the slowest hundredth."""

    gaps: list[float] = field(default_factory=list)

    @property
    def p99(self) -> float:
        return sorted(self.gaps)[int(len(self.gaps) * 0.99)] if self.gaps else 0.0


def serve(rig: Rig, tasks: list[str], seconds: float = LATER) -> tuple[Pulse, list[str]]:
    """The general with its soldiers and a role beside it, until every task has a result."""
    pulse = Pulse()
    beats: dict[str, tuple[float, str]] = {}
    with awake(rig, "envoy", "kingdom.envoy"), awake(rig, GENERAL, "kingdom.general", GENERAL) as general:
        give_up = time.monotonic() + seconds
        while not all(rig.places.result(task).exists() for task in tasks):
            if time.monotonic() > give_up or general.poll() is not None:
                return pulse, [f"no result after {seconds:g} s; the general: {general.poll()} {rig.log()[-2000:]}"]
            for role in ("envoy", GENERAL):
                feel(rig, role, beats, pulse)
            trees.until(lambda: False, 0.02)
        wait_until(lambda: not control_folders(rig), SOON, "the control folders are cleared")
    return pulse, []


def feel(rig: Rig, role: str, beats: dict[str, tuple[float, str]], pulse: Pulse) -> None:
    """The king's period is 10 s; with a task out a general turns every second, and arrivals wake the envoy."""
    beat = rig.places.heartbeat(role).read_text() if rig.places.heartbeat(role).exists() else ""
    now = time.monotonic()
    since, last = beats.get(role, (now, ""))
    if beat != last:
        if last:
            pulse.gaps.append(now - since)
        beats[role] = now, beat


@contextmanager
def awake(rig: Rig, role: str, module: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    with trees.running(rig.tree, rig.home, ["-m", module, *words]) as child:
        wait_until(lambda: rig.places.heartbeat(role).exists(), SOON, f"{role} beats")
        yield child


def control_folders(rig: Rig) -> list[Path]:
    return [folder for folder in (rig.places.own(GENERAL) / "camp").iterdir() if folder.name != rigs.LATER]


def left_of(rig: Rig) -> list[str]:
    """Processes of this home, whatever became of their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = path.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        if str(rig.home).encode() in words and rigs.runs(int(path.name)):
            found.append(f"left: {path.name} {words!r}")
    return found


def check_hog(what: str, rig: Rig) -> tuple[Pulse, list[str]]:
    code, limits, reason = HOGS[what]
    rig.arm(START + code, limits=limits, timeout_seconds=int(LATER))
    task = rig.send()
    began = time.monotonic()
    pulse, wrong = serve(rig, [task])
    result = rig.result(task)
    wrong += left_of(rig)
    if result.get("status") != "failed" or reason not in str(result.get("error")):
        wrong.append(f"{what}: {result.get('status')}: {result.get('error')}")
    if time.monotonic() - began > ENDS_AFTER - 1:
        wrong.append(f"{what} ended by itself")
    if pulse.p99 > SLOWEST_TURN_SECONDS:
        wrong.append(f"a turn took {pulse.p99:.1f} s")
    return pulse, wrong


@pytest.mark.parametrize("what", HOGS if trees.CAMPAIGN else QUICK)
def test_who_takes_too_much_is_ended_and_the_resource_is_named(what: str, home: Path, figure: oracle.Figure) -> None:
    rig = rigs.build(home, general={"intervals": {"task_check_seconds": 1}}, envoy=FAST)
    pulse, wrong = check_hog(what, rig)
    error = str(rig.result("task-20260207-001").get("error"))[:60]
    figure(f"{what}: {error!r}; slowest turn {max(pulse.gaps, default=0):.2f} s, p99 {pulse.p99:.2f} s")
    assert not wrong, "\n".join(wrong)


FAST = {"intervals": {"message_check_seconds": 1}}


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    disk = home / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m,mode=700", "tmpfs", disk],
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("NO SMALL DISK: nothing may be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("what", FILLERS if trees.CAMPAIGN else ["its own log"])
def test_who_fills_the_disk_is_ended_and_makes_room_again(what: str, small_disk: Path, figure: oracle.Figure) -> None:
    rig = rigs.build(small_disk, general={"intervals": {"task_check_seconds": 1}}, envoy=FAST)
    rig.arm(START + FILLERS[what], timeout_seconds=int(LATER))
    task = rig.send()
    pulse, wrong = serve(rig, [task])
    result = rig.result(task)
    figure(f"a filler of {what}: {result.get('error')!r}; slowest turn {max(pulse.gaps, default=0):.2f} s")
    assert not wrong, "\n".join(wrong)
    assert result["status"] == "failed"
    assert "the disk is" in result["error"], result
    about = os.statvfs(small_disk)
    assert about.f_bavail / about.f_blocks > 0.9
    assert not left_of(rig)
    assert pulse.p99 < SLOWEST_TURN_SECONDS
    beat = json.loads(rig.places.heartbeat("envoy").read_text())
    assert beat["state"] != "degraded"


def test_soldiers_beside_a_fork_bomb_finish_their_work(home: Path) -> None:
    """Two that behave beside one that does not."""
    rig = rigs.build(home, general={"intervals": {"task_check_seconds": 1}}, envoy=FAST)
    good = """
import json, os, sys
task = json.load(open(os.environ["KINGDOM_TASK_FILE"]))
if task["payload"]["body"] == "well":
    with open(os.environ["KINGDOM_RESULT_PATH"], "w") as file:
        json.dump({"task_id": task["id"], "status": "success"}, file)
    sys.exit()
"""
    rig.arm(START + good + HOGS["a fork bomb"][0], limits={"processes": 40})
    tasks = [rig.send(number, payload={"body": body}) for number, body in enumerate(("well", "bomb", "well"), 1)]
    _, wrong = serve(rig, tasks)
    assert not wrong, "\n".join(wrong)
    assert [rig.result(task)["status"] for task in tasks] == ["success", "failed", "success"]
