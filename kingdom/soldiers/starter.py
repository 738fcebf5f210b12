"""Start serving processes: forked from one that has loaded everything, or each by a Python of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen

from kingdom.disk.lock import Lock
from kingdom.log import Log
from kingdom.runtime.processes import room_for_markers

ANSWER_SECONDS = 5.0
"""A warm server that takes longer than this is replaced: nobody's turn may take long."""
IDLE_SECONDS = 50.0
"""A warm server that has had nothing to do for so long is about to end."""
SLOW_SECONDS = 60.0
"""For so long after a failure soldiers are started the slow way."""
MODULE = (sys.executable, "-P", "-m", "kingdom.soldier")


class Starter:
    """The serving processes that one general starts. Its warm server comes with the first of them."""

    def __init__(self, home: Path, log: Log) -> None:
        self._home = home
        self._log = log
        self._server: Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._children: list[Popen[bytes]] = []
        self._slow_until = 0.0
        self._last_use = 0.0

    def start(self, task: str, environment: Mapping[str, str], errors: Path, lock: Lock) -> Callable[[], int | None]:
        """Start the process that serves a task; it inherits the lock. Return what waits for its pid.

        That is None when the warm server failed: then only the lock tells whether the process was started. So many may
        be started before the first is waited for as the server takes at once.
        """
        if time.monotonic() < self._slow_until:
            pid = self.start_slowly(task, environment, errors, lock)
            return lambda: pid
        try:
            return partial(self._answer, self._ask(environment, errors, lock))
        except OSError as error:
            self._fail(error)
            return lambda: None

    def _answer(self, asked: socket.socket) -> int | None:
        """Wait for the next pid of the server that was asked; None when it has failed, now or since."""
        if asked is not self._socket:
            return None
        try:
            return int(asked.recv(64))
        except (OSError, ValueError) as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        self._slow_until = time.monotonic() + SLOW_SECONDS
        self._log.warn(f"starts soldiers directly for {SLOW_SECONDS:.0f} s: the preloaded process failed ({error})")
        self.close()

    def reap(self) -> None:
        """Reap its children."""
        self._children = [child for child in self._children if child.poll() is None]

    def close(self) -> None:
        """End the preloaded process. Soldiers that it has started keep running."""
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

    def _ask(self, environment: Mapping[str, str], errors: Path, lock: Lock) -> socket.socket:
        request = json.dumps({"environment": dict(environment), "errors": str(errors)}).encode()
        server = self._warm_server()
        socket.send_fds(server, [request], [lock.fileno()])
        return server

    def _warm_server(self) -> socket.socket:
        """Return the socket of the warm server; a new one when there is none or when it was idle for long."""
        idle = time.monotonic() - self._last_use
        self._last_use += idle
        if self._socket is not None and idle < IDLE_SECONDS:
            return self._socket
        self.close()
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
