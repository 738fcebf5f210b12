"""`kingdom hall`, and what `up` says of the chat."""

import io
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from kingdom.hall.cli.hall import greeting
from kingdom.hall.cli.hall_orders import READERS
from kingdom.hall.database import accounts, passwords
from kingdom.hall.database.ids import new_uuid
from kingdom.hall.database.opening import open_database
from kingdom.hall.topics.names import PERSISTED
from tests.cli.conftest import Terminal
from tests.fixtures import Clock
from tests.hall.worker.hall import Hall, at_work, give, message, ordered, work
from tests.waiting import SOON, wait_until

NOW = "2026-11-19T10:00:00.000Z"
USER = "0b8f1c1e-0000-4000-8000-000000000001"


def add_owner(places: Places) -> None:
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, places)
    database.migrate()
    row = {"id": USER, "email": "anna@example.org", "password_hash": "x", "created_at": NOW}
    database.run(lambda db: db.one("add_user", **row))
    database.run(lambda db: accounts.give_role(db, USER, accounts.OWNER))
    database.close()


def test_up_prints_the_owners_link_until_somebody_owns_the_hall(terminal: Terminal) -> None:
    first, link = greeting(terminal.places, is_logged=False)
    assert first == "The hall: http://127.0.0.1:7700"
    assert link.startswith("  make it yours, within a day: http://127.0.0.1:7700/#/join/")
    _, logged = greeting(terminal.places, is_logged=True)
    assert logged == "  nobody owns it: `kingdom hall invite --owner` prints the owner's link".replace(
        "kingdom hall", f"{logged.split('`')[1].rpartition(' hall')[0]} hall"
    )
    assert "/join/" not in logged
    add_owner(terminal.places)
    assert list(greeting(terminal.places, is_logged=False)) == [first]


def test_the_doctor_names_a_hall_that_nobody_owns(terminal: Terminal) -> None:
    (terminal.places.config / "system.yaml").write_text("roles: {gateway: true, worker: true}\n")
    assert "nobody owns it" not in terminal("doctor").out, "there is no database yet"
    assert terminal.ok("hall", "users").startswith("nobody")
    assert "hall: nobody owns it; " in terminal("doctor").out
    add_owner(terminal.places)
    assert "nobody owns it" not in terminal("doctor").out


def test_up_says_why_it_does_not_know_the_owner(terminal: Terminal) -> None:
    (terminal.places.config / "hall.yaml").write_text("database: sqlite:////proc/none/hall.db\n")
    _, why = greeting(terminal.places, is_logged=False)
    assert why.startswith("  whether it has an owner is not known (the database cannot be used now: ")


def test_users_and_rooms_are_listed(terminal: Terminal) -> None:
    assert "nobody; " in terminal.ok("hall", "users")
    assert terminal.ok("hall", "rooms") == "no rooms\n"
    add_owner(terminal.places)
    _, row_of_anna = terminal.ok("hall", "users").splitlines()
    assert row_of_anna.split() == ["anna@example.org", "owner", "0", USER]
    [row] = json.loads(terminal.ok("hall", "users", "--json"))["users"]
    assert (row["email"], row["role"], row["banned_at"], row["created_at"]) == ("anna@example.org", "owner", None, NOW)


def test_an_invitation_is_kept_as_a_digest_alone(terminal: Terminal) -> None:
    code = terminal.ok("hall", "invite").strip().rpartition("/")[2]
    assert len(code) == 32
    kept = b"".join(path.read_bytes() for path in terminal.places.hall.iterdir())
    assert code.encode() not in kept


def test_an_invitation_into_a_room_that_is_not_there_is_refused(terminal: Terminal) -> None:
    said = terminal("hall", "invite", "--room", "throne")
    assert (said.code, "the envoy opens it when it runs with gateway and worker" in said.err) == (1, True)
    assert "no room named 'nowhere'" in terminal("hall", "invite", "--room", "nowhere").err


def test_a_new_password_comes_from_a_pipe_and_ends_all_sessions(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_owner(terminal.places)
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, terminal.places)
    database.run(lambda db: accounts.begin_session(db, new_uuid(), USER, "", time.time(), 60.0))
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    said = terminal("hall", "password", "anna@example.org")
    assert (said.code, "6 to 100 characters" in said.err) == (78, True)
    monkeypatch.setattr("sys.stdin", io.StringIO("a new one\n"))
    assert "anna@example.org has a new password" in terminal.ok("hall", "password", "anna@example.org")
    [row] = database.read(lambda db: db.all("users", now=NOW))
    known = database.read(lambda db: db.one("user_by_email", email=row["email"], spelt=row["email"]))
    database.close()
    assert known is not None
    assert (passwords.fits(known["password_hash"], "a new one"), row["sessions"]) == (True, 0)
    assert "password" in terminal.ok("hall", "audit")


