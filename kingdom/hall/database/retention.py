"""Remove old messages: each room keeps them for a time of its own, or for the usual one, or for ever."""

from __future__ import annotations

from kingdom.hall.database.base import Transaction
from kingdom.hall.database.ids import first_ulid

DAY = 86_400.0


def cut(db: Transaction, usual: int, now: float, most: int) -> int:
    """Remove the oldest messages of one room that keeps them too long, and note up to where. Return how many.

    `usual` is for rooms without days of their own; 0 is for ever.
    """
    for days in sorted({usual, *(row["days"] for row in db.all("retention_days"))} - {0}):
        end = first_ulid(int((now - days * DAY) * 1000))
        room = db.one("room_to_cut", usual=usual, days=days, cut=end)
        if room is not None:
            return _cut_room(db, room["id"], end, room["last_message_id"], most)
    return 0


def _cut_room(db: Transaction, room: str, end: str, last: str, most: int) -> int:
    row = db.one("last_to_cut", room_id=room, cut=end, last=last, most=most)
    assert row is not None
    for statement in ("cut_removals", "cut_positions", "cut_about"):
        db.do(statement, room_id=room, upto=row["id"])
    removed = db.do("cut_messages", room_id=room, upto=row["id"])
    db.do("note_cut", room_id=room, message_id=row["id"])
    return removed
