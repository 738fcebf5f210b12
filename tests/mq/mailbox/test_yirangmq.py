"""yirangmq: options, JSON on stdout, one line on stderr, exit codes 0 1 2 3 4; with a manager and without."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kingdom.base.disk.lock import Lock
from kingdom.cli.main import main
from kingdom.mq.cli.yirangmq import cli
from tests.mq.mailbox.boxes import Ended, Running, configure
from tests.waiting import SOON


def out(ended: Ended) -> Any:
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_commands_of_the_manual(manager: Running, q: str) -> None:
    assert out(manager.cli("health"))["status"] == "ok"
    sent = out(manager.cli("publish", "--queue", q, "--message", '{"temp":36.5}', "--priority", "5"))
    held = out(manager.cli("consume", "--queue", q, "--consumer-id", "consumer-01"))
    assert held["message"]["messageKey"] == sent["messageKey"]
    lease = held["lease"]
    words = ("--message-key", lease["messageKey"], "--lease-id", lease["leaseId"])
    assert out(manager.cli("extend", *words, "--visibility", "90"))["leaseUntil"] > lease["leaseUntil"]
    assert out(manager.cli("nack", *words, "--reason", "error", "--requeue")) == {}
    counts = out(manager.cli("status", "--queue", q))["metrics"]
    assert counts["delayed"] + counts["ready"] == 1
    assert out(manager.cli("metrics"))["requests"]["total"] >= 5


def test_consume_and_ack_need_only_the_key(manager: Running, q: str) -> None:
    manager.cli("publish", "--queue", q, "--message", "x")
    key = out(manager.cli("consume", "--queue", q))["lease"]["messageKey"]
    assert out(manager.cli("ack", "--message-key", key)) == {}
    assert out(manager.cli("consume", "--queue", q)) == {"message": None}


def test_every_option_of_publish(manager: Running, q: str) -> None:
    words = ["--queue", q, "--message", '{"a":1}', "--type", "t", "--trace-id", "tr", "--dedup-key", "k"]
    words += ["--ttl", "60", "--attributes", '{"b":2}', "--target", "only", "--delay", "0", "--priority", "-3"]
    first = out(manager.cli("publish", *words))
    assert out(manager.cli("publish", *words)) == first
    held = out(manager.cli("consume", "--queue", q, "--consumer-id", "only"))["message"]
    assert json.loads(held["attributes"]) == {"b": 2}
    assert held["priority"] == -3


def test_dead_letters_from_the_shell(manager: Running, q: str) -> None:
    manager.cli("publish", "--queue", q, "--message", "x")
    key = out(manager.cli("consume", "--queue", q))["lease"]["messageKey"]
    manager.cli("nack", "--message-key", key, "--reason", 'it\'s "bad"')
    listed = out(manager.cli("list-dlq", "--queue", q, "--limit", "50"))
    assert (listed["count"], listed["messages"][0]["message"]) == (1, 'it\'s "bad"')
    assert out(manager.cli("dlq-stats", "--queue", q))["reasons"] == {"HANDLER_ERROR": 1}
    out(manager.cli("quarantine", "--message-key", key))
    assert out(manager.cli("reprocess", "--queue", q))["count"] == 0
    out(manager.cli("quarantine", "--message-key", key, "--off"))
    assert out(manager.cli("reprocess", "--message-key", key))["reprocessed"] is True


def test_queues_pause_resume_peek_purge(manager: Running, q: str) -> None:
    manager.cli("publish", "--queue", q, "--message", "x")
    assert out(manager.cli("peek", "--queue", q))["messages"][0]["payload"] == "x"
    assert out(manager.cli("peek", "--dlq", "--queue", q))["messages"] == []
    assert manager.cli("move", "--queue", q).returncode == 2
    assert manager.cli("drain", "--queue", q).returncode == 2
    assert out(manager.cli("pause", "--queue", q)) == {}
    assert out(manager.cli("consume", "--queue", q)) == {"message": None}
    assert out(manager.cli("resume", "--queue", q)) == {}
    assert {queue["queue"]: queue["ready"] for queue in out(manager.cli("queues"))["queues"]}[q] == 1
    refused = manager.cli("purge", "--queue", q)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert out(manager.cli("purge", "--queue", q, "--yes"))["purged"] == 1


def test_one_message_per_line(manager: Running, q: str) -> None:
    lines = '{"n": 1}\nplain text\n\n{"n": 3}'
    ended = manager.shell("publish", "--queue", q, "--file", "-", given=lines)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 3
    got = out_lines(manager.cli("consume", "--queue", q, "--limit", "9"))
    payloads = [answer["message"] and answer["message"]["payload"] for answer in got]
    assert payloads == [
        '{"n": 1}',
        "plain text",
        '{"n": 3}',
        None,
    ]


def out_lines(ended: Ended) -> list[Any]:
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_bad_line_is_named_and_stops_no_other(home: Path) -> None:
    running = Running(home, backend="memory", queues={"q": {"schema": {"type": "object"}}})
    ended = running.shell("publish", "--queue", "q", "--file", "-", given='{"n": 1}\n7\n{"n": 3}\n')
    assert ended.returncode == 1
    assert "line 2: ERR_VALIDATION_FAILED" in ended.stderr
    assert len(ended.stdout.splitlines()) == 2
    running.stop()


def kingdom(*words: str) -> int:
    mask = os.umask(0o077)
    try:
        return main(list(words))
    finally:
        os.umask(mask)


def test_kingdom_mq_is_the_same_queue(manager: Running, q: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("KINGDOM_HOME", str(manager.home))
    assert kingdom("mq", "publish", "--queue", q, "--message", "x") == 0
    assert json.loads(capsys.readouterr().out)["messageKey"].startswith(f"msg:{q}:")
    assert out(manager.cli("status", "--queue", q))["metrics"]["ready"] == 1


def test_kingdom_mq_has_the_exit_codes_of_yirangmq(home: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("KINGDOM_HOME", str(home))
    ends = [kingdom("mq", *words) for words in (("peek", "--queue", "q", "--direct"), ("nonsense",), (), ("health",))]
    assert ends == [1, 2, 2, 3]
    said = capsys.readouterr().err
    assert said.startswith("kingdom mq: ERR_QUEUE_NOT_FOUND: ")
    assert "\nUsage: kingdom mq " in said


def test_kingdom_loads_of_the_queue_its_row_alone_before_it_is_asked_for_one(home: Path) -> None:
    code = "import sys; from kingdom.cli.main import main; main(['generals']); print(*sys.modules, file=sys.stderr)"
    environment = {**os.environ, "KINGDOM_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    loaded = done.stderr.split()
    assert "kingdom.cli.generals" in loaded
    assert {name for name in loaded if name.startswith("kingdom.mq")} <= {"kingdom.mq", "kingdom.mq.wing"}


def test_a_refusal_ends_with_1_and_one_line(manager: Running, q: str) -> None:
    ended = manager.cli("peek", "--queue", "nowhere")
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("yirangmq: ERR_QUEUE_NOT_FOUND: ")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("publish",),
        ("publish", "--queue", "q"),
        ("publish", "--queue", "q", "--message", "x", "--file", "-"),
        ("consume",),
        ("ack",),
        ("nonsense",),
        ("consume", "--queue", "q", "--priority", "1"),
        ("status", "--queue", "q", "--timeout", "soon"),
        ("reprocess",),
    ],
)
def test_wrong_usage_ends_with_2(home: Path, words: tuple[str, ...]) -> None:
    from click.testing import CliRunner

    assert CliRunner().invoke(cli, list(words)).exit_code == 2


def test_other_errors_are_one_line_too(manager: Running, q: str) -> None:
    said = manager.shell("publish", "--queue", q, "--message", "a", "--priority", "9" * 20)
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "kingdom.mq.cli.yirangmq", "queues"],
            env=manager.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SOON,
        )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith("yirangmq: No space left on device")


def test_without_a_manager_it_ends_with_3(home: Path) -> None:
    running = Running(home, backend="memory")
    running.stop()
    for words in (("health",), ("publish", "--queue", "q", "--message", "x"), ("health", "--ipc-root", "/nowhere")):
        ended = running.cli(*words, "--timeout", "200")
        assert ended.returncode == 3, ended.stderr
        assert "not running" in ended.stderr
    assert os.listdir(running.root / "requests") == []


def test_without_an_answer_it_ends_with_4(home: Path) -> None:
    running = Running(home, backend="memory")
    running.stop()
    lock = Lock(running.root / "manager.lock", "queue manager")
    lock.acquire()
    ended = running.cli("health", "--timeout", "200")
    lock.release()
    assert ended.returncode == 4
    assert len(ended.stderr.splitlines()) == 1


def test_the_mailbox_may_be_elsewhere(home: Path) -> None:
    running = Running(home, backend="memory")
    assert out(running.cli("health", "--ipc-root", str(running.root)))["status"] == "ok"
    running.stop()


def direct(running: Running, *words: str) -> Ended:
    return running.cli(*words, "--direct")


@pytest.fixture
def stopped(home: Path) -> Running:
    running = Running(home, backend="sqlite", durability="process")
    running.stop()
    return running


def test_direct_access_to_the_store(stopped: Running) -> None:
    sent = out(direct(stopped, "publish", "--queue", "q", "--message", '{"temp":36.5}', "--priority", "5"))
    held = out(direct(stopped, "consume", "--queue", "q", "--consumer-id", "c", "--timeout", "90"))
    assert held["message"]["messageKey"] == sent["messageKey"]
    assert 80_000 < held["lease"]["leaseUntil"] - held["message"]["createdAt"] < 120_000
    assert out(direct(stopped, "status", "--queue", "q"))["metrics"]["inflight"] == 1
    assert out(direct(stopped, "ack", "--message-key", sent["messageKey"], "--consumer-id", "c")) == {}
    assert direct(stopped, "ack", "--message-key", "msg:q:none").returncode == 1
    assert stopped.shell("publish", "--queue", "q", "--file", "-", "--direct", given="a\nb\n").returncode == 0
    assert out(direct(stopped, "purge", "--queue", "q", "--yes"))["purged"] == 2
    assert out(direct(stopped, "health"))["status"] == "ok"
    assert direct(stopped, "metrics").returncode == 2


def test_direct_access_is_refused_while_a_manager_holds_the_store(manager: Running, q: str) -> None:
    ended = direct(manager, "publish", "--queue", q, "--message", "x")
    assert ended.returncode == 1
    assert "holds" in ended.stderr


def test_check_compares_and_needs_the_store_for_itself(stopped: Running) -> None:
    direct(stopped, "publish", "--queue", "q", "--message", "x")
    assert out(stopped.cli("check")) == {"findings": []}
    stopped.start()
    stopped.wait_ready()
    assert stopped.cli("check", "--repair").returncode == 1
    stopped.stop()


def test_an_older_configuration_file_is_accepted_unchanged(home: Path) -> None:
    old = home / "main_mq_configuration.json"
    old.write_text(json.dumps(OLDER))
    configure(home, {})
    running = Running.__new__(Running)
    running.home, running.root = home, home / "ipc"
    running._arguments = ("--config", str(old))
    (home / "ipc" / "requests").mkdir(parents=True, mode=0o700)
    running.start()
    running.wait_ready()
    words = ("--ipc-root", str(home / "ipc"))
    good = '{"deviceId":"a","timestamp":1}'
    assert out(running.cli("publish", "--queue", "telemetry", "--message", good, *words))["messageId"]
    refused = running.cli("publish", "--queue", "telemetry", "--message", '{"timestamp":1}', *words)
    assert "ERR_VALIDATION_FAILED" in refused.stderr
    status = out(running.cli("status", "--queue", "telemetry", "--config", str(old)))
    assert status["policy"]["visibilityTimeoutSec"] == 12
    assert status["policy"]["dlq"]["queue"] == "telemetry-dlq"
    assert (home / "data" / "yirangmq.db").is_file()
    running.stop()
    log = (home / "logs" / "yirangmq.log").read_text()
    assert "backend sqlite decides" in log
    assert "sqlite.schemaPath ./sqlite_schema.sql is not there" in log
    assert "durability power wins over sqlite.synchronous NORMAL" in log


OLDER = {
    "schemaVersion": "0.1",
    "nodeId": "device-01",
    "backend": "sqlite",
    "mode": "mailbox_fs",
    "paths": {"dataRoot": "./data", "logRoot": "./logs"},
    "ipc": {
        "root": "./ipc",
        "requestsDir": "requests",
        "processingDir": "processing",
        "responsesDir": "responses",
        "deadDir": "dead",
        "staleTimeoutMs": 30000,
        "pollIntervalMs": 100,
        "useFolderWatcher": True,
    },
    "sqlite": {
        "dbPath": "./data/yirangmq.db",
        "kvTable": "kv",
        "messageIndexTable": "msg_index",
        "schemaPath": "./sqlite_schema.sql",
        "busyTimeoutMs": 5000,
        "journalMode": "WAL",
        "synchronous": "NORMAL",
    },
    "filesystem": {"root": "./data/fs", "inboxDir": "incoming", "processingDir": "processing", "dlqDir": "dlq"},
    "lease": {"visibilityTimeoutSec": 30, "sweepIntervalMs": 1000},
    "policyDefaults": {
        "visibilityTimeoutSec": 30,
        "retry": {"limit": 5, "backoff": "exponential", "initialDelaySec": 1, "maxDelaySec": 60},
        "dlq": {"enabled": True, "queue": "telemetry-dlq", "retentionDays": 14},
    },
    "queues": [
        {
            "name": "telemetry",
            "policy": {"visibilityTimeoutSec": 12},
            "messageSchema": {
                "name": "TelemetryMessage",
                "description": "what a device says",
                "rules": [
                    {"field": "deviceId", "type": "required"},
                    {"field": "deviceId", "type": "type", "expectedType": "string"},
                    {"field": "timestamp", "type": "type", "expectedType": "number"},
                ],
            },
        }
    ],
}


def test_times_may_say_their_unit(manager: Running, q: str) -> None:
    manager.cli("publish", "--queue", q, "--message", "1", "--ttl", "1h", "--delay", "1ms")
    got = json.loads(manager.cli("consume", "--queue", q, "--wait", "10s", "--visibility", "2h").stdout)
    assert got["lease"]["leaseUntil"] - got["message"]["createdAt"] > 7_000_000
    assert manager.cli("dlq-stats", "--queue", q, "--since", "7d", "--timeout", "30s").returncode == 0
    for wrong in ("soon", "-1s", "30 parsecs"):
        assert manager.cli("consume", "--queue", q, "--visibility", wrong).returncode == 2


def test_the_time_out_of_a_direct_consume_is_a_lease_and_may_say_its_unit(home: Path) -> None:
    env = {"KINGDOM_HOME": str(home)}
    for timeout, ms in (("20", 20_000), ("20s", 20_000), ("1500ms", 1500)):
        CliRunner().invoke(cli, ["publish", "--queue", "q", "--message", "1", "--direct"], env=env)
        ended = CliRunner().invoke(cli, ["consume", "--queue", "q", "--direct", "--timeout", timeout], env=env)
        left = json.loads(ended.stdout)["lease"]["leaseUntil"] - time.time() * 1000
        assert ms - 1500 < left <= ms


@pytest.mark.parametrize("option", [("--older-than", "7d"), ("--archive",)])
def test_purge_refuses_options_that_apply_to_dead_letters_alone(manager: Running, q: str, option: tuple[str]) -> None:
    manager.cli("publish", "--queue", q, "--message", "1")
    ended = manager.cli("purge", "--queue", q, "--yes", *option)
    assert (ended.returncode, "--dlq" in ended.stderr) == (2, True)
    assert json.loads(manager.cli("status", "--queue", q).stdout)["metrics"]["ready"] == 1


def test_a_line_that_is_no_text_is_named_and_not_published(manager: Running, q: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    long = "y" * 600_000
    file.write_bytes(b"a\n\ncaf\xe9\n" + long.encode() + b"\nlast")
    ended = manager.cli("publish", "--queue", q, "--file", str(file))
    assert (ended.returncode, "line 3: not UTF-8 at byte 3" in ended.stderr) == (1, True)
    with manager.client() as mq:
        found = [message["payload"] for message in mq.peek(q)]
    assert found == ["a", long, "last"]
