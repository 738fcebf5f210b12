"""The format version of a home, and how an older home is converted.

The number stands in state/home.json. A home without one is older than the first number: its form is 0.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kingdom import __version__
from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadFile, BadHome
from kingdom.base.home.places import Places


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a form of a home to the next one."""

    #: What changes, for people.
    what: str
    #: The files that it changes or removes; they are copied first.
    changes: Callable[[Places], list[Path]]
    #: Carry it out. A kill may come at any moment: it is carried out again, from the start.
    carry_out: Callable[[Places, Disk], None]


def _nothing(places: Places, disk: Disk) -> None:
    """Change nothing: the first number is given to homes as they are."""


MIGRATIONS: tuple[Migration, ...] = (Migration("the home has a format version", lambda places: [], _nothing),)
"""The first brings form 0 to form 1, and so on: one more form is one more row at the end."""


def version(places: Places) -> int:
    """Return the number of a home's form. BadHome when its note cannot be read: guessing could damage it."""
    try:
        found = read_json(places.version).get("version")
    except FileNotFoundError:
        return 0
    except BadFile as error:
        raise BadHome(path=places.home, why=f"{error}; restore a backup, or see to that file") from None
    if not isinstance(found, int) or found < 0:
        raise BadHome(path=places.home, why=f"{places.version} names no version")
    return found


def refuse_newer(places: Places, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raise BadHome for a home whose form this program does not know yet."""
    if (found := version(places)) > len(migrations):
        why = f"a newer Kingdom has made it (format {found}, this one knows {len(migrations)}); use that one"
        raise BadHome(path=places.home, why=why)


def migrate(places: Places, disk: Disk, migrations: Sequence[Migration] = MIGRATIONS) -> Iterator[str]:
    """Bring a home to the newest form, step by step, and yield what was done. Call it under the launch lock.

    What a step changes is copied before, to state/set-aside/form-N.
    """
    refuse_newer(places, migrations)
    for number, step in enumerate(migrations[version(places) :], version(places) + 1):
        changed = [path for path in step.changes(places) if is_there(path)]
        if changed:
            _refuse_while_at_work(places)
            _keep_copy(places, disk, number - 1, changed)
        step.carry_out(places, disk)
        disk.rewrite(places.version, to_json({"version": number, "by": f"kingdom {__version__}"}))
        kept = f"; the old files are in {_copies(places, number - 1)}" if changed else ""
        yield f"Format {number} of the home: {step.what}{kept}."


def _copies(places: Places, form: int) -> Path:
    return places.set_aside / f"form-{form}"


def _keep_copy(places: Places, disk: Disk, form: int, changed: Sequence[Path]) -> None:
    """Copy files whole before they are changed. A copy that is there was made before a kill: it stays."""
    target = _copies(places, form)
    if is_there(target):
        return
    draft = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    for path in changed:
        to = draft / path.relative_to(places.home)
        make_folder(to.parent)
        shutil.copy2(path, to)
        with open(to, "rb") as copied:
            os.fsync(copied.fileno())
    disk.move(draft, target)


def _refuse_while_at_work(places: Places) -> None:
    running = sorted(path.parent.name for path in places.locks() if path != places.launch_lock and is_locked(path))
    if running:
        why = f"it has an older format, and {', '.join(running)} works in it; `kingdom down` first"
        raise BadHome(path=places.home, why=why)
