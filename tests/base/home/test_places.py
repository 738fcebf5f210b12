"""Names that become paths stay inside the home, and a home that others could write to is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kingdom.base.errors import BadHome, BadName
from kingdom.base.home.places import LONGEST_NAME, Places, as_filename, check_name, find_data, find_home
from kingdom.base.home.states import MOVES
from tests.fixtures import founded

GOOD_NAMES = [
    "evt-github-12345678-2026-02-07T10:00:00Z",
    "evt-jira-QP-123-20260207100000",
    "task-20260207-1000",
    "a",
    "-rf",
    "a..b",
    "gen-pr:daily@home+1",
    "x" * LONGEST_NAME,
]
BAD_NAMES = {
    "": "empty",
    ".": "starts with a dot",
    "..": "starts with a dot",
    ".hidden": "starts with a dot",
    "a/b": "a character that is not allowed",
    "../../etc/passwd": "starts with a dot",
    "a\0b": "a character that is not allowed",
    "a\n": "a character that is not allowed",
    "a b": "a character that is not allowed",
    "$(id)": "a character that is not allowed",
    "왕": "a character that is not allowed",
    "e\u0301": "a character that is not allowed",
    "\uff11": "a character that is not allowed",
    "x" * (LONGEST_NAME + 1): "201 characters",
}


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_good_names_stand_as_they_are(name: str) -> None:
    assert check_name("id", name) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_refused_and_never_mended(name: str) -> None:
    with pytest.raises(BadName, match=BAD_NAMES[name]):
        check_name("id", name)


@pytest.mark.parametrize("name", [None, 17, b"a", ["a"], {"a": 1}])
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(BadName, match="not a text"):
        check_name("id", name)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from("a./\\\0\n %~:-"), st.characters())))
def test_whatever_the_text_no_path_leaves_its_folder(text: str) -> None:
    places = Places(Path("/home"))
    try:
        path = places.queue_file("events", "pending", text)
    except BadName:
        return
    assert path.parent == Path("/home/queue/events/pending")
    assert os.path.normpath(path) == str(path)


def test_names_from_outside_become_file_names_and_different_ones_stay_different() -> None:
    assert as_filename("acme/app") == "acme+2f+app"
    assert as_filename("왕") == "+c655+"
    longest = "x" * 150
    assert as_filename(longest) == longest
    longer = [as_filename(longest + end) for end in ("a", "b")]
    assert longer[0] != longer[1]
    assert all(len(name) <= 150 and name.startswith("xxx") and "/" not in name for name in longer)


def test_every_place_of_a_task_refuses_a_wandering_id() -> None:
    places = Places(Path("/home"))
    for make in (places.result, places.raw_result, places.checkpoint, places.prompt, places.soldier_folder):
        with pytest.raises(BadName):
            make("../king")
    with pytest.raises(BadName):
        places.workspace("gen-pr", "../../config")
    with pytest.raises(BadName):
        places.session_log("../../x", "out")


def test_a_home_has_a_folder_for_every_state(home: Path) -> None:
    places = founded(home)
    for kind, states in MOVES.items():
        assert {path.name for path in (places.queue / kind).iterdir()} == set(states)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KINGDOM_HOME": "/a", "KINGDOM_BASE_DIR": "/b"}, "/a"),
        ({"KINGDOM_BASE_DIR": "/b"}, "/b"),
        ({"KINGDOM_HOME": "", "KINGDOM_BASE_DIR": "/b"}, "/b"),
    ],
)
def test_the_environment_names_the_home(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("KINGDOM_HOME", "KINGDOM_BASE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_home() == Path(expected)


def test_a_home_is_found_from_any_folder_in_it(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in ("KINGDOM_HOME", "KINGDOM_BASE_DIR"):
        monkeypatch.delenv(name, raising=False)
    places = founded(home)
    monkeypatch.chdir(places.workspaces)
    assert find_home() == home


def test_outside_of_every_home_the_checkout_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KINGDOM_HOME", "KINGDOM_BASE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_home() == find_data()


def test_a_home_named_through_a_link_is_the_folder_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("KINGDOM_HOME", str(tmp_path / "link"))
    assert find_home() == tmp_path.resolve() / "real"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to any group")
def test_a_home_is_its_owners_alone(home: Path) -> None:
    places = founded(home)
    places.check()
    home.chmod(0o770)
    os.chown(home, -1, 12345)
    with pytest.raises(BadHome, match=r"its group may write to it; run `chmod g-w` on it"):
        places.check()
    os.chown(home, -1, os.getegid())
    home.chmod(0o707)
    with pytest.raises(BadHome, match=r"everybody may write to it; run `chmod o-w` on it"):
        places.check()


def test_what_is_no_home_is_refused(home: Path) -> None:
    with pytest.raises(BadHome, match=r"does not exist; run `kingdom init` first"):
        Places(home / "nowhere").check()
    (home / "file").touch()
    with pytest.raises(BadHome, match="not a folder"):
        Places(home / "file").check()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_home_is_refused(home: Path) -> None:
    os.chown(home, 12345, -1)
    with pytest.raises(BadHome, match="it belongs to uid 12345, and this is uid 0"):
        Places(home).check()


def test_the_tasks_that_ask_are_known_by_their_checkpoints(home: Path) -> None:
    places = founded(home)
    for path in (places.checkpoint("task-1"), places.result("task-2"), places.results / ".x-checkpoint.json"):
        path.write_text("{}")
    assert places.asking_tasks() == ["task-1"]


def test_a_generals_soldiers_may_read_their_own_mirrors_and_memory_and_nobody_elses(home: Path) -> None:
    places = founded(home)
    for general in ("gen-a", "gen-b"):
        for folder in (places.mirrors(general), places.general_memory(general)):
            folder.mkdir(parents=True)
        for name in ("camp", "homes"):
            (places.own(general) / name).mkdir()
    withheld = set(places.withheld_from("gen-a"))
    assert {
        places.state,
        places.queue,
        places.workspaces,
        places.session_logs,
        places.general_memory("gen-b"),
    } <= withheld
    assert places.general_memory("gen-a") not in withheld
    lent = set(places.lent_to("gen-a"))
    assert {places.mirrors("gen-a"), places.queue / "events", places.resources} <= lent
    assert lent.isdisjoint({places.mirrors("gen-b"), places.topics, places.mailbox, places.mq, places.hall})
