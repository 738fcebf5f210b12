"""What the gateway reads and writes in the chat's database: away from its event loop, within a bounded time."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kingdom.hall.database import accounts, own_rooms, search
from kingdom.hall.database.base import Database, Row, Transaction, Unavailable
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.gateway.inputs import Page, SearchQuery
from kingdom.hall.gateway.refusals import HttpRefusal, no_such_room, not_a_member, unauthorized

T = TypeVar("T")
THREADS = 4
MOST_UNREAD = 1000
LONGEST_WAIT = 8.0


class ChatStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_shared = database.is_shared
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="database")
        self._migrating = threading.Lock()
        self._is_migrated = False

    async def read(self, work: Callable[[Transaction], T], seconds: float = LONGEST_WAIT) -> T:
        """Return what `work` returns; Unavailable when the database does not answer in time."""
        return await self._apart(lambda: self._database.read(work), seconds)

    async def run(self, work: Callable[[Transaction], T], seconds: float = LONGEST_WAIT) -> T:
        """Return what `work` returns when its writes are durable."""
        return await self._apart(lambda: self._database.run(work), seconds)

    async def check(self, seconds: float) -> None:
        """Return if the database can be read and written now; Unavailable if not."""
        await self._apart(self._database.check, seconds)

    async def lost(self) -> str:
        """Return why what was stored is not there any more, "" when it is."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._database.lost)

    def close(self) -> None:
        """Close the connections, after what runs has ended."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._database.close()

    async def _apart(self, work: Callable[[], T], seconds: float) -> T:
        def carry_out() -> T:
            self._migrate()
            return work()

        waiting = asyncio.get_running_loop().run_in_executor(self._threads, carry_out)
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), seconds)
        except TimeoutError:
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise Unavailable(why=f"no answer within {seconds:g} s") from None

    def _migrate(self) -> None:
        """Bring the tables up to date before the first use: the database may have been away when the role started."""
        if not self._is_migrated:
            with self._migrating:
                if not self._is_migrated:
                    self._database.migrate()
                    self._is_migrated = True


def register(db: Transaction, email: str, password_hash: str, invite: str | None, admits: str, now: float) -> Row:
    """Add a user, whom the others see by the first part of the email. `admits` is the setting `registration`."""
    given = _given_to_newcomer(db, invite, admits, now)
    user = new_uuid()
    if db.one("add_user", id=user, email=email, password_hash=password_hash, created_at=iso(now)) is None:
        raise HttpRefusal(409, "Email already registered")
    db.do("name_user", user_id=user, name=email.partition("@")[0][:100])
    accounts.give_role(db, user, given.role)
    if given.role == accounts.OWNER or given.room == own_rooms.THRONE_ROOM:
        own_rooms.join_all(db, user, iso(now))
    elif given.room is not None:
        db.one("add_member", room_id=given.room, user_id=user, joined_at=iso(now))
    return {"id": user, "email": email}


def _given_to_newcomer(db: Transaction, invite: str | None, admits: str, now: float) -> accounts.Invitation:
    """Return what somebody gets who registers. A link of owners is good whatever the setting says."""
    if invite is None:
        if admits != "open":
            raise HttpRefusal(403, "Registration is closed" if admits == "closed" else "An invitation is needed")
        return accounts.Invitation(accounts.MEMBER)
    given = accounts.take_invite(db, invite, now)
    if given is None or (admits == "closed" and given.role != accounts.OWNER):
        raise HttpRefusal(403, "This invitation is no longer valid")
    return given


def me(db: Transaction, user: str) -> Row:
    """Return what somebody may know of their own account."""
    row = db.one("user_by_id", id=user)
    if row is None:
        raise unauthorized()
    return {"id": user, "email": row["email"], "name": row["name"], "role": row["role"]}


def sign_in(
    db: Transaction, old: str, new: str, session: str, user: str, agent: str, now: float, seconds: float
) -> None:
    """Begin a session of somebody whose password has the hash `old`, and store it as `new`."""
    _replace_hash(db, user, old, new)
    accounts.begin_session(db, session, user, agent, now, seconds)


def change_password(db: Transaction, user: str, old: str, new: str, session: str, now: float) -> list[str]:
    """Replace the hash of somebody's password, and end all sessions but one. Return those that were ended."""
    _replace_hash(db, user, old, new)
    return accounts.end_sessions(db, user, now, but=session)


