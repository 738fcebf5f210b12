"""One face for a store in this process and for a manager: every test runs on both, over every store."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

import kingdom.mq
from kingdom.base.errors import BadInput, KingdomError, LockLost
from kingdom.mq import Delivery, Refused, Session
from kingdom.mq.errors import StoreError
from kingdom.mq.local import Local, settings_of
from kingdom.mq.message_format import Draft
from kingdom.mq.stores import STORES
from tests.mq.mailbox.boxes import Running
from tests.waiting import SOON

ROOT = Path(__file__).parents[3]
FACES = [f"{face} {backend}" for backend in sorted(STORES) for face in ("open", "connect")]


@pytest.fixture(scope="module")
def faces() -> Iterator[Callable[[str], Session]]:
    """One manager and one folder for each store; each test has a queue of its own."""
    running: dict[str, Running] = {}
    homes: list[Path] = []

    def face(name: str) -> Session:
        kind, backend = name.split()
        if kind == "open":
            homes.append(Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp")))
            return kingdom.mq.open(homes[-1] / "data", backend=backend, durability="process")
        if backend not in running:
            homes.append(Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp")))
            running[backend] = Running(homes[-1], backend=backend, durability="process")
        return kingdom.mq.connect(running[backend].root)

    yield face
    for manager in running.values():
        manager.stop()
    for home in homes:
        rmtree(home, ignore_errors=True)


@pytest.fixture(params=FACES)
def session(request: pytest.FixtureRequest, faces: Callable[[str], Session]) -> Iterator[Session]:
    with faces(request.param) as session:
        yield session


def test_messages_are_published_and_consumed_one_after_the_other(session: Session, q: str) -> None:
    for n in range(3):
        session.publish(q, {"n": n}, type="t", trace_id="tr", attributes={"unit": "C"}, priority=-n)
    seen = []
    for message in session.consume(q):
        seen.append((message.payload, message.type, message.trace_id, message.attributes, message.priority))
        message.ack()
    assert seen == [({"n": n}, "t", "tr", {"unit": "C"}, -n) for n in range(3)]
    assert session.status(q)["metrics"]["inflight"] == 0


def test_a_message_is_given_back_or_kept_longer(session: Session, q: str) -> None:
    session.publish(q, 1)
    (message,) = session.consume(q, visibility=5)
    assert message.extend(60) > message.lease_until
    message.nack("cannot", requeue=False)
    (letter,) = session.peek(q, dlq=True)
    assert (letter["payload"], letter["reason"], letter["state"]) == ("1", "cannot", "dlq")
    assert session.reprocess(queue=q) == 1
    (again,) = session.consume(q)
    again.nack()
    assert session.status(q)["metrics"]["delayed"] == 1
    with pytest.raises(Refused) as refused:
        again.ack()
    assert refused.value.code == "ERR_LEASE_EXPIRED"


def test_whole_queues_are_moved_and_deleted(session: Session, q: str) -> None:
    session.publish_batch(q, [1, 2, 3])
    assert session.move(q, f"{q}-there", 1) == 1
    first = session.peek(q)[0]
    session.delete_message(first["messageKey"])
    assert session.delete_queue(q) == 1
    assert session.delete_policy(f"{q}-there")["visibilityTimeoutSec"] == 30
    assert [queue["ready"] for queue in session.queues() if queue["queue"].startswith(q)] == [1]
    assert session.purge(f"{q}-there") == 1


def test_a_consumer_waits_for_a_message_of_another_thread(session: Session, q: str) -> None:
    seen: list[object] = []
    waiting = threading.Thread(target=lambda: seen.append(next(session.consume(q, wait=20)).payload))
    waiting.start()
    session.publish(q, {"n": 1})
    waiting.join(SOON)
    assert seen == [{"n": 1}]


def test_a_delayed_message_ends_a_wait(session: Session, q: str) -> None:
    session.publish(q, 1, delay_ms=150)
    message = session.take(q, wait=20)
    assert message is not None
    message.ack()


def test_threads_share_it(session: Session, q: str) -> None:
    done: list[str] = []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(10):
                session.publish(q, {"by": number, "n": n})
            for message in session.consume(q):
                message.ack()
                done.append(message.message_key)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for message in session.consume(q):
        message.ack()
        done.append(message.message_key)
    assert failed == []
    assert (len(done), len(set(done))) == (80, 80)


def test_what_is_wrong_is_said_in_the_same_way(session: Session, q: str) -> None:
    with pytest.raises(Refused, match="ERR_QUEUE_NOT_FOUND"):
        session.peek(f"{q}-nowhere")
    with pytest.raises(Refused, match="ERR_INVALID_REQUEST"):
        session.publish(q, 1, delay_ms=10**17)
    with pytest.raises(BadInput, match="cannot be written as JSON"):
        session.publish(q, object())
    session.publish(q, 1)
    with pytest.raises(Refused, match="olderThanMs"):
        session.purge(q, older_than_ms=5)


def test_the_same_request_is_one_message(session: Session, q: str) -> None:
    first = session.publish(q, 1, request_id=f"once-{q}")
    assert session.publish(q, 1, request_id=f"once-{q}") == first
    assert session.status(q)["metrics"]["ready"] == 1


def test_a_function_is_a_worker(session: Session, q: str) -> None:
    seen: list[object] = []
    said: list[str] = []

    @session.worker(q, concurrency=3)
    def work(message: Delivery) -> None:
        if message.payload == "bad":
            raise ValueError("no such thing")
        seen.append(message.payload)

    session.publish_batch(q, ["bad", *range(9)])
    session.run(until_empty=True, report=said.append)
    assert sorted(map(str, seen)) == [str(n) for n in range(9)]
    metrics = session.status(q)["metrics"]
    assert (metrics["inflight"], metrics["ready"] + metrics["delayed"]) == (0, 1)
    assert {"failed, ValueError: no such thing" in line for line in said} == {True}


@pytest.mark.parametrize(("given", "together"), [({}, 1), ({"concurrency": 2}, 2)])
def test_a_worker_has_one_message_in_work_unless_it_says_how_many(
    home: Path, given: dict[str, int], together: int
) -> None:
    both, lock = threading.Barrier(2, timeout=0.3), threading.Lock()
    in_work: list[int] = []
    most = []
    with kingdom.mq.open(home / "data", backend="memory") as q:

        @q.worker("jobs", **given)
        def work(message: Delivery) -> None:
            with lock:
                in_work.append(1)
                most.append(len(in_work))
            with suppress(threading.BrokenBarrierError):
                both.wait()
            with lock:
                in_work.pop()

        q.publish_batch("jobs", [1, 2])
        q.run(until_empty=True)
    assert max(most) == together


def test_a_worker_holds_its_lease_while_it_works(session: Session, q: str) -> None:
    started, go = threading.Event(), threading.Event()

    @session.worker(q, visibility=2.5)
    def work(message: Delivery) -> None:
        started.set()
        assert go.wait(SOON)

    session.publish(q, 1)
    running = threading.Thread(target=lambda: session.run(until_empty=True))
    running.start()
    assert started.wait(SOON)
    assert session.take(q, wait=3.0) is None
    go.set()
    running.join(SOON)
    metrics = session.status(q)["metrics"]
    assert (metrics["ready"], metrics["inflight"], metrics["delayed"], metrics["dlq"]) == (0, 0, 0, 0)


def test_a_folder_opens_as_it_was_left_and_once_at_a_time(home: Path) -> None:
    for backend in ("filesystem", "hybrid", "sqlite"):
        folder = home / backend
        with kingdom.mq.open(folder, backend=backend) as q:
            q.publish("jobs", {"n": 1})
            with pytest.raises(KingdomError, match="holds"):
                kingdom.mq.open(folder)
        with kingdom.mq.open(folder) as q:
            assert [message.payload for message in q.consume("jobs")] == [{"n": 1}]


def test_a_store_whose_lock_was_removed_is_written_to_no_more(home: Path) -> None:
    with kingdom.mq.open(home / "data") as first:
        first.publish("q", 1)
        (home / "data" / "lock").unlink()
        with kingdom.mq.open(home / "data") as second:
            (message,) = second.consume("q")
            for call in (first.take, first.purge):
                with pytest.raises(LockLost):
                    call("q")
            message.ack()


def test_a_configuration_file_opens_what_it_says(home: Path) -> None:
    file = home / "mq.yaml"
    file.write_text("backend: filesystem\nqueues: {jobs: {visibilityTimeoutSec: 7}}\n")
    with kingdom.mq.open(file) as q:
        assert q.status("jobs")["policy"]["visibilityTimeoutSec"] == 7


PROGRAM = """
import sys, time
from pathlib import Path
import kingdom.mq

