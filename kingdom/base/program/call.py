"""How one of click's commands is run: its complaints become our errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import click

from kingdom.base.errors import Exit, Usage


class Finite(click.FloatRange):
    """A number within a range; neither nan nor inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


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
