"""Being a role: one lock, one loop, a beat after every turn, and a clean end. All roles run this."""

from __future__ import annotations

import contextlib
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

from kingdom.disk.atomic import Disk, make_folder, write_in_place
from kingdom.disk.lock import Lock
from kingdom.errors import Exit, KingdomError, LockLost
from kingdom.home import config as configuration
from kingdom.home.config import Config
from kingdom.home.places import Places, find_home
from kingdom.log import Log
from kingdom.records.queues import Queues
from kingdom.runtime.processes import end_with_parent
from kingdom.runtime.wake import ProcessExits, Waker
from kingdom.times import stamp

BEAT_BYTES = 256
GRACE_SECONDS = 30.0
"""How long after the hang threshold the kernel ends a role that nobody watches."""
LOCK_WAIT_SECONDS = 0.9
CONFIG_LOOK_SECONDS = 0.25
DEGRADED_PAUSE_SECONDS = 1.0
ALSO_READS = {"general": ("king",)}
"""By a role's configuration, whose else it reads: a change there is news for it too."""
AT_THE_NEXT_START = ("launcher",)
"""Settings of system.yaml that a running kingdom cannot take over."""


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

    def reload(self, services: Services) -> None:
        """Take over new configuration."""

    def close(self) -> None:
        """The queues are consistent; let go."""


@dataclass(frozen=True)
class Services:
    """What every role is handed."""

    name: str
    places: Places
    disk: Disk
    unsynced: Disk
    """For what may be lost in a power cut: snapshots that are written again, traces that are cleared again."""
    queues: Queues
    log: Log
    clock: Callable[[], float]
    system: Config
    config: Config
    monotonic: Callable[[], float] = time.monotonic
    """Seconds that nobody can set: for periods and pauses."""
    exits: ProcessExits = field(default_factory=ProcessExits)
    """Other processes whose end wakes this role."""


class Heartbeat:
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


@dataclass(frozen=True)
class RoleSpec:
    """What one process is to be."""

    name: str
    config_name: str
    once: bool = False
    """It ends when there is nothing left to do."""
    survives_hup: bool = False


def run(life: RoleSpec, build: Callable[[Services], Job]) -> int:
    """The life of a role, from lock to exit code."""
    os.umask(0o077)
    if not life.survives_hup:
        _die_with_supervisor()
    try:
        places = Places(find_home())
        places.check()
        return _live(life, places, build)
    except KingdomError as trouble:
        print(f"{life.name}: {trouble}", file=sys.stderr)
        return int(trouble.exit)
    except OSError as trouble:
        print(f"{life.name}: {trouble.strerror}: {trouble.filename}", file=sys.stderr)
        return int(Exit.FAILED)


def _live(life: RoleSpec, places: Places, build: Callable[[Services], Job]) -> int:
    lock = Lock(places.lock(life.name), life.name)
    for folder in places.folders():
        make_folder(folder)
    lock.acquire(LOCK_WAIT_SECONDS)
    log = Log(places, life.name, Disk(places.scratch(life.name)), time.time)
    try:
        services = _services(life, places, lock)
        log = services.log  # which knows the secrets
        loop = _Loop(life, services, lock, build(services))
    except KingdomError as trouble:
        log.error(f"does not start: {trouble}")
        log.flush()
        Heartbeat(places.heartbeat(life.name), life.name, time.time).beat("stopped")
        print(f"{life.name}: {log.clean(str(trouble))}", file=sys.stderr)
        return int(trouble.exit)
    except Exception:  # noqa: BLE001
        # The edge of the process, as below.
        return _end_by_defect(lock, log, places.role_log(life.name))
    try:
        return loop.run()
    except LockLost as trouble:
        print(f"{life.name}: {trouble}", file=sys.stderr)
        return int(trouble.exit)
    except Exception:  # noqa: BLE001
        # The edge of the process: tell all we know, end, and let the launcher start a fresh life.
        return _end_by_defect(lock, log, places.role_log(life.name))


def _end_by_defect(lock: Lock, log: Log, told_in: Path) -> int:
    """With what the turn had to say and with its traceback, both without secrets."""
    with contextlib.suppress(LockLost):
        lock.check()
        log.error(f"ends by a defect of its own: {traceback.format_exc(limit=-12)}")
        log.flush()
    print(f"{lock.role}: ended by a defect of its own, see {told_in}", file=sys.stderr)
    return int(Exit.FAILED)


def _services(life: RoleSpec, places: Places, lock: Lock) -> Services:
    name = life.name
    system = configuration.load(places, "system")
    config = configuration.load(places, life.config_name)
    secrets = configuration.secrets(places)
    disk = Disk(places.scratch(name), durability=system["durability"], guard=lock.check)
    disk.sweep_scratch()
    unsynced = Disk(places.scratch(name), durability="process", guard=lock.check)
    log = Log(places, name, unsynced, time.time, secrets.values())
    queues = Queues(places, disk, log, time.time)
    return Services(name, places, disk, unsynced, queues, log, time.time, system, config)


