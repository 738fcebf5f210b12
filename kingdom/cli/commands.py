"""The group of all commands of `kingdom`, and how one of click's commands is run: its complaints become our errors."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kingdom import __version__
from kingdom.base.errors import Exit, Usage
from kingdom.base.home.places import Places
from kingdom.base.runtime import tables
from kingdom.base.words import closest
from kingdom.cli import COMMANDS


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


def call(program: str, command: click.Command, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; Usage for arguments that it does not take."""
    try:
        code = command.main(args=list(arguments), prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else Exit.DONE
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return Exit.USAGE
    except click.ClickException as error:
        raise Usage(message=_sentence(_called(program, command, arguments), error)) from None
    except click.Abort:
        raise KeyboardInterrupt from None


def _called(program: str, command: click.Command, arguments: Sequence[str]) -> str:
    """Return the program with the name of the command that was called, if it has one of that name."""
    known = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
    name = next((word for word in arguments if word in known), "")
    return f"{program} {name}".rstrip()


def _sentence(program: str, error: click.ClickException) -> str:
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else program
    said = error.format_message().rstrip(".")
    return f"{said}{'' if said.endswith('?') else '.'} `{path} --help` shows how."
