"""The process that serves one soldier: it is asked to end, its disk is full, it was forked from one that is loaded."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.lock import Lock, is_locked
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import BY_ITSELF, NEVER_RAN, OVER_LIMIT, STOPPED, RawReport, SoldierOrder
from kingdom.base.runtime.cgroup import Cgroup
from kingdom.base.runtime.processes import carries, stat_fields
from kingdom.court.soldier import launch, sandbox, serve, warm
from kingdom.court.soldiers.engines import load
from tests import syncs
from tests.base.records.test_soldiers import ORDER
from tests.fixtures import founded, write
from tests.waiting import SOON, wait_until

TASK, SECRET = "task-20260207-001", "sesame-3f9a2b"
Serves = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    places.env_file.write_text(f"TOKEN={SECRET}\n")
    places.env_file.chmod(0o600)
    return places


@pytest.fixture
def order(places: Places) -> SoldierOrder:
    folder = places.soldier_folder(TASK)
    (folder / "work").mkdir(parents=True)
    files = {name: str(folder / name) for name in ("prompt", "out", "err", "program")}
    for path in files.values():
        Path(path).touch()
    own = {"workspace": str(folder / "work"), "result_path": str(folder / "work/result.json")}
    limits = {**ORDER.limits, "processes": 200}
    return ORDER._replace(task_id=TASK, engine="command", sandbox=False, env={}, limits=limits, **files, **own)


@pytest.fixture
def serves(places: Places, order: SoldierOrder) -> Iterator[Serves]:
    """Start a process that serves a soldier with this engine, once the engine runs."""
    children: list[subprocess.Popen[bytes]] = []

    def start(
        script: str, mode: int = 0o755, open_before: tuple[int, ...] = (), **fields: Any
    ) -> subprocess.Popen[bytes]:
        Path(order.program).write_text(f"#!/bin/sh\n{script}\n")
        Path(order.program).chmod(mode)
        write(places.home / "order.json", order._replace(**fields).to_json())
        own = {"KINGDOM_HOME": str(places.home), "KINGDOM_ORDER": str(places.home / "order.json")}
        opened = "".join(f" {number}</dev/null" for number in open_before)
        words = ["sh", "-c", f'exec "$@"{opened}', "sh", sys.executable, "-P", "-m", "kingdom.soldier", TASK]
        children.append(subprocess.Popen(words, env={**os.environ, **own}))
        watched = (Path(order.out).parent, places.raw_result(TASK).parent)
        said = lambda: Path(order.out).read_text() or places.raw_result(TASK).exists()  # noqa: E731
        wait_until(said, SOON, "the engine says a word, or never runs", watched)
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


def reported(places: Places, child: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert child.wait(SOON) == 0
    report = dict(read_json(places.raw_result(TASK)))
    assert report["seconds"] == round(report["seconds"], 3), "to the millisecond"
    return report


def test_one_that_cannot_be_bound_never_runs(serves: Serves, places: Places, order: SoldierOrder) -> None:
    report = reported(places, serves("echo ran", limits={**order.limits, "cpu_seconds": "many"}))
    assert report["ended"] == NEVER_RAN
    assert report["seen"].startswith("its sandbox could not be set up: ")
    assert Path(order.out).read_text() == ""


def test_a_program_that_cannot_be_started_is_named(serves: Serves, places: Places, order: SoldierOrder) -> None:
    report = reported(places, serves("echo ran", mode=0o644))
    assert (report["ended"], report["seen"]) == (NEVER_RAN, f"Permission denied: {order.program}")


@pytest.mark.skipif(not launch.prepare(), reason="NO CONTEXTS IN THIS C LIBRARY")
def test_who_is_started_by_one_that_is_gone_never_runs(order: SoldierOrder) -> None:
    Path(order.program).write_text("#!/bin/sh\necho ran\n")
    Path(order.program).chmod(0o755)
    streams = serve.Streams.of(order)
    starting = launch.Launch([order.program], os.environ, streams)
    pid = starting.fork(None)
    starting.close()
    streams.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert Path(order.out).read_text() == ""


@pytest.mark.parametrize("by_fork", [False, True])
def test_an_engine_leads_its_session_and_has_its_streams_alone_and_every_signal(
    places: Places, order: SoldierOrder, by_fork: bool
) -> None:
    Path(order.program).write_text(
        "#!/bin/sh\ngrep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd >&2; cat; echo $1 $GIVEN\n"
        "read -r _ _ _ _ _ session _ </proc/$$/stat; [ $session = $$ ] && echo leads\n"
    )
    Path(order.program).chmod(0o755)
    Path(order.prompt).write_text("a prompt\n")
    write(places.home / "order.json", order._replace(arguments=["a word"]).to_json())
    given = {"KINGDOM_ORDER": str(places.home / "order.json"), "PATH": os.environ["PATH"], "GIVEN": "a variable"}
    ready = serve.Ready.of(given, places)
    pid = serve._spawn(ready, sandbox.Prepared(), by_fork=by_fork)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, launch.HANDLED)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ready.cgroup.kill_all()
    blocked, ignored, *said = Path(order.out).read_text().split("\n")
    # What whoever started these tests ignores stays so; Python ignores some, and handles others.
    ours = sum(1 << number - 1 for number in launch.DEFAULT)
    assert (int(blocked.split()[1], 16), int(ignored.split()[1], 16) & ours) == (0, 0)
    assert said == [
        "a prompt",
        "a word a variable",
        "leads",
        "",
    ]
    assert Path(order.err).read_text().split() == ["0", "1", "2", "3"], "3 is what ls looks at"


def test_the_last_word_may_be_a_letter(serves: Serves, places: Places) -> None:
    assert reported(places, serves("printf x"))["seen"] == "x"


@pytest.mark.parametrize("how", [STOPPED, BY_ITSELF])
def test_the_last_words_of_one_that_ends_are_without_secrets(
    serves: Serves, places: Places, order: SoldierOrder, how: str
) -> None:
    child = serves(f"echo {SECRET}; echo {SECRET} >&2; {'sleep 300' if how == STOPPED else 'exit 3'}")
    if how == STOPPED:
        child.terminate()
    report = reported(places, child)
    assert (report["ended"], report["seen"]) == (how, "*" * len(SECRET))
    assert Path(order.out).read_text() == "*" * len(SECRET) + "\n"


def test_its_engine_gives_way_to_the_roles(serves: Serves, places: Places, order: SoldierOrder) -> None:
    reported(places, serves("cut -d' ' -f19 /proc/self/stat"))
    assert int(Path(order.out).read_text()) == min(19, os.nice(0) + sandbox.GIVES_WAY)


def test_no_thread_of_its_parent_is_there_when_its_engine_runs(
    serves: Serves, places: Places, order: SoldierOrder
) -> None:
    """One that had entered the sandbox could be traced from inside, and the memory of the parent written."""
    reported(places, serves("set -- /proc/$PPID/task/*; echo $#", sandbox=True, external=False))
    assert Path(order.out).read_text() == "1\n"


def test_its_engine_is_in_its_workspace_and_what_it_makes_is_its_owners(
    serves: Serves, places: Places, order: SoldierOrder
) -> None:
    reported(places, serves("pwd -P; umask"))
    assert Path(order.out).read_text().splitlines() == [os.path.realpath(order.workspace), "0077"]


def test_whatever_an_engine_has_left_is_ended_and_waited_for() -> None:
    if (pid := os.fork()) == 0:
        sandbox.adopt_orphans()
        subprocess.run(["/bin/sh", "-c", "sleep 300 & sleep 300 & :"], check=True)
        serve._end_tree()
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            os._exit(99)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("sandbox", [False, True])
def test_its_engine_is_in_a_control_group_of_its_own(
    serves: Serves, places: Places, order: SoldierOrder, sandbox: bool
) -> None:
    probe = Cgroup(places.home, "probe")
    probe.create(1)
    if not probe.is_there():
        pytest.skip("NO CONTROL GROUPS HERE")
    probe.kill_all()
    reported(places, serves("cat /proc/self/cgroup", sandbox=sandbox, external=False))
    assert TASK in Path(order.out).read_text()
    assert not Cgroup(places.home, TASK).is_there()


def test_one_that_the_kernel_ends_for_its_processor_time_is_over_its_limit(serves: Serves, places: Places) -> None:
    report = reported(places, serves("echo begins; kill -XCPU $$"))
    told = "a process with more than 60 s of processor time"
    assert (report["ended"], report["seen"]) == (OVER_LIMIT, told)


def test_orphans_that_end_while_the_engine_runs_are_waited_for(serves: Serves, places: Places, home: Path) -> None:
    child = serves(f"(sh -c 'echo $$ >{home}/orphan' &); echo begins; read -r _ <{fifo(home)}")
    orphan = wait_until(lambda: (home / "orphan").exists() and (home / "orphan").read_text().strip(), SOON, "it ran")
    wait_until(lambda: not Path(f"/proc/{orphan}").exists(), SOON, "not even a zombie is left")
    fifo(home).write_text("\n")
    assert reported(places, child)["ended"] == BY_ITSELF


def fifo(home: Path) -> Path:
    if not (home / "fifo").exists():
        os.mkfifo(home / "fifo")
    return home / "fifo"


def test_a_report_for_which_there_was_no_room_is_written_when_what_it_made_is_gone(
    serves: Serves, places: Places, order: SoldierOrder
) -> None:
    """No room is here a folder of its own in the report's place."""
    (places.raw_result(TASK) / "deep").mkdir(parents=True)
    own = [order.workspace, str(places.raw_result(TASK))]
    assert reported(places, serves("echo begins; sleep 0.3", may_write=own))["ended"] == BY_ITSELF


