"""What every database of the chat does. PostgreSQL takes part where KINGDOM_TEST_POSTGRES names an empty database."""

import json
import os
import re
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.errors import BadConfig
from kingdom.base.home.places import Places
from kingdom.hall.database import DATABASES, accounts, moderation, own_rooms, retention, search
from kingdom.hall.database.base import Database, DatabaseRefused, Transaction, Unavailable, migrations, statements
from kingdom.hall.database.ids import iso, new_uuid, next_ulid
from kingdom.hall.database.opening import ADDRESS, open_database
from kingdom.hall.database.persist import Arrival, persist
from kingdom.hall.database.rebuild import PersistedEvent, Rebuilt, rebuild
from kingdom.hall.database.records import MessageCreated, MessagePersisted

NOW = iso(1_795_000_000.1234)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgresql":
        if not (named := os.environ.get("KINGDOM_TEST_POSTGRES")):
            pytest.skip("no PostgreSQL is named here: make test-distributed")
        return named
    return f"{request.param}:///state/hall/hall.db"


@pytest.fixture
def database(url: str, home: Path) -> Iterator[Database]:
    opened = open_database({}, {ADDRESS: url}, Places(home))
    opened.migrate()
    yield opened
    opened.close()


def add_user(database: Database) -> str:
    user = new_uuid()
    row = {"id": user, "email": f"{user}@example.org", "password_hash": "x", "created_at": NOW}
    assert database.run(lambda db: db.one("add_user", **row)) == {"id": user}
    return user


def add_room(database: Database, *members: str) -> str:
    room = new_uuid()

    def work(db: Transaction) -> None:
        db.do("add_room", id=room, name="a room", created_at=NOW)
        for member in members:
            db.one("add_member", room_id=room, user_id=member, joined_at=NOW)

    database.run(work)
    return room


