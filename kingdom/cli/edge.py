"""The edge of a program for people: whatever goes wrong becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from kingdom.errors import Exit, KingdomError
from kingdom.words import printable

INTERRUPTED = 130
LONGEST_COMPLAINT = 10_000
"""What somebody typed or a file is called may be of any length, and stands in it."""


def run(program: str, command: click.Command, arguments: list[str] | None = None) -> int:
    os.umask(0o077)
    try:
        return _code(command.main(args=arguments, prog_name=program, standalone_mode=False))
    except KingdomError as trouble:
        return _complain(program, str(trouble), trouble.exit)
    except click.exceptions.NoArgsIsHelpError as shown:
        print(shown.format_message(), file=sys.stderr)
        return Exit.USAGE
    except click.ClickException as trouble:
        return _complain(program, _usage(_asked(program, command, arguments), trouble), Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _let_go_of_output()  # its reader has seen enough
        return Exit.FAILED
    except OSError as trouble:
        # Of a move that failed, where it was to go: that it came from a draft of ours tells nobody anything.
        about = trouble.filename2 or trouble.filename
        where = f": {about}" if about else ""
        _let_go_of_output()
        return _complain(program, f"{trouble.strerror or trouble}{where}", Exit.FAILED)


def _let_go_of_output() -> None:
    """What could not be written would be tried again, and complained of, at Python's own end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _code(answer: Any) -> int:
    return answer if isinstance(answer, int) else Exit.DONE


def _asked(program: str, command: click.Command, arguments: list[str] | None) -> str:
    """The program with the command that was called, as far as it has one."""
    word = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    known = isinstance(command, click.Group) and word in command.list_commands(click.Context(command))
    return f"{program} {word}" if known else program


def _usage(program: str, trouble: click.ClickException) -> str:
    path = trouble.ctx.command_path if isinstance(trouble, click.UsageError) and trouble.ctx else program
    return f"{trouble.format_message().rstrip('.')}. `{path} --help` shows how."


def _complain(program: str, sentence: str, code: int) -> int:
    print(f"{program}: {printable(sentence)[:LONGEST_COMPLAINT]}", file=sys.stderr)
    return int(code)
