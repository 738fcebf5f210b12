"""The table of what the mailbox can be asked: the calls of the engine (calls.CALLS) and what only a manager knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kingdom.mailbox.counters import Counters
from kingdom.mq.call_fields import Call, Data
from kingdom.mq.calls import CALLS, Command, NotYet
from kingdom.mq.engine import Engine


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What commands work on."""

    engine: Engine
    counters: Counters
    #: The configured name of this machine.
    node: str
    #: Seconds since the epoch.
    clock: Callable[[], float]


def health(context: CommandContext, call: Call) -> Data:
    trouble = context.engine.store.trouble
    about = {"status": "degraded", "trouble": trouble} if trouble else {"status": "ok"}
    return {**about, "timestamp": int(context.clock() * 1000), "nodeId": context.node}


def metrics(context: CommandContext, call: Call) -> Data:
    now = context.clock()
    return {"timestamp": int(now * 1000), **context.counters.as_json(now)}


def _on_engine(row: Command[Engine]) -> Command[CommandContext]:
    def answer(context: CommandContext, call: Call) -> Data | NotYet:
        return row.answer(context.engine, call)

    return Command(answer, row.fields, row.aliases, row.run_once, row.nothing)


COMMANDS: dict[str, Command[CommandContext]] = {
    **{name: _on_engine(row) for name, row in CALLS.items()},
    "health": Command(health),
    "metrics": Command(metrics),
}


def find(name: str) -> tuple[str, Command[CommandContext]] | None:
    """Return a command and its first name, by any of its names in any case."""
    word = name.lower()
    if word in COMMANDS:
        return word, COMMANDS[word]
    return next(((name, row) for name, row in COMMANDS.items() if word in row.aliases), None)
