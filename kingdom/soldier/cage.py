"""What a soldier's engine may use. Entered in the child, just before the engine's program starts."""

from __future__ import annotations

import ctypes
import resource
import signal
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Whatever the engine leaves behind becomes our child, so that we can end it."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter(limits: Mapping[str, int]) -> None:
    """In the child: dies with its soldier, and stays within its limits."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    megabytes = limits["memory_mb"] << 20
    for what, most in (
        (resource.RLIMIT_AS, megabytes),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(what, most)


def _lower(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (bound, bound))
