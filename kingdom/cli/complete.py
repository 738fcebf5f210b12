"""Shell completion: roles, generals, and the ids of files in the queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import click

from kingdom.base.errors import KingdomError
from kingdom.base.home.places import Places
from kingdom.base.home.states import MOVES
from kingdom.base.program import home
from kingdom.base.records import notes
from kingdom.cli.queue_files import ids_of

MOST = 50
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completing(known: Callable[[Places], Iterable[str]]) -> Complete:
    def complete(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        return those_of(known, context, begun)

    return complete


def those_of(known: Callable[[Places], Iterable[str]], context: click.Context, begun: str) -> list[str]:
    """Return what is known in the home of this command line and begins so. Whoever presses Tab sees no errors."""
    with suppress(KingdomError, OSError):
        folder = context.find_root().params.get("folder")
        places = Places(Path(folder).expanduser().absolute()) if folder else home.find()
        return [name for name in known(places) if name.startswith(begun)][:MOST]
    return []


def ids(*kinds: str) -> Complete:
    """Complete ids of these queues, the newest first."""
    return _completing(lambda places: ids_of(places, kinds or tuple(MOVES)))


def _services() -> Iterable[str]:
    from kingdom.cli.services import SERVICES  # which loads the contract of connections

    return SERVICES


roles = _completing(lambda places: [row.name for row in home.rows(places)])
roles_and_tasks = _completing(lambda places: [*(row.name for row in home.rows(places)), *ids_of(places, ("tasks",))])
installed_generals = _completing(Places.installed_generals)
asking_tasks = _completing(notes.open_questions)
services = _completing(lambda places: _services())
