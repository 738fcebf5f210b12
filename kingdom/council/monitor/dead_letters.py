"""Messages that are given up: kept as dead letters, told to leader as escalations, and to people when leader fails.

All of it may be repeated after a kill: what was made already is recognised by its name and what it holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.errors import BadFile, BadMessage, Collision
from kingdom.base.home.places import as_filename
from kingdom.base.home.states import MOVES
from kingdom.base.records.messages import alert
from kingdom.base.runtime.role import Services
from kingdom.base.times import moment, stamp
from kingdom.base.words import one_line
from kingdom.council import mime
from kingdom.council.bodies import LARGEST_DEAD_LETTER, OUTBOXES, original_of, read_body, with_original, yaml_of
from kingdom.council.monitor.messages import CouncilMessage, next_name, read_message
from kingdom.council.monitor.settings import CouncilSettings

MONITOR, LEADER = "queue_monitor", "leader"
UNANSWERED = ".unanswered@ignite.local>"
"""Ends the id of an escalation that is about an answer which nobody has given."""
OF_OURS = ("Status", "Processed-At", "Retry-Count", "Last-Retry-At", "Next-Retry-After", "Error-Reason", "Error-At")
"""Headers X-IGNITE-… that the council writes into a message as it goes on."""
NEVER_ESCALATE = ("escalation", "dead_letter")


class CouncilDeadLetters:
    """Writes what is said of a message that failed."""

    def __init__(self, services: Services, settings: CouncilSettings) -> None:
        self.take_over(services, settings)
        own = services.places.own("council")
        self._told = JsonFile(own / "alerts.json", services.disk, services.log.error, _is_sound)

    def take_over(self, services: Services, settings: CouncilSettings) -> None:
        """Use new configuration."""
        self._services, self._settings = services, settings

    def keep(self, path: Path, agent: str, raw: bytes, retries: int, reason: str) -> Path:
        """Write a dead letter with a message in it, and return its file: an earlier one if that holds the same."""
        place = f"{agent}/{os.fsencode(path.name).decode('utf-8', 'replace')}"
        for known in self._of(path):
            if _holds(known, place, raw):
                return known
        now = self._services.clock()
        info = {
            "retry_count": retries,
            "max_retries": self._settings.max_retries,
            "last_error": one_line(reason, 300),
            "moved_at": stamp(now),
        }
        body = with_original({"original_file": place, "failure_info": info}, raw)
        letter = mime.build_message(
            from_agent=MONITOR,
            to_agents=LEADER,
            msg_type="dead_letter",
            priority="critical",
            status="dead_letter",
            body=body,
        )
        return self._create(path, now, letter.encode())

    def keep_unreadable(self, path: Path, agent: str, reason: str) -> Path:
        """Move what is no readable file beside a dead letter that says so."""
        letter = self.keep(path, agent, b"", 0, reason)
        self._services.disk.move(path, letter.with_suffix(".original"))
        return letter

    def park(self, path: Path, agent: str, reason: str, raw: bytes | None = None) -> None:
        """Keep what an agent has sent and nobody gets: a message in a dead letter, else beside it. People are told."""
        lay_in = OUTBOXES if path.name == agent else f"{OUTBOXES}/{agent}"
        if raw is not None:
            letter = self.keep(path, lay_in, raw, 0, reason)
            self._services.disk.remove(path)
        else:
            letter = self.keep_unreadable(path, lay_in, reason)
        said = f"parked {path.name} of the outbox of {agent}: {one_line(reason, 300)}"
        self._services.log.error(said, event="file.buried", kind="council", file=letter.name, reason=said)
        day = stamp(self._services.clock())[:10].replace("-", "")
        text = f"The council's {agent} wrote what is not sent on ({one_line(reason, 200)}). It may have obeyed a text "
        text += "that it was to read. `kingdom council dlq ls` shows what it was; of more today only the log will tell."
        self._tell(f"msg-{day}-council-outbox-{agent}", text)

    def escalate(self, message: CouncilMessage, reason: str, at: float, dead_letter: Path | None) -> None:
        """Tell leader of a message that failed at a time; of an escalation people are told, once."""
        if message.type in NEVER_ESCALATE:
            self._alert(message, reason, at)
            return
        self._send(
            f"<{int(at)}.{_key(message, dead_letter is None)}.escalation@ignite.local>",
            self._escalation(message, reason, dead_letter),
            thread_id=message.thread,
            in_reply_to=message.id,
            repo=message.repository,
            issue=message.issue,
        )
        if self._settings.of(LEADER) is None:
            self._alert(message, f"nobody starts leader, who should look into it: {reason}", at)

    def report(self, row: Mapping[str, Any], thread: str, why: str) -> None:
        """Tell leader, and whoever asked, of a message in a thread's list that its agent has deleted unanswered."""
        body = {
            "task_id": row.get("task_id") or thread,
            "title": one_line(row.get("about") or row["type"], 200),
            "original_assignee": row["agent"],
            "failure_reason": one_line(why, 300),
            "retry_count": 0,
            "max_retries": 0,
            "recommended_action": "manual_review",
            "notes": "nothing else goes on in this thread; it ends as failed unless somebody goes on",
        }
        asked_by = mime.folder_of(str(row["from"]))
        cc = [asked_by] if asked_by not in (LEADER, "user") and is_there(self._services.places.agent(asked_by)) else []
        key = crc32(f"{row['agent']}/{row['id']} unanswered".encode("utf-8", "replace"))
        identity = f"<{int(moment(str(row['at'])))}.{key}{UNANSWERED}"
        self._send(identity, body, cc, thread_id=thread, in_reply_to=str(row["id"]))

    def _send(self, identity: str, body: Mapping[str, Any], cc: Sequence[str] = (), **headers: str) -> None:
        """Write leader an escalation, once: its name is made of its id, which is the same after a kill."""
        at, key = map(int, identity[1:].split(".")[:2])
        letter = mime.build_message(
            from_agent=MONITOR,
            to_agents=LEADER,
            cc=cc,
            msg_type="escalation",
            priority="critical",
            body=yaml_of(body),
            **headers,
        )
        data = mime.update_header(letter, "Message-ID", identity).encode()
        for agent in (*cc, LEADER):
            make_folder(self._services.places.told(agent))
            name = f"escalation_{at * 1_000_000 + key % 1_000_000:016d}.mime"
            while not self._is_sent(agent, name, identity):
                try:
                    self._services.disk.create(self._services.places.agent(agent) / name, data)
                except Collision:
                    name = next_name(name)
                else:
                    break

    def is_heard(self) -> None:
        """Note that leader takes escalations: people are told again when that changes."""
        if self._told.remove("alerted") is not None:
            self._told.save()

    def _escalation(self, message: CouncilMessage, reason: str, dead_letter: Path | None) -> Mapping[str, Any]:
        try:
            body = read_body(message.body)
        except BadMessage:
            body = {}
        task = body.get("task_id")
        last = dead_letter is not None
        notes = "it is in the dead letters" if last else "it will be retried: a critical message escalates at once"
        return {
            "task_id": task if isinstance(task, str | int) and task != "" else message.thread or message.path.stem,
            "title": one_line(message.about or message.type, 200),
            "original_assignee": message.agent,
            "failure_reason": one_line(reason, 300),
            "retry_count": message.retries,
            "max_retries": self._settings.max_retries,
            "recommended_action": "manual_review",
            **({"dlq_path": str(dead_letter)} if last else {}),
            "notes": notes,
        }

    def _is_sent(self, agent: str, name: str, identity: str) -> bool:
        places = self._services.places
        for path in (places.agent(agent) / name, places.told(agent) / name):
            try:
                if read_message(path, agent, read_bytes(path)).id == identity:
                    return True
            except (FileNotFoundError, BadFile):
                continue
        return False

    def _alert(self, message: CouncilMessage, reason: str, at: float) -> None:
        """Tell people that leader takes no escalations: once, until he takes one again."""
        if self._told.get("alerted"):
            return
        key = _key(message, at_once=True)
        day = stamp(at)[:10].replace("-", "")
        id = f"msg-{day}-council-{int(at) % 86_400:05d}{key % 100_000:05d}"
        text = f"The council's {message.agent} did not take a message of type {message.type} ({one_line(reason, 200)})"
        text += ". Nobody else looks after what fails: `kingdom council status` and `kingdom council dlq ls` show it."
        self._tell(id, text)
        self._told.set("alerted", id)
        self._told.save()

    def _tell(self, id: str, text: str) -> None:
        messages = self._services.queues.messages
        if not messages.has(id, *MOVES["messages"]):
            messages.create([alert(id, text, None, stamp(self._services.clock()))])

    def _of(self, path: Path) -> Iterator[Path]:
        """Yield the dead letters of messages of this name."""
        start = f"{_stem(path)}_dlq_"
        folder = self._services.places.dead_letters
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        yield from (folder / name for name in names if name.startswith(start) and name.endswith(".mime"))

    def _create(self, path: Path, now: float, data: bytes) -> Path:
        folder, second = self._services.places.dead_letters, int(now)
        make_folder(folder)
        while True:
            target = folder / f"{_stem(path)}_dlq_{second}.mime"
            try:
                self._services.disk.create(target, data)
            except Collision:
                second += 1
            else:
                return target


