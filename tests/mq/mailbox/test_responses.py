"""Answers in their clients' folders: how long they stay, and who may read and write there."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.errors import BadConfig
from tests.mq.mailbox.boxes import ByHand

PUBLISH = {"queue": "q", "message": {"n": 1}}


def test_an_answer_that_nobody_fetches_is_removed_after_five_minutes(box: ByHand) -> None:
    name = box.post("health")
    box.turn()
    path = box.box.responses / "me" / f"{name}.json"
    os.utime(path, (box.now, box.now))
    box.now += 299
    box.turn()
    assert path.exists()
    box.now += 32
    box.turn()
    assert not path.exists()
    os.utime(path.parent, (box.now - 400, box.now - 400))
    box.now += 600
    box.post("health", client="other")
    box.turn()
    box.now += 600
    box.turn()
    assert not path.parent.exists()


@pytest.mark.parametrize("step", [0.0, 3600.0])
def test_very_many_answers_that_nobody_fetched_are_removed_in_parts(
    box: ByHand, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    monkeypatch.setattr("kingdom.mq.mailbox.responses.LOOKED_AT_ONCE", 3)
    for number in range(20):
        name = box.post("health", client=f"c{number % 2}")
        box.turn()
        os.utime(box.box.responses / f"c{number % 2}" / f"{name}.json", (box.now, box.now))

    def left() -> int:
        return len(list(box.box.responses.glob("*/*.json")))

    def dated_anew() -> int:
        return sum(file.stat().st_mtime == box.now + box.step for file in box.box.responses.glob("*/*.json"))

    if step:
        box.step = step
        box.server.serve_arrivals([])
        assert dated_anew() <= 3
        for _ in range(60):
            box.server.serve_arrivals([])
        assert (dated_anew(), left()) == (20, 20)
    box.now += box.settings.config["ipc"]["responseTtlSec"] + 1
    before, turns = left(), 0
    while left():
        box.server.serve_arrivals([])
        assert before - left() <= 3
        assert not left() or box.server.wait_seconds() == 0
        before, turns = left(), turns + 1
    assert turns >= 7
    box.server.serve_arrivals([])
    assert box.said == ["removed 20 old answers"]


def test_answers_damaged_by_a_power_cut_are_removed_at_start(box: ByHand) -> None:
    whole = box.post("health")
    box.turn()
    folder = box.box.responses / "me"
    (folder / "empty.json").touch()
    (folder / "half.json").write_bytes(b'{"requestId":"half","ok":true,"da')
    (folder / "other.json").write_bytes(b'{"requestId":"of-an-older-file","ok":true,"data":{}}')
    (folder / ".drafts").mkdir()
    (folder / "link.json").symlink_to("nowhere")
    box.reopen()
    assert box.names(folder) == [".drafts", "link.json", f"{whole}.json"]


def test_a_client_that_deleted_its_folder_is_still_answered(box: ByHand) -> None:
    box.ask("health")
    for path in (box.box.responses / "me").iterdir():
        path.unlink()
    (box.box.responses / "me").rmdir()
    assert box.ask("health")["ok"]


def test_only_the_owner_may_enter_the_folders(box: ByHand) -> None:
    box.ask("health")
    own = (
        box.box.root,
        box.box.requests,
        box.box.processing,
        box.box.dead,
        box.box.responses,
        box.box.responses / "me",
    )
    assert {stat.S_IMODE(path.stat().st_mode) for path in own} == {0o700}


def test_folders_that_were_there_keep_their_modes(box: ByHand) -> None:
    for path, mode in ((box.box.requests, 0o777), (box.box.responses, 0o755), (box.box.root, 0o755)):
        path.chmod(mode)
    mine = box.box.responses / "worker 1"
    mine.mkdir()
    mine.chmod(0o775)
    box.reopen()
    box.ask("health", client="worker 1")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (box.box.root, box.box.requests, box.box.responses, mine)]
    assert modes == [0o755, 0o777, 0o755, 0o775]


def test_a_mode_that_the_configuration_names_is_set(home: Path) -> None:
    box = ByHand(home, backend="memory")
    box.engine.close()
    box = ByHand(home, backend="memory", ipc={"requestsMode": "1733"})
    assert stat.S_IMODE(box.box.requests.stat().st_mode) == 0o1733
    assert stat.S_IMODE(box.box.root.stat().st_mode) == 0o711, "others can reach it"
    box.engine.close()


def test_a_clients_folder_has_the_mode_that_the_configuration_names(home: Path) -> None:
    box = ByHand(home, backend="memory", ipc={"clients": {"sensor": {"mode": "2770"}}})
    assert stat.S_IMODE((box.box.responses / "sensor").stat().st_mode) == 0o2770
    box.engine.close()


def test_where_other_users_are_clients_no_answer_is_written_into_a_request_that_somebody_may_have_open(
    home: Path,
) -> None:
    box = ByHand(home, backend="memory", ipc={"clients": {"sensor": {"mode": "0700"}}})
    name = box.post("health", client="sensor")
    with (box.box.requests / f"{name}.json").open() as kept:
        before = kept.read()
        for _ in range(2):
            box.ask("status", {"queue": "q"}, client="other")
            box.turn()
        kept.seek(0)
        assert kept.read() == before
    box.engine.close()


@pytest.mark.parametrize(("folder", "answer"), [(0o755, 0o644), (0o750, 0o640), (0o777, 0o644)])
def test_an_answer_is_readable_to_those_who_may_enter_its_folder(box: ByHand, folder: int, answer: int) -> None:
    mine = box.box.responses / "me"
    mine.mkdir()
    mine.chmod(folder)
    for _ in range(3):
        name = box.post("health")
        box.turn()
        assert stat.S_IMODE((mine / f"{name}.json").stat().st_mode) == answer
        (mine / f"{name}.json").unlink()


def test_a_folder_that_its_client_made_stays_when_it_is_silent(box: ByHand) -> None:
    mine = box.box.responses / "me"
    mine.mkdir()
    mine.chmod(0o770)
    box.ask("health")
    for path in mine.iterdir():
        path.unlink()
    os.utime(mine, (box.now - 100_000, box.now - 100_000))
    box.now += 100_000
    box.ask("health", client="other")
    box.now += 700
    box.turn()
    assert stat.S_IMODE(mine.stat().st_mode) == 0o770


def as_root(test: Any) -> Any:
    return pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders to other users")(test)


@as_root
def test_a_client_of_another_user_has_its_own_folder(home: Path) -> None:
    ipc = {"requestsMode": "1733", "clients": {"sensor": {"owner": 65534, "mode": "0700"}}}
    box = ByHand(home, backend="memory", ipc=ipc)
    folder = box.box.responses / "sensor"
    about = folder.stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (65534, 0o700)
    assert stat.S_IMODE(box.box.requests.stat().st_mode) == 0o1733
    assert stat.S_IMODE(box.box.responses.stat().st_mode) == 0o711
    box.engine.close()


@as_root
def test_only_its_user_may_send_requests_for_a_client(home: Path) -> None:
    box = ByHand(home, backend="memory", ipc={"clients": {"sensor": {"owner": 65534}}})
    forged = box.post("publish", PUBLISH, client="sensor")
    box.turn()
    assert box.answer(forged, "sensor") is None
    assert f"{forged}.json.reason" in box.names(box.box.dead)
    own = box.post("publish", PUBLISH, client="sensor")
    os.chown(box.box.requests / f"{own}.json", 65534, -1)
    box.turn()
    answer = box.box.responses / "sensor" / f"{own}.json"
    assert json.loads(answer.read_text())["ok"]
    assert answer.stat().st_uid == 65534
    box.engine.close()


@as_root
def test_an_answer_belongs_to_the_owner_of_a_folder_that_was_there(box: ByHand) -> None:
    theirs = box.box.responses / "소비자 1"
    theirs.mkdir()
    theirs.chmod(0o700)
    os.chown(theirs, 65534, 65534)
    for _ in range(3):
        name = box.post("health", client="소비자 1")
        box.turn()
        about = (theirs / f"{name}.json").stat()
        assert (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) == (65534, 65534, 0o600)
    about = theirs.stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (65534, 0o700)
    box.ask("health")  # and the next one, over a file of ours
    assert (box.box.responses / "me").stat().st_uid == os.geteuid()


@as_root
def test_an_owner_that_does_not_exist_is_a_config_error(home: Path) -> None:
    with pytest.raises(BadConfig, match=r"ipc\.clients\.sensor\.owner"):
        ByHand(home, backend="memory", ipc={"clients": {"sensor": {"owner": "nobody-of-that-name"}}})
