"""yirangmq, also `kingdom mq`: the queue from a shell. JSON on stdout; what went wrong on stderr and in the exit code.

0 done   1 refused   2 wrong usage   3 the manager is not running   4 no answer in time

One function for each command; what they share is in yirangmq_call.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kingdom import __version__
from kingdom.base.errors import Exit
from kingdom.base.program.call import Finite, call
from kingdom.base.program.run import run
from kingdom.mq.cli.yirangmq_call import (
    DEFAULT_CONSUMER,
    DEFAULT_TIMEOUT_MS,
    Connection,
    Milliseconds,
    OneLine,
    Time,
    TimeOut,
    config_option,
    connected,
    given,
    open_direct,
    show,
    wait_for_manager,
)
from kingdom.mq.typed_calls import Calls

LINES_AT_ONCE = 500
WATCH_SECONDS = 2.0

queue_option = click.option("--queue", required=True, metavar="NAME", help="The queue.")
KEY_HELP = "The messageKey that publish and consume print."
key_option = click.option("--message-key", "messageKey", required=True, metavar="KEY", help=KEY_HELP)
Option = Callable[[Callable[..., None]], Callable[..., None]]


def limit_option(default: int | None, text: str) -> Option:
    return click.option("--limit", type=click.IntRange(1), metavar="N", default=default, help=text)


HOLDER = (
    click.option("--message-key", "message_key", required=True, metavar="KEY", help=KEY_HELP),
    click.option("--lease-id", metavar="ID", help="The leaseId that consume printed."),
    click.option("--consumer-id", metavar="ID", help=f"The consumer that took it (default: {DEFAULT_CONSUMER})."),
)
"""Which leased message is meant, and who holds it."""


@click.group(
    "yirangmq",
    cls=OneLine,
    short_help="Yi-Rang MQ: queues for other programs of this machine.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="yirangmq")
def cli() -> None:
    """Yi-Rang MQ: a durable queue between the processes of one machine.

    Answers are JSON on stdout, errors one line on stderr.

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage,
    3 the manager is not running, 4 no answer in time.

    Times may have a unit: 500ms, 30s, 5m, 2h, 1d. A bare number is in the unit that the option names.
    """


@cli.command()
@queue_option
@click.option("--message", metavar="TEXT", help="The message: JSON or any text.")
@click.option(
    "--file", "file", type=click.File("rb"), metavar="FILE", help="Publish each line of this file; - is stdin."
)
@click.option(
    "--priority",
    type=int,
    metavar="N",
    default=0,
    help="From -1000000 to 1000000; higher numbers are delivered first (default: 0).",
)
@click.option("--delay", type=Time("ms"), metavar="MS", default=0, help="Deliver it after so many milliseconds.")
@click.option("--target", metavar="ID", default="", help="Deliver it to this consumer only.")
@click.option("--type", "type_", metavar="TEXT", help="Its type, stored with it.")
@click.option("--trace-id", metavar="TEXT", help="An id for your own tracing, stored with it.")
@click.option("--dedup-key", metavar="TEXT", help="Publish nothing if a recent message of the queue had the same key.")
@click.option("--ttl", type=Time("s"), metavar="SECONDS", help="Delete it if nobody takes it within this time.")
@click.option("--attributes", metavar="JSON", help="A JSON object, delivered beside the message.")
@connected
def publish(
    connection: Connection,
    queue: str,
    message: str | None,
    file: Any,
    priority: int,
    delay: int,
    target: str,
    type_: str | None,
    trace_id: str | None,
    dedup_key: str | None,
    ttl: float | None,
    attributes: str | None,
) -> None:
    """Put a message into a queue, or each line of a file."""
    if (message is None) == (file is None):
        raise click.UsageError("give either --message or --file")
    if file is not None and dedup_key is not None:
        raise click.UsageError("--dedup-key would make one message of all lines of --file: leave one of them out")
    about = given(
        priority=priority,
        delayMs=delay,
        targetConsumerId=target,
        type=type_,
        traceId=trace_id,
        deduplicationKey=dedup_key,
        ttlSec=ttl,
        attributes=attributes,
    )
    with connection.open() as queues:
        if file is None:
            show(queues.call("publish", {"queue": queue, "message": message, **about}))
        elif not _publish_lines(queues, queue, file, about):
            sys.exit(int(Exit.FAILED))


def _publish_lines(queues: Calls, queue: str, file: Any, about: Mapping[str, Any]) -> bool:
    """Publish each line and return whether all were taken. A slow pipe is not kept waiting for a full batch."""
    number, good = 0, True
    for lines in _batches(file):
        full: list[tuple[int, str]] = []
        for at, line in enumerate(lines, number + 1):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                good = False
                click.echo(f"yirangmq: line {at}: not UTF-8 at byte {error.start}; it is not published", err=True)
                continue
            if text.strip():
                full.append((at, text))
        number += len(lines)
        if not full:
            continue
        messages = [{"message": line, **about} for _, line in full]
        results = queues.call("publish_batch", {"queue": queue, "messages": messages})["messages"]
        for (at, _), result in zip(full, results, strict=True):
            if "error" in result:
                good = False
                click.echo(f"yirangmq: line {at}: {result['error']['code']}: {result['error']['message']}", err=True)
            else:
                show(result)
    return good


def _batches(file: Any) -> Iterator[list[bytes]]:
    begun: list[bytes] = []
    while part := os.read(file.fileno(), 1 << 18):
        *whole, rest = part.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun.clear()
        for start in range(0, len(whole), LINES_AT_ONCE):
            yield whole[start : start + LINES_AT_ONCE]
        begun.append(rest)
    if last := b"".join(begun):
        yield [last]


_consume_timeout = click.option(
    "--timeout",
    type=TimeOut(),
    metavar="MS",
    help=f"Wait at most so many milliseconds for the answer (default: {DEFAULT_TIMEOUT_MS}). "
    "With --direct: lease the message for so many seconds.",
)


@cli.command()
@queue_option
@click.option(
    "--consumer-id",
    metavar="ID",
    default=DEFAULT_CONSUMER,
    help=f"Take it as this consumer (default: {DEFAULT_CONSUMER}).",
)
@click.option(
    "--visibility",
    type=Time("s", positive=True),
    metavar="SECONDS",
    help="Length of the lease (default: the queue's policy).",
)
@click.option("--wait", type=Time("ms"), metavar="MS", default=0, help="Wait for a message when there is none.")
@click.option("--follow", is_flag=True, help="Keep taking messages, until stopped.")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Run this shell command with the message on stdin. Exit code 0 acknowledges it; "
    "any other retries it by the queue's retry rule.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Take at most so many messages.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    metavar="N",
    help="With --exec: run the command for so many messages at a time (default: 1).",
)
@partial(connected, timeout=_consume_timeout)
def consume(
    connection: Connection,
    queue: str,
    consumer_id: str,
    visibility: float | None,
    wait: int,
    follow: bool,
    command: str | None,
    limit: int | None,
    concurrency: int | None,
) -> None:
    """Take the next message, or process a queue.

    The message is printed, or handed to the command of --exec. It is leased: acknowledge it with `ack` before the
    lease ends, or it is delivered again. (--exec does so itself.)
    """
    if connection.direct:
        if follow or command or wait:
            raise click.UsageError("--follow, --exec and --wait need the manager: leave out --direct")
        if visibility is not None and connection.timeout_ms is not None:
            raise click.UsageError("with --direct, --timeout is the length of the lease, as --visibility is: give one")
        visibility = _lease_seconds(connection.timeout_ms) if visibility is None else visibility
    if concurrency and not (command and (follow or limit)):
        raise click.UsageError("--concurrency is for many commands: give it with --exec and --follow (or --limit)")
    if follow and wait:
        raise click.UsageError("--follow waits for as long as it takes: leave out --wait")
    if follow or command:
        from kingdom.mq.cli.yirangmq_worker import WorkerOptions, work

        most = limit if follow or limit else 1
        options = WorkerOptions(queue, consumer_id, visibility, command, most, follow, concurrency or 1)
        with connection.client() as client:
            wait_for_manager(client)
            sys.exit(work(client, options, wait / 1000, show))
    payload = given(queue=queue, consumerId=consumer_id, visibilityTimeoutSec=visibility)
    with connection.open(extra_ms=wait) as queues:
        for _ in range(limit or 1):
            answer = queues.call("consume_next", {**payload, "waitMs": wait})
            show(answer)
            if answer["message"] is None:
                return


def _lease_seconds(timeout: Milliseconds | None) -> float | None:
    """Return --timeout as a direct consume means it: a bare number is in seconds."""
    if timeout is None:
        return None
    return timeout / 1000 if timeout.has_unit else float(timeout)


@cli.command()
@click.option("--watch", is_flag=True, help="Repeat, until Ctrl-C.")
@click.option("--every", type=Time("s", positive=True), metavar="SECONDS", help="With --watch: how often (default: 2).")
@connected
def queues(connection: Connection, watch: bool, every: float | None) -> None:
    """List all queues with their counts."""
    if every is not None and not watch:
        raise click.UsageError("--every needs --watch: add it, or leave --every out")
    if not watch:
        connection.call("queues")
        return
    if connection.direct:
        raise click.UsageError("--watch needs the manager, and would lock the store: leave out --direct")
    with connection.open() as calls:
        while True:
            answer = calls.call("queues", {})
            if sys.stdout.isatty() and not connection.json:
                click.clear()
            connection.show(answer)
            time.sleep(every or WATCH_SECONDS)


@cli.command()
@queue_option
@click.option("--yes", is_flag=True, help="Confirm; without this nothing is deleted.")
@click.option("--dlq", is_flag=True, help="Delete the queue's dead letters instead.")
@click.option(
    "--older-than",
    type=Time("ms"),
    metavar="MS",
    help="With --dlq: only dead letters older than so many milliseconds.",
)
@click.option("--archive", is_flag=True, help="With --dlq: keep them in the archive.")
@connected
def purge(connection: Connection, queue: str, yes: bool, dlq: bool, older_than: int | None, archive: bool) -> None:
    """Delete the messages of a queue that nobody has taken."""
    if not dlq and (older_than is not None or archive):
        raise click.UsageError("--older-than and --archive need --dlq: add it, or leave them out")
    if not yes:
        raise click.UsageError(f"this deletes messages of {queue!r}: add --yes if you mean it")
    connection.call("purge", queue=queue, dlq=dlq, olderThanMs=older_than, archive=archive)


@cli.command()
@queue_option
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="Another queue; or, with a slash in it, another store or manager: a data folder, a configuration file or a "
    "mailbox.",
)
@click.option("--as", "name", metavar="NAME", help="The queue's name in the other store (default: the same).")
@connected
def drain(connection: Connection, queue: str, to: str, name: str | None) -> None:
    """Move all waiting messages of a queue elsewhere, with all their fields.

    If it is killed, run it again: nothing is lost or doubled.
    """
    if "/" not in to:
        if name is not None:
            raise click.UsageError("--as is the name in another store: leave it out, or give --to with a slash")
        connection.call("move", queue=queue, to=to)
        return
    from kingdom.mq import draining

    with connection.open() as source, draining.opened(Path(to)) as target:
        answer = draining.drain(source, queue, target, name or queue)
    connection.show(answer)
    if answer["refused"]:
        sys.exit(int(Exit.FAILED))


@cli.command("delete-queue")
@queue_option
@click.option("--yes", is_flag=True, help="Confirm; without this nothing is deleted.")
@connected
def delete_queue(connection: Connection, queue: str, yes: bool) -> None:
    """Delete a queue with its messages, its dead letters, its archive and its policy."""
    if not yes:
        raise click.UsageError(f"this deletes {queue!r} and everything in it: add --yes to confirm")
    connection.call("delete_queue", queue=queue)


@cli.command()
@click.option("--message-key", metavar="KEY", help="Only this dead letter.")
@click.option("--queue", metavar="NAME", help="The dead letters of this queue.")
@click.option("--reason", metavar="CODE", help="With --queue: only those with this reason, as list-dlq shows it.")
@click.option(
    "--older-than",
    type=Time("ms"),
    metavar="MS",
    help="With --queue: only those older than so many milliseconds.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="With --queue: at most so many.")
@click.option(
    "--rate",
    type=Finite(min=0, min_open=True),
    metavar="N",
    help="With --queue: how many per second (default: all at once).",
)
@connected
def reprocess(
    connection: Connection,
    message_key: str | None,
    queue: str | None,
    reason: str | None,
    older_than: int | None,
    limit: int | None,
    rate: float | None,
) -> None:
    """Put dead letters back into their queue as new messages."""
    if (message_key is None) == (queue is None):
        raise click.UsageError("give either --message-key or --queue")
    chosen = given(reasonCode=reason, olderThanMs=older_than, limit=limit)
    if message_key is not None and (chosen or rate):
        raise click.UsageError("--reason, --older-than, --limit and --rate are for the dead letters of a --queue")
    if rate is None:
        connection.call("reprocess_dlq", messageKey=message_key, queue=queue, **chosen)
        return
    with connection.open() as calls:
        count = calls.reprocess(queue=queue, reason_code=reason, older_than_ms=older_than, limit=limit, rate=rate)
    connection.show({"queue": queue, "reprocessed": True, "count": count})


@cli.command()
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@config_option
def check(repair: bool, config: Path | None) -> None:
    """Check the store for damage, while no manager runs. Exit code 1: something is left to repair."""
    store = open_direct(config)
    try:
        findings = store.check(repair)
    finally:
        store.close()
    show({"findings": findings})
    if any(not finding["repaired"] for finding in findings):
        sys.exit(int(Exit.FAILED))


def _add(name: str, text: str, command: Callable[..., None], options: Sequence[Option]) -> None:
    command = connected(command)
    for option in reversed(options):
        command = option(command)
    cli.command(name, help=text)(command)


def _call(name: str, text: str, *options: Option) -> None:
    """Add a command that makes the call of its name; its options are named after the call's fields."""
    _add(name, text, lambda connection, **fields: connection.call(name.replace("-", "_"), **fields), options)


