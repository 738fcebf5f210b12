"""Accounts: who may come in, what each may do, and the sessions of each."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

from kingdom.hall.database.base import Row, Transaction
from kingdom.hall.database.ids import iso, new_uuid

OWNER, MEMBER, KINGDOM = "owner", "member", "kingdom"
"""Roles. The last is that of the user under which the kingdom speaks, who cannot sign in."""
CODE_BYTES = 16
ENDED = "ended_sessions"
"""The name of the number that grows whenever sessions are ended."""


class Invitation(NamedTuple):
    """What an invitation gives to who comes by it."""

    role: str
    #: The room that they join.
    room: str | None = None


def new_invite(db: Transaction, gives: Invitation, uses: int, seconds: float, now: float) -> str:
    """Return the code of a new invitation, of which only a digest is kept. Those that have ended are forgotten."""
    code = secrets.token_hex(CODE_BYTES)
    db.do("forget_invites", now=iso(now))
    row = {"code_hash": _digest(code), "role": gives.role, "room_id": gives.room, "uses_left": uses}
    db.do("add_invite", made_at=iso(now), expires_at=iso(now + seconds), **row)
    return code


def take_invite(db: Transaction, code: str, now: float) -> Invitation | None:
    """Use an invitation and return what it gives; None when it is none, has ended or is used up."""
    row = db.one("take_invite", code_hash=_digest(code), now=iso(now))
    return None if row is None else Invitation(row["role"], row["room_id"])


def has_owner(db: Transaction) -> bool:
    """Return whether somebody has claimed the hall."""
    return bool(db.all("owners"))


def give_role(db: Transaction, user: str, role: str) -> None:
    """Let a user be an owner or a member. The first owner makes the other links of owners void."""
    db.do("give_role", user_id=user, role=role)
    if role == OWNER:
        db.do("forget_owner_invites")


def begin_session(db: Transaction, session: str, user: str, agent: str, now: float, seconds: float) -> None:
    """Note a session, and forget those of this user that are over."""
    db.do("forget_sessions", user_id=user, now=iso(now))
    times = {"begun_at": iso(now), "expires_at": iso(now + seconds)}
    db.do("add_session", id=session, user_id=user, agent=agent, **times)


def sessions_of(db: Transaction, user: str, now: float) -> list[Row]:
    """Return a user's sessions, oldest first."""
    return db.all("sessions_of", user_id=user, now=iso(now))


def set_password(db: Transaction, user: str, password_hash: str, by: str, now: float) -> None:
    """Give somebody another password, note who did, and end all sessions, also those of who knew the old one."""
    db.do("set_password_hash", id=user, password_hash=password_hash)
    end_sessions(db, user, now)
    db.do("audit", command_id=new_uuid(), at=iso(now), ordered_by=by, command="password", target=user)


def end_sessions(
    db: Transaction, user: str, now: float, session: str | None = None, but: str | None = None
) -> list[str]:
    """End one session of a user, or all of them, or all but one. Return which were ended."""
    ended = db.all("end_sessions", user_id=user, now=iso(now), id=session, but=but)
    if ended:
        db.do("count_fact", name=ENDED)
    return [str(row["id"]) for row in ended]


def end_all_sessions(db: Transaction, now: float, count: int) -> list[str]:
    """End the sessions of all users, and count from there on. Return which were ended."""
    db.do("note_fact", name=ENDED, value=str(count))
    return [str(row["id"]) for row in db.all("end_all_sessions", now=iso(now))]


def count_of_ended(db: Transaction) -> int:
    """Return a number that grows whenever sessions are ended."""
    row = db.one("fact", name=ENDED)
    return 0 if row is None else int(row["value"])


def _digest(code: str) -> str:
    """Return by what an invitation is found. Codes are random and long: a plain digest gives nothing away."""
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
