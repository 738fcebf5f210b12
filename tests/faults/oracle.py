"""What must hold in a home whatever happened to those who wrote there. Each function returns what is wrong."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.disk.codec import read_json
from kingdom.errors import BadFile
from kingdom.home.places import Places, is_hidden
from kingdom.home.states import MOVES

PARKED = "dead"

Figure = Callable[[str], None]


def half_visible(home: Path) -> list[str]:
    """Every file that a reader may see is whole, strict JSON, and called after its id."""
    return [wrong for path in visible(home) if (wrong := _unfit(path))]


def visible(home: Path) -> Iterator[Path]:
    """The files in the court's queues and among the results, without those that were parked as bad."""
    places = Places(home)
    folders = [places.folder(kind, state) for kind in MOVES for state in MOVES[kind] if state != PARKED]
    for folder in [*folders, places.results]:
        for name in _names(folder):
            if not is_hidden(name):
                yield folder / name


def litter(home: Path) -> list[str]:
    """Unfinished files: in a writer's scratch folder, or hidden in a queue."""
    scratch = sorted(home.glob("state/*/tmp/*"))
    hidden = [path for path in sorted(home.glob("queue/*/*/*")) if is_hidden(path.name)]
    hidden += [path for path in sorted(home.glob("state/results/*")) if is_hidden(path.name)]
    return [f"litter: {path.relative_to(home)}" for path in [*scratch, *hidden]]


def states_of(home: Path, kind: str) -> dict[str, list[str]]:
    """Where each id of a queue lies: more than one place is one too many."""
    found: dict[str, list[str]] = defaultdict(list)
    for state in MOVES[kind]:
        for name in _names(Places(home).folder(kind, state)):
            if name.endswith(".json") and not is_hidden(name):
                found[name.removesuffix(".json")].append(state)
    return dict(found)


def in_one_place(home: Path) -> list[str]:
    """Nothing lies twice, and nothing was parked that was good when it was put there."""
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

    The home may be at work meanwhile: what moves while the folders are read counts where it has gone.
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
    """What holds for every role after a clean restart on good input."""
    return [*half_visible(home), *litter(home), *in_one_place(home), *parked(home)]


def beats(places: Places, role: str) -> int:
    """How many turns this life of a role has done."""
    try:
        text = places.heartbeat(role).read_text()
    except FileNotFoundError:
        return 0
    return int(text.partition('"seq": ')[2].partition(",")[0] or 0)


def exactly(what: str, wanted: int, found: int) -> list[str]:
    return [] if found == wanted else [f"{what}: {found} instead of {wanted}"]


def _unfit(path: Path) -> str | None:
    if path.parent.name == "results" and path.name.endswith(("-session-id", "-soldier-id")):
        return None
    if path.suffix != ".json":
        return f"a stranger: {path}"
    try:
        value = read_json(path)
    except BadFile as error:
        return f"half visible: {error}"
    except FileNotFoundError:
        return None
    named = value.get("task_id") if path.parent.name == "results" else value.get("id")
    stem = path.stem.removesuffix("-raw").removesuffix("-checkpoint")
    return None if named == stem else f"{path} holds {named!r}"


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
