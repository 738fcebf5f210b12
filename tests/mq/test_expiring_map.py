"""What is remembered takes no more memory than it says, and forgets the oldest first."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.mq import names
from kingdom.mq.deduplication import BYTES_OF_ID, Deduplication
from kingdom.mq.expiring_map import ENTRY_BYTES, ExpiringMap, fingerprint
from kingdom.mq.stores.base import DedupEntry, StoreConfig
from kingdom.mq.stores.memory import MemoryStore

MANY = 10_000


def an_id(number: int) -> str:
    return names.id_from_number((1 << 124) + number)


def requests_of(size: int) -> Callable[[int], DedupEntry]:
    return lambda n: DedupEntry("request", n, "q", str(n), tuple(an_id(n * size + at) for at in range(size)))


KINDS: dict[str, Callable[[int], DedupEntry]] = {
    "requests": requests_of(1),
    "batches": requests_of(50),
    "keys": lambda n: DedupEntry("dedup", n, "q", str(n), (an_id(n),)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_no_more_memory_than_it_says(kind: str) -> None:
    many = MANY // (50 if kind == "batches" else 1)
    remembered = Deduplication(MemoryStore(StoreConfig.at(Path())))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(many):
        remembered.load([KINDS[kind](n)])
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert remembered.remembered()[:2] == ((0, many) if kind == "keys" else (many, 0))
    assert 0.4 * remembered.remembered().bytes < taken <= remembered.remembered().bytes


def test_it_never_grows_beyond_its_bytes_and_forgets_the_oldest() -> None:
    most = 600 * ENTRY_BYTES
    kept: ExpiringMap[int] = ExpiringMap(10**9, most)
    largest = 0
    for n in range(5_000):
        kept.put(fingerprint(str(n)), n, n)
        largest = max(largest, kept.bytes)
    assert 0.8 * most < largest <= most + 6 * ENTRY_BYTES
    assert kept.get(fingerprint("4999")) == 4999
    assert [kept.get(fingerprint(str(n))) is not None for n in (0, 4_300, 4_600)] == [False, False, True]


def test_what_takes_more_counts_for_more() -> None:
    kept: ExpiringMap[Any] = ExpiringMap(10**9, 1 << 20)
    kept.put(b"a", (1, 2), 0, 2 * BYTES_OF_ID)
    kept.put(b"a", (1, 2), 1, 2 * BYTES_OF_ID)
    assert kept.bytes == ENTRY_BYTES + 2 * BYTES_OF_ID
