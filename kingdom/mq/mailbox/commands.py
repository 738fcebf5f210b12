"""The table of what the mailbox can be asked: the calls of the engine (calls.CALLS) and what only a manager knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kingdom.base.errors import BadName
from kingdom.mq.budget import Budget, Steps
from kingdom.mq.call_fields import Call, Data, Objects, Payload
from kingdom.mq.calls import CALLS, CommandRow, OngoingCall, refused
from kingdom.mq.engine import Engine
from kingdom.mq.errors import InvalidRequest, Refusal
from kingdom.mq.mailbox.counters import UNKNOWN, Counters
from kingdom.mq.mailbox_folders import check_request_id
from kingdom.mq.stores.base import MOST_AT_ONCE
from kingdom.mq.typed_calls import TOGETHER

CALLS_OF_BATCH = Objects("calls")


class Late(Refusal):
    """its deadline had passed before it was read; nothing was done"""

    code = "ERR_TIMEOUT"


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What commands work on."""

    engine: Engine
    counters: Counters
    #: The configured name of this machine.
    node: str
    #: Seconds since the epoch.
    clock: Callable[[], float]
    #: More figures for `metrics`, by name.
    figures: dict[str, Callable[[], Data]] = field(default_factory=dict)


def health(context: CommandContext, call: Call) -> Data:
    trouble = context.engine.store.trouble
    about = {"status": "degraded", "trouble": trouble} if trouble else {"status": "ok"}
    return {**about, "timestamp": int(context.clock() * 1000), "nodeId": context.node}


def metrics(context: CommandContext, call: Call) -> Data:
    now = context.clock()
    figures = {name: figure() for name, figure in context.figures.items()}
    return {"timestamp": int(now * 1000), **context.counters.as_json(now), **figures}


def call_batch(context: CommandContext, call: Call) -> Steps[Data]:
    """Carry out several calls of one client, each as if it had come alone. What has no answer was not begun."""
    budget, room, answers = Budget(), MOST_AT_ONCE, list[Data]()
    for request in call[CALLS_OF_BATCH]:
        if room <= 0:
            break
        if not budget.is_left():
            yield
            budget.renew()
        budget.spend()
        answers.append((yield from _answer(context, request, call)))
        room -= _size(answers[-1])
    return {"answers": answers}


def _answer(context: CommandContext, request: Payload, batch: Call) -> Steps[Data]:
    """Return the answer to one call of a batch."""
    number, payload, now = request.get("requestId"), request.get("payload"), context.clock()
    name, code = UNKNOWN, None
    try:
        try:
            check_request_id(number)
        except BadName as error:
            raise InvalidRequest(field="requestId", why=str(error)) from None
        found = find(str(request.get("command")))
        if found is None or found[0] not in TOGETHER:
            raise InvalidRequest(field="command", why=f"is none of {', '.join(TOGETHER)}")
        name, row = found
        if (deadline := request.get("deadlineMs") or 0) and not isinstance(deadline, (int, float)):
            raise InvalidRequest(field="deadlineMs", why="is not a number")
        if 0 < deadline < now * 1000:
            raise Late
        given = payload if isinstance(payload, dict) else {}
        row.check(batch.rights, given)
        work = OngoingCall(row, Call(given, batch.client, str(number), batch.again, batch.rights))
        while (data := work.go_on(context)) is None:
            yield
        answer: Data = {"requestId": number, "ok": True, "data": data}
    except Refusal as refusal:
        code = refusal.code
        answer = {"requestId": number, "ok": False, "error": refused(refusal)}
    context.counters.count(name, code, now)
    return answer


def _size(answer: Data) -> int:
    message = answer.get("data", {}).get("message")
    return len(message["payload"]) if message else 0


def _on_engine(row: CommandRow[Engine]) -> CommandRow[CommandContext]:
    def answer(context: CommandContext, call: Call) -> Data | Steps[Data]:
        return row.answer(context.engine, call)

    return CommandRow(answer, row.fields, row.aliases, row.run_once, row.nothing, row.verb)


COMMANDS: dict[str, CommandRow[CommandContext]] = {
    **{name: _on_engine(row) for name, row in CALLS.items()},
    "health": CommandRow(health, verb=None),
    "metrics": CommandRow(metrics, verb="look"),
    "call_batch": CommandRow(call_batch, (CALLS_OF_BATCH,), verb=None),  # each call in it is checked
}


def find(name: str) -> tuple[str, CommandRow[CommandContext]] | None:
    """Return a command and its first name, by any of its names in any case."""
    word = name.lower()
    if word in COMMANDS:
        return word, COMMANDS[word]
    return next(((name, row) for name, row in COMMANDS.items() if word in row.aliases), None)
