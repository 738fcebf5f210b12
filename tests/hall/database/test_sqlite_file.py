"""The file of the database is deleted, replaced and put back while it is open."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from kingdom.hall.database import sqlite
from kingdom.hall.database.base import Database, Lost
from kingdom.hall.database.opening import open_database
from tests.waiting import SOON, wait_until

CONFIG = {"database": "sqlite:///state/hall/hall.db"}


@pytest.fixture(autouse=True)
def _settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SETTLED_SECONDS", 0.2)


def opened(home: Path) -> Database:
    database = open_database(CONFIG, {}, Places(home))
    database.migrate()
    return database


@pytest.fixture
def file(home: Path) -> Path:
    return home / "state/hall/hall.db"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    found = opened(home)
    yield found
    found.close()


def note(database: Database, value: str) -> None:
    database.run(lambda db: db.do("note_fact", name="test", value=value))


def noted(database: Database) -> str:
    row = database.read(lambda db: db.one("fact", name="test"))
    return str(row and row["value"])


def refuses(database: Database, why: str) -> None:
    for use in (lambda: note(database, "lost"), lambda: noted(database), database.check):
        with pytest.raises(Lost, match=why):
            use()
    assert why in database.lost()


def comes_back(database: Database) -> None:
    wait_until(lambda: not database.lost(), SOON, "the database is used again")


def in_a_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_nothing_is_read_or_written_while_the_file_is_gone_and_all_is_there_when_it_is_back(
    database: Database, file: Path
) -> None:
    note(database, "before")
    away = file.rename(file.with_name("away"))
    refuses(database, "is gone")
    assert not file.exists(), "nobody has made an empty one"
    away.rename(file)
    comes_back(database)
    assert noted(database) == "before"
    note(database, "after")
    assert noted(database) == "after"


def test_a_copy_of_the_same_database_is_taken_and_holds_what_the_copy_held(database: Database, file: Path) -> None:
    note(database, "copied")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(file.with_name("copy"))) as copy:
        source.backup(copy)
    note(database, "later")
    in_a_thread(lambda: noted(database))
    os.replace(file.with_name("copy"), file)
    refuses(database, "has just been replaced")
    comes_back(database)
    assert noted(database) == "copied", "the log of the former file is not applied to this one"
    assert database.run(lambda db: db.one("fact", name="database"))


@pytest.mark.parametrize("is_empty", [True, False], ids=["an empty file", "another chat's database"])
def test_another_database_is_refused_until_its_own_is_back(
    is_empty: bool, database: Database, file: Path, tmp_path: Path
) -> None:
    note(database, "ours")
    other = tmp_path / "state/hall/hall.db"
    if is_empty:
        other.parent.mkdir(parents=True)
        other.touch()
    else:
        opened(tmp_path).close()
    away = file.rename(file.with_name("away"))
    shutil.copy(other, file)
    content = file.read_bytes()
    wait_until(lambda: "another database" in database.lost(), SOON, "the other one is noticed")
    refuses(database, "is another database than before")
    assert file.read_bytes() == content
    os.replace(away, file)
    comes_back(database)
    assert noted(database) == "ours"


def test_a_role_that_starts_without_the_file_makes_no_empty_one(database: Database, file: Path, home: Path) -> None:
    note(database, "ours")
    database.close()
    away = file.rename(file.with_name("away"))
    with pytest.raises(Lost, match=r"hall\.db is gone: put the chat's database back, .* delete .*hall\.db\.id"):
        opened(home)
    assert not file.exists()
    away.rename(file)
    again = opened(home)
    assert noted(again) == "ours"
    again.close()
    file.unlink()
    sqlite.mark_of(file).unlink()
    begun = opened(home)
    assert noted(begun) == "None"
    begun.close()
