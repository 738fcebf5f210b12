"""The ground a soldier stands on: a shared clone of its repository, or an empty folder.

Clones and fetches are children that the general does not wait for. No hook of anybody's runs in a git call of ours.
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

from kingdom.disk.atomic import Disk, make_folder
from kingdom.disk.codec import read_json
from kingdom.errors import BadFile, BadInput, BadName, KingdomError
from kingdom.home.places import Places, as_filename
from kingdom.records.messages import Task
from kingdom.soldiers.cleanup import clear_away

CONFIG, KNOWN = "config/general.yaml", "repositories.known"
KEPT_AFTER = ("failed", "needs_human")
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.fsmonitor=false")
_GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


class NoGround(KingdomError):
    """no workspace for {repo}: {why}"""


@dataclass(frozen=True, slots=True)
class Step:
    """A git call under way, and the folder that it makes."""

    child: Popen[bytes]
    mirror: Path
    makes: Path | None


class Ground:
    """All workspaces of one general. Mirrors are kept between tasks, so that a clone costs next to nothing."""

    def __init__(self, places: Places, general: str, disk: Disk, rules: Mapping[str, Any]) -> None:
        self._places = places
        self._general = general
        self._disk = disk
        self.rules = rules
        self._steps: dict[str, Step] = {}
        self._fresh: set[str] = set()

    def ready(self, task: Task, kept: str | None) -> Path | None:
        """The workspace; None while a child is still preparing it. NoGround when it cannot be had.

        A resumed task stands where its question was asked, if that ground was kept.
        """
        if kept is not None and (ground := self._own(Path(kept))):
            return ground
        workspace = self._places.workspace(self._general, task.id)
        if workspace.is_dir():
            return workspace
        if task.repo is None:
            make_folder(workspace)
            return workspace
        return self._clone(task, task.repo, workspace)

    def kept(self, task: Task) -> str | None:
        """Where a resumed task goes on: where its question was asked."""
        original = task.payload.get("original_task_id")
        if task.type != "resume" or not isinstance(original, str):
            return None
        try:
            return str(read_json(self._places.checkpoint(original))["workspace"])
        except (FileNotFoundError, KeyError, BadInput):
            return None

    def clear_if_done(self, task_id: str, kept: str | None = None) -> None:
        """Nobody will look at it or go on there: the task has ended, and neither failed nor asked."""
        try:
            if read_json(self._places.result(task_id)).get("status") not in KEPT_AFTER:
                self.clear(task_id, kept)
        except (FileNotFoundError, BadInput):
            return

    def clear(self, task_id: str, kept: str | None = None) -> None:
        """Removed when nobody needs it any more."""
        self._fresh.discard(task_id)
        if (step := self._steps.pop(task_id, None)) is not None:
            step.child.kill()
            step.child.wait()
        self._log(task_id).unlink(missing_ok=True)
        clear_away(self._disk, self._places.workspace(self._general, task_id))
        if kept is not None and (ground := self._own(Path(kept))):
            clear_away(self._disk, ground)

    def _clone(self, task: Task, repo: str, workspace: Path) -> Path | None:
        """Mirror or refresh it, then clone from it: one child at a time for a task, one task at a time for a mirror."""
        mirror = self._mirror(repo)
        step = self._steps.get(task.id)
        if step is not None:
            if step.child.poll() is None:
                return None
            del self._steps[task.id]
            self._finish(task.id, repo, step)
            if step.makes == _half(workspace):
                return workspace
        if any(each.mirror == mirror for each in self._steps.values()):
            return None
        if not mirror.is_dir():
            half = _half(mirror)
            self._git(task.id, mirror, half, "clone", "--mirror", "--", self._source(repo), str(half))
        elif task.id not in self._fresh:
            # From where the rules say today: the mirror's own idea of it may be from other days.
            words = ("fetch", "--prune", "--force", "--", self._source(repo), "+refs/*:refs/*")
            self._git(task.id, mirror, None, "-C", str(mirror), *words)
        else:
            half = _half(workspace)
            self._git(task.id, mirror, half, "clone", "--shared", "--template=", "--", str(mirror), str(half))
        return None

    def _finish(self, task_id: str, repo: str, step: Step) -> None:
        """What a child made takes its name only when it is whole."""
        if step.child.returncode != 0:
            said = self._said(task_id) or f"git ended with code {step.child.returncode}"
            raise NoGround(repo=repo, why=f"{said}{self._hint(repo)}")
        if step.makes is not None:
            self._disk.move(step.makes, step.makes.with_suffix(""))
        self._fresh.add(task_id)

    def _git(self, task_id: str, mirror: Path, makes: Path | None, *words: str) -> None:
        if makes is not None:
            shutil.rmtree(makes, ignore_errors=True)
            make_folder(makes.parent)
        environment = {**os.environ, **_GIT_ENVIRONMENT}
        with open(self._log(task_id), "wb") as said:
            try:
                child = Popen(
                    [*_GIT, *words], stdin=DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
                )
            except FileNotFoundError:
                raise NoGround(repo=words[-1], why="git is not installed") from None
        self._steps[task_id] = Step(child, mirror, makes)

    def _source(self, repo: str) -> str:
        """Where a repository is cloned from. Its name comes from outside, so it is checked, never mended."""
        if (known := self.rules["known"].get(repo)) is not None:
            if str(known).startswith("/") and not os.path.exists(known):
                raise NoGround(repo=repo, why=f"there is no {known}, and that is where {KNOWN} of {CONFIG} sends us")
            return str(known)
        if not _REPO.fullmatch(repo):
            raise NoGround(repo=repr(repo), why="that is no name of a repository (owner/name)")
        return str(self.rules["url"]).replace("{repo}", repo)

    def _hint(self, repo: str) -> str:
        if repo in self.rules["known"]:
            return f"; its address stands in {CONFIG}, {KNOWN}"
        return f"; if it lies elsewhere, name its path or URL in {CONFIG}: `repositories: {{known: {{{repo}: …}}}}`"

    def _mirror(self, repo: str) -> Path:
        self._source(repo)
        return self._places.mirrors(self._general) / f"{as_filename(repo)}.git"

    def _log(self, task_id: str) -> Path:
        folder = self._places.mirrors(self._general)
        make_folder(folder)
        return folder / f"{task_id}.log"

    def _said(self, task_id: str) -> str:
        try:
            return self._log(task_id).read_text("utf-8", "replace").strip()[-500:]
        except (OSError, BadFile):
            return ""

    def _own(self, path: Path) -> Path | None:
        """A path from a checkpoint is used only when it is a workspace of this very general."""
        try:
            expected = self._places.workspace(self._general, path.name)
        except BadName:
            return None
        return expected if path == expected and expected.is_dir() else None


def _half(path: Path) -> Path:
    """Where something is made before it is whole; no reader looks at such names."""
    return path.with_name(f"{path.name}.tmp")
