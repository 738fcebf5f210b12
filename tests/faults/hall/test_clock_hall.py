"""Row 7 for the hall: somebody sets the wall clock of gateway and worker while people talk."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from tests.faults import trees
from tests.faults.hall import campaign
from tests.faults.mailbox.test_kills import HOUR, SetClock
from tests.faults.oracle import Figure
from tests.hall.gateway.halls import CHECKOUT, OPEN, Hall
from tests.ports import free_port

QUICK = campaign.Plan(messages=40, talking=1.5, seconds=150.0, most_kills=6, clients=10, rooms=3)
PLAN = campaign.Plan(messages=2_000, talking=60.0, seconds=600.0, most_kills=60) if trees.CAMPAIGN else QUICK
STEPS = {"an hour back": -HOUR, "an hour on": HOUR, "right": 0}


def wrong(tree: Path, plan: campaign.Plan) -> tuple[list[str], str]:
    """Return what is wrong with the program of a tree when its clock is set while people talk, and the figure."""
    clock = SetClock(trees.new_folder())
    hall = Hall(trees.new_folder(), {**OPEN, "port": free_port()}, tree, clock.env)
    try:
        hall.start("gateway")
        hall.start("worker")
        early = hall.person()
        clock.step(HOUR)
        late = hall.person()
        talk = campaign.talk(hall, {name: partial(clock.step, step) for name, step in STEPS.items()}, plan)
        found = asyncio.run(talk)
        wrong = [*found.wrong, *campaign.by_fsck(hall)]
        for name, step in STEPS.items():
            clock.step(step)
            for person, began in ((early, "right"), (late, "an hour on")):
                if (status := person.call("GET", "/auth/me").status_code) != 200:
                    wrong.append(f"with the clock {name}, a session that began when it was {began} gets {status}")
        return wrong, found.line
    finally:
        hall.close()


def test_setting_the_clock_loses_doubles_and_reorders_nothing_and_ends_no_session(figure: Figure) -> None:
    found, line = wrong(CHECKOUT, PLAN)
    figure(f"row 7 hall: {line}")
    assert not found, "\n".join(found[:20])
