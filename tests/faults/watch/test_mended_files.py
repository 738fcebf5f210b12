"""A file is broken, then mended, while roles start and stop: nothing is discarded, and all goes on by itself."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from itertools import cycle
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
    WORKER,
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
    role: str


QUICK = (
    Trial(f"config/generals/{WORKER}.yaml", "bad_yaml", "king"),
    Trial(f"config/generals/{ASKER}.yaml", "missing", ASKER),
    Trial("config/king.yaml", "wrong_type", "king"),
    Trial("config/system.yaml", "bad_value", "chamberlain"),
)


def drawn(dice: random.Random) -> list[Trial]:
    """Every file with every role, each with a kind of damage, in random order."""
    kinds: dict[str, Iterator[str]] = {}
    for file in FILES:
        kinds[file] = cycle(dice.sample(kinds_of(file), len(kinds_of(file))))
    trials = [Trial(file, next(kinds[file]), role) for file in FILES for role in ROLES]
    dice.shuffle(trials)
    return trials[trees.PART - 1 :: trees.PARTS]


def go_through(court: Turmoil, trial: Trial) -> float:
    """Break the file, let roles come and go while work arrives, and mend it. Return the seconds until all is done."""
    court.arrive()
    court.arrive("ask")
    court.damage(trial.file, trial.kind)
    court.pause(0.5)
    others = court.dice.sample(sorted({*court.roles} - {trial.role}), court.dice.randrange(3))
    stopped = []
    for role in (trial.role, *others):
        if court.dice.random() < 0.6:
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
    court.mend(trial.file)
    for role in stopped:
        court.start(role)
    began = time.monotonic()
    trees.until(court.is_at_rest, AT_MOST)
    return time.monotonic() - began


def campaign(court: Turmoil, trials: list[Trial]) -> tuple[list[float], list[str]]:
    seconds, wrong = [], []
    for trial in trials:
        seconds.append(go_through(court, trial))
        if seconds[-1] >= AT_MOST:
            wrong.append(f"{trial}: still {court.not_yet()}")
            break
    return seconds, [*wrong, *court.wrong()]


@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_all_goes_on_by_itself_when_a_broken_file_is_mended(launcher: str, figure: Figure) -> None:
    trials = drawn(random.Random(SEED)) if trees.CAMPAIGN else list(QUICK)
    with turmoil(launcher, SEED, ROLES if trees.CAMPAIGN else QUICK_ROLES) as court:
        seconds, wrong = campaign(court, trials)
        late = sum(each > WITHIN for each in seconds)
        figure(
            f"{launcher}, seed {SEED}: {len(seconds)} of {len(trials)} files broken and mended, "
            f"{len(court.put)} events, {len(court.answered)} answers, {dict(court.did)}: {len(wrong)} wrong; "
            f"all done {sorted(seconds)[len(seconds) // 2]:.1f} s after the mend in the middle, "
            f"{max(seconds):.1f} s at the most, {late} later than {WITHIN:g} s"
        )
        assert not wrong, "\n".join(wrong) + court.court.logs()
