"""fsck says what the queue's store finds in itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import kingdom.mq
from kingdom.base.home.places import Places
from kingdom.cli.fsck import of_products
from tests.fixtures import founded


@pytest.fixture
def places(home: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A home with three messages in its queue."""
    monkeypatch.setenv("KINGDOM_HOME", str(home))
    places = founded(home)
    with kingdom.mq.open(places.mq) as queues:
        for number in range(3):
            queues.publish("jobs", {"number": number})
    return places


def found(places: Places) -> list[str]:
    return [finding.what for finding in of_products(places, repair=False) if finding.check == "mq"]


def test_a_whole_store_raises_no_alarm(places: Places) -> None:
    assert found(places) == []


def test_a_database_that_is_cut_is_found(places: Places) -> None:
    [path] = places.mq.rglob("*.db")
    path.write_bytes(path.read_bytes()[: 3 * 4096])
    assert found(places)
