"""The HOME of an engine's program: one for each conversation of a general, `state/<general>/homes/<task>/home`.

A session lives there as long as it may be resumed. All else is made anew for each run, so that nothing a soldier leaves
in it (settings, hooks, instructions) is obeyed by the next one, and what it was given does not stay.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.home import dotenv
from kingdom.base.home.places import Places
from kingdom.base.records import notes
from kingdom.base.records.messages import Task
from kingdom.base.records.soldiers import RawReport, SoldierOrder
from kingdom.court.soldiers import engines, owner, streams
from kingdom.court.soldiers.cleanup import finish_removals, remove_tree

if TYPE_CHECKING:
    from kingdom.base.runtime.role import Services

KEPT_DAYS = 7
LARGEST_SESSION = 64 << 20
"""A session that is longer is not kept: nobody could resume it."""


class EngineHome:
    """One HOME, and beside it, where its soldier cannot write, what its session has used so far."""

    def __init__(self, places: Places, general: str, thread: str) -> None:
        self.folder = places.engine_home(general, thread)
        self.home = self.folder / "home"
        self._session = self.folder / "session.json"

    def totals(self, session_id: str) -> dict[str, float]:
        """Return what a session has used in its runs so far."""
        noted = read_json_or(self._session, {})
        totals = noted.get("totals")
        if noted.get("session_id") != session_id or not isinstance(totals, dict):
            return {}
        return {key: float(value) for key, value in totals.items() if isinstance(value, int | float) and value >= 0}

    def knows(self, session_id: str) -> bool:
        return self.session_id == session_id

    @property
    def session_id(self) -> str | None:
        """The session that was noted last; None for none."""
        noted = read_json_or(self._session, {}).get("session_id")
        return noted if isinstance(noted, str) else None

    def note(self, disk: Disk, report: Mapping[str, Any]) -> None:
        """Note the session that a soldier reports, and what it has used."""
        if self.folder.is_dir() and isinstance(session_id := report.get("session_id"), str):
            totals = report.get("session_totals")
            if not isinstance(totals, dict):  # a run that failed may not tell: what was used before still counts
                totals = self.totals(session_id)
            noted = {"session_id": session_id, "totals": totals}
            disk.rewrite(self._session, to_json(noted))

    def empty(self, disk: Disk, kept: Sequence[str], secrets: Iterable[str]) -> None:
        """Remove all but the folders of sessions, and hide secrets in those. A soldier may have put links anywhere."""
        if not self.home.is_dir() or self.home.is_symlink():
            remove_tree(disk, self.home)
            return
        _keep_only(disk, self.home, [name.split("/") for name in kept])
        hidden = [form.encode() for form in dotenv.forms(secrets)]
        for name in kept:
            for path in _files(self.home / name):
                if os.lstat(path).st_size > LARGEST_SESSION:
                    os.unlink(path)
                else:
                    streams.hide_in(path, hidden)


def of(places: Places, general: str, task: Task, session_id: str | None) -> EngineHome:
    """Return the HOME of a task's conversation, or of another one that knows the session it goes on with."""
    own = EngineHome(places, general, task.thread)
    if session_id is not None and not own.knows(session_id):
        for folder in sorted(places.engine_home(general, task.thread).parent.glob("[!.]*")):
            other = EngineHome(places, general, folder.name)
            if other.knows(session_id):
                return other
    return own


def remove_old(places: Places, disk: Disk, general: str) -> None:
    """Remove the homes of conversations that are idle for a week and have no open question."""
    folder = places.engine_home(general, "any").parent
    finish_removals(folder)
    oldest = time.time() - KEPT_DAYS * 86400
    for own in sorted(folder.glob("[!.]*")):
        with suppress(FileNotFoundError):
            if os.stat(own).st_mtime < oldest and not notes.asks(places, own.name):
                remove_tree(disk, own)


def keep_session(services: Services, general: str, order: SoldierOrder | None, report: RawReport) -> RawReport:
    """Keep of the engine's HOME only what a session needs, and note what the session has used.

    Return the report without tokens of the owner that were lent: `.env` does not have them, so nobody else hides them.
    """
    if order is None or order.home is None:
        return report
    lent = owner.lent_secrets(services.system["runtime"])
    own = EngineHome(services.places, general, Path(order.home).parent.name)
    own.empty(services.unsynced, engines.load(order.engine).kept, [*services.secrets.values(), *lent])
    own.note(services.unsynced, report.result or {})
    if lent:
        streams.repair(order, lent)
        report = RawReport.from_json(json.loads(_without(json.dumps(report.to_json(), ensure_ascii=False), lent)))
    return report


def _without(text: str, secrets: Iterable[str]) -> str:
    for form in dotenv.forms(secrets):
        text = text.replace(form, "[hidden]")
    return text


def make(home: EngineHome) -> None:
    """Make the folder; its time shows that the conversation is active."""
    make_folder(home.home)
    os.utime(home.folder)


def _keep_only(disk: Disk, folder: Path, kept: list[list[str]]) -> None:
    """Remove what is in a folder, except for these paths; a link on the way to one of them goes too."""
    for path in sorted(folder.iterdir()):
        below = [names[1:] for names in kept if names[0] == path.name]
        if not below or path.is_symlink() or not path.is_dir():
            if path.is_dir() and not path.is_symlink():
                remove_tree(disk, path)
            else:
                path.unlink(missing_ok=True)  # what is being removed already goes meanwhile
        elif all(below):
            _keep_only(disk, path, below)


def _files(folder: Path) -> list[str]:
    """Return the regular files below a folder, and unlink everything that is neither file nor folder."""
    found = []
    for at, _, names in os.walk(folder, followlinks=False):
        for name in names:
            path = os.path.join(at, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                found.append(path)
            else:
                os.unlink(path)
    return found
