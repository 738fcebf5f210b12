"""Topics in Apache Kafka: an offset is committed after the effect, and no reader skips ahead in silence."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.errors import BadInput
from kingdom.hall.topics.base import (
    CHECK_SECONDS,
    LARGEST_EVENT,
    Done,
    Follower,
    GroupReader,
    PositionGone,
    Producer,
    PublishOutcome,
    TopicRecord,
    TopicsAway,
    TopicsKit,
)

PARTITIONS = 3
PASSING_MS = 600_000
COMMIT_SECONDS = 0.25
"""A group's position is committed this often at most: what was read since is read again after a crash."""
SLICE_SECONDS = 0.2
"""How long a call into the library may keep a thread from noticing that it should end."""
CREATE_SECONDS = 15.0
NEVER_STORED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._QUEUE_FULL,
        KafkaError._PURGE_QUEUE,
    }
)
"""After any other error the broker may have the event all the same."""
NO_LEADER_YET = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
)
LEADER_SECONDS = 0.05
QUIET = logging.getLogger("kingdom.hall.topics.kafka")
"""The library would write to the terminal, once a second while a broker is away. What matters comes as errors."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
T = TypeVar("T")


class KafkaTopics:
    """Topics at the brokers that hall.yaml names."""

    def __init__(self, kit: TopicsKit) -> None:
        self._kit = kit
        self._settings = kit.settings["kafka"]
        given_options(self._settings["options"], kit)  # refuse them now, and not when they are used
        self._opened: list[KafkaProducer | KafkaFollower | KafkaGroupReader] = []
        self._admin_client: AdminClient | None = None
        self._observers: dict[str, Consumer] = {}
        self._known: set[str] = set()
        #: What a broker last said of our certificate or password: the library itself only says that none answers.
        self._refused = ""
        self._creating = threading.Lock()

    def producer(self, *, patient: bool = False) -> Producer:
        seconds = None if patient else float(self._settings["publish_seconds"])
        producer = KafkaProducer(self, self._options(), seconds)
        self._opened.append(producer)
        return producer

    def follow(self, *topics: str) -> Follower:
        self.create_missing(topics)
        follower = KafkaFollower(self._reader_options("kingdom-followers"), topics)
        self._opened.append(follower)
        return follower

    def group(self, group: str, *topics: str) -> GroupReader:
        reader = KafkaGroupReader(self, self._reader_options(group), topics)
        self._opened.append(reader)
        return reader

    def lag(self, group: str, topic: str) -> int:
        self.create_missing([topic])
        with _errors():
            bounds = self._bounds(topic)
            passed = self._passed(group, topic, len(bounds))
            return sum(high - max(low, passed.get(number, low)) for number, (low, high) in bounds.items())

    def trim(self, topic: str, groups: Sequence[str], keep_seconds: float, now: float) -> int:
        if topic in self._kit.passing or topic not in self._created():
            return 0  # the broker's retention removes it, or it is not ours
        with _errors():
            bounds = self._bounds(topic)
            others = [self._passed(group, topic, len(bounds)) for group in self._all_groups() if group not in groups]
            passed = [self._passed(group, topic, len(bounds)) for group in groups] + [at for at in others if at]
            old = self._offsets_at(topic, len(bounds), now - keep_seconds)
            upto = {
                number: min([old.get(number, high), *(group.get(number, low) for group in passed)])
                for number, (low, high) in bounds.items()
            }
            gone = [TopicPartition(topic, number, to) for number, to in upto.items() if to > bounds[number][0]]
            for future in (self._admin().delete_records(gone) if gone else {}).values():
                _result(future)
            return len(gone)

    def amend(self, topic: str, change: Callable[[bytes], bytes]) -> Iterator[None]:
        return iter(())

    def check(self) -> None:
        with self._errors():
            self._admin().list_topics(timeout=CHECK_SECONDS)

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
        for observer in self._observers.values():
            observer.close()
        self._opened.clear()
        self._observers.clear()

    def create_missing(self, topics: Sequence[str]) -> None:
        """Create topics that are not there, and note that they are ours; those that are there stay as they are."""
        with self._creating, self._errors():
            unknown = [topic for topic in topics if topic not in self._known]
            if not unknown:
                return
            there = self._admin().list_topics(timeout=CHECK_SECONDS).topics
            for topic in unknown:
                if topic not in there:
                    self._create(topic)
            self._known.update(unknown)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in our own error what the library says, or what a broker has said of us."""
        try:
            with _errors():
                yield
        except TopicsAway as error:
            if self._admin_client is not None:
                self._admin_client.poll(0)  # it has `_note_refusal` called
            raise TopicsAway(why=self._refused or error.facts["why"]) from None
        self._refused = ""

    def _note_refusal(self, error: KafkaError) -> None:
        """Keep why a broker refuses us, without how long that took. Called on any thread that polls."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refused = " ".join(error.str().partition(" (after ")[0].split())[:300]

    def _create(self, topic: str) -> None:
        kept = PASSING_MS if topic in self._kit.passing else -1
        new = NewTopic(topic, num_partitions=PARTITIONS, config={"retention.ms": str(kept)})
        [future] = self._admin().create_topics([new], operation_timeout=CREATE_SECONDS).values()
        try:
            _result(future)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return
        disk = Disk(self._kit.scratch, durability=self._kit.durability, guard=self._kit.guard)
        make_folder(self._kit.folder)
        disk.rewrite(self._note, to_json({"topics": sorted({*self._created(), topic})}))

    @property
    def _note(self) -> Path:
        return self._kit.folder / "created.json"

    def _created(self) -> set[str]:
        """Return the topics that were created from this home: nobody else's are shortened."""
        return set(read_json_or(self._note, {}).get("topics", []))

    def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the oldest offset and the next one of each partition."""
        return _bounds(self._observer("kingdom-observers"), topic)

    def _passed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """Return the positions that a group has committed in a topic."""
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        found = self._observer(group).committed(asked, timeout=CHECK_SECONDS)
        return {at.partition: at.offset for at in found if at.offset >= 0}

    def _all_groups(self) -> list[str]:
        listed = _result(self._admin().list_consumer_groups(request_timeout=CHECK_SECONDS))
        return [found.group_id for found in listed.valid]

    def _offsets_at(self, topic: str, partitions: int, seconds: float) -> dict[int, int]:
        """Return the first offset of each partition that was written after this time, where there is one."""
        times = [TopicPartition(topic, number, max(0, int(seconds * 1000))) for number in range(partitions)]
        found = self._observer("kingdom-observers").offsets_for_times(times, timeout=CHECK_SECONDS)
        return {at.partition: at.offset for at in found if at.offset >= 0}

    def _observer(self, group: str) -> Consumer:
        """Return a consumer that asks about a group without joining it."""
        if group not in self._observers:
            self._observers[group] = Consumer(self._reader_options(group))
        return self._observers[group]

    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(self._options())
        return self._admin_client

    def _options(self) -> dict[str, Any]:
        """Return what every connection needs. An option that reads $NAME stands for what `.env` holds under that."""
        options = {
            "bootstrap.servers": self._settings["servers"],
            "reconnect.backoff.max.ms": 1000,
            "socket.nagle.disable": True,
            "logger": QUIET,
            "error_cb": self._note_refusal,
        }
        return {**options, **given_options(self._settings["options"], self._kit)}

    def _reader_options(self, group: str) -> dict[str, Any]:
        return {
            **self._options(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # A position that is gone is reported, never skipped in silence.
            "auto.offset.reset": "error",
            # A killed member's partitions go to the others after this time.
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 2_000,
            # What the brokers could not yet tell of a new topic is asked again after this time, not after minutes.
            "topic.metadata.refresh.interval.ms": 10_000,
        }


def given_options(options: Mapping[str, Any], kit: TopicsKit) -> dict[str, Any]:
    """Return the options of hall.yaml, with what `.env` holds in place of $NAME. Secrets are there alone."""
    found = {}
    for key, value in options.items():
        is_named = isinstance(value, str) and value.startswith("$")
        if is_named and value[1:] not in kit.secrets:
            raise _refuse_option(key, f"{value[1:]} is not in .env")
        if not is_named and _SECRET.search(key):
            raise _refuse_option(key, f"write the secret to .env, and here ${key.upper().replace('.', '_')}")
        found[key] = kit.secrets[value[1:]] if is_named else value
    return found


_SECRET = re.compile(r"password|secret|\.key\.pem$|sasl\.oauthbearer\.config")


def _refuse_option(key: str, why: str) -> BadInput:
    return BadInput(message=f"hall.yaml: kafka.options.{key}: {why}")


class KafkaProducer:
    """One idempotent producer, and a thread that is told what became of its events."""

    def __init__(self, topics: KafkaTopics, options: dict[str, Any], seconds: float | None) -> None:
        """`seconds`: after this time an event's fate is unknown; None is never."""
        self._topics = topics
        self._seconds = seconds
        self._options = {
            **options,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "compression.type": "none",
            "linger.ms": 0,
            "message.timeout.ms": 0 if seconds is None else int(seconds * 1000),
            "message.max.bytes": LARGEST_EVENT + 40_000,
        }
        self._clients = [Client(self._options)]
        self._waiting: deque[tuple[float, str, str, bytes, Done]] = deque()
        self._ready: set[str] = set()
        self._open = 0
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def append(self, topic: str, key: str, value: bytes, done: Done) -> None:
        if len(value) > LARGEST_EVENT:
            done(PublishOutcome.REFUSED, f"{len(value)} bytes, which is too large")
            return
        with self._changed:
            if self._closed:
                done(PublishOutcome.REFUSED, "the topics are closed")
                return
            self._open += 1
            if topic in self._ready and not self._waiting:
                self._produce(topic, key, value, done)
            else:
                self._waiting.append((time.monotonic(), topic, key, value, done))

    def flush(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, max(0.0, seconds))

    def close(self) -> None:
        if self._closed:
            return
        self.flush(self._seconds if self._seconds is not None else CHECK_SECONDS)
        with self._changed:
            self._closed = True
        self._thread.join()
        for client in self._clients:
            client.purge()
            client.flush(CHECK_SECONDS)

    def _run(self) -> None:
        while not self._closed:
            if self._waiting:
                self._make_ready()
            for client in list(self._clients):
                client.poll(SLICE_SECONDS if client is self._clients[-1] and not self._waiting else 0)

    def _make_ready(self) -> None:
        """See that the topics are there of events that wait, and publish those. They fail when their time is over."""
        try:
            self._topics.create_missing([self._waiting[0][1]])
        except TopicsAway as error:
            with self._changed:
                while self._waiting and self._is_late(self._waiting[0][0]):
                    self._told(self._waiting.popleft()[-1], PublishOutcome.REFUSED, str(error))
                self._changed.wait(SLICE_SECONDS)
            return
        with self._changed:
            self._ready.add(self._waiting[0][1])
            while self._waiting and self._waiting[0][1] in self._ready:
                self._produce(*self._waiting.popleft()[1:])

    def _is_late(self, since: float) -> bool:
        return self._seconds is not None and time.monotonic() - since > self._seconds

    def _produce(self, topic: str, key: str, value: bytes, done: Done) -> None:
        def on_delivery(error: KafkaError | None, _: Message) -> None:
            self._told(done, *_outcome(error))

        try:
            self._clients[-1].produce(topic, value, key or None, on_delivery=on_delivery)
        except BufferError:
            self._told(done, PublishOutcome.REFUSED, "too much waits to be sent")
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                # This client cannot go on; what it has sent is settled by its own reports.
                self._clients.append(Client(self._options))
            self._told(done, PublishOutcome.REFUSED, str(error.args[0]))

    def _told(self, done: Done, outcome: PublishOutcome, why: str) -> None:
        done(outcome, why)
        with self._changed:
            self._open -= 1
            self._changed.notify_all()


