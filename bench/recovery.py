"""How soon a role beats again after it was killed, or after it hung."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from bench.figures import Row, at_most, median
from bench.footprint import holder, installed, kingdom
from bench.homes import wait_for
from kingdom.base.disk.codec import read_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places

ABOUT = "How soon a role beats again after it was killed, or after it hung."
THRESHOLD = 2.0
KILLED_SECONDS = 2.0
HUNG_SECONDS = THRESHOLD + 20.0
NOTE = "A role is stopped with SIGSTOP under supervisord only: tmux wakes a stopped pane by itself."
REASONS = {
    "tmux": "probably: tmux before 3.5 misses a child's end now and then; the chamberlain asks it every 5 s",
    "supervisord": "it looks once a second: one look to notice, one to start",
}
LAUNCHERS = ("tmux", "supervisord")


def run(quick: bool) -> dict[str, Any]:
    rows: list[Row] = []
    launchers = LAUNCHERS if shutil.which("tmux") else LAUNCHERS[1:]
    for launcher in launchers[:1] if quick else launchers:
        with risen(launcher=launcher) as places:
            rows += killed(places, launcher, rounds=1 if quick else 5)
    if not quick:
        with risen(launcher="supervisord", heartbeat={"threshold_seconds": THRESHOLD}) as places:
            rows += hung(places, "supervisord", rounds=5)
    return {"title": "Recovery", "about": ABOUT, "rows": rows, "curves": [], "notes": [NOTE]}


@contextmanager
def risen(**settings: Any) -> Iterator[Places]:
    """No life counts as short: what is measured is a role that had worked, not the back-off of a crash loop."""
    with installed(KINGDOM_SHORT_RUN="0") as places:
        (places.config / "system.yaml").write_text(yaml.safe_dump(settings))
        kingdom(places, "up", KINGDOM_SHORT_RUN="0")
        yield places


def killed(places: Places, launcher: str, *, rounds: int) -> list[Row]:
    rows = []
    for role in roles(places):
        took = median([replaced(places, role, signal.SIGKILL) for _ in range(rounds)])
        rows.append(
            at_most(
                f"kill -9 of {role} → its heartbeat again ({launcher})",
                took,
                KILLED_SECONDS,
                "s",
                reason=REASONS[launcher],
            )
        )
    return rows


def hung(places: Places, launcher: str, *, rounds: int) -> list[Row]:
    took = median([replaced(places, "king", signal.SIGSTOP) for _ in range(rounds)])
    return [
        at_most(
            f"hung king → replaced, threshold {THRESHOLD:g} s ({launcher})",
            took,
            HUNG_SECONDS,
            "s",
            reason="seen by the chamberlain, then TERM, ten seconds, KILL",
        )
    ]


def replaced(places: Places, role: str, number: signal.Signals) -> float:
    old = holder(places, role)
    began = time.monotonic()
    os.kill(old, number)
    wait_for(lambda: beats(places, role, old), 60, f"another {role} beats")
    return time.monotonic() - began


def beats(places: Places, role: str, not_pid: int) -> bool:
    try:
        beat = read_json(places.heartbeat(role))
    except (FileNotFoundError, BadFile):
        return False
    return beat["state"] in ("idle", "working") and beat["pid"] != not_pid and is_locked(places.lock(role))


def roles(places: Places) -> list[str]:
    return sorted(beat.parent.name for beat in places.state.glob("*/heartbeat"))
