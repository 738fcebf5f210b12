"""A backup holds each message of the council once, also while it moves on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from kingdom.council import copies
from kingdom.court.upkeep import backup
from tests.court.upkeep.test_backup import NOW, healthy, made, restored, write_text


def test_a_message_of_the_council_that_is_told_while_the_home_is_copied_is_there_once(
    home: Path, tmp_path: Path
) -> None:
    places, copy = healthy(home, NOW - 60), Places(tmp_path / "copy")
    waits = write_text(places.agent("leader") / "goal_1.mime", "goal")
    told = places.told("leader") / waits.name
    told.parent.mkdir()
    steps = copies.messages(places)
    for path in steps:
        backup._copy(path, copy.home / path.relative_to(home))
        if path == waits:
            waits.rename(told)
    copies.COPIES.settle(places, copy)
    assert [path.relative_to(copy.home) for path in copy.home.rglob("*.mime")] == [told.relative_to(home)]


def test_a_backup_holds_a_message_of_the_council_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, listed = healthy(home, NOW - 60), copies.messages
    waits = write_text(places.agent("leader") / "goal_1.mime", "goal")
    places.told("leader").mkdir()

    def while_it_is_told(at: Places) -> Iterator[Path]:
        for path in listed(at):
            yield path
            if path == waits:
                waits.rename(at.told("leader") / waits.name)

    monkeypatch.setattr(copies, "COPIES", copies.COPIES._replace(then=while_it_is_told))
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    assert list(again.council.rglob("*.mime")) == [again.told("leader") / waits.name]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_what_an_agent_sends_is_in_the_copy_once_though_it_is_sent_on_meanwhile(
    moved: int, home: Path, tmp_path: Path
) -> None:
    places = healthy(home, NOW - 60)
    copy = Places(tmp_path / "copy")
    way = [places.outbox("leader"), places.postings / "architect", places.agent("architect"), places.told("architect")]
    for folder in way:
        folder.mkdir(parents=True)
    at = way[moved] / "a_1770000000000001.mime"
    write_text(at, "a")
    steps = copies.messages(places)
    for path in steps:
        backup._copy(path, copy.home / path.relative_to(home))
        if path == at:
            later = way[moved + 1] / at.name
            at.rename(later)
    copies.COPIES.settle(places, copy)
    assert [path.relative_to(copy.home) for path in copy.home.rglob("*.mime")] == [later.relative_to(home)]


def test_messages_of_the_council_come_back_and_turns_of_its_agents_do_not(home: Path, tmp_path: Path) -> None:
    places = healthy(home, NOW - 60)
    kept = [places.agent("leader") / "a_1.mime", places.told("leader") / "b_1.mime", places.dead_letters / "c_1.mime"]
    kept += [places.dead_letters / "d_1.original", places.council / "notes.txt", places.council_threads / "t.jsonl"]
    for path in kept:
        write_text(path, path.name)
    write_text(places.dead_letters / "d_1.mime", "d")
    write_text(places.agent_turn("leader") / "told.json", "{}")
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    assert [(again.home / path.relative_to(home)).read_text() for path in kept] == [path.name for path in kept]
    assert not again.agent_turns.exists()
