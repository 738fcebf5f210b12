"""What a watcher is: it looks at one source, and says which events follow from what it found there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Protocol, TypeVar

from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home.config import Config
from kingdom.base.home.places import Places
from kingdom.base.records.messages import Event
from kingdom.base.times import stamp
from kingdom.court.connections.web import Web

Found = TypeVar("Found")

LONGEST_TEXT = 20_000
"""Characters of one text from outside in an event."""
LONGEST_HEADLINE = 200
"""Characters of a payload's `headline`, by which people know what an event is about."""


@dataclass(frozen=True)
class WatcherKit:
    """What a watcher is made of."""

    #: Its own part of sentinel.yaml.
    config: Config
    places: Places
    #: What it remembers: its cursor, and what it is about to do. The sentinel saves it.
    state: JsonFile
    #: Return whether an event of this id has been made already. Any thread may ask.
    is_known: Callable[[str], bool]
    #: Seconds since the epoch.
    clock: Callable[[], float]
    #: Write a line for people.
    tell: Callable[[str], None]
    #: What `.env` holds.
    secrets: Mapping[str, str] = field(repr=False)


class Watcher(Protocol[Found]):
    """What a row of WATCHERS makes of a kit.

    The sentinel calls fetch, parse, then makes the events, then after_emit, never two at a time. fetch and after_emit
    may wait for the source, so they run beside the loop: they write no file, and what they have to say is an
    exception. State that parse sets is durable before the first event is made, and what after_emit sets after the
    last one. A kill may come anywhere, and then all of it comes again: ids are made of what the source says.
    """

    #: Seconds to wait at least until the next look, as the source asks for; it may change with each look.
    least_wait: float = 0.0
    #: Seconds after which to look again at the latest, if that is sooner than the period; else infinite.
    most_wait: float = inf

    def is_off(self) -> str:
        """Return why it has nothing to watch, with what to do about it; "" when it has."""

    def folders(self) -> Iterable[Path]:
        """Return folders whose arrivals let it look at once."""
        return ()

    def fetch(self) -> Found | None:
        """Look at the source; None when nothing has changed there. ServiceError when it cannot be known now."""

    def parse(self, found: Found) -> Sequence[Event]:
        """Return the events that follow, also those that are known already; they are not made again."""

    def after_emit(self, found: Found, is_whole: bool) -> bool:
        """Tell the source what is safe with us, and move the cursor on. Return whether to look again at once.

        Not `is_whole`: some events of this look are held back, and must be found again.
        """

    def close(self) -> None:
        """Let go of connections and processes; a call of fetch or after_emit may still be under way."""


class ServiceWatcher(Watcher[Found]):
    """What watchers of a service on the web have in common."""

    def __init__(self, kit: WatcherKit) -> None:
        self._kit = kit
        self._web: Web | None = None

    def close(self) -> None:
        if self._web is not None:
            self._web.close()

    def _note_first_try(self) -> None:
        """Note when the service was asked for the first time, which it may not have answered."""
        if not self._kit.state.get("began"):
            self._kit.state.set("began", stamp(self._kit.clock()))


def shortened(text: str) -> str:
    """Return a text from outside at a length that an event can carry."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters in all)"
