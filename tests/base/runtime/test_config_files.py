"""The files that a role watches for changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from kingdom.base.runtime.config_files import LOOK_SECONDS, ConfigFiles
from tests.fixtures import founded


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


@pytest.mark.parametrize("name", ["config/system.yaml", "config/king.yaml", "config/general.yaml", ".env"])
@pytest.mark.parametrize("what", ["written", "replaced", "removed"])
def test_a_change_of_any_of_its_files_is_seen_once(places: Places, name: str, what: str) -> None:
    path = places.home / name
    path.write_text("a: 1\n")
    files = ConfigFiles(places, "king", "general")
    assert not files.changed(0.0)
    if what == "removed":
        path.unlink()
    elif what == "replaced":
        about = path.stat()
        (places.home / "new").write_text("a: 2\n")
        os.utime(places.home / "new", ns=(about.st_atime_ns, about.st_mtime_ns))
        (places.home / "new").replace(path)
    else:
        os.utime(path, (1, 1))
    assert (files.changed(1.0), files.changed(2.0)) == (True, False)


def test_a_file_of_another_role_is_nobodys_change(places: Places) -> None:
    files = ConfigFiles(places, "king")
    (places.config / "envoy.yaml").write_text("a: 1\n")
    assert not files.changed(1.0)


@pytest.mark.parametrize(
    ("later", "at_once", "seen"),
    [(LOOK_SECONDS - 0.01, False, False), (LOOK_SECONDS, False, True), (0.0, True, True)],
)
def test_it_is_looked_at_four_times_a_second_or_at_once(
    places: Places, later: float, at_once: bool, seen: bool
) -> None:
    files = ConfigFiles(places, "king")
    assert not files.changed(100.0)
    (places.config / "king.yaml").write_text("a: 1\n")
    assert files.changed(100.0 + later, at_once=at_once) is seen
    assert LOOK_SECONDS == 0.25
