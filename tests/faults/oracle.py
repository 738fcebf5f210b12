"""What must hold in a home after any fault. Each function returns what is wrong."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.court.upkeep.checks import CHECKS
from kingdom.court.upkeep.fsck import Check, look

PARKED = "dead"

Figure = Callable[[str], None]


LAID_BY_HAND = ("last-word", "outcome", "questions")
"""Checks of what the homes of sweeps never had: they hold only what the role of the sweep reads."""
WHOLE = [check for check in CHECKS if check.name in ("queues", "results")]


def by_fsck(home: Path, checks: Sequence[Check] = CHECKS, pause: Callable[[], object] = lambda: None) -> list[str]:
    """Return the findings of `kingdom fsck`."""
    return [f"{found.path}: {found.what} ({found.rule})" for found in look(Places(home), checks, time.time, pause)]


def half_visible(home: Path) -> list[str]:
    """Check that every visible file is whole, strict JSON, and named after its ID."""
    return by_fsck(home, WHOLE)


def litter(home: Path) -> list[str]:
    """Unfinished files: in a writer's scratch folder, or hidden in a queue."""
    scratch = sorted(home.glob("state/*/tmp/*"))
    hidden = [path for path in sorted(home.glob("queue/*/*/*")) if is_hidden(path.name)]
    hidden += [path for path in sorted(home.glob("state/results/*")) if is_hidden(path.name)]
    return [f"litter: {path.relative_to(home)}" for path in [*scratch, *hidden]]


def states_of(home: Path, kind: str) -> dict[str, list[str]]:
    """Return the states in which each ID of a queue is; more than one is wrong."""
    found: dict[str, list[str]] = defaultdict(list)
    for state in MOVES[kind]:
        for name in _names(Places(home).folder(kind, state)):
            if name.endswith(".json") and not is_hidden(name):
                found[name.removesuffix(".json")].append(state)
    return dict(found)


def in_one_place(home: Path) -> list[str]:
    """Check that no file is in two states, and no valid one in dead/."""
    return [
        f"{kind}: {name} lies in {' and '.join(states)}"
        for kind in MOVES
        for name, states in sorted(states_of(home, kind).items())
        if len(states) > 1
    ]


def parked(home: Path) -> list[str]:
    return [
        f"parked: {path.relative_to(home)}"
        for path in sorted(home.glob(f"queue/*/{PARKED}/*"))
        if not is_hidden(path.name)
    ]


def contents(home: Path, kind: str) -> list[dict[str, Any]]:
    """Every good file of a queue, with the state it lies in under "state".

    Roles may run meanwhile: a file that moves while the folders are read counts in its new state.
    """
    places = Places(home)
    found: dict[Path, dict[str, Any]] = {}
    for state in MOVES[kind]:
        for name in sorted(_names(places.folder(kind, state))):
            if state != PARKED and name.endswith(".json") and not is_hidden(name):
                path = places.folder(kind, state) / name
                with suppress(BadFile, FileNotFoundError):  # half_visible names the bad one
                    found[path] = {**read_json(path), "state": state}
    return [document for path, document in found.items() if path.exists()]


def tidy(home: Path) -> list[str]:
    """Check what holds for every role after a clean restart on valid input."""
    checks = [check for check in CHECKS if check.name not in LAID_BY_HAND]
    return [*by_fsck(home, checks), *litter(home), *in_one_place(home), *parked(home)]


def beats(places: Places, role: str) -> int:
    """Return the number of turns since the role's start."""
    try:
        text = places.heartbeat(role).read_text()
    except FileNotFoundError:
        return 0
    return int(text.partition('"seq": ')[2].partition(",")[0] or 0)


def exactly(what: str, wanted: int, found: int) -> list[str]:
    return [] if found == wanted else [f"{what}: {found} instead of {wanted}"]


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
