"""A cage with a hole in it is noticed: every wall is left out once, and the check that it is for must see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import mutants, oracle, trees
from tests.faults.cage import cells, test_breakout, test_injection, test_resources
from tests.faults.cage.cells import Cell
from tests.faults.mutants import Check, Mutant

CAGE, SERVE, WATCH = (f"kingdom/soldier/{name}.py" for name in ("cage", "serve", "watch"))
OUTFIT, PROMPT, PLACES = "kingdom/soldiers/order.py", "kingdom/soldiers/prompt.py", "kingdom/home/places.py"

MUTANTS = [
    Mutant(
        "no Landlock",
        CAGE,
        "        if _landlock_version() >= 1:\n",
        "        if False:\n",
        "breakout",
        quick=True,
    ),
    Mutant("no view of its own", CAGE, '        _see_read_only(order["may_write"])\n', "", "breakout"),
    Mutant("calls go unfiltered", CAGE, "        _filter_calls()\n", "", "breakout", quick=True),
    Mutant("root keeps its privileges", CAGE, "        _drop_privileges()\n", "", "breakout"),
    Mutant("secrets may be read", PLACES, "        yield from (self.env_file, ", "        yield from (", "breakout"),
    Mutant("locks may be taken", PLACES, "*self.locks(), ", "", "breakout"),
    Mutant(
        "camps may be read",
        PLACES,
        "        yield from (camp for camp in self.control_folders() if camp != self.control_folder(general, task))\n",
        "",
        "breakout",
    ),
    Mutant(
        "what others are at may be read",
        PLACES,
        "        yield from (self.workspaces, self.soldiers, self.prompts, self.results, self.session_logs)\n",
        "",
        "breakout",
    ),
    Mutant("keys of the owner may be read", OUTFIT, "*_keys())", ")", "breakout"),
    Mutant("a link to the home is forgotten", CAGE, "*(os.path.realpath(path) for path in may_not_read)", "", "linked"),
    Mutant(
        "the whole environment is passed on",
        OUTFIT,
        "in (*PASSED_ON, *manifest.env) if name in ours",
        "in ours",
        "breakout",
    ),
    Mutant("markers that can be guessed", OUTFIT, "dice.token_hex(8)", '"0" * 16', "injection"),
    Mutant(
        "no markers",
        PROMPT,
        '    return f"<data {boundary}> (',
        '    return text or f"<data {boundary}> (',
        "injection",
    ),
    Mutant(
        "what a soldier left behind lives on",
        SERVE,
        "def _end_tree() -> None:\n",
        "def _end_tree() -> None:\n    return\n",
        "survivors",
    ),
    Mutant("orphans are not adopted", SERVE, "    cage.adopt_orphans()\n", "", "survivors"),
    Mutant("nobody is penned", SERVE, "        cgroup.join()\n", "", "hidden"),
    Mutant("nobody watches", SERVE, "(excess := watch.excess()) is not None", "(excess := None) is not None", "bomb"),
    Mutant(
        "only single processes are watched",
        WATCH,
        "        if worked > ",
        "        if False and worked > ",
        "spinners",
    ),
]


def fresh(check: Callable[[Cell], list[str]]) -> Check:
    def checked(tree: Path, near: str) -> list[str]:
        home = trees.new_folder() / "home"
        home.mkdir(mode=0o700)
        return check(cells.build(home, tree))

    return checked


def linked(tree: Path, near: str) -> list[str]:
    folder = trees.new_folder()
    (folder / "real").mkdir(mode=0o700)
    (folder / "linked").symlink_to(folder / "real")
    return test_breakout.break_out(cells.build(folder / "linked", tree))


def unpenned(check: Check) -> Check:
    """On a machine that has no control groups: what they would catch must be caught without them."""

    def checked(tree: Path, near: str) -> list[str]:
        cgroup = tree / "kingdom/runtime/cgroup.py"
        cgroup.write_text(cgroup.read_text().replace('_GROUPS = "/sys/fs/cgroup"', '_GROUPS = "/nowhere"'))
        trees.compile_file(cgroup)
        return check(tree, near)

    return checked


CHECKS: dict[str, Check] = {
    "breakout": fresh(test_breakout.break_out),
    "linked": linked,
    "survivors": unpenned(fresh(lambda cell: test_breakout.check_survivors(cell, "an orphan without its environment"))),
    "hidden": fresh(test_breakout.check_orphan_of_the_dead),
    "injection": fresh(lambda cell: test_injection.obey(cell, test_injection.texts()[:20])),
    "bomb": fresh(lambda cell: test_resources.check_hog("a fork bomb", cell)[1]),
    "spinners": fresh(lambda cell: test_resources.check_hog("short lives that spin", cell)[1]),
}

_caught: list[bool] = []


@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_hole_in_the_cage_is_seen(mutant: Mutant) -> None:
    caught = mutants.is_caught(mutant, CHECKS[mutant.caught_by])
    _caught.append(caught)
    assert caught, f"{mutant.caught_by} does not see that {mutant.name}"


def test_without_a_pen_nothing_of_a_soldier_outlives_its_task_either() -> None:
    tree = trees.new_folder()
    trees.copy_program(trees.program(), tree)
    assert CHECKS["survivors"](tree, "") == []
    assert '"/nowhere"' in (tree / "kingdom/runtime/cgroup.py").read_text()


def test_the_score(figure: oracle.Figure) -> None:
    figure(f"holes in the cage seen: {sum(_caught)} of {len(_caught)}")


def test_every_mutant_still_fits_the_program() -> None:
    for mutant in MUTANTS:
        mutants.defective(mutant)
