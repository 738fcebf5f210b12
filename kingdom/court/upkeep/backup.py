"""Copy a running home consistently, and restore such a copy.

Files move on while they are copied. So causes are copied before what follows from them: what a copied record promises
is there when its turn comes. Then what follows from nothing that was copied is taken out of the copy, as if the copy
had been made a moment earlier, and `fsck` looks the copy over. If it finds more than in the home, all is done again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from kingdom import __version__, wings
from kingdom.base import tables
from kingdom.base.disk.atomic import NEW_FILE, Disk, is_there, make_folder, names_in
from kingdom.base.disk.codec import read_json, read_json_or, to_json
from kingdom.base.errors import BadFile, BadInput, KingdomError
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.times import stamp
from kingdom.base.wing import FsckFinding
from kingdom.court.rules import schedules
from kingdom.court.upkeep.checks import CHECKS
from kingdom.court.upkeep.copies import Copies, is_left_out
from kingdom.court.upkeep.fsck import View, look, mend

FORM = 1
"""Of the archive."""
NOTE = "backup.json"
TRIES = 5
MENDED = ("replays", "orphans", "sessions", "receipts", "numbers")
"""Checks whose repairs take out of a copy what follows from nothing in it."""
DATABASE = (".db", ".db-wal", ".db-shm", ".db-journal")


class CannotCopy(KingdomError):
    """no copy in which everything holds after {tries} tries; the last one: {why}"""


class NotABackup(BadInput):
    """{path}: {why}"""


def make(places: Places, target: Path, disk: Disk, *, secrets: bool, clock: Callable[[], float] = time.time) -> None:
    """Write a home into one archive, mode 0600. Collision when the archive is there already."""
    copy = places.own("cli") / f"backup-{os.getpid()}"
    try:
        capture(places, copy, disk, secrets=secrets, clock=clock)
        note = {"form": FORM, "made_at": stamp(clock()), "made_by": f"kingdom {__version__}", "secrets": secrets}
        disk.create(copy / NOTE, to_json(note))
        _pack(copy, target, disk)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def capture(places: Places, copy: Path, disk: Disk, *, secrets: bool, clock: Callable[[], float] = time.time) -> None:
    """Copy a home at work into an empty folder, until everything holds there that holds in the home."""
    wrong: list[FsckFinding] = []
    for _ in range(TRIES):
        shutil.rmtree(copy, ignore_errors=True)
        _copy_once(places, Places(copy), disk, secrets, clock())
        known = {(found.check, found.path.relative_to(places.home)) for found in look(places, CHECKS, clock)}
        found = look(Places(copy), CHECKS, clock)
        wrong = [finding for finding in found if (finding.check, finding.path.relative_to(copy)) not in known]
        if not wrong:
            return
    raise CannotCopy(tries=TRIES, why=f"{wrong[0].path.relative_to(copy)}: {wrong[0].what}")


def _copy_once(places: Places, copy: Places, disk: Disk, secrets: bool, now: float) -> None:
    for folder in copy.folders():
        make_folder(folder)
    for path in _each_in_order(places):
        _copy(path, copy.home / path.relative_to(places.home))
    left_out = _secrets(places) if not secrets else set()
    for path in _others(places, places.home):
        if path not in left_out:
            _copy(path, copy.home / path.relative_to(places.home))
    for product in _products():
        product.settle(places, copy)
    for path in chain(*(product.last(places) for product in _products()), _numbers(places)):
        _copy(path, copy.home / path.relative_to(places.home))
    for name, _, _ in os.walk(copy.home):
        with suppress(FileNotFoundError):
            live = places.home / Path(name).relative_to(copy.home)
            os.chmod(name, stat.S_IMODE(os.lstat(live).st_mode) | 0o700)
    _settle(places, copy, disk, now)


def _products() -> list[Copies]:
    return [tables.load(wing.copies) for wing in wings.rows() if wing.copies]


def _each_in_order(places: Places) -> Iterator[Path]:
    """Yield the files of which each cause is copied before what follows from it."""
    for product in _products():
        yield from product.first(places)
    yield from _in_order(places)
    for product in _products():
        yield from product.then(places)


def _in_order(places: Places) -> Iterator[Path]:
    """Yield the court's files, each cause before what follows from it."""
    king = places.own("king")
    yield places.replay_index
    yield from _of_queue(places, "events")
    yield king / "schedule-sent.json"
    for kind in ("tasks", "messages", "orders"):
        yield from _of_queue(places, kind)
    for folder in (places.results, places.answers, places.cancelled("any").parent):
        yield from (folder / name for name in names_in(folder) if not is_hidden(name))


