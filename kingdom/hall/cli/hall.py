"""`kingdom hall`: people and rooms of the chat."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from kingdom.base.errors import BadInput, Exit, KingdomError, NoSuchThing, TookTooLong
from kingdom.base.home import config, dotenv
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.call import Finite
from kingdom.base.program.screen import Column, Section, Table
from kingdom.base.words import count, one_line
from kingdom.hall import figures, ports
from kingdom.hall.cli import hall_orders
from kingdom.hall.database import accounts, own_rooms
from kingdom.hall.database.base import Database, Row, Transaction
from kingdom.hall.database.ids import iso
from kingdom.hall.database.opening import open_database
from kingdom.hall.database.rebuild import PersistedEvent, Rebuilt
from kingdom.hall.database.rebuild import rebuild as rebuild_from
from kingdom.hall.topics.names import PERSISTED

T = TypeVar("T")
DAY = 86_400.0
OWNER_DAYS = 1.0
EXPORTED = 1000
"""Messages that an export reads at once."""
MOST_REFUSALS = 20
WITH_IDS = 100
"""Columns of a window that has room for an id beside everything else."""


@click.group(short_help="People and rooms of the chat: users, rooms, invite, ban, export and more.")
def hall() -> None:
    """Look at the chat's users and rooms, invite people, and moderate.

    The hall's worker removes, bans and ends: it has to run.
    """


@hall.command(short_help="List people, and how many sessions each has.")
@click.option("--json", "in_json", is_flag=True, help="Print them as one line of JSON.")
def users(in_json: bool) -> None:
    """List who is registered, and how many sessions each has."""
    found = _ask(lambda db: db.all("users", now=iso(time.time())))
    if in_json:
        print(as_json.line("hall users", {"users": found}))
        return
    columns = (Column("user", shrinks=True), Column("role"), Column("sessions"), Column("id", WITH_IDS))
    rows = [(one_line(row["email"]), _standing(row), str(row["sessions"]), row["id"]) for row in found]
    _print(columns, rows, f"nobody; `{home.command()} hall invite --owner` prints the owner's link")


@hall.command(short_help="List rooms, the most recently active first.")
@click.option("--json", "in_json", is_flag=True, help="Print them as one line of JSON.")
def rooms(in_json: bool) -> None:
    """List the rooms, the most recently active first."""
    found = _ask(lambda db: db.all("rooms"))
    if in_json:
        print(as_json.line("hall rooms", {"rooms": found}))
        return
    columns = (Column("id"), Column("room", shrinks=True), Column("members"), Column("messages"))
    rows = [
        (row["id"], one_line(row["name"], 50), str(row["members"]), str(row["messages"]), row["last_message_at"] or "")
        for row in found
    ]
    _print((*columns, Column("last message", WITH_IDS)), rows, "no rooms")


@hall.command(short_help="Print a link by which somebody can register.")
@click.option("--owner", is_flag=True, help="Whoever comes becomes an owner; the link is good for a day, once.")
@click.option("--days", type=Finite(min=0.01, max=3650), default=7.0, show_default=True, help="How long it is good.")
@click.option("--uses", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many may come by it.")
@click.option("--room", metavar="ROOM", help="They also join the room of this ID; `throne`: all rooms of the kingdom.")
def invite(owner: bool, days: float, uses: int, room: str | None) -> None:
    """Print a link by which somebody can register.

    A program sends the code at the link's end as `invite` to /auth/register, or to /rooms/ROOM/join for somebody who
    is registered.
    """
    places = home.find()
    if owner:
        print(_link(places, _ask(_owner_code)))
        return
    room_id = own_rooms.THRONE_ROOM if room == own_rooms.THRONE else room and room.lower()
    if room_id and _ask(lambda db: db.one("room", id=room_id)) is None:
        hint = f"; `{home.command()} hall rooms` lists them"
        if room == own_rooms.THRONE:
            hint = "; the envoy opens it when it runs with gateway and worker"
        raise NoSuchThing(what="room", name=room, hint=hint)
    gives = accounts.Invitation(accounts.MEMBER, room_id)
    print(_link(places, _ask(lambda db: accounts.new_invite(db, gives, uses, days * DAY, time.time())), room_id))


@hall.command("remove-message", short_help="Blank a message everywhere.")
@click.argument("message")
def remove_message(message: str) -> int:
    """Take the content of a MESSAGE, by its ID, from its room's history and every screen."""
    row = _ask(lambda db: db.one("message_by_id", id=message.upper()))
    if row is None:
        raise NoSuchThing(what="message", name=message, hint="")
    what = f"{row['id']} in {one_line(row['room'], 40)!r} is removed"
    return _order("removeMessage", what, roomId=row["room_id"], messageId=row["id"])


@hall.command("remove-member", short_help="End somebody's membership of a room.")
@click.argument("user")
@click.argument("room")
def remove_member(user: str, room: str) -> int:
    """End the membership of a USER, by email or ID, in a ROOM, by its ID."""
    who = _user(user)
    if _ask(lambda db: db.one("membership", room_id=room.lower(), user_id=who["id"])) is None:
        raise NoSuchThing(what=f"member of {room}", name=user, hint=f"; `{home.command()} hall rooms` lists the rooms")
    return _order("removeMember", f"{who['email']} is out of {room}", roomId=room.lower(), userId=who["id"])


