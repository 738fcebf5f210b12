"""The group of all commands of `kingdom`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kingdom import __version__
from kingdom.base import tables
from kingdom.base.errors import Usage
from kingdom.base.home.places import Places
from kingdom.base.words import closest
from kingdom.cli import COMMANDS


class KingdomCommands(click.Group):
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


@click.group(
    cls=KingdomCommands,
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
