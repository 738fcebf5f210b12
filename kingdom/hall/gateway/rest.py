"""The REST part: one function for each operation, and the table of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kingdom.base.words import one_line
from kingdom.hall.database import accounts, own_rooms, passwords
from kingdom.hall.database.base import Row, Transaction
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import HallCommand
from kingdom.hall.gateway import inputs, store
from kingdom.hall.gateway.guesses import Guesses
from kingdom.hall.gateway.limits import Rate
from kingdom.hall.gateway.openapi import DESCRIPTION
from kingdom.hall.gateway.orders import PageOrders
from kingdom.hall.gateway.passwords import Passwords
from kingdom.hall.gateway.refusals import HttpRefusal, unauthorized
from kingdom.hall.gateway.rooms import Rooms
from kingdom.hall.gateway.sessions import ChatSessions
from kingdom.hall.gateway.store import ChatStore
from kingdom.hall.gateway.tokens import LIFETIME_SECONDS, Caller, Tokens

LONGEST_AGENT = 200
HISTORY_CUT = "History-Cut"
"""The header that names the last message that was deleted behind the cursor of who resumes."""
NEEDED = ("database", "topics")
"""Without these /health is red; other parts that are down show in its details."""


class Rest:
    """Everything that the operations work with."""

    def __init__(
        self,
        store: ChatStore,
        tokens: Tokens,
        passwords: Passwords,
        rates: dict[str, Rate],
        guesses: Guesses,
        rooms: Rooms,
        health: Callable[[], Awaitable[dict[str, str]]],
        sessions: ChatSessions,
        order: Callable[[str, HallCommand], Awaitable[bool]],
        kingdom: Callable[[], Awaitable[bytes]],
        orders: PageOrders,
        clock: Callable[[], float],
    ) -> None:
        """`health` returns what is up or down; `order` gives the worker a command under a key, and returns whether the
        topic has it; `kingdom` returns as JSON what the kingdom does."""
        self.registration = "closed"
        self._store = store
        self._tokens = tokens
        self._passwords = passwords
        self._rates = rates
        self._guesses = guesses
        self._rooms = rooms
        self._health = health
        self._sessions = sessions
        self._order = order
        self._kingdom = kingdom
        self._orders = orders
        self._clock = clock

    async def register(self, request: Request) -> Response:
        self.limit("registrations", request)
        given = await inputs.body(request, inputs.REGISTRATION)
        if own_rooms.looks_own(given["email"].partition("@")[0]):
            raise HttpRefusal(403, "This name is the kingdom's own")
        return JSONResponse(await self.add_user(given), 201)

    async def add_user(self, given: Mapping[str, Any]) -> Row:
        """Register somebody by fields that were checked, and return the account."""
        hashed = await self._passwords.hash(given["password"])
        email, invite, now = given["email"].lower(), given["invite"], self._clock()
        return await self._store.run(lambda db: store.register(db, email, hashed, invite, self.registration, now))

    async def login(self, request: Request) -> Response:
        self.limit("logins", request)
        given = await inputs.body(request, inputs.CREDENTIALS)
        spelt, password = given["email"], given["password"]
        user = await self._verified(request, spelt, password)
        if user["banned_at"] is not None:
            raise HttpRefusal(403, "This account is banned")
        old = user["password_hash"]
        new = await self._passwords.hash(password) if passwords.is_outdated(old) else old
        session, now = new_uuid(), self._clock()
        begun = (session, user["id"], one_line(request.headers.get("user-agent", ""), LONGEST_AGENT), now)
        await self._sessions.look_once()
        await self._store.run(lambda db: store.sign_in(db, old, new, *begun, LIFETIME_SECONDS))
        return JSONResponse({"accessToken": self._tokens.make(user["id"], user["email"], session)})

    async def change_password(self, request: Request) -> Response:
        caller = await self.caller(request)
        self.limit("logins", request)
        given = await inputs.body(request, inputs.CHANGED_PASSWORD)
        user = await self._verified(request, caller.email, given["current"])
        old, new, now = user["password_hash"], await self._passwords.hash(given["new"]), self._clock()
        changed = (caller.user, old, new, caller.session, now)
        ended = await self._store.run(lambda db: store.change_password(db, *changed))
        await self._sessions.end(ended)
        self._rooms.sessions_ended(caller.user, ended)
        return Response(status_code=204)

    async def _verified(self, request: Request, spelt: str, password: str) -> Row:
        """Return the user with this email; 401 with a wrong password, 429 after too many of them."""
        account, address = spelt.lower(), _address(request)
        self._guesses.check(account, address)
        user = await self._store.read(lambda db: db.one("user_by_email", email=account, spelt=spelt))
        known = None if user is None else user["password_hash"]
        is_right = await self._passwords.verify(known, password)
        # Once more: others were tried meanwhile.
        self._guesses.check(account, address)
        if not is_right or user is None:
            self._guesses.note_wrong(account, address, None if user is None else user["id"])
            raise HttpRefusal(401, "Invalid credentials")
        return user

    async def logout(self, request: Request) -> Response:
        caller = await self.caller(request)
        return await self._end_session(caller, caller.session)

    async def me(self, request: Request) -> Response:
        user = (await self.caller(request)).user
        return JSONResponse(await self._store.read(lambda db: store.me(db, user)))

    async def sessions(self, request: Request) -> Response:
        caller, now = await self.caller(request), self._clock()
        found = await self._store.read(lambda db: store.sessions(db, caller.user, caller.session, now))
        return JSONResponse(found)

    async def end_session(self, request: Request) -> Response:
        return await self._end_session(await self.caller(request), inputs.path_id(request))

    async def _end_session(self, caller: Caller, session: str) -> Response:
        now = self._clock()
        ended = await self._store.run(lambda db: accounts.end_sessions(db, caller.user, now, session))
        if not ended:
            raise HttpRefusal(404, "Session not found")
        await self._sessions.end(ended)
        self._rooms.sessions_ended(caller.user, ended)
        return JSONResponse({"success": True}, 201)

    async def add_room(self, request: Request) -> Response:
        user = (await self.caller(request)).user
        given = await inputs.body(request, inputs.NEW_ROOM)
        now = iso(self._clock())
        return JSONResponse(await self._store.run(lambda db: store.add_room(db, user, given["name"], now)), 201)

    async def join(self, request: Request) -> Response:
        user, room = (await self.caller(request)).user, inputs.path_id(request)
        invite = (await inputs.body(request, inputs.JOINING))["invite"]
        now = self._clock()
        member = await self._store.run(lambda db: store.join(db, room, user, invite, now))
        self._rooms.joined(room, user)
        return JSONResponse(member, 201)

    async def leave(self, request: Request) -> Response:
        user, room = (await self.caller(request)).user, inputs.path_id(request)
        left = await self._store.run(lambda db: store.leave(db, room, user))
        self._rooms.left(room, user)
        return JSONResponse(left, 201)

    async def rooms(self, request: Request) -> Response:
        user = (await self.caller(request)).user
        return JSONResponse(await self._store.read(lambda db: store.rooms_of(db, user)))

    async def members(self, request: Request) -> Response:
        return await self._of_room(request, store.members)

    async def messages(self, request: Request) -> Response:
        user, room = (await self.caller(request)).user, inputs.path_id(request)
        page = inputs.page(request)
        rows, cut = await self._store.read(lambda db: store.messages(db, room, user, page))
        return JSONResponse(rows, headers={} if cut is None else {HISTORY_CUT: cut})

    async def search(self, request: Request) -> Response:
        user = (await self.caller(request)).user
        self.limit("searches", request)
        asked = inputs.search(request)
        return JSONResponse(await self._store.read(lambda db: store.find(db, user, asked)))

    async def remove_message(self, request: Request) -> Response:
        caller, room, message = await self.caller(request), inputs.path_id(request), inputs.path_cursor(request)
        if not await self._store.read(lambda db: store.may_remove(db, room, caller.user, message)):
            raise HttpRefusal(403, "Only its sender and owners may remove a message")
        facts = {"roomId": room, "messageId": message, "by": caller.email}
        command = HallCommand(new_uuid(), "removeMessage", iso(self._clock()), facts)
        if not await self._order(room, command):
            raise HttpRefusal(503, "Service unavailable", retry_after=1)
        return JSONResponse({"commandId": command.id}, 202)

    async def mark_read(self, request: Request) -> Response:
        user, room = (await self.caller(request)).user, inputs.path_id(request)
        message = (await inputs.body(request, inputs.READ_MARK))["lastReadMessageId"]
        await self._store.run(lambda db: store.mark_read(db, room, user, message))
        self._rooms.read(room, user, message)
        return JSONResponse({"success": True}, 201)

    async def kingdom(self, request: Request) -> Response:
        user = (await self.caller(request)).user
        if not await self._store.read(lambda db: store.may_see_kingdom(db, user)):
            raise HttpRefusal(403, "Only for owners and people of the throne room")
        return Response(await self._kingdom(), media_type="application/json")

    async def give_order(self, request: Request) -> Response:
        caller = await self.caller(request)
        given = await inputs.body(request, inputs.KINGDOM_ORDER)
        await self._store.read(lambda db: store.check_owner(db, caller.user))
        order = await asyncio.to_thread(self._orders.give, given["action"], given["target"], caller.email)
        return JSONResponse({"orderId": order}, 202)

    async def order(self, request: Request) -> Response:
        user, name = (await self.caller(request)).user, request.path_params["order"]
        await self._store.read(lambda db: store.check_owner(db, user))
        if inputs.name(name) or (found := self._orders.look(name)) is None:
            raise HttpRefusal(404, "There is no such order")
        return JSONResponse(found)

    async def restart(self, request: Request) -> Response:
        caller, role = await self.caller(request), request.path_params["role"]
        await self._store.read(lambda db: store.check_owner(db, caller.user))
        await asyncio.to_thread(self._orders.restart, role, caller.email)
        return JSONResponse({"success": True}, 202)

    async def health(self, request: Request) -> Response:
        states = {name: {"status": state} for name, state in (await self._health()).items()}
        needed = {name: state for name, state in states.items() if name in NEEDED}
        failed = {name: state for name, state in needed.items() if state["status"] != "up"}
        working = {name: state for name, state in needed.items() if name not in failed}
        body = {"status": "error" if failed else "ok", "info": working, "error": failed, "details": states}
        return JSONResponse(body, 503 if failed else 200)

    async def description(self, request: Request) -> Response:
        return JSONResponse(DESCRIPTION)

    async def _of_room(self, request: Request, work: Callable[[Transaction, str, str], list[Row]]) -> Response:
        user, room = (await self.caller(request)).user, inputs.path_id(request)
        return JSONResponse(await self._store.read(lambda db: work(db, room, user)))

    async def caller(self, request: Request) -> Caller:
        """Return who asks; 401 without a token that is good."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = self._tokens.read(token.strip()) if kind.lower() == "bearer" else None
        if caller is None or not await self._sessions.is_good(caller):
            raise unauthorized()
        return caller

    def limit(self, what: str, request: Request) -> None:
        """Count a request of this kind from its address; 429 for one too many."""
        if wait := self._rates[what].wait_seconds(_address(request)):
            raise HttpRefusal(429, "Too many requests", retry_after=wait)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