class _Reader:
    """What followers and groups have in common: a consumer that one thread polls and another may close."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._consumer = Consumer(options)
        self._using = threading.Lock()
        self._closed = False
        self._gone: list[PositionGone] = []
        #: Partitions whose position is gone, until they are read on from their oldest offset.
        self._lost: list[tuple[str, int]] = []
        #: The next offset of each partition that is read.
        self._next: dict[tuple[str, int], int] = {}

    @property
    def folders(self) -> Sequence[Path]:
        return ()

    def poll(self, seconds: float, at_most: int = 1000) -> list[TopicRecord]:
        until = time.monotonic() + seconds
        while not self._closed:
            if self._gone:
                raise self._gone.pop(0)
            left = until - time.monotonic()
            found = self._take(min(max(left, 0.0), SLICE_SECONDS), at_most)
            if found or left <= 0:
                return found
        return []

    def _take(self, seconds: float, at_most: int) -> list[TopicRecord]:
        with self._using:
            if self._closed:
                return []
            if self._lost:
                self._start_anew()
                return []
            records: list[TopicRecord] = []
            for message in self._messages(seconds, at_most):
                partition = (message.topic() or "", message.partition() or 0)
                if partition not in self._next:
                    continue  # another member's by now
                if (error := message.error()) is None:
                    records.append(_record(message))
                    self._next[partition] = (message.offset() or 0) + 1
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self._lost.append(partition)
            return records

    def _messages(self, seconds: float, at_most: int) -> list[Message]:
        """Return the first message that comes and what lies ready behind it."""
        with _errors():
            first = self._consumer.poll(seconds)
        if first is None:
            return []
        try:
            return [first, *self._consumer.consume(at_most - 1, 0)] if at_most > 1 else [first]
        except KafkaException:  # the next poll says it again; the first message is not lost for it
            return [first]

    def _start_anew(self) -> None:
        """Go on at the oldest offsets, and have it told that what lay before them was not read. Where the brokers
        are away, it is tried again at the next poll."""
        with _errors():
            oldest_of = {at: _bounds(self._consumer, at[0])[at[1]][0] for at in self._lost}
            for topic, number in self._lost:
                missed = self._next.get((topic, number), OFFSET_BEGINNING)
                oldest = self._next[topic, number] = oldest_of[topic, number]
                if missed >= 0:
                    self._gone.append(
                        PositionGone(
                            reader="a reader", topic=topic, missed=f"{number}:{missed}", oldest=f"{number}:{oldest}"
                        )
                    )
            self._consumer.assign([TopicPartition(*at, offset) for at, offset in self._next.items()])
            self._lost.clear()

    def close(self) -> None:
        self._closed = True
        with self._using:
            self._consumer.close()


class KafkaFollower(_Reader):
    """Reads every partition from its end, without a group: the end is asked for now, not at the first fetch."""

    def __init__(self, options: dict[str, Any], topics: Sequence[str]) -> None:
        super().__init__(options)
        try:
            with _errors():
                ends = [
                    TopicPartition(topic, number, end)
                    for topic in topics
                    for number, (_, end) in _bounds(self._consumer, topic).items()
                ]
                self._next = {(end.topic, end.partition): end.offset for end in ends}
                self._consumer.assign(ends)
        except TopicsAway:
            self._consumer.close()
            raise


class KafkaGroupReader(_Reader):
    """A member of a consumer group."""

    def __init__(self, topics: KafkaTopics, options: dict[str, Any], names: Sequence[str]) -> None:
        super().__init__(options)
        self._topics = topics
        self._names = list(names)
        self._is_subscribed = False
        self._assigned = 0
        self._passed: dict[tuple[str, int], int] = {}
        self._committed_at = 0.0

    @property
    def holds(self) -> bool:
        return self._assigned > 0

    def poll(self, seconds: float, at_most: int = 1000) -> list[TopicRecord]:
        if not self._is_subscribed:
            self._topics.create_missing(self._names)
            self._consumer.subscribe(self._names, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)
            self._is_subscribed = True
        self._commit(time.monotonic() - COMMIT_SECONDS)
        return super().poll(seconds, at_most)

    def commit(self, records: Sequence[TopicRecord]) -> None:
        for record in records:
            partition, _, offset = record.position.partition(":")
            self._passed[record.topic, int(partition)] = int(offset) + 1
        self._commit(time.monotonic() - COMMIT_SECONDS)

    def close(self) -> None:
        if not self._closed:
            self._commit(time.monotonic(), wait=True)
            super().close()

    def _commit(self, before: float, *, wait: bool = False) -> None:
        """Commit how far the group is, if that was not done since `before`. What fails is read again."""
        if not self._passed or self._committed_at > before:
            return
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in self._passed.items()]
        with suppress(KafkaException):
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            self._passed.clear()
        self._committed_at = time.monotonic()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with suppress(KafkaException):  # then its position is looked for at the first fetch
            for at, committed in zip(partitions, consumer.committed(partitions, timeout=CHECK_SECONDS), strict=True):
                at.offset = committed.offset if committed.offset >= 0 else OFFSET_BEGINNING
        self._lost.clear()
        self._next = {(at.topic, at.partition): at.offset for at in partitions}
        consumer.assign(partitions)
        self._assigned = len(partitions)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(time.monotonic(), wait=True)
        self._lose(consumer, partitions)

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._passed.clear()
        self._lost.clear()
        self._next.clear()
        self._assigned = 0
        consumer.unassign()


def _outcome(error: KafkaError | None) -> tuple[PublishOutcome, str]:
    if error is None:
        return PublishOutcome.STORED, ""
    return (PublishOutcome.REFUSED if error.code() in NEVER_STORED else PublishOutcome.UNKNOWN), str(error)


def _record(message: Message) -> TopicRecord:
    position = f"{message.partition()}:{message.offset()}"
    return TopicRecord(message.topic() or "", position, _text(message.key()), message.value() or b"")


def _text(key: bytes | str | None) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else key or ""


def _bounds(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return the oldest offset and the next one of each partition. A topic just made is waited for."""
    until = time.monotonic() + CHECK_SECONDS
    while True:
        try:
            about = consumer.list_topics(topic, timeout=CHECK_SECONDS).topics[topic]
            if about.error is not None:
                raise KafkaException(about.error)
            found = {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=CHECK_SECONDS)
                for number in sorted(about.partitions)
            }
            return {number: bounds for number, bounds in found.items() if bounds is not None}
        except KafkaException as error:
            if error.args[0].code() not in NO_LEADER_YET or time.monotonic() > until:
                raise
            time.sleep(LEADER_SECONDS)


def _result(future: Future[T]) -> T:
    return future.result(timeout=CREATE_SECONDS)


@contextmanager
def _errors() -> Iterator[None]:
    """Say in our own error what the library says."""
    try:
        yield
    except KafkaException as error:
        raise TopicsAway(why=str(error.args[0])) from None
    except TimeoutError:
        raise TopicsAway(why="no answer from the brokers") from None
