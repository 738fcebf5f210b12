"""Topics as files that a person can `cat`: a folder for each topic, a file for each turn of a writer.

A topic is one partition: all that is in it has one order, and a group has one holder.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.disk.lock import Lock
from kingdom.base.disk.space import check_room
from kingdom.base.errors import BadFile, BadName, KingdomError, Locked
from kingdom.base.home.places import check_name
from kingdom.base.runtime.wake import Alarm, Waker
from kingdom.hall.topics import batches
from kingdom.hall.topics.base import (
    LARGEST_EVENT,
    Done,
    Follower,
    GroupReader,
    Producer,
    PublishOutcome,
    TopicRecord,
    TopicsAway,
    TopicsKit,
)
from kingdom.hall.topics.batches import LARGEST_BATCH, Batches, BatchLine, BatchReading, NotDurable

MOST_EVENTS = 4096
LONGEST_KEY = 200
NOTE_SECONDS = 0.25
"""A group's position is written this often at most: what was read since is read again after a crash."""
LOOK_SECONDS = 1.0
"""How often a reader that stands by tries to take hold."""
POLL_SECONDS = 0.02
PREPARE_SECONDS = 0.001
SURPLUS = "the file has more lines than events: it was changed after it was written"


class FilesTopics:
    """Topics under queue/topics."""

    def __init__(self, kit: TopicsKit) -> None:
        self._kit = kit
        for folder in kit.scratch.glob("*/"):
            Disk(folder).sweep_scratch()
        self._opened: list[FilesProducer | FilesFollower | FilesGroupReader] = []
        self._failed = ""

    def producer(self, *, patient: bool = False) -> Producer:
        producer = FilesProducer(self, patient)
        self._opened.append(producer)
        return producer

    def follow(self, *topics: str) -> Follower:
        try:
            follower = FilesFollower([(topic, self.batches(topic)) for topic in topics], self._kit)
        except OSError as error:
            raise TopicsAway(why=str(error)) from None
        self._opened.append(follower)
        return follower

    def group(self, group: str, *topics: str) -> GroupReader:
        reader = FilesGroupReader(group, [(topic, self.batches(topic)) for topic in topics], self._kit)
        self._opened.append(reader)
        return reader

    def lag(self, group: str, topic: str) -> int:
        topic_batches = self.batches(topic)
        try:
            passed = _passed(topic_batches, group)
            numbers = topic_batches.numbers()
            return topic_batches.end() - (passed if passed is not None else numbers[0]) if numbers else 0
        except (OSError, BadFile) as error:
            raise TopicsAway(why=str(error)) from None

    def trim(self, topic: str, groups: Sequence[str], keep_seconds: float, now: float) -> int:
        topic_batches = self.batches(topic)
        present = {path.stem for path in topic_batches.groups.glob("*.json")}
        try:
            positions = [_passed(topic_batches, group) for group in present.union(groups)]
        except BadFile:
            return 0
        passed = [position for position in positions if position is not None]
        if len(passed) < len(positions):
            return 0  # a group has not begun: it will want the oldest
        most = int(self._kit.settings["retention_files"])
        return topic_batches.trim(min(passed, default=None), now - keep_seconds, most)

    def amend(self, topic: str, change: Callable[[bytes], bytes]) -> Iterator[None]:
        try:
            yield from self.batches(topic).amend(change)
        except (OSError, BadFile) as error:
            raise TopicsAway(why=str(error)) from None

    def check(self) -> None:
        if self._failed:
            raise TopicsAway(why=self._failed)
        try:
            make_folder(self._kit.folder)
            check_room(self._kit.folder)
        except OSError as error:
            raise TopicsAway(why=str(error)) from None

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
        self._opened.clear()

    def batches(self, topic: str) -> Batches:
        """Return the files of a topic, for one reader or writer. Its folders are there on return."""
        durability = "process" if topic in self._kit.passing else self._kit.durability
        disk = Disk(
            self._kit.scratch / check_name("topic", topic),
            durability=durability,
            guard=self._kit.guard,
        )
        found = Batches(self._kit.folder / topic, disk)
        found.make()
        return found

    def note(self, failed: str) -> None:
        """Note why events could not be published, "" if they could."""
        self._failed = failed


