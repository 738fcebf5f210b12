"""Tables of a chat that another service has made: they are used as they are, if they can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kingdom.hall.database.base import ForeignTable

_ID = ("uuid",)
_TEXT = ("text", "character varying")
_TIME = ("timestamp with time zone", "timestamp without time zone")
COLUMNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "users": {"id": _ID, "email": _TEXT, "password_hash": _TEXT, "created_at": _TIME},
    "rooms": {"id": _ID, "name": _TEXT, "last_message_id": _TEXT, "last_message_at": _TIME, "created_at": _TIME},
    "room_members": {"room_id": _ID, "user_id": _ID, "joined_at": _TIME, "last_read_message_id": _TEXT},
    "messages": {
        "id": _TEXT,
        "room_id": _ID,
        "sender_id": _ID,
        "client_msg_id": _ID,
        "type": _TEXT,
        "content": _TEXT,
        "created_at": _TIME,
    },
}
"""What the hall writes, and of which kind it may be."""
UNIQUE: Mapping[str, tuple[frozenset[str], ...]] = {
    "users": (frozenset({"id"}), frozenset({"email"})),
    "rooms": (frozenset({"id"}),),
    "room_members": (frozenset({"room_id", "user_id"}),),
    "messages": (frozenset({"id"}), frozenset({"room_id", "sender_id", "client_msg_id"})),
}
"""What the hall relies on: the same user, member or message is there once."""


class TableColumn(NamedTuple):
    """A column that is there."""

    #: Its type as PostgreSQL calls it; "" where types bind nothing.
    type: str
    #: Whether a row needs a value for it, and has none of its own.
    is_needed: bool


def check(table: str, columns: Mapping[str, TableColumn], unique: set[frozenset[str]]) -> None:
    """Return if the hall can use a table that is there; ForeignTable says why not."""
    for name, kinds in COLUMNS[table].items():
        if name not in columns:
            raise ForeignTable(table=table, why=f"it has no column {name}")
        if columns[name].type and columns[name].type not in kinds:
            raise ForeignTable(table=table, why=f"{name} is {columns[name].type}, not {kinds[0]}")
    for name, column in columns.items():
        if column.is_needed and name not in COLUMNS[table]:
            raise ForeignTable(table=table, why=f"its rows need a {name}, which the hall does not know")
    for names in UNIQUE[table]:
        if names not in unique:
            raise ForeignTable(table=table, why=f"it may hold the same {', '.join(sorted(names))} twice")