def _replace_hash(db: Transaction, user: str, old: str, new: str) -> None:
    """Replace the hash that was verified. Who changed it meanwhile wins: no session begins with the older password."""
    if not db.do("change_password_hash", id=user, old=old, new=new):
        raise HttpRefusal(503, "Service unavailable", retry_after=1)


def sessions(db: Transaction, user: str, current: str, now: float) -> list[Row]:
    """Return somebody's sessions, oldest first."""
    return [
        {
            "id": row["id"],
            "agent": row["agent"],
            "begunAt": row["begun_at"],
            "expiresAt": row["expires_at"],
            "current": row["id"] == current,
        }
        for row in accounts.sessions_of(db, user, now)
    ]


def add_room(db: Transaction, user: str, name: str, now: str) -> Row:
    """Add a room whose first member made it."""
    room = new_uuid()
    db.do("add_room", id=room, name=name, created_at=now)
    db.one("add_member", room_id=room, user_id=user, joined_at=now)
    return {"id": room, "name": name, "createdAt": now, "lastMessageId": None, "lastMessageAt": None}


def join(db: Transaction, room: str, user: str, invite: str | None, now: float) -> Row:
    """Make somebody a member. The kingdom's rooms are for owners, and for who has an invitation."""
    if db.one("room", id=room) is None:
        raise no_such_room()
    if db.one("mark_of_room", room_id=room) is not None and not _may_join(db, room, user, invite, now):
        raise HttpRefusal(403, "This room is joined by invitation")
    joined_at = iso(now)
    if db.one("add_member", room_id=room, user_id=user, joined_at=joined_at) is None:
        raise HttpRefusal(409, "Already a member of this room")
    if room == own_rooms.THRONE_ROOM:
        own_rooms.join_all(db, user, joined_at)
    return {"roomId": room, "userId": user, "joinedAt": joined_at, "lastReadMessageId": None}


def _may_join(db: Transaction, room: str, user: str, invite: str | None, now: float) -> bool:
    if _is_owner(db, user):
        return True
    given = accounts.take_invite(db, invite, now) if invite else None
    return given is not None and given.room == room


def may_see_kingdom(db: Transaction, user: str) -> bool:
    """Return whether somebody may see what the kingdom does: owners, and who is in the throne room."""
    return _is_owner(db, user) or is_member(db, own_rooms.THRONE_ROOM, user)


def check_owner(db: Transaction, user: str) -> None:
    """Refuse who is no owner."""
    if not _is_owner(db, user):
        raise HttpRefusal(403, "Only for owners")


def _is_owner(db: Transaction, user: str) -> bool:
    row = db.one("user_by_id", id=user)
    return row is not None and row["role"] == accounts.OWNER


def leave(db: Transaction, room: str, user: str) -> Row:
    """End a membership."""
    if not db.do("remove_member", room_id=room, user_id=user):
        raise not_a_member() if db.one("room", id=room) else no_such_room()
    return {"roomId": room, "userId": user}


def is_member(db: Transaction, room: str, user: str) -> bool:
    """Return whether somebody is a member of a room that there is."""
    return db.one("membership", room_id=room, user_id=user) is not None


def _check_member(db: Transaction, room: str, user: str) -> None:
    if not is_member(db, room, user):
        raise not_a_member()


def rooms_of(db: Transaction, user: str) -> list[Row]:
    """Return somebody's rooms, the newest activity first."""
    return [
        {
            "id": row["id"],
            "name": row["name"],
            "kind": row["kind"],
            "createdAt": row["created_at"],
            "lastMessageId": row["last_message_id"],
            "lastMessageAt": row["last_message_at"],
            "unread": f"{MOST_UNREAD}+" if row["unread"] > MOST_UNREAD else row["unread"],
        }
        for row in db.all("rooms_of", user_id=user, most=MOST_UNREAD + 1)
    ]


