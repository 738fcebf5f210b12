"""One task served: run the engine in its cage, see its tree to the end, write one raw result.

Standard library only, and as little of it as will do: a soldier must start in milliseconds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from types import FrameType
from typing import Any

from kingdom.atomic import Disk, read_bytes, read_json, to_json
from kingdom.errors import BadFile
from kingdom.places import Places, find_home
from kingdom.processes import children, started_at
from kingdom.soldier import cage
from kingdom.soldier.engines import ENGINES
from kingdom.soldier.engines.base import Engine

SEEN_BYTES = 2000
TERM_SECONDS = 10.0


class Told(Exception):
    """The general asked this soldier to end."""


def serve(task_id: str) -> int:
    os.umask(0o077)
    places = Places(find_home())
    room = places.soldier(task_id)
    disk = Disk(room / "tmp", durability="process")
    order = read_json(room / "order.json")
    cage.adopt_orphans()
    begun = time.monotonic()
    disk.rewrite(room / "started", to_json(_who(order)))
    report = _run(order, _engine(str(order["engine"])))
    _end_tree()
    report |= {"task_id": task_id, "attempt": order["attempt"], "seconds": round(time.monotonic() - begun, 3)}
    Disk(room / "tmp").rewrite(places.raw_result(task_id), to_json(report))
    return 0


def _run(order: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, _told)
    try:
        code = _wait(_spawn(order, engine.argv(order)))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except Told:
        return {"ended": "told to", "code": None, "result": None, "seen": _seen(order)}
    except OSError as trouble:
        return {"ended": "never ran", "code": None, "result": None, "seen": f"{trouble.strerror}: {trouble.filename}"}
    report: dict[str, Any] = {"ended": "by itself", "code": code, "seen": _seen(order)}
    try:
        return report | {"result": engine.result(order, code)}
    except BadFile as trouble:
        return report | {"result": None, "seen": f"its result cannot be read: {trouble}"}


def _spawn(order: Mapping[str, Any], argv: list[str]) -> Popen[bytes]:
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
                preexec_fn=lambda: cage.enter(order["limits"]),
            )
        finally:
            os.close(out)
            os.close(err)


def _wait(engine: Popen[bytes]) -> int:
    try:
        return engine.wait()
    except Told:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGTERM)
        with suppress(TimeoutExpired):
            engine.wait(TERM_SECONDS)
        raise


def _end_tree() -> None:
    """Nothing of a soldier outlives its task: what was orphaned has become our child."""
    while left := children(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _seen(order: Mapping[str, Any]) -> str:
    """The end of what the engine said, for the reason of a failure."""
    for stream in ("err", "out"):
        with suppress(OSError, BadFile):
            said = read_bytes(Path(order[stream]), 1 << 30)[-SEEN_BYTES:]
            if said.strip():
                return said.decode("utf-8", "replace").strip()
    return ""


def _who(order: Mapping[str, Any]) -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "start": started_at(pid), "attempt": order["attempt"], "soldier": order["soldier"]}


def _engine(name: str) -> Engine:
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)()
    return engine


def _told(_number: int, _frame: FrameType | None) -> None:
    raise Told
