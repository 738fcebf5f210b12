"""`yirangmq consume --follow --exec CMD`: run a shell command for each message."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kingdom.base.errors import Exit
from kingdom.base.runtime.processes import end_with_parent
from kingdom.mq.typed_calls import Calls, Delivery
from kingdom.mq.worker import Failed, QueueWork, Runner, to_stderr

LONGEST_VARIABLE = 30_000
"""Characters: Linux refuses to start a command with a variable of more than 128 KiB."""
ENDS_WITHIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    queue: str
    consumer: str
    visibility: float | None
    #: None: each message is printed, and nobody acknowledges it here.
    command: str | None
    limit: int | None
    follow: bool
    concurrency: int


class RunningCommands:
    """The command of each message in work."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, delivery: Delivery) -> None:
        """Run the command. It gets the payload on stdin; Failed when it does not end with 0."""
        with subprocess.Popen(
            ["/bin/sh", "-c", self._command],
            stdin=subprocess.PIPE,
            env=_environment(delivery),
            start_new_session=True,
            preexec_fn=_end_with_worker,
        ) as child:
            self._children[delivery.lease_id] = child
            try:
                child.communicate(delivery.text.encode())
            finally:
                del self._children[delivery.lease_id]
        if child.returncode:
            code = child.returncode
            raise Failed(f"exit {code}" if code > 0 else f"killed by {signal.Signals(-code).name}")

    def end(self, delivery: Delivery) -> None:
        """End the command of a message that somebody else has now."""
        child = self._children.get(delivery.lease_id)
        if child is None:
            return
        _signal_group(child, signal.SIGTERM)
        try:
            child.wait(ENDS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(child, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask all commands to end."""
        for child in list(self._children.values()):
            _signal_group(child, signal.SIGTERM)


def work(calls: Calls, options: WorkerOptions, wait: float, show: Callable[[Any], None]) -> int:
    """Let the command work on the messages of a queue, or print them. Return the exit code."""
    commands = RunningCommands(options.command or "")
    function = commands.run if options.command else lambda delivery: show(delivery.to_answer())
    acknowledges = options.command is not None
    job = QueueWork(options.queue, function, options.concurrency, options.consumer, options.visibility, acknowledges)
    runner = Runner(
        calls,
        [job],
        follow=options.follow,
        limit=options.limit,
        wait=wait,
        report_done=to_stderr,
        on_lost=commands.end,
        on_second_signal=commands.terminate,
    )
    return int(Exit.DONE if runner.run() or options.follow else Exit.FAILED)


def _end_with_worker() -> None:
    """End the command with its worker: a killed worker extends no lease, and another one will do the work."""
    end_with_parent(signal.SIGKILL)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if child.poll() is None:
        os.killpg(child.pid, number)


def _environment(delivery: Delivery) -> dict[str, str]:
    """Return the environment of the command: what it may want to know besides the payload."""
    about = {
        "YIRANGMQ_QUEUE": delivery.queue,
        "YIRANGMQ_MESSAGE_ID": delivery.message_id,
        "YIRANGMQ_MESSAGE_KEY": delivery.message_key,
        "YIRANGMQ_ATTEMPT": str(delivery.attempt),
        "YIRANGMQ_TYPE": delivery.type,
        "YIRANGMQ_TRACE_ID": delivery.trace_id,
        "YIRANGMQ_ATTRIBUTES": delivery.attributes_text if len(delivery.attributes_text) <= LONGEST_VARIABLE else "",
    }
    return {**os.environ, **{name: value.replace("\0", "") for name, value in about.items()}}
