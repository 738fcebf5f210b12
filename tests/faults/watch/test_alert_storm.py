"""Row 18: a storm of alerts is at most three messages, and none of the alerts is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import Kingdom, kingdom, one_of
from tests.waiting import SOON, stays, wait_until

ROLES_IN_TROUBLE = [f"gen-storm-{character}" for character in "abcdefghijklmnopqrst"]
MESSAGES_AT_MOST = 3
BETWEEN = 0.2


def check_storm(tree: Path, launcher: str) -> list[str]:
    clock = trees.new_folder() / "clock"
    with kingdom(launcher, tree=tree, env={"KINGDOM_CLOCK_FILE": str(clock)}) as court:
        for role in ROLES_IN_TROUBLE:
            homes.install(court.home, role)
            court.places.wanted(role).write_text("down\n")
        court.up()
        for role in ROLES_IN_TROUBLE:
            court.places.wanted(role).write_text("quarantined\n")
            stays(lambda: True, BETWEEN, "a moment")
        for later in (0, 20, 800):  # the pauses between messages are by the clock
            clock.write_text(str(later))
            stays(lambda: True, 1.5, "a few rounds")
        wait_until(lambda: not lost(court), SOON, f"all are told: {lost(court)}")
        messages = alerts(court)
        wrong = [] if len(messages) <= MESSAGES_AT_MOST else [f"{len(messages)} messages"]
        return wrong + lost(court)


def alerts(court: Kingdom) -> list[str]:
    return [message["content"] for message in court.messages() if message["content"].startswith("[alert]")]


def lost(court: Kingdom) -> list[str]:
    told = "\n".join(alerts(court))
    return [f"{role} is not told" for role in ROLES_IN_TROUBLE if f"{role}:" not in told]


@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_a_storm_of_alerts(launcher: str, figure: Figure) -> None:
    assert check_storm(trees.program(), launcher) == []
    figure(f"row 18 storm, {launcher}: {len(ROLES_IN_TROUBLE)} alerts in at most {MESSAGES_AT_MOST} messages, 0 lost")
