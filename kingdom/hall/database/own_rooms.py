"""The kingdom's own user and rooms: the throne room, where people talk to it, and a room for each task.

Who is in the throne room is in all of them. Ids are derived, so that whoever repeats a step finds what it made before.
"""

from __future__ import annotations

import hashlib
import unicodedata
import uuid

from kingdom.hall.database import accounts
from kingdom.hall.database.base import Transaction

NAMESPACE = uuid.UUID("ec6e3164-e615-44b1-a6e5-a0e766c732cc")
NAME = "kingdom"
_READ_AS = str.maketrans("01l", "oii")
"""The letters that people read these signs for."""
THRONE, TASK = "throne", "task"
"""Kinds of the kingdom's rooms."""


def _derived(what: str) -> str:
    """Return a version 4 UUID, as users and rooms have, that is always the same."""
    digest = hashlib.sha256(NAMESPACE.bytes + what.encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


USER = _derived("user")
THRONE_ROOM = _derived("throne room")


def looks_own(name: str) -> bool:
    """Return whether people may take a name for the kingdom's: dots, a +tag, case, and signs for letters mislead."""
    folded = unicodedata.normalize("NFKC", name).casefold().partition("+")[0].translate(_READ_AS)
    return "".join(filter(str.isalnum, folded)) == NAME


def room_of(thread: str) -> str:
    """Return the room of the thread that begins with a message of this id."""
    return _derived(f"room {thread}")


def client_msg_id(message: str) -> str:
    """Return the sender's id of one of the kingdom's messages."""
    return str(uuid.uuid5(NAMESPACE, message))


def open_room(db: Transaction, room: str, name: str, kind: str, at: str) -> list[str]:
    """Add a room of the kingdom, unless it is there; return its new members.

    The owners are in the throne room, and who is there in all.
    """
    add_user(db, at)
    db.do("add_room_once", id=room, name=name, created_at=at)
    db.do("mark_room", room_id=room, kind=kind)
    people = db.all("owners") if kind == THRONE else db.all("members", room_id=THRONE_ROOM)
    users = list(dict.fromkeys([USER, *(row["user_id"] for row in people)]))
    added = db.each("add_member", [{"room_id": room, "user_id": user, "joined_at": at} for user in users])
    return [user for user, row in zip(users, added, strict=True) if row is not None]


def join_all(db: Transaction, user: str, at: str) -> None:
    """Make somebody a member of all rooms of the kingdom that there are."""
    rooms = [row["room_id"] for row in db.all("marked_rooms")]
    db.each("add_member", [{"room_id": room, "user_id": user, "joined_at": at} for room in rooms])


def add_user(db: Transaction, at: str) -> None:
    """Add the kingdom's user, unless it is there."""
    # No email has this form and no password this hash: nobody can register under it, or sign in.
    db.one("add_user", id=USER, email=NAME, password_hash="!", created_at=at)
    db.do("name_user", user_id=USER, name=NAME)
    db.do("give_role", user_id=USER, role=accounts.KINGDOM)
