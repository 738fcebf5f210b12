"""The mailbox as a role: configuration in, a server that the loop turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from pathlib import Path

from kingdom.disk.atomic import Disk, make_folder
from kingdom.disk.lock import Lock
from kingdom.home.config import thawed
from kingdom.mailbox.commands import Desk
from kingdom.mailbox.counters import Figures
from kingdom.mailbox.responses import Answers
from kingdom.mailbox.serve import Server
from kingdom.mq import configuration, opening
from kingdom.mq.client import MANAGER_LOCK
from kingdom.mq.configuration import Settings
from kingdom.runtime.role import Services, Turn
from kingdom.runtime.wake import Waker

LOCK_WAIT_SECONDS = 0.9
CHECK_LOCK_SECONDS = 0.5
SCRATCH = ".drafts"


class Manager:
    """One mailbox and its engine. With a `file` that one is read instead of config/mq.yaml."""

    def __init__(self, services: Services, file: Path | None = None) -> None:
        self._services = services
        self._file = file
        self._settings = self._read(services)
        box, config = self._settings.box, self._settings.config
        make_folder(box.root)
        self._lock = Lock(box.root / MANAGER_LOCK, "queue manager")
        self._lock.acquire(LOCK_WAIT_SECONDS)
        self._check_lock_at = 0.0
        self._own_log = Path(config["paths"]["logRoot"]) if config["paths"]["logRoot"] else None
        self._quick = Disk(box.root / SCRATCH, durability="process", guard=self._lock.check)
        if self._own_log:
            make_folder(self._own_log)
        for warning in self._settings.warnings:
            self._say(warning, "warn")
        self._engine = opening.engine(self._settings, self._now_ms, self._tell)
        desk = Desk(self._engine, Figures(services.clock()), config["nodeId"], services.clock)
        answers = Answers(
            box.responses, box.root / SCRATCH, config["ipc"]["clients"], config["ipc"]["responseTtlSec"], services.clock
        )
        disk = Disk(box.root / SCRATCH, durability=config["durability"], guard=self._lock.check)
        self._server = Server(desk, self._settings, disk, self._quick, answers, self._say)
        self._server.open()
        self._poll_seconds = self._must_poll(services)
        gc.freeze()  # what is here now stays: no collection has to look at it again
        self._say(f"serves {box.root} from a {config['backend']} store, durability {config['durability']}", "info")

    def folders(self) -> Iterable[Path]:
        return [] if self._poll_seconds else [self._settings.box.requests]

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._check_lock()
        look = arrivals is None or self._poll_seconds is not None
        names = None if look or arrivals is None else arrivals.get(self._settings.box.requests, [])
        worked = self._server.serve_arrivals(names)
        wait = self._server.wait_seconds()
        if self._poll_seconds is not None:
            wait = min(wait, self._poll_seconds)
        return Turn(worked, wait, settled=wait > 0)

    def reload(self, services: Services) -> None:
        """The policies of named queues change at once, the rest at the next start."""
        new = self._read(services)
        if _kept(new) != _kept(self._settings):
            self._say("policies of named queues are taken over now, everything else at the next start", "warn")
        opening.apply_policies(self._engine, new)
        self._engine.commit()
        self._services = services

    def close(self) -> None:
        self._server.close()
        self._engine.close()
        self._lock.release()

    def _read(self, services: Services) -> Settings:
        if self._file is not None:
            return configuration.load(services.places, self._file)
        return configuration.settled(thawed(services.config), services.places.home, services.places.config / "mq.yaml")

    def _must_poll(self, services: Services) -> float | None:
        """The period in which to look, where nothing wakes us when a request arrives."""
        ipc = self._settings.config["ipc"]
        if ipc["useFolderWatcher"] and services.system["wake"] == "inotify":
            probe = Waker([self._settings.box.requests])
            polls = probe.polls
            probe.close()
            if not polls:
                return None
            self._say(f"folders cannot be watched here; looks every {ipc['pollIntervalMs']} ms", "warn")
        return float(ipc["pollIntervalMs"]) / 1000

    def _check_lock(self) -> None:
        """The role's own lock is checked every turn; this one guards against a manager of another home."""
        now = time.monotonic()
        if now >= self._check_lock_at:
            self._check_lock_at = now + CHECK_LOCK_SECONDS
            self._lock.check()

    def _now_ms(self) -> int:
        return int(self._services.clock() * 1000)

    def _say(self, sentence: str, level: str) -> None:
        self._services.log.info(sentence, level)
        if self._own_log is not None:
            self._quick.append(self._own_log / "yirangmq.log", f"{level:<5} {sentence}\n".encode("utf-8", "replace"))

    def _tell(self, key: str, sentence: str, **facts: object) -> None:
        told = ", ".join(f"{name}={value}" for name, value in facts.items())
        self._say(f"{key}: {sentence}{f' ({told})' if told else ''}", "info")


def _kept(found: Settings) -> tuple[object, ...]:
    config = found.config
    kept = ("backend", "durability", "paths", "ipc", "sqlite", "filesystem", "hybrid", "policyDefaults")
    return (found.strict, *(config[key] for key in kept))
