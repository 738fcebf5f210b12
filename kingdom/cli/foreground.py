"""`kingdom up --foreground`: stay beside the roles for systemd or a container, and tell systemd how they are."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import Exit
from kingdom.base.home.places import Places
from kingdom.base.home.roster import desired_state
from kingdom.base.log import as_json
from kingdom.base.program import home
from kingdom.base.runtime import systemd
from kingdom.cli import launchers
from kingdom.cli.logs import Tail

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_SECONDS = 0.5
HUNG_SECONDS = 30.0
"""The chamberlain replaces a hung role within this after the threshold; later it is left to systemd."""
GONE_SECONDS = 30.0
"""Launcher and chamberlain restart each other within this."""


class ForegroundState(NamedTuple):
    #: Roles that should run and are not up.
    not_up: list[str]
    #: Roles that run, but whose heartbeat has not changed for too long.
    hung: list[str]
    #: No role has run for so many seconds.
    gone: float


@dataclass
class Watch:
    """Look at the roles from outside: at their locks and heartbeats alone."""

    places: Places
    clock: Callable[[], float] = time.monotonic
    _beats: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    _last_run: float = -1.0

    def look(self) -> ForegroundState:
        wanted = [row.name for row in home.rows(self.places) if desired_state(self.places, row.name) == "up"]
        running = [name for name in wanted if is_locked(self.places.lock(name))]
        now = self.clock()
        if running or self._last_run < 0:
            self._last_run = now
        allowed = home.system(self.places)["heartbeat"]["threshold_seconds"] + HUNG_SECONDS
        not_up = [name for name in wanted if not launchers.is_up(self.places, name)]
        hung = [name for name in running if self._unchanged(name, now) > allowed]
        return ForegroundState(not_up, hung, now - self._last_run)

    def _unchanged(self, name: str, now: float) -> float:
        path = self.places.heartbeat(name)
        beat = path.read_bytes() if path.exists() else b""
        if self._beats.get(name, (None, 0.0))[0] != beat:
            self._beats[name] = (beat, now)
        return now - self._beats[name][1]


def stay(places: Places) -> Exit:
    """Print the log and tell systemd how the roles are, until this process is asked to end or no role runs."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    is_json = home.system(places)["log"]["format"] == "json"
    tail, watch = Tail([places.system_log], 0, as_json if is_json else None), Watch(places)
    try:
        while not signal.sigtimedwait(ENDS, LOOK_SECONDS):
            tail.show_new()
            found = watch.look()
            systemd.tell(*states(found))
            if found.gone > GONE_SECONDS:
                print(f"No role has run for {GONE_SECONDS:g} s.")
                # `down` leaves no note of a launcher: somebody wanted this.
                return Exit.FAILED if places.last_launcher.exists() else Exit.DONE
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    systemd.tell(systemd.ENDS)
    return Exit.DONE


def states(found: ForegroundState) -> list[str]:
    """Return what to tell systemd: ready when every role is up, alive while none hangs."""
    ready = [] if found.not_up else [systemd.READY]
    well = [] if found.hung else [systemd.WELL]
    about = [f"{', '.join(names)} {what}" for names, what in ((found.not_up, "not up"), (found.hung, "hung")) if names]
    return [*ready, *well, f"STATUS={'; '.join(about) or 'every role works'}"]
