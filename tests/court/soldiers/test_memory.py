"""What a general remembers: each lesson once, the newest longest, within five kilobytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.home.places import Places
from kingdom.court.soldiers.memory import collect, learn, lend, recall
from tests.fixtures import founded

MOST = 5120


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


def remember(places: Places, *lessons: str, repo: str | None = None, most: int = MOST) -> None:
    learn(Disk(places.scratch("gen-pr"), durability="process"), places, "gen-pr", repo, lessons, most)


def learned(places: Places) -> Path:
    return places.general_memory("gen-pr") / "learned-patterns.md"


def test_a_lesson_is_one_line_and_stands_once(places: Places) -> None:
    remember(places, "tabs are\n four wide", "run the tests first")
    remember(places, "tabs are four wide", "", "  ")
    assert learned(places).read_text() == "- tabs are four wide\n- run the tests first\n"


def disk(places: Places) -> Disk:
    return Disk(places.scratch("gen-pr"), durability="process")


def test_what_a_soldier_adds_to_its_copy_is_taken_over(places: Places) -> None:
    remember(places, "tabs")
    lent = lend(disk(places), places, "gen-pr", MOST)
    assert (lent / "learned-patterns.md").read_text() == "- tabs\n"
    with (lent / "learned-patterns.md").open("a") as file:
        file.write("- spaces\n\n- tabs\n")
    (lent / "new.md").write_text("a whole file\n")
    (lent / ".hidden.md").write_text("nobody reads it\n")
    (lent / "notes.txt").write_text("nobody reads it\n")
    collect(disk(places), places, "gen-pr", MOST)
    own = {path.name: path.read_text() for path in places.general_memory("gen-pr").iterdir()}
    assert own == {"learned-patterns.md": "- tabs\n- spaces\n", "new.md": "a whole file\n"}


def test_only_so_many_files_of_a_copy_are_taken_over(places: Places) -> None:
    lent = lend(disk(places), places, "gen-pr", MOST)
    for number in range(70):
        (lent / f"{number:02d}.md").write_text("a line\n")
    collect(disk(places), places, "gen-pr", MOST)
    own = sorted(path.name for path in places.general_memory("gen-pr").iterdir())
    assert own == [f"{number:02d}.md" for number in range(64)]


def test_the_memory_that_all_share_is_lent_as_a_link(places: Places) -> None:
    (places.memory / "shared" / "all.md").write_text("for all\n")
    for _ in range(2):
        lend(disk(places), places, "gen-pr", MOST)
    assert (places.lent_shared_memory / "all.md").read_text() == "for all\n"


def test_nothing_learned_writes_nothing(places: Places) -> None:
    remember(places)
    assert not learned(places).exists()


def test_the_oldest_go_first(places: Places) -> None:
    for number in range(300):
        remember(places, f"lesson {number:03d} {'왕' * 10}")
    lines = learned(places).read_text().splitlines()
    assert learned(places).stat().st_size <= MOST
    assert lines[-1].startswith("- lesson 299")
    assert [line[9:12] for line in lines] == [f"{number:03d}" for number in range(300 - len(lines), 300)]
    assert len(lines) > 90


def test_an_endless_lesson_does_not_cost_all_the_others(places: Places) -> None:
    remember(places, *(f"lesson {number}" for number in range(50)))
    remember(places, "왕" * 100_000)
    text = learned(places).read_text()
    assert len(text.encode()) <= MOST
    assert "- lesson 49" in text
    assert text.endswith("왕…\n")


def test_what_a_person_wrote_there_stays(places: Places) -> None:
    learned(places).parent.mkdir(parents=True)
    learned(places).write_text("# House rules\n\n- be kind\n")
    remember(places, "run the tests first")
    assert learned(places).read_text().split() == "# House rules - be kind - run the tests first".split()


def test_a_repository_has_a_memory_of_its_own(places: Places) -> None:
    remember(places, "about the shop", repo="acme/shop")
    remember(places, "about the bank", repo="acme/bank")
    (places.memory / "shared" / "all.md").write_text("for everybody\n")
    recalled = recall(places, "gen-pr", "acme/shop")
    assert recalled.startswith("for everybody\n")
    assert "about the shop" in recalled.split("about the bank")[1], "its own file comes last"
    assert recalled.count("about the shop") == 1
    assert "about the shop" in recall(places, "gen-pr", None)
    assert recall(places, "gen-other", None) == "for everybody"


def test_what_other_kingdoms_remember_of_a_repository_is_told_too(places: Places) -> None:
    (places.memory / "repo-acme-shop.md").write_text("- its tests run with make\n")
    assert recall(places, "gen-pr", "acme/shop") == "- its tests run with make"
    assert recall(places, "gen-pr", "acme/bank") == ""
    assert recall(places, "gen-pr", "../acme-shop") == ""


@pytest.mark.parametrize("repo", ["../../../config/king", "/etc/passwd", "a\0b", "x" * 500, "왕/국", "..", ".hidden"])
def test_a_repository_with_an_odd_name_has_its_memory_inside_the_home(places: Places, repo: str) -> None:
    places.scratch("gen-pr").mkdir(parents=True)
    before = sorted(path for path in places.home.rglob("*") if places.memory not in path.parents)
    remember(places, "a lesson", repo=repo)
    assert "a lesson" in recall(places, "gen-pr", repo)
    after = sorted(path for path in places.home.rglob("*") if places.memory not in path.parents)
    assert after == before


MAKERS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe- caf\xe9"),
}


@pytest.mark.parametrize("what", MAKERS)
def test_what_is_no_memory_holds_nobody_up(places: Places, what: str) -> None:
    MAKERS[what](places.memory / "shared" / "odd.md")
    (places.memory / "shared" / "plain.md").write_text("for everybody\n")
    assert recall(places, "gen-pr", None).endswith("for everybody")


def test_two_repositories_with_long_names_keep_their_own_lessons(places: Places) -> None:
    one, other = (f"acme/{'x' * 200}{end}" for end in "ab")
    remember(places, "of one", repo=one)
    remember(places, "of the other", repo=other)
    assert recall(places, "gen-pr", one).splitlines()[-1] == "- of one"
    assert recall(places, "gen-pr", other).splitlines()[-1] == "- of the other"
    assert all(len(path.name) < 200 for path in places.general_memory("gen-pr").iterdir())
