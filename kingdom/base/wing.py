"""The row of a product. What every home has loops over these rows, and knows no product by name.

Code is named as in other tables, "module:attribute", and loaded by the one loop that needs it. Annotations are no text
here (no `from __future__`): a NamedTuple would compile the text of each.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class RoleRow(NamedTuple):
    """One row of the process table. The name is the launcher's, and that of the state folder with the lock."""

    name: str
    #: What `python -m` runs, with this argument if any.
    module: str
    argument: str = ""
    #: system.yaml says whether it runs: its schema has a switch for it. The others always do.
    has_switch: bool = False
    #: What it is for, in a few words.
    serves: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        return ("-m", self.module, *([self.argument] if self.argument else []))


class Wing(NamedTuple):
    """One product. A field is empty where it has nothing of the kind."""

    #: Its roles.
    roles: tuple[RoleRow, ...] = ()
    #: The configuration whose `instances` names further processes of its roles.
    instances_in: str = ""
    #: The general that its roles work for: they run where it is installed, unless system.yaml says otherwise.
    works_for: str = ""
    #: `kingdom <name>`.
    commands: Mapping[str, str] = {}
    #: (places) -> `DoctorFinding`s of `kingdom doctor`.
    checks: str = ""
    #: (places, repair) -> `FsckFinding`s of `kingdom fsck` in files that only the product reads.
    inspections: tuple[str, ...] = ()
    #: Folders of a home that it needs, as paths in it.
    folders: tuple[str, ...] = ()
    #: (places) -> None: what else it needs there.
    furnish: str = ""
    #: `Check`s of `kingdom fsck`, which a backup holds to as well.
    invariants: str = ""
    #: `Rule`s of what is deleted when it is old.
    retention: str = ""
    #: `Copies`: how a backup copies it.
    copies: str = ""
    #: (places) -> what its roles say of themselves, by key.
    figures: str = ""
    #: (figures) -> the section of `kingdom status`.
    shown: str = ""
    #: `Metric`s by name.
    metrics: str = ""
    #: Channels of the envoy. They are on where all roles of the product are.
    channels: Mapping[str, str] = {}
    #: (places, id) -> stories of `kingdom why` about what the product calls by this id.
    stories: str = ""
    #: By engine: the `Steps` of tasks for which no soldier is started.
    steps: Mapping[str, str] = {}
    #: (reasons, task) -> what a task in progress waits for or who works on it, if the product has it; else None.
    has_task: str = ""
    #: (reasons) -> what keeps all messages from being posted, if anything.
    keeps_messages: str = ""
    #: (places, is_logged) -> the last lines of `kingdom up`, where its first role is switched on.
    greeting: str = ""


class DoctorFinding(NamedTuple):
    """One line of `kingdom doctor`."""

    #: ok, warn or bad.
    level: str
    what: str
    sentence: str
    next_step: str = ""


class FsckFinding(NamedTuple):
    """One finding of `kingdom fsck`: what is wrong, the rule that it breaks, and what mends it."""

    check: str
    rule: str
    path: Path
    what: str
    repair: str
    repaired: bool = False
    #: Why it could not be repaired.
    failed: str = ""
