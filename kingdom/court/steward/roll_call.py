"""The roll call: look at every role, and do what the table says that its watcher does."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_bytes, read_json_or, to_json
from kingdom.base.disk.lock import holder_pid, is_locked
from kingdom.base.errors import BadFile, Exit, KingdomError, LauncherError, Locked
from kingdom.base.home.places import Places
from kingdom.base.home.roster import RoleRow, desired_state, watcher
from kingdom.base.log import Log
from kingdom.base.records import refusals
from kingdom.base.runtime.processes import carries, home_mark, started_at, stat_fields, tracer
from kingdom.base.runtime.role import Services
from kingdom.base.runtime.wake import ProcessExits
from kingdom.base.words import one_line
from kingdom.court.steward import pick, process_groups
from kingdom.court.steward.base import ANSWER_SECONDS, TIMEOUTS, RoleStatus, Steward, Timeouts, command, remember
from kingdom.court.steward.diagnosis import (
    ACTIONS,
    Action,
    AwakeClock,
    Observation,
    State,
    Unchanged,
    diagnose,
    fingerprint,
)

SOON = 0.2
"""The next look while something is being ended, or has just ended and its launcher should restart it."""
LOOKED_AFTER_SECONDS = 3.0
REFUSED_SECONDS = 1.0
"""The next look while a role waits for a file to be mended."""
LAUNCH_LOCK_SECONDS = 2.0
"""Whoever holds the launch lock starts the launcher, or stops it and us: look again later."""
ENDS_KEPT = 9
"""More of them change nothing: the wait is at its longest by then."""
CHAMBERLAIN = "chamberlain"
RESTFUL = frozenset({State.WELL, State.STOPPED, State.UNWANTED, State.QUARANTINED, State.REFUSED})


class What(StrEnum):
    MISSED = "its heartbeat has stopped"
    RESTARTED = "it hung, was ended and started again"
    RENEWED = "it was ended and started again, as an owner asked"
    STARTED = "it should run and did not; started"
    STOPPED = "it ran and should not; stopped"
    QUARANTINED = "it is quarantined after a crash loop"
    REFUSED = "it cannot run as it is configured"
    REARMED = "its quarantine is over"
    LAUNCHER_STARTED = "the launcher was dead and has been started again"
    LAUNCHER_FAILED = "the launcher does not do what it should"


INTERNAL_EVENTS = {
    What.MISSED: "system.heartbeat_missed",
    What.RESTARTED: "recovery.session_restarted",
    What.RENEWED: "recovery.session_restarted",
    What.STARTED: "recovery.session_restarted",
    What.REARMED: "recovery.session_restarted",
    What.LAUNCHER_STARTED: "recovery.session_restarted",
    What.STOPPED: "recovery.session_killed",
}


@dataclass(frozen=True)
class RollCallFinding:
    """What a roll call found or did."""

    #: The role, or the launcher.
    role: str
    what: What
    #: The same for the same incident, however often it is found.
    cause: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.role}: {self.what}{f' ({self.detail})' if self.detail else ''}"


def log_findings(findings: Iterable[RollCallFinding], log: Log, threshold: float) -> None:
    """Write each finding as a warning and, where it has one, as an internal event."""
    for finding in findings:
        log.warn(str(finding))
        if (event := INTERNAL_EVENTS.get(finding.what)) is not None:
            data = {"threshold_seconds": threshold} if finding.what is What.MISSED else {}
            log.event(event, target=finding.role, **data, detail=finding.detail)


@dataclass
class _Ending:
    row: RoleRow
    pid: int
    #: With the pid it names one process for good.
    started: int | None
    kill_at: float
    start_again: bool
    #: Who asked for it; "" when nobody did.
    by: str = ""
    killed: bool = False


def make_roll_call(services: Services, rows: Callable[[], Sequence[RoleRow]]) -> RollCall | None:
    """Return the roll call of these rows; None when no launcher started this process, so that there is none to ask."""
    launcher = os.environ.get("KINGDOM_LAUNCHER")
    if launcher is None:
        return None
    steward = pick(services.places, launcher, replace(TIMEOUTS, launch=LAUNCH_LOCK_SECONDS))
    remember(services.places, launcher)
    return RollCall(
        services.places, steward, services.unsynced, rows, services.name, services.monotonic, services.exits
    )


class RollCall:
    """One watcher's roll call: the chamberlain watches everybody else, the king watches the chamberlain.

    A call never waits for a role: what takes time is continued at the next call, after `wait` seconds.
    """

    def __init__(
        self,
        places: Places,
        steward: Steward,
        disk: Disk,
        rows: Callable[[], Sequence[RoleRow]],
        own: str,
        clock: Callable[[], float],
        ends: ProcessExits,
        timeouts: Timeouts = TIMEOUTS,
    ) -> None:
        self._places = places
        self._steward = steward
        self._disk = disk
        self._rows = rows
        self._own = own
        self._clock = clock
        self._ends = ends
        self._timeouts = timeouts
        self._period = 0.0
        self._awake = AwakeClock(clock)
        self._unchanged = Unchanged()
        self._endings: dict[str, _Ending] = {}
        self._states: dict[str, State] = {}
        #: When each role was started because it had ended with 0.
        self._ended: dict[str, list[float]] = {}
        self._last_unrest = 0.0
        self._looked_after_until = 0.0
        self._unanswered_since: float | None = None
        self._asked_at = clock()
        self._logged_error = ""
        self._noted_stopped: list[str] | None = None

    @property
    def wait(self) -> float:
        """Return the seconds until the next call is due."""
        if self._endings or self._clock() < self._looked_after_until:
            return min(SOON, self._period)
        return min(REFUSED_SECONDS, self._period) if State.REFUSED in self._states.values() else self._period

    def someone_ended(self) -> bool:
        """Return whether a watched process ended: then the next call is due at once.

        A launcher may notice an end late, and being asked reminds it.
        """
        if not self._ends.new():
            return False
        self._looked_after_until = self._clock() + LOOKED_AFTER_SECONDS
        return True

    def call(self, threshold: float, period: float) -> list[RollCallFinding]:
        """Look at every watched role, act on what is wrong, and return what was found and done.

        After LAUNCHER_STARTED a chamberlain must end at once: the launcher has started its successor.
        """
        self._period = period
        now = self._awake.look(2 * period)
        findings: list[RollCallFinding] = []
        try:
            if not self._steward.launcher_runs():
                return self._start_launcher(now) if self._own == CHAMBERLAIN else []
            watched = self._watched()
            names = {row.name for row in watched}
            self._ended = {role: times for role, times in self._ended.items() if role in names}
            self._states = {role: state for role, state in self._states.items() if role in names}
            doubtful = [row for row in watched if not self._is_well(row.name, threshold, now)]
            statuses = self._steward.statuses() if doubtful or self._endings or self._must_ask(threshold) else {}
            for ending in list(self._endings.values()):
                findings += self._go_on(ending, statuses.get(ending.row.name), now)
            for row in doubtful:
                if row.name not in self._endings:
                    findings += self._look(row, statuses.get(row.name), threshold, now)
        except LauncherError as error:
            return findings + self._no_answer(error, threshold)
        self._logged_error, self._unanswered_since = "", None
        self._note_stopped()
        return findings

    def _note_stopped(self) -> None:
        """Note for `status` and `why` who stays down because the launcher itself was asked to stop it."""
        stopped = sorted(role for role, state in self._states.items() if state is State.STOPPED)
        if stopped == self._noted_stopped:
            return
        with suppress(OSError):  # a full disk: it is tried again
            self._disk.rewrite(self._places.roll_call(self._own), to_json({"stopped": stopped}))
            self._noted_stopped = stopped

    def _must_ask(self, threshold: float) -> bool:
        """Return whether to see if the launcher answers, though nobody needs it now: it may hang."""
        now, pause = self._clock(), max(threshold / 2, 2 * ANSWER_SECONDS)
        if self._own != CHAMBERLAIN or (self._unanswered_since is None and now - self._asked_at < pause):
            return False
        self._asked_at = now
        return True

    def _watched(self) -> list[RoleRow]:
        return [row for row in self._rows() if watcher(row.name) == self._own]

    def _is_well(self, role: str, threshold: float, now: float) -> bool:
        """Return whether it holds its lock and its heartbeat is fresh: then the launcher need not be asked.

        An answer of the launcher costs a process.
        """
        silence = self._silence(role, now)
        if (
            role in self._endings
            or silence is None
            or silence >= threshold
            or desired_state(self._places, role) != "up"
            or os.path.lexists(self._places.restart(role))
        ):
            return False
        if self._states.get(role) is not State.WELL:
            self._states[role], self._last_unrest = State.WELL, now
        return True

    def _silence(self, role: str, now: float) -> float | None:
        """Return for how long the heartbeat of the lock's holder has not changed; None when nobody holds it."""
        lock = self._places.lock(role)
        if not is_locked(lock):
            return None
        holder = holder_pid(lock)
        if holder is not None:
            self._ends.watch(holder)
        heartbeat = holder, fingerprint(self._places.heartbeat(role))
        return self._unchanged.since(f"{role}'s heartbeat", heartbeat, now)

    def _look(self, row: RoleRow, status: RoleStatus | None, threshold: float, now: float) -> list[RollCallFinding]:
        seen = self._see(row, status, now)
        state = diagnose(seen, threshold, 2 * self._period)
        before, self._states[row.name] = self._states.get(row.name), state
        if state is State.WELL and status is not None and status.pid is not None:
            self._ends.watch(status.pid)
        if state is State.STOPPED and before in (State.UNWANTED, State.LINGERING):
            state = State.ABSENT
        is_new = state is not before
        if is_new or state not in RESTFUL:
            self._last_unrest = now
        asked = self._asked(row.name, status)
        if asked and ACTIONS[state] is Action.LEAVE:
            self._end(row, asked[0], now, start_again=True, by=asked[1])
            return []
        return self._act(row, state, is_new, status, seen.unchanged, now)

    def _asked(self, role: str, status: RoleStatus | None) -> tuple[int, str] | None:
        """Return the process that an owner wants restarted, and the owner.

        The wish names one process, so that it is fulfilled once, however often it is read: when that one is gone, the
        wish is taken away, and so is that about a role which is stopped, quarantined, or no part of this launcher.
        """
        path = self._places.restart(role)
        if not os.path.lexists(path):
            return None
        wish, pid = read_json_or(path, {}), None if status is None else status.pid
        named = wish.get("pid"), wish.get("started")
        if pid is not None and named == (pid, started_at(pid)) and desired_state(self._places, role) == "up":
            return pid, one_line(wish.get("by") or "nobody")
        self._disk.remove(path)
        return None

    def _see(self, row: RoleRow, status: RoleStatus | None, now: float) -> Observation:
        pid = None if status is None else status.pid
        heartbeat = fingerprint(self._places.heartbeat(row.name))
        silence = self._silence(row.name, now) or 0.0
        other = self._other(row.name) if pid is None else None
        waits = pid is not None and _command_line(pid) == command(row)
        return Observation(
            wanted=desired_state(self._places, row.name),
            runs=pid is not None,
            waits=waits,
            elsewhere=other is not None,
            has_beaten=_beater(self._places.heartbeat(row.name)) in (None, pid, other),
            code=None if status is None else status.code,
            stopped=status is not None and status.stopped,
            is_mended=status is not None and status.code == Exit.REFUSED and refusals.is_mended(self._places, row.name),
            unchanged=max(silence, self._unchanged.since(row.name, (heartbeat, status, waits), now)),
            launching=is_locked(self._places.launch_lock),
            ended_before=sum(now - at < self._timeouts.quarantine for at in self._ended.get(row.name, ())),
        )

    def _act(
        self, row: RoleRow, state: State, is_new: bool, status: RoleStatus | None, unchanged: float, now: float
    ) -> list[RollCallFinding]:
        action = ACTIONS[state]
        if action is Action.START:
            if state is State.ENDED:
                self._ended[row.name] = [*self._ended.get(row.name, [])[-ENDS_KEPT:], now]
            self._steward.start(row)
            return [RollCallFinding(row.name, What.STARTED, f"started:{row.name}:{os.getpid()}:{now:.0f}", state.value)]
        if action in (Action.REPLACE, Action.END):
            return self._begin_ending(row, action is Action.REPLACE, status, unchanged, now)
        if state is State.QUARANTINED and now - self._last_unrest >= self._timeouts.quarantine:
            return self._start_quarantined(row)
        if action is Action.REPORT and is_new:
            return [self._reported(row.name, state)]
        return []

    def _reported(self, role: str, state: State) -> RollCallFinding:
        if state is State.QUARANTINED:
            return RollCallFinding(role, What.QUARANTINED, f"quarantined:{role}:{self._wanted_since(role)}")
        why = refusals.why(self._places, role)
        step = "correct that, and it is started again by itself" if why else f"see {self._places.role_log(role)}"
        return RollCallFinding(role, What.REFUSED, f"refused:{role}:{why}", f"{why}; {step}" if why else step)

    def _begin_ending(
        self, row: RoleRow, start_again: bool, status: RoleStatus | None, unchanged: float, now: float
    ) -> list[RollCallFinding]:
        pid = status.pid if status is not None and status.pid is not None else self._other(row.name)
        if pid is None:
            return []
        self._end(row, pid, now, start_again)
        if not start_again:
            return []
        return [RollCallFinding(row.name, What.MISSED, f"missed:{row.name}:{pid}", f"pid {pid}, {unchanged:.0f} s")]

    def _end(self, row: RoleRow, pid: int, now: float, start_again: bool, by: str = "") -> None:
        self._endings[row.name] = _Ending(row, pid, started_at(pid), now + self._timeouts.hung, start_again, by)
        process_groups.send([pid], signal.SIGTERM)

    def _go_on(self, ending: _Ending, status: RoleStatus | None, now: float) -> list[RollCallFinding]:
        name = ending.row.name
        if started_at(ending.pid) in (None, ending.started) and process_groups.living([ending.pid]):
            if now >= ending.kill_at and not ending.killed:
                process_groups.send([ending.pid], signal.SIGKILL)
                ending.killed = True
            return []
        if status is not None and status.pid == ending.pid:
            # The launcher has not noticed yet, and would ignore a start. It never will while a debugger holds the dead.
            if now >= ending.kill_at + self._timeouts.hung and (debugger := tracer(ending.pid)) is not None:
                with suppress(OSError):
                    os.kill(debugger, signal.SIGKILL)
            return []
        if ending.start_again:
            self._steward.start(ending.row)
        del self._endings[name]
        what = (What.RENEWED if ending.by else What.RESTARTED) if ending.start_again else What.STOPPED
        how = "it had to be killed" if ending.killed else "it ended when asked"
        how = f"{ending.by}; {how}" if ending.by else how
        return [RollCallFinding(name, what, f"{what.name.lower()}:{name}:{ending.pid}", how)]

    def _start_quarantined(self, row: RoleRow) -> list[RollCallFinding]:
        self._disk.remove(self._places.wanted(row.name))
        self._steward.start(row)
        return [RollCallFinding(row.name, What.REARMED, f"rearmed:{row.name}")]

    def _wanted_since(self, role: str) -> int:
        with suppress(FileNotFoundError):
            return os.stat(self._places.wanted(role)).st_mtime_ns
        return 0

    def _start_launcher(self, now: float) -> list[RollCallFinding]:
        """Start the launcher again, once every role of the dead one is gone: a new one would find its lock held."""
        left = [row for row in self._watched() if row.name not in self._endings]
        for row in left:
            pid = self._other(row.name)
            if pid is not None:
                self._end(row, pid, now, start_again=False)
        for ending in list(self._endings.values()):
            ending.start_again = False
            self._go_on(ending, None, now)
        if self._endings:
            return []
        rows = sorted(self._rows(), key=lambda row: row.name == CHAMBERLAIN)
        try:
            self._steward.start_launcher(rows)
        except Locked:
            return []
        except KingdomError as error:
            return self._launcher_failed(error)
        return [
            RollCallFinding(self._steward.name, What.LAUNCHER_STARTED, f"raised:{self._steward.name}:{os.getpid()}")
        ]

    def _no_answer(self, error: LauncherError, threshold: float) -> list[RollCallFinding]:
        """Kill a launcher that has not answered for too long. By the plain clock: it was we who waited."""
        now = self._clock()
        if self._unanswered_since is None:
            self._unanswered_since = now
        elif self._own == CHAMBERLAIN and now - self._unanswered_since >= threshold:
            self._steward.kill()
        return self._launcher_failed(error)

    def _launcher_failed(self, error: KingdomError) -> list[RollCallFinding]:
        if str(error) == self._logged_error:
            return []
        self._logged_error = str(error)
        return [RollCallFinding(self._steward.name, What.LAUNCHER_FAILED, f"launcher:{error}", str(error))]

    def _other(self, role: str) -> int | None:
        """Return the pid that plays this role without its launcher's knowledge.

        It holds the role's lock, or the heartbeat names it and it carries our home in its environment.
        """
        if is_locked(self._places.lock(role)):
            return holder_pid(self._places.lock(role))
        pid = _beater(self._places.heartbeat(role))
        ours = frozenset({home_mark(self._places.home)})
        return pid if pid is not None and stat_fields(pid) and carries(pid, ours) else None


def _beater(heartbeat: Path) -> int | None:
    """Return the pid in a heartbeat, also when the rest is damaged: the pid stands first."""
    try:
        found = re.search(rb"[0-9]+", read_bytes(heartbeat, 4096))
    except (OSError, BadFile):
        return None
    return int(found[0]) if found else None


def _command_line(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.fsdecode(file.read()).split("\0")[:-1]
    except OSError:
        return []
