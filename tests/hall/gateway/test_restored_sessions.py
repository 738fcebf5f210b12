"""A session is good while the database knows it, and a database that was restored revives none that were ended."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import socketio

from kingdom.base.disk.atomic import Disk
from kingdom.court.upkeep import backup
from kingdom.hall.database.ids import new_uuid
from kingdom.hall.gateway.tokens import Tokens
from tests.hall.gateway.halls import OPEN, SECONDS, Hall, Person, running
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def own() -> Iterator[Hall]:
    with running("gateway", config={**OPEN, "port": free_port()}) as opened:
        yield opened


def status(person: Person) -> int:
    return person.call("GET", "/rooms").status_code


def signed_in_again(person: Person) -> Person:
    return Person(person.url, person.email)


async def is_refused(person: Person) -> bool:
    """Return whether a socket is told to go away."""
    async with person.socket() as socket:
        return await socket.wait("disconnect") == socketio.AsyncClient.reason.SERVER_DISCONNECT


async def test_a_session_that_the_database_does_not_know_is_refused(own: Hall) -> None:
    anna = own.person()
    tokens = Tokens((own.places.own("gateway") / "secret").read_bytes(), time.time)
    anna.headers["Authorization"] = f"Bearer {(token := tokens.make(anna.id, anna.email, new_uuid()))}"
    anna.token = token
    assert anna.call("GET", "/rooms").json() == {"message": "Unauthorized", "error": "Unauthorized", "statusCode": 401}
    assert await is_refused(anna)
    ben = own.person()
    with closing(sqlite3.connect(own.places.hall / "hall.db")) as db:
        [(session,)] = db.execute("SELECT id FROM hall_sessions WHERE user_id = ?", (ben.id,))
    ben.headers["Authorization"] = f"Bearer {tokens.make(anna.id, anna.email, session)}"
    assert status(ben) == 401, "the session is another user's"


def copy_file(hall: Hall) -> Callable[[], None]:
    """Copy the database's file; return what puts the copy in its place."""
    file = hall.places.hall / "hall.db"
    copy = hall.places.home / "copy.db"
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return lambda: os.replace(copy, file)


def back_up(hall: Hall) -> Callable[[], None]:
    """Back the home up as the command does; return what restores it."""
    archive = hall.places.home.with_suffix(".tar.gz")
    backup.make(hall.places, archive, Disk(hall.places.scratch("cli")), secrets=True)

    def restore() -> None:
        unpacked = hall.places.home / ".unpacked"
        backup.unpack(archive, unpacked)
        backup.put_in_place(unpacked, hall.places, Disk(hall.places.scratch("cli")), hall.places.home / "aside")
        archive.unlink()

    return restore


@pytest.mark.parametrize("copies", [copy_file, back_up], ids=["a copy of the file", "a backup of the home"])
async def test_a_restored_database_revives_no_session(copies: Callable[[Hall], Callable[[], None]], own: Hall) -> None:
    stays, ends = own.person(), own.person()
    restore = copies(own)
    assert ends.call("POST", "/auth/logout").status_code == 201
    late = own.person() if copies is back_up else signed_in_again(stays)
    assert [status(person) for person in (stays, ends, late)] == [200, 401, 200]
    own.stop("gateway")
    restore()
    own.start("gateway")
    assert [status(person) for person in (stays, ends, late)] == [401, 401, 401]
    assert await is_refused(ends)
    said = "the chat's database was restored or is new to this home: its sessions end, and everybody signs in again"
    wait_until(lambda: said in own.log(), SECONDS, "the log says so")
    again = signed_in_again(stays)
    own.stop("gateway")
    own.start("gateway")
    assert (status(again), status(ends)) == (200, 401), "an ordinary restart ends nothing"


async def test_a_database_that_is_replaced_while_people_chat_ends_their_sessions(own: Hall) -> None:
    anna, ends = own.person(), own.person()
    restore = copy_file(own)
    assert ends.call("POST", "/auth/logout").status_code == 201
    async with anna.socket() as socket:
        assert await socket.call("heartbeat") == {"success": True}
        restore()
        assert await socket.wait("disconnect") == socketio.AsyncClient.reason.SERVER_DISCONNECT
    assert (status(anna), status(ends), status(signed_in_again(ends))) == (401, 401, 200)