def members(db: Transaction, room: str, user: str) -> list[Row]:
    """Return who is in a room, for one of them. Who is called as another is gets a label, which tells them apart."""
    _check_member(db, room, user)
    rows = db.all("members", room_id=room)
    labels = _labels(rows)
    return [
        {
            "roomId": row["room_id"],
            "userId": row["user_id"],
            "name": row["name"],
            **({"label": labels[row["user_id"]]} if row["user_id"] in labels else {}),
            "role": row["role"],
            "joinedAt": row["joined_at"],
            "lastReadMessageId": row["last_read_message_id"],
            **({} if row["banned_at"] is None else {"banned": True}),
        }
        for row in rows
    ]


def _labels(rows: list[Row]) -> dict[str, str]:
    """Return what stands behind a name that several have, by user: the rest of the email, or else part of the ID."""
    names = Counter(row["name"] for row in rows)
    namesakes = [row for row in rows if row["name"] is not None and names[row["name"]] > 1]
    rests = {row["user_id"]: row["email"].partition("@")[2] for row in namesakes}
    shared = Counter(rests.values())
    return {user: rest if rest and shared[rest] == 1 else user[:8] for user, rest in rests.items()}


def messages(db: Transaction, room: str, user: str, page: Page) -> tuple[list[Row], str | None]:
    """Return a page of a room's history from the oldest to the newest, for a member, and what is missing before it.

    That is the last message that was deleted because it was old, if `after` is one before it.
    """
    _check_member(db, room, user)
    cut = db.one("cut_of_room", room_id=room) if page.after is not None else None
    if page.before is not None:
        after = page.after or ""
        rows = db.all("messages_before", room_id=room, before=page.before, after=after, most=page.limit)[::-1]
    elif page.after is not None:
        rows = db.all("messages_after", room_id=room, after=page.after, most=page.limit)
    else:
        rows = db.all("newest_messages", room_id=room, most=page.limit)[::-1]
    missing = cut["message_id"] if cut is not None and (page.after or "") < cut["message_id"] else None
    return [_message(row) for row in rows], missing


def _message(row: Row) -> Row:
    named = {} if row["sender_name"] is None else {"senderName": row["sender_name"]}
    return {
        "id": row["id"],
        "roomId": row["room_id"],
        "senderId": row["sender_id"],
        **named,
        "clientMsgId": row["client_msg_id"],
        "type": row["type"],
        "content": row["content"],
        "createdAt": row["created_at"],
        **({} if row["removes"] is None else {"removes": row["removes"]}),
        **({} if row["removed_by"] is None else {"removed": True}),
        **({} if row["about"] is None else {"about": json.loads(row["about"])}),
    }


def find(db: Transaction, user: str, asked: SearchQuery) -> Row:
    """Return the messages that somebody looks for, the newest first, and where the search goes on."""
    if asked.room is not None:
        _check_member(db, asked.room, user)
        found = search.in_room(db, asked.room, asked.text, asked.before, asked.limit)
    else:
        found = search.in_rooms_of(db, user, asked.text, asked.before, asked.limit)
    return {"messages": [_message(row) for row in found.rows], "before": found.before}


def may_remove(db: Transaction, room: str, user: str, message: str) -> bool:
    """Return whether a member may remove a message of a room: its sender may, and owners."""
    _check_member(db, room, user)
    row = db.one("message_by_id", id=message)
    if row is None or row["room_id"] != room:
        raise HttpRefusal(404, "Message not found")
    return row["sender_id"] == user or _is_owner(db, user)


def mark_read(db: Transaction, room: str, user: str, message: str) -> None:
    """Note up to which message a member has read."""
    _check_member(db, room, user)
    db.do("mark_read", room_id=room, user_id=user, message_id=message)
