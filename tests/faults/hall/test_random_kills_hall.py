"""Gateway and worker are killed again and again while people talk: files and SQLite."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults import trees
from tests.faults.hall import campaign
from tests.faults.oracle import Figure
from tests.hall.gateway.halls import Hall
from tests.ports import free_port

QUICK = campaign.Plan(messages=80, talking=2.0, seconds=150.0, most_kills=4)
PLAN = campaign.Plan(messages=10_000, talking=60.0, seconds=1800.0, most_kills=60) if trees.CAMPAIGN else QUICK


def test_nothing_accepted_is_lost_doubled_or_out_of_order_on_any_screen(home: Path, figure: Figure) -> None:
    hall = Hall(home, {"registration": "open", "port": free_port()})
    try:
        hall.start("gateway")
        hall.start("worker")

        def again(role: str) -> None:
            hall.kill(role)
            hall.start(role)

        kills = {role: (lambda role=role: again(role)) for role in ("gateway", "worker")}
        found = asyncio.run(campaign.talk(hall, kills, PLAN))
        figure(f"kills of the hall, files + SQLite: {found.line}")
        wrong = [*found.wrong, *campaign.by_fsck(hall)]
        assert not wrong, "\n".join(wrong[:20])
    finally:
        hall.close()


def test_a_defect_of_the_screen_is_seen() -> None:
    lines = [campaign.Seen(f"id-{number}", f"key-{number}", f"content {number}") for number in range(4)]
    member = campaign.Client(None, "room", "client", 4, screen=list(lines))  # type: ignore[arg-type]
    member.accepted = {line.client_msg_id: line.content for line in lines}
    assert campaign.judge(member, lines) == []
    for screen in (lines[:3], lines[::-1], [*lines, lines[0]], [lines[0], *lines[2:]]):
        member.screen = list(screen)
        assert campaign.judge(member, lines)
    member.screen = list(lines)
    for history in (lines[:3], [*lines, lines[0]], lines[::-1]):
        assert campaign.judge(member, history)
