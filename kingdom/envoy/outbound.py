"""The envoy speaks: every letter once, in its task's thread, whatever was interrupted before.

Intent, post, receipt, filing: an intent without a receipt is looked up on the channel before anything is said again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import islice
from pathlib import Path

from kingdom.disk.atomic import make_folder
from kingdom.disk.codec import read_json, to_json
from kingdom.disk.json_file import JsonFile
from kingdom.envoy.channels import CHANNELS
from kingdom.envoy.channels.base import Channel, ChannelRefused
from kingdom.envoy.conversations import SENDERS, Spoken, asker, is_page
from kingdom.errors import BadFile, KingdomError
from kingdom.records import notes
from kingdom.records.backlog import Backlog
from kingdom.records.messages import Message, Queued
from kingdom.rules.retry import backoff, may_retry
from kingdom.runtime.role import Services, Turn
from kingdom.times import stamp

BATCH = 32


class Outbound:
    def __init__(self, services: Services) -> None:
        self._take_over(services)
        own = services.places.own("envoy")
        self._intents, self._receipts = own / "intents", own / "receipts"
        for folder in (self._intents, self._receipts):
            make_folder(folder)
        self._letters = Backlog(services.queues.messages, period=self._period)
        self._threads = JsonFile(own / "thread-mappings.json", services.disk, services.log.error, is_page)
        self._awaiting = JsonFile(own / "awaiting-responses.json", services.disk, services.log.error, is_page)
        self._channels: dict[str, Channel] = {}
        self._interrupted = {name.removesuffix(".json") for name in os.listdir(self._intents)}

    def folders(self) -> Iterable[Path]:
        return (self._services.places.folder("messages", "pending"),)

    def reload(self, services: Services) -> None:
        self._take_over(services)

    def close(self) -> None:
        """Every letter said has been filed."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        now = self._services.monotonic()
        self._letters.follow(arrivals, now)
        chosen = self._next_batch()
        opened = [self._letters.take(each.filename) for each in chosen]
        due = [letter for letter in opened if letter is not None and self._is_due(letter) and self._is_new(letter)]
        # What is not due yet comes back with the next rescan, behind nobody's back.
        self._letters.drop(each.filename for each in chosen)
        if due:
            self._speak(due)
        self._close_stale_intents()
        more = bool(due) or len(self._letters) > 0
        return Turn(more, wait=self._letters.next_look - self._services.monotonic(), busy=self._letters.unsettled)

    def _next_batch(self) -> list[Queued]:
        """The most urgent first; but what opens a task's thread goes before whatever belongs in it."""
        first = list(islice(self._letters, BATCH))
        about = {each.about for each in first if SENDERS[each.type].in_thread}
        openers = {each.about: each for each in self._letters if each.type == "thread_start" and each.about in about}
        with_openers = (part for each in first for part in (openers.get(each.about), each) if part is not None)
        return list(dict.fromkeys(with_openers))

    def _speak(self, letters: list[Message]) -> None:
        """An error half-way leaves it open what was said: then the channel is asked before anything is said again."""
        try:
            self._speak_once(letters)
        except (KingdomError, OSError):
            self._interrupted |= {letter.id for letter in letters}
            raise

    def _speak_once(self, letters: list[Message]) -> None:
        self._note_intents(letters)
        spoken: list[Spoken] = []
        for letter in letters:
            said = self._say(letter)
            if said is not None:
                SENDERS[letter.type].remember(self._threads, self._awaiting, said, stamp(self._services.clock()))
                spoken.append(said)
                self._strike_if_answered(letter)
        self._write_receipts(spoken)
        self._threads.save()
        self._awaiting.save()
        self._file([_with_address(said) for said in spoken], "sent")
        for said in spoken:
            self._services.log.info(f"says {said.letter.id} ({said.letter.type}) on {said.channel} in {said.room}")
            self._services.log.event("message.sent", message_id=said.letter.id, type=said.letter.type)

    def _strike_if_answered(self, letter: Message) -> None:
        """A question that its channel refused for a while may be answered before it is asked."""
        asked = letter.type == "human_input_request"
        if asked and notes.answered_by(self._services.places, asker(letter)) is not None:
            self._awaiting.remove(asker(letter))

    def _say(self, letter: Message) -> Spoken | None:
        name, room, thread = self._address(letter)
        try:
            channel = self._channel(name)
            post_id = self._receipt(letter.id) or self._said_before(channel, letter.id)
            if post_id is None:
                post_id = channel.post(letter.id, room, _words(letter), thread)
        except ChannelRefused as trouble:
            self._refused(letter, str(trouble))
            return None
        return Spoken(letter, name, room, post_id, thread)

    def _said_before(self, channel: Channel, letter_id: str) -> str | None:
        if letter_id not in self._interrupted:
            return None
        return channel.find(letter_id)

    def _address(self, letter: Message) -> tuple[str, str, str | None]:
        """Which channel, which room there, and which thread in it."""
        source = str((letter.source_ref or {}).get("source", ""))
        name = source if source in CHANNELS else str(self._config["channel"])
        room = letter.channel or name
        mapping = self._threads.get(letter.task_id) if letter.task_id else None
        if mapping is None or not SENDERS[letter.type].in_thread or not mapping.keys() >= {"channel", "room", "thread"}:
            return name, room, None
        if letter.type == "notification" and letter.channel not in (None, mapping["room"]):
            return name, room, None
        return str(mapping["channel"]), str(mapping["room"]), str(mapping["thread"])

    def _refused(self, letter: Message, why: str) -> None:
        """Three refusals, with a growing pause between them, then failed/ with the reason."""
        rules = self._config["retry"]
        tries = (letter.tries or 0) + 1
        later = stamp(self._services.clock() + backoff("linear", tries, rules["backoff_seconds"], math.inf))
        refused = letter.evolve(tries=tries, refused_because=why, not_before=later)
        self._services.log.warn(f"{letter.id} was refused ({tries} of {rules['attempts']}): {why}")
        self._interrupted.add(letter.id)
        if may_retry(tries, rules["attempts"]):
            self._services.queues.messages.update("pending", [refused])
            return
        self._services.log.event("message.failed", message_id=letter.id, error=why)
        self._file([refused], "failed")

    def _is_due(self, letter: Message) -> bool:
        return (letter.not_before or "") <= stamp(self._services.clock())

    def _is_new(self, letter: Message) -> bool:
        """One whose id was used before cannot be filed, and would be said again and again."""
        place = next((each for each in ("sent", "failed") if self._services.queues.messages.has(letter.id, each)), None)
        if place is not None:
            self._services.queues.messages.move_to_dead(
                "pending", f"{letter.id}.json", f"{place}/ has a letter of this id already"
            )
        return place is None

    def _note_intents(self, letters: list[Message]) -> None:
        now = stamp(self._services.clock())
        self._services.disk.create_all(
            (self._intents / f"{letter.id}.json", to_json({"letter": letter.id, "since": now})) for letter in letters
        )

    def _write_receipts(self, spoken: list[Spoken]) -> None:
        self._services.disk.create_all(
            (
                self._receipts / f"{said.letter.id}.json",
                to_json({"letter": said.letter.id, "channel": said.channel, "room": said.room, "post": said.post_id}),
            )
            for said in spoken
        )

    def _receipt(self, letter_id: str) -> str | None:
        if letter_id not in self._interrupted:
            return None
        try:
            return str(read_json(self._receipts / f"{letter_id}.json")["post"])
        except (FileNotFoundError, BadFile, KeyError):
            return None

    def _file(self, letters: list[Message], state: str) -> None:
        self._services.queues.messages.update("pending", [letter.evolve(status=state) for letter in letters])
        self._services.queues.messages.move([letter.id for letter in letters], "pending", state)
        for letter in letters:
            self._remove_intent(letter.id)

    def _remove_intent(self, letter_id: str) -> None:
        self._interrupted.discard(letter_id)
        for trace in (self._receipts, self._intents):
            self._services.unsynced.remove(trace / f"{letter_id}.json")

    def _close_stale_intents(self) -> None:
        """Intents of letters that were filed just before an earlier life ended."""
        for letter_id in list(self._interrupted):
            if not self._services.queues.messages.has(letter_id, "pending"):
                self._remove_intent(letter_id)

    def _channel(self, name: str) -> Channel:
        if name not in CHANNELS:
            raise ChannelRefused(channel=name, why="it is not there any more")
        if name not in self._channels:
            module, _, attribute = CHANNELS[name].partition(":")
            make: Callable[..., Channel] = getattr(import_module(module), attribute)
            self._channels[name] = make(
                self._services.places.own("envoy") / name, self._services.disk, self._services.clock
            )
        return self._channels[name]

    def _period(self) -> float:
        return float(self._config["intervals"]["message_check_seconds"])

    def _take_over(self, services: Services) -> None:
        self._services = services
        self._config = services.config


def _words(letter: Message) -> str:
    """What people read: of a failure also how to look further."""
    failed = letter.context.get("failed_task")
    return f"{letter.content}\n`kingdom why {failed}` shows more" if failed else letter.content


def _with_address(said: Spoken) -> Message:
    """The filed letter tells where it can be read."""
    posted = {"channel": said.channel, "room": said.room, "post": said.post_id, "thread": said.thread}
    return said.letter.evolve(posted=posted)
