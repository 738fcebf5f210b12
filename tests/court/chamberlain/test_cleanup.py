"""When the chamberlain cleans up, what it notes before and after, and what its log says of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.runtime.role import Services
from kingdom.base.times import moment
from kingdom.court.chamberlain.cleanup import Cleanup
from tests.fixtures import Clock, put, services, write


class Nights:
    """A home with an old event, and lives of the chamberlain that clean it up."""

    def __init__(self, home: Path) -> None:
        self.clock = Clock("2026-02-07T02:00:00Z")
        system = {"timezone": "UTC"}
        self.services: Services = replace(
            services(home, "chamberlain", self.clock, system=system), monotonic=self.clock
        )
        self.places = Places(home)
        self.old = put(home, "events", "completed", id="evt-1")
        os.utime(self.old, (self.clock.now - 400 * 86_400,) * 2)
        self.cleanup = self.another_life()

    def another_life(self) -> Cleanup:
        self.cleanup = Cleanup(self.services)
        return self.cleanup

    def finish(self) -> None:
        self.cleanup.go_on()
        while self.cleanup.cleaning is not None:
            self.cleanup.go_on()

    def note(self) -> Mapping[str, Any]:
        return read_json(self.places.cleanup)

    def ask(self, name: str) -> None:
        self.places.cleanup_request.parent.mkdir(exist_ok=True)
        write(self.places.cleanup_request, {"id": name, "by": "owner"})


@pytest.fixture
def nights(home: Path) -> Nights:
    return Nights(home)


def test_at_its_first_start_it_only_notes_the_day(nights: Nights) -> None:
    nights.cleanup.go_on()
    assert (nights.cleanup.cleaning, nights.note()) == (None, {"day": "2026-02-06"})


def test_it_is_done_once_a_day_at_its_hour(nights: Nights) -> None:
    begun = []
    for hour in range(2, 50):
        nights.clock.set(f"2026-02-{7 + hour // 24:02d}T{hour % 24:02d}:00:00Z")
        nights.cleanup.go_on()
        if nights.cleanup.cleaning is not None:
            begun.append(hour % 24)
            nights.finish()
    assert begun == [3, 3]


def test_the_day_is_noted_before_it_begins_and_a_restart_does_not_do_it_again(nights: Nights) -> None:
    nights.finish()
    nights.clock.set("2026-02-07T03:00:01Z")
    nights.cleanup.go_on()
    began = {"day": "2026-02-07", "began_at": "2026-02-07T03:00:01Z", "why": "it is done every day"}
    assert nights.note() == {**began, "state": "working", "deleted": {}, "bytes": 0}
    nights.another_life().go_on()
    assert nights.cleanup.cleaning is None


def test_what_was_deleted_is_noted_logged_and_an_event(nights: Nights) -> None:
    size = 3 << 20
    os.truncate(nights.old, size)
    os.utime(nights.old, (0, 0))
    nights.cleanup.disk_is_full(91.0)
    assert nights.note()["why"] == "the disk is 91 % full"
    nights.clock.pass_(60)
    nights.finish()
    said = nights.note()
    assert (said["state"], said["ended_at"], said["deleted"]) == ("done", "2026-02-07T02:01:00Z", {"ended events": 1})
    assert (said["bytes"], nights.old.exists()) == (size, False)
    nights.services.log.flush()
    log = nights.places.role_log("chamberlain").read_text()
    assert "cleans up: the disk is 91 % full" in log
    assert "cleaned up: deleted 1 file, 3.0 MB" in log
    (event,) = [json.loads(line) for line in nights.places.events_log.read_text().splitlines()]
    assert (event["type"], event["data"]) == ("recovery.files_cleaned", {"deleted_count": 1})


@pytest.mark.parametrize(
    ("seconds", "gets_room", "begins"), [(3599, False, False), (3600, False, True), (1, True, True)]
)
def test_a_disk_that_stays_full_is_cleaned_once_an_hour(
    nights: Nights, seconds: float, gets_room: bool, begins: bool
) -> None:
    nights.cleanup.go_on()
    nights.cleanup.disk_is_full(91.0)
    nights.finish()
    if gets_room:
        nights.cleanup.disk_is_full(None)
    nights.clock.pass_(seconds)
    nights.cleanup.disk_is_full(91.0)
    assert (nights.cleanup.cleaning is not None) is begins


def test_a_machine_that_has_just_started_cleans_a_full_disk_too(nights: Nights) -> None:
    nights.services = replace(nights.services, monotonic=lambda: 0.5)
    nights.another_life()
    for percent in (None, 91.0):
        nights.cleanup.disk_is_full(percent)
    assert nights.cleanup.cleaning is not None


def test_a_disk_that_is_full_while_it_is_cleaned_begins_nothing_anew(nights: Nights) -> None:
    nights.cleanup.disk_is_full(91.0)
    nights.clock.pass_(4000)
    nights.cleanup.disk_is_full(99.0)
    assert nights.note()["why"] == "the disk is 91 % full"


def test_a_request_is_one_cleaning_whatever_ends_in_between(nights: Nights) -> None:
    nights.finish()
    nights.ask("a request")
    nights.cleanup.go_on()
    said = nights.note()
    assert (said["request"], said["why"], said["state"]) == ("a request", "somebody asked for it", "working")
    nights.another_life().go_on()
    assert nights.cleanup.cleaning is None
    nights.ask("another one")
    nights.cleanup.go_on()
    assert nights.cleanup.cleaning is not None


def test_a_log_that_is_due_gets_another_name_and_that_is_an_event(nights: Nights) -> None:
    line = {"ts": "2026-02-05T10:00:00Z", "type": "system.startup", "actor": "king", "data": {"role": "king"}}
    nights.places.events_log.write_text(json.dumps(line) + "\n")
    os.utime(nights.places.events_log, (moment("2026-02-05T10:00:00Z"),) * 2)
    nights.cleanup.rotate_logs()
    nights.services.log.flush()
    (event,) = [json.loads(row) for row in nights.places.events_log.read_text().splitlines()]
    assert (event["type"], event["data"]["file"][:10]) == ("recovery.log_rotated", "events.log")
