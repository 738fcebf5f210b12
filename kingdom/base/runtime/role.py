"""What every role's process does: take the lock, then turn in a loop that writes a heartbeat, until told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_bytes, to_json
from kingdom.base.disk.lock import Lock, is_locked
from kingdom.base.errors import BadHome, Exit, KingdomError, LockLost
from kingdom.base.home import config as configuration
from kingdom.base.home import dotenv, roster, schemas
from kingdom.base.home.config import Config
from kingdom.base.home.places import Places, find_home
from kingdom.base.log import Log
from kingdom.base.records import heartbeats, refusals
from kingdom.base.records.queues import Queues
from kingdom.base.runtime import systemd
from kingdom.base.runtime.config_files import ConfigFiles
from kingdom.base.runtime.heartbeat import Heartbeat
from kingdom.base.runtime.processes import end_with_parent
from kingdom.base.runtime.wake import Alarm, ProcessExits, Waker

GRACE_SECONDS = 30.0
"""How long after the hang threshold the kernel ends a role that nobody watches."""
LOCK_WAIT_SECONDS = 0.9
STAND_BY_SECONDS = 0.2
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DEGRADED_PAUSE_SECONDS = 1.0
AT_THE_NEXT_START = ("launcher",)
"""Settings of system.yaml that a running kingdom cannot take over."""


@dataclass(frozen=True)
class RoleSpec:
    """Which role a process plays, and how."""

    #: The role's name: its lock, heartbeat, log and state folder are named after it.
    name: str
    #: Which file of config/ is its own.
    config_name: str
    #: Which others it reads: a change there is one to its configuration too.
    also_reads: tuple[str, ...] = ()
    #: The schemas of what it takes in. They are compiled before the first of it comes.
    takes_in: tuple[str, ...] = ()
    #: Stop as soon as there is nothing left to do.
    once: bool = False
    #: Ignore SIGHUP and the launcher's end, which stop any other role.
    survives_hup: bool = False
    #: Start with the configuration that was accepted last while the files are broken, as others need it to start.
    keeps_config: bool = False


@dataclass(frozen=True)
class Services:
    """What a role works with."""

    #: The role's name.
    name: str
    #: Every path under the home.
    places: Places
    #: Writes as durably as system.yaml asks.
    disk: Disk
    #: Writes what may be lost in a power cut: snapshots that are written again, traces that are cleared again.
    unsynced: Disk
    #: Events, tasks, messages and orders.
    queues: Queues
    log: Log
    #: Seconds since the epoch, for times that are written down.
    clock: Callable[[], float]
    #: config/system.yaml
    system: Config
    #: The role's own file of config/.
    config: Config
    #: Seconds of the monotonic clock, for periods and pauses.
    monotonic: Callable[[], float] = time.monotonic
    #: Wakes the role when other processes end.
    exits: ProcessExits = field(default_factory=ProcessExits)
    #: Wakes the role when a descriptor becomes readable, a thread rings or a signal comes.
    alarm: Alarm = field(default_factory=Alarm)
    #: What `.env` holds, as it was when the configuration was last taken over.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


class Turn(NamedTuple):
    """What one turn of the loop did, and when the next one is due."""

    #: Something was done: another turn follows at once, unless `settled` or `ended`.
    worked: bool
    #: Seconds until the next turn if nothing wakes the role.
    wait: float
    #: Not done yet, though there is nothing to do now: children run, or a file is being written.
    busy: bool = False
    #: Nothing is left to do, even though this turn worked.
    settled: bool = False
    #: No other turn may follow: a successor has been started.
    ended: bool = False
    #: For so many seconds the next arrival is looked for before this process sleeps.
    eager: float = 0.0


class Job(Protocol):
    """What a role does, as the loop sees it. Descriptors and threads wake it by `services.alarm`."""

    def folders(self) -> Mapping[Path, tuple[str, ...]]:
        """Return the folders whose arrivals wake this role, each with the endings of names that are no news to it."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        """Do what is due. Arrivals are names by folder; None means some were lost: look everywhere."""

    def reload(self, services: Services) -> None:
        """Take over new configuration."""

    def close(self) -> None:
        """Finish: this was the last turn."""


def run(spec: RoleSpec, build: Callable[[Services], Job]) -> int:
    """Play a role until it stops, and return the exit code of its process."""
    os.umask(0o077)
    if not spec.survives_hup:
        _end_with_supervisor()
    try:
        places = Places(find_home())
        seen = refusals.versions([places.home])
        try:
            places.check()
        except BadHome as error:
            with contextlib.suppress(OSError):
                refusals.note(places, Disk(places.scratch(spec.name)), spec.name, error, seen)
            raise
        return _run(spec, places, build)
    except KingdomError as error:
        print(f"{spec.name}: {error}", file=sys.stderr)
        return int(error.exit)
    except OSError as error:
        print(f"{spec.name}: {error.strerror}: {error.filename}", file=sys.stderr)
        return int(Exit.FAILED)


def wants_once(argv: list[str]) -> bool:
    """Return whether a role's command line says `--once`, the only option that roles share."""
    return "--once" in argv


