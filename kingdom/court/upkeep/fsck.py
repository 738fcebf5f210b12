"""Check a home's invariants, and repair what breaks them.

`look` runs over a home at rest or at work: it looks twice, so that a file that moves meanwhile is no finding. `mend` is
for a home in which nobody runs. Nothing is deleted: what is in the way is set aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import Disk, is_there, make_folder, names_in
from kingdom.base.disk.codec import json_kind, parse_json, read_bytes, read_json
from kingdom.base.disk.json_file import LARGEST
from kingdom.base.errors import BadFile, KingdomError
from kingdom.base.home import config
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.log import Log
from kingdom.base.records.queues import Queues
from kingdom.base.times import moment, stamp
from kingdom.base.wing import FsckFinding
from kingdom.court.upkeep import retention

DAY = 86_400.0
LITTER_SECONDS = 3600.0
SOON = 0.9
"""A share of the days for which something is kept: what is younger cannot have been deleted for its age."""


@dataclass(frozen=True, slots=True, order=True)
class FsckFault:
    """Something that does not hold."""

    #: The file or folder, or the place where one is missing.
    path: Path
    #: What is wrong with it.
    what: str
    #: What its repair has to know.
    about: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant of a home."""

    name: str
    #: What must hold, in one sentence.
    rule: str
    find: Callable[[View], Iterator[FsckFault]]
    #: What the repair does, in words; "" when a person has to decide.
    repair: str = ""
    mend: Callable[[Mender, FsckFault], None] | None = None


