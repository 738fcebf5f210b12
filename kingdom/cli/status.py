"""`kingdom status`: show the picture of the kingdom in a terminal or print it for a script, once or again and again."""

from __future__ import annotations

import signal
import sys

import click

from kingdom.cli import home, overview, screen
from kingdom.cli.overview import json_line, look, sections
from kingdom.runtime.wake import Waker

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
    """Show it again and again. Ctrl-C and TERM bring back what stood on the terminal before."""
    places = home.find()
    places.check()
    waker = Waker((), "poll")
    seen = None if in_json else screen.window()
    if seen is None or not seen.moves:
        while True:
            view = look(places)
            print(json_line(view) if in_json else screen.as_text([*sections(places, view)], seen) + "\n", flush=True)
            waker.wait(WATCH_SECONDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with screen.other_screen():
        while True:
            seen = screen.window() or seen
            screen.redraw(list(sections(places, look(places))), seen)
            waker.wait(WATCH_SECONDS)
