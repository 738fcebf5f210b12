"""The life of a message: it arrives, waits for its agent, is told, and ends: deleted by its agent, or given up.

Where it lies and what its X-IGNITE-Status says is all there is to know of it. Each step changes one of them, and may be
repeated after a kill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_with_status
from kingdom.base.errors import BadFile, Collision
from kingdom.base.home.places import is_hidden
from kingdom.base.runtime.role import Services
from kingdom.base.words import one_line
from kingdom.council import mime
from kingdom.council.monitor.dead_letters import LEADER, NEVER_ESCALATE, CouncilDeadLetters
from kingdom.council.monitor.figures import Figures
from kingdom.council.monitor.folders import listed
from kingdom.council.monitor.messages import (
    NEW,
    CouncilMessage,
    faults_of,
    is_well_named,
    name_of,
    next_name,
    read_message,
    remarks_on,
)
from kingdom.council.monitor.settings import CouncilSettings
from kingdom.council.monitor.turns import Ended
from kingdom.council.monitor.writers import Writers

ENDING = ".mime"
EDIT_SECONDS = 5.0
"""For so long an edit waits for another one of the same message."""
JUDGING_SECONDS = 0.25
"""How long one turn judges what has come; the rest is left to the next."""
MOST_SEEN = 20_000
OF_THE_LAST_TRY = ("X-IGNITE-Error-Reason", "X-IGNITE-Error-At")
"""Headers that are removed when a message is retried."""
OF_ALL_TRIES = (
    *OF_THE_LAST_TRY,
    "X-IGNITE-Retry-Count",
    "X-IGNITE-Last-Retry-At",
    "X-IGNITE-Next-Retry-After",
    "X-IGNITE-Processed-At",
)
"""A message that is put into its agent's folder again has had none."""


class Seen(NamedTuple):
    """A file as it was when it was judged."""

    #: What tells whether it has changed.
    mark: tuple[int, int, int]
    message: CouncilMessage


