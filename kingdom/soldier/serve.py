"""Serve one task: run the engine in its sandbox, end its whole tree, write one raw report.

Standard library only, and as little of it as will do: a soldier must start in milliseconds.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from subprocess import DEVNULL, Popen, SubprocessError, run
from types import FrameType

from kingdom.disk.atomic import Disk
from kingdom.disk.codec import read_json, to_json
from kingdom.errors import BadFile
from kingdom.home import dotenv
from kingdom.home.places import Places
from kingdom.records.soldiers import (
    BY_ITSELF,
    CONSENT,
    NEVER_RAN,
    OVER_LIMIT,
    STOPPED,
    RawReport,
    SoldierOrder,
)
from kingdom.runtime.cgroup import Cgroup
from kingdom.runtime.processes import tree
from kingdom.soldier import limits, sandbox
from kingdom.soldier.limits import Exceeded, Limits
from kingdom.soldiers import engines, streams
from kingdom.soldiers.engines.base import Engine

TAIL_BYTES = 2000
LOOK_MILLISECONDS = 200
TERM_SECONDS = 10.0


class StopRequested(Exception):
    """The general asked this soldier to end."""


class LimitExceeded(Exception):
    """The engine used more than it may."""

    def __init__(self, exceeded: Exceeded) -> None:
        super().__init__(exceeded.why)
        self.exceeded = exceeded


def serve(task_id: str, places: Places, prepared: sandbox.Prepared) -> int:
    os.umask(0o077)
    order = SoldierOrder.from_json(read_json(os.environ["KINGDOM_ORDER"]))
    sandbox.adopt_orphans()
    cgroup = Cgroup(places.home, task_id)
    cgroup.create(order.limits["processes"])
    begun = time.monotonic()
    missing = sandbox.missing() if order.sandbox else None
    if missing is not None and order.external:
        report = _ask_for_consent(order, missing)
    else:
        report = _run(order, engines.load(order.engine), cgroup, places, prepared)
    if _end_tree() + cgroup.kill_all() or report.ended != BY_ITSELF:
        _keep_output(order, places)  # what was ended just now may have printed something more
    seconds = round(time.monotonic() - begun, 3)
    report = report._replace(task_id=task_id, missing_sandbox=missing, seconds=seconds)
    disk = Disk(places.soldier_folder(task_id), durability=order.durability)
    try:
        disk.rewrite(places.raw_result(task_id), to_json(report.to_json()))
    except OSError:
        _make_room(order)
        disk.rewrite(places.raw_result(task_id), to_json(report.to_json()))
    return 0


def _ask_for_consent(order: SoldierOrder, missing: str) -> RawReport:
    """Return a question as the report: without a whole sandbox, words from outside need a person's consent."""
    question = {"status": "needs_human", "question": f"{missing}. {order.question}"}
    return RawReport(order.attempt, ended=NEVER_RAN, output_tail=missing, result=question, asks=CONSENT)


def _run(order: SoldierOrder, engine: Engine, cgroup: Cgroup, places: Places, prepared: sandbox.Prepared) -> RawReport:
    signal.signal(signal.SIGTERM, _stop_requested)
    bounds = Limits(os.environ["KINGDOM_HOME"], order.limits, (order.out, order.err))
    report = RawReport(order.attempt)
    try:
        code = _wait(_spawn(order, engine.argv(order), cgroup, prepared), bounds)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except StopRequested:
        _keep_output(order, places)
        return report._replace(ended=STOPPED, output_tail=_output_tail(order))
    except LimitExceeded as error:
        return _over_limit(order, error.exceeded)
    except SubprocessError as error:
        return report._replace(ended=NEVER_RAN, output_tail=f"its sandbox could not be set up: {error}")
    except OSError as error:
        why = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        return report._replace(ended=NEVER_RAN, output_tail=why)
    if code == -signal.SIGXCPU:
        why = f"a process with more than {order.limits['cpu_seconds']} s of processor time"
        return report._replace(ended=OVER_LIMIT, exit_code=code, output_tail=why)
    _keep_output(order, places)
    report = report._replace(ended=BY_ITSELF, exit_code=code, output_tail=_output_tail(order))
    try:
        result = engine.result(order, code)
    except BadFile as error:
        return report._replace(output_tail=f"its result cannot be read: {error}")
    if result is None and (exceeded := bounds.exceeded_at_end()) is not None:
        return _over_limit(order, exceeded)
    return report._replace(result=result)


def _over_limit(order: SoldierOrder, exceeded: Exceeded) -> RawReport:
    _end_tree()
    if exceeded.limit == limits.DISK:
        _make_room(order)
    return RawReport(order.attempt, ended=OVER_LIMIT, output_tail=exceeded.why)


def _spawn(order: SoldierOrder, argv: list[str], cgroup: Cgroup, prepared: sandbox.Prepared) -> Popen[bytes]:
    def enter() -> None:
        cgroup.join()
        sandbox.enter(order, prepared)

    with open(order.prompt, "rb") as prompt, open(order.out, "ab") as out, open(order.err, "ab") as err:
        return Popen(
            argv,
            stdin=prompt,
            stdout=out,
            stderr=err,
            cwd=order.workspace,
            env={**os.environ, **order.env},
            start_new_session=True,
            preexec_fn=enter,
        )


def _wait(engine: Popen[bytes], bounds: Limits) -> int:
    ended = select.poll()
    ended.register(os.pidfd_open(engine.pid), select.POLLIN)
    try:
        while not ended.poll(LOOK_MILLISECONDS):
            _reap_orphans(engine.pid)
            if (exceeded := bounds.exceeded()) is not None:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                raise LimitExceeded(exceeded)
    except StopRequested:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGTERM)
        ended.poll(TERM_SECONDS * 1000)
        raise
    return engine.wait()


def _reap_orphans(engine: int) -> None:
    """Reap the processes that we adopted: else they would fill the process table."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != engine:
            os.waitpid(ended.si_pid, 0)


def _keep_output(order: SoldierOrder, places: Places) -> None:
    """Hide secrets in what the engine printed. `.env` is read only now: no process beside a running engine knows it."""
    secrets: Iterable[str] = ()
    with suppress(OSError, BadFile):
        secrets = dotenv.lines(places)[0].values()
    streams.repair(order, secrets)


def _make_room(order: SoldierOrder) -> None:
    """Delete what this soldier made: on a full disk not even its report could be written."""
    run(["rm", "-rf", "--", *order.may_write], stderr=DEVNULL, check=False)
    os.mkdir(os.path.dirname(order.result_path), 0o700)
    for stream in (order.out, order.err):
        os.chmod(stream, 0o600)
        os.truncate(stream, 0)


def _end_tree() -> int:
    """Kill what a soldier has left, and return how many processes: what was orphaned has become ours. Stopped first,
    they cannot flee.

    Without a child there is no descendant either, and the processes of the machine need not be looked through.
    """
    ended = 0
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                ended += 1
                continue
            left = tree(os.getpid())
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            os.waitpid(-1, 0)
            ended += 1
    return ended


def _output_tail(order: SoldierOrder) -> str:
    """Return the end of what the engine printed, for the reason of a failure."""
    for stream in (order.err, order.out):
        with suppress(OSError), open(stream, "rb") as log:
            log.seek(-min(TAIL_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            if tail := log.read().strip():
                return tail.decode("utf-8", "replace")
    return ""


def _stop_requested(_number: int, _frame: FrameType | None) -> None:
    raise StopRequested
