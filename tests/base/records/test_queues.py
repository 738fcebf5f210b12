"""The queues: nothing is lost, overwritten or unexplained on its way through them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadInput, IllegalMove, LockLost
from kingdom.base.home.schemas import check
from kingdom.base.home.states import MOVES
from kingdom.base.records.messages import Event
from kingdom.base.records.queues import Queues
from kingdom.base.runtime.role import Services
from tests.fixtures import Clock, event, here, put, read, services


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def king(home: Path, clock: Clock) -> Services:
    return services(home, "king", clock)


@pytest.fixture
def queues(king: Services) -> Queues:
    return king.queues


def an_event(name: str = "evt-1", **fields: object) -> Event:
    return Event.from_json(check("event", event(name, **fields)))


def test_what_is_delivered_waits_and_what_is_there_stays(queues: Queues, home: Path) -> None:
    queues.events.create([an_event("evt-1", payload={"n": 1})])
    queues.events.create([an_event("evt-1", payload={"n": 2}), an_event("evt-2")])
    assert here(home, "events", "pending") == ["evt-1", "evt-2"]
    assert read(home, "events", "pending", "evt-1")["payload"] == {"n": 1}


def test_unknown_fields_are_kept(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event(colour="blue", nested={"왕": [1]}))
    queues.events.update("pending", [replace(queues.events.read("pending", "evt-1"), status="dispatched")])
    kept = read(home, "events", "pending", "evt-1")
    assert (kept["colour"], kept["nested"], kept["status"]) == ("blue", {"왕": [1]}, "dispatched")


def test_a_record_ends_with_what_was_noted_in_it(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event("evt-1"))
    ended = replace(queues.events.read("pending", "evt-1"), status="discarded")
    queues.events.end([ended], "pending", "completed")
    assert here(home, "events", "pending") == []
    assert read(home, "events", "completed", "evt-1")["status"] == "discarded"


def test_a_move_tells_what_did_not_move(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event("evt-1"))
    put(home, "events", "pending", **event("evt-2"))
    put(home, "events", "dispatched", **event("evt-2", payload={"first": True}))
    assert queues.events.move(["evt-1", "evt-2", "evt-3"], "pending", "dispatched") == ["evt-2", "evt-3"]
    assert read(home, "events", "dispatched", "evt-2")["payload"] == {"first": True}


@pytest.mark.parametrize("kind", MOVES)
def test_only_moves_in_the_table_are_made(queues: Queues, kind: str) -> None:
    for src, targets in MOVES[kind].items():
        for dst in set(MOVES[kind]) - targets:
            with pytest.raises(IllegalMove, match=f"{kind} may not go from {src} to {dst}"):
                getattr(queues, kind).move(["x"], src, dst)


def test_some_fields_are_changed_where_the_record_lies(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event(colour="blue"))
    queues.events.change("pending", "evt-1", status="dispatched", task_id="task-1")
    kept = read(home, "events", "pending", "evt-1")
    assert (kept["status"], kept["task_id"], kept["colour"]) == ("dispatched", "task-1", "blue")


def test_what_is_sent_is_not_set_aside(queues: Queues) -> None:
    with pytest.raises(IllegalMove):
        queues.messages.move_to_dead("sent", "msg-1.json", "it is too late")
    assert list(queues.messages.folders["dead"].iterdir()) == []


def test_hidden_names_are_seen_by_nobody(queues: Queues, home: Path) -> None:
    for name in (".draft.json", "evt-1.json.tmp", "evt-1.json"):
        (queues.events.folders["pending"] / name).write_text("{}")
    assert queues.events.file_names("pending") == ["evt-1.json"]


Maker = Callable[[Path], object]
BAD: dict[str, tuple[bytes, Maker, str]] = {
    "half a file": (b"evt-1.json", lambda path: path.write_text('{"id": "evt-1"'), "Expecting"),
    "another one's id": (b"evt-1.json", lambda path: path.write_text(json.dumps(event("evt-2"))), "belongs in evt-2"),
    "a field missing": (b"evt-1.json", lambda path: path.write_text('{"id": "evt-1"}'), "must contain"),
    "a foreign name": (b"README", lambda path: path.write_text("hello"), "does not end in .json"),
    "a name that is no UTF-8": (b"n\xff.json", lambda path: path.write_text("{}"), "not allowed"),
    "a name of two lines": (b"a\nb.json", lambda path: path.write_text("{}"), "not allowed"),
    "a very long name": (b"x" * 250 + b".json", lambda path: path.write_text("{}"), "250 characters"),
    "a folder": (b"evt-1.json", lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (b"evt-1.json", os.mkfifo, "not a regular file"),
    "a link": (b"evt-1.json", lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    "a wandering note": (
        b"evt-1.json",
        lambda path: path.write_text(json.dumps(event(letters={"start": "../../x"}))),
        "letters",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_read_lies_in_dead_with_its_reason(king: Services, queues: Queues, what: str) -> None:
    raw, make, why = BAD[what]
    name = os.fsdecode(raw)
    make(queues.events.folders["pending"] / name)
    assert queues.events.take("pending", name) is None
    assert os.listdir(queues.events.folders["pending"]) == []
    (reason,) = queues.events.folders["dead"].glob("*.reason")
    assert why in read_json(reason)["reason"]
    assert os.path.lexists(str(reason).removesuffix(".reason"))
    king.log.flush()
    assert king.places.events_log.read_text().count('"file.buried"') == 1


def test_the_reason_is_there_before_the_file(home: Path, clock: Clock) -> None:
    king = services(home, "king", clock)
    path = king.queues.events.folders["pending"] / "evt-1.json"
    path.write_text("{")
    rights = iter([True])

    def guard() -> None:
        if not next(rights, False):
            raise LockLost(path=path, role="king")

    king.disk.guard = guard
    with pytest.raises(LockLost):
        king.queues.events.move_to_dead("pending", "evt-1.json", "half a file")
    assert path.exists()
    (reason,) = king.queues.events.folders["dead"].iterdir()
    assert reason.name == "evt-1.json.reason"


def test_two_of_one_name_are_both_kept(queues: Queues, home: Path) -> None:
    for _ in range(3):
        (queues.events.folders["pending"] / "evt-1.json").write_text("{")
        queues.events.take("pending", "evt-1.json")
    dead = queues.events.folders["dead"]
    assert sorted(path.name for path in dead.iterdir() if path.suffix != ".reason") == [
        "evt-1.json",
        "evt-1.json.2",
        "evt-1.json.3",
    ]


@pytest.mark.parametrize(("length", "shown"), [(200, 200), (201, 61)])
def test_a_name_that_is_too_long_is_cut_in_dead(queues: Queues, length: int, shown: int) -> None:
    name = "e" * (length - 5) + ".json"
    (queues.events.folders["pending"] / name).write_text("{")
    queues.events.take("pending", name)
    (reason,) = queues.events.folders["dead"].glob("*.reason")
    assert len(reason.name.removesuffix(".reason")) == shown


def test_readers_that_do_not_own_the_queue_move_nothing_to_dead(queues: Queues, home: Path) -> None:
    (queues.events.folders["pending"] / "evt-1.json").write_text("{")
    assert queues.events.take("pending", "evt-1.json", owner=False) is None
    assert here(home, "events", "pending") == ["evt-1"]
    with pytest.raises(BadInput):
        queues.events.read("pending", "evt-1")
    with pytest.raises(FileNotFoundError):
        queues.events.read("pending", "evt-2")
