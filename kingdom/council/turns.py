"""The turns of agents: each is a program that is told one path, and is ended with all that it has started.

A turn is noted before its program is started, and by the program's own process when it is. So a council that was killed
knows whether an agent has been told, and goes on with one that is at work.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, SubprocessError
from typing import Any

from kingdom.council.engines import ENGINES
from kingdom.council.settings import Settings
from kingdom.disk.atomic import is_there, make_folder
from kingdom.disk.codec import read_json, to_json
from kingdom.disk.lock import Lock, is_locked
from kingdom.errors import BadFile, KingdomError, Locked
from kingdom.records.soldiers import Started
from kingdom.runtime.cgroup import Cgroup
from kingdom.runtime.processes import age, agent_markers, end_carriers, slept, started_at
from kingdom.runtime.role import Services
from kingdom.soldiers.prepare import PASSED_ON
from kingdom.words import one_line

TAIL_BYTES = 400
MOST_PROCESSES = 512
NOT_THE_PROGRAMS_FAULT = (errno.EIO, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What a machine says that is full or broken: it passes, and no try of a message has failed."""
LOOK_SECONDS = 0.05
"""How soon to look again for the note of a process that is being started."""


class CannotStart(KingdomError):
    """{program!r} could not be started: {why}"""


@dataclass
class AgentTurn:
    """An agent that was told of a message, as far as we know."""

    agent: str
    #: The message's file.
    path: str
    #: Its Retry-Count at that time.
    retries: int
    #: The program's process; None while it is about to be started.
    started: Started | None = None
    #: The same as our child; None after a restart of ours.
    child: Popen[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that is over."""

    turn: AgentTurn
    #: Whether the agent was told at all.
    was_told: bool
    #: How it ended, for the case that its message is still there.
    reason: str


class Turns:
    """What agents are doing: at most one turn each."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self._services = services
        self._settings = settings
        self.running: dict[str, AgentTurn] = {}
        self.running |= {turn.agent: turn for turn in self._noted()}

    def take_over(self, services: Services, settings: Settings) -> None:
        """Use new configuration."""
        self._services, self._settings = services, settings

    def tell(self, agent: str, path: str, retries: int) -> str:
        """Start an agent's turn with the path of a message. Return why its program could not be started, else ""."""
        row = self._settings.of(agent)
        assert row is not None
        folder = self._services.places.agent_turn(agent)
        make_folder(folder)
        lock = Lock(folder / "lock", agent)
        try:
            lock.acquire()
            (folder / "started").unlink(missing_ok=True)
            note = {"agent": agent, "path": path, "retries": retries}
            # A power cut ends the agents too: then no note is as good as one.
            self._services.unsynced.rewrite(folder / "told.json", to_json(note))
            child = self._start(folder, ENGINES[row["engine"]](row, path), agent, retries, lock)
        except (Locked, CannotStart) as error:
            self.clear(agent)
            return str(error)
        finally:
            lock.release()
        self.running[agent] = AgentTurn(agent, path, retries, _read_started(folder / "started"), child)
        return ""

    def ended(self) -> list[Ended]:
        """Return the turns that are over; what their programs have left behind has been ended."""
        return [end for turn in self.running.values() if (end := self._end_of(turn)) is not None]

    def clear(self, agent: str) -> None:
        """Forget a turn: what followed from it is done."""
        folder = self._services.places.agent_turn(agent)
        self._services.unsynced.remove_all([folder / "told.json", folder / "started"])
        self.running.pop(agent, None)

    def seconds_left(self) -> float:
        """Return how long it takes until the first running turn has to be ended, or looked at."""
        if any(turn.started is None for turn in self.running.values()):
            return LOOK_SECONDS
        return min((self._settings.task_timeout - _seconds(turn) for turn in self.running.values()), default=3600.0)

    def _start(self, folder: Path, argv: list[str], agent: str, retries: int, lock: Lock) -> Popen[bytes]:
        home = self._services.places.home
        cgroup = Cgroup(home, f"council-{agent}")
        cgroup.create(MOST_PROCESSES)
        note = str(folder / "started")

        def enter() -> None:
            signal.signal(signal.SIGIO, signal.SIG_DFL)
            cgroup.join()
            pid = os.getpid()
            begun = Started(pid, started_at(pid) or 0, retries, round(slept(), 3))
            fd = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            os.write(fd, to_json(begun.to_json()))
            os.close(fd)

        with open(folder / "output.txt", "wb") as output:
            try:
                return Popen(
                    argv,
                    stdin=DEVNULL,
                    stdout=output,
                    stderr=STDOUT,
                    cwd=home,
                    env={**_passed_on(), "KINGDOM_HOME": str(home), "KINGDOM_AGENT": agent},
                    pass_fds=(lock.fileno(),),
                    start_new_session=True,
                    preexec_fn=enter,
                )
            except SubprocessError:
                raise OSError(errno.EIO, "the start of an agent could not be noted", note) from None
            except OSError as error:
                if error.errno in NOT_THE_PROGRAMS_FAULT:
                    raise
                raise CannotStart(program=argv[0], why=error.strerror) from None

    def _end_of(self, turn: AgentTurn) -> Ended | None:
        folder = self._services.places.agent_turn(turn.agent)
        if turn.started is None:
            turn.started = _read_started(folder / "started")
        if turn.child is None and turn.started is not None:
            self._services.exits.watch(turn.started.pid)
        if turn.child is not None and turn.child.poll() is not None:
            reason = self._how_it_ended(folder, turn.child.returncode)
        elif turn.child is None and turn.started is None:
            # We were killed while it was being started. Who holds the lock is on its way to note its start.
            return None if is_locked(folder / "lock") else Ended(turn, False, "")
        elif turn.child is None and turn.started is not None and started_at(turn.started.pid) != turn.started.start:
            reason = "it ended while the council did not run, and left the message"
        elif _seconds(turn) >= self._settings.task_timeout:
            reason = f"it took longer than {self._settings.task_timeout:g} s"
        else:
            return None
        self._end_whole(turn)
        return Ended(turn, True, reason)

    def _end_whole(self, turn: AgentTurn) -> None:
        """Kill what is left of a turn, wherever it hid."""
        home = self._services.places.home
        end_carriers(agent_markers(home, turn.agent), turn.started.start if turn.started else 0)
        Cgroup(home, f"council-{turn.agent}").kill_all()
        if turn.child is not None:
            turn.child.wait()

    def _how_it_ended(self, folder: Path, code: int) -> str:
        if code == 0:
            return "it ended and left the message"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = one_line(self._services.log.clean(_tail(folder / "output.txt")), 200)
        return f"{how}: {said}" if said else how

    def _noted(self) -> list[AgentTurn]:
        """Return the turns that an earlier run of ours has noted."""
        turns = self._services.places.agent_turns
        found = []
        for folder in sorted(turns.iterdir()) if turns.is_dir() else []:
            if not is_there(folder / "told.json"):
                continue
            try:
                note = read_json(folder / "told.json")
                found.append(AgentTurn(folder.name, str(note["path"]), int(note["retries"])))
            except (BadFile, KeyError, TypeError, ValueError) as error:
                self._services.log.error(f"forgets the turn of {folder.name}, whose note is damaged: {error}")
                end_carriers(agent_markers(self._services.places.home, folder.name))
                self.clear(folder.name)
        return found


def _passed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def _seconds(turn: AgentTurn) -> float:
    """Return for how long a turn has lasted, without the time while the machine was suspended."""
    if turn.started is None:
        return 0.0
    since = slept() - (turn.started.slept or 0.0)
    return age(turn.started.start) - max(0.0, since)


def _read_started(path: Path) -> Started | None:
    with suppress(FileNotFoundError, BadFile, KeyError, TypeError, ValueError):
        value: Mapping[str, Any] = read_json(path)
        return Started.from_json(value)
    return None


def _tail(path: Path) -> str:
    with suppress(OSError), open(path, "rb") as output:
        output.seek(-min(TAIL_BYTES, output.seek(0, os.SEEK_END)), os.SEEK_END)
        return output.read().decode("utf-8", "replace")
    return ""