def test_one_that_is_asked_twice_has_its_time_to_end_all_the_same(
    serves: Serves, places: Places, order: SoldierOrder
) -> None:
    child = serves("trap 'echo ends; sleep 0.5; echo bye; exit' TERM; echo begins; while :; do sleep 0.05; done")
    child.terminate()
    wait_until(lambda: "ends" in Path(order.out).read_text(), SOON, "it is about to end")
    child.terminate()
    assert reported(places, child)["ended"] == STOPPED
    assert "bye" in Path(order.out).read_text()


def test_on_a_full_disk_what_a_soldier_made_goes_and_its_streams_are_empty(home: Path, order: SoldierOrder) -> None:
    (Path(order.workspace) / "deep").mkdir()
    for stream in (order.out, order.err):
        Path(stream).write_text("x")
        os.chmod(stream, 0o400)
    serve._make_room(order._replace(may_write=[order.workspace]))
    assert list(Path(order.workspace).iterdir()) == []
    assert [Path(stream).read_text() for stream in (order.out, order.err)] == ["", ""]
    assert [os.stat(stream).st_mode & 0o777 for stream in (order.out, order.err)] == [0o600, 0o600]


def test_on_a_full_disk_what_outlives_a_soldier_stays_but_for_large_files(home: Path, order: SoldierOrder) -> None:
    lasting = home / "lasting"
    lasting.mkdir()
    (lasting / "sent.mime").write_text("x")
    with (lasting / "large").open("wb") as large:
        large.truncate(17 << 20)
    serve._make_room(order._replace(may_write=[order.workspace, str(lasting)], lasting=[str(lasting)]))
    assert [path.name for path in lasting.iterdir()] == ["sent.mime"]
    assert list(Path(order.workspace).iterdir()) == []


