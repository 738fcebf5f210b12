"""`make soak MINUTES=15`: a kingdom at work while everything happens at once, at random.

Events stream in, people answer, cancel and try again; roles and launchers are killed, stopped and started; manifests
and configuration are edited, broken and mended. Afterwards each event has become one task and each answer one resume,
all of it has been told once, and nothing is discarded or left over.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from tests.faults import oracle, trees
from tests.faults.watch.kingdoms import LAUNCHERS
from tests.faults.watch.turmoil import FILES, MANIFESTS, ROLES, Turmoil, kinds_of, turmoil

MOST_BROKEN = 3
MOST_WAITING = 40
"""No more events come while so many are not done: a heap at the end would hide what was stuck."""
PAUSE_SECONDS = 0.6
LATE_SECONDS = 10.0
STILL_SECONDS = 120.0
"""The end is waited for as long as there is progress: a busy machine has a heap left."""
LAUNCHER_PAUSE_SECONDS = 120.0


class Soak:
    def __init__(self, court: Turmoil) -> None:
        self._court, self._dice = court, court.dice
        self._stopped: set[str] = set()
        self._next_launcher = time.monotonic() + LAUNCHER_PAUSE_SECONDS / 2
        self._edits = 0
        self.acts: dict[Callable[[], None], int] = {
            self._arrive: 30,
            self._answer: 12,
            self._cancel: 3,
            self._retry: 5,
            self._break: 8,
            self._mend: 8,
            self._edit: 5,
            self._kill: 14,
            self._stop: 4,
            self._start: 6,
            self._kill_launcher: 2,
        }

    def go_on(self) -> None:
        act = self._dice.choices(list(self.acts), list(self.acts.values()))[0]
        act()
        self._court.pause(PAUSE_SECONDS)

    def end(self) -> None:
        """Mend what is broken, and start who was stopped."""
        for file in sorted(self._court.broken):
            self._court.mend(file)
        while self._stopped:
            self._start()

    def _arrive(self) -> None:
        court = self._court
        done = len(os.listdir(court.places.folder("events", "completed")))
        if len(court.put) + len(court.answered) - done < MOST_WAITING:
            for _ in range(self._dice.randrange(1, 4)):
                court.arrive(self._dice.choices(("work", "ask", "fail", "slow"), (10, 4, 2, 1))[0])

    def _answer(self) -> None:
        for question in self._court.open_questions()[:2]:
            self._court.answer(question)

    def _cancel(self) -> None:
        folders = [self._court.places.folder("tasks", state) for state in ("pending", "in_progress")]
        tasks = {path.stem for folder in folders for path in folder.glob("task-*.json")}
        if new := sorted(tasks - set(self._court.cancelled.values())):
            self._court.cancel(self._dice.choice(new))

    def _retry(self) -> None:
        tasks = oracle.contents(self._court.places.home, "tasks")
        failed = {task["id"] for task in tasks if (task["state"], task.get("outcome")) == ("completed", "failed")}
        for task in sorted(failed - set(self._court.retried.values()))[:1]:
            self._court.retry(task)

    def _break(self) -> None:
        whole = sorted(set(FILES) - self._court.broken)
        if len(self._court.broken) < MOST_BROKEN:
            file = self._dice.choice(whole)
            self._court.damage(file, self._dice.choice(kinds_of(file)))

    def _mend(self) -> None:
        if broken := sorted(self._court.broken):
            self._court.mend(self._dice.choice(broken))

    def _edit(self) -> None:
        """Edit as its owner would: a description, or how many soldiers there may be."""
        self._edits += 1
        file = self._dice.choice([*MANIFESTS, "config/king.yaml"])
        text = self._court.whole[file].decode()
        if file in MANIFESTS:
            text = re.sub("description: .*", f"description: edit {self._edits}", text)
        else:
            text = re.sub("max_soldiers: .*", f"max_soldiers: {4 + self._edits % 5}", text)
        self._court.whole[file] = text.encode()
        if file not in self._court.broken:
            self._court.mend(file)
            self._court.did["edit"] += 1

    def _kill(self) -> None:
        self._court.kill(self._dice.choice(self._court.roles))

    def _stop(self) -> None:
        if len(self._stopped) < 2:
            role = self._dice.choice(sorted({*self._court.roles} - self._stopped))
            self._stopped.add(role)
            self._court.stop(role)

    def _start(self) -> None:
        if self._stopped:
            role = self._dice.choice(sorted(self._stopped))
            self._stopped.remove(role)
            self._court.start(role)

    def _kill_launcher(self) -> None:
        """Kill the launcher now and then: all roles end with it, and the chamberlain starts it again."""
        if time.monotonic() < self._next_launcher or "chamberlain" in self._stopped:
            return
        self._next_launcher = time.monotonic() + LAUNCHER_PAUSE_SECONDS
        with suppress(StopIteration, OSError):
            os.kill(self._court.court.launcher_pid(), signal.SIGKILL)
            self._court.did["kill -9 of the launcher"] += 1
            self._stopped.clear()  # a new one starts all


def soak(launcher: str, minutes: float, seed: int) -> tuple[str, list[str]]:
    """Return the figures and what is wrong."""
    with turmoil(launcher, seed, ROLES) as court:
        going_on, until = Soak(court), time.monotonic() + 60 * minutes
        told = time.monotonic()
        while time.monotonic() < until:
            going_on.go_on()
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(
                    f"{(until - told) / 60:.0f} min left: {len(court.put)} events, {court.did.total()} faults",
                    flush=True,
                )
        going_on.end()
        began = moved = time.monotonic()
        done = court.done()
        while not trees.until(court.is_at_rest, LATE_SECONDS) and time.monotonic() - moved < STILL_SECONDS:
            print(f"{time.monotonic() - began:.0f} s after the last mend: {court.not_yet()}", flush=True)
            if court.done() > done:
                done, moved = court.done(), time.monotonic()
        rest, wrong = time.monotonic() - began, court.wrong()
        figures = (
            f"soak, {launcher}, seed {seed}, {minutes:g} min: {len(court.put)} events, {len(court.answered)} answers, "
            f"{len(court.cancelled)} cancels, {len(court.retried)} retries; {dict(court.did)}; "
            f"at rest {rest:.1f} s after the last mend: {len(wrong)} wrong"
        )
        if wrong:
            kept = f"/tmp/soak-{seed}-{os.getpid()}"
            shutil.copytree(court.places.home, kept, ignore=shutil.ignore_patterns("*.sock"))
            figures += f"; the home is kept in {kept}"
        return figures, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--launcher", choices=LAUNCHERS, default=LAUNCHERS[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    print(f"soak: seed {given.seed}", flush=True)
    figures, wrong = soak(given.launcher, given.minutes, given.seed)
    print(figures, *wrong[:100], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
