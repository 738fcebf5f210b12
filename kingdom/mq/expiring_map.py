"""A mapping for what must be remembered for a while, and then forgotten cheaply: requests, deduplication keys."""

from __future__ import annotations

from hashlib import blake2b
from typing import Generic, TypeVar

Value = TypeVar("Value")
PARTS = 6
ENTRY_BYTES = 176
"""Memory of an entry with a small value, at most: its key, its value, its place in a dictionary that has just grown."""


def fingerprint(*texts: str) -> bytes:
    """Return 120 bits: small in memory, and no two alike."""
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=15).digest()


class ExpiringMap(Generic[Value]):
    """Forgets in parts, oldest first: what is older than `keep_ms`, and what would take more than `most_bytes`."""

    def __init__(self, keep_ms: int, most_bytes: int) -> None:
        self.keep_ms = keep_ms
        self.most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self._parts: list[dict[bytes, Value]] = [{}]
        self._sizes = [0]
        self._youngest = self._parts[0]
        self._youngest_since = 0

    def get(self, key: bytes) -> Value | None:
        for part in self._parts:
            if key in part:
                return part[key]
        return None

    def put(self, key: bytes, value: Value, at: int, more_bytes: int = 0) -> None:
        """Remember a value since `at`, in ms. `more_bytes`: what it takes beyond a small one."""
        part_ms = self.keep_ms // (PARTS - 1) + 1
        if self._sizes[0] >= self.most_bytes // PARTS or at - self._youngest_since >= part_ms:
            self._begin_part(at)
        if key not in self._youngest:
            self._sizes[0] += ENTRY_BYTES + more_bytes
        self._youngest[key] = value

    @property
    def bytes(self) -> int:
        """How much memory it takes, at most."""
        return sum(self._sizes)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def _begin_part(self, at: int) -> None:
        if self._youngest:
            self._youngest = {}
            self._parts.insert(0, self._youngest)
            self._sizes.insert(0, 0)
            del self._parts[PARTS:], self._sizes[PARTS:]
        self._youngest_since = at
