"""`kingdom status`: show the picture of the kingdom in a terminal or print it for a script, once or again and again."""

from __future__ import annotations

import click

from kingdom.base.program import home, screen
from kingdom.base.runtime.wake import Waker
from kingdom.cli import overview
from kingdom.cli.overview import json_line, look, sections

WATCH_SECONDS = 1.0


@click.command(short_help="Show what runs, waits and fails.")
@click.option("--watch", is_flag=True, help="Repeat it every second, until Ctrl-C.")
@click.option("--json", "in_json", is_flag=True, help="Print the whole picture as one line of JSON.")
def status(watch: bool, in_json: bool) -> int:
    """Show open questions, and what runs, waits and fails.

    Exit code 0 when every role that should run has a fresh heartbeat, else 1.
    """
    if watch:
        _watch(in_json)
    return overview.show(in_json)


def _watch(in_json: bool) -> None:
    places = home.find()
    places.check()
    if in_json:
        waker = Waker((), "poll")
        while True:
            print(json_line(look(places)) + "\n", flush=True)
            waker.wait(WATCH_SECONDS)
    screen.watch(lambda: list(sections(places, look(places))), WATCH_SECONDS)