OPERATIONS: dict[tuple[str, str], Callable[[Rest, Request], Awaitable[Response]]] = {
    ("POST", "/auth/register"): Rest.register,
    ("POST", "/auth/login"): Rest.login,
    ("POST", "/auth/password"): Rest.change_password,
    ("POST", "/auth/logout"): Rest.logout,
    ("GET", "/auth/me"): Rest.me,
    ("GET", "/auth/sessions"): Rest.sessions,
    ("POST", "/auth/sessions/{id}/end"): Rest.end_session,
    ("GET", "/rooms"): Rest.rooms,
    ("POST", "/rooms"): Rest.add_room,
    ("POST", "/rooms/{id}/join"): Rest.join,
    ("POST", "/rooms/{id}/leave"): Rest.leave,
    ("GET", "/rooms/{id}/members"): Rest.members,
    ("GET", "/rooms/{id}/messages"): Rest.messages,
    ("POST", "/rooms/{id}/messages/{message}/remove"): Rest.remove_message,
    ("POST", "/rooms/{id}/read"): Rest.mark_read,
    ("GET", "/search"): Rest.search,
    ("GET", "/kingdom"): Rest.kingdom,
    ("POST", "/kingdom/orders"): Rest.give_order,
    ("GET", "/kingdom/orders/{order}"): Rest.order,
    ("POST", "/kingdom/roles/{role}/restart"): Rest.restart,
    ("GET", "/health"): Rest.health,
    ("GET", "/openapi.json"): Rest.description,
}
"""Each has its entry in `openapi.py`."""
