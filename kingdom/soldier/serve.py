"""One task served: run the engine in its cage, see its tree to the end, write one raw result.

Standard library only, and as little of it as will do: a soldier must start in milliseconds.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from subprocess import DEVNULL, Popen, SubprocessError, run
from types import FrameType
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.disk.codec import read_json, to_json
from kingdom.errors import BadFile
from kingdom.home.places import Places, find_home
from kingdom.runtime.cgroup import Cgroup
from kingdom.runtime.processes import tree
from kingdom.soldier import cage
from kingdom.soldier.limits import DISK, MOST_SAID, TALK, Watch
from kingdom.soldiers.engines import ENGINES
from kingdom.soldiers.engines.base import Engine

SEEN_BYTES = 2000
LOOK_MILLISECONDS = 200
TERM_SECONDS = 10.0


class Told(Exception):
    """The general asked this soldier to end."""


class Excess(Exception):
    """The engine took more than it may."""


def serve(task_id: str) -> int:
    os.umask(0o077)
    places = Places(find_home())
    order = read_json(os.environ["KINGDOM_ORDER"])
    cage.adopt_orphans()
    cgroup = Cgroup(places.home, task_id)
    cgroup.create(order["limits"]["processes"])
    begun = time.monotonic()
    lacking = cage.missing() if order["sandbox"] else None
    report = _refusal(order, lacking) or _run(order, _engine(str(order["engine"])), cgroup)
    _end_tree()
    cgroup.kill_all()
    report |= {"task_id": task_id, "attempt": order["attempt"], "lacking": lacking}
    report["seconds"] = round(time.monotonic() - begun, 3)
    disk = Disk(places.soldier_folder(task_id))
    try:
        disk.rewrite(places.raw_result(task_id), to_json(report))
    except OSError:
        _make_room(order)
        disk.rewrite(places.raw_result(task_id), to_json(report))
    return 0


def _refusal(order: Mapping[str, Any], lacking: str | None) -> dict[str, Any] | None:
    """Without a whole cage, words from outside are not obeyed before a person has said so."""
    if lacking is None or not order["external"]:
        return None
    asks = {"status": "needs_human", "question": f"{lacking}. {order['question']}"}
    return {"ended": "never ran", "code": None, "seen": lacking, "result": asks, "asks": "consent"}


def _run(order: Mapping[str, Any], engine: Engine, cgroup: Cgroup) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, _told)
    watch = Watch(os.environ["KINGDOM_HOME"], order["limits"], (order["out"], order["err"]))
    try:
        code = _wait(_spawn(order, engine.argv(order), cgroup), watch)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except Told:
        return {"ended": "told to", "code": None, "result": None, "seen": _seen(order)}
    except Excess as excess:
        return _exceeded(order, str(excess))
    except SubprocessError as trouble:
        return {"ended": "never ran", "code": None, "result": None, "seen": f"its cage could not be shut: {trouble}"}
    except OSError as trouble:
        seen = f"{trouble.strerror}: {trouble.filename}" if trouble.filename else str(trouble)
        return {"ended": "never ran", "code": None, "result": None, "seen": seen}
    if code == -signal.SIGXCPU:
        seen = f"a process with more than {order['limits']['cpu_seconds']} s of processor time"
        return {"ended": "resource", "code": code, "result": None, "seen": seen}
    report: dict[str, Any] = {"ended": "by itself", "code": code, "seen": _seen(order)}
    try:
        result = engine.result(order, code)
        if result is None and (taken := watch.taken()) is not None:
            return _exceeded(order, taken)
        return report | {"result": result}
    except BadFile as trouble:
        return report | {"result": None, "seen": f"its result cannot be read: {trouble}"}


def _exceeded(order: Mapping[str, Any], excess: str) -> dict[str, Any]:
    _end_tree()
    if excess.startswith(DISK):
        _make_room(order)
    elif excess.startswith(TALK):
        for stream in ("out", "err"):
            with open(order[stream], "ab") as log:
                log.truncate(min(MOST_SAID, log.tell()))
    return {"ended": "resource", "code": None, "result": None, "seen": excess}


def _spawn(order: Mapping[str, Any], argv: list[str], cgroup: Cgroup) -> Popen[bytes]:
    def enter() -> None:
        cgroup.join()
        cage.enter(order)

    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    out, err = (os.open(order[stream], append, 0o600) for stream in ("out", "err"))
    with open(order["prompt"], "rb") as prompt:
        try:
            return Popen(
                argv,
                stdin=prompt,
                stdout=out,
                stderr=err,
                cwd=order["workspace"],
                env={**os.environ, **order["env"]},
                start_new_session=True,
                preexec_fn=enter,
            )
        finally:
            os.close(out)
            os.close(err)


def _wait(engine: Popen[bytes], watch: Watch) -> int:
    ended = select.poll()
    ended.register(os.pidfd_open(engine.pid), select.POLLIN)
    try:
        while not ended.poll(LOOK_MILLISECONDS):
            _bury_orphans(engine.pid)
            if (excess := watch.excess()) is not None:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                raise Excess(excess)
    except Told:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGTERM)
        ended.poll(TERM_SECONDS * 1000)
        raise
    return engine.wait()


def _bury_orphans(engine: int) -> None:
    """Those that we adopted and that have ended: else they would fill the table of processes."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != engine:
            os.waitpid(ended.si_pid, 0)


def _make_room(order: Mapping[str, Any]) -> None:
    """On a full disk not even the report can be written: what this soldier made has to go."""
    run(["rm", "-rf", "--", *order["may_write"]], stderr=DEVNULL, check=False)
    os.mkdir(os.path.dirname(order["result_path"]), 0o700)
    for stream in ("out", "err"):
        os.truncate(order[stream], 0)


def _end_tree() -> None:
    """Nothing of a soldier outlives its task: what was orphaned has become ours. Stopped first, it cannot flee."""
    while left := tree(os.getpid()):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _seen(order: Mapping[str, Any]) -> str:
    """The end of what the engine said, for the reason of a failure."""
    for stream in ("err", "out"):
        with suppress(OSError), open(order[stream], "rb") as log:
            log.seek(-min(SEEN_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            if said := log.read().strip():
                return said.decode("utf-8", "replace")
    return ""


def _engine(name: str) -> Engine:
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)()
    return engine


def _told(_number: int, _frame: FrameType | None) -> None:
    raise Told
