"""`yirangmq consume --follow --exec CMD`: what it runs, what it answers, and what is left when it is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.mq.mailbox.boxes import Running
from tests.waiting import SOON, wait_until


@contextmanager
def worker(manager: Running, queue: str, command: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = ["-m", "kingdom.mq.cli.yirangmq", "consume", "--queue", queue, "--follow", "--exec", command, *words]
    process = subprocess.Popen(
        [sys.executable, *argv],
        env=manager.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    with process:  # its command may outlive it, and hold its pipes: they are not read to their end
        try:
            yield process
        finally:
            process.kill()


def count(manager: Running, queue: str, what: str) -> int:
    with manager.client() as mq:
        return int(mq.status(queue)["metrics"][what])


def test_a_command_gets_the_payload_and_its_success_acknowledges(manager: Running, q: str, home: Path) -> None:
    with manager.client() as mq:
        for n in range(3):
            mq.publish(q, {"n": n}, attributes={"unit": "C"})
    command = f'cat >> {home}/seen; echo " $YIRANGMQ_QUEUE $YIRANGMQ_ATTEMPT $YIRANGMQ_ATTRIBUTES" >> {home}/seen'
    with worker(manager, q, command, "--limit", "3") as process:
        assert process.wait(SOON) == 0
    lines = (home / "seen").read_text().splitlines()
    assert [json.loads(line.split(f" {q} ")[0]) for line in lines] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert lines[0].endswith(f' {q} 1 {{"unit":"C"}}')
    assert (count(manager, q, "ready"), count(manager, q, "inflight")) == (0, 0)


def test_a_failure_is_tried_again_by_the_retry_rule(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
    with worker(manager, q, "exit 3", "--limit", "1") as process:
        said = process.communicate(timeout=SOON)[1]
    assert "failed, exit 3" in said
    with manager.client() as mq:
        metrics = mq.status(q)["metrics"]
    assert metrics["delayed"] + metrics["ready"] == 1  # on a busy machine its delay is over by now


def test_without_follow_one_message_is_handled_and_the_exit_code_says_how(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
        mq.publish(q, 2)
    assert manager.shell("consume", "--queue", q, "--exec", "true").returncode == 0
    assert manager.shell("consume", "--queue", q, "--exec", "false").returncode == 1
    assert manager.shell("consume", "--queue", q, "--exec", "true").returncode == 0


def test_a_command_need_not_read_a_large_payload(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, "x" * 500_000)
    assert manager.shell("consume", "--queue", q, "--exec", "exit 0").returncode == 0
    assert count(manager, q, "inflight") == 0


def test_the_lease_is_held_while_the_command_runs(manager: Running, q: str, home: Path) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
    os.mkfifo(home / "go")
    command = f"echo started > {home}/started; cat {home}/go"
    with worker(manager, q, command, "--limit", "1", "--visibility", "0.6") as process:
        wait_until(lambda: (home / "started").exists(), SOON, "the command runs")
        with manager.client() as mq:
            assert mq.take(q, wait=1) is None
        (home / "go").write_text("")
        assert process.wait(SOON) == 0
    assert (count(manager, q, "ready"), count(manager, q, "inflight"), count(manager, q, "delayed")) == (0, 0, 0)


def test_a_worker_killed_in_the_middle_loses_nothing(manager: Running, q: str, home: Path) -> None:
    with manager.client() as mq:
        mq.publish(q, {"n": 1})
    os.mkfifo(home / "never")
    with worker(manager, q, f"echo started > {home}/started; cat {home}/never", "--visibility", "1") as process:
        wait_until(lambda: (home / "started").exists(), SOON, "the command runs")
        process.kill()
        process.wait(SOON)
        # So that the orphaned command ends too, if it has not ended with its worker.
        with suppress(OSError):
            os.close(os.open(home / "never", os.O_WRONLY | os.O_NONBLOCK))
    with manager.client() as mq:
        again = wait_until(lambda: mq.take(q, wait=1), SOON, "the message comes back")
        assert (again.payload, again.attempt) == ({"n": 1}, 2)
        mq.ack(again)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_on_a_signal_the_worker_finishes_its_message(
    manager: Running, q: str, home: Path, number: signal.Signals
) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
        mq.publish(q, 2)
    os.mkfifo(home / "go")
    with worker(manager, q, f"echo started > {home}/started; cat {home}/go") as process:
        wait_until(lambda: (home / "started").exists(), SOON, "the command runs")
        process.send_signal(number)
        assert "taking nothing more" in process.stderr.readline()  # type: ignore[union-attr]
        (home / "go").write_text("")
        assert process.wait(SOON) == 0
    assert (count(manager, q, "ready"), count(manager, q, "inflight")) == (1, 0)


def test_an_idle_worker_stops_at_once_and_takes_its_request_back(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
        mq.purge(q)
    with worker(manager, q, "true") as process:
        wait_until(lambda: os.listdir(manager.root / "processing"), SOON, "the worker waits")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == 0
    assert os.listdir(manager.root / "processing") == []


def test_a_worker_outlives_its_manager(home: Path) -> None:
    running = Running(home, backend="filesystem", durability="process")
    with running.client() as mq:
        mq.publish("q", 1)
    os.mkfifo(home / "go")
    with worker(running, "q", f"echo started > {home}/started; cat {home}/go", "--limit", "2") as process:
        wait_until(lambda: (home / "started").exists(), SOON, "the command runs")
        running.kill()
        running.start()
        (home / "go").write_text("")
        running.wait_ready()
        with running.client() as mq:
            mq.publish("q", 2)
        (home / "go").write_text("")
        assert process.wait(SOON) == 0
    assert (count(running, "q", "ready"), count(running, "q", "inflight")) == (0, 0)
    running.stop()


def test_follow_without_a_command_prints_what_it_leases(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, {"n": 1})
        mq.publish(q, {"n": 2})
    ended = manager.shell("consume", "--queue", q, "--follow", "--limit", "2")
    assert [json.loads(json.loads(line)["message"]["payload"]) for line in ended.stdout.splitlines()] == [
        {"n": 1},
        {"n": 2},
    ]


def test_the_command_of_a_killed_worker_is_killed_too(manager: Running, q: str, home: Path) -> None:
    """Otherwise it would finish what another worker does again."""
    with manager.client() as mq:
        mq.publish(q, 1)
    with worker(manager, q, f"echo $$ > {home}/shell; sleep 30 >/dev/null 2>&1; echo done >> {home}/seen") as process:
        shell = int(wait_until(lambda: (home / "shell").exists() and (home / "shell").read_text(), SOON, "it works"))
        process.kill()
        wait_until(lambda: not Path(f"/proc/{shell}").exists() or _is_zombie(shell), SOON, "its shell has ended")
    assert not (home / "seen").exists()


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_attributes_too_long_for_an_environment_are_left_out(manager: Running, q: str, home: Path) -> None:
    with manager.client() as mq:
        mq.publish(q, 1, attributes={"long": "x" * 200_000})
    command = f'echo "[$YIRANGMQ_ATTRIBUTES]" > {home}/seen'
    assert manager.shell("consume", "--queue", q, "--exec", command).returncode == 0
    assert (home / "seen").read_text() == "[]\n"


def test_many_commands_run_at_a_time_and_end_in_order(manager: Running, q: str, home: Path) -> None:
    with manager.client() as mq:
        mq.publish_batch(q, list(range(8)))
    os.mkfifo(home / "go")
    command = f"echo started >> {home}/started; cat {home}/go >/dev/null"
    with worker(manager, q, command, "--concurrency", "4") as process:
        wait_until(
            lambda: (home / "started").exists() and (home / "started").read_text().count("\n") == 4, SOON, "4 run"
        )
        process.send_signal(signal.SIGTERM)
        assert "taking nothing more" in process.stderr.readline()  # type: ignore[union-attr]
        wait_until(lambda: process.poll() is not None or _open_for_writing(home / "go"), SOON, "all have ended")
        assert process.wait(SOON) == 0
    assert (count(manager, q, "ready"), count(manager, q, "inflight"), count(manager, q, "delayed")) == (4, 0, 0)


def _open_for_writing(fifo: Path) -> None:
    """Let those who read the fifo now go on."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return


def test_a_second_signal_stops_the_commands_and_gives_their_messages_back(manager: Running, q: str, home: Path) -> None:
    with manager.client() as mq:
        mq.publish_batch(q, [1, 2])
    with worker(manager, q, f"echo started >> {home}/started; sleep 60", "--concurrency", "2") as process:
        wait_until(
            lambda: (home / "started").exists() and (home / "started").read_text().count("\n") == 2, SOON, "2 run"
        )
        process.send_signal(signal.SIGTERM)
        assert "taking" in process.stderr.readline()  # type: ignore[union-attr]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == 0
    assert count(manager, q, "delayed") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--concurrency", "2"),
        ("--exec", "true", "--concurrency", "2"),
        ("--follow", "--wait", "5s"),
        ("--direct", "--follow"),
        ("--direct", "--wait", "5s"),
    ],
)
def test_options_that_do_not_apply_are_refused(manager: Running, q: str, words: tuple[str, ...]) -> None:
    assert manager.cli("consume", "--queue", q, *words).returncode == 2
