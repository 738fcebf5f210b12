"""A take outlives the process, not a power cut: it costs no sync, and what ends it is synced with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("backend", ["sqlite", "hybrid"])
def test_commits_after_a_take_are_synced(open_rig: Callable[..., Rig], backend: str) -> None:
    rig = open_rig(backend, durability="power")
    rig.publish()
    rig.lease()
    (level,) = rig.mq.store._connection.execute("PRAGMA synchronous").fetchone()  # type: ignore[attr-defined]
    assert level == 2
