"""What the mailbox can be asked: the calls of the engine (calls.CALLS) and what only a manager knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kingdom.mailbox.counters import Figures
from kingdom.mq import calls
from kingdom.mq.calls import Call, Data, Unfinished
from kingdom.mq.engine import Engine


@dataclass(frozen=True, slots=True)
class Desk:
    """What commands work on."""

    engine: Engine
    figures: Figures
    node: str
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Command:
    """With `once` it must not run twice for one request; with `empty` it can wait until its answer is not."""

    run: Callable[[Desk, Call], Data | Unfinished]
    once: bool = False
    empty: Callable[[Data], bool] | None = None


def _on_engine(answering: calls.Answering) -> Callable[[Desk, Call], Data | Unfinished]:
    def run(desk: Desk, call: Call) -> Data | Unfinished:
        return answering(desk.engine, call)

    return run


def health(desk: Desk, call: Call) -> Data:
    return {"status": "ok", "timestamp": int(desk.clock() * 1000), "nodeId": desk.node}


def metrics(desk: Desk, call: Call) -> Data:
    now = desk.clock()
    return {"timestamp": int(now * 1000), **desk.figures.told(now)}


def _no_message(data: Data) -> bool:
    return data["message"] is None if "message" in data else not data["messages"]


RUN_ONCE = frozenset({"purge", "reprocess_dlq"})
MAY_WAIT = {"consume_next": _no_message, "consume_batch": _no_message}

COMMANDS: dict[str, Command] = {
    **{name: Command(_on_engine(call), name in RUN_ONCE, MAY_WAIT.get(name)) for name, call in calls.CALLS.items()},
    "health": Command(health),
    "metrics": Command(metrics),
}

ALIASES: dict[str, str] = {
    "consumenext": "consume_next",
    "consume": "consume_next",
    "extendlease": "extend_lease",
    "extend": "extend_lease",
    "listdlq": "list_dlq",
    "dlq": "list_dlq",
    "reprocessdlq": "reprocess_dlq",
    "reprocess": "reprocess_dlq",
}


def find(name: str) -> tuple[str, Command] | None:
    """The command by any of its names, in any case."""
    word = name.lower()
    word = ALIASES.get(word, word)
    command = COMMANDS.get(word)
    return (word, command) if command else None
