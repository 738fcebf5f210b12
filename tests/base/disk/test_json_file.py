"""A role's small JSON file is kept across restarts, and corrupt entries are dropped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.json_file import JsonFile, JsonFiles
from kingdom.base.errors import KingdomError
from kingdom.base.runtime.role import Services
from tests.fixtures import Clock, services


@pytest.fixture
def envoy(home: Path) -> Services:
    return services(home, "envoy", Clock())


def opened(envoy: Services) -> JsonFile:
    return JsonFile(path_of(envoy), envoy.disk, envoy.log.error, lambda _name, value: isinstance(value, int))


def path_of(envoy: Services) -> Path:
    return envoy.places.own("envoy") / "counts.json"


def logged(envoy: Services) -> str:
    envoy.log.flush()
    return envoy.places.role_log("envoy").read_text() if envoy.places.role_log("envoy").exists() else ""


def test_what_is_saved_is_there_after_a_restart(envoy: Services) -> None:
    ours = opened(envoy)
    ours.set("a", 1)
    ours.set("b", 2)
    ours.remove("b")
    assert not path_of(envoy).exists(), "written when it is saved"
    ours.save()
    assert (opened(envoy).get("a"), opened(envoy).get("b"), opened(envoy).get("b", 3)) == (1, None, 3)


def test_it_is_written_only_when_it_has_changed(envoy: Services) -> None:
    ours = opened(envoy)
    ours.set("a", 1)
    ours.save()
    before = os.stat(path_of(envoy)).st_ino
    ours.set("a", 1)
    ours.remove("b")
    ours.save()
    assert os.stat(path_of(envoy)).st_ino == before


def test_files_are_saved_together_and_only_those_that_have_changed(envoy: Services) -> None:
    names = ("one", "two", "three")
    paths = [envoy.places.own("envoy") / f"{name}.json" for name in names]
    one, two, three = (JsonFile(path, envoy.disk, envoy.log.error, lambda _name, _value: True) for path in paths)
    two.set("a", 1)
    three.set("b", 2)
    JsonFiles(envoy.disk, one, two, three).save()
    assert [path.exists() for path in paths] == [False, True, True]
    assert [read_json(path) for path in paths[1:]] == [{"a": 1}, {"b": 2}]


def test_only_so_many_of_the_last_are_kept(envoy: Services) -> None:
    ours = opened(envoy)
    for key in ("a", "b", "c", "a", "d"):
        ours.put_last(key, 1, most=3)
    ours.save()
    assert list(opened(envoy)) == ["c", "a", "d"]


def test_what_a_full_disk_did_not_take_is_written_later(envoy: Services) -> None:
    ours = opened(envoy)
    ours.set("a", 1)
    path_of(envoy).mkdir()
    with pytest.raises((OSError, KingdomError)):
        ours.save()
    path_of(envoy).rmdir()
    ours.save()
    assert read_json(path_of(envoy)) == {"a": 1}


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"a": 1', b"\xff"])
def test_a_damaged_file_starts_empty_and_is_reported_once(envoy: Services, damage: bytes) -> None:
    path_of(envoy).write_bytes(damage)
    ours = opened(envoy)
    assert ours.get("a") is None
    ours.save()
    opened(envoy)
    assert logged(envoy).count("starting with an empty file") == 1


@pytest.mark.parametrize("value", ["1", None, [1], {}])
def test_a_corrupt_entry_is_dropped_and_reported_once(envoy: Services, value: Any) -> None:
    ours = JsonFile(path_of(envoy), envoy.disk, envoy.log.error, lambda _name, _value: True)
    ours.set("bad", value)
    ours.set("good", 1)
    ours.save()
    ours = opened(envoy)
    assert (ours.get("bad"), ours.get("good")) == (None, 1)
    ours.save()
    opened(envoy)
    assert logged(envoy).count("dropped corrupt entries: bad") == 1
