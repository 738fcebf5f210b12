"""A sandbox with a hole in it is noticed: every wall is left out once, and the check that it is for must see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults import mutants, oracle, trees
from tests.faults.changes import body, drop, replace
from tests.faults.mutants import Check, Mutant
from tests.faults.sandbox import rigs, test_breakout, test_chroot, test_injection, test_printed, test_resources
from tests.faults.sandbox.rigs import Rig
from tests.machine import needs_sandbox

PLACES = "kingdom.base.home.places"

MUTANTS = [
    Mutant(
        "no Landlock",
        "kingdom.court.soldier.sandbox:enter",
        replace("_landlock_version() >= 1", "False"),
        "breakout",
        quick=True,
    ),
    Mutant(
        "no view of its own",
        "kingdom.court.soldier.sandbox:enter",
        replace("not _mount_read_only(A) and B", "False"),
        "breakout",
    ),
    Mutant("calls go unfiltered", "kingdom.court.soldier.sandbox", drop("_filter_calls"), "breakout"),
    Mutant("leases may be taken", "kingdom.court.soldier.sandbox", replace("calls.fcntl", "0x3FFFFFFF"), "breakout"),
    Mutant(
        "descriptors may signal others",
        "kingdom.court.soldier.sandbox",
        replace("(fcntl.F_SETLEASE, A, B, C)", "(fcntl.F_SETLEASE,)"),
        "breakout",
    ),
    Mutant(
        "sockets may signal others",
        "kingdom.court.soldier.sandbox",
        replace("(_FIOSETOWN, _SIOCSPGRP)", "()"),
        "breakout",
    ),
    Mutant(
        "a namespace may be made by a new process",
        "kingdom.court.soldier.sandbox",
        replace("calls.clone", "0x3FFFFFFF"),
        "breakout",
    ),
    Mutant(
        "a namespace may be made by the newest call",
        "kingdom.court.soldier.sandbox",
        replace("calls.clone3", "0x3FFFFFFF"),
        "breakout",
    ),
    Mutant(
        "a namespace may be entered",
        "kingdom.court.soldier.sandbox",
        replace("calls.unshare", "0x3FFFFFFF"),
        "breakout",
    ),
    Mutant(
        "sockets of every family",
        "kingdom.court.soldier.sandbox",
        replace("calls.socket", "0x3FFFFFFF"),
        "breakout",
    ),
    Mutant(
        "the root of a chroot is left as it is",
        "kingdom.court.soldier.sandbox:_mount_read_only",
        replace("_keep_mounts_private() or _mount_root()", "True"),
        "chroot",
    ),
    Mutant(
        "a mount of a chroot is seen by all",
        "kingdom.court.soldier.sandbox:_mount_from_outside",
        replace("not _keep_mounts_private()", "False"),
        "chroot",
    ),
    Mutant("root keeps its privileges", "kingdom.court.soldier.sandbox", drop("_drop_privileges"), "breakout"),
    Mutant("secrets may be read", PLACES, replace("names_in(self.home)", "()"), "breakout"),
    Mutant("all of state/ may be read", PLACES, replace("(yield self.state)", "None"), "breakout"),
    Mutant("all of queue/ may be read", PLACES, replace("(yield self.queue)", "None"), "breakout"),
    Mutant("backups may be read", PLACES, replace("(yield from self.known_backups())", "None"), "breakout"),
    Mutant(
        "what others are at may be read",
        PLACES,
        replace("(yield from (self.workspaces, self.session_logs))", "None"),
        "breakout",
    ),
    Mutant(
        "other kingdoms may be read",
        "kingdom.court.soldiers.neighbours",
        replace("other.is_there", "False"),
        "breakout",
    ),
    Mutant(
        "other projects' secrets may be read",
        "kingdom.court.soldiers.neighbours",
        replace("(A for name in ENVS if B)", "()"),
        "breakout",
    ),
    Mutant(
        "the machine's passwords may be read",
        "kingdom.court.soldiers.neighbours",
        replace("map(Path, OF_MACHINE)", "()"),
        "breakout",
    ),
    Mutant(
        "keys of the owner may be read", "kingdom.court.soldiers", replace("_secrets_of_owner(A)", "()"), "breakout"
    ),
    Mutant(
        "a link is another way in",
        "kingdom.court.soldier.sandbox",
        replace("A.add(os.path.realpath(B) if C else D)", "A.add(B)"),
        "linked",
    ),
    Mutant(
        "the whole environment is passed on",
        "kingdom.court.soldiers.prepare",
        replace("{A: B[A] for A in C if A in B}", "{A: B[A] for A in B}"),
        "breakout",
    ),
    Mutant(
        "markers that can be guessed",
        "kingdom.court.soldiers.prepare",
        replace("A.token_hex(8)", '"0" * 16'),
        "injection",
    ),
    Mutant("no markers", "kingdom.court.soldiers.prompt:_data", body("return text or boundary"), "injection"),
    Mutant(
        "what a soldier left behind lives on", "kingdom.court.soldier.serve:_end_tree", body("return 0"), "survivors"
    ),
    Mutant("orphans are not adopted", "kingdom.court.soldier.serve", drop("adopt_orphans"), "survivors"),
    Mutant(
        "no soldier is in a cgroup",
        "kingdom.court.soldier.serve:_launched",
        replace("A.cgroup.open()", "None"),
        "hidden",
    ),
    Mutant(
        "all of a soldier are ended at once",
        "kingdom.base.runtime.processes:end",
        replace("_under(A)", "set()"),
        "cancel",
    ),
    Mutant(
        "mounts do not mark a soldier",
        "kingdom.base.runtime.processes",
        replace("A or markers.mount in B", "A"),
        "mounted",
    ),
    Mutant(
        "what it printed is kept as it is",
        "kingdom.court.soldiers.streams:_repair",
        drop("_hide"),
        "printed",
        quick=True,
    ),
    Mutant(
        "what a killed one printed is kept as it is",
        "kingdom.court.general.context",
        drop("streams.repair"),
        "printed, killed",
    ),
    Mutant(
        "a role does not beat", "kingdom.base.runtime.role", replace("A.heartbeat.write(B, worked=C)", "None"), "beside"
    ),
    Mutant("nobody watches", "kingdom.court.soldier.serve", replace("A.exceeded()", "None"), "bomb"),
    Mutant(
        "only single processes are watched",
        "kingdom.court.soldier",
        replace("A > self._limits['cpu_seconds']", "False"),
        "spinners",
    ),
]


def fresh(check: Callable[[Rig], list[str]], **config: dict[str, Any]) -> Check:
    def checked(tree: Path, near: str) -> list[str]:
        home = trees.new_folder() / "home"
        home.mkdir(mode=0o700)
        return check(rigs.build(home, tree, **config))

    return checked


def linked(tree: Path, near: str) -> list[str]:
    folder = trees.new_folder()
    (folder / "real").mkdir(mode=0o700)
    (folder / "linked").symlink_to(folder / "real")
    return test_breakout.break_out(rigs.build(folder / "linked", tree))


def without_cgroups(check: Check) -> Check:
    """On a machine that has no control groups: what they would catch must be caught without them."""

    def checked(tree: Path, near: str) -> list[str]:
        cgroup = tree / "kingdom/base/runtime/cgroup.py"
        cgroup.write_text(cgroup.read_text().replace('_GROUPS = "/sys/fs/cgroup"', '_GROUPS = "/nowhere"'))
        trees.compile_file(cgroup)
        return check(tree, near)

    return checked


CHECKS: dict[str, Check] = {
    "breakout": fresh(test_breakout.break_out),
    "linked": linked,
    "chroot": lambda tree, near: test_chroot.check_chroot(trees.new_folder(), tree),
    "survivors": without_cgroups(
        fresh(lambda rig: test_breakout.check_survivors(rig, "an orphan without its environment"))
    ),
    "hidden": fresh(lambda rig: test_breakout.check_orphan(rig, test_breakout.by_its_death, sandbox="off")),
    "mounted": without_cgroups(fresh(lambda rig: test_breakout.check_orphan(rig, test_breakout.by_its_death))),
    "cancel": without_cgroups(
        fresh(lambda rig: test_breakout.check_orphan(rig, test_breakout.by_a_cancel, sandbox="off"))
    ),
    "injection": fresh(lambda rig: test_injection.obey(rig, test_injection.texts()[:20])),
    "printed": fresh(lambda rig: test_printed.check_printed(rig, "without a result", sandbox="off")),
    "printed, killed": fresh(
        lambda rig: test_printed.check_printed(rig, "by the death of its serving part", sandbox="off")
    ),
    "beside": fresh(test_breakout.check_disturbance, **test_breakout.ROLES),
    "bomb": fresh(lambda rig: test_resources.check_hog("a fork bomb", rig)[1]),
    "spinners": fresh(lambda rig: test_resources.check_hog("short lives that spin", rig)[1]),
}

_caught: list[bool] = []


@needs_sandbox
@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_hole_in_the_sandbox_is_seen(mutant: Mutant) -> None:
    caught = mutants.is_caught(mutant, CHECKS[mutant.caught_by])
    _caught.append(caught)
    assert caught, f"{mutant.caught_by} does not see that {mutant.name}"


@needs_sandbox
def test_without_cgroups_nothing_of_a_soldier_outlives_its_task_either() -> None:
    tree = trees.new_folder()
    trees.copy_program(trees.program(), tree)
    assert CHECKS["survivors"](tree, "") == []
    assert '"/nowhere"' in (tree / "kingdom/base/runtime/cgroup.py").read_text()


def test_the_score(figure: oracle.Figure) -> None:
    figure(f"holes in the sandbox seen: {sum(_caught)} of {len(_caught)}")
