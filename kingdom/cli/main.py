"""The entry point of `kingdom`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kingdom.base.program.run import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `kingdom` and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return run("kingdom", lambda: _call(words))


def _call(words: Sequence[str]) -> int:
    """Run a command; `status`, which is typed all day, without the library of options, which is slow to load."""
    if list(words) in (["status"], ["status", "--json"]):
        from kingdom.cli.overview import show

        return show(in_json=len(words) > 1)
    from kingdom.base.program.call import call
    from kingdom.cli.commands import kingdom

    return call("kingdom", kingdom, words)
