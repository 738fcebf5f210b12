"""A whole home: what it costs while nothing happens, how long its commands take, how soon a dead role is back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from statistics import median

from bench import homes
from bench.court import remember
from bench.figures import Found, interleaved, seconds, timed
from bench.floors import python_alone
from bench.homes import HOUSE, beat, installed, kingdom, wait_for
from kingdom.base.disk.lock import is_locked
from kingdom.base.home.places import Places
from kingdom.demo.demo_world import BURST, World

SETTLE_SECONDS, WORK_SECONDS, REST_SECONDS = 3.0, 240.0, 30.0
THRESHOLD = 2.0
"""Seconds without a heartbeat after which a role counts as hung."""


def run(quick: bool) -> Found:
    found = Found()
    with installed() as places:
        ups = []
        for _ in range(1 if quick else 5):
            ups.append(seconds(lambda: kingdom(places, "up")))
            kingdom(places, "down")
        found.add("`kingdom up` on an installed home → every role's heartbeat", "", ups)
        kingdom(places, "up")
        idle(found, places, 3.0 if quick else 60.0)
    looks(found, 3 if quick else 7, (0, 2_000) if quick else (0, 1_000, 10_000, 100_000))
    if not quick:
        check = ["make", "check"]
        took = timed(1, lambda: subprocess.run(check, cwd=HOUSE, capture_output=True, check=False))
        found.add("`make check`", "", took)
    return found


def idle(found: Found, places: Places, watched: float) -> None:
    time.sleep(SETTLE_SECONDS)
    before = homes.processor_seconds(places.home)
    time.sleep(watched)
    after = homes.processor_seconds(places.home)
    spent = sum(after.values()) - sum(before.get(pid, 0.0) for pid in after)
    found.add("whole suite idle, launcher included", "", [100 * spent / watched])
    shares = [homes.megabytes(beat(places, role)["pid"], "Pss:") for role in homes.roles(places)]
    found.add("shared memory counted by parts (PSS), all roles idle", "", [sum(shares)])


def looks(found: Found, rounds: int, past: tuple[int, ...]) -> None:
    root = homes.folder()
    castles = {ended: Places(root / f"castle-{ended}") for ended in past}
    for ended, places in castles.items():
        kingdom(places, "init", str(places.home))
        remember(places, ended)
        kingdom(places, "up")
    time.sleep(SETTLE_SECONDS)
    contests = {str(n): lambda at=at: seconds(lambda: kingdom(at, "status")) for n, at in castles.items()}
    times = interleaved(rounds, {**contests, "python": lambda: seconds(python_alone)})
    for places in castles.values():
        kingdom(places, "down")
    found.add("python -c pass", "", [time * 1e3 for time in times["python"]])
    for ended in (past[0], past[-1]):
        case = f"with {ended:,} ended files in each queue" if ended else ""
        found.add("`kingdom status`", case, [time * 1e3 for time in times[str(ended)]])
    points = [(float(ended), median(times[str(ended)]) * 1e3) for ended in past]
    title, label = "kingdom status in a home with a past", "ended files in each queue (logarithmic)"
    found.curve(title, label, "ms", {"kingdom status": points})


def roles(quick: bool) -> Found:
    """Measure every role after it has worked, with all services that it knows on loopback."""
    found = Found()
    with World(homes.folder()) as world:
        places = world.places
        world.make_home()
        system = json.loads((places.config / "system.yaml").read_text())
        homes.configure(places, system={**system, "roles": dict.fromkeys(("mailbox", "gateway", "worker"), True)})
        world.is_killed.set()
        kingdom(places, "up")
        try:
            world.assign_ticket()
            world.notify_all()
            wait_for(lambda: _is_served(world), WORK_SECONDS, "all answers are posted")
            time.sleep(1.0 if quick else REST_SECONDS)
            for role in homes.roles(places):
                found.add("unique memory", role, [homes.megabytes(beat(places, role)["pid"])])
        finally:
            kingdom(places, "down", "--soldiers")
    return found


def _is_served(world: World) -> bool:
    said = [post["text"].split()[0] for post in world.slack.from_kingdom()]
    return said.count("[complete]") >= len(BURST) and "[question]" in said


def recovery(quick: bool) -> Found:
    """No life counts as short: what is measured is a role that had worked, not the back-off of a crash loop."""
    found, rounds = Found(), 1 if quick else 5
    launchers = [launcher for launcher in ("tmux", "supervisord") if launcher != "tmux" or shutil.which("tmux")]
    for launcher in launchers[:1] if quick else launchers:
        with installed(KINGDOM_SHORT_RUN="0") as places:
            homes.configure(places, system={"launcher": launcher, "heartbeat": {"threshold_seconds": THRESHOLD}})
            kingdom(places, "up", KINGDOM_SHORT_RUN="0")
            for role in homes.roles(places):
                took = [replaced(places, role, signal.SIGKILL) for _ in range(rounds)]
                found.add("kill -9 → its heartbeat again", f"{role}, {launcher}", took)
            if launcher == "supervisord":
                took = [replaced(places, "king", signal.SIGSTOP) for _ in range(rounds)]
                found.add(f"hung → replaced, threshold {THRESHOLD:g} s", f"king, {launcher}", took)
    return found


def replaced(places: Places, role: str, number: signal.Signals) -> float:
    old = int(beat(places, role)["pid"])
    os.kill(old, number)
    return seconds(lambda: wait_for(lambda: _beats_again(places, role, old), 60, f"another {role} beats"))


def _beats_again(places: Places, role: str, old: int) -> bool:
    about = beat(places, role)
    return about.get("state") in ("idle", "working") and about["pid"] != old and is_locked(places.lock(role))
