"""Many kings at once: one works, the others leave within a second; one that was paused and replaced writes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import Exit
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees
from tests.waiting import SOON

ARGV = ("-m", "kingdom.king")
STARTS = 100 if trees.CAMPAIGN else 10
LEAVES_WITHIN = 1.0
INTERPRETER = 30.0
"""A newcomer's second begins when it asks for the lock; the machine may be busy until then."""


def check_parallel_starts(tree: Path, starts: int = STARTS) -> list[str]:
    home = trees.new_folder()
    places = homes.make(home)
    homes.put(home, "events", "pending", *(homes.event(f"evt-github-{number}-x") for number in range(5)))
    with ExitStack() as stack:
        kings = [stack.enter_context(trees.running(tree, home, ARGV)) for _ in range(starts)]
        trees.until(lambda: sum(king.poll() is None for king in kings) <= 1, seconds=starts + SOON)
        trees.until(lambda: not os.listdir(places.folder("events", "pending")))
        alive = [king for king in kings if king.poll() is None]
        wrong = oracle.exactly("kings that work", 1, len(alive))
        codes = sorted({king.returncode for king in kings if king not in alive})
        wrong += [] if codes == [Exit.LOCKED] else [f"the others ended with {codes}"]
        wrong += newcomer(tree, home, alive[0].pid) if len(alive) == 1 else []
    made = oracle.contents(home, "tasks")
    wrong += oracle.exactly("tasks of five events", 5, len(made))
    wrong += oracle.in_one_place(home)
    trees.remove(home)
    return wrong


def newcomer(tree: Path, home: Path, holder: int) -> list[str]:
    """One more while nobody else is starting: in time, and it names who holds the lock."""
    began = time.monotonic()
    ended = trees.run(tree, home, ARGV, timeout=INTERPRETER * 2)
    took = time.monotonic() - began
    wrong = [] if ended.returncode == Exit.LOCKED else [f"a newcomer ended with {ended.returncode}"]
    wrong += [] if took < LEAVES_WITHIN + INTERPRETER else [f"a newcomer took {took:.1f} s"]
    told = ended.stderr.strip()
    return wrong + ([] if "\n" not in told and f"pid {holder}" in told else [f"a newcomer said {told!r}"])


def check_replaced(tree: Path, *, with_work: bool) -> list[str]:
    """A king is stopped and its lock file replaced; a second one takes over; the first is woken."""
    home = trees.new_folder()
    places = homes.make(home, config={"king": {"intervals": {"event_check_seconds": 0.2, "result_check_seconds": 0.2}}})
    with trees.running(tree, home, ARGV) as first:
        if not trees.until(lambda: oracle.beats(places, "king") > 1):
            return ["the first king never beat"]
        first.send_signal(signal.SIGSTOP)
        places.lock("king").unlink()
        with trees.running(tree, home, ARGV) as second:
            if not trees.until(lambda: is_locked(places.lock("king")) and beat_of(places, second)):
                return ["the second king never worked"]
            second.send_signal(signal.SIGSTOP)
            if with_work:
                homes.put(home, "events", "pending", homes.event("evt-github-1-x"))
            before = everything(home)
            first.send_signal(signal.SIGCONT)
            wrong = leaves(first, Exit.LOCKED)
            after = everything(home)
            wrong += [f"the replaced king wrote {name}" for name in sorted(after) if after[name] != before.get(name)]
            wrong += [f"the replaced king removed {name}" for name in sorted(before.keys() - after.keys())]
            second.send_signal(signal.SIGCONT)
            if with_work and not trees.until(lambda: os.listdir(places.folder("events", "dispatched"))):
                wrong.append("the second king did not serve the event")
    trees.remove(home)
    return wrong


def leaves(king: subprocess.Popen[str], code: int) -> list[str]:
    try:
        ended = king.wait(timeout=SOON)
    except subprocess.TimeoutExpired:
        return ["the replaced king still runs"]
    return [] if ended == code else [f"the replaced king ended with {ended}"]


def beat_of(places: Places, king: subprocess.Popen[str]) -> bool:
    return f'"pid": {king.pid},' in places.heartbeat("king").read_text()


def everything(home: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its inode and its bytes."""
    return {
        str(path.relative_to(home)): (path.stat().st_ino, path.read_bytes())
        for path in home.rglob("*")
        if path.is_file()
    }


def check_lock_is_free_after_a_kill(tree: Path) -> list[str]:
    home = trees.new_folder()
    places = homes.make(home)
    for _ in range(3):
        with trees.running(tree, home, ARGV) as king:
            if not trees.until(lambda king=king: places.heartbeat("king").exists() and beat_of(places, king)):
                return ["a king did not start after the one before was killed"]
            king.kill()
            king.wait()
    trees.remove(home)
    return []


CHECKS = {
    "parallel starts": check_parallel_starts,
    "replaced while it works": lambda tree: check_replaced(tree, with_work=True),
    "replaced while it idles": lambda tree: check_replaced(tree, with_work=False),
    "start after a kill": check_lock_is_free_after_a_kill,
}


@pytest.mark.parametrize("what", CHECKS)
def test_only_one_king_works(what: str, figure: oracle.Figure) -> None:
    wrong = CHECKS[what](trees.program())
    figure(f"two kings, {what}: {f'{STARTS} starts, ' if what == 'parallel starts' else ''}{len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