class FilesProducer:
    """What is appended while a file is written goes into the next one.

    A thread for each topic writes at once; a patient producer has none, and writes in `flush`.
    """

    def __init__(self, topics: FilesTopics, patient: bool) -> None:
        self._topics = topics
        self._patient = patient
        self._writers: dict[str, _Writer] = {}
        self._lock = threading.Lock()

    def append(self, topic: str, key: str, value: bytes, done: Done) -> None:
        if len(value) > LARGEST_EVENT or len(key) > LONGEST_KEY:
            done(PublishOutcome.REFUSED, f"{len(value)} bytes under a key of {len(key)} characters, which is too large")
            return
        writer = self._writers.get(topic)
        if writer is None:
            try:
                writer = self._new_writer(topic)
            except (OSError, BadName) as error:
                done(PublishOutcome.REFUSED, str(error))
                return
        writer.append(batches.to_line(key, value), done)

    def flush(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        return all(writer.settled(until - time.monotonic()) for writer in list(self._writers.values()))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _new_writer(self, topic: str) -> _Writer:
        with self._lock:
            if topic not in self._writers:
                self._writers[topic] = _Writer(self._topics, topic, self._patient)
            return self._writers[topic]


Appended = tuple[bytes, Done]


class _Writer:
    def __init__(self, topics: FilesTopics, topic: str, patient: bool) -> None:
        self._topics = topics
        self._batches = topics.batches(topic)
        self._patient = patient
        self._queue: deque[Appended] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        #: Wakes the thread when there is something in the queue again, sooner than the condition would.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._writing = False
        self._closed = False
        self._thread = None if patient else threading.Thread(target=self._run, name=f"topic {topic}", daemon=True)
        if self._thread is not None:
            self._thread.start()

    def append(self, line: bytes, done: Done) -> None:
        with self._lock:
            if not self._closed:
                self._queue.append((line, done))
                if self._thread is not None and len(self._queue) == 1:
                    self._bell.put(None)
                return
        done(PublishOutcome.REFUSED, "the topic is closed")

    def settled(self, seconds: float) -> bool:
        """Return whether the outcome of all that was appended is known, within this time."""
        if self._thread is None:
            is_settled = all(self._write(batch) for batch in iter(self._next_batch, []))
            self._batches.prepare()
            return is_settled
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._writing, max(0.0, seconds))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._bell.put(None)
        if self._thread is not None:
            self._thread.join()
        self._batches.close()

    def _run(self) -> None:
        while not self._closed or self._queue:
            self._wait()
            while batch := self._begin():
                self._write(batch)

    def _wait(self) -> None:
        """Wait for events. The next file is prepared once those who were told need disk and processor less."""
        try:
            self._bell.get(timeout=PREPARE_SECONDS)
        except Empty:
            self._batches.prepare()
            self._bell.get()

    def _begin(self) -> list[Appended]:
        """Return what is to be written next; [] when all is settled."""
        with self._lock:
            batch = self._next_batch()
            self._writing = bool(batch)
            if not batch:
                self._changed.notify_all()
            return batch

    def _next_batch(self) -> list[Appended]:
        batch: list[Appended] = []
        size = 0
        while self._queue and len(batch) < MOST_EVENTS and (size := size + len(self._queue[0][0])) < LARGEST_BATCH:
            batch.append(self._queue.popleft())
        return batch

    def _write(self, batch: list[Appended]) -> bool:
        """Write events as one file and tell of them. Return False if they are to be tried again."""
        outcome, why = PublishOutcome.STORED, ""
        try:
            self._batches.append([line for line, _ in batch])
        except NotDurable as error:
            outcome, why = PublishOutcome.UNKNOWN, str(error)
        except (OSError, KingdomError) as error:
            outcome, why = PublishOutcome.REFUSED, str(error)
        self._topics.note(why)
        if outcome is PublishOutcome.REFUSED and self._patient:
            self._queue.extendleft(reversed(batch))
            return False
        for _, done in batch:
            done(outcome, why)
        return True


class FilesFollower:
    """Reads several topics from their ends on."""

    def __init__(self, topics: Sequence[tuple[str, Batches]], kit: TopicsKit) -> None:
        self._batches = dict(topics)
        self._readings = [(topic, BatchReading(found, topic, "a reader", found.end())) for topic, found in topics]
        self._sleep = _Sleep(self.folders, kit)

    @property
    def folders(self) -> Sequence[Path]:
        return [found.folder for found in self._batches.values()]

    def poll(self, seconds: float, at_most: int = 1000) -> list[TopicRecord]:
        return self._sleep.until_there_are(lambda: _read(self._readings, at_most), seconds)

    def close(self) -> None:
        self._sleep.end()


