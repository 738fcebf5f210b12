"""The chamberlain's own letters to people: each trouble once, a storm of them in few letters, none lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

from kingdom.disk.json_file import JsonFile
from kingdom.home import config
from kingdom.home.states import MOVES
from kingdom.records.ids import DailyCounter, highest_number
from kingdom.records.messages import Message, alert
from kingdom.runtime.role import Services
from kingdom.times import stamp

MESSAGE_STATES = tuple(MOVES["messages"])
PAUSES = (0.0, 10.0, 600.0)
"""Seconds before the first, the second and every further letter of an hour: a storm is gathered."""
HOUR = 3600.0
TOLD_KEPT = 500


class Alerts:
    """Its book: `told`, the causes; `waiting`, what no letter has told; `sent_at`; and the `letter` under way."""

    def __init__(self, services: Services) -> None:
        self.take_over(services)
        own = services.places.own("chamberlain")
        folders = [services.places.folder("messages", state) for state in MESSAGE_STATES]
        used = highest_number(folders, "msg-{day}-chamberlain-")
        self._numbers = DailyCounter(services.disk, own / "msg-seq", self._today, used)
        self._book = JsonFile(own / "alerts.json", services.disk, services.log.error, _is_sound)

    def take_over(self, services: Services) -> None:
        zone = config.zone(services.places, services.system)
        self._services, self._zone = services, zone

    def tell(self, cause: str, text: str) -> None:
        """Written down at once, sent when its letter is due. The same cause is told once."""
        waiting = self._book.get("waiting", [])
        if cause in self._book.get("told", []) or any(each["cause"] == cause for each in waiting):
            return
        self._write(waiting=[*waiting, {"cause": cause, "text": text}])

    def send(self, now: Callable[[], float]) -> bool:
        """The letter that is due, if one is: its id is noted before it is delivered."""
        self._book.save()  # what a full disk did not take when it was told
        waiting, sent_at = self._book.get("waiting", []), self._book.get("sent_at", [])
        letter = self._book.get("letter")
        if letter is None:
            if not waiting or not _is_due(sent_at, now()):
                return False
            day, _, number = self._numbers.take(1)[0].partition("-")
            letter = {"id": f"msg-{day}-chamberlain-{number}", "tells": waiting}
            self._write(letter=letter)
        if not self._services.queues.messages.has(letter["id"], *MESSAGE_STATES):
            self._services.queues.messages.create([self._written(letter)])
        told = {each["cause"] for each in letter["tells"]}
        self._book.remove("letter")
        self._write(
            told=[*self._book.get("told", []), *told][-TOLD_KEPT:],
            waiting=[each for each in waiting if each["cause"] not in told],
            sent_at=[*sent_at, now()][-len(PAUSES) :],
        )
        return True

    def forget(self, cause: str) -> None:
        """The trouble is over: should it come back, it is told again."""
        self._write(told=[each for each in self._book.get("told", []) if each != cause])

    def _written(self, letter: Mapping[str, Any]) -> Message:
        texts = [each["text"] for each in letter["tells"]]
        content = texts[0] if len(texts) == 1 else f"{len(texts)} things:\n" + "\n".join(texts)
        return alert(letter["id"], content, None, stamp(self._services.clock()))

    def _write(self, **pages: Any) -> None:
        for name, page in pages.items():
            self._book.set(name, page)
        self._book.save()

    def _today(self) -> date:
        return datetime.fromtimestamp(self._services.clock(), self._zone).date()


def _is_due(sent_at: list[float], now: float) -> bool:
    recent = [each for each in sent_at if 0 <= now - each < HOUR]
    pause = PAUSES[min(len(recent), len(PAUSES) - 1)]
    return not recent or now - recent[-1] >= pause


def _is_sound(name: str, page: Any) -> bool:
    if name == "letter":
        return isinstance(page, dict) and _is_ours(page.get("id")) and _are_troubles(page.get("tells"), least=1)
    if name == "waiting":
        return _are_troubles(page)
    known = {"told": str, "sent_at": int | float}
    return name in known and isinstance(page, list) and all(isinstance(each, known[name]) for each in page)


def _is_ours(letter_id: Any) -> bool:
    return isinstance(letter_id, str) and re.fullmatch(r"msg-\d{8}-chamberlain-\d{3,12}", letter_id) is not None


def _are_troubles(page: Any, least: int = 0) -> bool:
    return (
        isinstance(page, list)
        and len(page) >= least
        and all(isinstance(each, dict) and _holds_texts(each, "cause", "text") for each in page)
    )


def _holds_texts(row: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(row.get(name), str) for name in names)