with kingdom.mq.open(sys.argv[1]) as q:
    @q.worker("jobs", concurrency=2)
    def work(message):
        print(f"{message.payload}\\n", end="", flush=True)  # as one write: there are two of us
        while not Path(sys.argv[2]).exists():
            time.sleep(0.02)

    q.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize(("signals", "left"), [(1, 2), (2, 4)])
def test_a_signal_ends_workers_in_order(home: Path, signals: int, left: int) -> None:
    """One lets them finish what is in work; after a second one it is given back."""
    with kingdom.mq.open(home / "data") as q:
        q.publish_batch("jobs", [1, 2, 3, 4])
    with (
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(home / "data"), str(home / "go")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as process,
        ExitStack() as after,
    ):
        after.callback(process.kill)
        assert process.stdout is not None
        assert process.stderr is not None
        assert sorted(process.stdout.readline() for _ in range(2)) == ["1\n", "2\n"]
        process.send_signal(signal.SIGTERM)
        assert "taking nothing more" in process.stderr.readline()
        if signals == 2:
            process.send_signal(signal.SIGTERM)
        else:
            (home / "go").touch()
        assert process.communicate(timeout=SOON)[0].endswith("ended\n")
    assert process.returncode == 0
    with kingdom.mq.open(home / "data") as q:
        metrics = q.status("jobs")["metrics"]
        assert (metrics["ready"] + metrics["delayed"], metrics["inflight"]) == (left, 0)