class FilesGroupReader:
    """Reads several topics for a group whose position in each is a file, and whose holder has its lock."""

    def __init__(self, group: str, topics: Sequence[tuple[str, Batches]], kit: TopicsKit) -> None:
        self._group = check_name("group", group)
        self._batches = dict(topics)
        self._readings: list[tuple[str, BatchReading]] = []
        self._locks = [Lock(found.groups / f"{group}.lock", f"reader of {topic}") for topic, found in topics]
        self._disk = Disk(kit.scratch / f"{group}-positions", durability=kit.durability, guard=kit.guard)
        #: What was read and is not known to be durable.
        self._found: list[TopicRecord] = []
        self._passed: dict[str, int] = {}
        self._noted: dict[str, int] = {}
        self._noted_at = 0.0
        self._tried_at = -LOOK_SECONDS
        self._sleep = _Sleep(self.folders, kit)

    @property
    def folders(self) -> Sequence[Path]:
        return [found.folder for found in self._batches.values()]

    @property
    def holds(self) -> bool:
        return bool(self._readings)

    def poll(self, seconds: float, at_most: int = 1000) -> list[TopicRecord]:
        if not self.holds and not self._takes_hold():
            self._sleep.a_while(min(seconds, LOOK_SECONDS))
            return []
        self._note(time.monotonic() - NOTE_SECONDS)
        return self._sleep.until_there_are(lambda: self._read(at_most), seconds)

    def commit(self, records: Sequence[TopicRecord]) -> None:
        for record in records:
            self._passed[record.topic] = _number(record.position) + 1
        self._note(time.monotonic() - NOTE_SECONDS)

    def close(self) -> None:
        self._sleep.end()
        if self.holds:
            self._note(time.monotonic())
        self._readings = []
        for lock in self._locks:
            lock.release()

    def _takes_hold(self) -> bool:
        """Take the lock in every topic, or in none."""
        if time.monotonic() - self._tried_at < LOOK_SECONDS:
            return False
        self._tried_at = time.monotonic()
        try:
            for lock in self._locks:
                lock.acquire()
        except Locked:
            for lock in self._locks:
                lock.release()
            return False
        starts = {topic: _passed(found, self._group) for topic, found in self._batches.items()}
        who = f"the group {self._group}"
        self._readings = [
            (topic, BatchReading(self._batches[topic], topic, who, start)) for topic, start in starts.items()
        ]
        return True

    def _read(self, at_most: int) -> list[TopicRecord]:
        """Return the next records when their files are durable.

        Else a power cut could keep their effects and lose the files, whose numbers would be given away again. And while
        this waits for the disk, the processor is free for the writer, who waits for the same.
        """
        self._found = self._found or _read(self._readings, at_most)
        try:
            for topic in {record.topic for record in self._found}:
                self._batches[topic].sync()
        except OSError as error:
            raise TopicsAway(why=str(error)) from None
        found, self._found = self._found, []
        return found

    def _note(self, before: float) -> None:
        """Write down how far the group is, if it has not been done since `before`."""
        if self._passed == self._noted or self._noted_at > before:
            return
        for lock in self._locks:
            lock.check()
        for topic, number in self._passed.items():
            if self._noted.get(topic) != number:
                self._disk.rewrite(_note_path(self._batches[topic], self._group), to_json({"next": number}))
        self._noted, self._noted_at = dict(self._passed), time.monotonic()


class _Sleep:
    """Sleeps until a file arrives in one of the folders, and until it is ended."""

    def __init__(self, folders: Sequence[Path], kit: TopicsKit) -> None:
        self._folders = folders
        self._wake = kit.wake
        self._waker: Waker | None = None
        self._alarm = Alarm()
        self._ended = False
        self._sleeping = threading.Lock()

    def until_there_are(self, read: Callable[[], list[TopicRecord]], seconds: float) -> list[TopicRecord]:
        """Return the first records that come within this time."""
        until = time.monotonic() + seconds
        while not (found := read()) and not self._ended and (left := until - time.monotonic()) > 0:
            self.a_while(min(left, LOOK_SECONDS))
        return found

    def a_while(self, seconds: float) -> None:
        with self._sleeping:
            if self._ended:
                return
            if self._waker is None:
                # What has arrived before does not wake it: its reader looks once more before it sleeps.
                self._waker = Waker(self._folders, self._wake)
                self._waker.add_descriptor(self._alarm.fileno(), self._alarm.clear)
            elif seconds > 0:
                self._waker.wait(min(seconds, POLL_SECONDS) if self._waker.polls else seconds)

    def end(self) -> None:
        """End the sleep, and every later one at once. Any thread may call this."""
        if self._ended:
            return
        self._ended = True
        self._alarm.ring()
        with self._sleeping:
            if self._waker is not None:
                self._waker.close()
            self._alarm.close()


def _read(readings: Sequence[tuple[str, BatchReading]], at_most: int) -> list[TopicRecord]:
    for _, reading in readings:
        reading.check()
    found: list[TopicRecord] = []
    try:
        for topic, reading in readings:
            while len(found) < at_most and (lines := reading.read(at_most - len(found))):
                found += [_record(topic, line) for line in lines]
    except (OSError, BadFile) as error:
        if not found:
            raise TopicsAway(why=str(error)) from None
    return found


def _record(topic: str, line: BatchLine) -> TopicRecord:
    if not line.surplus:
        return TopicRecord(topic, f"0:{line.number}", *batches.of_line(line.data))
    return TopicRecord(topic, f"0:{line.number}+{line.surplus}", "", line.data, SURPLUS)


def _number(position: str) -> int:
    return int(position.partition(":")[2].partition("+")[0])


def _note_path(found: Batches, group: str) -> Path:
    return found.groups / f"{group}.json"


def _passed(found: Batches, group: str) -> int | None:
    """Return the number of the first event that a group has not passed, or None when it has not begun."""
    with suppress(FileNotFoundError):
        note = read_json(_note_path(found, group))
        if isinstance(note.get("next"), int):
            return int(note["next"])
        raise BadFile(path=_note_path(found, group), why='no number under "next"')
    return None