def _key(message: CouncilMessage, at_once: bool) -> int:
    """Return a number that tells one escalation from others of the same second, and is the same after a kill."""
    about = f"{message.agent}/{message.path.name} {'at once' if at_once else 'at last'}"
    return crc32(about.encode("utf-8", "replace"))


def _stem(path: Path) -> str:
    """Return a message's name without its ending, as part of another name."""
    return as_filename(path.name.removesuffix(".mime"))


def _holds(path: Path, place: str, raw: bytes) -> bool:
    """Return whether a dead letter is that of this very message. One that was moved beside it holds nothing."""
    try:
        body = read_body(read_message(path, LEADER, read_bytes(path, LARGEST_DEAD_LETTER)).body)
        is_it = body.get("original_file") == place and _as_sent(original_of(body)) == _as_sent(raw)
    except (FileNotFoundError, BadFile, BadMessage):
        return False
    return is_it and not is_there(path.with_suffix(".original"))


def _as_sent(raw: bytes) -> bytes:
    """Return a message without what the council writes into it: a power cut may have undone that."""
    text = raw.decode("utf-8", "surrogateescape")
    for name in OF_OURS:
        text = mime.remove_header(text, f"X-IGNITE-{name}")
    return text.encode("utf-8", "surrogateescape")


def _is_sound(name: str, value: Any) -> bool:
    return name == "alerted" and isinstance(value, str)
