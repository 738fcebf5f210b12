"""Run roles as tmux sessions: one tmux server per home, one session per role."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from kingdom.base.errors import LauncherError
from kingdom.base.home.places import Places
from kingdom.base.home.roster import RoleRow
from kingdom.base.runtime.processes import all_pids
from kingdom.court.steward import process_groups
from kingdom.court.steward.base import (
    ANSWER_SECONDS,
    CANNOT_RUN,
    NO_ANSWER,
    STAYS_DOWN,
    TIMEOUTS,
    RoleStatus,
    Timeouts,
    answers,
    command,
    environment,
    launching,
    remember,
)

_NOT_RESTARTED = "|".join(f"{code:d}" for code in (*STAYS_DOWN, *CANNOT_RUN))
_RESTART = f"if-shell -F '#{{m/r:^({_NOT_RESTARTED})$,#{{pane_dead_status}}}}' '' respawn-pane"
_SETTINGS = (
    *("set-option", "-s", "exit-empty", "off", ";"),
    *("set-option", "-g", "remain-on-exit", "on", ";"),
    *("set-hook", "-g", "pane-died", _RESTART),
)
_CLOSE_DEAD_PANES = ("set-option", "-g", "remain-on-exit", "off")
_GONE = ("can't find", "no current target", "no such")
RACES = 50
"""So often somebody else may start or stop the same role meanwhile."""
_PANE = "#{pid}:#{session_name}:#{pane_id}:#{pane_pid}:#{pane_dead}:#{pane_dead_status}:#{pane_dead_signal}"


class Tmux:
    name = "tmux"

    def __init__(self, places: Places, timeouts: Timeouts = TIMEOUTS) -> None:
        binary = shutil.which("tmux")
        if binary is None:
            raise LauncherError(launcher="tmux", action="start", what="the roles", why="it is not installed")
        self._binary = binary
        self._timeouts = timeouts
        self._places = places
        # Relative, because an absolute path over 107 bytes is refused; every call runs in the home.
        self._socket = str(places.roles_socket.relative_to(places.home))

    def start_launcher(self, rows: Sequence[RoleRow]) -> None:
        with launching(self._places, self._timeouts.launch):
            remember(self._places, self.name)
            self.launcher_runs()  # opens a deleted socket again
            self._tmux("start", "its server", "start-server", ";", *_SETTINGS)
            for name in self.statuses().keys() - {row.name for row in rows}:
                self.stop(name)
            for row in rows:
                self.start(row)

    def start(self, row: RoleRow) -> None:
        name, command_line = row.name, self._command_line(row)
        for _ in range(RACES):
            there = self.statuses().get(name)
            if there is not None and there.pid is not None:
                return
            # Without -k a role that the hook has just brought back is left alone.
            again = ("respawn-pane", "-t", f"={name}:") if there else ("new-session", "-d", "-s", name)
            overtaken = ("duplicate session", "still active", *_GONE)
            if self._tmux("start", name, *again, *command_line, fine=overtaken) is not None:
                return
        raise self._error("start", name, "somebody else starts and stops it all the time")

    def stop(self, name: str) -> None:
        while (pane := self.statuses().get(name)) is not None:
            self._tmux("stop", name, "set-option", "-w", "-t", f"={name}:", "remain-on-exit", "off", fine=_GONE)
            if pane.pid is not None:
                process_groups.end([pane.pid], self._timeouts.stop)
            self._tmux("stop", name, "kill-session", "-t", f"={name}", fine=_GONE)

    def statuses(self) -> dict[str, RoleStatus]:
        """Return each role's status, from the oldest pane of its session: people may have split it to look around."""
        if not self._answers():
            return {}
        found: dict[str, tuple[int, RoleStatus]] = {}
        try:
            listed = self._tmux("list", "its roles", "list-panes", "-a", "-F", _PANE, fine=_GONE) or ""
        except LauncherError:
            if self.launcher_runs():
                raise
            return {}  # somebody has ended it meanwhile
        for line in listed.splitlines():
            # A dead pane's pid is its last one, and from tmux 3.8 on an empty word.
            server, name, number, pid, dead, code, died_by = line.split(":")
            if dead != "1":
                status = RoleStatus(pid=int(pid))
            elif code or died_by:
                status = RoleStatus(code=int(code) if code else -int(died_by))
            else:
                # tmux before 3.5 sometimes misses a child's end, and its hook never runs: remind it.
                os.kill(int(server), signal.SIGCHLD)
                status = RoleStatus(code=-signal.SIGKILL)
            age = int(number.removeprefix("%"))
            if name not in found or age < found[name][0]:
                found[name] = age, status
        return {name: status for name, (_, status) in found.items()}

    def launcher_runs(self) -> bool:
        try:
            return self._answers() or self._reopened()
        except LauncherError:
            if self._server() is None:
                raise
            return True  # it hangs

    def down(self) -> None:
        if not self.launcher_runs():
            return
        server = self._server()
        self._tmux("stop", "its roles", "set-hook", "-gu", "pane-died", ";", *_CLOSE_DEAD_PANES)
        while running := [pane.pid for pane in self.statuses().values() if pane.pid is not None]:
            process_groups.end(running, self._timeouts.stop)
        self._tmux("stop", "its server", "kill-server")
        if server is not None and not process_groups.wait_ended(server, self._timeouts.stop + ANSWER_SECONDS):
            raise self._error("stop", "its server", f"pid {server} still runs; end it with kill -9 {server}")

    def kill(self) -> None:
        server = self._server()
        if server is not None:
            os.kill(server, signal.SIGKILL)

    def attach_command(self, name: str) -> list[str]:
        """Return the command that shows a role's session in a person's terminal, to be run in the home.

        It is read-only: Ctrl-C would end the role instead of the look at it.
        """
        return [self._binary, "-f", "/dev/null", "-S", self._socket, "attach-session", "-r", "-t", f"={name}"]

    def _command_line(self, row: RoleRow) -> list[str]:
        """Return what a pane runs, with a clean environment: panes would get the one that the server began with."""
        settings = [f"{name}={value}" for name, value in environment(self._places, self.name).items()]
        return ["-c", str(self._places.home), "/usr/bin/env", "-i", *settings, *command(row)]

    def _answers(self) -> bool:
        return answers(self._places.roles_socket, self.name)

    def _reopened(self) -> bool:
        """Return whether a living server whose socket was deleted answers again: USR1 makes it open a new one."""
        server = self._server()
        if server is None:
            return False
        os.kill(server, signal.SIGUSR1)
        give_up = time.monotonic() + ANSWER_SECONDS
        while not self._answers():
            if time.monotonic() > give_up:
                raise self._error("reach", "its server", f"pid {server} has no socket; end it with kill {server}")
            time.sleep(process_groups.LOOK_SECONDS)
        return True

    def _server(self) -> int | None:
        for pid in all_pids():
            try:
                with open(f"/proc/{pid}/comm") as comm:
                    if comm.read() != "tmux: server\n":
                        continue
                with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                    arguments = cmdline.read().split(b"\0")
                ours = self._socket.encode() in arguments and os.path.samefile(f"/proc/{pid}/cwd", self._places.home)
            except OSError:
                continue
            if ours:
                return pid
        return None

    def _tmux(self, action: str, what: str, *arguments: str, fine: tuple[str, ...] = ()) -> str | None:
        """Return what tmux prints; None when it failed with a message that is fine."""
        try:
            done = subprocess.run(
                [self._binary, "-f", "/dev/null", "-S", self._socket, *arguments],
                cwd=self._places.home,
                env=environment(self._places, self.name),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise self._error(action, what, NO_ANSWER) from None
        except OSError as error:
            raise self._error(action, what, str(error)) from None
        if done.returncode == 0:
            return done.stdout
        if any(message in done.stderr for message in fine):
            return None
        raise self._error(action, what, done.stderr.strip() or f"it ended with {done.returncode}")

    def _error(self, action: str, what: str, why: str) -> LauncherError:
        return LauncherError(launcher=self.name, action=action, what=what, why=why)
