"""yirangmq, also `kingdom mq`: the queue from a shell. JSON on stdout; what went wrong on stderr and in the exit code.

0 done   1 refused   2 wrong usage   3 the manager is not running   4 no answer in time
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from kingdom.cli import edge
from kingdom.cli.finite import Finite
from kingdom.cli.yirangmq_worker import Orders, Worker
from kingdom.errors import Exit, KingdomError, NotRunning, Usage
from kingdom.home.places import Places, find_home
from kingdom.mq import configuration
from kingdom.mq.client import START_IT, Client, Refused
from kingdom.mq.mailbox_folders import Box

Answer = dict[str, Any]

WHO = "cli"
"""The consumer when nobody says: the same in every call, so that `ack` needs only the key."""
MANAGER_MAY_RESTART_SECONDS = 1.0
LINES_AT_ONCE = 500


class Asking(Protocol):
    """Somebody who answers the queue's calls: the manager through its mailbox, or the store itself."""

    def call(self, command: str, payload: Mapping[str, Any]) -> Answer: ...


class Direct:
    """The store without a manager; refused while one holds it."""

    def __init__(self, found: configuration.Settings) -> None:
        from kingdom.mq import call_fields, calls, opening
        from kingdom.mq.errors import Refusal

        self._calls = calls
        self._call = call_fields.Call
        self._refusal = Refusal
        self._engine = opening.engine(found, lambda: int(time.time() * 1000), lambda *_, **__: None)

    def call(self, command: str, payload: Mapping[str, Any]) -> Answer:
        if command == "health":
            return {"status": "ok", "timestamp": int(time.time() * 1000)}
        row = self._calls.CALLS.get(command)
        if row is None:
            raise Usage(message=f"only a running manager knows its {command}: leave out --direct")
        done = 0
        while True:
            self._engine.sweep()
            try:
                answer = row.answer(self._engine, self._call(payload, WHO, done=done))
            except self._refusal as refusal:
                raise Refused(code=refusal.code, text=str(refusal)) from None
            self._engine.commit()
            if not isinstance(answer, self._calls.NotYet):
                return answer
            done = answer.done

    def check(self, repair: bool) -> list[Answer]:
        found = [
            {"kind": each.kind, "queue": each.queue, "what": each.what, "repaired": each.repaired}
            for each in self._engine.check(repair)
        ]
        self._engine.commit()
        return found

    def close(self) -> None:
        self._engine.close()


# --- the parts that every command shares


def exit_code(trouble: KingdomError) -> int:
    """78 and 75 are for launchers; to a script everything that is not usage, absence or time is a refusal."""
    known = (Exit.USAGE, Exit.NOT_RUNNING, Exit.TIMED_OUT)
    return int(trouble.exit if trouble.exit in known else Exit.FAILED)


class OneLine(click.Group):
    """An error is one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KingdomError as trouble:
            click.echo(f"{ctx.command_path}: {trouble}", err=True)
            ctx.exit(exit_code(trouble))


@click.group("yirangmq", cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Yi-Rang MQ: a durable queue between local processes."""


