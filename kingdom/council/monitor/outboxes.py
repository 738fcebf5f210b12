"""What agents send from inside their sandboxes: it is taken out of their outboxes and put into the queue.

An agent writes its own outbox and nothing else, so whatever lies there is of that agent: it is sent on only when its
From says so. It is copied, never moved: its writer may have it open. The copy lies in a folder of ours, by addressee,
before the original is deleted, and is moved into the queue after that. So a kill at any step sends it once.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.disk.codec import read_bytes, read_with_status
from kingdom.base.errors import BadFile, Collision
from kingdom.base.home.places import is_hidden
from kingdom.base.runtime.role import Services
from kingdom.council import mime
from kingdom.council.bodies import list_of, listed_rows
from kingdom.council.monitor.dead_letters import CouncilDeadLetters
from kingdom.council.monitor.delivery import ENDING
from kingdom.council.monitor.folders import listed
from kingdom.council.monitor.messages import (
    CouncilMessage,
    faults_of_sent,
    is_well_named,
    name_of,
    next_name,
    read_message,
)
from kingdom.council.monitor.writers import Writers

MOST_AT_ONCE = 64
"""Of one outbox in one look: the others come in the next one."""
MOST_SENT, MOST_REFUSED = 1000, 20
"""Of one agent in one turn. What is more is set aside together."""
LARGEST_LIST = 64 << 20
FLOOD = "more messages than an agent may send in one turn"


class Outboxes:
    """Posts what agents send."""

    def __init__(self, services: Services, dead_letters: CouncilDeadLetters) -> None:
        self._services, self._dead_letters = services, dead_letters
        self._writers = Writers(services.monotonic)
        self._sent: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def take_over(self, services: Services) -> None:
        """Use new configuration."""
        self._services = services

    def begin(self, agent: str) -> None:
        """Count anew what an agent sends: a turn of it begins."""
        self._sent.pop(agent, None)
        self._refused.pop(agent, None)

    def collect(self, threads: Mapping[str, str], *, most: int = MOST_AT_ONCE, has_ended: bool = False) -> int:
        """Take what has come out of agents' outboxes, and put it into the queue. Return how much it was.

        `threads` holds them with the thread that they were told of: what they send belongs to it, and says so.

        Whoever `has_ended` writes no longer: what is not whole never will be. The first time all that is there must be
        taken: what a killed council has copied may still lie there.
        """
        copies: list[tuple[Path, bytes]] = []
        done: list[Path] = []
        for agent, thread in threads.items():
            for path in self._ready(agent, most, has_ended):
                copies += self._judged(agent, thread, path, done)
        self._keep(copies)
        self._services.unsynced.remove_all(done)
        self.post()
        return len(done)

    def post(self) -> None:
        """Put copies into the queue, also those that a killed council has left."""
        places = self._services.places
        for folder in sorted(places.postings.iterdir()) if places.postings.is_dir() else ():
            make_folder(places.told(folder.name))
            for name in sorted(os.listdir(folder)):
                self._move(folder / name, places.agent(folder.name) / name)

    def is_empty(self, agent: str) -> bool:
        """Return whether nothing is left to take out of the outbox of an agent that has ended."""
        return self._is_flooded(agent) or not any(True for _ in self._ready(agent, 1, has_ended=True))

    def close(self, agent: str) -> None:
        """Empty an outbox after a turn: unfinished files go, and what was too much is set aside."""
        folder = self._services.places.outbox(agent)
        names = listed(folder)
        if not names:
            return
        if self._is_flooded(agent):
            reason = f"{len(names)} files in its outbox: {FLOOD} ({MOST_SENT}, or {MOST_REFUSED} that are refused)"
            self._dead_letters.park(folder, agent, reason)
            return
        self._services.log.warn(f"deletes what {agent} has left unfinished in its outbox: {len(names)} files")
        for name in names:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    @property
    def settling_seconds(self) -> float:
        """Seconds until a file that is being written should be looked at again."""
        return self._writers.seconds_left

    def _ready(self, agent: str, most: int, has_ended: bool) -> Iterator[Path]:
        """Yield messages of an outbox that are whole, or will never be, so many in one look."""
        folder, number = self._services.places.outbox(agent), 0
        for name in [] if self._is_flooded(agent) else listed(folder):
            path = folder / name
            if is_hidden(name) or not name.endswith(ENDING):
                continue
            try:
                about = os.lstat(path)
            except FileNotFoundError:
                continue
            mark = about.st_ino, about.st_mtime_ns, about.st_size
            if has_ended or self._writers.are_done(path, mark):
                yield path
                number += 1
                if number == most:
                    return

    def _judged(self, agent: str, thread: str, path: Path, done: list[Path]) -> Iterator[tuple[Path, bytes]]:
        """Yield the copies to be made of a message, one for each addressee; park it when it may not be sent on."""
        if self._is_flooded(agent):
            return
        try:
            raw = read_with_status(path)[0]
        except FileNotFoundError:
            return
        except BadFile as error:
            self._refuse(agent, path, str(error.facts["why"]))
            return
        message = read_message(path, agent, raw)
        if why := self._fault_of(message, agent, thread):
            self._refuse(agent, path, why, raw)
            return
        if thread and message.names_no_thread:
            raw = mime.update_header(raw.decode(), "X-IGNITE-Thread-ID", thread).encode()
        self._sent[agent] += 1
        name = path.name if is_well_named(path.name) else name_of(message)
        for addressee in dict.fromkeys(map(mime.folder_of, message.to)):
            if not self._was_sent(message, thread or message.thread, addressee, name):
                yield self._services.places.postings / addressee / name, raw
        done.append(path)

    def _was_sent(self, message: CouncilMessage, thread: str, addressee: str, name: str) -> bool:
        """Return whether this very message is there already: an agent that is told again sends it again (`--once`)."""
        places = self._services.places
        with suppress(FileNotFoundError, BadFile):
            path = places.agent(addressee) / name
            if message.id == read_message(path, addressee, read_bytes(path)).id:
                return True
        if not (thread or message.in_reply_to):
            return False
        now, known = self._services.clock(), (message.id, message.sender, addressee)
        for path in dict.fromkeys(list_of(places, thread, at) for at in (now, now - 86400)):
            with suppress(FileNotFoundError, BadFile):
                if message.id.encode() in read_bytes(path, LARGEST_LIST):
                    return any((row["id"], row["from"], row["agent"]) == known for row in listed_rows(path))
        return False

    def _fault_of(self, message: CouncilMessage, agent: str, thread: str) -> str:
        """Return why a message of an outbox is not sent on; "" for a good one."""
        if faults := faults_of_sent(message):
            return "; ".join(faults)
        if mime.folder_of(message.sender) != agent:
            return f"it is from {message.sender!r} and lay in the outbox of {agent}"
        if thread and not message.names_no_thread and message.thread != thread:
            return f"it is of the thread {message.thread!r}, and {agent} was told of {thread!r}"
        unknown = [to for to in message.to if not is_there(self._services.places.agent(mime.folder_of(to)))]
        return f"there is no {', '.join(unknown)}" if unknown else ""

    def _refuse(self, agent: str, path: Path, why: str, raw: bytes | None = None) -> None:
        """Put what is not sent on beside a dead letter with the reason; people are told."""
        self._refused[agent] += 1
        self._dead_letters.park(path, agent, why, raw)

    def _keep(self, copies: list[tuple[Path, bytes]]) -> None:
        """Write copies. Those of a killed council are there already; another message of that name gets the next one."""
        for folder in {path.parent for path, _ in copies}:
            make_folder(folder)
        while copies:
            taken = {str(path) for path in self._services.disk.create_all(copies)}
            later = [(path, data) for path, data in copies if str(path) in taken and not _holds(path, data)]
            copies = [(path.with_name(next_name(path.name)), data) for path, data in later]

    def _move(self, path: Path, target: Path) -> None:
        while True:
            try:
                # What a power cut undoes is done again: the copy was durable before.
                self._services.unsynced.move(path, target)
            except Collision:
                target = target.with_name(next_name(target.name))
            else:
                return

    def _is_flooded(self, agent: str) -> bool:
        return self._sent[agent] >= MOST_SENT or self._refused[agent] >= MOST_REFUSED


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_bytes(path) == data
    except (FileNotFoundError, BadFile):
        return False
