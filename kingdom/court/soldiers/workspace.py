"""Workspaces of soldiers: a shared clone of the task's repository, or an empty folder.

Clones and fetches are children that the general does not wait for. Our git calls run no hooks.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.codec import read_bytes, read_json
from kingdom.base.errors import BadFile, BadInput, BadName, KingdomError
from kingdom.base.home.places import Places, as_filename
from kingdom.base.records import notes
from kingdom.base.records.messages import Checkpoint, Task
from kingdom.court.soldiers.cleanup import remove_tree

CONFIG, KNOWN = "config/general.yaml", "repositories.known"
KEPT_AFTER = ("failed", "needs_human")
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_BRANCH = re.compile(r"ref: refs/heads/[\w./-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
LONGEST_REF = 4096
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.fsmonitor=false")
_GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


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


class Workspaces:
    """All workspaces of one general. Mirrors are kept between tasks, so that a clone costs next to nothing."""

    def __init__(self, places: Places, general: str, disk: Disk, rules: Mapping[str, Any]) -> None:
        self._places = places
        self._folder = places.workspaces / general
        self._mirrors = places.mirrors(general)
        self._general = general
        self._disk = disk
        self.rules = rules
        self._runs: dict[str, GitRun] = {}
        self._fresh: set[str] = set()

    def prepare(self, task: Task, asked: Checkpoint | None) -> Path | None:
        """Return the workspace; None while a child is still making it. NoWorkspace says why it cannot be had.

        A resumed task goes on in the workspace in which its question was `asked`, if that is still there.
        """
        if (inherited := _workspace_of(asked)) is not None and (workspace := self._own_workspace(Path(inherited))):
            return workspace
        workspace = self._folder / task.id
        if workspace.is_dir():
            return workspace
        if task.repo is None:
            make_folder(workspace)
            return workspace
        return self._clone(task, task.repo, workspace)

    def inherited(self, task: Task) -> str | None:
        """Return the workspace of a resumed task: the one in which its question was asked."""
        return _workspace_of(notes.checkpoint_answered_by(self._places, task))

    def clear_if_done(self, task_id: str, inherited: str | None = None) -> None:
        """Remove the workspace of a task that has a result, unless it failed, asked, or made commits."""
        try:
            status = read_json(self._places.result(task_id)).get("status")
        except (FileNotFoundError, BadInput):
            return
        if status not in KEPT_AFTER and self.committed(task_id, inherited) is None:
            self.clear(task_id, inherited)

    def committed(self, task_id: str, inherited: str | None = None) -> Path | None:
        """Return the workspace in which a task, or the one whose question was answered, made commits; else None."""
        folders = [self._folder / task_id]
        if inherited is not None and (workspace := self._own_workspace(Path(inherited))):
            folders.append(workspace)
        return next((folder for folder in folders if _has_commits(folder)), None)

    def clear(self, task_id: str, inherited: str | None = None) -> None:
        """Remove a task's workspaces, and end the git call that was making one."""
        self._fresh.discard(task_id)
        if (git := self._runs.pop(task_id, None)) is not None:
            git.child.kill()
            git.child.wait()
        self._log(task_id).unlink(missing_ok=True)
        remove_tree(self._disk, self._folder / task_id)
        if inherited is not None and (workspace := self._own_workspace(Path(inherited))):
            remove_tree(self._disk, workspace)

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
        environment = {**os.environ, **_GIT_ENVIRONMENT}
        with open(self._log(task_id), "wb") as log:
            try:
                child = Popen(
                    [*_GIT, *arguments], stdin=DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
                )
            except FileNotFoundError:
                raise NoWorkspace(repo=arguments[-1], why="git is not installed") from None
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


def _has_commits(workspace: Path) -> bool:
    """Return whether the checked-out commit was made here: all others are objects of the mirror, which it shares.

    No git runs here: what the soldier has left in its configuration would run with it.
    """
    git = workspace / ".git"
    try:
        head = _line(git / "HEAD")
        if _BRANCH.fullmatch(head) and ".." not in head:
            head = _line(git / head.removeprefix("ref: "))
        return bool(_COMMIT.fullmatch(head)) and is_there(git / "objects" / head[:2] / head[2:])
    except (OSError, BadFile, UnicodeDecodeError):
        return False


def _line(path: Path) -> str:
    return read_bytes(path, LONGEST_REF).decode().strip()


def _unfinished(path: Path) -> Path:
    """Return where something is made before it is whole; no reader looks at such names."""
    return path.with_name(f"{path.name}.tmp")
