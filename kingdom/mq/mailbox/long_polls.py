"""Consumers that wait for a message instead of hearing that there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kingdom.mq.call_fields import QUEUE, Call, Data
from kingdom.mq.calls import CommandRow, OngoingCall
from kingdom.mq.errors import Refusal
from kingdom.mq.mailbox.commands import CommandContext
from kingdom.mq.mailbox.pending import PendingRequest


@dataclass(slots=True)
class Waiter:
    pending: PendingRequest
    command: CommandRow[CommandContext]
    #: Who gets the message: a message may be meant for one consumer only.
    consumer: str
    #: The answer when nothing came in time.
    nothing: Data


class LongPolls:
    def __init__(
        self,
        context: CommandContext,
        call_of: Callable[[PendingRequest], Call],
        go_on: Callable[[PendingRequest], None],
    ) -> None:
        """`go_on` has a request carried on that takes more turns."""
        self._context = context
        self._go_on = go_on
        self._call_of = call_of
        self._waiting: dict[str, list[Waiter]] = {}

    def add(self, pending: PendingRequest, command: CommandRow[CommandContext], nothing: Data, wait_ms: int) -> None:
        """Let a request wait, at most until its deadline."""
        request, call = pending.request, self._call_of(pending)
        if request.deadline_ms:
            wait_ms = min(wait_ms, int(request.deadline_ms - self._context.clock() * 1000))
        pending.waits_until = pending.waits_until or self._context.engine.clock() + wait_ms
        self._waiting.setdefault(call[QUEUE], []).append(Waiter(pending, command, call.consumer, nothing))

    def next_end(self) -> int | None:
        """Return when the next wait ends, in ms of the engine's time; None without waiting clients."""
        ends = (waiter.pending.waits_until for waiters in self._waiting.values() for waiter in waiters)
        return min(ends, default=None)

    def serve(self, answered: list[PendingRequest]) -> None:
        """Hand out what has arrived, end the waits that are over, and add the requests concerned to `answered`."""
        arrived = self._context.engine.arrived()
        if not self._waiting:
            return
        for queue in arrived & self._waiting.keys():
            waiters = self._waiting[queue]
            self._waiting[queue] = [waiter for waiter in waiters if self._still_waits(queue, waiter, answered)]
        now = self._context.engine.clock()
        for queue, waiters in list(self._waiting.items()):
            late = [waiter for waiter in waiters if waiter.pending.waits_until <= now]
            for waiter in late:
                waiters.remove(waiter)
                waiter.pending.succeed(waiter.nothing)
                answered.append(waiter.pending)
            if not waiters:
                del self._waiting[queue]

    def _still_waits(self, queue: str, waiter: Waiter, answered: list[PendingRequest]) -> bool:
        """Ask again for one of those who wait. Return whether there is still nothing for it."""
        pending = waiter.pending
        if not self._context.engine.has_ready(queue, waiter.consumer):
            return True
        if pending.is_withdrawn():
            return False
        if pending.client_was_killed():
            with suppress(OSError):
                os.unlink(pending.path)
            return False
        try:
            pending.work = OngoingCall(waiter.command, self._call_of(pending))
            data = pending.work.go_on(self._context)
        except Refusal as refusal:
            pending.refuse(refusal.code, str(refusal))
        else:
            if data is None:
                self._go_on(pending)
                return False
            if data == waiter.nothing:
                return True
            pending.succeed(data)
        answered.append(pending)
        return False
