"""A fault at every file call of a program's step: killed there, or told there that the disk is full or broken.

The program is the real one, unmodified; strace injects the fault. For every call that touches the home:
a fresh copy of the prepared home, the step with the fault, a look at what lies there, a clean restart, and
then the oracle. A kill strikes before its call has an effect; every state that a kill can leave is the
state before some call, and the state after the last one is what the run without a fault ends with.

A call is found again by counting calls of its name from the start of the process. So the runs must be
alike: two are traced and compared, and each run's own record shows whether the fault struck where it
should; if not, it is tried again, and what was never reached is reported.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

from kingdom.base.home.places import Places
from tests.faults import oracle, powerloss, trees
from tests.faults.strace import CHANGING, READING, Call, only_first_process, paths_of, read_calls, strace, was_killed

Prepare = Callable[[Path], None]
Check = Callable[[Path], list[str]]

KILL, FULL, BROKEN = "kill", "ENOSPC", "EIO"
FAULTS = (KILL, FULL, BROKEN) if trees.CAMPAIGN else (KILL,)
"""What most programs are swept with."""
QUICK_POINTS, QUICK_STATES = 1, 1
"""Points of a sweep and states of the disk after power cuts that a quick size tries, evenly spread."""
_INJECTION = {KILL: "signal=KILL", FULL: "error=ENOSPC", BROKEN: "error=EIO"}
_TAKES_SPACE = frozenset(
    "openat write pwrite64 writev pwritev rename renameat renameat2 link linkat symlink symlinkat mkdir mkdirat "
    "ftruncate fallocate copy_file_range sendfile fsync fdatasync syncfs".split()
)
_TRIES = (0, 0, 0)
_UNSTEADY_TRIES = (0, 0, 1, -1, 2, -2, 3, -3)  # what was the 412th open is the 413th next time
_MAY_END_WITH = (0, 1)  # of a step whose disk failed: done, or "start me again"; 75 and 78 would be for good


@dataclass(frozen=True)
class Step:
    """A program that does one step and ends, on a home that `prepare` has filled.

    `check` is asked after the clean restart, `at_fault` right after the fault; both return what is wrong.
    In `argv`, which is what follows the interpreter, "{home}" stands for the home. A step that is not
    `steady`, because it waits for others, makes its calls in another order each time: then any call of the
    right name that touches the home will do.
    """

    name: str
    argv: tuple[str, ...]
    prepare: Prepare
    check: Check
    at_fault: Check = oracle.half_visible
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0
    restarts: int = 1
    steady: bool = True

    def spelt(self, home: Path) -> list[str]:
        return [part.replace("{home}", str(home)) for part in self.argv]


class Point(NamedTuple):
    syscall: str
    ordinal: int
    call: str

    def __str__(self) -> str:
        return f"{self.call} (the {self.ordinal}. {self.syscall})"


@dataclass
class Report:
    name: str
    fault: str
    points: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    left_out: int = 0
    missed: list[str] = field(default_factory=list)
    wobbles: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        return self.points.total()

    @property
    def line(self) -> str:
        text = f"sweep {self.name} {self.fault}: {self.tried} points, {len(self.bad)} bad"
        if self.left_out:
            text += f", {self.left_out} left out"
        if self.missed:
            text += f", {len(self.missed)} not reached"
        if self.wobbles:
            text += f", runs differ in {len(self.wobbles)} calls"
        return f"{text} ({self.seconds / max(1, self.tried) * 1000:.0f} ms a point)"

    @property
    def details(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.points.items()))
        missed = [f"not reached: {point}" for point in self.missed]
        return "\n".join([self.line, f"  {counts}", *self.bad, *missed, *self.wobbles[:10]])


Tried = TypeVar("Tried", Report, powerloss.Report)


def none_bad(report: Tried, figure: oracle.Figure) -> Tried:
    """Print what was tried, and return it; nothing of it may have been bad."""
    figure(report.line)
    assert not report.bad, report.details
    return report


class StepFails(AssertionError):
    """The step fails even without a fault, so a sweep would prove nothing."""


def sweep(
    step: Step,
    fault: str = KILL,
    *,
    budget: int | None = None,
    calls: Sequence[str] = CHANGING,
) -> Report:
    """Try every point of the step in a campaign, otherwise at most `budget` of them, evenly spread."""
    began = time.monotonic()
    report = Report(step.name, fault)
    stands = [Stand(step, calls) for _ in range(trees.WORKERS)]
    try:
        with ThreadPoolExecutor(len(stands)) as pool:
            report.wobbles = [
                wobble for found in pool.map(lambda stand: stand.learn(fault), stands) for wobble in found
            ]
        first, *_ = stands
        most = max(len(stand.points) for stand in stands)
        places = [at for at in range(most) if re.search(trees.NEAR, first.call_at(at))]
        # How often it beats depends on how busy the machine is: a sample that is to be reached leaves that out.
        sure = [at for at in places if "heartbeat" not in first.call_at(at)]
        chosen = spread(sure, budget) if budget and not trees.CAMPAIGN else places[trees.PART - 1 :: trees.PARTS]
        report.left_out = len(places) - len(chosen)
        waiting: SimpleQueue[int] = SimpleQueue()
        for place in chosen:
            waiting.put(place)
        with ThreadPoolExecutor(len(stands)) as pool:
            list(pool.map(lambda stand: _work(stand, fault, waiting, report), stands))
    finally:
        for stand in stands:
            stand.close()
    report.seconds = time.monotonic() - began
    return report


def power_cuts(step: Step, *, budget: int | None = None) -> powerloss.Report:
    """The step under power cuts, with the same oracles: after each, the step is started again and checked."""
    program = trees.program()
    home = trees.new_folder() / "home"
    home.mkdir(mode=0o700)
    step.prepare(home)
    argv = [sys.executable, *step.spelt(home)]
    recorded = powerloss.record(argv, home, cwd=program, env=trees.environment(program, home, step.env))
    end_strays(home)
    if recorded.code != 0:
        raise StepFails(f"{step.name} ends with {recorded.code} without any fault:\n{recorded.errors}")

    def judge(home: Path, cut: powerloss.Cut) -> list[str]:
        wrong = [*step.at_fault(home), *restart_and_check(step, program, home)]
        end_strays(home)
        return wrong

    report = powerloss.replay(step.name, recorded, judge, budget=budget)
    remove_home(home.parent)
    return report


def spread(places: Sequence[int], budget: int) -> Sequence[int]:
    """Return at most so many of them, evenly spaced, with the first and the last."""
    if len(places) <= budget:
        return places
    if budget == 1:
        return [places[len(places) // 2]]
    return [places[round(step * (len(places) - 1) / (budget - 1))] for step in range(budget)]


class Stand:
    """One folder to run the step in repeatedly: always the same path, freshly filled."""

    def __init__(self, step: Step, calls: Sequence[str] = CHANGING) -> None:
        self.step = step
        self.tree = trees.program()
        self.calls = calls
        self.points: list[Point] = []
        self.folder = trees.new_folder()
        self.home = self.folder / "home"
        self._filled = self.folder / "filled"
        self._log = self.folder / "strace"
        self.home.mkdir(mode=0o700)
        step.prepare(self.home)
        copy_home(self.home, self._filled)

    def fresh(self) -> None:
        end_strays(self.home)
        remove_home(self.home)
        copy_home(self._filled, self.home)

    def close(self) -> None:
        end_strays(self.home)
        remove_home(self.folder)

    def learn(self, fault: str) -> list[str]:
        """Find the points in one run, in a campaign in two, and return how the runs differ."""
        self.points = self.trace(fault)
        if not (trees.CAMPAIGN and self.step.steady):
            return []
        return [f"{one} and {other}" for one, other in zip_longest(self.points, self.trace(fault)) if one != other]

    def call_at(self, place: int) -> str:
        return self.points[place].call if place < len(self.points) else ""

    def trace(self, fault: str) -> list[Point]:
        """The step without a fault: its calls that touch the home and that the fault can strike."""
        self.fresh()
        ended = self._start(["-e", f"trace={','.join(f'?{name}' for name in self.calls)}"])
        if ended.code != 0:
            raise StepFails(f"{self.step.name} ends with {ended.code} without any fault:\n{ended.said}")
        if wrong := [*self.step.at_fault(self.home), *restart_and_check(self.step, self.tree, self.home)]:
            raise StepFails("\n".join([f"{self.step.name} goes wrong without any fault:", *wrong]))
        count: Counter[str] = Counter()
        points = []
        for call in only_first_process(read_calls(self._log)):
            count[call.name] += 1
            if self._touches(call) and (fault != FULL or _takes_space(call)):
                points.append(Point(call.name, count[call.name], self.likeness(call)))
        return points

    def strike(self, point: Point, fault: str) -> tuple[bool, list[str]]:
        """Return whether the fault happened at this point, and what is wrong afterwards."""
        self.fresh()
        injection = f"inject={point.syscall}:{_INJECTION[fault]}:when={point.ordinal}"
        ended = self._start(["-e", f"trace={point.syscall}", "-e", injection])
        wrong = []
        if ended.code is None:
            wrong.append(f"did not end within {self.step.timeout:g} s: {last_words(self.home)}")
        elif fault != KILL:
            if ended.code not in _MAY_END_WITH:
                wrong.append(f"ended with {ended.code}: {ended.said.strip()[-300:]}")
            if "Traceback" in ended.said:
                wrong.append(f"a traceback: {ended.said.strip()[-600:]}")
        wrong += [f"at the fault: {line}" for line in self.step.at_fault(self.home)]
        return self._struck(point, fault), wrong + restart_and_check(self.step, self.tree, self.home)

    def likeness(self, call: Call) -> str:
        """Return a call without what differs between runs: pids, numbers and the home's path."""
        return f"{call.name} {' '.join(self._spelt(path) for path in paths_of(call, str(self.tree)))}"

    def _spelt(self, path: str) -> str:
        return re.sub(r"\d+", "#", path.replace(f"{self.home}/", ""))

    def _touches(self, call: Call) -> bool:
        if call.name == "openat" and call.writes == (self.calls is READING):
            return False
        below = f"{self.home}/"
        return any(f"{path}/".startswith(below) for path in paths_of(call, str(self.tree)))

    def _struck(self, point: Point, fault: str) -> bool:
        calls = [call for call in only_first_process(read_calls(self._log)) if call.name == point.syscall]
        if len(calls) < point.ordinal:
            return False
        there = calls[point.ordinal - 1]
        hit = was_killed(self._log) and len(calls) == point.ordinal if fault == KILL else there.injected
        if not self.step.steady:
            return hit and self._touches(there)
        return hit and self.likeness(there) == point.call

    def _start(self, options: list[str]) -> Ended:
        # Not --seccomp-bpf: under it strace 6.1 counts the call and loses the signal. Not -f: what a step
        # starts must run untouched, and would be counted apart.
        command = [strace(), "-q", "-o", str(self._log), "-y", "-s", "0", *options]
        self._log.unlink(missing_ok=True)
        with subprocess.Popen(
            [*command, sys.executable, *self.step.spelt(self.home)],
            cwd=self.tree,
            env=trees.environment(self.tree, self.home, self.step.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as child:
            try:
                said = child.communicate(timeout=self.step.timeout)[1]
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                end_strays(self.home)
                child.communicate()
                return Ended(None, "")
            return Ended(child.returncode, said)


class Ended(NamedTuple):
    code: int | None
    said: str


def restart_and_check(step: Step, tree: Path, home: Path) -> list[str]:
    for _ in range(step.restarts):
        try:
            again = trees.run(tree, home, step.spelt(home), timeout=step.timeout, env=step.env)
        except subprocess.TimeoutExpired:
            return [f"the restart did not end within {step.timeout:g} s: {last_words(home)}"]
        if again.returncode != 0:
            return [f"the restart ended with {again.returncode}: {again.stderr.strip()[-600:]}"]
    return step.check(home)


def _work(stand: Stand, fault: str, waiting: SimpleQueue[int], report: Report) -> None:
    while not (trees.NEAR and report.bad):
        try:
            place = waiting.get_nowait()
        except Empty:
            return
        if place >= len(stand.points):
            report.missed.append(f"call {place} of {len(stand.points)}")
            continue
        point = stand.points[place]
        wrong: list[str] = []
        for shift in _TRIES if stand.step.steady else _UNSTEADY_TRIES:
            struck, found = stand.strike(point._replace(ordinal=max(1, point.ordinal + shift)), fault)
            if struck or fault == KILL:
                # An error that hit another call, a pipe perhaps, says nothing; a kill is one wherever it hits.
                wrong += found
            if struck or wrong:
                break
        else:
            report.missed.append(str(point))
            continue
        report.points[point.syscall] += 1
        if wrong:
            report.bad.append(f"{fault} at {point}: {'; '.join(wrong)}")
            print(report.bad[-1], flush=True)


def last_words(home: Path) -> str:
    log = Places(home).system_log
    return " | ".join(log.read_text(errors="replace").splitlines()[-6:]) if log.exists() else "it said nothing"


def _takes_space(call: Call) -> bool:
    return call.name in _TAKES_SPACE and (call.name != "openat" or call.creates)


# Homes and what runs in them.


def copy_home(source: Path, target: Path) -> None:
    """With modes, pipes, links and holes: what a home may hold, shutil does not always copy."""
    subprocess.run(["cp", "-a", "--sparse=always", "--", source, target], check=True)


def remove_home(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)


def processes_of(home: Path) -> Iterator[int]:
    """Return every running process that was started with this home."""
    mark = f"KINGDOM_HOME={home}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def end_strays(home: Path) -> None:
    """Kill what a killed step has left running; the home's path identifies the processes."""
    for pid in processes_of(home):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
