"""A process that has loaded what serving soldiers takes, and the serving processes that it forks.

Its general starts it when there is work, and gets from it serving processes, each with a socket of its own. They serve
one task after the other: in a session of their own, each task under the lock that came with its request. All of them
end after a minute without work, and with their general, but not before a task is served. Standard library only.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kingdom.base.home.places import Places, find_home
from kingdom.base.runtime.processes import end_with_parent, environment_memory, overwrite_environment
from kingdom.court.soldier.sandbox import FRESH_SECONDS, Prepared, go_first
from kingdom.court.soldier.serve import Ready, serve

BEGUN, DONE = b"begun", b"done"
"""What a serving process says of a task: it has the lock and shows the markers; it has given both back."""
IDLE_SECONDS = 60.0
MOST_SECONDS = 1.0
"""A serving process that has used so much processor time itself is replaced: its engines' limits are its own while it
starts them, and the least limit is a second more than this."""
LARGEST_REQUEST = 1 << 20


def serve_warm(descriptor: int) -> int:
    """Fork a serving process for each request on this socket, and answer with its socket, until there are no more."""
    end_with_parent(signal.SIGKILL)
    os.umask(0o077)
    os.chdir(find_home())
    environment_memory()
    gc.freeze()  # else a collection in a process that was forked would copy all that it looks at
    general = socket.socket(fileno=descriptor)
    while _has_news(general, IDLE_SECONDS) and general.recv(1):
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                general.close()
                its.close()
                os.setsid()
                os._exit(serve_requests(ours))
            finally:
                os._exit(1)
        ours.close()
        socket.send_fds(general, [b"%d" % pid], [its.fileno()])
        its.close()
        # Not before the answer: until then no pid must be used again.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return 0


def serve_requests(general: socket.socket) -> int:
    """Serve one task after the other until there are no more, and return the exit code."""
    go_first()
    places, prepared = Places(find_home()), Prepared()
    while _has_request(general, prepared):
        data, locks, _, _ = socket.recv_fds(general, LARGEST_REQUEST, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            break
        request = json.loads(data)
        # First of all what it is known by: from here on whoever looks for this task's processes finds it.
        overwrite_environment(request["environment"])
        with suppress(OSError):
            general.send(BEGUN)
        make_durable = _serve(request, places, prepared)
        if make_durable is None:
            return 1
        overwrite_environment({"KINGDOM_HOME": str(places.home)})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(locks[0])
        goes_on = time.process_time() < MOST_SECONDS
        try:
            if goes_on:  # else its end says that it is done: after DONE it could be sent a task
                general.send(DONE)
        except OSError:  # its general is gone: the next one has its own
            goes_on = False
        with suppress(OSError):
            make_durable()
        if not goes_on:
            break
    return 0


def _has_request(general: socket.socket, prepared: Prepared) -> bool:
    if _has_news(general, FRESH_SECONDS):
        return True
    prepared.close_old()
    return _has_news(general, IDLE_SECONDS)


def _has_news(general: socket.socket, seconds: float) -> bool:
    news = select.poll()
    news.register(general.fileno(), select.POLLIN)
    return bool(news.poll(seconds * 1000))


def _serve(request: Mapping[str, Any], places: Places, prepared: Prepared) -> Callable[[], None] | None:
    """Serve a task. Return None after an error, which is told where a general looks for it."""
    try:
        ready = Ready.of(request["environment"], places)
        with _environment(request["environment"] if ready.engine.is_model else {}):
            return serve(ready, prepared)
    except BaseException:  # noqa: BLE001
        # The edge of a process.
        import traceback  # seldom, and large

        with open(request["errors"], "w", encoding="utf-8") as errors:
            traceback.print_exc(file=errors)
        return None


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Have these variables for a while: the command line of a model depends on them."""
    before = dict(os.environ) if more else {}
    os.environ.update(more)
    try:
        yield
    finally:
        if more:
            os.environ.clear()
            os.environ.update(before)