def _of_queue(places: Places, kind: str) -> Iterator[Path]:
    """Yield the files of a queue in the order of moves, so that none is missed; one that moves may come twice."""
    for state in MOVES[kind]:
        folder = places.folder(kind, state)
        yield from (folder / name for name in names_in(folder) if not is_hidden(name))


def _numbers(places: Places) -> list[Path]:
    """Return the counters. Last, so that no id is in the copy that they do not know."""
    return sorted(places.state.glob("*/*-seq"))


def _others(places: Places, folder: Path) -> Iterator[Path]:
    """Yield all other files of a home."""
    done = {places.folder(kind, state) for kind in MOVES for state in MOVES[kind]}
    done |= {places.results, places.answers, places.cancelled("any").parent}
    done |= {folder for product in _products() for folder in product.alone(places)}
    own = _own_names(places)
    for name in sorted(names_in(folder)):
        path = folder / name
        is_processes = folder != places.home and path.is_relative_to(places.state) and is_left_out(places, path)
        if path in done or is_processes or (folder == places.home and name not in own):
            continue
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                yield from _others(places, path)
            elif path not in (places.replay_index, *_numbers(places)):
                yield path


def _own_names(places: Places) -> set[str]:
    """Return what belongs to a home in its uppermost folder: a checkout holds more."""
    folders = (
        places.config,
        places.packages,
        places.queue,
        places.state,
        places.memory,
        places.logs,
        places.workspaces,
    )
    return {path.name for path in (*folders, places.env_file, *places.copies_of_env(), places.installer.parent)}


def _secrets(places: Places) -> set[Path]:
    return {places.env_file, *places.copies_of_env(), *places.keys()}


def _copy(path: Path, to: Path) -> None:
    """Copy a file as it is now, with its time; one that is gone meanwhile is left out."""
    with suppress(FileNotFoundError):
        about = os.lstat(path)
        if stat.S_ISLNK(about.st_mode):
            make_folder(to.parent)
            target = os.readlink(path)
            if not os.path.isabs(target) and not is_there(to):
                os.symlink(target, to)
        elif path.name.endswith(DATABASE):
            if path.name.endswith(DATABASE[0]):
                make_folder(to.parent)
                _copy_database(path, to)
        elif stat.S_ISREG(about.st_mode):
            make_folder(to.parent)
            shutil.copyfile(path, to, follow_symlinks=False)
            os.chmod(to, stat.S_IMODE(about.st_mode))
            os.utime(to, ns=(about.st_atime_ns, about.st_mtime_ns))


