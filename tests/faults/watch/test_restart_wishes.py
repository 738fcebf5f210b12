"""An owner wants roles restarted on the page, while those who carry that out are killed."""

from __future__ import annotations

import os
import random

import pytest

from kingdom.hall.gateway.orders import PageOrders
from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import BACK_WITHIN, ROLES, THRESHOLD, kingdom, one_of
from tests.fixtures import Clock, services
from tests.waiting import stays, wait_until

ROUNDS = 12
VICTIMS = ((), ("chamberlain",), ("king",), ("chamberlain", "king"))
LATEST_KILL = 0.6


@trees.in_campaigns
@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_a_role_is_restarted_once_and_nobody_else_whoever_is_killed_meanwhile(launcher: str, figure: Figure) -> None:
    dice, killed = random.Random(9), 0
    with kingdom(launcher) as court:
        court.up()
        own = services(court.home, "gateway", Clock())
        orders = PageOrders(court.places, own.queues, own.disk, own.clock)
        for number in range(ROUNDS):
            role, victims, old = dice.choice(ROLES), VICTIMS[number % len(VICTIMS)], court.pids()
            orders.restart(role, "anna@example.org")
            stays(lambda: bool(court.launcher_pid()), dice.uniform(0, LATEST_KILL), "the launcher")
            for victim in victims:
                if court.pid(victim) == old[victim]:
                    court.cause_fault(victim, "kill")
            killed += len(victims)
            gone = {name: old[name] for name in {role, *victims}}
            court.wait_for_beats(*ROLES, seconds=BACK_WITHIN, not_by=gone)
            wish = court.places.restart(role)
            wait_until(lambda wish=wish: not os.path.lexists(wish), BACK_WITHIN, f"the wish about {role} is gone")
            new = court.pids()
            assert {name for name in ROLES if new[name] != old[name]} == set(gone)
            stays(lambda new=new: court.lives_on(new), THRESHOLD, f"nobody is replaced again ({court.logs()})")
    figure(f"restarts that an owner asks for, {launcher}: {ROUNDS}, {killed} watchers killed: each once, nobody else")
