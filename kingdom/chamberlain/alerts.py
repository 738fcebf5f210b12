"""The chamberlain's own letters to people: each trouble once, a storm of them in few letters, none lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from kingdom.codec import read_json, to_json
from kingdom.errors import BadFile
from kingdom.messages import Message, Numbers, highest_number, stamp
from kingdom.role import Kit

MESSAGE_STATES = ("pending", "sent", "failed", "dead")
PAUSES = (0.0, 10.0, 600.0)
"""Seconds before the first, the second and every further letter of an hour: a storm is gathered."""
HOUR = 3600.0
TOLD_KEPT = 500


class Alerts:
    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._path = kit.places.own("chamberlain") / "alerts.json"
        folders = [kit.places.folder("messages", state) for state in MESSAGE_STATES]
        used = highest_number(folders, "msg-{day}-chamberlain-")
        self._numbers = Numbers(kit.disk, kit.places.own("chamberlain") / "msg-seq", self._today, used)
        self._book = self._read()

    def tell(self, cause: str, text: str) -> None:
        """Written down at once, sent when its letter is due. The same cause is told once."""
        if cause in self._book["told"] or any(each["cause"] == cause for each in self._book["waiting"]):
            return
        self._write({**self._book, "waiting": [*self._book["waiting"], {"cause": cause, "text": text}]})

    def send(self, now: Callable[[], float]) -> bool:
        """The letter that is due, if one is: its id is noted before it is delivered."""
        if not self._book["waiting"] and "letter" not in self._book:
            return False
        if "letter" not in self._book:
            if not self._is_due(now()):
                return False
            day, _, number = self._numbers.take(1)[0].partition("-")
            self._write({**self._book, "letter": f"msg-{day}-chamberlain-{number}", "told_now": self._book["waiting"]})
        letter = str(self._book["letter"])
        if not self._kit.post.has("messages", letter, *MESSAGE_STATES):
            self._kit.post.deliver("messages", [self._letter(letter)])
        told = {each["cause"] for each in self._book["told_now"]}
        self._write(
            {
                "told": [*self._book["told"], *told][-TOLD_KEPT:],
                "waiting": [each for each in self._book["waiting"] if each["cause"] not in told],
                "sent_at": [*self._book["sent_at"], now()][-len(PAUSES) :],
            }
        )
        return True

    def forget(self, cause: str) -> None:
        """The trouble is over: should it come back, it is told again."""
        if cause in self._book["told"]:
            self._write({**self._book, "told": [each for each in self._book["told"] if each != cause]})

    def _is_due(self, now: float) -> bool:
        recent = [each for each in self._book["sent_at"] if 0 <= now - each < HOUR]
        pause = PAUSES[min(len(recent), len(PAUSES) - 1)]
        return not recent or now - recent[-1] >= pause

    def _letter(self, letter_id: str) -> Message:
        texts = [str(each["text"]) for each in self._book["told_now"]]
        content = f"[alert] {texts[0]}" if len(texts) == 1 else f"[alert] {len(texts)} things:\n" + "\n".join(texts)
        return Message(
            id=letter_id,
            type="notification",
            task_id=None,
            channel=None,
            urgency="urgent",
            content=content,
            context={},
            source_ref=None,
            created_at=stamp(self._kit.clock()),
            status="pending",
            dedup_key=letter_id,
        )

    def _read(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"told": [], "waiting": [], "sent_at": []}
        try:
            return {**empty, **read_json(self._path)}
        except FileNotFoundError:
            return empty
        except BadFile as trouble:
            self._kit.log.error(f"{trouble}; alerts start anew")
            return empty

    def _write(self, book: dict[str, Any]) -> None:
        self._kit.disk.rewrite(self._path, to_json(book))
        self._book = book

    def _today(self) -> Any:
        return datetime.fromtimestamp(self._kit.clock()).astimezone().date()
