"""One question, one answer: what is open, and whose answer was taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.disk.atomic import Disk
from kingdom.errors import BadName
from kingdom.home.places import Places
from kingdom.records import notes
from tests.fixtures import founded, write

ASKED = "task-20260207-001"


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    write(places.checkpoint(ASKED), {"question": "which?"})
    return places


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
