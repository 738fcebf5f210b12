"""Workspaces of soldiers: a shared clone of the task's repository, or an empty folder.

Clones and fetches are children that the general does not wait for. Our git calls run no hooks.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, NamedTuple

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadInput, BadName, KingdomError
from kingdom.base.home.places import Places, as_filename
from kingdom.base.records import notes
from kingdom.base.records.kept import EARLIER
from kingdom.base.records.messages import Checkpoint, Task
from kingdom.base.runtime.wake import ProcessExits
from kingdom.court.soldiers import work
from kingdom.court.soldiers.cleanup import remove_tree
from kingdom.court.soldiers.work import SAFE_ENVIRONMENT, SAFE_GIT

CONFIG, KNOWN = "config/general.yaml", "repositories.known"
KEPT_AFTER = ("failed", "needs_human")
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_KEEP_OBJECTS = ("-c", "gc.pruneExpire=never")
"""The clones that are kept share the objects of their mirror, also those that no branch has any more."""


class NoWorkspace(KingdomError):
    """no workspace for {repo}: {why}"""


@dataclass(frozen=True, slots=True)
class GitRun:
    """A git call under way."""

    #: The process.
    child: Popen[bytes]
    #: The mirror that it reads or writes.
    mirror: Path
    #: The folder that it makes, under its unfinished name; None when it refreshes the mirror.
    target: Path | None


class WorkSearch(NamedTuple):
    """A child that looks for work in a workspace."""

    child: Popen[bytes]
    #: When it is ended, by the monotonic clock.
    until: float


class Workspaces:
    """All workspaces of one general. Mirrors are kept between tasks, so that a clone costs next to nothing."""

    def __init__(self, places: Places, general: str, disk: Disk, exits: ProcessExits, rules: Mapping[str, Any]) -> None:
        self._places = places
        self._folder = places.workspaces / general
        self._mirrors = places.mirrors(general)
        self._general = general
        self._disk = disk
        self._exits = exits
        self.rules = rules
        self._runs: dict[str, GitRun] = {}
        self._fresh: set[str] = set()
        self._searches: dict[Path, WorkSearch] = {}
        self._known: dict[Path, bool] = {}
        """Whether the workspaces of ended tasks hold work."""

    def prepare(self, task: Task, asked: Checkpoint | None) -> Path | None:
        """Return the workspace; None while a child is still making it. NoWorkspace says why it cannot be had.

        A resumed task goes on in the workspace in which its question was `asked`, if that is still there.
        """
        inherited = _workspace_of(asked)
        workspace = (inherited and self._own_workspace(Path(inherited))) or self._folder / task.id
        if workspace.is_dir():
            return workspace
        if task.repo is None:
            make_folder(workspace)
            return workspace
        return self._clone(task, task.repo, workspace)

    def inherited(self, task: Task) -> str | None:
        """Return the workspace of a resumed task: the one in which its question was asked."""
        return _workspace_of(notes.checkpoint_answered_by(self._places, task))

    def left(self, task: Task, inherited: str | None) -> list[Path] | None:
        """Return the workspaces of an ended task that hold work; None while a child still searches them.

        What could not be searched in time, or at all, counts as work.
        """
        holds_work = {folder: self._holds_work(task, folder) for folder in self.folders(task.id, inherited)}
        return None if None in holds_work.values() else [folder for folder, holds in holds_work.items() if holds]

    def earlier(self, task_id: str) -> list[Path]:
        """Return where the work of a task's earlier tries is kept."""
        return sorted(self._folder.glob(f"{task_id}{EARLIER}*"))

    def renew(self, task: Task) -> None:
        """Make way for another try. Work of the last one is kept beside."""
        folder = self._folder / task.id
        if self.left(task, None) != [] and folder.is_dir():
            self._disk.move(folder, next(path for path in self._places_of_earlier(task.id) if not is_there(path)))
            self.forget(folder)
        self.clear(task.id)

    def keep(self, task_id: str, inherited: str | None, kept: Collection[Path]) -> None:
        """Remove the workspaces of an ended task, except those that are kept. Retention counts from now on."""
        for folder in kept:
            with suppress(OSError):
                os.utime(folder)
        self.clear(task_id, inherited, kept)

    def clear_if_done(self, task_id: str, inherited: str | None = None) -> None:
        """Remove the workspaces of a task that has a result, except what it keeps by that.

        A result that was not written here does not say so. Then only what is seen to be empty is removed.
        """
        try:
            result = read_json(self._places.result(task_id))
        except (FileNotFoundError, BadInput):
            return
        if result.get("status") in KEPT_AFTER:
            return
        folders, kept = self.folders(task_id, inherited), result.get("kept")
        if isinstance(kept, list):
            keep = [folder for folder in folders if str(folder) in kept]
        else:
            keep = [folder for folder in folders if work.at_a_glance(folder, is_clone=False)]
        self.clear(task_id, inherited, keep)

    def clear(self, task_id: str, inherited: str | None = None, kept: Collection[Path] = ()) -> None:
        """Remove a task's workspaces except these, and end the git call that was making one."""
        self._fresh.discard(task_id)
        if (git := self._runs.pop(task_id, None)) is not None:
            git.child.kill()
            git.child.wait()
        self._log(task_id).unlink(missing_ok=True)
        for folder in self.folders(task_id, inherited):
            self.forget(folder)
            if folder not in kept:
                remove_tree(self._disk, folder)

    def folders(self, task_id: str, inherited: str | None) -> list[Path]:
        """Return a task's own workspace, and the one in which it went on."""
        own = self._folder / task_id
        asked = None if inherited is None else self._own_workspace(Path(inherited))
        return [folder for folder in (own, asked) if folder is not None and is_there(folder)]

    def _places_of_earlier(self, task_id: str) -> Iterator[Path]:
        return (self._folder / f"{task_id}{EARLIER}{number}" for number in count(1))

    def _holds_work(self, task: Task, folder: Path) -> bool | None:
        """Return whether a workspace holds work, once that is known."""
        if folder in self._known:
            return self._known[folder]
        if (search := self._searches.get(folder)) is not None:
            code = search.child.poll()
            if code is None and time.monotonic() < search.until:
                return None
            self._end_search(folder)
            holds = code != 0
        else:
            glance = work.at_a_glance(folder, is_clone=task.repo is not None)
            if glance is None and self._begin_search(task, folder):
                return None
            holds = glance is not False
        self._known[folder] = holds
        return holds

    def _begin_search(self, task: Task, folder: Path) -> bool:
        """Let a child compare a clone with the mirror. Return whether it has begun."""
        mirror, index = self._mirror(str(task.repo)), self._index(folder)
        variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        command = [sys.executable, "-P", "-m", work.__name__, str(mirror), str(folder), str(index)]
        try:
            child = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=variables, start_new_session=True)
        except OSError:
            return False
        self._exits.watch(child.pid)
        self._searches[folder] = WorkSearch(child, time.monotonic() + work.SECONDS + 1)
        return True

    def _end_search(self, folder: Path) -> None:
        """End what still searches a workspace."""
        if (search := self._searches.pop(folder, None)) is not None and search.child.poll() is None:
            os.killpg(search.child.pid, signal.SIGKILL)
            search.child.wait()

    def forget(self, folder: Path) -> None:
        """Forget what is known of the work in a workspace: it goes, or a soldier works in it once more."""
        self._end_search(folder)
        self._known.pop(folder, None)
        work.remove_index(self._index(folder))

    def _clone(self, task: Task, repo: str, workspace: Path) -> Path | None:
        """Mirror or refresh it, then clone from it: one child at a time for a task, one task at a time for a mirror."""
        mirror = self._mirror(repo)
        git = self._runs.get(task.id)
        if git is not None:
            if git.child.poll() is None:
                return None
            del self._runs[task.id]
            self._finish(task.id, repo, git)
            if git.target == _unfinished(workspace):
                return workspace
        if any(git.mirror == mirror for git in self._runs.values()):
            return None
        if not mirror.is_dir():
            target = _unfinished(mirror)
            self._git(task.id, mirror, target, "clone", "--quiet", "--mirror", "--", self._source(repo), str(target))
        elif task.id not in self._fresh:
            # From where the rules say today: the mirror's own idea of it may be from other days.
            fetch = ("fetch", "--prune", "--force", "--", self._source(repo), "+refs/*:refs/*")
            self._git(task.id, mirror, None, "-C", str(mirror), *fetch)
        else:
            target = _unfinished(workspace)
            self._git(
                task.id, mirror, target, "clone", "--quiet", "--shared", "--template=", "--", str(mirror), str(target)
            )
        return None

    def _finish(self, task_id: str, repo: str, git: GitRun) -> None:
        """Give what a child has made its name, now that it is whole. NoWorkspace when the child failed."""
        if git.child.returncode != 0:
            why = self._git_output(task_id) or f"git ended with code {git.child.returncode}"
            raise NoWorkspace(repo=repo, why=f"{why}{self._hint(repo)}")
        if git.target is not None:
            self._disk.move(git.target, git.target.with_suffix(""))
        self._fresh.add(task_id)

    def _git(self, task_id: str, mirror: Path, target: Path | None, *arguments: str) -> None:
        if target is not None:
            shutil.rmtree(target, ignore_errors=True)
            make_folder(target.parent)
        environment = {**os.environ, **SAFE_ENVIRONMENT}
        with open(self._log(task_id), "wb") as log:
            try:
                child = Popen(
                    [*SAFE_GIT, *_KEEP_OBJECTS, *arguments],
                    stdin=DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise NoWorkspace(repo=arguments[-1], why="git is not installed") from None
        self._exits.watch(child.pid)
        self._runs[task_id] = GitRun(child, mirror, target)

    def _source(self, repo: str) -> str:
        """Return where a repository is cloned from. Its name comes from outside: it is checked, never mended."""
        if (known := self.rules["known"].get(repo)) is not None:
            if str(known).startswith("/") and not os.path.exists(known):
                raise NoWorkspace(repo=repo, why=f"{KNOWN} of {CONFIG} names {known}, and it does not exist")
            return str(known)
        if not _REPO.fullmatch(repo):
            raise NoWorkspace(repo=repr(repo), why="that is not the name of a repository (owner/name)")
        return str(self.rules["url"]).replace("{repo}", repo)

    def _hint(self, repo: str) -> str:
        if repo in self.rules["known"]:
            return f"; its address is set in {CONFIG}, {KNOWN}"
        return f"; if it lies elsewhere, name its path or URL in {CONFIG}: `repositories: {{known: {{{repo}: …}}}}`"

    def _mirror(self, repo: str) -> Path:
        return self._mirrors / f"{as_filename(repo)}.git"

    def _log(self, task_id: str) -> Path:
        return self._mirrors / f"{task_id}.log"

    def _index(self, folder: Path) -> Path:
        """Return where the search of a workspace has its index."""
        return self._mirrors / f"{folder.name}.index"

    def _git_output(self, task_id: str) -> str:
        try:
            return self._log(task_id).read_text("utf-8", "replace").strip()[-500:]
        except OSError:
            return ""

    def _own_workspace(self, path: Path) -> Path | None:
        """Return a path from a checkpoint when it is a workspace of this very general, else None."""
        try:
            expected = self._places.workspace(self._general, path.name)
        except BadName:
            return None
        return expected if path == expected and expected.is_dir() else None


def _workspace_of(asked: Checkpoint | None) -> str | None:
    return str(asked.workspace) if asked and asked.workspace else None


def _unfinished(path: Path) -> Path:
    """Return where something is made before it is whole; no reader looks at such names."""
    return path.with_name(f"{path.name}.tmp")
