"""The chamberlain's turn: take the machine's vitals, call the roll, show the picture."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from kingdom import config, manifests, picture
from kingdom.atomic import to_json
from kingdom.chamberlain.vitals import Health, measure
from kingdom.messages import Message, Numbers, highest_number, stamp
from kingdom.post import Post
from kingdom.role import Kit, Turn
from kingdom.roster import Seat, seats

MESSAGE_STATES = ("pending", "sent", "failed", "dead")


class Rounds:
    def __init__(self, kit: Kit) -> None:
        self._take_over(kit)
        self._health = Health()
        self._last_health = "green"
        self._disk_is_full = False
        self._next_vitals = self._next_roll_call = 0.0
        self._alerts = Alerts(kit)
        measure(kit.places.home)

    def folders(self) -> Iterable[Path]:
        return ()

    def reload(self, kit: Kit) -> None:
        self._take_over(kit)

    def close(self) -> None:
        """Everything shown is written."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        now = time.monotonic()
        if now >= self._next_vitals:
            self._take_vitals()
            self._next_vitals = now + self._config["intervals"]["vitals_seconds"]
        if now >= self._next_roll_call:
            self._show_picture()
            self._next_roll_call = now + self._config["intervals"]["roll_call_seconds"]
        return Turn(False, wait=min(self._next_vitals, self._next_roll_call) - time.monotonic())

    def _take_vitals(self) -> None:
        kit = self._kit
        reading = measure(kit.places.home)
        health = self._health.judge(reading, self._config["thresholds"])
        soldiers = picture.soldiers(kit.places)
        most = config.load(kit.places, "king")["concurrency"]["max_soldiers"]
        vitals: dict[str, Any] = {
            "timestamp": stamp(kit.clock()),
            "system": reading.to_json(),
            "sessions": {
                "soldiers_active": len(soldiers),
                "soldiers_max": most,
                "list": [each.get("soldier") for each in soldiers],
            },
            "health": health,
        }
        kit.light.rewrite(kit.places.resources, to_json(vitals))
        self._tell_changes(health, reading.disk_percent)

    def _tell_changes(self, health: str, disk_percent: float) -> None:
        """Alerts on transitions only: a machine that stays red is one alert."""
        kit = self._kit
        if health != self._last_health:
            kit.log.say(f"the machine is {health}, was {self._last_health}")
            kit.log.event("system.health_changed", health=health, was=self._last_health)
            if health == "red":
                self._alerts.send(f"[alert] the machine is red: new work waits. {kit.places.resources}")
            self._last_health = health
        full = disk_percent > self._config["thresholds"]["disk_percent"]
        if full and not self._disk_is_full:
            kit.log.event("system.resource_warning", disk_percent=disk_percent)
            self._alerts.send(f"[alert] the disk of {kit.places.home} is {disk_percent:.0f} % full")
        self._disk_is_full = full

    def _show_picture(self) -> None:
        kit = self._kit
        hang = float(kit.system["heartbeat"]["threshold_seconds"])
        names = [seat.name for seat in self._seats()]
        view = picture.take(kit.places, names, kit.clock(), hang)
        kit.light.rewrite(kit.places.dashboard, to_json(view.to_json()))

    def _seats(self) -> list[Seat]:
        switched_on = frozenset(name for name, on in self._kit.system["roles"].items() if on)
        return seats(manifests.names(self._kit.places), switched_on)

    def _take_over(self, kit: Kit) -> None:
        self._kit = kit
        self._config = kit.config


class Alerts:
    """The chamberlain's own letters to people, under ids of its own."""

    def __init__(self, kit: Kit) -> None:
        self._post: Post = kit.post
        self._clock = kit.clock
        folders = [kit.places.folder("messages", state) for state in MESSAGE_STATES]
        used = highest_number(folders, "msg-{day}-chamberlain-")
        path = kit.places.own("chamberlain") / "msg-seq"
        self._numbers = Numbers(kit.disk, path, lambda: date.fromtimestamp(kit.clock()), used)  # noqa: DTZ012

    def send(self, content: str) -> None:
        day, _, number = self._numbers.take(1)[0].partition("-")
        letter = Message(
            id=f"msg-{day}-chamberlain-{number}",
            type="notification",
            task_id=None,
            channel=None,
            urgency="urgent",
            content=content,
            context={},
            source_ref=None,
            created_at=stamp(self._clock()),
            status="pending",
            dedup_key=None,
        )
        self._post.deliver("messages", [letter])
