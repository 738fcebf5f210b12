"""What every transport must do that needs no server, and what is particular about the files."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.hall.topics import TOPICS
from kingdom.hall.topics.base import PositionGone, PublishOutcome
from tests.contracts.topics import ROOM, TopicsContract, World, published, taken, values
from tests.waiting import SOON, wait_until

NEED_A_BROKER = ("kafka",)


@pytest.fixture(params=[name for name in TOPICS if name not in NEED_A_BROKER])
def world(request: pytest.FixtureRequest, home: Path) -> Iterator[World]:
    with World(request.param, home) as world:
        yield world


class TestWithoutABroker(TopicsContract):
    pass


@pytest.fixture
def files(home: Path) -> Iterator[World]:
    with World("files", home) as world:
        yield world


def test_a_batch_is_a_file_of_json_lines_named_after_its_first_event(files: World) -> None:
    producer = files.open().producer()
    published(producer, "chat.v1", [b'{"content":"one"}', b'{"content":"two"}'])
    published(producer, "chat.v1", [b'{"content":"three"}', b"\xff", b'{"content":'])
    folder = files.home / "topics" / "chat.v1"
    names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    assert names[0] == "00000000000000000000.jsonl"
    lines = [json.loads(line) for name in names for line in (folder / name).read_text().splitlines()]
    assert [line.get("value", line.get("base64")) for line in lines] == [
        {"content": "one"},
        {"content": "two"},
        {"content": "three"},
        "/w==",
        "eyJjb250ZW50Ijo=",
    ]
    assert {line["key"] for line in lines} == {ROOM}
    assert all((folder / name).stat().st_mode & 0o777 == 0o600 for name in names)


def test_lines_that_others_wrote_are_read_and_what_is_no_json_is_left_to_the_reader(files: World) -> None:
    folder = files.home / "topics" / "chat.v1"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.jsonl").write_text('{ "value": {"n": 1}, "key": "a" }\nnonsense\n{"key":"b","value":{"n":2}}')
    records = taken(files.open().group("readers", "chat.v1"), 3)
    assert [(record.key, record.value) for record in records] == [
        ("a", b'{"n":1}'),
        ("", b"nonsense"),
        ("b", b'{"n":2}'),
    ]


def test_a_file_that_somebody_removed_is_told_once_and_the_rest_is_read(files: World) -> None:
    topics = files.open()
    producer = topics.producer()
    reader = topics.group("readers", "chat.v1")
    for number in range(4):
        published(producer, "chat.v1", [b'{"n":%d}' % number])
    assert len(reader.poll(5.0, 1)) == 1
    os.unlink(files.home / "topics" / "chat.v1" / f"{1:020}.jsonl")
    with pytest.raises(PositionGone, match="from 1 on, up to 2"):
        wait_until(lambda: reader.poll(0.1), SOON, "the gap is seen")
    assert values(taken(reader, 2)) == [b'{"n":2}', b'{"n":3}']


def test_a_group_whose_topic_was_emptied_says_so_and_begins_anew(files: World) -> None:
    first = files.open()
    reader = first.group("readers", "chat.v1")
    published(first.producer(), "chat.v1", [b'{"n":1}', b'{"n":2}'])
    reader.commit(taken(reader, 2))
    first.close()
    for path in (files.home / "topics" / "chat.v1").glob("*.jsonl"):
        path.unlink()
    second = files.open()
    published(second.producer(), "chat.v1", [b'{"n":3}'])
    again = second.group("readers", "chat.v1")
    with pytest.raises(PositionGone):
        wait_until(lambda: again.poll(0.1), SOON, "the loss is seen")
    assert values(taken(again, 1)) == [b'{"n":3}']


def test_more_files_than_are_kept_go_sooner_and_never_what_a_group_has_not_read(home: Path) -> None:
    with World("files", home, retention_files=5) as world:
        topics = world.open()
        producer, reader = topics.producer(), topics.group("readers", "chat.v1")
        for number in range(12):
            published(producer, "chat.v1", [b'{"n":%d}' % number])
        found = taken(reader, 12)
        reader.commit(found[:3])
        reader.close()
        assert topics.trim("chat.v1", ["readers"], 3600, time.time()) == 3
        reader = world.open().group("readers", "chat.v1")
        reader.commit(taken(reader, 9))
        reader.close()
        assert topics.trim("chat.v1", ["readers"], 3600, time.time()) == 4
        assert len(list((home / "topics/chat.v1").glob("*.jsonl"))) == 5


def test_a_full_disk_refuses_and_what_was_refused_is_nowhere(files: World) -> None:
    topics = files.open()
    producer = topics.producer()
    published(producer, "chat.v1", [b'{"n":1}'])
    folder = files.home / "topics" / "chat.v1"
    folder.rename(folder.with_name("away"))
    folder.touch()
    assert published(producer, "chat.v1", [b'{"n":2}']) == [PublishOutcome.REFUSED]
    with pytest.raises(Exception, match="cannot be reached"):
        topics.check()
    folder.unlink()
    folder.with_name("away").rename(folder)
    assert published(producer, "chat.v1", [b'{"n":3}']) == [PublishOutcome.STORED]
    topics.check()
    assert values(taken(topics.group("readers", "chat.v1"), 2)) == [b'{"n":1}', b'{"n":3}']


def test_what_is_there_is_read_without_waiting(files: World) -> None:
    topics = files.open()
    reader, follower = topics.group("readers", "chat.v1"), topics.follow("chat.v1")
    assert reader.poll(0.0) == []
    for number in range(2):
        published(topics.producer(), "chat.v1", [b'{"n":%d}' % number])
        assert [values(told.poll(0.0)) for told in (reader, follower)] == [[b'{"n":%d}' % number]] * 2


def test_no_name_is_chosen_while_files_are_removed(files: World) -> None:
    producer = files.open().producer()
    published(producer, "chat.v1", [b'{"n":1}'])
    with (files.home / "topics/chat.v1/groups/removal.lock").open() as removal:
        fcntl.flock(removal, fcntl.LOCK_EX)
        producer.append("chat.v1", ROOM, b'{"n":2}', lambda *_: None)
        assert not producer.flush(0.1)
        assert len(list((files.home / "topics/chat.v1").glob("*.jsonl"))) == 1
    assert producer.flush(SOON)


def test_a_topic_that_can_have_no_folder_refuses(files: World) -> None:
    assert published(files.open().producer(), "../chat", [b'{"n":1}']) == [PublishOutcome.REFUSED]


def test_blank_lines_that_a_power_cut_leaves_are_no_events(files: World) -> None:
    topics = files.open()
    published(topics.producer(), "chat.v1", [b'{"n":1}', b'{"n":2}'])
    newest = max((files.home / "topics/chat.v1").glob("*.jsonl"))
    newest.write_bytes(newest.read_bytes() + b"\n" * 3000)
    published(files.open().producer(), "chat.v1", [b'{"n":3}'])
    assert values(taken(topics.group("readers", "chat.v1"), 3)) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert topics.lag("readers", "chat.v1") == 3
