"""Serve one task: run the engine in its sandbox, end its whole tree, write one raw report.

Standard library only, and as little of it as will do: a soldier must start in milliseconds.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import NamedTuple, NoReturn, Self

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.errors import BadFile
from kingdom.base.home import dotenv
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import BY_ITSELF, CONSENT, NEVER_RAN, OVER_LIMIT, STOPPED, RawReport, SoldierOrder
from kingdom.base.runtime.cgroup import Cgroup, OpenGroup
from kingdom.base.runtime.processes import tree
from kingdom.court.soldier import launch, limits, sandbox
from kingdom.court.soldier.limits import Exceeded, Limits
from kingdom.court.soldiers import engines, streams
from kingdom.court.soldiers.disk_space import why_full
from kingdom.court.soldiers.engines.base import Engine

TAIL_BYTES = 2000
LOOK_MILLISECONDS = 200
TERM_SECONDS = 10.0
MOST_FILES = 1 << 16
"""Where closing files by number ends, on a machine that cannot close a range of them."""
LARGEST_LASTING_MB = 16
"""What a soldier may make in folders that outlive it, in one file and in all, once the disk is full."""
INODE_KB = 4
"""What a file takes beside its bytes, at most."""
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Streams(NamedTuple):
    """What an engine finds open: the prompt, and the logs of what it prints."""

    prompt: int
    out: int
    err: int

    @classmethod
    def of(cls, order: SoldierOrder) -> Self:
        """Open them."""
        opened = [os.open(order.prompt, os.O_RDONLY | os.O_CLOEXEC)]
        try:
            opened += [os.open(stream, _APPEND, 0o600) for stream in (order.out, order.err)]
        except OSError:
            os.close(opened[0])
            raise
        return cls(*opened)

    def close(self) -> None:
        for fd in self:
            os.close(fd)


class Ready(NamedTuple):
    """What serving a task takes."""

    order: SoldierOrder
    places: Places
    engine: Engine
    cgroup: Cgroup
    #: Of the engine's program.
    environment: Mapping[str, str]
    #: What this kernel lacks for a whole sandbox.
    missing: str | None
    #: When it was begun, by the monotonic clock.
    begun: float

    @classmethod
    def of(cls, environment: Mapping[str, str], places: Places) -> Self:
        """Read the order that the environment names, and make its control group."""
        begun = time.monotonic()
        order = SoldierOrder.from_json(read_json(environment["KINGDOM_ORDER"]))
        cgroup = Cgroup(places.home, order.task_id)
        cgroup.create(order.limits["processes"])
        missing = sandbox.missing() if order.sandbox else None
        whole = {**environment, **order.env}
        return cls(order, places, engines.load(order.engine), cgroup, whole, missing, begun)


class NotStarted(Exception):
    """An engine's program could not be started."""


class StopRequested(Exception):
    """The general asked this soldier to end."""


class LimitExceeded(Exception):
    """The engine used more than it may."""

    def __init__(self, exceeded: Exceeded) -> None:
        super().__init__(exceeded.why)
        self.exceeded = exceeded


def serve(ready: Ready, prepared: sandbox.Prepared) -> Callable[[], None]:
    """Serve a task to its end. Return what makes its report's name durable, for which nobody has to wait."""
    order = ready.order
    sandbox.adopt_orphans()
    if ready.missing is not None and order.external:
        report, peak_mb = _ask_for_consent(order, ready.missing), 0
    else:
        report, peak_mb = _run(ready, prepared)
    _end_tree()
    ready.cgroup.kill_all()
    report = _concluded(ready, report, peak_mb)
    try:
        return _hand_in(ready, report)
    except OSError:
        _make_room(order)
        return _hand_in(ready, report)


def _concluded(ready: Ready, report: RawReport, peak_mb: int) -> RawReport:
    """Return the report with all that an ended run has left, after hiding secrets in what it printed."""
    order = ready.order
    _keep_output(order, ready.places)
    if report.ended == STOPPED:
        report = report._replace(output_tail=_output_tail(order))
    elif report.ended == BY_ITSELF:
        report = _with_result(ready, report, peak_mb)
    seconds = round(time.monotonic() - ready.begun, 3)
    return report._replace(task_id=order.task_id, missing_sandbox=ready.missing, seconds=seconds)


def _hand_in(ready: Ready, report: RawReport) -> Callable[[], None]:
    """Write the report where the general looks for it. Return what makes its name durable."""
    order, places = ready.order, ready.places
    disk = Disk(places.soldier_folder(order.task_id), durability=order.durability)
    path = places.raw_result(order.task_id)
    with disk.drafts([(path, to_json(report.to_json()))]) as (written,):
        disk.show_changed(written, sync=False)
    return partial(disk.sync_names, [path])


