"""Who does what about a role that is not well: one owner for every fault. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kingdom.errors import Exit


class Owner(StrEnum):
    LAUNCHER = "tmux or supervisord"
    LEDGER = "bin/role"
    WATCHER = "the chamberlain; for the chamberlain itself, the king"


class Action(StrEnum):
    LEAVE = "leave it"
    RESTART = "start it again at once"
    DELAY = "wait before its next life, and after five short ones quarantine it"
    REFUSE = "end instead of becoming the role"
    START = "start it through the launcher"
    REPLACE = "TERM, then KILL, confirmed, then start it through the launcher"
    END = "TERM, then KILL, confirmed"
    TELL = "tell people once"
    KILL = "KILL the launcher, which is then dead"
    RAISE = "raise the launcher with all its roles, and make room for the new chamberlain"


class State(StrEnum):
    WELL = "it beats, or has just been started"
    WAITING = "bin/role delays its next life"
    HUNG = "it runs and has not beaten for longer than the threshold"
    DEAD = "its life ended otherwise than by contract"
    FORGOTTEN = "it is dead and its launcher does nothing about it"
    ENDED = "it ended by itself with 0: somebody asked it to"
    DISPLACED = "another had its lock, and that other is gone"
    REFUSED = "it cannot run as it is configured (78)"
    ABSENT = "it is wanted and its launcher has never started it"
    UNWANTED = "nobody wants it and it does not run"
    LINGERING = "nobody wants it and it runs"
    QUARANTINED = "a crash loop"
    LAUNCHER_DEAD = "its launcher is gone"
    LAUNCHER_HUNG = "its launcher lives and has not answered for longer than the threshold"


_L, _B, _W = Owner.LAUNCHER, Owner.LEDGER, Owner.WATCHER

DUTIES: dict[State, dict[Owner, Action]] = {
    State.WELL: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.LEAVE},
    State.WAITING: {_L: Action.LEAVE, _B: Action.DELAY, _W: Action.LEAVE},
    State.HUNG: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.REPLACE},
    State.DEAD: {_L: Action.RESTART, _B: Action.DELAY, _W: Action.LEAVE},
    State.FORGOTTEN: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.START},
    State.ENDED: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.LEAVE},
    State.DISPLACED: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.START},
    State.REFUSED: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.TELL},
    State.ABSENT: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.START},
    State.UNWANTED: {_L: Action.LEAVE, _B: Action.REFUSE, _W: Action.LEAVE},
    State.LINGERING: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.END},
    State.QUARANTINED: {_L: Action.LEAVE, _B: Action.REFUSE, _W: Action.TELL},
    State.LAUNCHER_DEAD: {_L: Action.LEAVE, _B: Action.REFUSE, _W: Action.RAISE},
    State.LAUNCHER_HUNG: {_L: Action.LEAVE, _B: Action.LEAVE, _W: Action.KILL},
}


STARTING_SECONDS = 15.0
"""A busy machine may take so long to load a role; were it shot before its first beat, it would never beat."""


@dataclass(frozen=True)
class Sight:
    """What a watcher sees of one role. Seconds are of the watcher's own clock."""

    wanted: str = "up"
    runs: bool = False
    waits: bool = False
    elsewhere: bool = False
    has_beaten: bool = True
    code: int | None = None
    unchanged: float = 0.0
    """for so long neither its heartbeat nor the launcher's word on it has changed"""


def judge(sight: Sight, threshold: float, settling: float) -> State:
    """`settling` is how long a change may take to show its end: a start under way, a launcher's restart."""
    if sight.wanted == "quarantined":
        return State.QUARANTINED
    if sight.wanted == "down":
        return State.LINGERING if sight.runs else State.UNWANTED
    if sight.waits:
        return State.WAITING
    if sight.runs or sight.elsewhere:
        patience = threshold if sight.has_beaten else max(threshold, STARTING_SECONDS)
        return State.HUNG if sight.unchanged >= patience else State.WELL
    return _of_the_ended(sight, settled=sight.unchanged >= settling)


def _of_the_ended(sight: Sight, settled: bool) -> State:
    if sight.code is None:
        return State.ABSENT if settled else State.WELL
    if sight.code == Exit.DONE:
        return State.ENDED
    if sight.code == Exit.REFUSED:
        return State.REFUSED
    if sight.code == Exit.LOCKED:
        return State.DISPLACED if settled else State.WELL
    return State.FORGOTTEN if settled else State.DEAD
