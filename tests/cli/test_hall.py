"""`kingdom hall`, and what `up` says of the chat."""

import json

import pytest

from kingdom.cli.hall import greeting
from kingdom.hall import accounts
from kingdom.hall.opening import open_database
from kingdom.home.places import Places
from tests.cli.conftest import Terminal

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
    assert link.startswith("  make it yours, within a day: http://127.0.0.1:7700/join?invite=")
    _, logged = greeting(terminal.places, is_logged=True)
    assert logged == "  nobody owns it: `kingdom hall invite --owner` prints the owner's link".replace(
        "kingdom hall", f"{logged.split('`')[1].rpartition(' hall')[0]} hall"
    )
    assert "invite=" not in logged
    add_owner(terminal.places)
    assert list(greeting(terminal.places, is_logged=False)) == [first]


def test_up_says_why_it_does_not_know_the_owner(terminal: Terminal) -> None:
    (terminal.places.config / "hall.yaml").write_text("database: sqlite:////proc/none/hall.db\n")
    _, why = greeting(terminal.places, is_logged=False)
    assert why.startswith("  whether it has an owner is not known (the database cannot be used now: ")


def test_users_and_rooms_are_listed(terminal: Terminal) -> None:
    assert "nobody; " in terminal.ok("hall", "users")
    assert terminal.ok("hall", "rooms") == "no rooms\n"
    add_owner(terminal.places)
    assert terminal.ok("hall", "users") == f"anna@example.org  owner  0 sessions  {USER}\n"
    [row] = json.loads(terminal.ok("hall", "users", "--json"))["users"]
    assert (row["email"], row["role"], row["banned_at"], row["created_at"]) == ("anna@example.org", "owner", None, NOW)


def test_an_invitation_is_kept_as_a_digest_alone(terminal: Terminal) -> None:
    code = terminal.ok("hall", "invite").strip().rpartition("=")[2]
    assert len(code) == 32
    kept = b"".join(path.read_bytes() for path in terminal.places.hall.iterdir())
    assert code.encode() not in kept


def test_an_invitation_into_a_room_that_is_not_there_is_refused(terminal: Terminal) -> None:
    said = terminal("hall", "invite", "--room", "throne")
    assert (said.code, "the envoy opens it when it runs with gateway and worker" in said.err) == (1, True)
    assert "no room named 'nowhere'" in terminal("hall", "invite", "--room", "nowhere").err


def test_an_order_waits_for_a_worker_that_does_not_run(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.cli.hall_orders.DONE_SECONDS", 0.1)
    add_owner(terminal.places)
    said = terminal("hall", "ban", "anna@example.org")
    assert (said.code, "it is carried out when the worker runs" in said.err) == (4, True)
    [batch] = (terminal.places.topics / "hall.commands.v1").glob("*.jsonl")
    command = json.loads(batch.read_text())["value"]
    assert (command["command"], command["userId"]) == ("ban", USER)
    assert command["by"].endswith(" on the command line")


@pytest.mark.parametrize(
    "words", [("ban", "nobody"), ("remove-message", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), ("remove-member", "nobody", "x")]
)
def test_an_order_about_what_is_not_there_is_refused(words: tuple[str, ...], terminal: Terminal) -> None:
    said = terminal("hall", *words)
    assert (said.code, said.err.startswith("kingdom: no ")) == (1, True)


@pytest.mark.parametrize("words", [("--days", "0"), ("--uses", "0"), ("--days", "nan")])
def test_an_invitation_that_is_good_for_nothing_is_refused(words: tuple[str, ...], terminal: Terminal) -> None:
    assert terminal("hall", "invite", *words).code == 2
