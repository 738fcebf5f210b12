"""What people at a terminal get from yirangmq: tables, a watch, dead letters put back at a rate, and refusals."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kingdom import __version__
from kingdom.base.errors import BadInput
from kingdom.mq.cli import yirangmq_tables as tables
from tests.mq.mailbox.boxes import Running
from tests.waiting import SOON, wait_until

ROOT = Path(__file__).parents[3]


def terminal(manager: Running, *words: str, until: str = "") -> str:
    """What a terminal shows; with `until`, as soon as it shows that, and then Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kingdom.mq.cli.yirangmq", *words],
        env={**manager.environment, "COLUMNS": "100", "TERM": "xterm"},
        stdout=theirs,
        cwd=ROOT,
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
            if until and shown.count(until.encode()) > 1:
                process.send_signal(signal.SIGINT)
                until = ""
    except OSError:  # the other end is closed
        pass
    process.wait(SOON)
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_a_table_on_a_terminal_and_json_in_a_pipe(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, {"n": 1}, priority=5)
    shown = terminal(manager, "peek", "--queue", q)
    row = dict(line.split(None, 1) for line in shown.splitlines())
    assert row["messageKey"].startswith(f"msg:{q}:")
    assert (row["queue"], row["payload"], row["state"]) == (q, '{"n":1}', "ready")
    status = dict(line.split(None, 1) for line in terminal(manager, "status", "--queue", q).splitlines() if " " in line)
    assert (status["queue"], status["metrics.ready"], status["policy.retry.limit"]) == (q, "1", "5")
    (line,) = terminal(manager, "peek", "--queue", q, "--json").splitlines()
    assert json.loads(line)["messages"][0]["priority"] == 5
    assert json.loads(manager.cli("peek", "--queue", q).stdout)["messages"][0]["priority"] == 5


def test_queues_are_watched(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
        shown = terminal(manager, "queues", "--watch", "--every", "50ms", until=f"\n{q} ")
    assert shown.count(f"\n{q} ") > 1
    assert manager.cli("queues", "--every", "1s").returncode == 2
    assert manager.cli("queues", "--watch", "--direct").returncode == 2


def test_a_watch_in_a_pipe_is_one_line_of_json_each_time(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "kingdom.mq.cli.yirangmq", "queues", "--watch", "--every", "50ms"],
        env=manager.environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    assert process.wait(SOON) == 130
    process.stdout.close()
    assert [[one["ready"] for one in line["queues"] if one["queue"] == q] for line in lines] == [[1]] * 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "done"),
        ({"queues": []}, "(none)"),
        ({"a": {"b": 1, "long": "x"}}, "a.b     1\na.long  x"),
        (
            {"messages": [{"id": "a", "n": 5}, {"id": "bcd", "n": 12, "more": "\x1b[31m"}]},
            "id    n  more\na     5\nbcd  12  ",
        ),
        (
            {
                "queue": "q",
                "messages": [{"messageId": "1", "messageKey": "m:1", "queue": "q", "type": "", "dlqAt": 1000}],
            },
            "queue  q\nmessageKey  dlqAt\nm:1         1970-01-01T00:00:01Z",
        ),
        ({"queues": [{"queue": "한글", "n": 1}, {"queue": "abcde", "n": 2}]}, "queue  n\n한글   1\nabcde  2"),
    ],
)
def test_tables(answer: dict[str, object], text: str) -> None:
    shown = tables.text(answer, 80)
    assert shown.startswith(text)
    assert "\x1b" not in shown


def test_long_texts_make_room_for_the_other_columns() -> None:
    shown = tables.text({"messages": [{"payload": "x" * 500, "attempt": 3}]}, 40)
    assert shown.splitlines() == [f"{'payload':31}  attempt", f"{'x' * 30}…        3"]


def test_what_does_not_fit_side_by_side_is_shown_one_below_the_other() -> None:
    key, letters = "msg:q:" + "1" * 36, [{"payload": "x", "reason": "bad", "attempt": 5}, {"payload": "y"}]
    shown = tables.text({"messages": [{"messageKey": key, **letter} for letter in letters]}, 60)
    assert shown == (
        f"messageKey  {key}\npayload     x\nreason      bad\nattempt     5\n\nmessageKey  {key}\npayload     y"
    )


def die(manager: Running, queue: str, count: int) -> None:
    with manager.client() as mq:
        mq.publish_batch(queue, list(range(count)))
        for delivery in mq.consume_batch(queue, count):
            mq.nack(delivery, "bad")


def test_dead_letters_are_put_back_at_a_rate(manager: Running, q: str) -> None:
    die(manager, q, 30)
    began = time.monotonic()
    ended = manager.cli("reprocess", "--queue", q, "--rate", "50", "--limit", "20")
    assert json.loads(ended.stdout) == {"queue": q, "reprocessed": True, "count": 20}
    assert 0.3 < time.monotonic() - began < 10
    with manager.client() as mq:
        assert mq.reprocess(queue=q, rate=1000) == 10
        with pytest.raises(BadInput):
            mq.reprocess("key", rate=1)


def test_what_dies_again_meanwhile_is_not_put_back_twice(manager: Running, q: str) -> None:
    die(manager, q, 10)
    argv = [sys.executable, "-m", "kingdom.mq.cli.yirangmq"]
    given = {"env": manager.environment, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    follow = [*argv, "consume", "--queue", q, "--follow", "--limit", "10"]
    with (
        subprocess.Popen(follow, **given) as worker,
        subprocess.Popen([*argv, "reprocess", "--queue", q, "--rate", "20"], **given) as redrive,
        manager.client() as mq,
    ):
        assert worker.stdout is not None
        for line in worker.stdout:
            key = json.loads(line)["message"]["messageKey"]
            mq.call("nack", {"messageKey": key, "consumerId": "cli", "reason": "again"})
        assert json.loads(redrive.communicate(timeout=SOON)[0])["count"] == 10
        assert worker.wait(SOON) == 0
        wait_until(lambda: mq.status(q)["metrics"]["dlq"] == 10, SOON, "all are dead again")


@pytest.mark.parametrize(
    "words",
    [
        ("reprocess", "--message-key", "k", "--reason", "TIMEOUT"),
        ("reprocess", "--message-key", "k", "--limit", "1"),
        ("reprocess", "--message-key", "k", "--rate", "1"),
        ("reprocess", "--queue", "q", "--rate", "0"),
        ("publish", "--queue", "q", "--file", "-", "--dedup-key", "k"),
        ("status", "--queue", "q", "--direct", "--ipc-root", "/tmp"),
        ("status", "--queue", "q", "--direct", "--timeout", "5s"),
        ("consume", "--queue", "q", "--direct", "--timeout", "5s", "--visibility", "5s"),
        ("delete-queue", "--queue", "q"),
        ("drain", "--queue", "q", "--to", "r", "--as", "s"),
    ],
)
def test_an_option_that_does_not_apply_is_wrong_usage(manager: Running, words: tuple[str, ...]) -> None:
    ended = manager.cli(*words)
    assert ended.returncode == 2
    assert ended.stdout == ""


def test_a_reason_that_does_not_exist_is_refused(manager: Running, q: str) -> None:
    die(manager, q, 1)
    ended = manager.cli("reprocess", "--queue", q, "--reason", "NOPE")
    assert (ended.returncode, "known are" in ended.stderr) == (1, True)


def test_the_version(manager: Running) -> None:
    assert manager.cli("--version").stdout == f"yirangmq, version {__version__}\n"
