"""Being a role: one lock, one loop, a beat after every turn, and a clean end. All roles run this."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kingdom import config as configuration
from kingdom.atomic import Disk, make_folder, write_in_place
from kingdom.config import Config
from kingdom.errors import Exit, KingdomError, LockLost
from kingdom.lock import Lock
from kingdom.log import Log
from kingdom.messages import stamp
from kingdom.places import Places, find_home
from kingdom.post import Post
from kingdom.wake import Ends, Waker

BEAT_BYTES = 256
GRACE_SECONDS = 30.0
"""How long after the hang threshold the kernel ends a role that nobody watches."""
LOCK_WAIT_SECONDS = 0.9
CONFIG_LOOK_SECONDS = 0.25
DEGRADED_PAUSE_SECONDS = 1.0
ALSO_READS = {"general": ("king",)}
"""By a role's configuration, whose else it reads: a change there is news for it too."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Turn:
    """What one turn of the loop did: whether anything, when the next is due, and whether children still run.

    A turn that worked is followed by another at once, unless it is settled: it left nothing behind.
    After one that ended no other follows: a successor has been started.
    """

    worked: bool
    wait: float
    busy: bool = False
    settled: bool = False
    ended: bool = False


class Job(Protocol):
    """What a role does, as the loop sees it."""

    def folders(self) -> Iterable[Path]:
        """Where arrivals wake this role."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        """Do what is due. Arrivals are names by folder; None means some were lost: look everywhere."""

    def reload(self, kit: Kit) -> None:
        """Take over new configuration."""

    def close(self) -> None:
        """The queues are consistent; let go."""


@dataclass(frozen=True)
class Kit:
    """What every role is handed."""

    name: str
    places: Places
    disk: Disk
    light: Disk
    """For what may be lost in a power cut: snapshots that are written again, traces that are cleared again."""
    post: Post
    log: Log
    clock: Callable[[], float]
    system: Config
    config: Config
    ends: Ends = field(default_factory=Ends)
    """Other processes whose end wakes this role."""


class Heart:
    """The beat: one record of fixed size, written in place, so that it also works on a full disk."""

    def __init__(self, path: Path, role: str, clock: Callable[[], float]) -> None:
        make_folder(path.parent)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._role = role
        self._clock = clock
        self._beats = 0
        self._worked = False

    def beat(self, state: str, worked: bool = False) -> None:
        self._beats += 1
        self._worked = self._worked or worked
        record = {
            "pid": os.getpid(),
            "role": self._role,
            "seq": self._beats,
            "state": state,
            "time": stamp(self._clock()),
            "worked": self._worked,
        }
        write_in_place(self._fd, json.dumps(record).ljust(BEAT_BYTES - 1).encode()[: BEAT_BYTES - 1] + b"\n")


def run(
    name: str, config_name: str, build: Callable[[Kit], Job], *, once: bool = False, survives_hup: bool = False
) -> int:
    """The life of a role, from lock to exit code. With `once` it ends when there is nothing left to do."""
    os.umask(0o077)
    if not survives_hup:
        _die_with_supervisor()
    try:
        places = Places(find_home())
        places.check()
        return _live(name, config_name, places, build, once=once, survives_hup=survives_hup)
    except KingdomError as trouble:
        print(f"{name}: {trouble}", file=sys.stderr)
        return int(trouble.exit)
    except OSError as trouble:
        print(f"{name}: {trouble.strerror}: {trouble.filename}", file=sys.stderr)
        return int(Exit.FAILED)


def _live(
    name: str, config_name: str, places: Places, build: Callable[[Kit], Job], *, once: bool, survives_hup: bool
) -> int:
    lock = Lock(places.lock(name), name)
    for folder in places.folders():
        make_folder(folder)
    lock.acquire(LOCK_WAIT_SECONDS)
    quiet = Log(places, name, Disk(places.scratch(name)), time.time)
    try:
        kit = _kit(name, config_name, places, lock)
        loop = _Loop(kit, lock, config_name, build(kit), once=once, survives_hup=survives_hup)
    except KingdomError as trouble:
        quiet.error(f"does not start: {trouble}")
        quiet.flush()
        Heart(places.heartbeat(name), name, time.time).beat("stopped")
        raise
    try:
        return loop.run()
    except LockLost as trouble:
        print(f"{name}: {trouble}", file=sys.stderr)
        return int(trouble.exit)
    except Exception:  # noqa: BLE001
        # The edge of the process: tell all we know, end, and let the launcher start a fresh life.
        with contextlib.suppress(LockLost):
            lock.check()
            quiet.error(f"ends by a defect of its own: {traceback.format_exc(limit=-12)}")
            quiet.flush()
        print(f"{name}: ended by a defect of its own, see {places.role_log(name)}", file=sys.stderr)
        return int(Exit.FAILED)


def _kit(name: str, config_name: str, places: Places, lock: Lock) -> Kit:
    system = configuration.load(places, "system")
    config = configuration.load(places, config_name)
    secrets = configuration.secrets(places)
    disk = Disk(places.scratch(name), durability=system["durability"], guard=lock.check)
    disk.sweep_scratch()
    light = Disk(places.scratch(name), durability="process", guard=lock.check)
    log = Log(places, name, light, time.time, secrets.values())
    post = Post(places, disk, log, time.time)
    return Kit(name, places, disk, light, post, log, time.time, system, config)


class _Loop:
    def __init__(self, kit: Kit, lock: Lock, config_name: str, job: Job, *, once: bool, survives_hup: bool) -> None:
        self._kit = kit
        self._lock = lock
        self._config_name = config_name
        self._job = job
        self._once = once
        self._survives_hup = survives_hup
        self._heart = Heart(kit.places.heartbeat(kit.name), kit.name, kit.clock)
        self._waker = Waker(job.folders(), kit.system["wake"])
        self._waker.also(kit.ends.fileno())
        self._stopping = False
        self._reload_asked = False
        self._told = ""
        self._degraded = False
        self._seen_files = self._config_files()
        self._look_at_config = 0.0

    def run(self) -> int:
        self._take_signals()
        self._arm_timer()
        self._kit.log.say(f"starts, pid {os.getpid()}")
        self._kit.log.event("system.startup", role=self._kit.name)
        self._heart.beat("starting")
        arrivals: dict[Path, list[str]] | None = None
        while not self._stopping:
            self._reload_if_changed()
            turn = self._turn(arrivals)
            again = turn.worked and not turn.settled
            if turn.ended or (self._once and not again and not turn.busy):
                break
            arrivals = self._waker.wait(0.0 if again else min(turn.wait, self._longest_sleep()))
            if self._degraded:
                arrivals = None
        self._job.close()
        self._kit.log.say("stops")
        self._kit.log.event("system.shutdown", role=self._kit.name)
        self._kit.log.flush()
        self._heart.beat("stopped")
        self._waker.close()
        return int(Exit.DONE)

    def _turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._arm_timer()
        self._lock.check()
        try:
            turn = self._job.turn(arrivals)
            state, self._degraded = "working" if turn.worked else "idle", False
        except LockLost:
            raise
        except (KingdomError, OSError) as trouble:
            # A full or failing disk passes: stay alive, show it, look everywhere again in a moment.
            self._kit.log.error(f"a turn failed and will be repeated: {trouble}")
            turn = Turn(worked=False, wait=DEGRADED_PAUSE_SECONDS, busy=True)
            state, self._degraded = "degraded", True
        self._kit.log.flush()
        self._heart.beat(state, worked=turn.worked)
        return turn

    def _longest_sleep(self) -> float:
        return float(self._kit.system["heartbeat"]["threshold_seconds"]) / 4

    def _arm_timer(self) -> None:
        threshold = float(self._kit.system["heartbeat"]["threshold_seconds"])
        signal.setitimer(signal.ITIMER_REAL, threshold + GRACE_SECONDS)

    def _take_signals(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._survives_hup else self._stop)
        signal.signal(signal.SIGUSR1, self._ask_reload)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._waker.ring_on_signals()

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    def _ask_reload(self, *_: Any) -> None:
        self._reload_asked = True

    def _config_files(self) -> list[tuple[int, int] | None]:
        places = self._kit.places
        names = ("system", self._config_name, *ALSO_READS.get(self._config_name, ()))
        return [_fingerprint(path) for path in (*(places.config / f"{name}.yaml" for name in names), places.env_file)]

    def _reload_if_changed(self) -> None:
        now = time.monotonic()
        if now < self._look_at_config and not self._reload_asked:
            return
        self._look_at_config = now + CONFIG_LOOK_SECONDS
        now_there = self._config_files()
        changed = now_there != self._seen_files
        if not changed and not self._reload_asked:
            return
        self._seen_files, self._reload_asked = now_there, False
        try:
            system = configuration.load(self._kit.places, "system")
            config = configuration.load(self._kit.places, self._config_name)
            secrets = configuration.secrets(self._kit.places)
            kit = Kit(**{**vars(self._kit), "system": system, "config": config})
            self._job.reload(kit)
        except (KingdomError, OSError) as trouble:
            # Once for each state of the files: seen to change and asked for by a signal are often one cause.
            if changed or str(trouble) != self._told:
                self._kit.log.error(f"keeps its old configuration: {trouble}")
            self._told = str(trouble)
            return
        self._told = ""
        self._kit = kit
        kit.log.hide(secrets.values())
        kit.log.say("took over new configuration")


def _fingerprint(path: Path) -> tuple[int, int] | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_ino


def _die_with_supervisor() -> None:
    """supervisord killed -9 would leave us beside our successor. Under tmux the pane's end reaches us as HUP."""
    if os.environ.get("KINGDOM_LAUNCHER") != "supervisord":
        return
    launcher = os.environ.get("KINGDOM_LAUNCHER_PID", "")
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if launcher.isdigit() and os.getppid() != int(launcher):
        raise SystemExit(int(Exit.DONE))


def main_arguments(argv: list[str]) -> bool:
    """`--once` is the only word that a role's command line knows."""
    return "--once" in argv
