"""How a backup copies the council's messages: each is in the copy once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kingdom.base.disk.atomic import is_there, names_in
from kingdom.base.home.places import Places, is_hidden
from kingdom.court.upkeep.copies import Copies


def messages(places: Places) -> Iterator[Path]:
    """Yield the council's messages: those on their way, those that agents were told of, those that wait, and what was
    told meanwhile.

    An agent sends what follows from a message before it deletes that, so one of them is in the copy.
    """
    yield from (path for folder in (places.outboxes, places.postings) for path in _sent(folder))
    agents = [places.council / name for name in names_in(places.council)]
    told = [places.told(agent.name) for agent in agents if agent != places.dead_letters]
    for folder in (*told, *agents, *told):
        yield from (
            path for path in map(folder.joinpath, names_in(folder)) if not is_hidden(path.name) and path not in told
        )


def _sent(folder: Path) -> list[Path]:
    """Return the messages below a folder of outboxes, or of copies of what was in them."""
    below = (folder / name for name in names_in(folder))
    return [own / name for own in below for name in names_in(own) if not is_hidden(name)]


def _keep_later(places: Places, copy: Places) -> None:
    """Of a message of the council that was copied where it waited and where it went keep the latter."""
    there = {path.name for path in copy.council.rglob("*.mime")}
    for path in _sent(copy.postings):
        if path.name in there:
            os.unlink(path)
    there |= {path.name for path in _sent(copy.postings)}
    for path in _sent(copy.outboxes):
        if path.name in there:
            os.unlink(path)
    for name in names_in(copy.council):
        told = copy.council / name / places.told("any").name
        for message in names_in(told):
            if is_there(copy.council / name / message) and not is_there(places.council / name / message):
                os.unlink(copy.council / name / message)


COPIES = Copies(then=messages, settle=_keep_later)
