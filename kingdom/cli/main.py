"""The entry point of `kingdom`, and what every program for people shares: one line for each error, and an exit code."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import click

from kingdom import __version__
from kingdom.cli import COMMANDS
from kingdom.errors import Exit, KingdomError, Usage
from kingdom.home.places import Places
from kingdom.runtime import tables
from kingdom.words import closest, printable

INTERRUPTED = 130
LONGEST_ERROR = 10_000
"""An error may quote what somebody typed, or the name of a file, of any length."""


class Commands(click.Group):
    """Load the module of the one command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = tables.load(COMMANDS[cmd_name])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            hint = closest(args[0], list(COMMANDS)) or "; `kingdom --help` lists them"
            raise Usage(message=f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


class Finite(click.FloatRange):
    """A number within a range; neither nan nor inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not running, 4 no answer in time, 75 locked, 78 refused.",
)
@click.version_option(__version__, prog_name="kingdom")
@click.option(
    "-C", "--home", "folder", metavar="FOLDER", help="Act on the home in FOLDER, whatever $KINGDOM_HOME says."
)
@click.pass_context
def kingdom(context: click.Context, folder: str | None) -> None:
    """A team-mate that finds its own work, on one machine.

    Start it with `kingdom up`, talk to it with `kingdom say "brief me"`, look at it with `kingdom status`. All its data
    is in files in its home: that of --home, else $KINGDOM_HOME, else the current folder or the nearest parent that is a
    home, else the checkout.
    """
    if folder is not None:
        _act_on(context, Path(folder).expanduser().absolute())


def _act_on(context: click.Context, home: Path) -> None:
    """Let this command, and whatever it starts, find its home there."""
    if context.invoked_subcommand != "init":
        Places(home).check_there()
    before = os.environ.get("KINGDOM_HOME")
    os.environ["KINGDOM_HOME"] = str(home)
    context.call_on_close(lambda: _set_home(before))


def _set_home(named: str | None) -> None:
    os.environ.pop("KINGDOM_HOME", None)
    if named is not None:
        os.environ["KINGDOM_HOME"] = named


def main(arguments: list[str] | None = None) -> int:
    """Run `kingdom` and return its exit code."""
    return run("kingdom", kingdom, arguments)


def run(program: str, command: click.Command, arguments: list[str] | None = None) -> int:
    """Run a program for people. Whatever goes wrong is printed as one line and returned as an exit code."""
    os.umask(0o077)
    _open_closed()
    try:
        code = command.main(args=arguments, prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else Exit.DONE
    except KingdomError as error:
        return _print_error(program, str(error), error.exit)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return Exit.USAGE
    except click.ClickException as error:
        return _print_error(program, _usage(_called(program, command, arguments), error), Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # its reader has seen enough
        return Exit.FAILED
    except OSError as error:
        # Of a failed move only the target is named: its source is a draft of ours that means nothing to people.
        path = error.filename2 or error.filename
        where = f": {path}" if path else ""
        _drop_output()
        return _print_error(program, f"{error.strerror or error}{where}", Exit.FAILED)


def _open_closed() -> None:
    """Put /dev/null where the caller has closed a stream: else a file of ours would get its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _drop_output() -> None:
    """Drop output that cannot be written: Python would try it again at its own end, and print a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _called(program: str, command: click.Command, arguments: list[str] | None) -> str:
    """Return the program with the name of the command that was called, if it has one of that name."""
    known = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
    name = next((word for word in (sys.argv[1:] if arguments is None else arguments) if word in known), "")
    return f"{program} {name}".rstrip()


def _usage(program: str, error: click.ClickException) -> str:
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else program
    return f"{error.format_message().rstrip('.')}. `{path} --help` shows how."


def _print_error(program: str, sentence: str, code: int) -> int:
    print(f"{program}: {printable(sentence)[:LONGEST_ERROR]}", file=sys.stderr)
    return int(code)
