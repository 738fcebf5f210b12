"""The mailbox as a role: one at a time, its exit codes, reload, polling, TERM."""

import gc
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kingdom.base.home import config as home_config
from kingdom.mq import Refused
from kingdom.mq.mailbox.manager import Manager, collect_young, keep_collections_short
from tests.fixtures import Clock, services
from tests.mq.mailbox.boxes import Running, configure
from tests.waiting import SOON, wait_until


def second(running: Running) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kingdom.mailbox"],
        env=running.environment,
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )


def test_a_second_manager_ends_with_75_and_names_the_first(own_manager: Running) -> None:
    ended = second(own_manager)
    assert ended.returncode == 75
    assert own_manager.process is not None
    assert str(own_manager.process.pid) in ended.stderr


def test_a_manager_of_another_home_does_not_share_the_mailbox(own_manager: Running, home: Path) -> None:
    other = home / "other"
    other.mkdir(mode=0o700)
    configure(other, {"backend": "memory", "ipc": {"root": str(own_manager.root)}})
    running = Running.__new__(Running)
    running.home = other
    ended = second(running)
    assert (ended.returncode, "manager.lock" in ended.stderr) == (75, True)


@pytest.mark.parametrize("lock", ["mailbox/manager.lock", "mq/lock"])
def test_a_manager_whose_lock_was_removed_ends_with_75(own_manager: Running, lock: str) -> None:
    """Somebody else may hold the new one, and would deliver the same messages."""
    (own_manager.home / "queue" / lock).unlink()
    process = own_manager.process
    assert process is not None

    def is_over() -> bool:
        (own_manager.root / "requests" / "wakes-it.json").write_text("{}")
        return process.poll() is not None

    wait_until(is_over, SOON, "the manager ended")
    assert process.returncode == 75


def test_a_configuration_that_is_wrong_ends_it_with_78(home: Path) -> None:
    running = Running.__new__(Running)
    running.home = home
    configure(home, {"backend": "punch cards"})
    ended = second(running)
    assert ended.returncode == 78
    (line,) = ended.stderr.splitlines()
    assert "mq.yaml" in line
    assert "backend" in line


def test_changed_policies_hold_without_a_restart(own_manager: Running) -> None:
    assert own_manager.process is not None
    config = {"backend": "memory", "durability": "process", "queues": {"q": {"visibilityTimeoutSec": 77}}}
    with own_manager.client() as mq:
        mq.publish("q", 1)
        (own_manager.home / "config" / "mq.yaml").write_text("backend: [")
        own_manager.process.send_signal(signal.SIGUSR1)
        log = own_manager.home / "logs" / "mailbox.log"
        wait_until(lambda: "keeps its old configuration" in log.read_text(), SOON, "the broken file is refused")
        (own_manager.home / "config" / "mq.yaml").write_text(json.dumps(config))
        own_manager.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: mq.status("q")["policy"]["visibilityTimeoutSec"] == 77, SOON, "the new policy holds")


def test_without_inotify_polling_does(home: Path) -> None:
    configure(home, {"backend": "memory", "ipc": {"pollIntervalMs": 20}})
    (home / "config" / "system.yaml").write_text("wake: poll\n")
    running = Running(home)
    with running.client() as mq:
        mq.publish("q", 1)
        assert mq.take("q") is not None
    assert running.stop() == 0


def test_on_a_signal_it_ends_with_0_and_waiting_requests_are_kept(home: Path) -> None:
    running = Running(home, backend="filesystem", durability="process")
    with running.client() as mq:
        mq.publish("q", 1)
        mq.purge("q")
        request = {"requestId": "w", "clientId": "me", "command": "consume", "payload": {"queue": "q", "waitMs": 60000}}
        (running.root / "requests" / "w.json.tmp").write_text(json.dumps(request))
        (running.root / "requests" / "w.json.tmp").rename(running.root / "requests" / "w.json")
        wait_until(lambda: (running.root / "processing" / "w.json").exists(), SOON, "the request waits")
        assert running.stop() == 0
        running.start()
        mq.publish("q", 2)
        answer = running.root / "responses" / "me" / "w.json"
        wait_until(answer.exists, SOON, "who waited is served by the next life")
    running.stop()


def test_a_turn_collects_what_is_young_and_nothing_collects_all() -> None:
    collected: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        collected.append(about["generation"])

    before = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        collect_young()
        keep_collections_short()
        short = gc.get_threshold()
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
    assert set(collected) == {1}
    assert short[:2] == before[:2]
    assert short[2] > 1_000_000


def test_only_who_asks_again_at_once_is_waited_for_without_sleep(home: Path) -> None:
    passed = 0.0
    king = services(home, "king", Clock(), mq={"backend": "memory"})
    config = home_config.load(king.places, "mq")
    before = gc.get_threshold()
    manager = Manager(replace(king, name="mailbox", config=config, monotonic=lambda: passed))
    found = {}
    try:
        for pause in (5.0, 0.0005, 0.0015, 0.0009):
            passed += pause
            request = {"requestId": f"{pause}", "clientId": "me", "command": "health", "payload": {}}
            (home / "queue" / "mailbox" / "requests" / f"{pause}.json").write_text(json.dumps(request))
            found[pause] = manager.turn(None).eager > 0
        assert manager.turn(None).eager == 0, "nobody has asked"
    finally:
        manager.close()
        gc.unfreeze()
        gc.set_threshold(*before)
    assert found == {5.0: False, 0.0005: True, 0.0015: False, 0.0009: True}


def test_a_payload_that_a_pattern_takes_for_ever_on_holds_nobody_up(home: Path) -> None:
    """Its manager was ended by its timer, and so was each that came after it, by the same request."""
    schema = {"type": "object", "properties": {"f": {"type": "string", "pattern": "^(a|a)*$"}}}
    running = Running(home, backend="filesystem", queues={"q": {"schema": schema}})
    payload = {"f": "a" * 60 + "!"}
    with running.client() as client:
        with pytest.raises(Refused) as refused:
            client.publish("q", payload)
        assert refused.value.code == "ERR_VALIDATION_FAILED"
        inbox = home / "queue" / "mq" / "fs" / "q" / "inbox"
        (inbox / "by-hand.json").write_text(json.dumps({"payload": payload}))
        (inbox / "text.json").write_text(json.dumps({"payload": "no object"}))
        assert client.take("q", wait=5) is None
        wait_until(lambda: len(client.list_dlq("q")) == 2, SOON, "both are dead letters")
        client.publish("q", {"f": "aaa"})
    assert running.stop() == 0


@pytest.mark.parametrize("watches", [True, False])
def test_requests_are_watched_for_unless_the_configuration_says_to_poll(home: Path, watches: bool) -> None:
    king = services(home, "king", Clock(), mq={"backend": "memory", "ipc": {"useFolderWatcher": watches}})
    before = gc.get_threshold()
    manager = Manager(replace(king, name="mailbox", config=home_config.load(king.places, "mq")))
    try:
        assert manager.folders() == ({home / "queue" / "mailbox" / "requests": ()} if watches else {})
        assert (manager.turn(None).wait < 1) is not watches
    finally:
        manager.close()
        gc.unfreeze()
        gc.set_threshold(*before)
