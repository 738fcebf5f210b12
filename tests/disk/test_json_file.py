"""A role's small book: kept across lives, and no damage ends its reader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kingdom.disk.codec import read_json
from kingdom.disk.json_file import JsonFile
from kingdom.errors import KingdomError
from kingdom.runtime.role import Services
from tests.fixtures import Clock, services


@pytest.fixture
def envoy(home: Path) -> Services:
    return services(home, "envoy", Clock())


def book(envoy: Services) -> JsonFile:
    return JsonFile(path_of(envoy), envoy.disk, envoy.log.error, lambda _name, page: isinstance(page, int))


def path_of(envoy: Services) -> Path:
    return envoy.places.own("envoy") / "book.json"


def told(envoy: Services) -> str:
    envoy.log.flush()
    return envoy.places.role_log("envoy").read_text() if envoy.places.role_log("envoy").exists() else ""


def test_what_is_saved_is_there_in_the_next_life(envoy: Services) -> None:
    ours = book(envoy)
    ours.set("a", 1)
    ours.set("b", 2)
    ours.remove("b")
    assert not path_of(envoy).exists(), "written when it is saved"
    ours.save()
    assert (book(envoy).get("a"), book(envoy).get("b"), book(envoy).get("b", 3)) == (1, None, 3)


def test_it_is_written_only_when_it_has_changed(envoy: Services) -> None:
    ours = book(envoy)
    ours.set("a", 1)
    ours.save()
    before = os.stat(path_of(envoy)).st_ino
    ours.set("a", 1)
    ours.remove("b")
    ours.save()
    assert os.stat(path_of(envoy)).st_ino == before


def test_what_a_full_disk_did_not_take_is_written_later(envoy: Services) -> None:
    ours = book(envoy)
    ours.set("a", 1)
    path_of(envoy).mkdir()
    with pytest.raises((OSError, KingdomError)):
        ours.save()
    path_of(envoy).rmdir()
    ours.save()
    assert read_json(path_of(envoy)) == {"a": 1}


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"a": 1', b"\xff"])
def test_a_damaged_book_starts_anew_and_says_so_once(envoy: Services, damage: bytes) -> None:
    path_of(envoy).write_bytes(damage)
    ours = book(envoy)
    assert ours.get("a") is None
    ours.save()
    book(envoy)
    assert told(envoy).count("it starts anew") == 1


@pytest.mark.parametrize("page", ["1", None, [1], {}])
def test_a_damaged_page_costs_that_page_and_is_told_once(envoy: Services, page: Any) -> None:
    ours = JsonFile(path_of(envoy), envoy.disk, envoy.log.error, lambda _name, _page: True)
    ours.set("bad", page)
    ours.set("good", 1)
    ours.save()
    ours = book(envoy)
    assert (ours.get("bad"), ours.get("good")) == (None, 1)
    ours.save()
    book(envoy)
    assert told(envoy).count("left out what is damaged: bad") == 1
