"""A take outlives the process, not a power cut: it costs no sync, and what ends it is synced with it."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.mq.errors import StoreError
from kingdom.mq.message_format import Draft
from tests.mq.rigs import QUEUE, Rig
from tests.syncs import Steps, noted

ON_DISK = ("filesystem", "sqlite", "hybrid")


@pytest.fixture
def files(open_rig: Callable[..., Rig], home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, Steps]:
    rig = open_rig("filesystem", durability="power")
    rig.publish()
    return rig, noted(monkeypatch, Path(rig.folder, "fs", QUEUE))


@pytest.mark.parametrize("backend", ON_DISK)
def test_a_take_survives_a_killed_manager(open_rig: Callable[..., Rig], backend: str) -> None:
    rig = open_rig(backend, durability="power")
    key = rig.publish()
    leased = rig.lease()
    rig.reopen(kill=True)
    assert rig.counts() == (0, 1, 0, 0)
    rig.mq.ack(key, leased.lease_id)
    rig.mq.commit()
    rig.reopen(kill=True)
    assert rig.counts() == (0, 0, 0, 0)


def test_a_take_is_not_synced(files: tuple[Rig, Steps]) -> None:
    rig, steps = files
    assert rig.lease() is not None
    assert steps.take() == []


def test_an_ack_syncs_also_the_folder_that_its_message_came_from(files: tuple[Rig, Steps]) -> None:
    rig, steps = files
    rig.ack(rig.lease())
    assert steps.take() == ["sync inbox, processing"]


def test_so_does_an_ack_after_a_kill(files: tuple[Rig, Steps]) -> None:
    rig, steps = files
    leased = rig.lease()
    rig.reopen(kill=True)
    steps.take()
    rig.ack(leased)
    assert {"inbox", "processing"} <= {name for step in steps.take() for name in step.split(" ", 1)[1].split(", ")}


def test_a_message_that_is_published_and_taken_in_one_group_is_synced(files: tuple[Rig, Steps]) -> None:
    rig, steps = files
    rig.ack(rig.lease())
    steps.take()
    rig.mq.publish(QUEUE, Draft("{}"))
    assert rig.mq.lease(QUEUE, "c")
    rig.mq.commit()
    assert any(step.startswith("sync") and "processing" in step for step in steps.take())
    assert len(os.listdir(Path(rig.folder, "fs", QUEUE, "processing"))) == 1


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file is synced, by the end of its name."""
    found: Counter[str] = Counter()
    sync = os.fdatasync

    def fdatasync(fd: int) -> None:
        found[os.readlink(f"/proc/self/fd/{fd}").rpartition("-")[2]] += 1
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return found


@pytest.mark.parametrize("backend", ["sqlite", "hybrid"])
def test_a_database_is_synced_for_everything_but_a_take(
    open_rig: Callable[..., Rig], backend: str, syncs: Counter[str]
) -> None:
    rig = open_rig(backend, durability="power")
    rig.publish()
    before = syncs["wal"]
    leased = rig.lease()
    assert syncs["wal"] == before
    rig.ack(leased)
    assert syncs["wal"] == before + 1
    rig.mq.queues.pause(QUEUE)
    assert syncs["wal"] == before + 2


def test_a_commit_rarely_makes_the_log_longer(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite", durability="power")
    log = Path(rig.folder, "yirangmq.db-wal")
    sizes = set()
    for _ in range(60):
        rig.publish()
        sizes.add(log.stat().st_size)
    assert len(sizes) < 12
    rig.reopen(kill=True)
    assert rig.counts() == (60, 0, 0, 0)


def test_what_a_failed_sync_left_does_not_hide_what_comes_later(
    open_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of a page that it could not write once, and calls it clean from then on."""
    rig = open_rig("sqlite", durability="power")
    rig.publish()
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreError, match="commit"):
            rig.publish()
    assert Path(rig.folder, "yirangmq.db-wal").stat().st_size == 0
    rig.publish()
    assert rig.counts()[0] in (2, 3)


def fails(fd: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
