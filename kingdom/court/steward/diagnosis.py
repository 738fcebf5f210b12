"""What is wrong with a role, and what its watcher does about it.

The watcher is the chamberlain; the chamberlain itself is watched by the king. A launcher restarts what crashed, and
bin/role delays and refuses the starts of a crash loop: the watcher leaves both to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile, Exit

STARTING_SECONDS = 15.0
"""A busy machine may take so long to load a role. Ended before its first heartbeat, it would never get to one."""
ENDED_SECONDS = 2.0
"""A role that ended with 0 and should run is started again after so long, or two looks if that is less."""
LONGEST_ENDED_SECONDS = 300.0
"""The longest pause before a role that keeps ending with 0 is started again: see `patience`."""


class State(StrEnum):
    WELL = "its heartbeat changes, or it has just been started"
    WAITING = "bin/role delays its next start"
    HUNG = "it runs and its heartbeat has not changed for longer than the threshold"
    DEAD = "it crashed; its launcher restarts it"
    FORGOTTEN = "it crashed and its launcher has not restarted it"
    ENDED = "it ended with 0 and should run: Ctrl-C, or somebody sent it TERM"
    STOPPED = "somebody asked its launcher to stop it"
    DISPLACED = "it ended because another process held its lock, and that one is gone"
    REFUSED = "it cannot run as it is configured (exit code 78)"
    MENDED = "it could not run as it was configured, and a file that it refused has changed"
    ABSENT = "it should run and its launcher has never started it"
    UNWANTED = "it is switched off and does not run, or is just being stopped"
    LINGERING = "it is switched off and runs"
    QUARANTINED = "it crashed again and again and is quarantined"
    LAUNCHER_DEAD = "its launcher is gone"
    LAUNCHER_HUNG = "its launcher lives and has not answered for longer than the threshold"


class Action(StrEnum):
    LEAVE = "leave it"
    START = "start it through the launcher"
    REPLACE = "TERM, then KILL; once it is gone, start it through the launcher"
    END = "TERM, then KILL"
    REPORT = "report it once"
    KILL_LAUNCHER = "KILL the launcher, which is then dead"
    START_LAUNCHER = "start the launcher with all its roles; a chamberlain ends for its successor"


ACTIONS: dict[State, Action] = {
    State.WELL: Action.LEAVE,
    State.WAITING: Action.LEAVE,
    State.HUNG: Action.REPLACE,
    State.DEAD: Action.LEAVE,
    State.FORGOTTEN: Action.START,
    State.ENDED: Action.START,
    State.STOPPED: Action.LEAVE,
    State.DISPLACED: Action.START,
    State.REFUSED: Action.REPORT,
    State.MENDED: Action.START,
    State.ABSENT: Action.START,
    State.UNWANTED: Action.LEAVE,
    State.LINGERING: Action.END,
    State.QUARANTINED: Action.REPORT,
    State.LAUNCHER_DEAD: Action.START_LAUNCHER,
    State.LAUNCHER_HUNG: Action.KILL_LAUNCHER,
}


@dataclass(frozen=True)
class Observation:
    """What a watcher sees of one role. Seconds are of the watcher's own clock."""

    #: The desired state: up, down or quarantined.
    wanted: str = "up"
    #: Its launcher says that it runs.
    runs: bool = False
    #: It is bin/role, waiting before it becomes the role.
    waits: bool = False
    #: It runs without its launcher's knowledge.
    elsewhere: bool = False
    #: The process that runs has written a heartbeat.
    has_beaten: bool = True
    #: The exit code of its last process, as far as its launcher knows.
    code: int | None = None
    #: Somebody asked its launcher to stop it.
    stopped: bool = False
    #: A file that it could not start with has changed since.
    is_mended: bool = False
    #: For how long neither its heartbeat nor its launcher's answer has changed.
    unchanged: float = 0.0
    #: Somebody starts and stops roles: `down`, `restart`.
    launching: bool = False
    #: How often it has been started lately because it had ended with 0.
    ended_before: int = 0


def patience(settling: float, ended_before: int) -> float:
    """Return for how long to wait until a role that ended with 0 is started again."""
    if ended_before == 0:
        return min(settling, ENDED_SECONDS)
    return min(settling * 2.0 ** (ended_before - 1), LONGEST_ENDED_SECONDS)


def diagnose(seen: Observation, threshold: float, settling: float) -> State:
    """Return the state of a role. `settling` is how long a change may take: a start, a launcher's restart."""
    if seen.wanted == "quarantined":
        return State.QUARANTINED
    if seen.wanted == "down":
        return State.LINGERING if seen.runs and not seen.launching else State.UNWANTED
    if seen.waits:
        return State.WAITING
    if seen.runs or seen.elsewhere:
        allowed = threshold if seen.has_beaten else max(threshold, STARTING_SECONDS)
        return State.HUNG if seen.unchanged >= allowed else State.WELL
    return _of_the_ended(seen, settling)


def _of_the_ended(seen: Observation, settling: float) -> State:
    settled = seen.unchanged >= settling
    if seen.code is None:
        return State.ABSENT if settled else State.WELL
    if seen.stopped:
        return State.STOPPED
    if seen.code == Exit.DONE:
        over = not seen.launching and seen.unchanged >= patience(settling, seen.ended_before)
        return State.ENDED if over else State.WELL
    if seen.code == Exit.REFUSED:
        return State.MENDED if seen.is_mended else State.REFUSED
    if seen.code == Exit.LOCKED:
        return State.DISPLACED if settled else State.WELL
    return State.FORGOTTEN if settled else State.DEAD


class AwakeClock:
    """Count the seconds for which a watcher has been awake.

    While the machine or the watcher alone was asleep, nobody looked at the heartbeats: a long gap between two
    looks counts as a short one, so that no role is ended for it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self.seconds = 0.0

    def look(self, longest_gap: float) -> float:
        """Return the seconds awake so far, with at most `longest_gap` since the last look."""
        now = self._clock()
        self.seconds += min(max(0.0, now - self._last), longest_gap)
        self._last = now
        return self.seconds


class Unchanged:
    """Measure for how long each of several things has looked the same, by the watcher's own clock.

    The time of a file cannot be used: wall clocks step, and every role would seem to hang, or none.
    """

    def __init__(self) -> None:
        self._first_seen: dict[str, tuple[Hashable, float]] = {}

    def since(self, name: str, looks: Hashable, now: float) -> float:
        """Return the seconds since `name` first looked like this; 0 at the first look."""
        known = self._first_seen.get(name)
        if known is None or known[0] != looks:
            self._first_seen[name] = looks, now
            return 0.0
        return now - known[1]


def fingerprint(heartbeat: Path) -> tuple[object, ...]:
    """Return what changes with every heartbeat: its content, or the time of a role that only touches the file."""
    try:
        content = read_bytes(heartbeat, 4096)
        return content, os.stat(heartbeat).st_mtime_ns
    except (OSError, BadFile):
        return ()
