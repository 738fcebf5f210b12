"""The roll call: look at every role, and do what the table says is the watcher's."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kingdom.disk.atomic import Disk
from kingdom.disk.codec import read_bytes
from kingdom.disk.lock import holder_pid, is_locked
from kingdom.errors import BadFile, KingdomError, LauncherTrouble
from kingdom.home.places import Places
from kingdom.home.roster import RoleRow, desired_state
from kingdom.runtime.processes import carries, home_mark, stat_fields
from kingdom.runtime.wake import ProcessExits
from kingdom.steward import process_groups
from kingdom.steward.base import PATIENT, Patience, Steward, Word, command
from kingdom.steward.diagnosis import DUTIES, Action, Owner, Sight, State, judge
from kingdom.steward.hearts import Stopwatch, Unchanged, face

SOON = 0.2
"""The next look while something is being ended, or has just ended and its launcher should bring it back."""
LOOKED_AFTER_SECONDS = 3.0
CHAMBERLAIN = "chamberlain"
RESTFUL = frozenset({State.WELL, State.ENDED, State.UNWANTED, State.QUARANTINED, State.REFUSED})


class What(StrEnum):
    MISSED = "its heart stands still"
    RESTARTED = "it hung, was ended and started again"
    STARTED = "it was wanted and did not run"
    STOPPED = "nobody wanted it and it ran"
    QUARANTINED = "it is quarantined after a crash loop"
    REFUSED = "it cannot run as it is configured"
    REARMED = "its quarantine is over"
    RAISED = "its launcher was dead and stands again"
    TROUBLE = "the launcher does not do what it should"


@dataclass(frozen=True)
class Finding:
    """What a roll call found or did. The cause is the same for the same event, however often it is found."""

    role: str
    what: What
    cause: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.role}: {self.what}{f' ({self.detail})' if self.detail else ''}"


@dataclass
class _Ending:
    row: RoleRow
    pid: int
    kill_at: float
    start_again: bool
    killed: bool = False


class RollCall:
    """One watcher's roll call. The chamberlain calls everybody else; the king calls the chamberlain.

    A call never waits for a role: what takes time is gone on with at the next call, after `wait` seconds.
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
        patience: Patience = PATIENT,
    ) -> None:
        self._places = places
        self._steward = steward
        self._disk = disk
        self._seats = rows
        self._own = own
        self._clock = clock
        self._ends = ends
        self._patience = patience
        self._period = 0.0
        self._stopwatch = Stopwatch(clock)
        self._unchanged = Unchanged()
        self._endings: dict[str, _Ending] = {}
        self._states: dict[str, State] = {}
        self._unrest = 0.0
        self._looked_after_until = 0.0
        self._unanswered_since: float | None = None
        self._told_trouble = ""

    @property
    def wait(self) -> float:
        """Seconds until the next call is due."""
        looked_after = self._endings or self._clock() < self._looked_after_until
        return min(SOON, self._period) if looked_after else self._period

    def someone_ended(self) -> bool:
        """The next call is due at once: a launcher may notice an end late, and being asked reminds it."""
        if not self._ends.new():
            return False
        self._looked_after_until = self._clock() + LOOKED_AFTER_SECONDS
        return True

    def call(self, threshold: float, period: float) -> list[Finding]:
        """After a RAISED a chamberlain ends at once, with 0: the launcher has started its successor."""
        self._period = period
        now = self._stopwatch.look(2 * period)
        findings: list[Finding] = []
        try:
            if not self._steward.standing():
                return self._raise(now) if self._own == CHAMBERLAIN else []
            doubtful = [row for row in self._watched() if not self._is_well(row.name, threshold, now)]
            words = self._steward.alive() if doubtful or self._endings else {}
            for ending in list(self._endings.values()):
                findings += self._go_on(ending, words.get(ending.row.name), now)
            for row in doubtful:
                if row.name not in self._endings:
                    findings += self._look(row, words.get(row.name), threshold, now)
        except LauncherTrouble as trouble:
            return findings + self._suffer(trouble, threshold)
        self._told_trouble, self._unanswered_since = "", None
        return findings

    def _watched(self) -> list[RoleRow]:
        if self._own == CHAMBERLAIN:
            return [row for row in self._seats() if row.name != CHAMBERLAIN]
        return [row for row in self._seats() if row.name == CHAMBERLAIN]

    def _is_well(self, role: str, threshold: float, now: float) -> bool:
        """It holds its lock and has beaten lately: the launcher, whose answer costs a process, need not be asked."""
        silence = self._silence(role, now)
        if (
            role in self._endings
            or silence is None
            or silence >= threshold
            or desired_state(self._places, role) != "up"
        ):
            return False
        if self._states.get(role) is not State.WELL:
            self._states[role], self._unrest = State.WELL, now
        return True

    def _silence(self, role: str, now: float) -> float | None:
        """For how long the holder of the role's lock has not beaten; None when nobody holds it."""
        lock = self._places.lock(role)
        if not is_locked(lock):
            return None
        holder = holder_pid(lock)
        if holder is not None:
            self._ends.follow(holder)
        heart = holder, face(self._places.heartbeat(role))
        return self._unchanged.since(f"{role}'s heart", heart, now)

    def _look(self, row: RoleRow, word: Word | None, threshold: float, now: float) -> list[Finding]:
        sight = self._see(row, word, now)
        state = judge(sight, threshold, 2 * self._period)
        before, self._states[row.name] = self._states.get(row.name), state
        if state is State.WELL and word is not None and word.pid is not None:
            self._ends.follow(word.pid)
        if state is State.ENDED and before in (State.UNWANTED, State.LINGERING):
            state = State.ABSENT
        is_new = state is not before
        if is_new or state not in RESTFUL:
            self._unrest = now
        return self._act(row, state, is_new, word, sight.unchanged, now)

    def _see(self, row: RoleRow, word: Word | None, now: float) -> Sight:
        pid = None if word is None else word.pid
        heart = face(self._places.heartbeat(row.name))
        silence = self._silence(row.name, now) or 0.0
        other = self._other(row.name) if pid is None else None
        waits = pid is not None and _command_line(pid) == command(row)
        return Sight(
            wanted=desired_state(self._places, row.name),
            runs=pid is not None,
            waits=waits,
            elsewhere=other is not None,
            has_beaten=_beater(self._places.heartbeat(row.name)) in (None, pid, other),
            code=None if word is None else word.code,
            unchanged=max(silence, self._unchanged.since(row.name, (heart, word, waits), now)),
        )

    def _act(
        self, row: RoleRow, state: State, is_new: bool, word: Word | None, unchanged: float, now: float
    ) -> list[Finding]:
        action = DUTIES[state][Owner.WATCHER]
        if action is Action.START:
            self._steward.start(row)
            return [Finding(row.name, What.STARTED, f"started:{row.name}:{os.getpid()}:{now:.0f}", state.value)]
        if action in (Action.REPLACE, Action.END):
            return self._begin_ending(row, action is Action.REPLACE, word, unchanged, now)
        if state is State.QUARANTINED and now - self._unrest >= self._patience.quarantine:
            return self._start_quarantined(row)
        if action is Action.TELL and is_new:
            what = What.QUARANTINED if state is State.QUARANTINED else What.REFUSED
            return [Finding(row.name, what, f"{state.name.lower()}:{row.name}:{self._wanted_since(row.name)}")]
        return []

    def _begin_ending(
        self, row: RoleRow, start_again: bool, word: Word | None, unchanged: float, now: float
    ) -> list[Finding]:
        pid = word.pid if word is not None and word.pid is not None else self._other(row.name)
        if pid is None:
            return []
        self._endings[row.name] = _Ending(row, pid, now + self._patience.hung, start_again)
        process_groups.send([pid], signal.SIGTERM)
        if not start_again:
            return []
        return [Finding(row.name, What.MISSED, f"missed:{row.name}:{pid}", f"pid {pid}, {unchanged:.0f} s")]

    def _go_on(self, ending: _Ending, word: Word | None, now: float) -> list[Finding]:
        name = ending.row.name
        if process_groups.living([ending.pid]):
            if now >= ending.kill_at and not ending.killed:
                process_groups.send([ending.pid], signal.SIGKILL)
                ending.killed = True
            return []
        if word is not None and word.pid == ending.pid:
            return []  # the launcher has not noticed yet, and would call a start superfluous
        if ending.start_again:
            self._steward.start(ending.row)
        del self._endings[name]
        what = What.RESTARTED if ending.start_again else What.STOPPED
        how = "it had to be killed" if ending.killed else "it ended when asked"
        return [Finding(name, what, f"{what.name.lower()}:{name}:{ending.pid}", how)]

    def _start_quarantined(self, row: RoleRow) -> list[Finding]:
        self._disk.remove(self._places.wanted(row.name))
        self._steward.start(row)
        return [Finding(row.name, What.REARMED, f"rearmed:{row.name}")]

    def _wanted_since(self, role: str) -> int:
        with suppress(FileNotFoundError):
            return os.stat(self._places.wanted(role)).st_mtime_ns
        return 0

    def _raise(self, now: float) -> list[Finding]:
        """Its roles end with it. Those who take their time are waited for: a newcomer would find them at work."""
        left = [row for row in self._watched() if row.name not in self._endings]
        for row in left:
            pid = self._other(row.name)
            if pid is not None:
                self._endings[row.name] = _Ending(row, pid, now + self._patience.hung, start_again=False)
                process_groups.send([pid], signal.SIGTERM)
        for ending in list(self._endings.values()):
            ending.start_again = False
            self._go_on(ending, None, now)
        if self._endings:
            return []
        rows = sorted(self._seats(), key=lambda row: row.name == CHAMBERLAIN)
        try:
            self._steward.raise_all(rows)
        except KingdomError as trouble:
            return self._trouble(trouble)
        return [Finding(self._steward.name, What.RAISED, f"raised:{self._steward.name}:{os.getpid()}")]

    def _suffer(self, trouble: LauncherTrouble, threshold: float) -> list[Finding]:
        """By the plain clock: it was we who waited for the answer."""
        now = self._clock()
        if self._unanswered_since is None:
            self._unanswered_since = now
        elif self._own == CHAMBERLAIN and now - self._unanswered_since >= threshold:
            self._steward.kill()
        return self._trouble(trouble)

    def _trouble(self, trouble: KingdomError) -> list[Finding]:
        if str(trouble) == self._told_trouble:
            return []
        self._told_trouble = str(trouble)
        return [Finding(self._steward.name, What.TROUBLE, f"trouble:{trouble}", str(trouble))]

    def _other(self, role: str) -> int | None:
        """Who plays this role without its launcher's knowledge: the lock says so, or a heart that carries our home."""
        if is_locked(self._places.lock(role)):
            return holder_pid(self._places.lock(role))
        pid = _beater(self._places.heartbeat(role))
        ours = frozenset({home_mark(self._places.home)})
        return pid if pid is not None and stat_fields(pid) and carries(pid, ours) else None


def _beater(heartbeat: Path) -> int | None:
    """Whose heart it is, also when it is damaged further on: the pid stands first."""
    try:
        found = re.search(rb"[0-9]+", read_bytes(heartbeat, 4096))
    except (OSError, BadFile):
        return None
    return int(found[0]) if found else None


def _command_line(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return os.fsdecode(words.read()).split("\0")[:-1]
    except OSError:
        return []
