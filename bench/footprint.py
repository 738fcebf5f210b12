"""What the kingdom costs while nothing happens, and how long its commands take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import homes
from bench.court import python_alone, remember
from bench.figures import Curve, Row, at_most, curve, interleaved, median, ratio, row, seconds
from bench.homes import HOUSE
from kingdom.base.home.places import Places
from kingdom.demo.demo_world import BURST, World

ABOUT = "A home as `kingdom init` makes it, with eight roles: what it costs while nothing happens, and its commands."
TICKS = os.sysconf("SC_CLK_TCK")
MEGABYTES_PER_ROLE = 25.0
MOST_MEGABYTES = {"envoy": 32.0, "gateway": 70.0}
"""Of the envoy with Slack's library, and of the chat's server."""
ABOUT_ROLES = (
    "Every role of a home that is connected to GitHub, Jira and Slack (played on loopback), with the mailbox and the "
    "chat switched on: what it keeps for itself half a minute after 12 reviews were made and a question was asked."
)
WORK_SECONDS, REST_SECONDS = 240.0, 30.0
SETTLE_SECONDS = 3.0


def run(quick: bool) -> dict[str, Any]:
    with installed() as places:
        rows = [*starts(places, rounds=1 if quick else 5), *idle(places, watched=3.0 if quick else 60.0)]
    more, plot = looks(rounds=3 if quick else 7, past=(0, 2_000) if quick else (0, 1_000, 10_000, 100_000))
    rows += more
    if not quick:
        rows.append(check())
    return {"title": "Idle and commands", "about": ABOUT, "rows": rows, "curves": [plot]}


@contextmanager
def installed(**variables: str) -> Iterator[Places]:
    root = homes.folder()
    places = Places(root / "castle")
    kingdom(places, "init", str(places.home), **variables)
    try:
        yield places
    finally:
        kingdom(places, "down", **variables)


def kingdom(places: Places, *words: str, **variables: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "kingdom"), *words],
        env={**clean, "KINGDOM_HOME": str(places.home), **variables},
        cwd=HOUSE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"kingdom {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def starts(places: Places, *, rounds: int) -> list[Row]:
    """`kingdom up` returns when every role beats."""
    took = []
    for _ in range(rounds):
        took.append(seconds(lambda: kingdom(places, "up")))
        kingdom(places, "down")
    mine = median(took)
    return [
        at_most(
            "`kingdom up` on an installed home → every role's heartbeat",
            mine,
            2,
            "s",
            reason="eight interpreters start at once on two cores",
        )
    ]


def idle(places: Places, *, watched: float) -> list[Row]:
    kingdom(places, "up")
    time.sleep(SETTLE_SECONDS)
    before = used(places)
    time.sleep(watched)
    after = used(places)
    share = 100 * (sum(after.values()) - sum(before.get(pid, 0.0) for pid in after)) / watched
    what = f"whole suite idle for {watched:g} s, launcher included"
    return [at_most(what, share, 0.5, "% of a core", reason="somebody wakes without need")]


def roles(quick: bool) -> dict[str, Any]:
    """Measure every role after it has worked, with all services that it knows on loopback."""
    with World(homes.folder()) as world:
        places = world.places
        world.make_home()
        system = json.loads((places.config / "system.yaml").read_text())
        system["roles"] = dict.fromkeys(("mailbox", "gateway", "worker"), True)
        (places.config / "system.yaml").write_text(json.dumps(system))
        world.is_killed.set()
        kingdom(places, "up")
        try:
            world.assign_ticket()
            world.notify_all()
            homes.wait_for(lambda: _is_served(world), WORK_SECONDS, "all that was asked for is told")
            time.sleep(1.0 if quick else REST_SECONDS)
            found = [_of_role(places, beat.parent.name) for beat in sorted(places.state.glob("*/heartbeat"))]
        finally:
            kingdom(places, "down", "--soldiers")
    return {"title": "Memory of each role", "about": ABOUT_ROLES, "rows": found, "curves": []}


def _is_served(world: World) -> bool:
    said = [post["text"].split()[0] for post in world.slack.from_kingdom()]
    return said.count("[complete]") >= len(BURST) and "[question]" in said


def _of_role(places: Places, role: str) -> Row:
    most = MOST_MEGABYTES.get(role, MEGABYTES_PER_ROLE)
    own = unique_megabytes(holder(places, role))
    return at_most(f"unique memory of {role}", own, most, "MB", reason="it loads what it does not need")


def used(places: Places) -> dict[int, float]:
    """Seconds of processor time by process, of everybody who was started for this home."""
    mark = f"KINGDOM_HOME={places.home}".encode()
    spent = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                spent[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
        except OSError:
            continue
    return spent


def holder(places: Places, role: str) -> int:
    return int(places.lock(role).read_text().split()[1])


def unique_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def looks(*, rounds: int, past: tuple[int, ...]) -> tuple[list[Row], Curve]:
    root = homes.folder()
    castles = [Places(root / f"castle-{ended}") for ended in past]
    for places, ended in zip(castles, past, strict=True):
        kingdom(places, "init", str(places.home))
        remember(places, ended)
    contests = {str(n): lambda at=at: seconds(lambda: look(at)) for n, at in zip(past, castles, strict=True)}
    for places in castles:
        kingdom(places, "up")
    time.sleep(SETTLE_SECONDS)
    found = interleaved(rounds, {**contests, "python": lambda: seconds(python_alone)})
    for places in castles:
        kingdom(places, "down")
    bare = median(found["python"]) * 1e3
    rows = []
    for ended in (past[0], past[-1]):
        mine = median(found[str(ended)]) * 1e3
        around = f" with {ended:,} ended files in each queue, at work" if ended else ""
        rows.append(
            row(
                f"`kingdom status`{around}",
                goal="≤ 100 ms",
                met=mine <= 100,
                ours=mine,
                unit="ms",
                floor=bare,
                floor_is="python -c pass",
                ratio=ratio(found[str(ended)], found["python"]),
                reason="imports",
            )
        )
    lines = {"kingdom status": [(float(n), median(found[str(n)]) * 1e3) for n in past]}
    return rows, curve("kingdom status in a home with a past", "ended files in each queue (logarithmic)", "ms", lines)


def look(places: Places) -> None:
    command = [str(Path(sys.executable).parent / "kingdom"), "status"]
    environment = {**os.environ, "KINGDOM_HOME": str(places.home)}
    subprocess.run(command, env=environment, cwd=HOUSE, stdout=subprocess.DEVNULL, check=False)


def check() -> Row:
    took = seconds(lambda: subprocess.run(["make", "check"], cwd=HOUSE, capture_output=True, check=False))
    return at_most("`make check`", took, 50, "s", reason="once, on a machine that others use too")
