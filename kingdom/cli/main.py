"""The one way in: finds the command, and turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from kingdom import __version__
from kingdom.cli import COMMANDS
from kingdom.errors import Exit, KingdomError, Usage
from kingdom.schemas import closest
from kingdom.words import plain

INTERRUPTED = 130
LONGEST_COMPLAINT = 10_000
"""What somebody typed or a file is called may be of any length, and stands in it."""


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
    os.umask(0o077)
    try:
        return _code(kingdom.main(args=arguments, prog_name="kingdom", standalone_mode=False))
    except KingdomError as trouble:
        return _complain(str(trouble), trouble.exit)
    except click.exceptions.NoArgsIsHelpError as shown:
        print(shown.format_message(), file=sys.stderr)
        return Exit.USAGE
    except click.ClickException as trouble:
        return _complain(_usage(trouble), Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough; Python would complain again at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except OSError as trouble:
        where = f": {trouble.filename}" if trouble.filename else ""
        return _complain(f"{trouble.strerror or trouble}{where}", Exit.FAILED)


def _code(answer: Any) -> int:
    return answer if isinstance(answer, int) else Exit.DONE


def _usage(trouble: click.ClickException) -> str:
    path = trouble.ctx.command_path if isinstance(trouble, click.UsageError) and trouble.ctx else "kingdom"
    return f"{trouble.format_message()} `{path} --help` shows how."


def _complain(sentence: str, code: int) -> int:
    print(f"kingdom: {plain(sentence)[:LONGEST_COMPLAINT]}", file=sys.stderr)
    return int(code)