def _ask_for_consent(order: SoldierOrder, missing: str) -> RawReport:
    """Return a question as the report: without a whole sandbox, words from outside need a person's consent."""
    question = {"status": "needs_human", "question": f"{missing}. {order.question}"}
    return RawReport(order.attempt, ended=NEVER_RAN, output_tail=missing, result=question, asks=CONSENT)


def _run(ready: Ready, prepared: sandbox.Prepared) -> tuple[RawReport, int]:
    """Run the engine's program. Return how it ended, and the most memory that one of its processes had, in MB."""
    order = ready.order
    bounds = Limits(str(ready.places.home), order.limits, (order.out, order.err))
    report = RawReport(order.attempt)
    try:
        signal.signal(signal.SIGTERM, _stop_requested)
        code, peak_mb = _wait(_spawn(ready, prepared), bounds, prepared)
        # Here too: an end that is asked for just before would be raised in `finally`, where nobody catches it.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except StopRequested:
        return report._replace(ended=STOPPED), 0
    except LimitExceeded as error:
        _end_tree()
        return _over_limit(order, error.exceeded), 0
    except NotStarted as error:
        return report._replace(ended=NEVER_RAN, output_tail=str(error)), 0
    except OSError as error:
        why = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        return report._replace(ended=NEVER_RAN, output_tail=why), 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, launch.HANDLED)
    if code == -signal.SIGXCPU:
        why = f"a process with more than {order.limits['cpu_seconds']} s of processor time"
        return report._replace(ended=OVER_LIMIT, exit_code=code, output_tail=why), peak_mb
    return report._replace(ended=BY_ITSELF, exit_code=code), peak_mb


def _with_result(ready: Ready, report: RawReport, peak_mb: int) -> RawReport:
    """Return the report of an engine that has ended by itself with its last words and its result."""
    order = ready.order
    report = report._replace(output_tail=_output_tail(order))
    try:
        result = ready.engine.result(order, report.exit_code or 0)
    except BadFile as error:
        return report._replace(output_tail=f"its result cannot be read: {error}")
    if result is None:
        bounds = Limits(str(ready.places.home), order.limits, (order.out, order.err))
        if (exceeded := bounds.exceeded_at_end(peak_mb)) is not None:
            return _over_limit(order, exceeded)
    return report._replace(result=result)


def _over_limit(order: SoldierOrder, exceeded: Exceeded) -> RawReport:
    if exceeded.limit == limits.DISK:
        _make_room(order)
    return RawReport(order.attempt, ended=OVER_LIMIT, output_tail=exceeded.why)


def _spawn(ready: Ready, prepared: sandbox.Prepared, *, by_fork: bool = False) -> int:
    """Start the engine's program in its sandbox, and return its pid once it runs. NotStarted says why it does not.

    `by_fork` forks also where a launch is possible. Without `subprocess`, as `threading`, which that loads,
    makes each fork dearer by half.
    """
    argv, streams = ready.engine.argv(ready.order), Streams.of(ready.order)
    start = _forked if by_fork or not (sandbox.may_enter_by_thread() and launch.prepare()) else _launched
    # An end that is asked for has to wait until `_wait`: what is started in that moment we would not know.
    signal.pthread_sigmask(signal.SIG_BLOCK, launch.HANDLED)
    try:
        return start(ready, argv, prepared, streams)
    except NotStarted:
        raise
    except Exception as error:
        # Whatever it is: the program must not run in half a sandbox.
        raise NotStarted(f"its sandbox could not be set up: {error}") from error
    finally:
        streams.close()


def _launched(ready: Ready, argv: list[str], prepared: sandbox.Prepared, streams: Streams) -> int:
    """Start it from a thread that has entered the sandbox, and has ended when it runs.

    A program in the same sandbox could trace that thread, and write into our memory. From inside no control group can
    be opened.
    """
    starting, group = launch.Launch(argv, ready.environment, streams), ready.cgroup.open()
    try:
        pid = sandbox.in_thread(ready.order, prepared, partial(_joined, group, starting))
        sandbox.limit(pid, ready.order, prepared)
        try:
            starting.go()
        except OSError as error:
            raise NotStarted(f"{error.strerror}: {error.filename}") from error
        return pid
    finally:
        starting.close()
        if group is not None:
            os.close(group.fd)


def _joined(group: OpenGroup | None, starting: launch.Launch) -> int:
    """Start a process in the control group. Our thread enters it first where one can, else the new process does."""
    if group is None or not group.takes_threads:
        return starting.fork(group and group.fd)
    os.write(group.fd, b"0")
    return starting.fork(None)


def _forked(ready: Ready, argv: list[str], prepared: sandbox.Prepared, streams: Streams) -> int:
    """Fork a process that enters the sandbox itself, and return its pid once the engine's program runs.

    What goes wrong is told by a pipe, which closes when the program starts.
    """
    problem, tell = os.pipe2(os.O_CLOEXEC)
    with open(problem, "rb", buffering=0) as told:
        try:
            pid = os.fork()
            if pid == 0:
                _become(ready, argv, prepared, streams, tell)
        finally:
            os.close(tell)
        if why := told.read(TAIL_BYTES):
            os.waitpid(pid, 0)
            raise NotStarted(why.decode("utf-8", "replace"))
    return pid


