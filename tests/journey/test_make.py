"""The commands of the README in one checkout that is used, in any order, and homes of any name."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from tests.faults import trees
from tests.journey.test_checkout import OURS, cloned, run, set_up

LOOKS_AT_WHAT_SHIPS = (
    "tests/cli/test_foreground.py::test_it_says_when_every_role_works_and_stops_them_all_when_it_is_asked_to_end",
    "tests/cli/test_generals.py::test_a_package_may_be_named_and_the_list_shows_what_could_be_installed",
    "tests/cli/test_shipped.py",
    "tests/test_generals.py",
)
"""What `make test` has that a home in the checkout, its ports or its owner's packages could disturb."""
ORDERS = [("up", "test", "say", "status", "down")]
MORE = ("up", "demo", "test", "say", "status", "down")

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """A checkout of this tree, set up, with a general of its owner's."""
    folder = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    try:
        kingdom = set_up(cloned(folder / "checkout"))
        run(kingdom, "init", ".", cwd=folder / "checkout")
        run(kingdom, "generals", "new", "weather", cwd=folder / "checkout")
        run(kingdom, "generals", "install", "weather", cwd=folder / "checkout")
        yield folder / "checkout"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def drawn(seed: int) -> tuple[str, ...]:
    order = [*MORE, *random.Random(seed).sample(MORE, 3)]
    random.Random(seed).shuffle(order)
    return tuple(order)


@pytest.mark.parametrize("order", [*ORDERS, *(map(drawn, range(4)) if trees.CAMPAIGN else ())], ids=",".join)
def test_the_commands_of_the_readme_do_not_disturb_each_other(order: Sequence[str], checkout: Path) -> None:
    commands: dict[str, tuple[str | Path, ...]] = {
        **{target: ("make", target) for target in ("up", "demo", "down")},
        "test": (checkout / ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *LOOKS_AT_WHAT_SHIPS),
        "say": (checkout / ".venv/bin/kingdom", "say", "brief me"),
        "status": (checkout / ".venv/bin/kingdom", "status"),
    }
    down = {"say": 3, "status": 1}
    is_up = False
    try:
        for command in order:
            is_up = command == "up" or (is_up and command != "down")
            run(*commands[command], cwd=checkout, code=0 if is_up else down.get(command, 0))
    finally:
        run("make", "down", cwd=checkout)


FOLDERS = [
    "with blank",
    "  many   blanks ",
    "성 안",
    'it\'s "mine"',
    "a$b ${HOME} $(c) $$",
    "back\\slash",
    "~",
    "#1;ls&",
]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("target", ["status", "down", "logs", "attach"])
def test_every_target_finds_the_home_that_was_typed(target: str, folder: str, checkout: Path, tmp_path: Path) -> None:
    """It is none, and is named."""
    assert f"{tmp_path}/{folder}" in told(checkout, target, f"{tmp_path}/{folder}")


TYPED = {"~/my castle": "{home}/my castle", "my castle": "{checkout}/my castle"}


@pytest.mark.parametrize("typed", TYPED)
def test_a_home_is_typed_from_the_users_folder_or_from_here(typed: str, checkout: Path) -> None:
    assert TYPED[typed].format(home="/nowhere", checkout=checkout.resolve()) in told(checkout, "status", typed)


def told(checkout: Path, target: str, folder: str) -> str:
    words = ["make", target, f"HOME_DIR={folder}", "ROLE=king"]
    done = subprocess.run(words, cwd=checkout, env=OURS | {"HOME": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_a_home_with_an_odd_name_comes_up_where_it_was_typed(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my 'castle' $HOME 성"
    before = sorted(os.listdir(tmp_path))
    Places(folder).config.mkdir(parents=True)
    Places(folder).queue.mkdir()
    (Places(folder).config / "system.yaml").write_text("roles: {gateway: false, worker: false}\n")
    try:
        assert f"The kingdom is up in {folder}, " in run("make", "up", f"HOME_DIR={folder}", cwd=checkout)
        assert str(folder) in run("make", "status", f"HOME_DIR={folder}", cwd=checkout)
    finally:
        assert "Stopped " in run("make", "down", f"HOME_DIR={folder}", cwd=checkout)
    assert sorted(os.listdir(tmp_path)) == [*before, folder.name]