def options(timeout: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(command: Callable[..., None]) -> Callable[..., None]:
        if timeout:
            command = click.option(
                "--timeout", type=Finite(0, min_open=True), default=30000, help="wait for the answer, ms"
            )(command)
        for each in (
            click.option("--direct", is_flag=True, help="open the store itself, without a manager"),
            click.option("--config", type=click.Path(path_type=Path), help="instead of the home's config/mq.yaml"),
            click.option("--ipc-root", type=click.Path(path_type=Path), help="the mailbox (default: the home's)"),
        ):
            command = each(command)
        return command

    return add


@contextmanager
def asking(ipc_root: Path | None, config: Path | None, direct: bool, timeout: float) -> Iterator[Asking]:
    if direct:
        store = _open_direct(config)
        try:
            yield store
        finally:
            store.close()
        return
    with Client(_box(ipc_root, config), timeout=timeout / 1000) as client:
        _wait_for_manager(client, min(timeout / 1000, MANAGER_MAY_RESTART_SECONDS))
        yield client


def _open_direct(config: Path | None) -> Direct:
    return Direct(configuration.load(Places(find_home()), config))


def _box(ipc_root: Path | None, config: Path | None) -> Box:
    if config is None:
        return configuration.box_of_home(Places(find_home())) if ipc_root is None else Box.at(ipc_root)
    found = configuration.load(Places(find_home()), config)
    return found.box if ipc_root is None else Box.at(ipc_root, found.config["ipc"])


def _wait_for_manager(client: Client, seconds: float) -> None:
    """Nothing is written while nobody is there to read it: then "not running" means "nothing was done"."""
    end = time.monotonic() + seconds
    while not client.manager_runs():
        if time.monotonic() >= end:
            raise NotRunning(what="the queue manager", hint=f"nobody serves {client.root}; {START_IT}")
        time.sleep(0.02)


def show(answer: Any) -> None:
    click.echo(json.dumps(answer, ensure_ascii=False))


def given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# --- messages


@cli.command()
@click.option("--queue", required=True)
@click.option("--message", help="the payload; JSON or any text")
@click.option("--file", "file", type=click.File("rb"), help="one message per line; - is stdin")
@click.option("--priority", type=click.IntRange(-(1 << 63), (1 << 63) - 1), default=0, help="higher goes first")
@click.option("--delay", type=click.IntRange(0), default=0, help="ms until it is ready")
@click.option("--target", default="", help="only this consumer may take it")
@click.option("--type", "type_", help="what kind of message it is")
@click.option("--trace-id")
@click.option("--dedup-key", help="the same key within the queue's window is one message")
@click.option("--ttl", type=Finite(0), help="seconds until it is purged unread")
@click.option("--attributes", help="a JSON object")
@options()
def publish(
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
    ipc_root: Path | None,
    config: Path | None,
    direct: bool,
    timeout: float,
) -> None:
    """Put a message into a queue, or one per line of a file."""
    if (message is None) == (file is None):
        raise click.UsageError("give --message or --file, one of them")
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
    with asking(ipc_root, config, direct, timeout) as queues:
        if file is None:
            show(queues.call("publish", {"queue": queue, "message": message, **about}))
        elif not _publish_lines(queues, queue, file, about):
            sys.exit(int(Exit.FAILED))


def _publish_lines(queues: Asking, queue: str, file: Any, about: Mapping[str, Any]) -> bool:
    """What is there is sent at once, so that a slow pipe is not kept waiting for a full batch."""
    number, good = 0, True
    for lines in _batches(file):
        numbered = [(number + at, line) for at, line in enumerate(lines, 1)]
        number += len(lines)
        full = [(at, line) for at, line in numbered if line.strip()]
        if not full:
            continue
        messages = [{"message": line, **about} for _, line in full]
        outcomes = queues.call("publish_batch", {"queue": queue, "messages": messages})["messages"]
        for (at, _), outcome in zip(full, outcomes, strict=True):
            if "error" in outcome:
                good = False
                click.echo(f"yirangmq: line {at}: {outcome['error']['code']}: {outcome['error']['message']}", err=True)
            else:
                show(outcome)
    return good


def _batches(file: Any) -> Iterator[list[str]]:
    rest = b""
    while part := os.read(file.fileno(), 1 << 18):
        *whole, rest = (rest + part).split(b"\n")
        for start in range(0, len(whole), LINES_AT_ONCE):
            yield [line.decode("utf-8", "replace") for line in whole[start : start + LINES_AT_ONCE]]
    if rest:
        yield [rest.decode("utf-8", "replace")]


@cli.command()
@click.option("--queue", required=True)
@click.option("--consumer-id", default=WHO, help="who takes it")
@click.option("--visibility", type=Finite(0, min_open=True), help="seconds it is ours (default: the queue's)")
@click.option("--wait", type=click.IntRange(0), default=0, help="ms to wait for a message when there is none")
@click.option("--follow", is_flag=True, help="go on for ever")
@click.option("--exec", "command", help="run this with the payload on stdin; ack on exit 0, else nack")
@click.option("--limit", type=click.IntRange(1), help="end after so many messages")
@click.option(
    "--timeout",
    type=Finite(0, min_open=True),
    help="wait for the answer, ms (30000); with --direct: seconds that the message is ours",
)
@options(timeout=False)
def consume(
    queue: str,
    consumer_id: str,
    visibility: float | None,
    wait: int,
    follow: bool,
    command: str | None,
    limit: int | None,
    timeout: float | None,
    ipc_root: Path | None,
    config: Path | None,
    direct: bool,
) -> None:
    """Take the next message, or work through a queue."""
    if direct:
        if follow or command or wait:
            raise click.UsageError("--follow, --exec and --wait need the manager: leave out --direct")
        visibility = timeout if visibility is None else visibility
        timeout = None
    orders = Orders(queue, consumer_id, visibility, command, limit if follow or limit else 1, follow)
    if follow or command:
        with Client(_box(ipc_root, config), timeout=(timeout or 30000) / 1000) as client:
            _wait_for_manager(client, MANAGER_MAY_RESTART_SECONDS)
            sys.exit(Worker(client, orders, wait / 1000, show).run())
    payload = given(queue=queue, consumerId=consumer_id, visibilityTimeoutSec=visibility)
    with asking(ipc_root, config, direct, (timeout or 30000) + wait) as queues:
        for _ in range(limit or 1):
            answer = queues.call("consume_next", {**payload, "waitMs": wait})
            show(answer)
            if answer["message"] is None:
                return


def _one_call(name: str, payload: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
    with asking(**shared) as queues:
        show(queues.call(name, payload))


@cli.command()
@click.option("--message-key", required=True)
@click.option("--lease-id")
@click.option("--consumer-id")
@options()
def ack(message_key: str, lease_id: str | None, consumer_id: str | None, **shared: Any) -> None:
    """Done with a message: it is gone."""
    _one_call("ack", _held(message_key, lease_id, consumer_id), shared)


@cli.command()
@click.option("--message-key", required=True)
@click.option("--lease-id")
@click.option("--consumer-id")
@click.option("--reason", default="", help="why it failed")
@click.option("--requeue", is_flag=True, help="try again by the queue's retry rule; else it is a dead letter")
@options()
def nack(
    message_key: str, lease_id: str | None, consumer_id: str | None, reason: str, requeue: bool, **shared: Any
) -> None:
    """Could not do it."""
    payload = {**_held(message_key, lease_id, consumer_id), "reason": reason, "requeue": requeue}
    _one_call("nack", payload, shared)


@cli.command()
@click.option("--message-key", required=True)
@click.option("--lease-id")
@click.option("--consumer-id")
@click.option("--visibility", type=Finite(0, min_open=True), help="seconds from now (default: the queue's)")
@options()
def extend(
    message_key: str, lease_id: str | None, consumer_id: str | None, visibility: float | None, **shared: Any
) -> None:
    """Hold on to a message longer."""
    held = _held(message_key, lease_id, consumer_id)
    _one_call("extend_lease", {**held, **given(visibilityTimeoutSec=visibility)}, shared)


def _held(message_key: str, lease_id: str | None, consumer_id: str | None) -> dict[str, Any]:
    consumer = consumer_id or (None if lease_id else WHO)
    return given(messageKey=message_key, leaseId=lease_id, consumerId=consumer)


# --- queues


@cli.command()
@click.option("--queue", required=True)
@options()
def status(queue: str, **shared: Any) -> None:
    """Counts, rates and policy of a queue."""
    _one_call("status", {"queue": queue}, shared)


@cli.command()
@options()
def queues(**shared: Any) -> None:
    """Every queue with its counts."""
    _one_call("queues", {}, shared)


@cli.command()
@click.option("--queue", required=True)
@click.option("--limit", type=click.IntRange(1), default=10)
@options()
def peek(queue: str, limit: int, **shared: Any) -> None:
    """Look at the next messages without taking them."""
    _one_call("peek", {"queue": queue, "limit": limit}, shared)


@cli.command()
@click.option("--queue", required=True)
@options()
def pause(queue: str, **shared: Any) -> None:
    """Hand out nothing more from a queue."""
    _one_call("pause", {"queue": queue}, shared)


@cli.command()
@click.option("--queue", required=True)
@options()
def resume(queue: str, **shared: Any) -> None:
    """Hand out again."""
    _one_call("resume", {"queue": queue}, shared)


@cli.command()
@click.option("--queue", required=True)
@click.option("--yes", is_flag=True, help="yes, throw them away")
@click.option("--dlq", is_flag=True, help="the dead letters instead of what waits")
@click.option("--older-than", type=click.IntRange(0), help="only dead letters older than so many ms")
@click.option("--archive", is_flag=True, help="keep purged dead letters in the archive")
@options()
def purge(queue: str, yes: bool, dlq: bool, older_than: int | None, archive: bool, **shared: Any) -> None:
    """Throw away what waits in a queue."""
    if not yes:
        raise click.UsageError(f"this throws away messages of {queue!r}: say --yes if you mean it")
    _one_call("purge", given(queue=queue, dlq=dlq, olderThanMs=older_than, archive=archive), shared)


# --- dead letters


@cli.command("list-dlq")
@click.option("--queue", required=True)
@click.option("--limit", type=click.IntRange(1), default=100)
@options()
def list_dlq(queue: str, limit: int, **shared: Any) -> None:
    """The dead letters of a queue, each with its reason."""
    _one_call("list_dlq", {"queue": queue, "limit": limit}, shared)


@cli.command("dlq-stats")
@click.option("--queue", required=True)
@click.option("--since", type=click.IntRange(0), default=0, help="only the last so many ms")
@options()
def dlq_stats(queue: str, since: int, **shared: Any) -> None:
    """How many dead letters for which reason."""
    _one_call("dlq_stats", {"queue": queue, "sinceMs": since}, shared)


@cli.command()
@click.option("--message-key", help="one dead letter")
@click.option("--queue", help="those of a queue")
@click.option("--reason", help="only those with this reason code")
@click.option("--older-than", type=click.IntRange(0), help="only those older than so many ms")
@click.option("--limit", type=click.IntRange(1), help="no more than so many")
@options()
def reprocess(
    message_key: str | None,
    queue: str | None,
    reason: str | None,
    older_than: int | None,
    limit: int | None,
    **shared: Any,
) -> None:
    """Put dead letters back to work, as if never tried."""
    if (message_key is None) == (queue is None):
        raise click.UsageError("give --message-key or --queue, one of them")
    payload = given(messageKey=message_key, queue=queue, reasonCode=reason, olderThanMs=older_than, limit=limit)
    _one_call("reprocess_dlq", payload, shared)


@cli.command()
@click.option("--message-key", required=True)
@click.option("--off", is_flag=True, help="back among the others")
@options()
def quarantine(message_key: str, off: bool, **shared: Any) -> None:
    """Set a dead letter apart, out of reach of bulk commands."""
    _one_call("quarantine", {"messageKey": message_key, "quarantined": not off}, shared)


# --- the manager and its store


@cli.command()
@options()
def health(**shared: Any) -> None:
    """Whether the manager answers."""
    _one_call("health", {}, shared)


@cli.command()
@options()
def metrics(**shared: Any) -> None:
    """What the manager has done since it started."""
    _one_call("metrics", {}, shared)


@cli.command()
@click.option("--repair", is_flag=True, help="mend what can be mended")
@click.option("--config", type=click.Path(path_type=Path), help="instead of the home's config/mq.yaml")
def check(repair: bool, config: Path | None) -> None:
    """Look for what does not fit in the store, with the manager stopped."""
    store = _open_direct(config)
    try:
        found = store.check(repair)
    finally:
        store.close()
    show({"findings": found})
    if any(not each["repaired"] for each in found):
        sys.exit(int(Exit.FAILED))


cli.add_command(extend, "extend-lease")


def main() -> int:
    return edge.run("yirangmq", cli)


if __name__ == "__main__":
    sys.exit(main())
