"""Find messages by a part of their text, which may lie inside a word: Korean joins its particles to them.

There is no index: it would slow down every message, and those of three letters find no words of two syllables. A search
reads the newest messages, so many at once, and says where it goes on.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from kingdom.hall.database.base import Row, Transaction

READ_AT_ONCE = 200_000
"""Messages that one search reads."""
NEWEST = "Z" * 26
"""Greater than the id of any message."""
_SPECIAL, _ESCAPED = re.compile(r"([%_\\])"), r"\\\1"


class SearchPage(NamedTuple):
    #: The messages, the newest first.
    rows: list[Row]
    #: Before which message the search goes on; None at the oldest.
    before: str | None


def in_room(
    db: Transaction, room: str, text: str, before: str | None, most: int, at_once: int = READ_AT_ONCE
) -> SearchPage:
    """Return the messages of a room that hold a text."""
    start = before or NEWEST
    floor = db.one("floor_of_room", room_id=room, before=start, skipped=at_once - 1)
    return _found(db, "search_room", {"room_id": room}, text, start, floor, most)


def in_rooms_of(
    db: Transaction, user: str, text: str, before: str | None, most: int, at_once: int = READ_AT_ONCE
) -> SearchPage:
    """Return the messages that hold a text in all rooms of somebody."""
    start = before or NEWEST
    floor = db.one("floor_of_all", before=start, skipped=at_once - 1)
    return _found(db, "search_all", {"user_id": user}, text, start, floor, most)


def _found(
    db: Transaction, statement: str, where: dict[str, str], text: str, start: str, floor: Row | None, most: int
) -> SearchPage:
    patterns = {"composed": _pattern("NFC", text), "decomposed": _pattern("NFD", text)}
    floor_id = "" if floor is None else str(floor["id"])
    rows = db.all(statement, before=start, floor=floor_id, most=most, **patterns, **where)
    if len(rows) == most:
        return SearchPage(rows, rows[-1]["id"])
    return SearchPage(rows, floor_id or None)


def _pattern(form: Literal["NFC", "NFD"], text: str) -> str:
    """Return what LIKE takes, with nothing in it that stands for other characters. Some systems write decomposed."""
    return f"%{_SPECIAL.sub(_ESCAPED, unicodedata.normalize(form, text))}%"