def _copy_database(path: Path, to: Path) -> None:
    """Copy a database as one transaction sees it, also while others write."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source, closing(sqlite3.connect(to)) as copy:
        source.backup(copy)
    os.chmod(to, 0o600)


# The copy as it would have been a moment earlier.


def _settle(places: Places, copy: Places, disk: Disk, begun: float) -> None:
    for kind in MOVES:
        _keep_latest(places, copy, kind)
    _drop_young_tasks(places, copy, begun)
    _drop_young_messages(copy, begun)
    _index_runs(copy, disk)
    mend(copy, [check for check in CHECKS if check.name in MENDED], disk, lambda: begun)
    shutil.rmtree(copy.set_aside, ignore_errors=True)
    shutil.copytree(places.set_aside, copy.set_aside) if places.set_aside.is_dir() else None


def _keep_latest(places: Places, copy: Places, kind: str) -> None:
    """Of what was copied in two states, keep the later one: the earlier file has moved."""
    seen: dict[str, list[Path]] = {}
    for state in MOVES[kind]:
        for name in names_in(copy.folder(kind, state)):
            seen.setdefault(name, []).append(copy.folder(kind, state) / name)
    for paths in seen.values():
        for path in paths[:-1]:
            if not is_there(places.home / path.relative_to(copy.home)):
                path.unlink()


def _drop_young_tasks(places: Places, copy: Places, begun: float) -> None:
    """Take out tasks whose events were copied before they became tasks."""
    live, view = View(places, begun), View(copy, begun)
    for path, task in view.records("tasks", "pending", "in_progress", "completed"):
        event = task.get("event_id")
        if os.lstat(path).st_mtime < begun - 60 or not isinstance(event, str) or "/" in event:
            continue
        copied = [read_json_or(copy.folder("events", state) / f"{event}.json", {}) for state in MOVES["events"]]
        known = [record for record in copied if record]
        is_noted = any(record.get("task_id") for record in known)
        if (known and not is_noted and view.is_made("events", event)) or (not known and live.is_made("events", event)):
            path.unlink()


def _drop_young_messages(copy: Places, begun: float) -> None:
    """Take out messages that nothing in the copy promises, and those of others about tasks that are not in it."""
    view = View(copy, begun)
    promised = {
        id for kind in ("events", "tasks") for _, record in view.records(kind, *MOVES[kind]) for id in _letters(record)
    }
    for path, message in view.records("messages", "pending", "sent", "failed"):
        task, is_young = message.get("task_id"), os.lstat(path).st_mtime >= begun
        is_ours = isinstance(message.get("dedup_key"), str)
        has_cause = path.stem in promised if is_ours else view.is_made("tasks", task)
        if isinstance(task, str) and is_young and not has_cause:
            path.unlink()


def _letters(record: dict[str, Any]) -> list[str]:
    letters = record.get("letters")
    return [str(id) for id in letters.values()] if isinstance(letters, dict) else []


def _index_runs(copy: Places, disk: Disk) -> None:
    """Note scheduled runs whose tasks are in the copy: the index was copied first."""
    view, lines = View(copy, 0.0), []
    for path, task in view.records("tasks", "pending", "in_progress", "completed"):
        event, due, general = str(task.get("event_id")), task.get("scheduled_for"), task.get("target_general")
        key = schedules.run_key(str(general), event, str(due))
        if due and event.startswith(schedules.SCHEDULED) and key not in view.replayed:
            lines.append(f"{str(due)[:10].replace('-', '')} {key} {path.stem}\n")
    if lines:
        disk.append(copy.replay_index, "".join(lines).encode(), sync=True)


# The archive.


def _pack(copy: Path, target: Path, disk: Disk) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(draft, NEW_FILE, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive:
                archive.add(copy / NOTE, NOTE)
                for name in sorted(names_in(copy)):
                    if name != NOTE:
                        archive.add(copy / name, name)
            file.flush()
            os.fsync(file.fileno())
        disk.move(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def unpack(archive: Path, into: Path) -> dict[str, Any]:
    """Unpack an archive into an empty folder and return its description. NotABackup if it is none."""
    make_folder(into)
    try:
        with tarfile.open(archive, "r:gz") as packed:
            packed.extraction_filter = lambda member, _: member  # `_safe` has looked; Python 3.11.2 has no filters yet
            packed.extractall(into, members=_safe(packed, os.path.realpath(into)))
        note = read_json(into / NOTE)
        (into / NOTE).unlink()
    except (tarfile.TarError, EOFError, FileNotFoundError, BadFile, OSError) as error:
        raise NotABackup(path=archive, why=f"it is no backup of a home that can be read ({error})") from None
    if note.get("form") != FORM:
        raise NotABackup(path=archive, why=f"its format is {note.get('form')!r}, and this program reads {FORM}")
    return note


def _safe(packed: tarfile.TarFile, into: str) -> Iterator[tarfile.TarInfo]:
    """Yield each member that lies within the folder, and leads nowhere else, as our own and with the mode it had."""
    for member in packed:
        leads_to = {os.path.join(into, member.name)}
        if member.issym():
            leads_to.add(os.path.join(into, os.path.dirname(member.name), member.linkname))
        elif member.islnk():
            leads_to.add(os.path.join(into, member.linkname))
        elif not (member.isreg() or member.isdir()):
            raise tarfile.ExtractError(f"{member.name!r} is no file")
        if any(os.path.commonpath((into, os.path.realpath(path))) != into for path in leads_to):
            raise tarfile.ExtractError(f"{member.name!r} leads outside")
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        member.mode &= 0o777
        yield member


def put_in_place(unpacked: Path, places: Places, disk: Disk, aside: Path | None) -> None:
    """Move an unpacked home into place; existing files except `.env` are moved aside first.

    `.env` of the archive wins if there is one.
    """
    names = sorted(names_in(unpacked))
    for name in names:
        if is_there(places.home / name) and aside is not None:
            make_folder(aside)
            disk.move(places.home / name, aside / name)
    for name in names:
        disk.move(unpacked / name, places.home / name)
    unpacked.rmdir()
