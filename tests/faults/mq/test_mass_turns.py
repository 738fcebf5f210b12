"""Row 32: whatever happens to very many messages at once, no turn is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import mutants, trees
from tests.faults.changes import constant, replace
from tests.faults.mutants import Mutant
from tests.faults.oracle import Figure

LONGEST_MS = 50.0
QUICK = ("10000", "memory", "wait_and_expire")
LONG = ("100000",)
ONE = {
    "sweep": ("20000", "memory", "wait_and_expire"),
    "reprocess": ("20000", "memory", "die_and_go_back"),
    "purge": ("100000", "sqlite", "die_and_go_back"),
    "delete queue": ("100000", "filesystem", "move_and_go"),
}


def turns(tree: Path, *words: str) -> dict[str, float]:
    """Return how many ms the longest turn took, for each event on each store."""
    path = f"{tree}:{trees.CHECKOUT}"
    ended = trees.run(
        tree, trees.new_folder(), ("-m", "tests.faults.mq.mass_turns", *words), timeout=3600, env={"PYTHONPATH": path}
    )
    assert ended.returncode == 0, ended.stderr[-1000:]
    lines = ended.stdout.splitlines()
    return {line.partition("ms  ")[2]: float(line.split()[0]) for line in lines}


def too_long(tree: Path, *words: str) -> list[str]:
    return [f"{ms} ms: {event}" for event, ms in turns(tree, *words).items() if ms > LONGEST_MS]


def test_no_turn_is_long(figure: Figure) -> None:
    words = LONG if trees.CAMPAIGN else QUICK
    found = turns(trees.program(), *words)
    if max(found.values()) > LONGEST_MS:  # by a pause of the machine, or by work: work is as long again
        again = turns(trees.program(), *words)
        found = {event: min(ms, again[event]) for event, ms in found.items()}
    for event, ms in found.items():
        figure(f"{event}: {ms} ms")
    assert not [event for event, ms in found.items() if ms > LONGEST_MS]


MUTANTS = [
    Mutant(
        "a sweep goes on until all is done",
        "kingdom.mq.budget:Budget.is_left",
        replace("self._changes > 0 and (A or B)", "True"),
        caught_by="sweep",
    ),
    Mutant(
        "what has expired is taken out in one go",
        "kingdom.mq.timers:Timers.take_expired",
        replace("budget.is_left() and (expired := A) is not None", "(expired := A) is not None"),
        caught_by="sweep",
    ),
    Mutant(
        "all dead letters go back in one turn",
        "kingdom.mq.dead_letters:Walk.go_on",
        replace("not budget.is_left()", "False"),
        caught_by="reprocess",
    ),
    Mutant(
        "what was logged goes into the database in one go",
        "kingdom.mq.stores.sqlite",
        constant("CHECKPOINT_PAGES", "20_000"),
        caught_by="purge",
    ),
    Mutant(
        "the large folder of a deleted queue is given back between two requests",
        "kingdom.base.disk.trash:Trash.delete",
        replace("_is_large(A)", "False"),
        caught_by="delete queue",
    ),
]


@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_an_unbounded_sweep_is_seen(mutant: Mutant) -> None:
    assert mutants.is_caught(mutant, lambda tree, _: too_long(tree, *ONE[mutant.caught_by]))