def _run(spec: RoleSpec, places: Places, build: Callable[[Services], Job]) -> int:
    lock = Lock(places.lock(spec.name), spec.name)
    for folder in places.folders():
        make_folder(folder)
    # `supervisorctl start all` starts every program.
    if os.environ.get("KINGDOM_LAUNCHER") and roster.is_switched_off(places, spec.name):
        print(
            f"{spec.name}: is switched off; set roles.{spec.name}: true in {places.config / 'system.yaml'}",
            file=sys.stderr,
        )
        return int(Exit.DONE)
    _stand_by(spec, places)
    lock.acquire(LOCK_WAIT_SECONDS)
    disk = Disk(places.scratch(spec.name))
    log = Log(places, spec.name, disk, time.time)
    files = ConfigFiles(places, spec.config_name, *spec.also_reads)
    read = {**files.seen, **refusals.versions([places.manifest(spec.name)] if spec.config_name == "general" else [])}
    try:
        services, job = _assembled(spec, places, lock, build, log)
        loop = _Loop(spec, services, lock, job, files)
        refusals.forget(places, disk, spec.name)
    except KingdomError as error:
        log.error(f"does not start: {error}")
        log.flush()
        if error.exit is Exit.REFUSED:
            with contextlib.suppress(OSError):
                refusals.note(places, disk, spec.name, error, read)
        Heartbeat(places, spec.name, time.time).write("stopped")
        print(f"{spec.name}: {log.clean(str(error))}", file=sys.stderr)
        return int(error.exit)
    except Exception:  # noqa: BLE001
        # The edge of the process, as below.
        return _crashed(lock, log, Heartbeat(places, spec.name, time.time), places)
    try:
        loop.run()
        lock.release()  # before the other's is looked at: of two that end at the same time one sees it
        return int(Exit.FAILED if loop.stopping and _is_missed(spec.name, places) else Exit.DONE)
    except LockLost as error:
        print(f"{spec.name}: {error}", file=sys.stderr)
        return int(error.exit)
    except Exception:  # noqa: BLE001
        # The edge of the process: log all we know, end, and let the launcher start a new one.
        return _crashed(lock, log, loop.heartbeat, places)


def _is_missed(role: str, places: Places) -> bool:
    """Return whether this role should run and whoever would start it again does not: its launcher has to.

    A launcher that was asked to stop a role does not start it, whatever its exit code.
    """
    is_wanted = "KINGDOM_LAUNCHER" in os.environ and roster.desired_state(places, role) == "up"
    return is_wanted and not is_locked(places.lock(roster.watcher(role)))


def _stand_by(spec: RoleSpec, places: Places) -> None:
    """Wait while another program plays this role: until its last heartbeat is older than the threshold."""
    system, _ = configuration.for_looking(places, "system")
    threshold = float(system["heartbeat"]["threshold_seconds"])
    is_told = False
    while (age := heartbeats.foreign_age(places, spec.name, time.time())) is not None and age <= threshold:
        if not is_told:
            is_told = True
            for number in (signal.SIGTERM, signal.SIGINT) if spec.survives_hup else END_SIGNALS:
                signal.signal(number, _end_at_once)
            whom = f"another program writes the heartbeat {places.heartbeat(spec.name)}"
            log = Log(places, spec.name, Disk(places.scratch(spec.name)), time.time)
            log.warn(f"stands by: {whom}; takes over {threshold:g} s after its last heartbeat")
            log.flush()
        time.sleep(STAND_BY_SECONDS)


def _end_at_once(*_: Any) -> None:
    raise SystemExit(int(Exit.DONE))


def _crashed(lock: Lock, log: Log, heartbeat: Heartbeat, places: Places) -> int:
    """Write what the turn has logged, and the traceback, without secrets; tell bin/role how this process ended."""
    with contextlib.suppress(LockLost):
        lock.check()
        log.error(f"crashed: {traceback.format_exc(limit=-12)}")
        log.flush()
        heartbeat.write("crashed")
    print(f"{lock.role}: crashed; the traceback is in {places.role_log(lock.role)}", file=sys.stderr)
    return int(Exit.FAILED)


