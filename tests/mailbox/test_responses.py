"""Answers in their clients' folders: how long they stay, and who may read and write there."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kingdom.errors import BadConfig
from tests.mailbox.boxes import ByHand

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
    assert answer.stat().st_mode & 0o004
    box.engine.close()


@as_root
def test_an_owner_that_does_not_exist_is_a_config_error(home: Path) -> None:
    with pytest.raises(BadConfig, match=r"ipc\.clients\.sensor\.owner"):
        ByHand(home, backend="memory", ipc={"clients": {"sensor": {"owner": "nobody-of-that-name"}}})
