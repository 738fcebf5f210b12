"""The process table: every role that can run, in the order in which a kingdom wakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kingdom import manifests
from kingdom.codec import read_bytes
from kingdom.errors import BadFile
from kingdom.places import Places


@dataclass(frozen=True, slots=True)
class Seat:
    """One row of the table. `name` is the launcher's name for it, the state folder and the lock."""

    name: str
    module: str
    argument: str = ""
    by_default: bool = True
    serves: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        return ("-m", self.module, *([self.argument] if self.argument else []))


ROLES: dict[str, Seat] = {
    "chamberlain": Seat("chamberlain", "kingdom.chamberlain", serves="keeps everything alive"),
    "envoy": Seat("envoy", "kingdom.envoy", serves="speaks with people"),
    "king": Seat("king", "kingdom.king", serves="routes events to generals"),
    "mailbox": Seat("mailbox", "kingdom.mailbox", by_default=False, serves="Yi-Rang MQ for local processes"),
}


def general(name: str) -> Seat:
    return Seat(name, "kingdom.general", argument=name, serves="a general")


def seats(installed_generals: list[str], also: frozenset[str] = frozenset()) -> list[Seat]:
    """Who should run: the default roles, those switched on by name, and the installed generals."""
    fixed = [seat for seat in ROLES.values() if seat.by_default or seat.name in also]
    return [*fixed, *(general(name) for name in sorted(installed_generals))]


def wanted(places: Places, name: str) -> str:
    """`up`; `down`, because a person stopped it; `quarantined`, because of a crash loop."""
    try:
        word = read_bytes(places.wanted(name), 64).decode("ascii", "replace").strip()
    except (FileNotFoundError, BadFile):
        return "up"
    return word if word in ("down", "quarantined") else "up"


def of(places: Places, system: Mapping[str, Any]) -> list[Seat]:
    """Who should run in this home unless stopped by hand, by its system.yaml and its installed manifests."""
    switched_on = frozenset(name for name, on in system["roles"].items() if on)
    return seats(manifests.names(places), switched_on)
