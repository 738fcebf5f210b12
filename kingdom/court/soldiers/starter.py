"""Start soldiers: by serving processes that are there and have loaded everything, or each by a Python of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen

from kingdom.base.disk.lock import Lock
from kingdom.base.log import Log
from kingdom.base.runtime.processes import room_for_markers
from kingdom.base.runtime.wake import Alarm

ANSWER_SECONDS = 5.0
"""A warm server, or a serving process, that takes longer than this is replaced: nobody's turn may take long."""
IDLE_SECONDS = 50.0
"""One that has had nothing to do for so long is about to end."""
SLOW_SECONDS = 60.0
"""For so long after a failure soldiers are started the slow way."""
MODULE = (sys.executable, "-P", "-m", "kingdom.soldier")


class ServingProcess:
    """One that was forked from the warm server, and takes one task after the other."""

    def __init__(self, pid: int, its: socket.socket) -> None:
        self.pid = pid
        self.socket = its
        self.idle_since = 0.0
        self._process = os.pidfd_open(pid)
        its.setblocking(False)

    def has_told(self) -> bool:
        """Return whether it has told something: that it has begun its task, then that it is done. OSError: it ended."""
        try:
            told = self.socket.recv(64)
        except BlockingIOError:
            return False
        if not told:
            raise ConnectionResetError
        return True

    def wait_until_begun(self) -> None:
        """Wait until it has begun its task. OSError when it does not."""
        news = select.poll()
        news.register(self.socket, select.POLLIN)
        if not news.poll(ANSWER_SECONDS * 1000):
            raise TimeoutError
        self.has_told()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let it end once it has nothing to do."""
        self.socket.close()
        os.close(self._process)


class Starter:
    """The serving processes of one general. Its warm server comes with the first of them."""

    def __init__(self, home: Path, log: Log, alarm: Alarm) -> None:
        self._home = home
        self._log = log
        self._alarm = alarm
        self._server: Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._idle: list[ServingProcess] = []
        self._busy: dict[int, ServingProcess] = {}
        self._children: list[Popen[bytes]] = []
        self._slow_until = 0.0
        self._last_use = 0.0

    def start(self, environment: Mapping[str, str], errors: Path, lock: Lock) -> ServingProcess | None:
        """Hand a task and its lock to a serving process. None when there is none: then `start_slowly`.

        The alarm rings when it is done.
        """
        if time.monotonic() < self._slow_until:
            return None
        try:
            return self._ask(environment, errors, lock)
        except OSError as error:
            self._fail(error)
            return None

    def wait(self, serving: ServingProcess) -> int | None:
        """Wait until a process has begun its task, and return its pid. None: only the lock tells whether it has."""
        try:
            serving.wait_until_begun()
        except OSError as error:
            self._busy.pop(serving.pid).kill()
            self._fail(error)
            return None
        return serving.pid

    def _fail(self, error: Exception) -> None:
        if time.monotonic() >= self._slow_until:
            self._log.warn(f"starts soldiers directly for {SLOW_SECONDS:.0f} s: a preloaded process {_became(error)}")
        self._slow_until = time.monotonic() + SLOW_SECONDS
        self._close_server()

    def reap(self) -> set[int]:
        """Reap its children, and return the serving processes that are done with their tasks since the last call."""
        self._children = [child for child in self._children if child.poll() is None]
        now, done = time.monotonic(), set()
        for pid, serving in list(self._busy.items()):
            try:
                if not serving.has_told():
                    continue
                serving.idle_since = now
                self._idle.append(serving)
            except OSError:
                serving.close()
            del self._busy[pid]
            done.add(pid)
        while self._idle and now - self._idle[0].idle_since > IDLE_SECONDS:
            self._idle.pop(0).close()
        return done

    def close(self) -> None:
        """End the preloaded processes, but those that have a task, and these after it."""
        self._close_server()
        for serving in (*self._idle, *self._busy.values()):
            serving.close()
        self._idle.clear()
        self._busy.clear()

    def _close_server(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._server is not None:
            self._server.kill()
            self._children.append(self._server)
            self._server = None

    def start_slowly(self, task: str, environment: Mapping[str, str], errors: Path, lock: Lock) -> int:
        """Start it by a Python of its own, and return its pid."""
        with open(errors, "wb") as stderr:
            child = Popen(
                [*MODULE, task],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=stderr,
                env=environment,
                cwd=self._home,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        self._children.append(child)
        return child.pid

    def _ask(self, environment: Mapping[str, str], errors: Path, lock: Lock) -> ServingProcess:
        """Send a task to a serving process. One that has ended meanwhile has not begun it: another one is asked."""
        request = json.dumps({"environment": dict(environment), "errors": str(errors)}).encode()
        while True:
            is_new = not self._idle
            serving = self._new_process() if is_new else self._idle.pop()
            try:
                socket.send_fds(serving.socket, [request], [lock.fileno()])
            except OSError:
                serving.kill()
                if is_new:
                    raise
            else:
                self._busy[serving.pid] = serving
                return serving

    def _new_process(self) -> ServingProcess:
        server = self._warm_server()
        server.send(b"+")
        told, descriptors, _, _ = socket.recv_fds(server, 64, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise ConnectionResetError
        serving = ServingProcess(int(told), socket.socket(fileno=descriptors[0]))
        self._alarm.add(serving.socket.fileno())
        return serving

    def _warm_server(self) -> socket.socket:
        """Return the socket of the warm server; a new one when there is none or when it was idle for long."""
        idle = time.monotonic() - self._last_use
        self._last_use += idle
        if self._socket is not None and idle < IDLE_SECONDS:
            return self._socket
        self._close_server()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._server = Popen(
                [*MODULE, "--warm", str(its.fileno())],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                env=self._environment(),
                cwd=self._home,
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )
        ours.settimeout(ANSWER_SECONDS)
        self._socket = ours
        return ours

    def _environment(self) -> dict[str, str]:
        """Return the variables that the server itself is started with: no secrets."""
        ours = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
        return {**ours, "KINGDOM_HOME": str(self._home), "KINGDOM_ROOM": room_for_markers(self._home)}


def _became(error: Exception) -> str:
    """Say what became of a process from which an answer was awaited."""
    match error:
        case TimeoutError():
            return f"did not answer for {ANSWER_SECONDS:g} s"
        case ConnectionError():
            return "has ended"
        case _:
            return f"failed ({error})"