@hall.command(short_help="Say for how many days a room keeps its messages.")
@click.argument("room")
@click.argument("days", type=click.IntRange(0, 36_500))
def keep(room: str, days: int) -> int:
    """Let a ROOM, by its ID, keep its messages for so many DAYS; 0 is for ever. Its newest message always stays.

    Other rooms keep theirs as `keep_days` in hall.yaml says: for ever if it does not.
    """
    about = _ask(lambda db: db.one("room", id=room.lower()))
    if about is None:
        raise NoSuchThing(what="room", name=room, hint=f"; `{home.command()} hall rooms` lists them")
    kept = f"for {count(days, 'day')}" if days else "for ever"
    done = f"{one_line(about['name'], 40)!r} keeps its messages {kept}"
    return _order("keepRoom", done, roomId=about["id"], days=days)


@hall.command(short_help="Keep somebody out, and end all sessions.")
@click.argument("user")
def ban(user: str) -> int:
    """Keep a USER, by email or ID, out of the hall, and end all sessions."""
    who = _user(user)
    return _order("ban", f"{who['email']} is banned", userId=who["id"])


@hall.command(short_help="Let somebody in again.")
@click.argument("user")
def unban(user: str) -> int:
    """Let a USER, by email or ID, in again."""
    who = _user(user)
    return _order("unban", f"{who['email']} may sign in again", userId=who["id"])


@hall.command("end-sessions", short_help="End all sessions of somebody.")
@click.argument("user")
def end_sessions(user: str) -> int:
    """End all sessions of a USER, by email or ID, who may sign in again."""
    who = _user(user)
    return _order("endSessions", f"all sessions of {who['email']} have ended", userId=who["id"])


@hall.command(short_help="Give somebody a new password.")
@click.argument("user")
def password(user: str) -> None:
    """Give a USER, by email or ID, a new password, and end all sessions: it is asked for, or read from standard input.

    Gateways end the sessions within seconds.
    """
    from kingdom.hall.database import passwords  # slow to load, and only this needs it

    who = _user(user)
    new = _new_password()
    if not passwords.LONG_ENOUGH <= len(new) <= passwords.LONGEST or "\0" in new:
        least, most = passwords.LONG_ENOUGH, passwords.LONGEST
        raise BadInput(message=f"a password has {least} to {most} characters; nothing is changed")
    by = f"{home.user()} on the command line"
    _ask(lambda db: accounts.set_password(db, who["id"], passwords.hashed(new), by, time.time()))
    print(f"{who['email']} has a new password, and all sessions have ended.")


