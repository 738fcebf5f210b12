"""Row 4: a hung role of every kind is replaced in time, and its group is gone first."""

from __future__ import annotations

import time
from itertools import count

import pytest

from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import REPLACED_WITHIN, Kingdom, kingdom, one_of, since
from tests.shell_roles import runs
from tests.waiting import wait_until

KINDS = ("stop", "busy", "read", "deadlock", "c_call")
CALLED = ("king", "envoy", "mailbox", homes.GENERAL, *(["sentinel"] if trees.CAMPAIGN else []))
ROUNDS = 20 if trees.CAMPAIGN else 1


@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_hung_roles_are_replaced(launcher: str, figure: Figure) -> None:
    turn = count()
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with kingdom(launcher, env={"KINGDOM_SHORT_RUN": "1"}) as court:
        court.up()
        for _ in range(ROUNDS):
            # Apart, because the king watches the chamberlain and the chamberlain the king.
            for roles in (CALLED, ("chamberlain",)):
                kinds = {role: KINDS[next(turn) % len(KINDS)] for role in roles}
                for role, seconds in hang(court, kinds).items():
                    took[kinds[role]].append(seconds)
    slowest = max(max(seconds) for seconds in took.values())
    counts = ", ".join(f"{kind} {len(seconds)} of {len(seconds)}" for kind, seconds in took.items())
    figure(f"row 4 hung, {launcher}: replaced {counts}; slowest {slowest:.1f} s of {REPLACED_WITHIN:g} s allowed")


def hang(court: Kingdom, kinds: dict[str, str]) -> dict[str, float]:
    """Hang these roles at once; seconds until each successor has worked, the old one being gone before."""
    began = time.monotonic()
    old = {role: court.cause_fault(role, kind) for role, kind in kinds.items()}
    woken = {role: court.beat(role)["seq"] + 2 for role, kind in kinds.items() if wakes(court, kind)}
    took: dict[str, float] = {}

    def all_replaced() -> bool:
        for role, pid in old.items():
            beat = court.beat(role)
            if role in took or beat["pid"] == 0:
                continue
            if beat["pid"] != pid:
                assert not runs(pid), f"{role}: the successor beats beside the hung one ({kinds[role]})"
                took[role] = since(began)
            elif role in woken and beat["seq"] >= woken[role]:
                took[role] = since(began)
        return len(took) == len(old)

    try:
        wait_until(all_replaced, REPLACED_WITHIN, f"replaced: {kinds}")
    except AssertionError as late:
        raise AssertionError(f"{late}: only {took}; {court.logs()}") from None
    for role in kinds:
        assert len(court.role_processes(role)) == 1, f"{role} runs twice"
    return took


def wakes(court: Kingdom, kind: str) -> bool:
    """tmux continues at once whatever of its own is stopped: then nothing need be replaced."""
    return court.launcher == "tmux" and kind == "stop"
