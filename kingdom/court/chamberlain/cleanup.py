"""When the chamberlain cleans up: every night, when the disk is nearly full, and when the command line asks.

`cleanup.json` says when it last began and why, and what was deleted; others read it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home import config
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import count
from kingdom.court.soldiers.cleanup import remove_tree
from kingdom.court.upkeep import rotation
from kingdom.court.upkeep.retention import Cleaning, Deleter

SLICE_SECONDS = 0.02
PAUSE_SECONDS = 0.02
"""Between slices, in which others may have the disk."""
AGAIN_SECONDS = 3600.0
"""Between two cleanings of a disk that stays full."""
MEGABYTE = 1 << 20


class Cleanup:
    def __init__(self, services: Services, cleaning: Cleaning | None = None) -> None:
        self._services = services
        self._zone = config.zone(services.places, services.system)
        path = services.places.cleanup
        self._file = JsonFile(path, services.disk, services.log.error, lambda key, value: value is not None)
        self.cleaning = cleaning
        """The one that is under way."""
        self._next_full = 0.0

    def disk_is_full(self, percent: float | None) -> None:
        """Note how full the disk is when it is too full, and None when it is not any more."""
        now = self._services.monotonic()
        if percent is None:
            self._next_full = 0.0
        elif now >= self._next_full and self.cleaning is None:
            self._next_full = now + AGAIN_SECONDS
            self._begin(f"the disk is {percent:.0f} % full")

    def rotate_logs(self) -> None:
        """Give the logs that are due another name."""
        services = self._services
        most_mb = services.config["retention"]["log_max_mb"]
        hour = services.config["events_rotation"]["hour"]
        for log in rotation.rotate(services.places, services.disk, most_mb, hour, services.clock(), self._zone):
            services.log.event("recovery.log_rotated", file=log.file, size_mb=log.size_mb)

    def go_on(self) -> None:
        """Begin what is due, or do the next slice of what has begun."""
        if self.cleaning is None:
            self._begin_if_due()
        elif not self.cleaning.go_on(SLICE_SECONDS):
            self._end(self.cleaning)

    def _begin_if_due(self) -> None:
        today = self._day()
        request = read_json_or(self._services.places.cleanup_request, {}).get("id")
        if isinstance(request, str) and request != self._file.get("request"):
            self._file.set("request", request)
            self._begin("somebody asked for it")
        elif "day" not in self._file:
            # What was there before is cleaned in the next night, not while somebody looks for the first time.
            self._note(day=today)
        elif self._file.get("day") != today:
            self._file.set("day", today)
            self._begin("it is done every day")

    def _day(self) -> str:
        """Return the day whose cleaning is the latest that was due."""
        hours = timedelta(hours=float(self._services.config["cleanup"]["hour"]))
        return str((datetime.fromtimestamp(self._services.clock(), self._zone) - hours).date())

    def _begin(self, why: str) -> None:
        services = self._services
        now = services.clock()
        self.cleaning = Cleaning(
            services.places,
            services.config["retention"],
            now,
            Deleter(services.unsynced, remove_tree, counts_events=True),
        )
        self._note(began_at=stamp(now), why=why, state="working", deleted={}, bytes=0)
        services.log.info(f"cleans up: {why}")

    def _end(self, cleaning: Cleaning) -> None:
        self.cleaning, tally = None, cleaning.tally
        self._note(state="done", ended_at=stamp(self._services.clock()), deleted=tally.files, bytes=tally.bytes)
        megabytes = f"{tally.bytes / MEGABYTE:.1f} MB"
        said = f"cleaned up: deleted {count(tally.total, 'file')}, {megabytes}"
        self._services.log.info(said, event="recovery.files_cleaned", deleted_count=tally.total)

    def _note(self, **entries: Any) -> None:
        for name, value in entries.items():
            self._file.set(name, value)
        with suppress(OSError):  # a disk that takes nothing must not keep us from making room on it
            self._file.save()
