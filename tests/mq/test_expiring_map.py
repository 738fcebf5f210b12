"""What is remembered takes no more memory than it says, and forgets the oldest first."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.mq import names
from kingdom.mq.deduplication import Deduplication
from kingdom.mq.expiring_map import ExpiringMap, fingerprint
from kingdom.mq.stores.base import DedupEntry, StoreConfig
from kingdom.mq.stores.memory import MemoryStore

MANY = 10_000


def an_id(number: int) -> str:
    return names.id_from_bytes(((1 << 124) + number).to_bytes(16, "big"))


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
    most = 1 << 20
    kept = ExpiringMap(10**9, most)
    largest = 0
    for n in range(100_000):
        kept.put(fingerprint(str(n)), str(n).encode(), n)
        largest = max(largest, kept.bytes)
    assert 0.8 * most < largest <= 1.01 * most
    assert kept.get(fingerprint("99999")) == b"99999"
    assert [kept.get(fingerprint(str(n))) is not None for n in (0, 80_000, 95_000)] == [False, False, True]


def test_a_key_that_comes_again_has_its_last_value_and_takes_no_more_memory() -> None:
    kept = ExpiringMap(10**9, 1 << 24)
    keys = [fingerprint(str(n)) for n in range(10_000)]
    for key in keys:
        kept.put(key, b"first", 0)
    before = kept.bytes
    for key in keys[::2]:
        kept.put(key, b"later", 1)
    assert (len(kept), kept.bytes) == (10_000, before)
    assert {kept.get(key) for key in keys[::2]} == {b"later"}
    assert {kept.get(key) for key in keys[1::2]} == {b"first"}


def test_a_longer_value_counts_for_more_and_a_shorter_one_for_less() -> None:
    kept = ExpiringMap(10**9, 1 << 20)
    key = fingerprint("a")
    kept.put(key, bytes(16), 0)
    one = kept.bytes
    kept.put(key, bytes(48), 0)
    assert (kept.bytes, kept.get(key)) == (one + 32, bytes(48))
    kept.put(key, b"", 0)
    assert (kept.bytes, kept.get(key)) == (one - 16, b"")