def _assembled(
    spec: RoleSpec, places: Places, lock: Lock, build: Callable[[Services], Job], log: Log
) -> tuple[Services, Job]:
    """Return a role's services and its job, by its files or, where it may, by what it accepted last."""
    try:
        services = _services(spec, places, lock, log)
        job = build(services)
    except KingdomError as error:
        if not spec.keeps_config or error.exit is not Exit.REFUSED or not places.accepted(spec.name).is_dir():
            raise
        services = _services(spec, places, lock, log, places.accepted(spec.name))
        log.error(f"starts with the configuration that it accepted last: {error}")
        return services, build(services)
    _keep_config(spec, services)
    return services, job


def _keep_config(spec: RoleSpec, services: Services) -> None:
    """Keep a copy of configuration that the role has accepted, if it may start with that."""
    if not spec.keeps_config:
        return
    folder = services.places.accepted(spec.name)
    try:
        make_folder(folder)
        for name, config in {"system": services.system, spec.config_name: services.config}.items():
            path, content = folder / f"{name}.yaml", to_json(configuration.thawed(config))
            if not path.exists() or read_bytes(path) != content:
                services.unsynced.rewrite(path, content)
    except OSError as error:  # on a full disk, which this role may be about to empty
        services.log.warn(f"keeps no copy of its configuration: {error}")


def _services(spec: RoleSpec, places: Places, lock: Lock, log: Log, accepted: Path | None = None) -> Services:
    """Return what a role works with; `log` hides the secrets from then on.

    With the folder of `accepted` configuration it may lack the secrets.
    """
    name = spec.name
    system = configuration.load(places, "system", accepted)
    config = configuration.load(places, spec.config_name, accepted)
    try:
        secrets = dotenv.secrets(places)
    except KingdomError:
        if accepted is None:
            raise
        secrets = {}
    disk = Disk(places.scratch(name), durability=system["durability"], guard=lock.check)
    disk.sweep_scratch()
    unsynced = Disk(places.scratch(name), durability="process", guard=lock.check)
    log.redact(secrets.values())
    log.also_as_json(system["log"]["format"] == "json")
    queues = Queues(places, disk, log, time.time)
    _warn_of_what_is_ignored(spec, places, log)
    return Services(name, places, disk, unsynced, queues, log, time.time, system, config, secrets=secrets)


def _warn_of_what_is_ignored(spec: RoleSpec, places: Places, log: Log) -> None:
    for remark in configuration.remarks(places, "system", spec.config_name):
        log.warn(remark)


