"""Row 28: a day of a kingdom, told by its command line and its files, is the same under both launchers."""

from __future__ import annotations

import re

import pytest

from tests.faults import homes, trees
from tests.faults.oracle import Figure, contents
from tests.faults.watch.kingdoms import LAUNCHERS, WORKING_GENERAL, Kingdom, Load, kingdom

A_DAY: tuple[tuple[str, ...], ...] = (
    ("up",),
    ("stop", "envoy"),
    ("start", "envoy"),
    ("restart", "king"),
    ("stop", "nobody"),
    ("start", homes.GENERAL),
    ("generals", "ls"),
    ("down",),
    ("start", "king"),
    ("up",),
    ("down",),
    ("down",),
)
VARIES = (r"tmux|supervisord|/tmp/\S+|pid \d+|\d+(\.\d+)? ?(s|ms|MB|%)\b|\d{4}-\d\d-\d\dT\S+", r"http://\S+")


def day(launcher: str) -> list[str]:
    with kingdom(launcher, tree=trees.program(), manifest=WORKING_GENERAL) as court:
        load = Load(court)
        told = []
        for words in A_DAY:
            done = court.cli(*words)
            told.append(plain(f"kingdom {' '.join(words)} -> {done.returncode}\n{done.stdout}{done.stderr}"))
            if words == ("up",):
                load.arrive(2)
                load.wait_done(60)
        told.append(f"left: {sorted(court.processes())}")
        return told + sorted(outcome(court))


def plain(text: str) -> str:
    for pattern in VARIES:
        text = re.sub(pattern, "…", text)
    return text


def outcome(court: Kingdom) -> list[str]:
    return [
        f"{kind}: {thing.get('type')} {thing['state']} {thing.get('status')}"
        for kind in ("events", "tasks", "messages")
        for thing in contents(court.home, kind)
    ]


@trees.in_campaigns
@pytest.mark.skipif(len(LAUNCHERS) < 2, reason="tmux is not installed")
def test_a_day_is_the_same_under_both_launchers(figure: Figure) -> None:
    first, second = (day(launcher) for launcher in LAUNCHERS)
    assert first == second
    figure(
        f"row 28 parity: {len(A_DAY)} commands and {len(first) - len(A_DAY) - 1} outcomes alike under both launchers"
    )
