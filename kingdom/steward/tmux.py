"""Roles as tmux sessions: one server per home, one session per role."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kingdom.errors import LauncherTrouble
from kingdom.home.places import Places
from kingdom.home.roster import RoleRow
from kingdom.runtime.processes import all_pids
from kingdom.steward import process_groups
from kingdom.steward.base import (
    ANSWER_SECONDS,
    CANNOT_RUN,
    PATIENT,
    STAYS_DOWN,
    Patience,
    Word,
    answers,
    command,
    environment,
    launching,
)

_LEFT = "|".join(f"{code:d}" for code in (*STAYS_DOWN, *CANNOT_RUN))
_AGAIN = f"if-shell -F '#{{m/r:^({_LEFT})$,#{{pane_dead_status}}}}' '' respawn-pane"
_SETTINGS = (
    *("set-option", "-s", "exit-empty", "off", ";"),
    *("set-option", "-g", "remain-on-exit", "on", ";"),
    *("set-hook", "-g", "pane-died", _AGAIN),
)
_LET_GO = ("set-option", "-g", "remain-on-exit", "off")
_GONE = ("can't find", "no current target")
_PANE = "#{pid}:#{session_name}:#{pane_id}:#{pane_pid}:#{pane_dead}:#{pane_dead_status}:#{pane_dead_signal}"


@dataclass(frozen=True)
class _Pane:
    pid: int
    word: Word


class Tmux:
    name = "tmux"

    def __init__(self, places: Places, patience: Patience = PATIENT) -> None:
        binary = shutil.which("tmux")
        if binary is None:
            raise LauncherTrouble(launcher="tmux", action="start", what="the roles", why="it is not installed")
        self._binary = binary
        self._patience = patience
        self._places = places
        # Relative, because an absolute path over 107 bytes is refused; every call runs in the home.
        self._socket = str(places.roles_socket.relative_to(places.home))

    def raise_all(self, rows: Sequence[RoleRow]) -> None:
        with launching(self._places):
            self.standing()
            self._tmux("start", "its server", "start-server", ";", *_SETTINGS)
            for name in self.alive().keys() - {row.name for row in rows}:
                self.stop(name)
            for row in rows:
                self.start(row)

    def start(self, row: RoleRow) -> None:
        there = self._panes().get(row.name)
        if there is not None and there.word.pid is not None:
            return
        life = self._life(row)
        if there is None:
            self._tmux("start", row.name, "new-session", "-d", "-s", row.name, *life, fine=("duplicate session",))
        else:
            # Without -k a role that the hook has just brought back is left alone.
            self._tmux("start", row.name, "respawn-pane", "-t", f"={row.name}:", *life, fine=("still active",))

    def stop(self, name: str) -> None:
        while (pane := self._panes().get(name)) is not None:
            self._tmux("stop", name, "set-option", "-w", "-t", f"={name}:", "remain-on-exit", "off", fine=_GONE)
            if pane.word.pid is not None:
                process_groups.end([pane.pid], self._patience.stop)
            self._tmux("stop", name, "kill-session", "-t", f"={name}", fine=_GONE)

    def alive(self) -> dict[str, Word]:
        return {name: pane.word for name, pane in self._panes().items()}

    def standing(self) -> bool:
        return self._answers() or self._reopened()

    def down(self) -> None:
        if not self.standing():
            return
        server = self._server()
        self._tmux("stop", "its roles", "set-hook", "-gu", "pane-died", ";", *_LET_GO)
        while running := [pane.pid for pane in self._panes().values() if pane.word.pid is not None]:
            process_groups.end(running, self._patience.stop)
        self._tmux("stop", "its server", "kill-server")
        if server is not None:
            process_groups.wait_ended(server, ANSWER_SECONDS)

    def kill(self) -> None:
        server = self._server()
        if server is not None:
            os.kill(server, signal.SIGKILL)

    def attach_command(self, name: str) -> list[str]:
        """To be run in the home, by a person's terminal."""
        return [self._binary, "-f", "/dev/null", "-S", self._socket, "attach-session", "-t", f"={name}"]

    def _life(self, row: RoleRow) -> list[str]:
        """A clean environment for each life: panes would get the one that the server was born with."""
        settings = [f"{name}={value}" for name, value in environment(self._places, self.name).items()]
        return ["-c", str(self._places.home), "/usr/bin/env", "-i", *settings, *command(row)]

    def _panes(self) -> dict[str, _Pane]:
        """A role's pane is the oldest of its session: people may have split it to look around."""
        if not self._answers():
            return {}
        found: dict[str, tuple[int, _Pane]] = {}
        for line in self._tmux("list", "its roles", "list-panes", "-a", "-F", _PANE, fine=_GONE).splitlines():
            server, name, number, pid, dead, code, died_by = line.split(":")
            if dead != "1":
                word = Word(pid=int(pid))
            elif code or died_by:
                word = Word(code=int(code) if code else -int(died_by))
            else:
                # tmux before 3.5 loses a child's end now and then, and its hook never runs: remind it.
                os.kill(int(server), signal.SIGCHLD)
                word = Word(code=-signal.SIGKILL)
            age = int(number.removeprefix("%"))
            if name not in found or age < found[name][0]:
                found[name] = age, _Pane(int(pid), word)
        return {name: pane for name, (_, pane) in found.items()}

    def _answers(self) -> bool:
        return answers(self._places.roles_socket, self.name)

    def _reopened(self) -> bool:
        """Somebody deleted the socket of a living server: it makes a new one on USR1."""
        server = self._server()
        if server is None:
            return False
        os.kill(server, signal.SIGUSR1)
        give_up = time.monotonic() + ANSWER_SECONDS
        while not self._answers():
            if time.monotonic() > give_up:
                raise self._trouble("reach", "its server", f"pid {server} has no socket; end it with kill {server}")
            time.sleep(process_groups.LOOK_SECONDS)
        return True

    def _server(self) -> int | None:
        for pid in all_pids():
            try:
                with open(f"/proc/{pid}/comm") as comm:
                    if comm.read() != "tmux: server\n":
                        continue
                with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                    words = cmdline.read().split(b"\0")
                ours = self._socket.encode() in words and os.path.samefile(f"/proc/{pid}/cwd", self._places.home)
            except OSError:
                continue
            if ours:
                return pid
        return None

    def _tmux(self, action: str, what: str, *words: str, fine: tuple[str, ...] = ()) -> str:
        try:
            done = subprocess.run(
                [self._binary, "-f", "/dev/null", "-S", self._socket, *words],
                cwd=self._places.home,
                env=environment(self._places, self.name),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise self._trouble(action, what, f"no answer within {ANSWER_SECONDS:g} s") from None
        except OSError as trouble:
            raise self._trouble(action, what, str(trouble)) from None
        if done.returncode != 0 and not any(words in done.stderr for words in fine):
            raise self._trouble(action, what, done.stderr.strip() or f"it ended with {done.returncode}")
        return done.stdout

    def _trouble(self, action: str, what: str, why: str) -> LauncherTrouble:
        return LauncherTrouble(launcher=self.name, action=action, what=what, why=why)
