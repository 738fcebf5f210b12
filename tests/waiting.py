"""Wait for a condition, with a deadline. The only place where tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from kingdom.base.runtime.wake import Waker

LOOK_SECONDS = 0.02
SOON = 60.0
"""The usual deadline: others share the machine, and nobody waits for it while things work."""
LATER = 3 * SOON
"""For what many processes do one after another."""

Seen = TypeVar("Seen")


def wait_until(predicate: Callable[[], Seen], seconds: float, what: str, folders: Iterable[Path] = ()) -> Seen:
    """Return the predicate's first true value. It is asked again when a file arrives in one of the folders, and
    every 20 ms; AssertionError names what did not come."""
    waker = Waker(folders)
    give_up = time.monotonic() + seconds
    try:
        while not (seen := predicate()):
            if time.monotonic() > give_up:
                raise AssertionError(f"not within {seconds:g} s: {what}")
            waker.wait(LOOK_SECONDS)
        return seen
    finally:
        waker.close()


def stays(predicate: Callable[[], object], seconds: float, what: str) -> None:
    """Assert that the predicate is true now and at every look for so long, so that something does not happen."""
    waker = Waker(())
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            assert predicate(), f"no longer: {what}"
            waker.wait(LOOK_SECONDS)
    finally:
        waker.close()
