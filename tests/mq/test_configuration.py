"""One form for config/mq.yaml and the older JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.errors import BadConfig
from kingdom.base.home import config as home_config
from kingdom.base.home import schemas
from kingdom.base.home.places import Places
from kingdom.mq import configuration
from kingdom.mq.mailbox_folders import NAMES
from kingdom.mq.stores.base import StoreConfig
from tests.fixtures import founded
from tests.mq.mailbox.boxes import configure


@pytest.fixture(autouse=True)
def _away_from_a_checkout_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older file's data are looked for in the working directory too, and a checkout may be somebody's home."""
    monkeypatch.chdir(tmp_path)


def read(home: Path, **config: Any) -> configuration.QueueSettings:
    configure(home, config)
    return configuration.load(Places(home))


def test_without_a_file_all_is_default(home: Path) -> None:
    found = configuration.load(Places(home))
    assert (found.config["backend"], found.config["durability"]) == ("sqlite", "power")
    assert found.box.requests == home / "queue" / "mailbox" / "requests"
    assert StoreConfig(found.config, found.base).root == home / "queue" / "mq"
    assert (dict(found.queues), found.strict, found.warnings) == ({}, False, ())


def test_the_shipped_file_says_the_defaults(home: Path) -> None:
    shipped, _ = home_config.read_yaml(Path(__file__).parents[2] / "config" / "default" / "mq.yaml")
    found, default = read(home, **shipped), read(home)
    assert {**found.config, "queues": {}} == {**default.config, "queues": {}}
    assert (dict(found.queues), found.strict, found.warnings) == ({}, False, ())


def test_names_of_folders_are_those_of_the_schema() -> None:
    ipc = schemas.load("config/mq")["properties"]["ipc"]["properties"]
    assert {key: ipc[key]["default"] for key in NAMES} == NAMES


MODES = {"mailbox_sqlite": "sqlite", "mailbox_fs": "filesystem", "mailbox_filesystem": "filesystem", "hybrid": "hybrid"}


@pytest.mark.parametrize("mode", MODES)
def test_backend_decides_and_mode_when_it_is_absent(home: Path, mode: str) -> None:
    found = read(home, mode=mode, backend="memory")
    assert (found.config["backend"], "no effect" in found.warnings[0]) == ("memory", True)
    for alone in (read(home, mode=mode), read(home, mode=mode, backend=MODES[mode])):
        assert (alone.config["backend"], alone.warnings) == (MODES[mode], ())


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
        ({"queues": {"a": {"retry": {"limit": -1}}}}, "queues.a.retry.limit"),
        ({"queues": [{"policy": {}}]}, "queues.0"),
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


@pytest.mark.parametrize(
    ("folders", "start"), [(("config", "queue"), "."), (("config",), "."), (("config/queue",), "config")]
)
def test_paths_of_another_homes_file_start_at_that_home(home: Path, folders: tuple[str, ...], start: str) -> None:
    """Also when the home is new; and where data lie beside the file, they are not left behind."""
    for folder in folders:
        (home / "other" / folder).mkdir(parents=True, exist_ok=True)
    file = home / "other" / "config" / "mq.yaml"
    file.write_text("backend: sqlite\n")
    settings = configuration.load(Places(home), file)
    assert settings.box.root == home / "other" / start / "queue" / "mailbox"


def test_paths_of_an_older_file_start_at_its_folder(home: Path) -> None:
    file = home / "elsewhere" / "old.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"ipc": {"root": "./ipc"}, "filesystem": {"root": "./data/fs"}}))
    found = configuration.load(Places(home), file)
    assert found.box.root == file.parent / "ipc"
    store = StoreConfig(found.config, found.base)
    assert store.path(store.part("filesystem")["root"], "fs") == file.parent / "data" / "fs"


def original(home: Path, **config: Any) -> configuration.QueueSettings:
    file = home / "MainMQ" / "main_mq_configuration.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(config))
    return configuration.load(Places(home), file)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"colour": "green"}, "colour is left out: unknown key"),
        ({"sqlite": {"busyTimeoutMs": -5}}, "sqlite.busyTimeoutMs is left out"),
        ({"policyDefaults": {"retry": {"backoff": "magic"}}}, "policyDefaults.retry.backoff is left out"),
        ({"policyDefaults": {"dlq": {"retentionDays": "many"}}}, "policyDefaults.dlq.retentionDays is left out"),
        ({"queues": [{"policy": {}}, {"name": "a"}]}, "queues.0 is left out"),
        ({"queues": [{"name": "a", "policy": {"retry": {"limit": -1}}}]}, "queues.0.policy.retry.limit is left out"),
        ({"queues": {"a": {"messageSchema": {"rules": 5}}}}, "queues.a.messageSchema.rules is left out"),
        ({"backend": "filesystem", "mode": "sqlite"}, "mode is left out"),
        ({"sqlite": {"journalMode": "MEMORY"}}, "wins over sqlite.journalMode MEMORY"),
        ({"sqlite": {"journalMode": "off"}}, "wins over sqlite.journalMode OFF"),
    ],
)
def test_an_original_file_loads_without_what_does_not_fit(home: Path, wrong: dict[str, Any], said: str) -> None:
    found = original(home, **wrong)
    assert [said in warning for warning in found.warnings] == [True]
    assert found.config["sqlite"]["journalMode"] == "WAL"
    assert found.config["policyDefaults"]["retry"]["limit"] == 5


