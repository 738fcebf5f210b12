"""The form of a home: it is brought up to date step by step, with a copy; a newer one is refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.lock import Lock
from kingdom.base.errors import BadHome
from kingdom.base.home.places import Places
from kingdom.cli.init import furnish
from kingdom.court.upkeep.checks import CHECKS
from kingdom.court.upkeep.fsck import look
from kingdom.court.upkeep.versions import MIGRATIONS, Migration, migrate, version
from tests.fixtures import founded, write

BEFORE = sorted(Path(__file__).with_name("homes_before").glob("*.json"))


def disk(places: Places) -> Disk:
    return Disk(places.scratch("cli"), durability="process")


def note(places: Places) -> Path:
    return places.state / "note.txt"


def _upper(places: Places, disk: Disk) -> None:
    disk.rewrite(note(places), note(places).read_bytes().upper())


def _twice(places: Places, disk: Disk) -> None:
    disk.rewrite(note(places), note(places).read_bytes() * 2)


UPPER = Migration("notes are in capitals", lambda places: [note(places)], _upper)
TWICE = Migration("notes stand twice", lambda places: [note(places)], _twice)


def laid(home: Path, content: dict[str, str]) -> Places:
    for name, text in content.items():
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text.replace("HOME", str(home)))
    for folder in ("queue", "state"):
        (home / folder).chmod(0o700)
    return Places(home)


@pytest.mark.parametrize("before", BEFORE, ids=lambda path: path.stem)
def test_a_home_of_an_earlier_program_is_taken_over_whole(home: Path, before: Path) -> None:
    content = json.loads(before.read_text())
    places = laid(home, content)
    places.config.mkdir(mode=0o700)
    furnish(places)
    assert version(places) == len(MIGRATIONS)
    assert {name: (home / name).read_text() for name in content} == {
        name: text.replace("HOME", str(home)) for name, text in content.items()
    }
    assert [(found.check, str(found.path)) for found in look(places, CHECKS, time.time)] == []


def test_a_new_home_has_the_newest_form(home: Path) -> None:
    furnish(Places(home / "castle"))
    assert version(Places(home / "castle")) == len(MIGRATIONS)


def test_a_home_goes_forward_step_by_step_with_a_copy_of_what_changes(home: Path) -> None:
    places = founded(home)
    note(places).write_text("hello ")
    said = list(migrate(places, disk(places), [UPPER, TWICE]))
    assert note(places).read_text() == "HELLO HELLO "
    assert len(said) == version(places) == 2
    copies = [(places.set_aside / f"form-{form}" / "state" / "note.txt").read_text() for form in (0, 1)]
    assert copies == ["hello ", "HELLO "]
    assert list(migrate(places, disk(places), [UPPER, TWICE])) == []


def test_a_step_that_was_cut_off_is_carried_out_again_and_keeps_the_first_copy(home: Path) -> None:
    places = founded(home)
    note(places).write_text("hello ")

    def cut_off(places: Places, disk: Disk) -> None:
        disk.rewrite(note(places), b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(migrate(places, disk(places), [Migration("", UPPER.changes, cut_off)]))
    assert version(places) == 0
    list(migrate(places, disk(places), [UPPER]))
    assert (places.set_aside / "form-0" / "state" / "note.txt").read_text() == "hello "
    assert version(places) == 1


def test_a_newer_home_is_refused_with_one_sentence_and_left_alone(home: Path) -> None:
    places = Places(home)
    furnish(places)
    write(places.version, {"version": len(MIGRATIONS) + 1})
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    with pytest.raises(BadHome, match="a newer Kingdom has made it"):
        furnish(places)
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()} == before


def test_the_first_form_has_the_number_0(home: Path) -> None:
    places = founded(home)
    write(places.version, {"version": 0})
    assert version(places) == 0


@pytest.mark.parametrize("content", ["{", '{"version": "x"}', '{"version": -1}', "[]"])
def test_a_note_that_cannot_be_read_is_no_old_home(home: Path, content: str) -> None:
    places = founded(home)
    places.version.write_text(content)
    with pytest.raises(BadHome):
        version(places)


def test_nothing_is_changed_under_roles_that_run(home: Path) -> None:
    places = founded(home)
    note(places).write_text("hello")
    lock = Lock(places.lock("king"), "king")
    lock.acquire()
    with pytest.raises(BadHome, match="king works in it"):
        list(migrate(places, disk(places), [UPPER]))
    lock.release()
    assert (note(places).read_text(), os.path.exists(places.version)) == ("hello", False)
