"""One question, one answer: what is open, and whose answer was taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.errors import BadName
from kingdom.base.home.places import Places
from kingdom.base.records import notes
from tests.fixtures import founded, write

ASKED = "task-20260207-001"


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    write(places.checkpoint(ASKED), {"question": "which?"})
    return places


@pytest.fixture
def disk(places: Places) -> Disk:
    places.scratch("king").mkdir(parents=True, exist_ok=True)
    return Disk(places.scratch("king"), durability="process")


def answered(places: Places, event: str) -> None:
    notes.note_answer(places, Disk(places.scratch("king"), durability="process"), ASKED, event)


def test_a_question_is_open_from_its_checkpoint_to_its_answer(places: Places) -> None:
    assert notes.asks(places, ASKED)
    assert not notes.asks(places, "task-20260207-002")
    assert (notes.open_questions(places), notes.answered_by(places, ASKED)) == ([ASKED], None)
    places.scratch("king").mkdir(parents=True)
    answered(places, "evt-1")
    assert not notes.asks(places, ASKED)
    assert (notes.open_questions(places), notes.answered_by(places, ASKED)) == ([], "evt-1")


def test_who_has_asked_is_known_by_a_question_and_by_no_other_name(places: Places) -> None:
    assert [notes.has_asked(places, task) for task in (ASKED, "task-20260207-002", "../x")] == [True, False, False]


def test_the_first_answer_stands(places: Places) -> None:
    places.scratch("king").mkdir(parents=True)
    answered(places, "evt-1")
    answered(places, "evt-2")
    assert notes.answered_by(places, ASKED) == "evt-1"


@pytest.mark.parametrize("note", ["", "{half", "[]", "{}"])
def test_a_damaged_note_is_an_answer_too(places: Places, note: str) -> None:
    places.answered(ASKED).parent.mkdir(parents=True)
    places.answered(ASKED).write_text(note)
    assert notes.answered_by(places, ASKED) == ""
    assert not notes.asks(places, ASKED)


def test_other_files_are_no_questions(places: Places) -> None:
    for name in (f".{ASKED}-checkpoint.json", "-checkpoint.json", f"{ASKED}.json", f"{ASKED}-raw.json"):
        (places.results / name).write_text("{}")
    (places.results / "왕-checkpoint.json").write_text("{}")
    assert notes.open_questions(places) == [ASKED]


def test_what_is_no_name_asks_nothing(places: Places) -> None:
    assert notes.answered_by(places, "../../x") is None
    with pytest.raises(BadName):
        notes.asks(places, "../../x")


def test_whoever_cancels_is_remembered_until_it_is_over(places: Places, disk: Disk) -> None:
    assert notes.cancelled_by(places, ASKED) is None
    notes.note_cancelled(places, disk, ASKED, "kim")
    assert notes.cancelled_by(places, ASKED) == "kim"
    notes.forget_cancelled(places, disk, ASKED)
    notes.forget_cancelled(places, disk, ASKED)
    assert notes.cancelled_by(places, ASKED) is None


def test_a_soldier_that_down_has_ended_is_known_from_the_next_one(places: Places, disk: Disk) -> None:
    notes.forget_stopped_by_down(places, disk)
    control = places.control_folder("gen-pr", ASKED)
    control.mkdir(parents=True)
    assert not notes.was_stopped_by_down(places, control), "none was started"
    write(control / "started", {"pid": 5, "start": 1})
    notes.note_stopped_by_down(places, disk, control)
    assert notes.was_stopped_by_down(places, control)
    write(control / "started", {"pid": 6, "start": 9})
    assert not notes.was_stopped_by_down(places, control)
    notes.forget_stopped_by_down(places, disk)
    assert not places.stopped_by_down(ASKED).exists()


def test_soldier_and_session_of_a_task_stand_beside_its_result(places: Places, disk: Disk) -> None:
    notes.note_soldier(places, disk, ASKED, "soldier-1")
    assert places.soldier_id(ASKED).read_text() == "soldier-1\n"
    notes.note_session_id(places, disk, ASKED, "s-1")
    assert notes.session_id(places, ASKED) == "s-1"


@pytest.mark.parametrize(("line", "read"), [("", None), ("s-1\nmore", None), ("x" * 5000, None), (" s-1 \n", "s-1")])
def test_a_session_is_one_line(places: Places, line: str, read: str | None) -> None:
    places.session_id(ASKED).write_text(line)
    assert notes.session_id(places, ASKED) == read
