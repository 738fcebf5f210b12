"""How a backup copies the hall: its topics and its database, so that no row lacks its event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kingdom.base.disk.atomic import names_in
from kingdom.base.home.places import Places
from kingdom.court.upkeep.copies import Copies, all_below, is_left_out

CAUSES_OF_ROWS = ("chat.messages.v1", "hall.commands.v1")
"""Topics whose events lead to rows of the chat's database."""


def _before_rows(places: Places) -> Iterator[Path]:
    """Yield how far groups have read, then the chat's topics that tell of rows: all before the rows themselves.

    What a group has passed is so in all that is copied later, and no event tells of a row that the copy lacks.
    """
    topics = [places.topics / name for name in names_in(places.topics)]
    yield from (path for path in topics if not path.is_dir())
    for topic in topics:
        yield from (path for path in all_below(topic / "groups") if not is_left_out(places, path))
    for topic in topics:
        if topic.name not in CAUSES_OF_ROWS:
            yield from (path for path in all_below(topic) if path.parent.name != "groups")


def _rows_and_their_causes(places: Places) -> Iterator[Path]:
    """Yield the topics that lead to rows, after the rows.

    So the copy has the event of every row. The worker processes again what its group has not passed, and recognises
    what is stored already by its position.
    """
    yield from all_below(places.hall)
    for name in CAUSES_OF_ROWS:
        yield from (path for path in all_below(places.topics / name) if path.parent.name != "groups")


COPIES = Copies(_before_rows, last=_rows_and_their_causes, alone=lambda places: (places.topics, places.hall))
