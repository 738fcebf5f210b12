"""The one way in: finds the command, and loads it alone."""

from __future__ import annotations

from importlib import import_module

import click

from kingdom import __version__
from kingdom.cli import COMMANDS, edge
from kingdom.errors import Usage
from kingdom.words import closest


class Commands(click.Group):
    """Loads the module of the one command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = closest(args[0], list(COMMANDS)) or "; `kingdom --help` lists them"
            raise Usage(message=f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not running, 4 no answer in time, 75 locked, 78 refused.",
)
@click.version_option(__version__, prog_name="kingdom")
def kingdom() -> None:
    """A team-mate that finds its own work, on one machine.

    Start it with `kingdom up`, talk to it with `kingdom say "brief me"`, look at it with `kingdom status`. Everything
    it knows lies in files under its home: $KINGDOM_HOME, the folder around you that is one, or the checkout.
    """


def main(arguments: list[str] | None = None) -> int:
    return edge.run("kingdom", kingdom, arguments)
