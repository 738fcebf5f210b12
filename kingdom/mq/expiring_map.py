"""A mapping for what must be remembered for a while, and then forgotten cheaply: request ids, deduplication keys."""

from __future__ import annotations

from hashlib import blake2b
from typing import Generic, TypeVar

Value = TypeVar("Value")
PARTS = 6


def fingerprint(*texts: str) -> bytes:
    """Return 120 bits: small in memory, and no two alike."""
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=15).digest()


class ExpiringMap(Generic[Value]):
    """Forgets in parts, oldest first: what is older than `keep_ms`, what is more than `most`."""

    def __init__(self, keep_ms: int, most: int) -> None:
        self._part_ms = keep_ms // (PARTS - 1) + 1
        self._part_most = max(1, most // PARTS)
        self._parts: list[dict[bytes, Value]] = [{}]
        self._youngest = self._parts[0]
        self._youngest_since = 0

    def get(self, key: bytes) -> Value | None:
        for part in self._parts:
            if key in part:
                return part[key]
        return None

    def put(self, key: bytes, value: Value, at: int) -> None:
        """Remember a value since `at`, in ms."""
        if len(self._youngest) >= self._part_most or at - self._youngest_since >= self._part_ms:
            self._begin_part(at)
        self._youngest[key] = value

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def _begin_part(self, at: int) -> None:
        if self._youngest:
            self._youngest = {}
            self._parts.insert(0, self._youngest)
            del self._parts[PARTS:]
        self._youngest_since = at