class View:
    """A home as one look sees it: every folder listed once, every file read once."""

    def __init__(self, places: Places, now: float) -> None:
        self.places = places
        self.now = now
        self._names: dict[tuple[str, str], list[str]] = {}
        self._records: dict[Path, dict[str, Any] | None] = {}

    def folders(self, *but: str) -> Iterator[tuple[str, str]]:
        """Yield every kind with each of its states, but these."""
        yield from ((kind, state) for kind in MOVES for state in MOVES[kind] if state not in but)

    def names(self, kind: str, state: str) -> list[str]:
        """Return what a reader may see in a folder of a queue."""
        key = kind, state
        if key not in self._names:
            self._names[key] = sorted(name for name in names_in(self.places.folder(kind, state)) if not is_hidden(name))
        return self._names[key]

    def records(self, kind: str, *states: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the records of these states that can be read, each with its file."""
        for state in states:
            for name in self.names(kind, state):
                path = self.places.folder(kind, state) / name
                if (record := self.record(path)) is not None:
                    yield path, record

    def record(self, path: Path) -> dict[str, Any] | None:
        """Return a JSON object; None when it is gone or unfit, which a check of its own finds."""
        if path not in self._records:
            try:
                self._records[path] = read_json(path)
            except (OSError, BadFile):
                self._records[path] = None
        return self._records[path]

    def is_made(self, kind: str, id: object) -> bool:
        """Return whether a record lies in any state now; asked in the order of moves."""
        if not isinstance(id, str) or "/" in id:
            return False
        return any(is_there(f"{self.places.folder(kind, state)}/{id}.json") for state in MOVES[kind])

    def is_young(self, at: object, key: str) -> bool:
        """Return whether what was written then cannot have been deleted for its age."""
        with suppress(ValueError, OverflowError, TypeError):
            written = at if isinstance(at, int | float) else moment(str(at))
            return bool(written > self.now - self.days[key] * DAY * SOON)
        return False

    def was_changed_lately(self, path: Path, key: str) -> bool:
        with suppress(FileNotFoundError):
            return self.is_young(os.lstat(path).st_mtime, key)
        return False

    @cached_property
    def days(self) -> dict[str, float]:
        return {
            str(key): float(value)
            for key, value in config.for_looking(self.places, "chamberlain")[0]["retention"].items()
        }

    @cached_property
    def replays(self) -> list[bytes]:
        """The lines of the index by which the king knows an event again."""
        try:
            return self.places.replay_index.read_bytes().split(b"\n")
        except OSError:
            return []

    @cached_property
    def known_tasks(self) -> frozenset[str]:
        """Tasks that were made once, though their files may be gone."""
        made = {line.rsplit(b" ", 1)[-1].decode("utf-8", "replace") for line in self.replays}
        return frozenset(made.union(*retention.open_tasks(self.places, self.now)))

    @cached_property
    def replayed(self) -> frozenset[str]:
        """Events and scheduled runs in that index."""
        return frozenset(
            line.split(b" ")[1].decode("utf-8", "replace") for line in self.replays if line.count(b" ") == 2
        )


class Mender:
    """What repairs are done with."""

    def __init__(self, places: Places, disk: Disk, now: float) -> None:
        self.places, self.disk, self.now = places, disk, now
        self.log = Log(places, "cli", disk, lambda: now)
        self.queues = Queues(places, disk, self.log, lambda: now)
        self._aside = places.set_aside / stamp(now).replace(":", "")

    def set_aside(self, path: Path) -> None:
        """Move a file or folder out of the way, to where it can be found again."""
        make_folder(self._aside)
        name, number = "_".join(path.relative_to(self.places.home).parts), 1
        target = self._aside / name
        while is_there(target):
            number += 1
            target = self._aside / f"{name}.{number}"
        with suppress(FileNotFoundError):
            self.disk.move(path, target)

    def park(self, path: Path, why: str) -> None:
        """Move a file of a queue to dead/ with its reason; from where that is no legal move, set it aside."""
        state, kind = path.parent.name, path.parent.parent.name
        if "dead" in MOVES[kind][state]:
            queues: dict[str, Any] = {name: getattr(self.queues, name) for name in MOVES}
            queues[kind].move_to_dead(state, path.name, f"fsck: {why}")
        else:
            self.set_aside(path)


# What rows of several products are made of.


StateFiles = Mapping[Callable[[Places], list[Path]], type]


def unfit_files(view: View, files: StateFiles) -> Iterator[FsckFault]:
    """Yield small files that cannot be read, or hold JSON of another form."""
    for paths, form in files.items():
        for path in paths(view.places):
            try:
                value = parse_json(read_bytes(path, LARGEST))
            except FileNotFoundError:
                continue
            except BadFile as error:
                yield FsckFault(path, str(error.facts["why"]))
            except ValueError as error:
                yield FsckFault(path, str(error))
            else:
                if not isinstance(value, form):
                    yield FsckFault(path, f"it holds {json_kind(value)}")


def unfinished(view: View, folders: Iterable[Path], *, is_scratch: bool = False) -> Iterator[FsckFault]:
    """Yield what somebody began to write in these folders long ago; of a scratch folder all that is old."""
    for folder in folders:
        for name in names_in(folder):
            with suppress(FileNotFoundError):
                if (is_scratch or is_hidden(name)) and os.lstat(folder / name).st_mtime < view.now - LITTER_SECONDS:
                    yield FsckFault(folder / name, "an unfinished file of long ago")


def set_aside(mender: Mender, fault: FsckFault) -> None:
    mender.set_aside(fault.path)


STATE_RULE = "The small files that roles keep can be read."
LITTER_RULE = "No unfinished file is older than an hour."
ASIDE = "set aside under state/set-aside"


# A look, and a repair.


def look(
    places: Places, checks: Sequence[Check], clock: Callable[[], float], pause: Callable[[], object] = lambda: None
) -> list[FsckFinding]:
    """Return what does not hold, twice in a row: `pause` lets what is under way end between the looks."""
    once = dict.fromkeys(_faults(View(places, clock()), checks))
    if not once:
        return []
    pause()
    found = {check for check, _ in once}
    again = _faults(View(places, clock()), [check for check in checks if check in found])
    return [_finding(check, fault) for check, fault in dict.fromkeys(again) if (check, fault) in once]


def mend(places: Places, checks: Sequence[Check], disk: Disk, clock: Callable[[], float]) -> list[FsckFinding]:
    """Repair what can be repaired in a home without running roles, in the order of the checks. Return all findings.

    After each check the home is looked at anew: a repair may mend what a later check would have found, or uncover it.
    """
    mender, findings = Mender(places, disk, clock()), []
    for check in checks:
        for fault in list(check.find(View(places, clock()))):
            found = _finding(check, fault)
            findings.append(found if check.mend is None else _mended(check.mend, mender, fault, found))
    mender.log.flush()
    return findings


def _mended(
    how: Callable[[Mender, FsckFault], None], mender: Mender, fault: FsckFault, found: FsckFinding
) -> FsckFinding:
    try:
        how(mender, fault)
    except (OSError, KingdomError) as error:
        return found._replace(failed=str(error))
    return found._replace(repaired=True)


def _faults(view: View, checks: Iterable[Check]) -> Iterator[tuple[Check, FsckFault]]:
    for check in checks:
        for fault in check.find(view):
            yield check, fault


def _finding(check: Check, fault: FsckFault) -> FsckFinding:
    return FsckFinding(check.name, check.rule, fault.path, fault.what, check.repair)
