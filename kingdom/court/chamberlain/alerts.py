"""The chamberlain's messages to people: each problem once, many together in few messages, none lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime
from typing import Any

from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home import config
from kingdom.base.home.states import MOVES
from kingdom.base.records.ids import DailyCounter, highest_number
from kingdom.base.records.messages import Message, alert
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp

MESSAGE_STATES = tuple(MOVES["messages"])
PAUSES = (10.0, 600.0)
"""Seconds before the second and every further message of an hour: what comes in between is gathered."""
HOUR = 3600.0
MOST_CAUSES_KEPT = 500


class Alerts:
    """Problems to tell people of, kept in alerts.json so that a restart neither loses nor repeats one.

    Its entries: `told`, the causes that were sent; `waiting`, those that were not, with the time when one was `over`;
    `sent_at`, when the last messages went out; and `letter`, the draft of the message that is being sent.
    """

    def __init__(self, services: Services) -> None:
        self._services, self._zone = services, config.zone(services.places, services.system)
        own = services.places.own("chamberlain")
        folders = [services.places.folder("messages", state) for state in MESSAGE_STATES]
        used = highest_number(folders, "msg-{day}-chamberlain-")
        self._numbers = DailyCounter(services.disk, own / "msg-seq", used)
        self._file = JsonFile(own / "alerts.json", services.disk, services.log.error, _is_sound)

    def tell(self, cause: str, text: str) -> None:
        """Note a problem at once; it is sent with the next message. The same cause is reported once."""
        waiting = self._file.get("waiting", [])
        if cause in self._file.get("told", []) or any(p["cause"] == cause and "over" not in p for p in waiting):
            return
        others = [problem for problem in waiting if problem["cause"] != cause]
        self._write(waiting=[*others, {"cause": cause, "text": text}])

    def send(self, now: Callable[[], float]) -> bool:
        """Send what waits in one message, if that is due; return whether it was. Its id is noted first."""
        self._file.save()  # what could not be written while the disk was full
        waiting, sent_at = self._file.get("waiting", []), self._file.get("sent_at", [])
        draft = self._file.get("letter")
        if draft is None:
            if not waiting or not _is_due(sent_at, now()):
                return False
            draft = {"id": self.next_id(), "tells": waiting}
            self._write(letter=draft)
        if not self._services.queues.messages.has(draft["id"], *MESSAGE_STATES):
            self._services.queues.messages.create([self._message(draft)])
        reported = {problem["cause"] for problem in draft["tells"]}
        over = {problem["cause"] for problem in draft["tells"] if "over" in problem}
        self._file.remove("letter")
        self._write(
            told=[*self._file.get("told", []), *(reported - over)][-MOST_CAUSES_KEPT:],
            waiting=[problem for problem in waiting if problem["cause"] not in reported],
            sent_at=[*sent_at, now()][-len(PAUSES) :],
        )
        return True

    def next_id(self) -> str:
        """Return the id of the chamberlain's next message."""
        day, _, number = self._numbers.take(1, self._today())[0].partition("-")
        return f"msg-{day}-chamberlain-{number}"

    def forget(self, *causes: str) -> None:
        """Note that these problems are over: the next message says so of those that wait. They may come back."""
        told, waiting = self._file.get("told", []), self._file.get("waiting", [])
        over = {"over": stamp(self._services.clock())}
        left = [cause for cause in told if cause not in causes]
        marked = [{**over, **problem} if problem["cause"] in causes else problem for problem in waiting]
        if (left, marked) != (told, waiting):
            self._write(told=left, waiting=marked)

    def forget_all_but(self, prefix: str, causes: Collection[str]) -> None:
        """Note that all other problems whose cause begins so are over."""
        waiting = [problem["cause"] for problem in self._file.get("waiting", [])]
        known = [cause for cause in (*self._file.get("told", []), *waiting) if cause.startswith(prefix)]
        self.forget(*(cause for cause in known if cause not in causes))

    def _message(self, draft: Mapping[str, Any]) -> Message:
        texts = [_shown(problem) for problem in draft["tells"]]
        content = texts[0] if len(texts) == 1 else f"{len(texts)} things:\n" + "\n".join(texts)
        return alert(draft["id"], content, None, stamp(self._services.clock()))

    def _write(self, **entries: Any) -> None:
        for name, value in entries.items():
            self._file.set(name, value)
        self._file.save()

    def _today(self) -> date:
        return datetime.fromtimestamp(self._services.clock(), self._zone).date()


def _shown(problem: Mapping[str, str]) -> str:
    return f"{problem['text']} (over since {problem['over']})" if "over" in problem else problem["text"]


def _is_due(sent_at: list[float], now: float) -> bool:
    recent = [moment for moment in sent_at if 0 <= now - moment < HOUR]
    return not recent or now - recent[-1] >= PAUSES[min(len(recent), len(PAUSES)) - 1]


def _is_sound(name: str, value: Any) -> bool:
    if name == "letter":
        return isinstance(value, dict) and _is_ours(value.get("id")) and _are_problems(value.get("tells"), least=1)
    if name == "waiting":
        return _are_problems(value)
    known = {"told": str, "sent_at": int | float}
    return name in known and isinstance(value, list) and all(isinstance(item, known[name]) for item in value)


def _is_ours(message_id: Any) -> bool:
    return isinstance(message_id, str) and re.fullmatch(r"msg-\d{8}-chamberlain-\d{3,12}", message_id) is not None


def _are_problems(value: Any, least: int = 0) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= least
        and all(isinstance(problem, dict) and _holds_texts(problem, "cause", "text") for problem in value)
    )


def _holds_texts(row: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(row.get(name), str) for name in names)