class _Loop:
    def __init__(self, spec: RoleSpec, services: Services, lock: Lock, job: Job, files: ConfigFiles) -> None:
        self._spec = spec
        self._services = services
        self._lock = lock
        self._job = job
        self._folders = job.folders()
        self.heartbeat = Heartbeat(services.places, services.name, services.clock)
        self._waker = self._new_waker(services)
        self.stopping = False
        self._reload_requested = False
        self._config_files = files
        self._config_error = ""
        self._failing = ""
        self._look_everywhere = True
        self._is_a_unit = bool(os.environ.get("NOTIFY_SOCKET"))

    def run(self) -> None:
        self._handle_signals()
        self._arm_timer()
        self._services.log.info(f"starts, pid {os.getpid()}", event="system.startup", role=self._services.name)
        self.heartbeat.write("starting")
        schemas.compile_early(self._spec.takes_in)
        arrivals: dict[Path, list[str]] | None = {}
        while not self.stopping:
            self._reload_if_changed()
            turn = self._turn(arrivals)
            again = turn.worked and not turn.settled
            if turn.ended or (self._spec.once and not again and not turn.busy):
                break
            arrivals = self._wait(0.0 if again else min(turn.wait, self._longest_sleep()), turn.eager)
        self._job.close()
        self._tell_systemd(systemd.ENDS)
        self._services.log.info("stops", event="system.shutdown", role=self._services.name)
        self._services.log.flush()
        self.heartbeat.write("stopped")
        self._services.alarm.close()

    def _wait(self, seconds: float, eager: float) -> dict[Path, list[str]] | None:
        """Sleep until the next turn. A file that this role has just rewritten itself does not wake it."""
        disks = (self._services.disk, self._services.unsynced)
        arrivals = self._waker.wait(seconds, disks[0].rewritten | disks[1].rewritten, eager)
        for disk in disks:
            disk.rewritten.clear()
        return arrivals

    def _turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._arm_timer()
        self._lock.check()
        try:
            turn = self._job.turn(None if self._look_everywhere else arrivals)
            state, self._look_everywhere = "working" if turn.worked else "idle", False
            self._failing = ""
        except LockLost:
            raise
        except (KingdomError, OSError) as error:
            # A full or failing disk passes: keep running, show it, look everywhere again in a moment.
            if str(error) != self._failing:
                self._services.log.error(f"a turn failed and will be repeated: {error}")
            self._failing = str(error)
            turn = Turn(worked=False, wait=DEGRADED_PAUSE_SECONDS, busy=True)
            state, self._look_everywhere = "degraded", True
        self._services.log.flush()
        self.heartbeat.write(state, worked=turn.worked)
        self._tell_systemd(systemd.READY, systemd.WELL)
        return turn

    def _tell_systemd(self, *states: str) -> None:
        if self._is_a_unit:
            systemd.tell(*states)

    def _longest_sleep(self) -> float:
        return float(self._services.system["heartbeat"]["threshold_seconds"]) / 4

    def _arm_timer(self) -> None:
        """Let the kernel end this process if its loop hangs."""
        threshold = float(self._services.system["heartbeat"]["threshold_seconds"])
        signal.setitimer(signal.ITIMER_REAL, threshold + GRACE_SECONDS)

    def _handle_signals(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._spec.survives_hup else self._stop)
        signal.signal(signal.SIGUSR1, self._request_reload)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._services.alarm.ring_on_signals()

    def _stop(self, *_: Any) -> None:
        self.stopping = True

    def _request_reload(self, *_: Any) -> None:
        self._reload_requested = True

    def _reload_if_changed(self) -> None:
        requested = self._reload_requested
        changed = self._config_files.changed(self._services.monotonic(), at_once=requested)
        if not changed and not requested:
            return
        self._reload_requested = False
        try:
            services = self._configured_anew()
            self._job.reload(services)
            _keep_config(self._spec, services)
        except (KingdomError, OSError) as error:
            # Log once per state of the files: a change that is seen and a signal often have one cause.
            if changed or str(error) != self._config_error:
                self._services.log.error(f"keeps its old configuration: {error}")
            self._config_error = str(error)
            # A disk that fails says nothing of the files: they are read again at the next turn.
            self._reload_requested = isinstance(error, OSError)
            return
        self._config_error = ""
        before, self._services = self._services.system, services
        services.log.redact(services.secrets.values())
        services.log.also_as_json(services.system["log"]["format"] == "json")
        services.disk.durability = services.system["durability"]
        folders, self._folders = self._folders, self._job.folders()
        if services.system["wake"] != before["wake"] or folders != self._folders:
            self._replace_waker()
        _warn_of_what_is_ignored(self._spec, services.places, services.log)
        services.log.info(f"took over new configuration{_exceptions(before, services.system)}")

    def _configured_anew(self) -> Services:
        places = self._services.places
        return replace(
            self._services,
            system=configuration.load(places, "system"),
            config=configuration.load(places, self._spec.config_name),
            secrets=dotenv.secrets(places),
        )

    def _new_waker(self, services: Services) -> Waker:
        waker = Waker(self._folders, services.system["wake"], self._folders)
        self.heartbeat.polls = waker.polls and bool(self._folders) and services.system["wake"] == "inotify"
        waker.add_descriptor(services.exits.fileno(), services.exits.note)
        waker.add_descriptor(services.alarm.fileno(), services.alarm.clear)
        return waker

    def _replace_waker(self) -> None:
        """Watch anew, and look everywhere: arrivals may fall between the old waker and the new one."""
        old, self._waker = self._waker, self._new_waker(self._services)
        old.close()
        self._look_everywhere = True


def _exceptions(before: Config, now: Config) -> str:
    changed = [name for name in AT_THE_NEXT_START if before[name] != now[name]]
    return f"; {' and '.join(changed)} takes effect at the next `kingdom up`" if changed else ""


def _end_with_supervisor() -> None:
    """End when supervisord is killed, which would otherwise start a second one of us beside us.

    Under tmux the pane's end reaches us as SIGHUP.
    """
    if os.environ.get("KINGDOM_LAUNCHER") != "supervisord":
        return
    end_with_parent(signal.SIGTERM)
    if os.environ.get("KINGDOM_LAUNCHER_PID", "") not in ("", str(os.getppid())):
        raise SystemExit(int(Exit.DONE))
