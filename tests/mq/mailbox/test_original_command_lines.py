"""Command lines of the original system, word for word."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kingdom.mq.cli.yirangmq import cli
from tests.mq.mailbox.boxes import ByHand, Ended, Running, configure

TAKE = ("consume", "--queue", "telemetry", "--consumer-id", "consumer-01")


def words(*given: str, home: Path | None) -> Ended:
    """Without a home the environment names none."""
    environment = {"KINGDOM_HOME": None if home is None else str(home), "KINGDOM_BASE_DIR": None}
    ended = CliRunner().invoke(cli, list(given), env=environment)
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


def key_of(taken: Ended) -> str:
    return str(json.loads(taken.stdout)["lease"]["messageKey"])


@pytest.fixture
def direct(home: Path) -> Path:
    configure(home, {"durability": "process", "policyDefaults": {"retry": {"initialDelaySec": 0}}})
    for _ in range(2):
        published = words("publish", "--direct", "--queue", "telemetry", "--message", '{"temp":36.5}', home=home)
        assert published.returncode == 0
    return home


def test_a_message_is_acknowledged_by_its_key_alone(direct: Path) -> None:
    key = key_of(words(*TAKE, "--timeout", "30", "--direct", home=direct))
    assert words("ack", "--direct", "--message-key", key, home=direct).returncode == 0
    counts = json.loads(words("status", "--direct", "--queue", "telemetry", home=direct).stdout)["metrics"]
    assert (counts["ready"], counts["inflight"]) == (1, 0)


def test_a_message_is_requeued_by_its_key_alone(direct: Path) -> None:
    key = key_of(words(*TAKE, "--direct", home=direct))
    nack = ("nack", "--direct", "--message-key", key, "--reason", "error", "--requeue")
    assert words(*nack, home=direct).returncode == 0
    counts = json.loads(words("status", "--direct", "--queue", "telemetry", home=direct).stdout)["metrics"]
    assert (counts["ready"], counts["inflight"]) == (2, 0)


def test_a_lease_is_extended_by_its_key_alone(direct: Path) -> None:
    key = key_of(words(*TAKE, "--direct", home=direct))
    extended = words("extend", "--direct", "--message-key", key, "--visibility", "600", home=direct)
    assert json.loads(extended.stdout)["leaseUntil"] > (time.time() + 500) * 1000


def in_queue(manager: Running, queue: str) -> str:
    manager.cli("publish", "--queue", queue, "--message", "{}")
    return key_of(manager.cli("consume", "--queue", queue, "--consumer-id", "consumer-01"))


def inflight(manager: Running, queue: str) -> int:
    with manager.client() as client:
        return int(client.status(queue)["metrics"]["inflight"])


@pytest.fixture(scope="module")
def manager_by_key(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("home")
    running = Running(home, backend="memory", durability="process", queues={"easy": {"ackByKey": True}})
    yield running
    running.stop()


@pytest.mark.parametrize("ending", [("ack",), ("nack", "--reason", "error", "--requeue")])
def test_through_the_mailbox_the_policy_must_allow_it(manager_by_key: Running, ending: tuple[str, ...]) -> None:
    key = in_queue(manager_by_key, "easy")
    assert manager_by_key.cli(*ending, "--message-key", key).returncode == 0
    if ending == ("ack",):
        assert manager_by_key.cli(*ending, "--message-key", key).returncode == 0  # again
    assert inflight(manager_by_key, "easy") == 0


@pytest.mark.parametrize("ending", ["ack", "nack"])
def test_else_one_line_says_what_to_give(manager_by_key: Running, ending: str) -> None:
    key = in_queue(manager_by_key, f"strict-{ending}")
    ended = manager_by_key.cli(ending, "--message-key", key)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "ERR_LEASE_MISMATCH" in ended.stderr
    assert "give its leaseId or consumerId, or set `ackByKey`" in ended.stderr
    assert inflight(manager_by_key, f"strict-{ending}") == 1


def test_another_consumer_by_name_is_refused_whatever_the_policy_says(home: Path) -> None:
    box = ByHand(home, backend="memory", queues={"easy": {"ackByKey": True}})
    box.data("publish", {"queue": "easy", "message": {}})
    key = box.data("consume_next", {"queue": "easy", "consumerId": "one"})["lease"]["messageKey"]
    assert box.code("ack", {"messageKey": key, "consumerId": "two"}) == "ERR_LEASE_MISMATCH"
    assert box.data("ack", {"messageKey": key}, client="two") == {}
    box.engine.close()


def test_a_mailbox_in_the_working_directory_is_found_first(
    manager_by_key: Running, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    os.symlink(manager_by_key.root, home / "ipc")
    assert words("health", home=None).returncode == 0


def test_a_home_that_the_environment_names_comes_before_it(
    manager_by_key: Running, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    os.symlink(manager_by_key.root, home / "ipc")
    ended = words("health", home=home / "elsewhere")
    assert (ended.returncode, str(home / "elsewhere") in ended.stderr) == (3, True)


def test_a_folder_that_is_no_mailbox_is_passed_over(
    manager_by_key: Running, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "ipc").mkdir()
    monkeypatch.chdir(home)
    assert manager_by_key.cli("health").returncode == 0
