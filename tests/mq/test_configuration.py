"""One form for config/mq.yaml and the older JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.errors import BadConfig
from kingdom.home import config as home_config
from kingdom.home import schemas
from kingdom.home.places import Places
from kingdom.mq import configuration
from kingdom.mq.mailbox_folders import NAMES
from kingdom.mq.stores.base import StoreConfig
from tests.mailbox.boxes import configure


def read(home: Path, **config: Any) -> configuration.Settings:
    configure(home, config)
    return configuration.load(Places(home))


def test_without_a_file_all_is_default(home: Path) -> None:
    found = configuration.load(Places(home))
    assert (found.config["backend"], found.config["durability"]) == ("sqlite", "power")
    assert found.box.requests == home / "queue" / "mailbox" / "requests"
    assert StoreConfig(found.config, found.base).root == home / "queue" / "mq"
    assert (dict(found.queues), found.strict, found.warnings) == ({}, False, ())


def test_the_shipped_file_says_the_defaults(home: Path) -> None:
    shipped, _ = home_config.read_yaml(Path(__file__).parents[2] / "config" / "mq.yaml")
    found, default = read(home, **shipped), read(home)
    assert {**found.config, "queues": {}} == {**default.config, "queues": {}}
    assert (dict(found.queues), found.strict, found.warnings) == ({}, False, ())


def test_names_of_folders_are_those_of_the_schema() -> None:
    ipc = schemas.load("config/mq")["properties"]["ipc"]["properties"]
    assert {key: ipc[key]["default"] for key in NAMES} == NAMES


@pytest.mark.parametrize(
    ("mode", "backend"),
    [
        ("mailbox_sqlite", "sqlite"),
        ("mailbox_fs", "filesystem"),
        ("mailbox_filesystem", "filesystem"),
        ("hybrid", "hybrid"),
    ],
)
def test_mode_wins_over_backend(home: Path, mode: str, backend: str) -> None:
    found = read(home, mode=mode, backend="memory")
    assert found.config["backend"] == backend
    assert "wins over backend memory" in found.warnings[0]
    assert read(home, mode=mode, backend=backend).warnings == ()


def test_fs_means_filesystem(home: Path) -> None:
    assert read(home, backend="fs").config["backend"] == "filesystem"


@pytest.mark.parametrize(
    ("durability", "synchronous", "warned"),
    [
        ("power", "NORMAL", True),
        ("power", "off", True),
        ("power", "FULL", False),
        ("power", "EXTRA", False),
        ("process", "NORMAL", False),
        ("process", "FULL", False),
    ],
)
def test_durability_wins_over_synchronous(home: Path, durability: str, synchronous: str, warned: bool) -> None:
    found = read(home, durability=durability, sqlite={"synchronous": synchronous})
    assert bool(found.warnings) is warned


DEFAULTS = {"visibilityTimeoutSec": 9, "retry": {"limit": 4}}


@pytest.mark.parametrize(
    "queues",
    [
        {"a": {"retry": {"backoff": "fixed"}}},
        {"a": {"policy": {"retry": {"backoff": "fixed"}}}},
        [{"name": "a", "policy": {"retry": {"backoff": "fixed"}}}],
        [{"name": "a", "retry": {"backoff": "fixed"}}],
    ],
)
def test_a_queue_has_a_whole_policy_however_it_is_written(home: Path, queues: Any) -> None:
    policy = read(home, policyDefaults=DEFAULTS, queues=queues).queues["a"]
    assert policy["visibilityTimeoutSec"] == 9
    assert (policy["retry"]["limit"], policy["retry"]["backoff"]) == (4, "fixed")
    assert policy["retry"]["maxDelaySec"] == 60


def test_strict_is_no_queue(home: Path) -> None:
    found = read(home, queues={"strict": True, "a": {}})
    assert (list(found.queues), found.strict) == (["a"], True)


def test_a_lease_time_for_all(home: Path) -> None:
    assert read(home, lease={"visibilityTimeoutSec": 7}, queues={"a": {}}).queues["a"]["visibilityTimeoutSec"] == 7


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"backend": "paper"}, "backend"),
        ({"ipc": {"requestsDir": "../up"}}, "ipc.requestsDir"),
        ({"sqlite": {"kvTable": "kv; DROP TABLE kv"}}, "sqlite.kvTable"),
        ({"colour": "green"}, "colour"),
        ({"queues": {"a": {"retry": {"limit": -1}}}}, "queues"),
        ({"queues": [{"policy": {}}]}, "queues"),
        ({"queues": [{"name": "a"}, {"name": "a"}]}, "queues"),
    ],
)
def test_a_wrong_key_is_named(home: Path, config: dict[str, Any], key: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read(home, **config)
    assert caught.value.facts["key"] == key


@pytest.mark.parametrize("text", ["", "{", "[]", '{"backend": "sqlite", "backend": "hybrid"}', "\ufeff{}"])
def test_a_broken_file_is_refused_in_one_line(home: Path, text: str) -> None:
    file = home / "main_mq_configuration.json"
    file.write_text(text)
    with pytest.raises(BadConfig) as caught:
        configuration.load(Places(home), file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_paths_of_an_older_file_start_at_its_folder(home: Path) -> None:
    file = home / "elsewhere" / "old.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"ipc": {"root": "./ipc"}, "filesystem": {"root": "./data/fs"}}))
    found = configuration.load(Places(home), file)
    assert found.box.root == file.parent / "ipc"
    store = StoreConfig(found.config, found.base)
    assert store.path(store.part("filesystem")["root"], "fs") == file.parent / "data" / "fs"