def test_an_order_waits_for_a_worker_that_does_not_run(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.hall.cli.hall_orders.DONE_SECONDS", 0.1)
    add_owner(terminal.places)
    said = terminal("hall", "ban", "anna@example.org")
    assert (said.code, "it is carried out when the worker runs" in said.err) == (4, True)
    [batch] = (terminal.places.topics / "hall.commands.v1").glob("*.jsonl")
    command = json.loads(batch.read_text())["value"]
    assert (command["command"], command["userId"]) == ("ban", USER)
    assert command["by"].endswith(" on the command line")


@pytest.mark.parametrize(
    "words",
    [
        ("keep", "nowhere", "7"),
        ("ban", "nobody"),
        ("remove-message", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("remove-member", "nobody", "x"),
    ],
)
def test_an_order_about_what_is_not_there_is_refused(words: tuple[str, ...], terminal: Terminal) -> None:
    said = terminal("hall", *words)
    assert (said.code, said.err.startswith("kingdom: no ")) == (1, True)


def test_lost_messages_come_back_from_the_topic_under_their_ids_and_removed_ones_stay_blank(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.hall.cli.hall_orders.SILENT_SECONDS", 0.1)
    hall = Hall(terminal.places.home, Clock())
    user = hall.user()
    room, gone = hall.room(user), hall.room(user)
    about = {"taskId": "task-1", "code": "question"}
    messages = [message(room, user, f"message {number}", about=about) for number in range(5)]
    hall.publish(*messages, message(gone, user, "elsewhere"))
    with at_work(hall) as worker:
        work(hall, worker, 6)
        first = hall.history(room)[0]
        give(hall, ordered("removeMessage", roomId=room, messageId=first["id"]))
        wait_until(lambda: (worker.turn(None), len(hall.history(room)) == 6)[1], SOON, "the removal")
    whole = hall.history(room)
    with closing(sqlite3.connect(terminal.places.hall / "hall.db")) as raw, raw:
        raw.execute("DELETE FROM hall_removals")
        raw.execute("DELETE FROM hall_about WHERE message_id <> (SELECT id FROM messages WHERE content = 'message 2')")
        raw.execute("DELETE FROM hall_message_positions")
        raw.execute("DELETE FROM messages WHERE content <> 'message 2'")
        raw.execute("UPDATE rooms SET last_message_id = NULL, last_message_at = NULL")
        raw.execute(f"DELETE FROM room_members WHERE room_id = '{gone}'")
        raw.execute(f"DELETE FROM rooms WHERE id = '{gone}'")
    said = terminal("hall", "rebuild")
    assert said.code == 1
    assert said.out == "5 messages brought back, 1 were there, 1 left out.\n"
    assert "left out: chat.messages.persisted.v1 at 0:5: the database refuses this: FOREIGN KEY" in said.err
    assert hall.history(room) == whole
    known = hall.database.read(lambda db: db.one("room", id=room))
    assert known is not None
    assert (known["last_message_id"], known["last_message_at"]) == (whole[-1]["id"], whole[-1]["created_at"])
    assert terminal("hall", "rebuild").out == "0 messages brought back, 6 were there, 1 left out.\n"
    hall.publish(message(room, user, "and on"))
    with at_work(hall) as worker:
        work(hall, worker, 1)
    assert [row["content"] for row in hall.history(room)][-1] == "and on"
    hall.close()


def test_messages_are_not_brought_back_while_somebody_else_reads_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.hall.cli.hall_orders.HOLD_SECONDS", 0.1)
    hall = Hall(terminal.places.home, Clock())
    other = hall.topics.group(READERS, PERSISTED)
    other.poll(0)
    said = terminal("hall", "rebuild")
    assert (said.code, said.out) == (1, "")
    assert f"{PERSISTED} cannot be read: another `rebuild` may be reading it" in said.err
    hall.close()


def test_a_room_is_exported_with_its_members_and_all_it_holds(terminal: Terminal, tmp_path: Path) -> None:
    hall = Hall(terminal.places.home, Clock())
    user = hall.user()
    room = hall.room(user)
    hall.publish(*(message(room, user, f"왕 {number}") for number in range(1500)))
    with at_work(hall) as worker:
        work(hall, worker, 1500)
    hall.close()
    to = tmp_path / "room.jsonl"
    assert terminal.ok("hall", "export", room, "--to", str(to)) == (
        f"1500 messages of 'a room' and its members are in {to}.\n"
    )
    about, members, *messages = [json.loads(line) for line in to.read_text().splitlines()]
    assert (about["kind"], about["id"]) == ("room", room)
    assert [member["user_id"] for member in members["members"]] == [user]
    assert [line["content"] for line in messages] == [f"왕 {number}" for number in range(1500)]
    assert to.stat().st_mode & 0o777 == 0o600
    assert (
        terminal("hall", "export", room, "--to", str(to)).err == f"kingdom: {to} is there already; name another file\n"
    )
    assert terminal.ok("hall", "export", room.upper()) == to.read_text()


@pytest.mark.parametrize("words", [("--days", "0"), ("--uses", "0"), ("--days", "nan")])
def test_an_invitation_that_is_good_for_nothing_is_refused(words: tuple[str, ...], terminal: Terminal) -> None:
    assert terminal("hall", "invite", *words).code == 2