def _new_password() -> str:
    """Return what somebody types twice without seeing it, or the first line of a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("New password", hide_input=True, confirmation_prompt="Once more", err=True))


@hall.command(short_help="List who has ordered what, the newest first.")
@click.option("--most", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
def audit(most: int) -> None:
    """List who has removed, banned and ended what, the newest first."""
    rows = _ask(lambda db: [{**row, "target": _named(db, row)} for row in db.all("audits", most=most)])
    columns = (Column("when", WITH_IDS), Column("who", shrinks=True), Column("what"), Column("whom or what"))
    found = [(row["at"], one_line(row["ordered_by"]), row["command"], row["target"]) for row in rows]
    _print(columns, found, "nobody has ordered anything")


def _named(db: Transaction, ordered: Row) -> str:
    """Return the name that people know the target of an order by; its ID when the target is gone."""
    target = str(ordered["target"])
    if ordered["command"] == "removeMessage":
        message = db.one("message_by_id", id=target)
        return target if message is None else f"{target} in {one_line(message['room'], 40)!r}"
    found = db.one("room" if ordered["command"] == "keepRoom" else "user_by_id", id=target)
    return target if found is None else one_line(found.get("email") or repr(one_line(found["name"], 40)))


@hall.command(short_help="Write a room as lines of JSON.")
@click.argument("room")
@click.option("--to", type=click.Path(path_type=Path), metavar="FILE", help="Write a new file instead of printing.")
def export(room: str, to: Path | None) -> None:
    """Write a ROOM, by its ID, as lines of JSON: the room, its members, then its messages from the oldest on."""
    with _database() as database:
        about = database.read(lambda db: db.one("room", id=room.lower()))
        if about is None:
            raise NoSuchThing(what="room", name=room, hint=f"; `{home.command()} hall rooms` lists them")
        lines = _lines_of_room(database, about)
        if to is None:
            for line in lines:
                print(line)
            return
        try:
            with to.open("x", encoding="utf-8") as file:
                written = sum(file.write(f"{line}\n") > 0 for line in lines)
        except FileExistsError:
            raise BadInput(message=f"{to} is there already; name another file") from None
    print(f"{count(written - 2, 'message')} of {one_line(about['name'], 40)!r} and its members are in {to}.")


def _lines_of_room(database: Database, about: Row) -> Iterator[str]:
    """Yield the lines of an export: what is said while it runs is part of it."""
    members = database.read(lambda db: db.all("members", room_id=about["id"]))
    yield json.dumps({"kind": "room", **about}, ensure_ascii=False)
    yield json.dumps({"kind": "members", "members": members}, ensure_ascii=False)
    page = {"room_id": about["id"], "after": "", "most": EXPORTED}
    while rows := database.read(lambda db: db.all("messages_after", **page)):
        for row in rows:
            said_of = row["about"] and json.loads(row["about"])
            yield json.dumps({"kind": "message", **row, "about": said_of}, ensure_ascii=False)
        page["after"] = rows[-1]["id"]


@hall.command(short_help="Bring back messages that the database lost.")
def rebuild() -> int:
    """Bring back messages that the database has lost, from the topic of stored messages, under the same IDs.

    For a database that was restored from a backup. Rooms and people are not in that topic: a message whose room or
    sender is missing is named and left out, exit code 1.
    """
    done = Rebuilt()
    with _database() as database, hall_orders.opened_topics(home.own()) as topics:
        for records in hall_orders.all_records(topics, PERSISTED):
            events = [PersistedEvent(f"{record.topic} at {record.position}", record.value) for record in records]
            done += rebuild_from(database, events)
    for why in done.refused[:MOST_REFUSALS]:
        click.echo(f"left out: {why}", err=True)
    print(f"{count(done.stored, 'message')} brought back, {done.known} were there, {len(done.refused)} left out.")
    return Exit.FAILED if done.refused else Exit.DONE


def _print(columns: Sequence[Column], rows: Sequence[Sequence[str]], nothing: str) -> None:
    screen.show([Section([Table(columns, rows, indent=0)])] if rows else [Section([screen.line(nothing, indent=0)])])


def _user(named: str) -> Row:
    rows = _ask(lambda db: db.all("users", now=iso(time.time())))
    found = next((row for row in rows if named.lower() in (row["id"], row["email"].lower())), None)
    if found is None:
        raise NoSuchThing(what="user", name=named, hint=f"; `{home.command()} hall users` lists them")
    return found


def _order(name: str, done: str, **facts: str | int) -> int:
    """Give an order, print what became of it, and return the exit code."""
    places = home.own()
    with _database() as database:
        if hall_orders.order(places, database, name, **facts):
            print(f"{done}.")
            return Exit.DONE
    hint = "it is carried out when the worker runs; if it does, queue/topics/chat.messages.dead.v1 says why not"
    raise TookTooLong(what="answer of the worker", seconds=hall_orders.DONE_SECONDS, hint=hint)


def _owner_code(db: Transaction) -> str:
    """Return the code of a new link by which somebody becomes an owner."""
    return accounts.new_invite(db, accounts.Invitation(accounts.OWNER), 1, OWNER_DAYS * DAY, time.time())


def greeting(places: Places, *, is_logged: bool) -> Iterator[str]:
    """Yield what `up` says of the hall: where it is, and the owner's link until somebody has taken it.

    What is logged holds no link: whoever reads the log could take it.
    """
    if why := _gateway(places).get("why"):
        yield f"The hall: {one_line(why, 200)}"
        return
    yield f"The hall: {_address(places)}"
    how = f"`{home.command()} hall invite --owner` prints the owner's link"
    try:
        with _database() as database:
            if database.read(accounts.has_owner):
                return
            link = "" if is_logged else _link(places, database.run(_owner_code))
        yield f"  make it yours, within a day: {link}" if link else f"  nobody owns it: {how}"
    except KingdomError as error:
        yield f"  whether it has an owner is not known ({one_line(error, 200)}); {how}"


def _link(places: Places, code: str, room: str | None = None) -> str:
    """Return a link to the page. What follows the # reaches no server, so that no log on the way has the code."""
    return f"{_address(places)}/#/join/{f'{room}/' if room else ''}{code}"


def _address(places: Places) -> str:
    """Return where people reach the gateway: through its proxy, or where it listens, or would."""
    settings, _ = config.for_looking(places, "hall")
    if public := settings["public_url"]:
        return str(public)
    if listens := _gateway(places).get("address"):
        return str(listens)
    host = settings["host"]
    port = settings["port"] or ports.to_try(places, "gateway")[0]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _gateway(places: Places) -> Mapping[str, Any]:
    return next((said for said in figures.gateways(places) if said["role"] == "gateway"), {})


def _ask(work: Callable[[Transaction], T]) -> T:
    with _database() as database:
        return database.run(work)


@contextmanager
def _database() -> Iterator[Database]:
    """Open the chat's database with the tables that this program knows."""
    places = home.own()
    settings = config.load(places, "hall")
    database = open_database(settings, dotenv.secrets(places), places)
    try:
        database.migrate()
        yield database
    finally:
        database.close()


def _standing(row: Row) -> str:
    return f"{row['role']}, banned" if row["banned_at"] else str(row["role"])
