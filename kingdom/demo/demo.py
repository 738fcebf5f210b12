"""`kingdom demo`: the whole kingdom at work without an account, in a home of its own that is removed at the end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from kingdom.base.errors import Exit, KingdomError, TookTooLong
from kingdom.base.home.places import Places
from kingdom.base.program import screen
from kingdom.base.program.screen import Column, Line, Part, Section, Table
from kingdom.base.words import one_line
from kingdom.cli import launchers, machine
from kingdom.demo.demo_story import (
    EVENT_OF_TICKET,
    STORY,
    Count,
    EventLog,
    StoryStep,
    counts,
    event_of_pull,
    sentences,
    waiting,
)
from kingdom.demo.demo_world import REVIEWED, VICTIM, World, lacking

STEP_SECONDS = 120.0
"""Seconds without any news after which a step is given up, however slow the machine is."""
MOST_SECONDS = 1800.0
"""For a step in which things happen again and again, and do not come to its end."""
LOOK_SECONDS = 0.05
SETTLE_SECONDS = 10.0
"""The king may still be filing what people have been told already."""
WHAT_COLUMNS = 26
"""The width of the column that says what somebody did; the file follows."""
STYLES = {"GitHub": "bold magenta", "Jira": "bold magenta", "Slack": "bold green", "kill -9": "bold red"}
"""Styles of actors that are no roles."""
CLEANER = """\
cat
for try in 1 2 3; do "$1" -P -m kingdom -C "$2/home" down --soldiers && break; done
[ "$3" = keep ] || rm -rf -- "$2"
"""
"""Waits until nobody holds its standard input any more: the demo, however it ended, and what starts the roles."""


class DemoFailed(KingdomError):
    """the demo could not start its kingdom: {why}"""


@click.command(short_help="Show everything at work for a minute, without any account.")
@click.option("--keep", is_flag=True, help="Keep its home, and print where it is.")
def demo(keep: bool) -> int:
    """Show everything at work, without any account or key, in less than a minute.

    Stand-ins play GitHub, Jira, Slack with its people, and a model; the roles are real processes in a home of their
    own, which is removed at the end. A review is requested, a ticket is unclear, many notifications come at once, and
    two processes are killed. At the end `kingdom why` explains what happened, and everything is counted. Exit code 1 if
    anything was lost or done twice.
    """
    began = time.monotonic()
    if lacks := list(lacking(Path(tempfile.gettempdir()))):
        print(*(f"kingdom: the demo needs {what}" for what in lacks), sep="\n", file=sys.stderr)
        return Exit.FAILED
    with _folder(keep) as (folder, alive), World(folder) as world:
        teller = Teller(world, began)
        teller.title(f"A kingdom in {world.places.home}; the world is played on 127.0.0.1{_not_held()}")
        world.make_home()
        _up(world, alive)
        teller.roles()
        for step in STORY:
            teller.step(step)
        for event in (event_of_pull(world, REVIEWED), EVENT_OF_TICKET, event_of_pull(world, VICTIM)):
            teller.title(f"$ kingdom why {event}")
            _kingdom(world, "why", event)
        _settle(world.places)
        found = list(counts(world))
        teller.title("What was asked, and what came of it, by the files and by those who were told")
        screen.show([_summary(found)])
        left = waiting(world.places)
        lost, doubled = sum(count.lost for count in found), sum(count.doubled for count in found)
        print(f"\n{lost} lost, {doubled} doubled, {left} left over, {time.monotonic() - began:.0f} s.", flush=True)
    if keep:
        print(f"The home is {folder / 'home'}; `rm -r {shlex.quote(str(folder))}` removes all of it.")
    return Exit.FAILED if lost or doubled or left else Exit.DONE


def _not_held() -> str:
    """Return what this machine does not hold of a soldier's sandbox; "" when it holds all of it."""
    parts = [one_line(part) for part in machine.missing_of_sandbox() if part]
    return f"; not held here: {'; '.join(parts)}" if parts else ""


def _settle(places: Places) -> None:
    """Wait until nothing is left in the queues, as long as it becomes less."""
    left = waiting(places)
    while left and launchers.wait(lambda: waiting(places) < left, SETTLE_SECONDS):  # noqa: B023
        left = waiting(places)