class _Loop:
    def __init__(self, life: RoleSpec, services: Services, lock: Lock, job: Job) -> None:
        self._life = life
        self._services = services
        self._lock = lock
        self._job = job
        self._heart = Heartbeat(services.places.heartbeat(services.name), services.name, services.clock)
        self._waker = self._alarm(services)
        self._stopping = False
        self._reload_asked = False
        self._told = ""
        self._look_everywhere = True
        self._seen_files = self._config_files()
        self._look_at_config = 0.0

    def run(self) -> int:
        self._take_signals()
        self._arm_timer()
        self._services.log.info(f"starts, pid {os.getpid()}")
        self._services.log.event("system.startup", role=self._services.name)
        self._heart.beat("starting")
        arrivals: dict[Path, list[str]] | None = {}
        while not self._stopping:
            self._reload_if_changed()
            turn = self._turn(arrivals)
            again = turn.worked and not turn.settled
            if turn.ended or (self._life.once and not again and not turn.busy):
                break
            arrivals = self._waker.wait(0.0 if again else min(turn.wait, self._longest_sleep()))
        self._job.close()
        self._services.log.info("stops")
        self._services.log.event("system.shutdown", role=self._services.name)
        self._services.log.flush()
        self._heart.beat("stopped")
        self._waker.close()
        return int(Exit.DONE)

    def _turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._arm_timer()
        self._lock.check()
        try:
            turn = self._job.turn(None if self._look_everywhere else arrivals)
            state, self._look_everywhere = "working" if turn.worked else "idle", False
        except LockLost:
            raise
        except (KingdomError, OSError) as trouble:
            # A full or failing disk passes: stay alive, show it, look everywhere again in a moment.
            self._services.log.error(f"a turn failed and will be repeated: {trouble}")
            turn = Turn(worked=False, wait=DEGRADED_PAUSE_SECONDS, busy=True)
            state, self._look_everywhere = "degraded", True
        self._services.log.flush()
        self._heart.beat(state, worked=turn.worked)
        return turn

    def _longest_sleep(self) -> float:
        return float(self._services.system["heartbeat"]["threshold_seconds"]) / 4

    def _arm_timer(self) -> None:
        threshold = float(self._services.system["heartbeat"]["threshold_seconds"])
        signal.setitimer(signal.ITIMER_REAL, threshold + GRACE_SECONDS)

    def _take_signals(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._life.survives_hup else self._stop)
        signal.signal(signal.SIGUSR1, self._ask_reload)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._waker.wake_on_signals()

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    def _ask_reload(self, *_: Any) -> None:
        self._reload_asked = True

    def _config_files(self) -> list[tuple[int, int] | None]:
        places = self._services.places
        names = ("system", self._life.config_name, *ALSO_READS.get(self._life.config_name, ()))
        return [_fingerprint(path) for path in (*(places.config / f"{name}.yaml" for name in names), places.env_file)]

    def _reload_if_changed(self) -> None:
        now = self._services.monotonic()
        if now < self._look_at_config and not self._reload_asked:
            return
        self._look_at_config = now + CONFIG_LOOK_SECONDS
        now_there = self._config_files()
        changed = now_there != self._seen_files
        if not changed and not self._reload_asked:
            return
        self._seen_files, self._reload_asked = now_there, False
        try:
            system = configuration.load(self._services.places, "system")
            config = configuration.load(self._services.places, self._life.config_name)
            secrets = configuration.secrets(self._services.places)
            services = Services(**{**vars(self._services), "system": system, "config": config})
            self._job.reload(services)
        except (KingdomError, OSError) as trouble:
            # Once for each state of the files: seen to change and asked for by a signal are often one cause.
            if changed or str(trouble) != self._told:
                self._services.log.error(f"keeps its old configuration: {trouble}")
            self._told = str(trouble)
            return
        self._told = ""
        before, self._services = self._services.system, services
        services.log.redact(secrets.values())
        services.disk.durability = system["durability"]
        if system["wake"] != before["wake"]:
            self._set_alarm()
        services.log.info(f"took over new configuration{_but_not(before, system)}")

    def _alarm(self, services: Services) -> Waker:
        waker = Waker(self._job.folders(), services.system["wake"])
        waker.add_descriptor(services.exits.fileno())
        return waker

    def _set_alarm(self) -> None:
        """Arrivals may fall between the old one and the new one: look everywhere."""
        old, self._waker = self._waker, self._alarm(self._services)
        self._waker.wake_on_signals(in_place_of=old)
        old.close()
        self._look_everywhere = True


def _but_not(before: Config, now: Config) -> str:
    changed = [name for name in AT_THE_NEXT_START if before[name] != now[name]]
    return f"; {' and '.join(changed)} takes effect at the next `kingdom up`" if changed else ""


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
    end_with_parent(signal.SIGTERM)
    if launcher.isdigit() and os.getppid() != int(launcher):
        raise SystemExit(int(Exit.DONE))


def wants_once(argv: list[str]) -> bool:
    """`--once` is the only word that a role's command line knows."""
    return "--once" in argv