def test_one_line_is_changed_from_a_library_to_a_manager(manager: Running, home: Path) -> None:
    program = """
import kingdom.mq
with kingdom.mq.open({home!r}) as q:
    q.publish({queue!r}, {{"n": 1}})
    for message in q.consume({queue!r}):
        print(message.payload)
        message.ack()
"""
    text = program.format(home=str(home / "data"), queue=f"one-line-{os.getpid()}")
    through = text.replace(f"kingdom.mq.open({str(home / 'data')!r})", "kingdom.mq.connect()")
    for lines in (text, through):
        ended = subprocess.run(
            [sys.executable, "-c", lines], env=manager.environment, capture_output=True, text=True, cwd=ROOT, timeout=60
        )
        assert (ended.stdout, ended.stderr) == ("{'n': 1}\n", "")


class Disturbed(Local):
    """A store in this process in which something happens after the first turn of a call."""

    meanwhile: Callable[[], object] | None = None

    def _carry_out(self, group: Sequence[Any], until: float) -> None:
        super()._carry_out(group, until)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            # Not by `call`: this thread serves others as long as it is in here.
            meanwhile()


def lose_a_group(local: Local, folder: Path) -> None:
    """Let the group of another thread fail: somebody else writes into the database."""
    another = sqlite3.connect(folder / "yirangmq.db", isolation_level=None)
    another.execute("BEGIN IMMEDIATE")
    local._engine.publish("full", Draft("1"))
    with pytest.raises(StoreError):
        local._engine.commit()
    another.close()


def mend(local: Local, folder: Path) -> None:
    local.check(repair=True)


@pytest.mark.parametrize("meanwhile", [lose_a_group, mend])
@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("publish_batch", {"queue": "q", "messages": [{"message": n} for n in range(1200)]}),
        ("consume_batch", {"queue": "full", "limit": 1200}),
        ("move", {"queue": "full", "to": "q"}),
        ("purge", {"queue": "full", "yes": True}),
        ("delete_queue", {"queue": "full", "yes": True}),
    ],
)
def test_a_call_of_several_turns_does_not_go_on_with_what_was_forgotten_meanwhile(
    home: Path, command: str, payload: dict[str, Any], meanwhile: Callable[[Local, Path], None]
) -> None:
    folder = home / "data"
    local = Disturbed(settings_of(folder, backend="sqlite", sqlite={"busyTimeoutMs": 1}))
    local.call("publish_batch", {"queue": "full", "messages": [{"message": n} for n in range(1200)]})
    local.meanwhile = lambda: meanwhile(local, folder)
    with pytest.raises(StoreError, match="may be done or not"):
        local.call(command, payload)
    assert local.call("publish", {"queue": "q", "message": 1})["messageKey"].startswith("msg:q:")
    local.close()


def test_a_pause_that_could_not_be_kept_is_kept_when_it_is_asked_for_again(home: Path) -> None:
    folder = home / "data"
    local = Local(settings_of(folder, backend="sqlite", sqlite={"busyTimeoutMs": 1}))
    local.call("publish", {"queue": "q", "message": 1})
    another = sqlite3.connect(folder / "yirangmq.db", isolation_level=None)
    another.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError):
        local._engine.queues.pause("q")
    another.close()
    local.call("pause", {"queue": "q"})
    local.close()
    with kingdom.mq.open(folder) as session:
        assert session.status("q")["paused"]