def _end(name: str, call: str, text: str, *options: Option) -> None:
    """Add a command for a message that its consumer holds."""
    _add(name, text, lambda connection, **fields: connection.call_as_holder(call, **fields), (*HOLDER, *options))


_end("ack", "ack", "Acknowledge a message: its work is done.")
_end(
    "nack",
    "nack",
    "Report that the work on a message failed.",
    click.option("--reason", metavar="TEXT", default="", help="Why it failed: kept with the dead letter."),
    click.option(
        "--requeue",
        is_flag=True,
        help="Retry it by the queue's retry rule; without this it becomes a dead letter at once.",
    ),
)
for name, text in {
    "extend": "Extend the lease on a message, to keep it longer.",
    "extend-lease": "Same as extend.",
}.items():
    _end(
        name,
        "extend_lease",
        text,
        click.option(
            "--visibility",
            "visibilityTimeoutSec",
            type=Time("s", positive=True),
            metavar="SECONDS",
            help="New length of the lease, from now (default: the queue's policy).",
        ),
    )
_call("status", "Show the counts, rates and policy of one queue.", queue_option)
_call("pause", "Stop delivering messages from a queue, until `resume`.", queue_option)
_call("resume", "Deliver messages from a paused queue again.", queue_option)
_call(
    "peek",
    "Show the next messages of a queue, or its dead letters, without taking them.",
    queue_option,
    limit_option(10, "Show at most so many (default: 10)."),
    click.option("--dlq", is_flag=True, help="Show the queue's dead letters instead."),
)
_call(
    "move",
    """Move the messages that wait in a queue to another queue, as they are.

    From a dead-letter queue (NAME-dlq), dead letters are moved and become messages again.
    """,
    queue_option,
    click.option("--to", required=True, metavar="NAME", help="The queue that gets them."),
    limit_option(None, "Move at most so many (default: all that wait)."),
)
_call("delete-policy", "Delete a queue's stored policy, so that the configuration's applies.", queue_option)
_call("delete-message", "Delete one message that waits, or one dead letter.", key_option)
_call(
    "list-dlq",
    "List the dead letters of a queue, each with its reason.",
    queue_option,
    limit_option(100, "Show at most so many (default: 100)."),
)
_call(
    "dlq-stats",
    "Count the dead letters of a queue by reason.",
    queue_option,
    click.option(
        "--since",
        "sinceMs",
        type=Time("ms"),
        metavar="MS",
        default=0,
        help="Count only those of the last so many milliseconds (default: all).",
    ),
)
_call(
    "quarantine",
    """Keep a dead letter out of bulk commands.

    `reprocess --queue` and `purge --dlq` leave it alone until --off.
    """,
    key_option,
    click.option("--off", "quarantined", flag_value=False, default=True, help="End the quarantine."),
)
_call("health", "Ask whether the manager answers.")
_call("metrics", "Show what the manager has done since it started.")


def main() -> int:
    return run("yirangmq", lambda: call("yirangmq", cli, sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