@contextmanager
def _folder(keep: bool) -> Iterator[tuple[Path, int]]:
    """Yield a folder, and what must be open in every process that may start roles in it.

    When that is closed everywhere, the roles are ended and the folder is removed, also after a kill of this process.
    """
    folder = Path(tempfile.mkdtemp(prefix="kingdom-demo-")).resolve()
    waits, alive = os.pipe()
    words = ["sh", "-c", CLEANER, "cleaner", sys.executable, str(folder), "keep" if keep else ""]
    quiet = subprocess.DEVNULL
    cleaner = subprocess.Popen(
        words, stdin=waits, stdout=quiet, stderr=quiet, env=_environment(folder / "home"), start_new_session=True
    )
    os.close(waits)
    before = [(number, signal.signal(number, _stop)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        yield folder, alive
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(alive)
        cleaner.wait()
        for number, handler in (*before, (signal.SIGINT, signal.default_int_handler)):
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _environment(home: Path) -> dict[str, str]:
    """Return the variables of a process that belongs to the demo: nothing else of ours is its business."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM", "COLUMNS", "LINES", "NO_COLOR")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "KINGDOM_HOME": str(home)}


def _up(world: World, alive: int) -> None:
    words = [sys.executable, "-P", "-m", "kingdom", "up"]
    up = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(world.places.home),
        pass_fds=[alive],
        start_new_session=True,
    )
    said = up.communicate()[0]
    if up.returncode != 0:
        raise DemoFailed(
            why=said.strip().splitlines()[-1] if said.strip() else f"`kingdom up` ended with {up.returncode}"
        )


def _kingdom(world: World, *words: str) -> None:
    """Run a command of the demo's kingdom, and let it print."""
    command = [sys.executable, "-P", "-m", "kingdom", *words]
    subprocess.run(command, stdin=subprocess.DEVNULL, env=_environment(world.places.home), check=True)


class Teller:
    """Carries out the story, and prints what happens meanwhile."""

    def __init__(self, world: World, began: float) -> None:
        self._world = world
        self._began = began
        self._log = EventLog(world.places)

    def title(self, text: str) -> None:
        print()
        screen.show([Section([Line([Part(text, "bold")], indent=0)])])
        sys.stdout.flush()

    def line(self, who: str, what: str, file: str = "") -> None:
        """Print one line of what happened, and the file that shows it."""
        clock = f"{time.monotonic() - self._began:5.1f}"
        beside = f"{what:<{WHAT_COLUMNS}}" if file else what
        parts = [Part(clock, "dim"), Part(f" {who:<8} ", STYLES.get(who, "")), Part(beside), Part(file, "cyan")]
        screen.show([Section([Line(parts, indent=0, hang=15)])])
        sys.stdout.flush()

    def roles(self) -> None:
        """Tell which roles have started."""
        up = [record["data"]["role"] for record in self._log.news() if record["type"] == "system.startup"]
        self.line("kingdom", f"{len(up)} roles are up", "state/*/heartbeat")

    def step(self, step: StoryStep) -> None:
        """Do what a step says, and tell what happens until it has come to what it waits for."""
        if step.chapter:
            self.title(step.chapter)
        self.line(step.who, step.do(self._world, self._log))
        began = last = time.monotonic()
        while True:
            for record in self._log.news():
                last = time.monotonic()
                for said in sentences(record, self._world, self._log, step.shows):
                    self.line(*said)
            if step.until(self._world, self._log):
                return
            now = time.monotonic()
            if now - last > STEP_SECONDS or now - began > MOST_SECONDS:
                raise TookTooLong(
                    what=f"reaction to {step.who}",
                    seconds=round(now - began),
                    hint="`kingdom demo --keep` leaves its logs",
                )
            time.sleep(LOOK_SECONDS)


def _summary(found: list[Count]) -> Section:
    columns = [Column("what"), Column("came"), Column("lost"), Column("doubled")]
    rows = [[count.what, str(count.wanted), str(count.lost), str(count.doubled)] for count in found]
    return Section([Table(columns, rows)])
