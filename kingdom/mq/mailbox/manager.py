"""The mailbox as a role: configuration in, a server that the loop turns."""

from __future__ import annotations

import gc
import time
from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.lock import Lock
from kingdom.base.home.config import thawed
from kingdom.base.runtime.role import Services, Turn
from kingdom.base.runtime.wake import Waker
from kingdom.mq import configuration, time_limit
from kingdom.mq.client import MANAGER_LOCK
from kingdom.mq.configuration import QueueSettings
from kingdom.mq.mailbox.commands import CommandContext
from kingdom.mq.mailbox.counters import Counters
from kingdom.mq.mailbox.responses import Responses
from kingdom.mq.mailbox.serve import Server
from kingdom.mq.steady_clock import steady_clock

LOCK_WAIT_SECONDS = 0.9
CHECK_LOCK_SECONDS = 0.5
SCRATCH = ".drafts"
SOON_SECONDS = 0.001
"""A request that comes so soon after an answer comes of it: then another one is likely to follow this one's answer."""
EAGER_SECONDS = 0.0002
NEVER = 1 << 30


def keep_collections_short() -> None:
    """Let no garbage collection look at all leases and messages: that takes 100 ms at a million of them, and they make
    no cycles."""
    gc.set_threshold(*gc.get_threshold()[:2], NEVER)


def collect_young() -> None:
    """Collect what was made in this turn. Left to itself, Python waits until 700 more objects are made than deleted:
    where as many leases end as begin, it waits for a million of them, and looks at all of them at once."""
    gc.collect(1)


class Manager:
    """One mailbox and its engine."""

    def __init__(self, services: Services, file: Path | None = None) -> None:
        """Lock and open mailbox and engine. A configuration `file` is read instead of config/mq.yaml."""
        self._services = services
        self._file = file
        self._settings = self._read(services)
        box, config = self._settings.box, self._settings.config
        make_folder(box.root)
        self._lock = Lock(box.root / MANAGER_LOCK, "queue manager")
        self._lock.acquire(LOCK_WAIT_SECONDS)
        self._check_lock_at = 0.0
        #: When the last requests were answered, by the monotonic clock.
        self._answered_at = float("-inf")
        self._own_log = Path(config["paths"]["logRoot"]) if config["paths"]["logRoot"] else None
        self._unsynced = Disk(box.root / SCRATCH, durability="process", guard=self._lock.check)
        if self._own_log:
            make_folder(self._own_log)
        for warning in self._settings.warnings:
            self._report(warning, "warn")
        clock, wall = steady_clock(services.clock), lambda: int(services.clock() * 1000)
        self._engine = configuration.open_engine(self._settings, clock, self._report_event, wall)
        context = CommandContext(self._engine, Counters(services.clock()), config["nodeId"], services.clock)
        responses = Responses(
            box.responses,
            box.root / SCRATCH,
            config["ipc"]["clients"],
            config["ipc"]["responseTtlSec"],
            services.clock,
            lambda: clock() / 1000,
        )
        disk = Disk(box.root / SCRATCH, durability=config["durability"], guard=self._lock.check)
        self._server = Server(context, self._settings, disk, self._unsynced, responses, self._report)
        self._server.open()
        self._poll_seconds = self._poll_period(services)
        gc.freeze()  # nothing made so far will go: no garbage collection has to look at it again
        keep_collections_short()
        time_limit.start()
        self._report(f"serves {box.root} from a {config['backend']} store, durability {config['durability']}", "info")

    def folders(self) -> dict[Path, tuple[str, ...]]:
        return {} if self._poll_seconds else {self._settings.box.requests: ()}

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._check_lock()
        came_soon = self._services.monotonic() - self._answered_at < SOON_SECONDS
        look = arrivals is None or self._poll_seconds is not None
        names = None if look or arrivals is None else arrivals.get(self._settings.box.requests, [])
        worked = self._server.serve_arrivals(names)
        collect_young()
        wait = self._server.wait_seconds()
        if self._poll_seconds is not None:
            wait = min(wait, self._poll_seconds)
        if worked:
            self._answered_at = self._services.monotonic()
        # While it sleeps, requests of several clients come together, and a turn for all of them costs less.
        is_one = names is None or len(names) == 1
        return Turn(worked, wait, settled=wait > 0, eager=EAGER_SECONDS if worked and came_soon and is_one else 0.0)

    def reload(self, services: Services) -> None:
        """Take over the policies of queues; everything else changes at the next start."""
        new = self._read(services)
        if _fixed_at_start(new) != _fixed_at_start(self._settings):
            self._report("policies of queues are taken over now, everything else at the next start", "warn")
        configuration.apply_policies(self._engine, new)
        self._engine.commit()
        self._services = services

    def close(self) -> None:
        time_limit.stop()
        self._server.close()
        self._engine.close()
        self._lock.release()

    def _read(self, services: Services) -> QueueSettings:
        if self._file is not None:
            return configuration.load(services.places, self._file)
        return configuration.resolve(thawed(services.config), services.places.home, services.places.config / "mq.yaml")

    def _poll_period(self, services: Services) -> float | None:
        """Return how often to look where nothing wakes us when a request arrives; None where something does."""
        ipc = self._settings.config["ipc"]
        if ipc["useFolderWatcher"] and services.system["wake"] == "inotify":
            probe = Waker([self._settings.box.requests])
            polls = probe.polls
            probe.close()
            if not polls:
                return None
            self._report(f"folders cannot be watched here; looks every {ipc['pollIntervalMs']} ms", "warn")
        return float(ipc["pollIntervalMs"]) / 1000

    def _check_lock(self) -> None:
        """Check the locks of mailbox and store, which keep out others; the role checks its own in every turn."""
        now = time.monotonic()
        if now >= self._check_lock_at:
            self._check_lock_at = now + CHECK_LOCK_SECONDS
            self._lock.check()
            self._engine.check_lock()

    def _report(self, sentence: str, level: str) -> None:
        self._services.log.info(sentence, level)
        if self._own_log is not None:
            self._unsynced.append(self._own_log / "yirangmq.log", f"{level:<5} {sentence}\n".encode("utf-8", "replace"))

    def _report_event(self, key: str, sentence: str, **facts: object) -> None:
        details = ", ".join(f"{name}={value}" for name, value in facts.items())
        self._report(f"{key}: {sentence}{f' ({details})' if details else ''}", "info")


def _fixed_at_start(settings: QueueSettings) -> tuple[object, ...]:
    return tuple(part for key, part in settings.config.items() if key not in ("queues", "policyDefaults"))
