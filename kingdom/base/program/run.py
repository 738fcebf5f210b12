"""What every program for people shares: one line for each error, and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from kingdom.base.errors import Exit, KingdomError
from kingdom.base.words import printable

INTERRUPTED = 130
LONGEST_ERROR = 10_000
"""An error may quote what somebody typed, or the name of a file, of any length."""


def run(program: str, call: Callable[[], int]) -> int:
    """Run a program for people. Whatever goes wrong is printed as one line and returned as an exit code."""
    os.umask(0o077)
    _open_closed()
    try:
        return call()
    except KingdomError as error:
        return _print_error(program, str(error), error.exit)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # its reader has seen enough
        return Exit.FAILED
    except OSError as error:
        # Of a failed move only the target is named: its source is a draft of ours that means nothing to people.
        path = error.filename2 or error.filename
        where = f": {path}" if path else ""
        room = "; make room on the disk of the home" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        _drop_output()
        return _print_error(program, f"{error.strerror or error}{where}{room}", Exit.FAILED)


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


def _print_error(program: str, sentence: str, code: int) -> int:
    print(f"{program}: {printable(sentence)[:LONGEST_ERROR]}", file=sys.stderr)
    return int(code)
