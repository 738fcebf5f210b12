"""Row 35: readers of topics that hear nothing for longer than any timer go on where they were."""

import time
from pathlib import Path

from tests.contracts.topics import World, published, taken, values
from tests.faults.oracle import Figure
from tests.faults.timers.long import LONG
from tests.waiting import stays

pytestmark = LONG
SECONDS = 630.0
"""Longer than passing events are kept, 600 s."""


def test_readers_idle_and_busy_lose_nothing(home: Path, figure: Figure) -> None:
    with World("files", home) as world:
        quiet, busy = world.topic(), world.topic()
        producer = world.open().producer()
        readers = {topic: world.open().group("readers", topic) for topic in (quiet, busy)}
        late = world.open().group("late", quiet)
        published(producer, quiet, [b"before"])
        assert values(taken(readers[quiet], 1)) == [b"before"]
        count, until = 0, time.monotonic() + SECONDS
        while time.monotonic() < until:
            published(producer, busy, [b"%d" % count])
            assert values(taken(readers[busy], 1)) == [b"%d" % count]
            assert readers[quiet].poll(0.0) == []
            count += 1
            stays(lambda: True, 0.5, "nothing comes")
        published(producer, quiet, [b"after"])
        assert values(taken(readers[quiet], 1)) == [b"after"]
        assert values(taken(late, 2)) == [b"before", b"after"]
    figure(f"row 35 readers of topics for {SECONDS:g} s: {count} events of a busy one, 2 of an idle one, 0 lost")
