"""What is remembered for a while, and then forgotten cheaply: requests, deduplication keys."""

from __future__ import annotations

from hashlib import blake2b

PARTS = 6
BUCKETS = 4096
BUCKET_BYTES = 64
"""Memory of a bucket that is not empty, beyond its content, at most."""
LOST_BYTES = 12
"""What an entry takes beyond its own bytes, as lines that grow leave gaps."""
KEY_BYTES = 15
LENGTH_BYTES = 4


def fingerprint(*texts: str) -> bytes:
    """Return 120 bits: small in memory, and no two alike."""
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


class ExpiringMap:
    """Values of a few bytes by fingerprints. Forgets in parts, oldest first: what is older than `keep_ms`, and what
    would take more than `most_bytes`.

    A part is some thousand buckets, and a bucket one line of bytes: each key, the length of its value, the value. That
    takes a third of what a dictionary of as many objects does, and none of it is ever copied at once.
    """

    def __init__(self, keep_ms: int, most_bytes: int) -> None:
        self.keep_ms = keep_ms
        self.most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self._youngest = [b""] * BUCKETS
        self._parts = [self._youngest]
        self._sizes = [0]
        self._counts = [0]
        self._youngest_since = 0

    def get(self, key: bytes) -> bytes | None:
        place = _place(key)
        for part in self._parts:
            bucket = part[place]
            at = bucket.find(key)
            if at >= 0:
                return bucket[at + KEY_BYTES + LENGTH_BYTES : _end(bucket, at)]
        return None

    def put(self, key: bytes, value: bytes, at: int) -> None:
        """Remember a value since `at`, in ms."""
        part_ms = self.keep_ms // (PARTS - 1) + 1
        if self._sizes[0] >= self.most_bytes // PARTS or at - self._youngest_since >= part_ms:
            self._begin_part(at)
        place = _place(key)
        bucket = self._youngest[place]
        more = KEY_BYTES + LENGTH_BYTES + len(value)
        known = bucket.find(key)
        if known >= 0:
            end = _end(bucket, known)
            more -= end - known
            bucket = bucket[:known] + bucket[end:]
        else:
            self._counts[0] += 1
            more += LOST_BYTES if bucket else BUCKET_BYTES
        self._youngest[place] = bucket + key + len(value).to_bytes(LENGTH_BYTES, "big") + value
        self._sizes[0] += more

    @property
    def bytes(self) -> int:
        """How much memory it takes, at most."""
        return sum(self._sizes)

    def __len__(self) -> int:
        return sum(self._counts)

    def _begin_part(self, at: int) -> None:
        if self._counts[0]:
            self._youngest = [b""] * BUCKETS
            self._parts = [self._youngest, *self._parts[: PARTS - 1]]
            self._sizes = [0, *self._sizes[: PARTS - 1]]
            self._counts = [0, *self._counts[: PARTS - 1]]
        self._youngest_since = at


def _place(key: bytes) -> int:
    return (key[0] << 8 | key[1]) % BUCKETS


def _end(bucket: bytes, at: int) -> int:
    """Return where the entry ends that begins there."""
    begin = at + KEY_BYTES
    return begin + LENGTH_BYTES + int.from_bytes(bucket[begin : begin + LENGTH_BYTES], "big")
