"""Every exception that Kingdom raises on purpose. A class's docstring is the sentence people read."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. The first three tell a launcher "do not restart", all others "restart"."""

    DONE = 0
    LOCKED = 75
    REFUSED = 78
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3
    TIMED_OUT = 4


class KingdomError(Exception):
    """{message}"""

    exit: Exit = Exit.FAILED

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(" ".join((type(self).__doc__ or "").split()).format(**facts))


# The caller's or a foreign writer's fault: refuse or park what they gave.


class BadInput(KingdomError):
    """{message}"""

    exit = Exit.REFUSED


class BadName(BadInput):
    """{what} {name!r} cannot name a file: {why}; use letters, digits and . _ : @ + - (200 bytes at most)"""


class BadFile(BadInput):
    """{path}: {why}"""


class BadMessage(BadInput):
    """{what}: {why}"""


class Collision(KingdomError):
    """{path} is there already; nothing was overwritten"""


class IllegalMove(KingdomError):
    """{what} may not go from {src} to {dst}"""


class NoSuchThing(BadInput):
    """no {what} named {name!r}{hint}"""

    exit = Exit.FAILED


# The owner's fault: say what to change.


class BadConfig(KingdomError):
    """{path}{line}: {key}: {why}"""

    exit = Exit.REFUSED


class BadHome(KingdomError):
    """home {path} is refused: {why}"""

    exit = Exit.REFUSED


class Usage(KingdomError):
    """{message}"""

    exit = Exit.USAGE


class NotRunning(KingdomError):
    """{what} is not running; {hint}"""

    exit = Exit.NOT_RUNNING


class TookTooLong(KingdomError):
    """no {what} within {seconds:g} s; {hint}"""

    exit = Exit.TIMED_OUT


# The machine's fault: wait, or stop without a loop.


class Locked(KingdomError):
    """another {role} holds {path} ({holder}); wait until it has ended, or stop it"""

    exit = Exit.LOCKED


class LockLost(KingdomError):
    """{path} was replaced while this {role} ran; it stops writing"""

    exit = Exit.LOCKED


class LauncherError(KingdomError):
    """{launcher} could not {action} {what}: {why}"""