class CouncilDelivery:
    """Moves messages, and writes their status."""

    def __init__(self, services: Services, settings: CouncilSettings, dice: Callable[[], float]) -> None:
        self.dead_letters = CouncilDeadLetters(services, settings)
        self.figures = Figures(services)
        self._dice = dice
        self._writers = Writers(services.monotonic)
        self._seen: dict[Path, Seen] = {}
        self._left_alone: set[Path] = set()
        self._judge_until = 0.0
        self.has_more = False
        """Whether another look has to follow at once: more has come than could be judged, or a message has failed."""
        self.take_over(services, settings)

    def take_over(self, services: Services, settings: CouncilSettings) -> None:
        """Use new configuration."""
        self._services, self._settings = services, settings
        self.dead_letters.take_over(services, settings)

    def begin_turn(self) -> None:
        """Begin to count the time of this turn."""
        self._judge_until, self.has_more = self._services.monotonic() + JUDGING_SECONDS, False
        if len(self._seen) + len(self._left_alone) > MOST_SEEN:
            self._seen.clear()
            self._left_alone.clear()

    def look(self, agent: str, at_work: Collection[str] = ()) -> Iterator[CouncilMessage]:
        """Yield what waits for an agent, without its content, also what may not be told yet; judge what has come.

        The messages that the agent is at work on are left alone.
        """
        places = self._services.places
        for folder in (places.agent(agent), places.told(agent)):
            for path in self._files(folder):
                if str(path) in at_work:
                    continue
                message = self._judged(path, agent)
                if message is None or message.status == "completed":
                    continue
                if folder == places.agent(agent) or message.status in (*NEW, "processing", "retrying"):
                    yield message
                else:
                    # Its agent's turn is over, whatever became of it: it has outlived that.
                    reason = message.error if message.status == "error" and message.error else "it outlived its turn"
                    self.fail(message, reason)
                    self.has_more = True  # its next try may be due at once

    @property
    def settling_seconds(self) -> float:
        """Seconds until a file that is being written should be looked at again."""
        return self._writers.seconds_left

    def is_due(self, message: CouncilMessage) -> bool:
        """Return whether a message may be told. A clock that was set back must not make it wait for longer."""
        wait = message.not_before - self._services.clock()
        return message.status != "retrying" or not 0 < wait <= self._settings.max_delay

    def take(self, message: CouncilMessage) -> CouncilMessage | None:
        """Mark a message and move it into processed/; None when it has gone."""
        is_first = message.path.parent.name != self._services.places.told(message.agent).name
        headers: dict[str, str | None] = dict.fromkeys(OF_ALL_TRIES if is_first else OF_THE_LAST_TRY)
        if message.thread and message.names_no_thread:
            headers["X-IGNITE-Thread-ID"] = message.thread
        if not self._edit(message.path, "processing", headers):
            return None
        path: Path | None = message.path
        if is_first:
            make_folder(self._services.places.told(message.agent))
            path = self._moved(message.path, self._services.places.told(message.agent))
        taken = self._read(path, message.agent) if path is not None else None
        if taken is not None and (is_first or message.status in (*NEW, "processing")):  # perhaps we were killed before
            self.figures.note(taken)
        return taken

    def told(self, message: CouncilMessage) -> None:
        """Note that an agent was told of a message, which it may have deleted, locked or closed by now."""
        self.figures.count("told")
        with suppress(BlockingIOError, PermissionError):
            self._edit(message.path, "delivered", {"X-IGNITE-Processed-At": self._stamp()}, wait=0.0)

    def show(self, message: CouncilMessage, note: Callable[[CouncilMessage], None]) -> None:
        """Hand a message that waits to somebody who notes what is in it."""
        if (whole := self._read(message.path, message.agent)) is not None:
            note(whole)

    def drop(self, message: CouncilMessage, why: str) -> None:
        """Delete a message whose goal is over; the list of its thread keeps that it was there."""
        if (whole := self._read(message.path, message.agent)) is None:
            return
        if message.path.parent == self._services.places.agent(message.agent):
            self.figures.note(whole)
        self._services.disk.remove(message.path)
        self._services.log.info(f"drops {message.agent}/{message.path.name}, as its goal is over: {one_line(why, 200)}")

    def remove(self, message: CouncilMessage) -> None:
        """Delete a message that we have handed over ourselves."""
        self.figures.count("told")
        self.figures.count("done")
        self._services.disk.remove(message.path)

    def end(self, ended: Ended) -> None:
        """Do what follows from an agent's turn."""
        with suppress(FileNotFoundError):
            os.chmod(self._services.places.told(ended.turn.agent), 0o700)  # the agent may have closed it to us
        for path, retries in ended.turn.messages.items() if ended.was_told else ():
            self._end(ended, path, retries)

    def _end(self, ended: Ended, path: str, retries: int) -> None:
        agent = ended.turn.agent
        message = self._read(Path(path), agent)
        if message is None:
            self._done(path, agent)
        elif message.status == "completed":
            self.figures.count("done")
        elif message.retries > retries:
            # We were killed after we had counted it.
            self._escalate_critical(message, ended.reason)
        elif ended.is_excused:
            self._edit(message.path, "queued", {})
        else:
            self.fail(message, message.error if message.status == "error" and message.error else ended.reason)

    def fail(self, message: CouncilMessage, reason: str) -> None:
        """Let a message wait for its next try, or give it up."""
        now_there = self._read(message.path, message.agent)
        if now_there is None:
            self._done(message.path, message.agent)
            return
        message = now_there
        reason = self._services.log.clean(reason)
        if message.retries >= self._settings.max_retries:
            self._give_up(message, reason)
            return
        now = self._services.clock()
        most = min(self._settings.max_delay, self._settings.base_delay * 2.0 ** min(message.retries, 60))
        is_there = self._edit(
            message.path,
            "retrying",
            {
                "X-IGNITE-Retry-Count": str(message.retries + 1),
                "X-IGNITE-Last-Retry-At": self._stamp(),
                "X-IGNITE-Next-Retry-After": self._stamp(now + self._dice() * most),
                "X-IGNITE-Error-Reason": one_line(reason, 200) or "unknown",
                "X-IGNITE-Error-At": self._stamp(),
            },
        )
        if not is_there:
            self._done(message.path, message.agent)
            return
        self.figures.count("retried")
        tries = f"retry {message.retries + 1} of {self._settings.max_retries}"
        self._services.log.warn(f"{message.agent} did not take {message.path.name}: {reason}; {tries}")
        if (again := self._read(message.path, message.agent)) is not None:
            self._escalate_critical(again, reason)

    def _escalate_critical(self, message: CouncilMessage, reason: str) -> None:
        if message.priority == "critical" and message.retries == 1 and message.type not in NEVER_ESCALATE:
            self.dead_letters.escalate(message, reason, message.failed_at, None)

    def _give_up(self, message: CouncilMessage, reason: str) -> None:
        letter = self.dead_letters.keep(message.path, message.agent, message.raw, message.retries, reason)
        second = float(letter.stem.rpartition("_")[2])
        self.dead_letters.escalate(message, reason, second, letter)
        self._services.disk.remove(message.path)
        self._buried(message.path, message.agent, letter, reason)

    def _done(self, path: Path | str, agent: str) -> None:
        self.figures.count("done")
        if agent == LEADER and Path(path).name.startswith("escalation_"):
            self.dead_letters.is_heard()

    def _buried(self, path: Path, agent: str, letter: Path, reason: str) -> None:
        self.figures.count("buried")
        self._seen.pop(path, None)
        said = f"moved {agent}/{path.name} to dead_letter/{letter.name}: {one_line(reason, 300)}"
        name = letter.name
        self._services.log.error(said, event="file.buried", kind="council", file=name, reason=one_line(reason, 300))

    def _files(self, folder: Path) -> Iterator[Path]:
        """Yield the messages in a folder; what else lies there is left alone, and said once."""
        entries = listed(folder)
        told = folder / self._services.places.told("any").name
        for name in entries:
            path = folder / name
            if name.startswith("."):
                continue
            if name.endswith(ENDING):
                yield path
            elif path != told and path not in self._left_alone:
                self._left_alone.add(path)
                if not is_hidden(name):
                    self._services.log.warn(f"leaves {path} alone: its name does not end in {ENDING}")

    def _judged(self, path: Path, agent: str) -> CouncilMessage | None:
        """Return the message in a file, well named; None when it is gone, unfinished, or bad and buried."""
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return None
        mark = about.st_ino, about.st_mtime_ns, about.st_size
        if (seen := self._seen.get(path)) is not None and seen.mark == mark:
            return seen.message
        if self._services.monotonic() > self._judge_until:
            self.has_more = True
            return None
        try:
            raw, about = read_with_status(path)
        except FileNotFoundError:
            return None
        except BadFile as error:
            if self._writers.are_done(path, mark):
                why = str(error.facts["why"])
                self._buried(path, agent, self.dead_letters.keep_unreadable(path, agent, why), why)
            return None
        if not self._writers.are_done(path, mark):
            return None
        message = read_message(path, agent, raw)
        if faults := faults_of(message):
            reason = "; ".join(faults)
            letter = self.dead_letters.keep(path, agent, raw, message.retries, reason)
            self._services.disk.remove(path)
            self._buried(path, agent, letter, reason)
            return None
        if not is_well_named(path.name):
            return self._renamed(message)
        if seen is None and message.status in NEW:
            for remark in remarks_on(message):
                self._services.log.warn(f"{agent}/{path.name}: {remark}")
        self._seen[path] = Seen(mark, replace(message, raw=b"", body=""))  # there may be thousands of them
        return self._seen[path].message

    def _renamed(self, message: CouncilMessage) -> CouncilMessage | None:
        """Give a message a name by its type and Date."""
        path = self._moved(message.path, message.path.parent, name_of(message))
        if path is None:
            return None
        self._services.log.info(f"{message.agent}/{message.path.name} is called {path.name} from now on")
        return self._judged(path, message.agent)

    def _moved(self, path: Path, folder: Path, name: str = "") -> Path | None:
        """Move a message under the first name that is free; None when it has gone."""
        target = folder / (name or path.name)
        while True:
            try:
                # What a power cut undoes is taken again.
                self._services.unsynced.move(path, target)
            except FileNotFoundError:
                return None
            except Collision:
                target = folder / next_name(target.name)
            else:
                self._seen.pop(path, None)
                self._services.disk.rewritten.add(str(target))
                return target

    def _read(self, path: Path, agent: str) -> CouncilMessage | None:
        """Return a message as it is now; None when it has gone or cannot be read."""
        with suppress(FileNotFoundError, BadFile):
            return read_message(path, agent, read_with_status(path)[0])
        return None

    def _edit(self, path: Path, status: str, headers: Mapping[str, str | None], *, wait: float = EDIT_SECONDS) -> bool:
        """Write a status. Return False when the message has gone: it does not come back.

        A power cut may undo any but that of a retry: then the message is told again, which cannot be helped anyway.
        """

        def edited(raw: str) -> str:
            self._services.disk.guard()
            return mime.update_status(raw, status, **headers)

        self._services.disk.rewritten.add(str(path))
        try:
            mime.rewrite(os.fsencode(path), edited, keep=status == "retrying", wait=wait)
        except FileNotFoundError:
            return False
        return True

    def _stamp(self, moment: float | None = None) -> str:
        """Return a time as the protocol writes it: local, with its offset."""
        at = self._services.clock() if moment is None else moment
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