@pytest.fixture
def asks(places: Places) -> Iterator[Callable[..., tuple[int, socket.socket]]]:
    """Fork a warm server with so many seconds of patience."""
    forked: list[int] = []

    def start(idle_seconds: float) -> tuple[int, socket.socket]:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            ours.close()
            os.environ["KINGDOM_HOME"] = str(places.home)
            warm.IDLE_SECONDS = idle_seconds
            os._exit(warm.serve_warm(its.detach()))
        its.close()
        forked.append(pid)
        return pid, ours

    yield start
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.mark.parametrize("why", ["nobody asks", "its general is gone"])
def test_a_warm_server_ends_when_there_is_nothing_more_to_do(
    asks: Callable[..., tuple[int, socket.socket]], why: str
) -> None:
    pid, ours = asks(0.1 if why == "nobody asks" else SOON)
    if why == "its general is gone":
        ours.close()
    wait_until(lambda: has_ended(pid), SOON, "it has ended")
    ours.close()


def test_a_warm_server_that_is_stopped_ends_with_its_general(asks: Callable[..., tuple[int, socket.socket]]) -> None:
    told, tells = os.pipe()
    if (general := os.fork()) == 0:
        server, _ours = asks(SOON)
        os.write(tells, b"%d" % server)
        signal.pause()
    server = int(os.read(told, 20))
    os.close(told)
    os.close(tells)
    try:
        wait_until(lambda: (stat_fields(server) or [b""])[0] == b"S", SOON, "it waits for requests")
        os.kill(server, signal.SIGSTOP)
        os.kill(general, signal.SIGKILL)
        wait_until(lambda: stat_fields(server) is None, SOON, "it has ended")
    finally:
        for pid in (general, server):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(general, 0)


