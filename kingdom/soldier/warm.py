"""A process that has loaded what serving a soldier takes, and forks one serving process for each request.

Its general starts it when there is work. It ends after a minute without, and with its general. What it forks is a
serving process like any other: in a session of its own, under the lock that came with the request.
Standard library only, as for all that serves a soldier.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kingdom.disk.codec import read_json
from kingdom.errors import BadFile
from kingdom.home.places import Places, find_home
from kingdom.records.soldiers import SoldierOrder
from kingdom.runtime.processes import end_with_parent, overwrite_environment
from kingdom.soldier.sandbox import Prepared
from kingdom.soldier.serve import serve
from kingdom.soldiers import engines

IDLE_SECONDS = 60.0
LARGEST_REQUEST = 1 << 20


def serve_warm(descriptor: int) -> int:
    """Fork a serving process for each request on this socket, and answer with its pid, until there are no more."""
    end_with_parent(signal.SIGKILL)
    places, prepared = Places(find_home()), Prepared()
    general = socket.socket(fileno=descriptor)
    general.settimeout(IDLE_SECONDS)
    for name in engines.ENGINES:
        engines.load(name)
    gc.disable()  # a collection in a process that was forked would copy all that it looks at
    while (found := _next_request(general)) is not None:
        request, lock = found
        if not prepared.is_fresh:
            with suppress(OSError, BadFile, TypeError):  # then the process that serves this soldier reports it
                order = SoldierOrder.from_json(read_json(request["environment"]["KINGDOM_ORDER"]))
                prepared.renew(order.may_not_read)
        pid = os.fork()
        if pid == 0:
            general.detach()
            os._exit(_become(request, lock, descriptor, places, prepared))
        os.close(lock)
        general.send(b"%d" % pid)
        _reap()
    return 0


def _next_request(general: socket.socket) -> tuple[Mapping[str, Any], int] | None:
    """Return the next request and the lock that came with it; None when there is nothing more to do."""
    try:
        data, locks, _, _ = socket.recv_fds(general, LARGEST_REQUEST, 1)
    except TimeoutError:
        return None
    return (json.loads(data), locks[0]) if data else None


def _reap() -> None:
    """Reap earlier serving processes. Not before the answer: until then their pids must not be used again."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(request: Mapping[str, Any], lock: int, general: int, places: Places, prepared: Prepared) -> int:
    """Act as the serving process that the command line would start, and return its exit code."""
    os.environ.clear()
    os.environ.update(request["environment"])
    # First of all what it is known by: from here on whoever looks for this task's processes finds it.
    overwrite_environment(request["environment"])
    os.setsid()
    os.close(general)
    os.set_inheritable(lock, False)
    os.chdir(request["environment"]["KINGDOM_HOME"])
    errors = os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(errors, sys.stderr.fileno())
    os.close(errors)
    try:
        return serve(request["task"], places, prepared)
    except BaseException:  # noqa: BLE001
        # The edge of a process: what is wrong stands where a general looks for it.
        traceback.print_exc()
        return 1
