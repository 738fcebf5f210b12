"""A store is one file and one row in STORES, with its block in the schema: here a toy shows it."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.base.home import schemas
from kingdom.mq import Draft, configuration
from kingdom.mq.stores import STORES
from tests.mq import toy_store

ROOT = Path(__file__).resolve().parents[2]


def test_the_schema_offers_the_stores_of_the_table() -> None:
    offered = set(schemas.load("config/mq")["properties"]["backend"]["enum"])
    assert offered == {*STORES, "fs"}


def test_a_new_row_is_opened_through_the_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = copy.deepcopy(schemas.load("config/mq"))
    schema["properties"]["toy"] = toy_store.BLOCK
    monkeypatch.setitem(STORES, "toy", toy_store.ROW)
    for texts in (["first"], ["first", "second"]):
        given = schemas.with_defaults(schema, {"backend": "toy", "toy": {"file": "here/messages.json"}})
        settings = configuration.resolve(given, home, home / "config" / "mq.yaml")
        engine = configuration.open_engine(settings, lambda: 1_770_458_400_000, lambda *_, **__: None)
        engine.publish("q", Draft(texts[-1]))
        engine.commit()
        assert sorted(waiting.payload for waiting in engine.peek("q")) == texts
        engine.close()
    assert (home / "here" / "messages.json").is_file()


def test_a_new_row_is_held_to_the_contract() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mq.toy_store", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "-k", "toy", "tests/mq/test_store_contract.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert " passed" in ended.stdout