def test_migrations_run_once_and_are_numbered_without_gaps(database: Database) -> None:
    database.migrate()
    for dialect in DATABASES:
        numbers = [number for number, _ in migrations(dialect)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_what_goes_in_comes_out_as_the_same_text(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    assert database.read(lambda db: db.one("room", id=room)) == {
        "id": room,
        "name": "a room",
        "last_message_id": None,
        "last_message_at": None,
        "created_at": NOW,
    }
    assert NOW.endswith(".123Z")


def test_ids_are_found_in_either_case(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    found = database.read(lambda db: db.one("membership", room_id=room.lower(), user_id=user.lower()))
    assert found == {"joined_at": NOW, "last_read_message_id": None}


@pytest.mark.parametrize("twice", ["add_user", "add_member"])
def test_a_second_time_returns_no_row(twice: str, database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    values: dict[str, Any] = {
        "add_user": {"id": new_uuid(), "email": f"{user}@example.org", "password_hash": "y", "created_at": NOW},
        "add_member": {"room_id": room, "user_id": user, "joined_at": NOW},
    }[twice]
    assert database.run(lambda db: db.one(twice, **values)) is None


def test_an_unknown_user_or_room_is_refused_and_nothing_of_the_transaction_stays(database: Database) -> None:
    user = add_user(database)
    room = new_uuid()

    def work(db: Transaction) -> None:
        db.do("add_room", id=room, name="half", created_at=NOW)
        db.one("add_member", room_id=room, user_id=user, joined_at=NOW)
        db.one("add_member", room_id=room, user_id=new_uuid(), joined_at=NOW)

    with pytest.raises(DatabaseRefused):
        database.run(work)
    assert database.read(lambda db: db.one("room", id=room)) is None


def test_an_error_of_the_work_rolls_back_and_comes_through(database: Database) -> None:
    room = new_uuid()

    def work(db: Transaction) -> None:
        db.do("add_room", id=room, name="half", created_at=NOW)
        raise KeyError(room)

    with pytest.raises(KeyError):
        database.run(work)
    assert database.read(lambda db: db.one("room", id=room)) is None


def test_each_returns_a_row_or_none_for_every_execution(database: Database) -> None:
    users = [add_user(database), add_user(database)]
    room = add_room(database, users[0])
    rows = [{"room_id": room, "user_id": user, "joined_at": NOW} for user in (*users, users[1])]
    assert database.run(lambda db: db.each("add_member", rows)) == [None, {"joined_at": NOW}, None]
    assert database.run(lambda db: db.each("add_member", [])) == []


def test_a_read_mark_never_goes_back(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    early, late = next_ulid(1_000), next_ulid(2_000)

    def mark(message: str) -> str:
        def work(db: Transaction) -> str:
            db.do("mark_read", room_id=room, user_id=user, message_id=message)
            row = db.one("membership", room_id=room, user_id=user)
            return str(row and row["last_read_message_id"])

        return database.run(work)

    assert [mark(early), mark(late), mark(early)] == [early, late, late]


def test_threads_have_connections_of_their_own(database: Database) -> None:
    user = add_user(database)
    room = add_room(database)
    given: list[object] = []

    def join() -> None:
        row = {"room_id": room, "user_id": user, "joined_at": NOW}
        given.append(database.run(lambda db: db.one("add_member", **row)))

    threads = [threading.Thread(target=join) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given, key=bool) == [None, None, None, {"joined_at": NOW}]


def test_rooms_come_with_the_newest_activity_first_and_a_capped_count(database: Database) -> None:
    user = add_user(database)
    first, second = add_room(database, user), add_room(database, user)
    found = database.read(lambda db: db.all("rooms_of", user_id=user, most=1001))
    assert {row["id"] for row in found} == {first, second}
    assert {row["unread"] for row in found} == {0}


@pytest.mark.parametrize("dialect", DATABASES)
def test_every_statement_stands_for_every_database(dialect: str) -> None:
    assert statements(dialect).keys() == statements("sqlite").keys()


def test_a_database_that_is_away_is_unavailable(url: str, home: Path) -> None:
    away = "postgresql://nobody@127.0.0.1:1/none" if url.startswith("postgres") else "sqlite:////proc/none/hall.db"
    with pytest.raises(Unavailable):
        open_database({}, {ADDRESS: away}, Places(home)).migrate()


def test_a_password_is_taken_from_env_alone(home: Path) -> None:
    url = "postgresql://hall:geheim@db.example.org/hall?sslmode=verify-full"
    with pytest.raises(BadConfig, match=r"database: holds a password: write the whole address to \.env") as refused:
        open_database({"database": url}, {}, Places(home))
    assert "geheim" not in str(refused.value)
    open_database({"database": url}, {ADDRESS: url}, Places(home)).close()


def test_tables_of_a_newer_kingdom_are_left_alone(database: Database, url: str, home: Path) -> None:
    note = "INSERT INTO hall_migrations VALUES (9000)"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(home / "state/hall/hall.db")) as raw, raw:
            raw.execute(note)
    else:
        import psycopg

        psycopg.connect(url, autocommit=True).execute(note).connection.close()
    with pytest.raises(Unavailable, match=r"a newer Kingdom has made the tables of this database \(step 9000"):
        database.migrate()


FOREIGN = """
CREATE TABLE users (
    id uuid NOT NULL DEFAULT (gen_random_uuid()), email character varying NOT NULL,
    password_hash character varying NOT NULL, created_at TIMESTAMP NOT NULL DEFAULT (now()),
    CONSTRAINT pk_users PRIMARY KEY (id), CONSTRAINT uq_users UNIQUE (email));
CREATE TABLE rooms (
    id uuid NOT NULL DEFAULT (gen_random_uuid()), name character varying NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT (now()), last_message_id character varying,
    last_message_at timestamp with time zone, CONSTRAINT pk_rooms PRIMARY KEY (id));
CREATE TABLE room_members (
    room_id uuid NOT NULL, user_id uuid NOT NULL, joined_at TIMESTAMP NOT NULL DEFAULT (now()),
    last_read_message_id character varying, CONSTRAINT pk_room_members PRIMARY KEY (room_id, user_id));
CREATE TABLE messages (
    id character varying(26) NOT NULL, room_id uuid NOT NULL, sender_id uuid NOT NULL, client_msg_id uuid NOT NULL,
    type character varying(20) NOT NULL DEFAULT 'TEXT', content text NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT (now()), CONSTRAINT uq_messages UNIQUE (room_id, sender_id, client_msg_id),
    CONSTRAINT pk_messages PRIMARY KEY (id));
CREATE INDEX idx_messages_room ON messages (room_id, id);
INSERT INTO users VALUES ('0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a01', 'anna@example.org', 'x', '2026-01-02 03:04:05.678');
INSERT INTO rooms VALUES ('0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a02', 'theirs', '2026-01-02 03:04:05.678', NULL, NULL);
INSERT INTO room_members VALUES ('0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a02', '0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a01',
    '2026-01-02 03:04:05.678', NULL);
INSERT INTO messages VALUES ('01KE0000000000000000000000', '0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a02',
    '0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a01', '0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a03', 'TEXT', 'before',
    '2026-01-02 03:04:05.678');
"""
"""Tables as an object mapper of another service makes them: times without zones, no references."""
THEIR_USER, THEIR_ROOM = "0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a01", "0b5ad8a4-3c8c-4f0e-9d5b-6f2f8d3b1a02"
AT = "2026-01-02T03:04:05.678Z"


def raw(url: str, home: Path, script: str) -> list[tuple[Any, ...]]:
    """Carry out SQL as another program would; return the rows of the last statement."""
    if url.startswith("sqlite"):
        (home / "state/hall").mkdir(parents=True, exist_ok=True)
        *statements, last, _ = re.split(r";\n?", script.strip().removesuffix(";") + ";")
        with closing(sqlite3.connect(home / "state/hall/hall.db")) as db, db:
            for statement in statements:
                db.execute(statement.replace("'2026-01-02 03:04:05.678'", f"'{AT}'"))
            return db.execute(last.replace("'2026-01-02 03:04:05.678'", f"'{AT}'")).fetchall()
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        cursor = db.execute(script.encode())
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []


def test_tables_that_another_service_made_are_used_as_they_are(url: str, home: Path) -> None:
    raw(url, home, FOREIGN)
    database = open_database({}, {ADDRESS: url}, Places(home))
    database.migrate()
    [room] = database.read(lambda db: db.all("rooms_of", user_id=THEIR_USER, most=9))
    assert (room["id"], room["created_at"], room["unread"]) == (THEIR_ROOM, AT, 0)
    fields = {"producedAt": NOW, "messageType": "TEXT", "content": "after", "roomId": THEIR_ROOM}
    event = {**fields, "senderId": THEIR_USER, "eventId": new_uuid(), "clientMsgId": new_uuid()}
    arrival = Arrival(MessageCreated.from_json(json.dumps(event).encode()), "chat.messages.v1", "0:1")
    [stored] = database.run(lambda db: persist(db, [arrival], 1_795_000_000.1234))
    history = database.read(lambda db: db.all("newest_messages", room_id=THEIR_ROOM, most=9))
    assert [(row["content"], row["created_at"]) for row in history] == [("after", NOW), ("before", AT)]
    assert stored is not None
    assert stored.created_at == NOW
    if not url.startswith("sqlite"):
        stranger = {**event, "senderId": new_uuid(), "clientMsgId": new_uuid()}
        unknown = Arrival(MessageCreated.from_json(json.dumps(stranger).encode()), "chat.messages.v1", "0:2")
        with pytest.raises(DatabaseRefused, match="foreign key"):
            database.run(lambda db: persist(db, [unknown], 1_795_000_000.1234))
    database.migrate()
    database.close()


SPOILT = {
    "it has no column password_hash": ("password_hash", "secret"),
    "it may hold the same client_msg_id, room_id, sender_id twice": (
        "CONSTRAINT uq_messages UNIQUE (room_id, sender_id, client_msg_id),",
        "",
    ),
    "its rows need a tenant, which the hall does not know": (
        "name character varying",
        "tenant text NOT NULL, name text",
    ),
}


@pytest.mark.parametrize("why", SPOILT)
def test_tables_that_cannot_be_used_are_named_and_left_alone(why: str, url: str, home: Path) -> None:
    tables = FOREIGN.partition("INSERT")[0].replace(*SPOILT[why])
    raw(url, home, tables)
    database = open_database({}, {ADDRESS: url}, Places(home))
    with pytest.raises(Unavailable, match=f"that the chat cannot use: {why}; name a database of its own in hall.yaml"):
        database.migrate()
    database.close()


def test_other_services_may_leave_ids_and_times_to_the_database(database: Database, url: str, home: Path) -> None:
    if url.startswith("sqlite"):
        pytest.skip("no other service writes to the hall's own file")
    [(user,)] = raw(
        url,
        home,
        "INSERT INTO users (id, email, password_hash, created_at) VALUES (DEFAULT, 'e', 'x', DEFAULT) RETURNING id",
    )
    [(room,)] = raw(url, home, "INSERT INTO rooms (id, name, created_at) VALUES (DEFAULT, 'r', DEFAULT) RETURNING id")
    raw(url, home, f"INSERT INTO room_members (room_id, user_id, joined_at) VALUES ('{room}', '{user}', DEFAULT)")
    names, values = (
        "id, room_id, sender_id, client_msg_id, type, content, created_at",
        f"'{room}', '{user}', '{new_uuid()}'",
    )
    raw(url, home, f"INSERT INTO messages ({names}) VALUES ('{next_ulid(1_000)}', {values}, DEFAULT, 'hello', DEFAULT)")
    [message] = database.read(lambda db: db.all("newest_messages", room_id=str(room), most=9))
    assert (message["type"], message["content"], message["created_at"][:4]) == ("TEXT", "hello", f"{time.gmtime()[0]}")


def standing(database: Database, user: str) -> Any:
    row = database.read(lambda db: db.one("user_by_id", id=user))
    assert row is not None
    return row["role"], row["banned_at"]


def test_an_invitation_is_good_for_its_uses_and_its_time(database: Database) -> None:
    code = database.run(lambda db: accounts.new_invite(db, accounts.Invitation(accounts.MEMBER), 2, 60.0, 1000.0))
    times = (1001.0, 1059.9, 1002.0)
    taken = [database.run(lambda db, at=at: accounts.take_invite(db, code, at)) for at in times]  # type: ignore[misc]
    assert taken == [("member", None), ("member", None), None], "the third has come too late"
    late = database.run(lambda db: accounts.new_invite(db, accounts.Invitation(accounts.OWNER), 1, 60.0, 1000.0))
    assert database.run(lambda db: accounts.take_invite(db, late, 1060.0)) is None
    assert database.run(lambda db: accounts.take_invite(db, "no code", 1000.0)) is None


def test_the_last_use_of_an_invitation_goes_to_one_of_those_who_come_at_once(database: Database) -> None:
    code = database.run(lambda db: accounts.new_invite(db, accounts.Invitation(accounts.OWNER), 1, 60.0, 1000.0))
    given: list[accounts.Invitation | None] = []
    threads = [
        threading.Thread(target=lambda: given.append(database.run(lambda db: accounts.take_invite(db, code, 1001.0))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given, key=bool) == [None, None, None, ("owner", None)]


def test_the_first_owner_makes_the_links_of_other_owners_void_and_leaves_those_of_members(database: Database) -> None:
    user = add_user(database)
    assert standing(database, user) == ("member", None)
    given = [accounts.Invitation(role) for role in (accounts.OWNER, accounts.MEMBER)]
    codes = [database.run(lambda db, gives=gives: accounts.new_invite(db, gives, 1, 60.0, 1000.0)) for gives in given]  # type: ignore[misc]
    database.run(lambda db: accounts.give_role(db, user, accounts.OWNER))
    assert standing(database, user) == ("owner", None)
    assert database.read(accounts.has_owner)
    taken = [database.run(lambda db, code=code: accounts.take_invite(db, code, 1001.0)) for code in codes]  # type: ignore[misc]
    assert taken == [None, ("member", None)]


def test_sessions_are_listed_until_they_are_over_and_ended_one_by_one_or_all(database: Database) -> None:
    user, other = add_user(database), add_user(database)
    one, two, three, theirs, past = (new_uuid() for _ in range(5))
    for session, whose, at in ((past, user, 0.0), (one, user, 100.0), (two, user, 101.0), (three, user, 102.0)):
        database.run(lambda db, s=session, w=whose, at=at: accounts.begin_session(db, s, w, "Brow\u00dfer", at, 60.0))  # type: ignore[misc]
    database.run(lambda db: accounts.begin_session(db, theirs, other, "", 100.0, 60.0))

    def ids(at: float) -> list[str]:
        return [row["id"] for row in database.read(lambda db: accounts.sessions_of(db, user, at))]

    assert ids(103.0) == [one, two, three]
    assert ids(160.0) == [two, three]
    end = accounts.end_sessions
    assert database.run(lambda db: end(db, user, 110.0, theirs)) == [], "somebody else's"
    assert database.run(lambda db: end(db, user, 110.0, one)) == [one]
    assert database.run(lambda db: end(db, user, 110.0, one)) == [], "ended already"
    assert sorted(database.run(lambda db: end(db, user, 111.0))) == sorted([two, three])
    assert ids(112.0) == []
    since = iso(110.5)
    ended = database.read(lambda db: db.all("sessions_ended_since", since=since))
    assert sorted(row["id"] for row in ended) == sorted([two, three])
    database.run(lambda db: accounts.begin_session(db, past, user, "", 200.0, 60.0))
    assert ids(201.0) == [past], "those that are over are forgotten"


def arrival(
    room: str, sender: str, position: str, client_msg_id: str = "", content: str = "hello", about: Any = None
) -> Arrival:
    ids = (new_uuid(), room, sender, client_msg_id or new_uuid())
    return Arrival(MessageCreated(*ids, "TEXT", content, NOW, about), "chat.messages.v1", position)


def test_messages_are_stored_in_their_order_under_ids_that_grow_whatever_the_clock_says(database: Database) -> None:
    user = add_user(database)
    rooms = [add_room(database, user), add_room(database, user)]
    for at, now in enumerate((2000.5, 1000.25)):
        batch = [arrival(rooms[n % 2], user, f"0:{10 * at + n}", content=f"{at}-{n}") for n in range(4)]
        told = database.run(lambda db, batch=batch, now=now: persist(db, batch, now))  # type: ignore[misc]
        assert [message.content for message in told if message] == [f"{at}-{n}" for n in range(4)]
    for rest, room in enumerate(rooms):
        rows = database.read(lambda db, room=room: db.all("messages_after", room_id=room, after="", most=9))  # type: ignore[misc]
        assert [row["content"] for row in rows] == [f"{at}-{n}" for at in range(2) for n in (rest, rest + 2)]
        about = database.read(lambda db, room=room: db.one("room", id=room))  # type: ignore[misc]
        assert about is not None
        assert (about["last_message_id"], about["last_message_at"]) == (rows[-1]["id"], iso(1000.25))


def test_a_redelivery_is_told_again_and_what_a_client_repeats_is_not(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    first = arrival(room, user, "0:1")
    repeat = arrival(room, user, "0:2", first.event.client_msg_id.upper())
    [told, nothing] = database.run(lambda db: persist(db, [first, repeat], 1000.0))
    assert told is not None
    assert nothing is None
    again = database.run(lambda db: persist(db, [first, repeat], 2000.0))
    assert again == [told, None]
    assert len(database.read(lambda db: db.all("messages_after", room_id=room, after="", most=9))) == 1


def test_an_imported_message_has_no_position_and_is_told_again(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    known = arrival(room, user, "0:1")
    row = {"room_id": room, "sender_id": user, "client_msg_id": known.event.client_msg_id, "type": "TEXT"}
    id = next_ulid(1000)
    database.run(lambda db: db.one("add_message", id=id, content="imported", created_at=NOW, **row))
    [told] = database.run(lambda db: persist(db, [known], 2000.0))
    assert told is not None
    assert (told.message_id, told.created_at) == (id, NOW)


def test_the_kingdoms_rooms_have_the_owners_and_who_is_in_the_throne_room_is_in_all(database: Database) -> None:
    owner, guest = add_user(database), add_user(database)
    database.run(lambda db: accounts.give_role(db, owner, accounts.OWNER))
    rooms = {own_rooms.THRONE_ROOM: own_rooms.THRONE, new_uuid(): own_rooms.TASK, new_uuid(): own_rooms.TASK}

    def members(room: str) -> set[str]:
        return {row["user_id"] for row in database.read(lambda db: db.all("members", room_id=room))}

    throne, first, second = rooms
    for room in (throne, first):
        for _ in range(2):
            database.run(lambda db, room=room: own_rooms.open_room(db, room, "a room", rooms[room], NOW))  # type: ignore[misc]
        assert members(room) == {owner, own_rooms.USER}
    database.run(lambda db: db.one("add_member", room_id=throne, user_id=guest, joined_at=NOW))
    database.run(lambda db: own_rooms.open_room(db, second, "a room", own_rooms.TASK, NOW))
    assert members(second) == {owner, guest, own_rooms.USER}
    assert members(first) == {owner, own_rooms.USER}
    database.run(lambda db: own_rooms.join_all(db, guest, NOW))
    assert members(first) == {owner, guest, own_rooms.USER}
    listed = database.read(lambda db: db.all("users", now=NOW))
    assert own_rooms.USER not in {row["id"] for row in listed}, "it is no person"


def test_what_the_kingdom_repeats_is_told_again_under_the_same_id(database: Database) -> None:
    room = new_uuid()
    database.run(lambda db: own_rooms.open_room(db, room, "a room", own_rooms.TASK, NOW))
    first = arrival(room, own_rooms.USER, "0:1")
    repeat = arrival(room, own_rooms.USER, "0:2", first.event.client_msg_id)
    told, again = database.run(lambda db: persist(db, [first, repeat], 1000.0))
    assert told == again
    assert len(database.read(lambda db: db.all("messages_after", room_id=room, after="", most=9))) == 1


def test_what_a_message_is_about_is_kept_with_it_until_it_is_removed(database: Database) -> None:
    user, about = add_user(database), {"taskId": "task-1", "code": "question", "choices": ["예", "no"]}
    room = add_room(database, user)
    batch = [arrival(room, user, "0:1"), arrival(room, user, "0:2", about=about)]
    told = database.run(lambda db: persist(db, batch, 1000.0))
    assert told == database.run(lambda db: persist(db, batch, 1000.0)), "a redelivery changes nothing"
    assert [message and message.about for message in told] == [None, about]

    def kept() -> list[Any]:
        rows = database.read(lambda db: db.all("newest_messages", room_id=room, most=9))
        return [row["about"] and json.loads(row["about"]) for row in rows]

    assert kept() == [about, None]
    asked = told[1]
    assert asked is not None
    database.run(lambda db: moderation.blank(db, room, asked.message_id))
    assert kept() == [None, None]


def fill(database: Database, room: str, user: str, *texts: str) -> list[str]:
    """Store messages and return their ids."""
    batch = [arrival(room, user, f"{room}:{number}", content=text) for number, text in enumerate(texts)]
    told = database.run(lambda db: persist(db, batch, 1000.0))
    return [message.message_id for message in told if message is not None]


def test_rooms_keep_their_messages_as_long_as_each_of_them_says_and_the_newest_always(database: Database) -> None:
    day, now = 86_400.0, 1_795_000_000.0
    user = add_user(database)
    usual, short, ever = (add_room(database, user) for _ in range(3))
    for room, days in ((short, 1), (ever, 0)):
        database.run(lambda db, room=room, days=days: db.do("keep_room", room_id=room, days=days))  # type: ignore[misc]
    ids: dict[str, list[str]] = {room: [] for room in (usual, short, ever)}
    for number, age in enumerate((20, 9, 3, 2)):
        for room in ids:
            sent = [arrival(room, user, f"{room}:{number}", content=f"{age} days", about={"taskId": "task-1"})]
            [told] = database.run(lambda db, sent=sent, age=age: persist(db, sent, now - age * day))  # type: ignore[misc]
            assert told is not None
            ids[room].append(told.message_id)
    database.run(lambda db: db.do("note_removal", message_id=ids[usual][0], item_id=ids[usual][3]))

    def cut(most: int) -> list[int]:
        removed = []
        while number := database.run(lambda db: retention.cut(db, 7, now, most)):
            removed.append(number)
        return removed

    assert cut(2) == [2, 1, 2], "three of the one that keeps a day, two of the one that keeps a week"
    kept = {usual: ids[usual][2:], short: ids[short][3:], ever: ids[ever]}
    for room, left in kept.items():
        rows = database.read(lambda db, room=room: db.all("messages_after", room_id=room, after="", most=9))  # type: ignore[misc]
        assert [row["id"] for row in rows] == left
        noted = database.read(lambda db, room=room: db.one("cut_of_room", room_id=room))  # type: ignore[misc]
        gone = ids[room][: -len(left)]
        assert noted == ({"message_id": gone[-1]} if gone else None)
    assert database.read(lambda db: db.all("rooms_without_their_last_message")) == []
    assert cut(9) == []


FOUND = {
    "회의": ["오늘회의는 세 시", "회의록"],
    "록": ["회의록"],
    "의는": ["오늘회의는 세 시"],
    unicodedata.normalize("NFD", "회의록"): ["회의록"],
    "왕국": [unicodedata.normalize("NFD", "왕국에서")],
    "deploy": ["Redeploy at 100%"],
    "100%": ["Redeploy at 100%"],
    "%": ["Redeploy at 100%"],
    "a_b": ["a_b"],
    "\\": ["c:\\temp"],
    "nothing": [],
}


def test_a_text_is_found_inside_words_with_two_syllables_or_one_and_is_no_pattern(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    decomposed = unicodedata.normalize("NFD", "왕국에서")
    fill(database, room, user, "오늘회의는 세 시", "회의록", decomposed, "Redeploy at 100%", "a_b", "axb", "c:\\temp")
    for text, contents in FOUND.items():
        for found in (
            database.read(lambda db, text=text: search.in_room(db, room, text, None, 50)),  # type: ignore[misc]
            database.read(lambda db, text=text: search.in_rooms_of(db, user, text, None, 50)),  # type: ignore[misc]
        ):
            assert ([row["content"] for row in found.rows], found.before) == (contents[::-1], None), text


def test_a_search_goes_on_where_it_stopped_and_misses_nothing(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    ids = fill(database, room, user, *("yes" if number % 3 else "no" for number in range(30)))
    wanted = [id for number, id in enumerate(ids) if number % 3][::-1]
    for most, at_once in ((50, 7), (4, 7), (4, 100), (50, 100), (1, 1)):
        for where in ("room", "all"):
            found: list[str] = []
            before: str | None = None
            while True:
                look = search.in_room if where == "room" else search.in_rooms_of
                whose = room if where == "room" else user
                page = database.read(
                    lambda db, b=before, m=most, a=at_once, look=look, w=whose: look(db, w, "yes", b, m, a)  # type: ignore[misc]
                )
                found += [row["id"] for row in page.rows]
                if (before := page.before) is None:
                    break
            assert found == wanted, (most, at_once, where)


def test_rooms_of_others_are_not_searched(database: Database) -> None:
    user, other = add_user(database), add_user(database)
    fill(database, add_room(database, other), other, "secret")
    assert database.read(lambda db: search.in_rooms_of(db, user, "secret", None, 50)) == ([], None)


@pytest.mark.parametrize("what", ["room", "sender"])
def test_a_message_without_user_or_room_is_refused_with_its_whole_batch(what: str, database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    bad = arrival(new_uuid() if what == "room" else room, new_uuid() if what == "sender" else user, "0:2")
    with pytest.raises(DatabaseRefused):
        database.run(lambda db: persist(db, [arrival(room, user, "0:1"), bad], 1000.0))
    assert database.read(lambda db: db.all("messages_after", room_id=room, after="", most=9)) == []


def test_what_was_lost_is_stored_as_it_was_told_and_what_cannot_be_is_named(database: Database) -> None:
    user = add_user(database)
    room = add_room(database, user)
    one = next_ulid(1_000)
    told = [
        PersistedEvent(f"0:{number}", MessagePersisted(id, where, user, new_uuid(), "TEXT", "x", NOW).to_json())
        for number, (id, where) in enumerate([(one, room), (next_ulid(1, one), new_uuid()), (next_ulid(2_000), room)])
    ]
    told.append(PersistedEvent("0:3", b"{}"))
    stored, known, refused = rebuild(database, told)
    assert (stored, known, [why.partition(":")[2][:2] for why in refused]) == (2, 0, ["1:", "3:"])
    assert rebuild(database, told[:1]) == Rebuilt(known=1)
    rows = database.read(lambda db: db.all("messages_after", room_id=room, after="", most=9))
    about = database.read(lambda db: db.one("room", id=room))
    assert about is not None
    assert [rows[0]["id"], rows[-1]["id"]] == [one, about["last_message_id"]]
