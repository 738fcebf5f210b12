"""Row 5: hard work is no hang: nobody is replaced, and no turn of a loop takes long."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import LAUNCHERS, ROLES, WORKING_GENERAL, Kingdom, Load, kingdom
from tests.waiting import wait_until

EVENTS = 10_000 if trees.CAMPAIGN else 200
BACKLOG = 1_000_000 if trees.CAMPAIGN else 5_000
LINKS = 50_000
"""Names that one file may have, so that so many can be made."""
SLOW_SECONDS = 6.0
THRESHOLD = 4.0
"""Far below the 120 s of a real home: what passes here has room there."""
LONGEST_TURN = 120 / 4


class Pulse:
    """The longest silence between two beats of each role, looked at a hundred times a second."""

    def __init__(self, court: Kingdom) -> None:
        self._court = court
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self.longest = dict.fromkeys(ROLES, 0.0)

    def _listen(self) -> None:
        last = {role: (0, time.monotonic()) for role in ROLES}
        while not self._ended.wait(0.01):
            for role in ROLES:
                beat = os.stat(self._court.places.heartbeat(role)).st_mtime_ns
                now = time.monotonic()
                if beat != last[role][0]:
                    if last[role][0]:
                        self.longest[role] = max(self.longest[role], now - last[role][1])
                    last[role] = beat, now

    @contextmanager
    def listening(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def check(tree: Path, launcher: str, kind: str, longest: dict[str, float]) -> list[str]:
    system = {"heartbeat": {"threshold_seconds": THRESHOLD}}
    with kingdom(launcher, tree=tree, config={"system": system}, manifest=WORKING_GENERAL) as court:
        load = Load(court)
        court.up()
        old = court.pids()
        pulse = Pulse(court)
        with pulse.listening():
            LOADS[kind](court, load)
        longest.update(pulse.longest)
        wrong = [f"{role} was replaced" for role, pid in old.items() if not court.lives_on({role: pid})]
        wrong += court.missed()
        return wrong + [f"a turn of {role} took {gap:.1f} s" for role, gap in longest.items() if gap > LONGEST_TURN]


def many_events(court: Kingdom, load: Load) -> None:
    """Events that nobody wants: the king files them, one after the other."""
    events = [homes.event(f"evt-github-{number}-x", type="github.push", repo=None) for number in range(EVENTS)]
    homes.put(court.home, "events", "pending", *events)
    done = court.places.folder("events", "completed")
    wait_until(lambda: len(os.listdir(done)) == EVENTS, EVENTS / 20 + 30, f"{EVENTS} events are done")


def backlog(court: Kingdom, load: Load) -> None:
    """A long past, and one event today."""
    done = court.places.folder("events", "completed")
    first = homes.event("evt-github-0-y", type="github.push", repo=None)
    homes.put(court.home, "events", "completed", first)
    content = (done / "evt-github-0-y.json").read_text()
    for number in range(1, BACKLOG):
        (done / f"evt-github-{number}-y.json").write_text(content.replace("-0-y", f"-{number}-y"))
    load.arrive()
    wait_until(lambda: load.lines("ended"), 60, "today's event is served")


def cleaning(court: Kingdom, load: Load) -> None:
    """All that ended is a year old, and somebody asks for it to be deleted now."""
    done = court.places.folder("events", "completed")
    for begin in range(0, BACKLOG, LINKS):
        first = done / f"evt-github-{begin}-y.json"
        first.write_text('{"id": "evt-github-y", "type": "github.push"}')
        os.utime(first, (time.time() - 365 * 86_400,) * 2)
        for number in range(begin + 1, min(begin + LINKS, BACKLOG)):
            os.link(first, done / f"evt-github-{number}-y.json")
    said = court.cli("prune", timeout=BACKLOG / 500 + 60)
    assert f"{BACKLOG} files deleted" in said.stdout, said.stdout + said.stderr
    assert os.listdir(done) == []


def slow_engine(court: Kingdom, load: Load) -> None:
    (court.home / "slow").write_text(str(SLOW_SECONDS))
    load.arrive(3)
    wait_until(lambda: len(load.lines("ended")) == 3, 60, "three slow soldiers have ended")


def slow_clone(court: Kingdom, load: Load) -> None:
    """git sleeps, then fails: how it ends does not matter here."""
    event = homes.event("evt-github-1-z", priority="high")
    homes.put(court.home, "events", "pending", event)
    wait_until(lambda: (court.home / "git-ended").exists(), SLOW_SECONDS + 30, "the slow clone has ended")


LOADS = {
    "many events": many_events,
    "backlog": backlog,
    "cleaning": cleaning,
    "slow engine": slow_engine,
    "slow clone": slow_clone,
}
TRIED = (
    [(kind, launcher) for kind in LOADS for launcher in LAUNCHERS]
    if trees.CAMPAIGN
    else [("many events", "supervisord")]
)


@contextmanager
def slow_git() -> Iterator[None]:
    """First on the PATH of whoever is started meanwhile."""
    folder = trees.new_folder()
    git = folder / "git"
    git.write_text(
        f'#!/bin/sh\ncase " $* " in *" clone "*) sleep {SLOW_SECONDS}; : >"$KINGDOM_HOME/git-ended" ;; esac\nexit 1\n'
    )
    git.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


@pytest.mark.parametrize(("kind", "launcher"), TRIED)
def test_hard_work_is_no_hang(kind: str, launcher: str, figure: Figure) -> None:
    longest: dict[str, float] = {}
    with slow_git():
        assert check(trees.program(), launcher, kind, longest) == []
    figure(f"row 5 {kind}, {launcher}: 0 false kills, longest turn {max(longest.values()):.2f} s of {LONGEST_TURN:g} s")
