"""Whether a role beats, as somebody sees it who has just called it; and what it says when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable

from kingdom.disk.codec import read_json_or
from kingdom.disk.lock import holder_pid, is_locked
from kingdom.errors import Exit
from kingdom.home.places import Places
from kingdom.home.roster import ROLES, RoleRow, desired_state
from kingdom.runtime.wake import Waker
from kingdom.steward.base import Steward
from kingdom.words import one_line

BEAT_SECONDS = 15.0
LOOK_SECONDS = 0.03
AWAKE = ("idle", "working", "degraded")


def missed(places: Places, steward: Steward, rows: list[RoleRow]) -> list[str]:
    """Returns who does not beat: in vain waited for, or down for good before that."""

    def settled() -> bool:
        silent = [row.name for row in rows if not _beats(places, row.name)]
        return not silent or all(_has_given_up(places, steward, name) for name in silent)

    wait(settled, BEAT_SECONDS)
    return [row.name for row in rows if not _beats(places, row.name)]


def _beats(places: Places, name: str) -> bool:
    """It holds its lock, and the beat is this life's."""
    if not is_locked(places.lock(name)):
        return False
    beat = read_json_or(places.heartbeat(name), {})
    return beat.get("state") in AWAKE and beat.get("pid") == holder_pid(places.lock(name))


def _has_given_up(places: Places, steward: Steward, name: str) -> bool:
    if desired_state(places, name) != "up":
        return True
    word = steward.alive().get(name)
    return word is not None and word.code in (Exit.REFUSED, Exit.LOCKED)


def wait(done: Callable[[], bool], seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    waker = Waker((), "poll")
    try:
        while not (finished := done()) and time.monotonic() < give_up:
            waker.wait(LOOK_SECONDS)
        return finished
    finally:
        waker.close()


def last_words(places: Places, name: str) -> str:
    """The newest complaint in the role's log, for somebody who asks why it does not run."""
    for path in (places.role_log(name), places.last_words(name)):
        try:
            lines = path.read_text("utf-8", "replace").splitlines()[-50:]
        except FileNotFoundError:
            continue
        troubles = [each for each in lines if " error " in each or path == places.last_words(name)]
        if troubles:
            return one_line(troubles[-1], 300)
    module = name if name in ROLES else f"general {name}"
    return f"no complaint in {places.role_log(name)}; `python -m kingdom.{module}` tells"
