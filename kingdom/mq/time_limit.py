"""End work that would take too long, such as a pattern that backtracks for ever on the payload of somebody else.

Only a signal ends it, so only in the main thread of a process that has given SIGVTALRM to this: a manager.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class _TooLong(Exception):
    """the work took too long"""


class _Timer:
    is_on = False
    #: Whether it is to end what runs now. The signal may come a moment after the work is done.
    is_set = False


def start() -> None:
    """Let `within` end work in the main thread of this process."""
    signal.signal(signal.SIGVTALRM, _ring)
    _Timer.is_on = True


def stop() -> None:
    """Undo `start`: the signal has its default effect again."""
    _Timer.is_on = False
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """Return what the work returns; None when it was ended, after so many seconds of processor time."""
    if not _Timer.is_on or threading.current_thread() is not threading.main_thread():
        return work()
    try:
        try:
            _Timer.is_set = True
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            return work()
        finally:
            _Timer.is_set = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        return None


def _ring(number: int, frame: FrameType | None) -> None:
    if _Timer.is_set:
        raise _TooLong
