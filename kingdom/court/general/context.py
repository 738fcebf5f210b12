"""What the parts of one general share: its services, configuration, manifest, budgets and workspaces."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import Version, version
from kingdom.base.errors import BadConfig, BadInput, NoSuchThing
from kingdom.base.home import config, manifests
from kingdom.base.home.places import Places, check_name
from kingdom.base.records.messages import Result, Task
from kingdom.base.records.sessions import Sessions
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.soldiers import streams
from kingdom.court.soldiers.budgets import Budgets
from kingdom.court.soldiers.handle import SoldierHandle
from kingdom.court.soldiers.workspace import Workspaces


class TaskEnding(NamedTuple):
    """A task whose result is to be written."""

    task: Task
    soldier: SoldierHandle
    result: Result
    #: The workspace that the task went on in.
    inherited: str | None
    #: Its workspaces that are not removed.
    kept: Collection[Path]


class Steps(NamedTuple):
    """How the tasks of a general go on for which no soldier is started: a product does the work."""

    #: The folder that is changed by what a general has to know.
    news: Callable[[Places], Path]
    #: Do what is next. True when the task has ended, False when more was done, None when nothing.
    take: Callable[[GeneralContext, Task, SoldierHandle], bool | None]


class GeneralContext:
    def __init__(self, services: Services) -> None:
        self.name = check_name("general", services.name)
        self.budgets = Budgets(services.places, services.disk, services.log, {})
        self.workspaces = Workspaces(services.places, self.name, services.unsynced, services.exits, {})
        self.sessions = Sessions(services.places, services.unsynced)
        self._handles: dict[str, SoldierHandle] = {}
        self.endings: list[TaskEnding] = []
        """Tasks that end in this turn: their results are written together."""
        self.take_over(services)
        seen = version(services.places.manifest(self.name))
        try:
            self.manifest = manifests.of(services.places, self.name)
        except NoSuchThing as error:  # perhaps for a moment
            path = services.places.manifest(self.name)
            raise BadConfig(path=path, line="", key="the file", why=str(error)) from None
        self._note_manifest(seen)

    def take_over(self, services: Services) -> None:
        """Use new configuration, all of it or nothing: what can be wrong is read first."""
        king = config.load(services.places, "king")
        self.king_config = king
        self.services = services
        self.config = services.config
        self.budgets.rules = {**services.config["budgets"], **services.config["quota"]}
        self.workspaces.rules = services.config["repositories"]

    def reread_manifest(self) -> None:
        """Read the manifest again when its file has changed. One that is broken is logged, and the old one kept."""
        seen = version(self.services.places.manifest(self.name))
        if seen == self._manifest_seen:
            return
        try:
            self.manifest = manifests.of(self.services.places, self.name)
        except OSError as error:
            # Not what it says, but the disk or a lease: the next look tries again.
            self.services.log.error(f"keeps its old manifest: {error}")
            return
        except (BadConfig, NoSuchThing) as error:
            self.services.log.error(f"keeps its old manifest: {error}")
        self._note_manifest(seen)

    @property
    def steps(self) -> Steps | None:
        """How its tasks go on without soldiers; None where soldiers work on them."""
        row = wings.steps().get(str(self.manifest.engine))
        return None if row is None else tables.load(row)

    def handle(self, task_id: str) -> SoldierHandle:
        """Return the handle of a task's soldier: the same one until what the soldier left is removed."""
        if task_id not in self._handles:
            self._handles[task_id] = SoldierHandle(self.services.places, self.name, task_id)
        return self._handles[task_id]

    def now(self) -> str:
        return stamp(self.services.clock())

    def end(self, soldier: SoldierHandle) -> None:
        """Kill what is left of a soldier, and do with what it printed as its serving process would have done."""
        soldier.kill()
        if soldier.order is not None:
            streams.repair(soldier.order, self.services.secrets.values())

    def dismiss(self, soldier: SoldierHandle) -> None:
        """Take an ended soldier off the list of those that run, and remove what it leaves."""
        self._handles.pop(soldier.task, None)
        self.sessions.remove(soldier.task)
        soldier.clear(self.services.unsynced)

    def work_left(self, task: Task) -> list[Path] | None:
        """Return the workspaces in which an ended task has left work; None while that is being found out."""
        return self.workspaces.left(task, self.workspaces.inherited(task))

    def clear_traces(self, soldier: SoldierHandle, inherited: str | None, kept: Collection[Path] | None = None) -> None:
        """Remove what an ended task leaves, the control folder last: while it is there, a restart clears the rest.

        Its workspaces go, but those that are `kept`; by its result where that is not known. The one in which its
        question was asked stays while another unfinished task goes on there.
        """
        self._handles.pop(soldier.task, None)
        if inherited is not None and self._goes_on(inherited, soldier.task):
            inherited = None
        if kept is None:
            self.workspaces.clear_if_done(soldier.task, inherited)
        else:
            self.workspaces.keep(soldier.task, inherited, kept)
        if soldier.left_traces():
            self.dismiss(soldier)

    def _goes_on(self, workspace: str, ended: str) -> bool:
        """Return whether an unfinished task, other than the one that has ended, goes on in a workspace."""
        tasks = self.services.queues.tasks
        for state in ("pending", "in_progress"):
            for id in tasks.ids(state):
                with suppress(FileNotFoundError, BadInput):
                    if id != ended and self.workspaces.inherited(tasks.read(state, id)) == workspace:
                        return True
        return False

    def _note_manifest(self, seen: Version) -> None:
        self._manifest_seen = seen
        in_use: manifests.Versions = {} if seen is None else {self.name: seen}
        manifests.note_in_use(self.services.places, self.services.unsynced, self.name, in_use)