def fork(server: socket.socket) -> tuple[int, socket.socket]:
    """Ask a warm server for a serving process. Return its pid and its socket."""
    server.send(b"+")
    told, descriptors, _, _ = socket.recv_fds(server, 64, 1)
    return int(told), socket.socket(fileno=descriptors[0])


def hand(serving: socket.socket, places: Places, order: SoldierOrder, task: str) -> Path:
    """Hand a task with its lock to a serving process, and wait until it has begun. Return the lock."""
    places.soldier_folder(task).mkdir(parents=True, exist_ok=True)
    write(places.home / f"{task}.json", order._replace(task_id=task).to_json())
    about = {"KINGDOM_HOME": str(places.home), "KINGDOM_ORDER": str(places.home / f"{task}.json")}
    environment = {"PATH": os.environ["PATH"], "KINGDOM_SOLDIER": task, **about}
    request = {"environment": environment, "errors": str(places.home / "errors")}
    lock = Lock(places.home / f"{task}.lock", task)
    lock.acquire()
    socket.send_fds(serving, [json.dumps(request).encode()], [lock.fileno()])
    lock.release()
    assert serving.recv(64) == warm.BEGUN
    return lock.path


def test_who_is_forked_is_a_process_of_its_own_and_serves_one_task_after_the_other_each_under_its_lock(
    asks: Callable[..., tuple[int, socket.socket]], places: Places, order: SoldierOrder
) -> None:
    Path(order.program).write_text(f"#!/bin/sh\numask\nread -r _ <{fifo(places.home)}\n")
    Path(order.program).chmod(0o755)
    _, ours = asks(SOON)
    pid, serving = fork(ours)
    for task in ("first", "second"):
        lock = hand(serving, places, order, task)
        assert os.getsid(pid) == pid
        assert carries(pid, frozenset({f"KINGDOM_SOLDIER={task}".encode()}))
        assert os.readlink(f"/proc/{pid}/cwd") == str(places.home)
        assert is_locked(lock)
        assert not places.raw_result(task).exists()
        fifo(places.home).write_text("\n")
        assert serving.recv(64) == warm.DONE
        report = read_json(places.raw_result(task))
        assert (report["ended"], report["code"], Path(order.out).read_text()[:5]) == (BY_ITSELF, 0, "0077\n")
        assert not is_locked(lock)
        assert not carries(pid, frozenset({f"KINGDOM_SOLDIER={task}".encode()}))
        assert signal.SIGTERM not in ignored_by(pid), "who is asked to end before the next engine runs does so"
    serving.close()
    wait_until(lambda: stat_fields(pid) is None, SOON, "it ends when nobody can ask it any more")
    ours.close()


def test_its_general_sees_that_a_warm_server_is_gone_beside_those_that_it_has_forked(
    asks: Callable[..., tuple[int, socket.socket]],
) -> None:
    server, ours = asks(SOON)
    pid, serving = fork(ours)
    os.kill(server, signal.SIGKILL)
    ours.settimeout(SOON)
    assert ours.recv(1) == b""
    assert stat_fields(pid) is not None
    serving.close()
    ours.close()


def test_the_environment_of_a_model_is_there_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINGDOM_TASK_ID", "before")
    was = dict(os.environ)
    for more in ({"KINGDOM_TASK_ID": TASK, "TOKEN": SECRET}, {}):
        with warm._environment(more):
            assert dict(os.environ) == {**was, **more}
        assert dict(os.environ) == was