@pytest.mark.parametrize("wrong", [{"backend": "paper"}, {"sqlite": {"kvTable": "kv; x"}}, {"paths": {"dataRoot": 5}}])
def test_an_original_file_that_names_no_place_is_refused(home: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        original(home, **wrong)


def test_of_two_queues_of_one_name_the_last_holds_in_an_original_file(home: Path) -> None:
    found = original(home, queues=[{"name": "a", "ttlSec": 1}, {"name": "b"}, {"name": "a", "ttlSec": 2}])
    assert ({name: policy["ttlSec"] for name, policy in found.queues.items()}) == {"a": 2, "b": 0}
    assert "twice" in found.warnings[0]


@pytest.mark.parametrize("above", ["MainMQ", ".", "elsewhere"])
def test_paths_of_an_original_file_start_where_its_data_lie(
    home: Path, above: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = (home / above).resolve()
    (base / "data").mkdir(parents=True)
    (base / "data" / "mq.db").touch()
    monkeypatch.chdir(base if above == "elsewhere" else "/")
    found = original(home, paths={"dataRoot": "./data"}, sqlite={"dbPath": "./data/mq.db"}, ipc={"root": "./ipc"})
    assert (found.base, found.box.root) == (base, base / "ipc")
    assert [str(base) in warning for warning in found.warnings] == [True]


def test_an_original_policy_that_says_nothing_of_a_delay_means_none(home: Path) -> None:
    found = original(
        home, policyDefaults={"retry": {"limit": 3}}, queues={"a": {"retry": {"initialDelaySec": 2}}, "b": {}}
    )
    assert [found.queues[name]["retry"]["initialDelaySec"] for name in "ab"] == [2, 0]
    assert read(home).config["policyDefaults"]["retry"]["initialDelaySec"] == 1


def test_flat_keys_of_the_original_are_taken_for_what_they_mean(home: Path) -> None:
    found = read(home, dbPath="x.db", dataRoot="d", ipcRoot="i", visibilityTimeoutSec=7, queues={"a": {}})
    assert (found.config["sqlite"]["dbPath"], found.box.root) == ("x.db", home / "i")
    assert (found.config["paths"]["dataRoot"], found.queues["a"]["visibilityTimeoutSec"]) == (str(home / "d"), 7)


def test_times_say_their_unit_everywhere(home: Path) -> None:
    found = read(
        home,
        archiveDays="12h",
        ipc={"responseTtlSec": "2m", "pollIntervalMs": "0.2s"},
        lease={"visibilityTimeoutSec": "1500ms"},
        policyDefaults={"retry": {"initialDelaySec": "500ms"}},
        queues={
            "q": {"ttlSec": "1h", "dlq": {"retentionDays": "30d"}},
            "r": {"policy": {"visibilityTimeoutSec": "5m"}},
        },
    )
    assert (found.config["archiveDays"], found.config["ipc"]["responseTtlSec"]) == (0.5, 120)
    assert found.config["ipc"]["pollIntervalMs"] == 200
    q, r = found.queues["q"], found.queues["r"]
    assert (q["ttlSec"], q["dlq"]["retentionDays"], q["visibilityTimeoutSec"]) == (3600, 30, 1.5)
    assert (r["visibilityTimeoutSec"], r["retry"]["initialDelaySec"]) == (300, 0.5)


@pytest.mark.parametrize("wrong", ["soon", "30 parsecs", "", "-5s", "0ms", "30"])
def test_what_is_no_time_is_named(home: Path, wrong: str) -> None:
    with pytest.raises(BadConfig, match="visibilityTimeoutSec"):
        read(home, lease={"visibilityTimeoutSec": wrong})


UNKNOWN_TO_THE_QUEUE = {
    "sqlite: {colour: green}": "sqlite.colour (line 1)",
    "backedn: sqlite": "backedn (line 1, did you mean 'backend'?)",
    "ttlSec: 5\ndbPath: x.db": "ttlSec (line 1)",
    "policyDefaults:\n  retry: {limits: 3}": "policyDefaults.retry.limits (line 2, did you mean 'limit'?)",
    "queues:\n  jobs: {ttl: 5}": "queues.jobs.ttl (line 2",
    "queues:\n- name: jobs\n  policy: {ttl: 5}": "queues.0.policy.ttl (line 3",
}


@pytest.mark.parametrize("text", UNKNOWN_TO_THE_QUEUE)
def test_an_unknown_key_of_the_queue_is_named_with_its_place_and_has_no_effect(home: Path, text: str) -> None:
    places = founded(home)
    (places.config / "mq.yaml").write_text(text)
    (remark,) = home_config.remarks(places, "mq")
    assert remark.startswith(f"{home}/config/mq.yaml: ignored unknown keys: {UNKNOWN_TO_THE_QUEUE[text]}")
    (warning,) = configuration.load(places, home / "config" / "mq.yaml").warnings
    assert warning == remark
