"""A process that has loaded what serving a soldier takes, and forks one serving process for each request.

Its general starts it when there is work. It ends after a minute without, and with its general. What it forks is a
serving process like any other: in a session of its own, under the lock that came with the request. Only the report on
an engine that has ended well it leaves to this process, for which nothing that it touches has to be copied first.
Standard library only, as for all that serves a soldier.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from kingdom.disk.codec import read_json_or
from kingdom.errors import BadFile, LockLost
from kingdom.home.places import Places, find_home
from kingdom.records.soldiers import BY_ITSELF, RawReport
from kingdom.runtime.processes import end_with_parent, environment_memory, overwrite_environment
from kingdom.soldier.sandbox import Prepared
from kingdom.soldier.serve import Ended, Ready, Streams, concluded, hand_in, serve

IDLE_SECONDS = 60.0
MOST_AT_ONCE = 16
"""Requests that are made ready before the first of them is forked: after each fork all that we touch is copied."""
PATIENCE_SECONDS = 30.0
"""A serving process whose report is not written for so long ends this process, and writes it itself."""
LARGEST_REQUEST = 1 << 20
LARGEST_PART = 1 << 16
_DO_IT_YOURSELF = signal.SIGUSR1


class Declined(Exception):
    """The warm server cannot write a report."""


def serve_warm(descriptor: int) -> int:
    """Fork a serving process for each request on this socket, and answer with its pid, until there are no more."""
    end_with_parent(signal.SIGKILL)
    os.umask(0o077)
    os.chdir(find_home())
    gc.disable()  # a collection in a process that was forked would copy all that it looks at
    environment_memory()
    general = socket.socket(fileno=descriptor)
    general.setblocking(False)  # few answers are waited for at a time: there is always room for one more
    server = _Server(general)
    news = select.poll()
    for source in (general.fileno(), server.endings):
        news.register(source, select.POLLIN)
    while found := news.poll(IDLE_SECONDS * 1000):
        if any(source == server.endings for source, _ in found):
            server.conclude()
        if any(source == general.fileno() for source, _ in found) and not server.start_next_group():
            break
    return 0


class _Server:
    def __init__(self, general: socket.socket) -> None:
        self._general = general
        self._places, self._prepared = Places(find_home()), Prepared()
        self._at_work: dict[int, Ready] = {}
        """What the serving processes work by, by their pids."""
        self._itself = os.pidfd_open(os.getpid())
        self.endings, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def start_next_group(self) -> bool:
        """Fork a serving process for each request that waits. Return False when there are no more to come."""
        requests: list[tuple[Mapping[str, Any], int]] = []
        with suppress(BlockingIOError):
            while len(requests) < MOST_AT_ONCE:
                if (found := _next_request(self._general)) is None:
                    return False
                requests.append(found)
        made = [(self._make_ready(request), self._prepared.take_rules()) for request, _ in requests]
        for _, lock in requests:
            os.set_inheritable(lock, False)
        while requests:
            request, lock = requests.pop(0)
            ready, self._prepared.rules = made.pop(0)
            pid = os.fork()
            if pid == 0:
                self._general.close()
                for _, other in requests:
                    os.close(other)
                os._exit(self._become(request, ready))
            os.close(lock)
            self._general.send(b"%d" % pid)
            self._prepared.drop_rules()
            if ready is not None:
                if ready.streams is not None:
                    ready.streams.close()
                self._at_work[pid] = ready
        self._reap()
        return True

    def conclude(self) -> None:
        """Write the reports on engines that have ended, and end the processes that served them, with their locks."""
        for line in os.read(self.endings, LARGEST_PART).splitlines():
            pid, code, peak_mb = map(int, line.split())
            ready = self._at_work.get(pid)
            if ready is None:
                continue
            try:
                report = concluded(ready, RawReport(ready.order.attempt, ended=BY_ITSELF, exit_code=code), peak_mb)
                hand_in(ready, report, partial(_check_alive, pid))
            except LockLost:
                continue
            except Exception:  # noqa: BLE001
                # Whatever it is, the process that serves meets it too, and says it where a general looks.
                os.kill(pid, _DO_IT_YOURSELF)
            else:
                os.kill(pid, signal.SIGKILL)
        self._reap()

    def _make_ready(self, request: Mapping[str, Any]) -> Ready | None:
        """Return what serving takes. None when something is wrong: the process that serves meets it, and says it."""
        with suppress(OSError, BadFile, KeyError, TypeError):
            ready = Ready.of(request["environment"], self._places)
            with suppress(OSError):
                ready = ready._replace(streams=Streams.of(ready.order))
                self._prepared.make_rules(ready.order)
            return ready
        return None

    def _become(self, request: Mapping[str, Any], ready: Ready | None) -> int:
        """Act as the serving process that the command line would start, and return its exit code."""
        # First of all what it is known by: from here on whoever looks for this task's processes finds it.
        overwrite_environment(request["environment"])
        os.setsid()
        try:
            ready = ready or Ready.of(request["environment"], self._places)
            if ready.engine.is_model:  # whose output may be long, and whose command line depends on the environment
                os.environ.clear()
                os.environ.update(request["environment"])
                serve(ready, self._prepared)
            else:
                serve(ready, self._prepared, partial(self._leave, ready))
        except BaseException:  # noqa: BLE001
            # The edge of a process: what is wrong stands where a general looks for it.
            import traceback  # seldom, and large

            with open(request["errors"], "w", encoding="utf-8") as errors:
                traceback.print_exc(file=errors)
            return 1
        return 0

    def _leave(self, ready: Ready, ended: Ended) -> bool:
        """Leave the report to the warm server, which then ends this process.

        Return whether the report is there, should the server have been killed just before that.
        """
        server = select.poll()
        server.register(self._itself, select.POLLIN)
        try:
            signal.signal(_DO_IT_YOURSELF, _declined)
            os.write(self._tell, b"%d %d %d\n" % (os.getpid(), ended.exit_code, ended.peak_mb))
            if not server.poll(PATIENCE_SECONDS * 1000):
                signal.pidfd_send_signal(self._itself, signal.SIGKILL)
                server.poll()
        except (Declined, BlockingIOError):
            return False
        report = read_json_or(self._places.raw_result(ready.order.task_id), {})
        return report.get("attempt") == ready.order.attempt

    def _reap(self) -> None:
        """Reap earlier serving processes. Not before an answer: until then their pids must not be used again."""
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._at_work.pop(pid, None)


def _next_request(general: socket.socket) -> tuple[Mapping[str, Any], int] | None:
    """Return the next request and the lock that came with it; None when no more can come. BlockingIOError: not now."""
    data, locks, _, _ = socket.recv_fds(general, LARGEST_REQUEST, 1)
    return (json.loads(data), locks[0]) if data else None


def _check_alive(pid: int) -> None:
    """Raise LockLost when a serving process has been ended: its general does not wait for a report any more."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        raise LockLost(path=f"/proc/{pid}", role="a soldier")


def _declined(*_: object) -> None:
    raise Declined