def ignored_by(pid: int) -> set[int]:
    rows = dict(row.split(":\t") for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {number for number in range(1, 65) if int(rows["SigIgn"], 16) >> (number - 1) & 1}


def test_each_of_two_holds_its_own_lock_alone(
    asks: Callable[..., tuple[int, socket.socket]], places: Places, order: SoldierOrder
) -> None:
    Path(order.program).write_text(f"#!/bin/sh\n[ $KINGDOM_SOLDIER = second ] || read -r _ <{fifo(places.home)}\n")
    Path(order.program).chmod(0o755)
    _, ours = asks(SOON)
    first, second = (fork(ours)[1] for _ in range(2))
    locks = [hand(serving, places, order, task) for serving, task in ((first, "first"), (second, "second"))]
    assert second.recv(64) == warm.DONE
    assert [is_locked(lock) for lock in locks] == [True, False]
    fifo(places.home).write_text("\n")
    assert first.recv(64) == warm.DONE
    assert not is_locked(locks[0])
    for opened in (first, second, ours):
        opened.close()


@pytest.mark.parametrize("script", ["echo begins; read -r _ <{fifo}", "echo begins"], ids=["at work", "idle"])
def test_a_deleted_file_is_soon_held_open_by_no_serving_process(
    asks: Callable[..., tuple[int, socket.socket]], places: Places, order: SoldierOrder, script: str
) -> None:
    """Otherwise its space on the disk would stay in use until a minute after the task."""
    Path(order.program).write_text(f"#!/bin/sh\n{script.format(fifo=fifo(places.home))}\n")
    Path(order.program).chmod(0o755)
    large = places.home / "large"
    large.write_text("x")
    beside = [path for above in (*places.home.parents,)[:-1] for path in above.iterdir()]
    # Where much is to be read, not all of it is held open.
    hidden = [str(path) for path in (places.env_file, *beside) if not places.home.is_relative_to(path)]
    _, ours = asks(SOON)
    pid, serving = fork(ours)
    hand(serving, places, order._replace(sandbox=True, external=False, may_not_read=hidden), TASK)
    wait_until(lambda: Path(order.out).read_text(), SOON, "the engine runs")
    large.unlink()
    wait_until(lambda: f"{large} (deleted)" not in open_files(pid), SOON, "nothing keeps it")
    assert stat_fields(pid) is not None
    for opened in (serving, ours):
        opened.close()


def open_files(pid: int) -> list[str]:
    """The paths of the files that a process has open."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


@pytest.mark.parametrize("open_before", [(), (3, 9)])
def test_a_command_finds_no_file_open_but_its_streams(
    serves: Serves, places: Places, order: SoldierOrder, open_before: tuple[int, ...]
) -> None:
    """Also what whoever started its soldier has left open."""
    reported(places, serves("ls /proc/self/fd | wc -l", open_before=open_before))
    assert int(Path(order.out).read_text()) == 4, "and the folder that it lists"


def test_who_has_used_its_share_of_the_processor_is_replaced(
    asks: Callable[..., tuple[int, socket.socket]],
    places: Places,
    order: SoldierOrder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not say that it is done: it could be handed a task that it will not begin."""
    Path(order.program).write_text("#!/bin/sh\n")
    Path(order.program).chmod(0o755)
    monkeypatch.setattr(warm, "MOST_SECONDS", 0.0)
    _, ours = asks(SOON)
    pid, serving = fork(ours)
    hand(serving, places, order, "first")
    wait_until(lambda: stat_fields(pid) is None, SOON, "it ends")
    assert serving.recv(64) == b""
    serving.close()
    ours.close()


def test_nobody_waits_for_the_name_of_a_report_to_be_durable(
    places: Places, order: SoldierOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = serve.Ready(
        order._replace(durability="power"), places, load("command"), Cgroup(places.home, TASK), {}, None, 0.0
    )
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, places.home)
        make_durable = serve._hand_in(ready, RawReport(0, ended=BY_ITSELF))
        assert steps.take() == ["sync drafts", "show state/results"]
        make_durable()
    assert steps.take() == ["sync state/results"]
