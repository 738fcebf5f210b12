"""What the commands of `yirangmq` share: their options, who answers them, and how they print and fail."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.base.durations import MS, in_ms
from kingdom.base.errors import Exit, KingdomError, NotRunning
from kingdom.base.home.places import Places, find_home, named_home
from kingdom.mq import configuration
from kingdom.mq.cli import yirangmq_tables as tables
from kingdom.mq.client import START_IT, Client
from kingdom.mq.errors import LeaseMismatch
from kingdom.mq.mailbox_folders import MailboxFolders
from kingdom.mq.typed_calls import Calls, Refused

if TYPE_CHECKING:
    from kingdom.mq.local import Local

Answer = dict[str, Any]

DEFAULT_CONSUMER = "cli"
"""The consumer when nobody says: the same in every call, so that `ack` needs only the key."""
NOBODY = ""
"""The client of a direct call: it holds nothing, so that a message key is enough to acknowledge."""
DEFAULT_TIMEOUT_MS = 30000
MANAGER_MAY_RESTART_SECONDS = 1.0


def open_direct(config: Path | None) -> Local:
    """Open the store without a manager; refused while a manager holds it."""
    from kingdom.mq.local import Local

    return Local(configuration.load(Places(find_home()), config), NOBODY)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the queue, as the options of a command say it."""

    ipc_root: Path | None
    config: Path | None
    direct: bool
    #: How long to wait for an answer; None: the command says its own default.
    timeout_ms: Milliseconds | None
    #: Whether answers are printed as JSON also on a terminal.
    json: bool = False
    #: The client to ask as; None: a new one, whose answers no other program gets.
    client_id: str | None = None

    @contextmanager
    def open(self, extra_ms: float = 0) -> Iterator[Calls]:
        """Open the store or the mailbox. `extra_ms`: how long the manager may take, beyond the time-out, to answer."""
        if self.direct:
            store = open_direct(self.config)
            try:
                yield store
            finally:
                store.close()
            return
        with self.client(extra_ms) as client:
            wait_for_manager(client, min(client.timeout, MANAGER_MAY_RESTART_SECONDS))
            yield client

    def client(self, extra_ms: float = 0) -> Client:
        return Client(
            self._folders(), self.client_id, timeout=((self.timeout_ms or DEFAULT_TIMEOUT_MS) + extra_ms) / 1000
        )

    def call(self, command: str, **payload: Any) -> None:
        """Make one call and print its answer. Fields that are None are left out."""
        with self.open() as queues:
            self.show(queues.call(command, given(**payload)))

    def call_as_holder(
        self, command: str, message_key: str, lease_id: str | None, consumer_id: str | None, **payload: Any
    ) -> None:
        """Make a call about a leased message. Its key alone is enough for the default consumer, or by the policy."""
        fields = given(messageKey=message_key, leaseId=lease_id, consumerId=consumer_id, **payload)
        with self.open() as queues:
            if self.direct or lease_id or consumer_id:
                answer = queues.call(command, fields)
            else:
                try:
                    answer = queues.call(command, {**fields, "consumerId": DEFAULT_CONSUMER})
                except Refused as refused:
                    if refused.code != LeaseMismatch.code:
                        raise
                    answer = queues.call(command, fields)
            self.show(answer)

    def show(self, answer: Answer) -> None:
        """Print an answer: a table on a terminal, one line of JSON elsewhere."""
        if self.json or not sys.stdout.isatty():
            show(answer)
        else:
            click.echo(tables.text(answer, shutil.get_terminal_size().columns))

    def _folders(self) -> MailboxFolders:
        if self.config is None:
            root = self.ipc_root or (None if named_home() else _mailbox_here())
            return MailboxFolders.at(root) if root else MailboxFolders.of_home(Places(find_home()))
        found = configuration.load(Places(find_home()), self.config)
        return found.box if self.ipc_root is None else MailboxFolders.at(self.ipc_root, found.config["ipc"])


def _mailbox_here() -> Path | None:
    """Return ./ipc when it is a mailbox: there command lines of the original look."""
    here = MailboxFolders.at(Path("ipc"))
    return here.root if here.requests.is_dir() and here.responses.is_dir() else None


