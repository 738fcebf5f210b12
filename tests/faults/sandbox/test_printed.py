"""A soldier that prints a secret: what is kept of its output does not have it, however the soldier ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json
from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.sandbox import rigs
from tests.faults.sandbox.rigs import GENERAL, Rig
from tests.faults.sandbox.test_breakout import PRELUDE, by_a_cancel, by_its_death
from tests.machine import needs_sandbox
from tests.waiting import SOON, wait_until

FOUND = """open(at(".env")).read().strip()"""
GIVEN = """os.environ["SLACK_BOT_TOKEN"]"""

PRINT = """
found = {found}
for number in (1, 2):
    os.write(number, b"x" * ((1 << 20) - 7) + (f" I found {{found}}!\\n" * 3).encode())
{then}
"""

ENDS = {
    "well": "tell()",
    "without a result": "sys.exit(3)",
    "over a limit": "[os.fork() or time.sleep(60) for _ in range(40)]; time.sleep(60)",
    "asked to end": "open('there', 'w'); time.sleep(60)",
    "by a cancel": "open('there', 'w'); time.sleep(60)",
    "by the death of its serving part": "open('there', 'w'); time.sleep(60)",
}


def by_a_signal(rig: Rig, task: str) -> None:
    os.kill(int(read_json(rig.places.control_folder(GENERAL, task) / "started")["pid"]), signal.SIGTERM)


FROM_OUTSIDE = {
    "asked to end": by_a_signal,
    "by a cancel": by_a_cancel,
    "by the death of its serving part": by_its_death,
}


def check_printed(rig: Rig, end: str, found: str = FOUND, **manifest: object) -> list[str]:
    rig.arm(PRELUDE + PRINT.format(found=found, then=ENDS[end]), limits={"processes": 20}, **manifest)
    task = rig.send()
    with trees.running(rig.tree, rig.home, ["-m", "kingdom.general", GENERAL]):
        if (from_outside := FROM_OUTSIDE.get(end)) is not None:
            wait_until((rig.places.workspace(GENERAL, task) / "there").exists, SOON, "it has printed")
            from_outside(rig, task)
        wait_until(rig.places.result(task).exists, 60, "its general has seen its end")
    kept = [rig.places.session_log(f"soldier-{task}-0", stream).read_bytes() for stream in ("out", "err")]
    lost = [f"not kept: {stream[-80:]!r}" for stream in kept if stream.count(b"I found") != 3]
    return lost + rigs.secrets_told(rig)


@pytest.mark.parametrize("end", ENDS)
def test_a_secret_that_a_soldier_prints_is_not_kept(end: str, home: Path, figure: Figure) -> None:
    wrong = check_printed(rigs.build(home), end, sandbox="off")
    figure(f"row 20 printed, ended {end}: {len(wrong)} secrets kept")
    assert not wrong, wrong


@needs_sandbox
def test_a_secret_that_it_was_given_is_not_kept_either(home: Path) -> None:
    wrong = check_printed(rigs.build(home), "well", GIVEN, env=["SLACK_BOT_TOKEN"])
    assert not wrong, wrong


@pytest.mark.parametrize("found", [FOUND, GIVEN])
@needs_sandbox
def test_in_the_sandbox_it_has_no_secret_that_was_not_given(found: str, home: Path) -> None:
    rig = rigs.build(home)
    rig.arm(
        f"{PRELUDE}\ntry:\n    {found}\n    said = 'read'\nexcept (OSError, KeyError) as refused:\n"
        "    said = type(refused).__name__\ntell(said=said)\n"
    )
    task = rig.send()
    assert rig.serve().returncode == 0
    assert rig.said(task)["said"] in ("PermissionError", "KeyError")
