"""A file is broken, then mended, while roles start and stop: nothing is discarded, and all goes on by itself."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import one_of
from tests.faults.watch.turmoil import (
    ASKER,
    FILES,
    QUICK_ROLES,
    ROLES,
    Turmoil,
    kinds_of,
    turmoil,
)

SEED = int(os.environ.get("KINGDOM_SEED", "39"))
WITHIN = 10.0
"""What is promised on a machine that does nothing besides."""
AT_MOST = 60.0
"""When a trial is given up."""


class Trial(NamedTuple):
    file: str
    kind: str
    #: Those that are killed while the file is broken; others are killed or stopped.
    roles: tuple[str, ...]


QUICK = (
    Trial(f"config/generals/{ASKER}.yaml", "missing", ("king", ASKER)),
    Trial("config/king.yaml", "unreadable", ("king",)),
    Trial("config/system.yaml", "bad_value", ("chamberlain", "king")),
)


def drawn(dice: random.Random) -> list[Trial]:
    """Every file with every role, each with a kind of damage, in random order."""
    kinds: dict[str, Iterator[str]] = {}
    for file in FILES:
        kinds[file] = cycle(dice.sample(kinds_of(file), len(kinds_of(file))))
    trials = [Trial(file, next(kinds[file]), (role,)) for file in FILES for role in ROLES]
    dice.shuffle(trials)
    return trials[trees.PART - 1 :: trees.PARTS]


def go_through(court: Turmoil, trial: Trial, at_most: float, patiently: bool) -> tuple[float, list[str]]:
    """Break the file, let roles come and go while work arrives, and mend it.

    Return the seconds until all is done, and what was not when it should have been. `patiently` lets the roles of the
    trial meet the broken file; else it may be mended before.
    """
    court.arrive()
    court.arrive("ask")
    court.damage(trial.file, trial.kind)
    court.pause(0.5)
    others = court.dice.sample(sorted({*court.roles} - {*trial.roles}), court.dice.randrange(3))
    stopped = []
    for role in (*trial.roles, *others):
        if role in trial.roles or court.dice.random() < 0.5:
            court.kill(role)
        else:
            court.stop(role)
            if court.dice.random() < 0.5:
                court.start(role)
            else:
                stopped.append(role)
        for question in court.open_questions():
            court.answer(question)
        court.arrive()
        court.pause(1.5)
    if patiently:
        trees.until(lambda: all(court.has_come_back(role) for role in trial.roles), WITHIN)
    court.mend(trial.file)
    for role in stopped:
        court.start(role)
    began = time.monotonic()
    late = [] if trees.until(court.is_at_rest, WITHIN) else court.not_yet()
    trees.until(court.is_at_rest, at_most - WITHIN)
    return time.monotonic() - began, late


def campaign(
    court: Turmoil, trials: Sequence[Trial], at_most: float = AT_MOST, patiently: bool = False
) -> tuple[list[float], list[str]]:
    seconds, wrong = [], []
    for trial in trials:
        took, late = go_through(court, trial, at_most, patiently or court.dice.random() < 0.5)
        seconds.append(took)
        if late:
            print(f"{trial}: {took:.1f} s; after {WITHIN:g} s: {late}", flush=True)
        if took >= at_most:
            wrong.append(f"{trial}: still {court.not_yet()}")
            break
    return seconds, [*wrong, *court.wrong()]


def check(tree: Path, launcher: str) -> list[str]:
    """Return what goes wrong in the quick trials, for a program that may have a defect."""
    with turmoil(launcher, SEED, QUICK_ROLES, tree) as court:
        return campaign(court, QUICK, at_most=30.0, patiently=True)[1]


@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_all_goes_on_by_itself_when_a_broken_file_is_mended(launcher: str, figure: Figure) -> None:
    trials = drawn(random.Random(SEED)) if trees.CAMPAIGN else list(QUICK)
    with turmoil(launcher, SEED, ROLES if trees.CAMPAIGN else QUICK_ROLES) as court:
        seconds, wrong = campaign(court, trials, patiently=not trees.CAMPAIGN)
        late = sum(each > WITHIN for each in seconds)
        figure(
            f"{launcher}, seed {SEED}: {len(seconds)} of {len(trials)} files broken and mended, "
            f"{len(court.put)} events, {len(court.answered)} answers, {dict(court.did)}: {len(wrong)} wrong; "
            f"all done {sorted(seconds)[len(seconds) // 2]:.1f} s after the mend in the middle, "
            f"{max(seconds):.1f} s at the most, {late} later than {WITHIN:g} s"
        )
        assert not wrong, "\n".join(wrong) + court.court.logs()