class Milliseconds(float):
    """A time, and whether its unit was given."""

    has_unit = False


class Time(click.ParamType[float]):
    """A number in the option's own unit, or with one behind it: 500ms, 30s, 5m, 2h, 1d. The value is in that unit."""

    name = "time"

    def __init__(self, unit: str, *, positive: bool = False) -> None:
        self._unit = unit
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            ms = in_ms(value, self._unit)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if ms < 0 or (self._positive and not ms):
            self.fail(f"{value!r} is not {'more than' if self._positive else 'at least'} 0", param, ctx)
        return int(ms) if self._unit == "ms" else ms / MS[self._unit]


class TimeOut(Time):
    """A time in milliseconds that remembers whether it said so."""

    def __init__(self) -> None:
        super().__init__("ms", positive=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Milliseconds:
        found = Milliseconds(super().convert(value, param, ctx))
        found.has_unit = isinstance(value, str) and value.strip()[-1:].isalpha()
        return found


def wait_for_manager(client: Client, seconds: float = MANAGER_MAY_RESTART_SECONDS) -> None:
    """Wait until a manager runs. No request is written before: so "not running" means "nothing was done"."""
    end = time.monotonic() + seconds
    while not client.manager_runs():
        if time.monotonic() >= end:
            raise NotRunning(what="the queue manager", hint=f"no manager serves {client.root}; {START_IT}")
        time.sleep(0.02)


timeout_option = click.option(
    "--timeout",
    type=TimeOut(),
    metavar="MS",
    help=f"Wait at most so many milliseconds for the answer (default: {DEFAULT_TIMEOUT_MS}); also as 30s, 5m.",
)

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read this configuration instead of the home's config/mq.yaml.",
)


def connected(
    function: Callable[..., None], timeout: Callable[[Callable[..., None]], Callable[..., None]] = timeout_option
) -> Callable[..., None]:
    """Add the options that say how to reach the queue; the command gets them as its first argument."""
    timeout_is_lease = timeout is not timeout_option

    @timeout
    @click.option("--json", is_flag=True, help="Print JSON on a terminal too, instead of tables.")
    @click.option("--direct", is_flag=True, help="Open the store itself. Only while no manager runs.")
    @config_option
    @click.option(
        "--client-id",
        metavar="ID",
        help="Ask as this client: in a mailbox of another user, as its mq.yaml lists you (default: a new one).",
    )
    @click.option(
        "--ipc-root",
        type=click.Path(path_type=Path, readable=False),  # one may pass through another user's, and not list it
        metavar="DIR",
        help="Use this mailbox instead of the home's.",
    )
    @wraps(function)
    def command(
        ipc_root: Path | None,
        config: Path | None,
        direct: bool,
        timeout: Milliseconds | None,
        json: bool,
        client_id: str | None,
        **options: Any,
    ) -> None:
        if direct and ipc_root is not None:
            raise click.UsageError("--direct opens the store, --ipc-root names a mailbox: leave one of them out")
        if direct and timeout is not None and not timeout_is_lease:
            raise click.UsageError("--timeout is for answers of the manager: leave it out with --direct")
        if direct and client_id is not None:
            raise click.UsageError("--direct asks nobody: leave out --client-id")
        function(Connection(ipc_root, config, direct, timeout, json, client_id), **options)

    return command


def exit_code(error: KingdomError) -> int:
    """Return a script's exit code: usage, no manager, no answer in time, else refusal. 75 and 78 are for launchers."""
    known = (Exit.USAGE, Exit.NOT_RUNNING, Exit.TIMED_OUT)
    return int(error.exit if error.exit in known else Exit.FAILED)


class OneLine(click.Group):
    """A group of commands whose errors are one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KingdomError as error:
            click.echo(f"{ctx.command_path}: {error}", err=True)
            ctx.exit(exit_code(error))


def show(answer: Any) -> None:
    """Print an answer as one line of JSON."""
    click.echo(json.dumps(answer, ensure_ascii=False))


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
