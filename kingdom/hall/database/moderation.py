"""What owners may do to messages and people. Each is repeatable: the second time changes nothing."""

from __future__ import annotations

from kingdom.hall.database import accounts
from kingdom.hall.database.base import DatabaseRefused, Transaction
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.own_rooms import USER

REMOVED = "A message was removed."
"""The content of the item that tells so."""


def blank(db: Transaction, room: str, message: str) -> bool:
    """Take a message's content away, and have its text erased elsewhere. False if there is no such message."""
    if db.one("blank_message", id=message, room_id=room) is None:
        return False
    db.do("forget_about", message_id=message)
    note_erasure(db, message)
    return True


def note_erasure(db: Transaction, message: str) -> None:
    """Have the worker erase the text of a removed message from the topics and the database's files."""
    db.do("note_erasure", id=new_uuid(), message_id=message)


def remove_member(db: Transaction, room: str, user: str) -> None:
    """End a membership, if there is one."""
    db.do("remove_member", room_id=room, user_id=user)


def ban(db: Transaction, user: str, now: float) -> list[str]:
    """Keep somebody out, and return their sessions, which end."""
    _check_person(db, user)
    db.do("ban", user_id=user, at=iso(now))
    return end_sessions(db, user, now)


def unban(db: Transaction, user: str) -> None:
    """Let somebody in again."""
    _check_person(db, user)
    db.do("unban", user_id=user)


def end_sessions(db: Transaction, user: str, now: float) -> list[str]:
    """End all sessions of somebody. Return those that have been ended, now or before."""
    _check_person(db, user)
    accounts.end_sessions(db, user, now)
    return [str(row["id"]) for row in db.all("ended_sessions_of", user_id=user, now=iso(now))]


def _check_person(db: Transaction, user: str) -> None:
    if user == USER or db.one("user_by_id", id=user) is None:
        raise DatabaseRefused(why=f"no person has the ID {user}")
