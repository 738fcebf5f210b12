"""The hall as a channel, over its topics alone: a room for each task, and the throne room for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.errors import KingdomError
from kingdom.base.home import config as configuration
from kingdom.base.home.places import Places
from kingdom.base.words import one_line, printable
from kingdom.court.envoy.channels.base import (
    IN_THREAD,
    Channel,
    ChannelKit,
    ChannelRefused,
    Heard,
    NeighbourDown,
    Post,
    PostDraft,
)
from kingdom.court.envoy.channels.journal import PostJournal
from kingdom.hall.channel.listener import HallListener
from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.own_rooms import THRONE_ROOM, client_msg_id, room_of
from kingdom.hall.database.records import HallCommand, MessageCreated, MessagePersisted
from kingdom.hall.topics import base as topics
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome
from kingdom.hall.topics.names import COMMANDS, DEAD, MESSAGES, PASSING, PERSISTED

GROUP = "kingdom-envoy"
LONGEST = 2_400
"""Characters of one post, of which each may be two of the units that a message is counted in."""
MOST_ROOMS = 2_000
"""So many rooms of tasks are known; in older ones nobody listens."""
STORE_SECONDS = 10.0
"""How long the worker may take to store a post, before it is looked for and made again."""
WELCOME = "welcome"
THRONE_NAME = "throne room"
THRONE_TEXT = "What you write here is for the kingdom. Each task gets a room, where you answer its questions."


class HallChannel(Channel):
    waits = True
    longest = LONGEST
    new_ones = "in the throne room"

    def __init__(self, kit: ChannelKit) -> None:
        self._kit = kit
        self._journal = PostJournal(kit)
        # One of its own: posts are made by a thread.
        disk = Disk(_folder(kit.folder / "scratch"), durability=kit.disk.durability, guard=kit.disk.guard)
        disk.sweep_scratch()
        #: The room of each thread, by the id of the post under which it hangs.
        self._rooms = JsonFile(kit.folder / "rooms.json", disk, kit.tell, lambda _, room: isinstance(room, str))
        self._threads: dict[str, str] = {self._rooms.get(thread): thread for thread in self._rooms}
        self._throne_mark = kit.folder / "throne-room-is-open"
        try:
            self._topics = _open_topics(kit)
        except KingdomError as error:
            raise NeighbourDown(channel="the hall", why=str(error)) from None
        self._producer = self._topics.producer()
        self._listener = HallListener(self._topics.group(GROUP, PERSISTED, DEAD), self._said, kit.alarm.ring)
        self._throne = self._listener.expect(client_msg_id(WELCOME))
        if is_there(self._throne_mark):
            self._throne.set_result("")
        else:
            self._ask_for_throne_room()
        self._listener.start()

    def post(self, draft: PostDraft) -> Post:
        room = room_of(draft.id)
        if draft.opens and self._rooms.get(draft.thread or room) in (None, room):
            self._open(draft, room)
            return self._journal.add(draft._replace(room=room), room)
        room = self._rooms.get(draft.thread or "") or self.room(draft.room)
        self._say(draft.id, room, draft.text, _about(draft))
        return self._journal.add(draft._replace(room=room), client_msg_id(draft.id))

    def find(self, draft: PostDraft) -> Post | None:
        """Return the post that was noted here. One that was not is made again, and stored once under its own id."""
        return self._journal.find(draft)

    def room(self, name: str) -> str:
        """Return a room of ours; what has another name belongs into the throne room."""
        return name if name in self._threads else THRONE_ROOM

    def read(self) -> Sequence[Heard]:
        for gap in self._listener.gone():
            self._kit.tell(f"what people said in the hall may be lost: {gap}")
        if self._throne.done() and not is_there(self._throne_mark):
            self._kit.disk.rewrite(self._throne_mark, b"")
        heard = self._listener.heard()
        if not heard and self._listener.away:
            raise NeighbourDown(channel="the hall", why=self._listener.away)
        return heard

    def acknowledge(self, said: Sequence[Heard]) -> None:
        self._listener.note_safe(said)

    def close(self) -> None:
        self._listener.close()
        self._topics.close()

    def _said(self, message: MessagePersisted) -> Heard | None:
        """Return what a person says to us: only in our rooms, into which the gateways let only their members."""
        room = message.room_id.lower()
        words = (message.message_id, "message", message.sender_id, message.content, room)
        if room == THRONE_ROOM:
            return Heard(*words)
        thread = self._threads.get(room)
        return None if thread is None else Heard(*words, thread)._replace(type=IN_THREAD)

    def _open(self, draft: PostDraft, room: str) -> None:
        """Open a room for the thread under a draft. Who asked for it elsewhere is told there where it goes on."""
        self._note_room(draft.thread or room, room)
        facts = {"roomId": room, "name": one_line(draft.opens) or "task", "kind": own_rooms.TASK}
        first = {"clientMsgId": client_msg_id(draft.id), "content": _fit(f"{draft.opens}\n{draft.text}")}
        about = {"about": told} if (told := _about(draft)) else {}
        expected = self._listener.expect(first["clientMsgId"])
        self._publish(COMMANDS, room, self._command({**facts, **first, **about}))
        self._wait(expected, first["clientMsgId"])
        if draft.thread is not None:
            self._say(f"{draft.id}.room", self.room(draft.room), f"→ {draft.opens}")

    def _note_room(self, thread: str, room: str) -> None:
        """Know a room before it is open: an answer may come at once."""
        self._rooms.put_last(thread, room, MOST_ROOMS)
        self._rooms.save()
        self._threads = {self._rooms.get(known): known for known in self._rooms}

    def _say(self, id: str, room: str, text: str, about: Mapping[str, Any] | None = None) -> None:
        """Return when people can read it."""
        if room == THRONE_ROOM and not self._throne.done():
            self._wait(self._throne, "")
        client_id = client_msg_id(id)
        now = iso(self._kit.clock())
        event = MessageCreated(new_uuid(), room, own_rooms.USER, client_id, "SYSTEM", _fit(text), now, about)
        expected = self._listener.expect(client_id)
        self._publish(MESSAGES, room, event.to_json())
        self._wait(expected, client_id)

    def _wait(self, expected: Future[str], client_id: str) -> None:
        try:
            refused = expected.result(STORE_SECONDS)
        except TimeoutError:
            self._listener.forget(client_id)
            raise NeighbourDown(channel="the hall", why="its worker has not stored a message in time") from None
        if refused:
            raise ChannelRefused(channel="the hall", why=refused)

    def _publish(self, topic: str, key: str, value: bytes) -> None:
        """Return when an event is in its topic, or when nobody knows: whoever waits for its effect finds out."""
        told: Future[tuple[PublishOutcome, str]] = Future()
        self._producer.append(topic, key, value, lambda outcome, why: told.set_result((outcome, why)))
        try:
            outcome, why = told.result(STORE_SECONDS)
        except TimeoutError:
            return
        if outcome is PublishOutcome.REFUSED:
            raise NeighbourDown(channel="the hall", why=why)

    def _ask_for_throne_room(self) -> None:
        facts = {"roomId": THRONE_ROOM, "name": THRONE_NAME, "kind": own_rooms.THRONE}
        first = {"clientMsgId": client_msg_id(WELCOME), "content": THRONE_TEXT}
        self._producer.append(COMMANDS, THRONE_ROOM, self._command({**facts, **first}), lambda outcome, why: None)

    def _command(self, facts: dict[str, Any]) -> bytes:
        return HallCommand(new_uuid(), "openRoom", iso(self._kit.clock()), facts).to_json()


def _open_topics(kit: ChannelKit) -> topics.Topics:
    places = Places(kit.home)
    settings = configuration.load(places, "hall")
    made_of = topics.TopicsKit(
        folder=places.topics,
        scratch=places.topic_scratch(kit.folder.parent.name),
        durability=kit.disk.durability,
        guard=kit.disk.guard,
        settings=settings,
        passing=PASSING,
        wake=configuration.load(places, "system")["wake"],
        secrets=kit.secrets,
    )
    return open_topics(settings["transport"], made_of)


def _folder(path: Path) -> Path:
    make_folder(path)
    return path


def _about(draft: PostDraft) -> dict[str, Any] | None:
    """Return what programs read of a post: its task, what it says of that, and the answers to choose from."""
    if draft.task is None:
        return None
    told = {"taskId": draft.task, "code": draft.code, "choices": [printable(choice) for choice in draft.choices]}
    return {key: value for key, value in told.items() if value}


def _fit(text: str) -> str:
    """Return a text as the hall takes it: what is too long for a post is cut."""
    plain = printable(text).encode("utf-8", "replace").decode()[:LONGEST]
    return plain if plain.strip() else "(nothing)"