def _become(ready: Ready, argv: list[str], prepared: sandbox.Prepared, streams: Streams, tell: int) -> NoReturn:
    """Become the engine's program."""
    try:
        for number in launch.DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, launch.HANDLED)
        os.setsid()
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        if (group := ready.cgroup.open()) is not None:
            with suppress(OSError):
                os.write(group.fd, b"0")
        os.chdir(ready.order.workspace)
        try:
            sandbox.enter(ready.order, prepared)
            sandbox.limit(0, ready.order, prepared)
            sandbox.die_with_parent()
        except Exception as error:  # noqa: BLE001
            # As above: not in half a sandbox.
            os.write(tell, f"its sandbox could not be set up: {error}".encode())
            os._exit(1)
        os.closerange(3, tell)
        os.closerange(tell + 1, MOST_FILES)
        os.execvpe(argv[0], argv, ready.environment)
    except OSError as error:
        os.write(tell, f"{error.strerror}: {error.filename or argv[0]}".encode())
    finally:
        os._exit(1)


def _wait(engine: int, bounds: Limits, prepared: sandbox.Prepared) -> tuple[int, int]:
    """Wait for the engine's end within its limits. Return its exit code and the peak of its memory in MB.

    The code is less than 0 for the signal that ended it.
    """
    ended, process, peak_kb = select.poll(), os.pidfd_open(engine), 0
    ended.register(process, select.POLLIN)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, launch.HANDLED)
        while not ended.poll(LOOK_MILLISECONDS):
            prepared.close_old()
            peak_kb = max(peak_kb, _reap_orphans(engine))
            if (exceeded := bounds.exceeded()) is not None:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                raise LimitExceeded(exceeded)
    except StopRequested:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(ProcessLookupError):
            os.killpg(engine, signal.SIGTERM)
        ended.poll(TERM_SECONDS * 1000)
        raise
    finally:
        os.close(process)
    _, status, used = os.wait4(engine, 0)
    return os.waitstatus_to_exitcode(status), max(peak_kb, used.ru_maxrss) >> 10


def _reap_orphans(engine: int) -> int:
    """Reap the processes that we adopted: else they would fill the process table. Return their peak of memory in kB."""
    peak_kb = 0
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != engine:
            peak_kb = max(peak_kb, os.wait4(ended.si_pid, 0)[2].ru_maxrss)
    return peak_kb


def _keep_output(order: SoldierOrder, places: Places) -> None:
    """Hide secrets in what the engine printed. `.env` is read only now: no process beside a running engine knows it."""
    secrets: Iterable[str] = ()
    with suppress(OSError, BadFile):
        secrets = dotenv.lines(places)[0].values()
    streams.repair(order, secrets)


def _make_room(order: SoldierOrder) -> None:
    """Delete what this soldier made: on a full disk not even its report could be written."""
    from subprocess import DEVNULL, PIPE, run  # seldom, and see `_spawn`

    own = [path for path in order.may_write if path not in order.lasting]
    run(["rm", "-rf", "--", *own], stderr=DEVNULL, check=False)
    if order.lasting:
        made = ["find", *order.lasting, "-xdev", "-type", "f", "-cnewer", order.prompt]
        run([*made, "-size", f"+{LARGEST_LASTING_MB}M", "-delete"], stderr=DEVNULL, check=False)
        blocks = run([*made, "-printf", "%b\n"], stdout=PIPE, stderr=DEVNULL, check=False).stdout.split()
        kilobytes = sum(int(number) / 2 + INODE_KB for number in blocks)
        if kilobytes > LARGEST_LASTING_MB << 10 and why_full(order.lasting[0]):
            run([*made, "-delete"], stderr=DEVNULL, check=False)
    os.mkdir(os.path.dirname(order.result_path), 0o700)
    for stream in (order.out, order.err):
        os.chmod(stream, 0o600)
        os.truncate(stream, 0)


def _end_tree() -> None:
    """Kill the processes that a soldier has left: orphans are our children. They are stopped first, so that none forks.

    Without a child there is no descendant either, and the processes of the machine need not be looked through.
    """
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            left = tree(os.getpid())
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            os.waitpid(-1, 0)


def _output_tail(order: SoldierOrder) -> str:
    """Return the end of what the engine printed, for the reason of a failure."""
    for stream in (order.err, order.out):
        with suppress(OSError):
            if os.stat(stream).st_size == 0:
                continue
            with open(stream, "rb") as log:
                log.seek(-min(TAIL_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
                if tail := log.read().strip():
                    return tail.decode("utf-8", "replace")
    return ""


def _stop_requested(_number: int, _frame: FrameType | None) -> None:
    raise StopRequested
