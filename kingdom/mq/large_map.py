"""A mapping of any size that grows a little at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

ENTRIES_OF_A_PART = 2048


class LargeMap(Generic[Key, Value]):
    """A dictionary in parts, so that no change copies more than one: a plain one of a million entries is copied as a
    whole when it grows, which takes 50 ms and more.

    There is one part more for every ENTRIES_OF_A_PART entries, and each new one takes half of what one other holds
    (linear hashing). Parts are never given back. As long as there is a single part, its own methods are called.
    """

    __slots__ = ("_count", "_mask", "_only", "_parts", "_places", "_room", "get", "pop")

    #: get(key) returns the value, or None.
    get: Callable[[Key], Value | None]
    #: pop(key, None) removes a key and returns its value, or None when it is not there.
    pop: Callable[[Key, None], Value | None]

    def __init__(self, pairs: Iterable[tuple[Key, Value]] = ()) -> None:
        self.clear()
        for key, value in pairs:
            self.put(key, value)

    def clear(self) -> None:
        only: dict[Key, Value] = {}
        #: The single part; None once there are several.
        self._only: dict[Key, Value] | None = only
        #: How many entries there are, once there are several parts.
        self._count = 0
        #: How many parts there are.
        self._parts = 1
        #: The part of each key, by the last bits of its hash. There is a power of two of places: a part that is not
        #: split yet in this round has two.
        self._places = [only]
        self._mask = 0
        #: How many entries fit before there is one part more.
        self._room = ENTRIES_OF_A_PART
        self.get, self.pop = only.get, only.pop

    def __len__(self) -> int:
        return self._count if self._only is None else len(self._only)

    def __contains__(self, key: Key) -> bool:
        return key in self._places[hash(key) & self._mask]

    def put(self, key: Key, value: Value) -> None:
        """Set the value of a key."""
        only = self._only
        if only is not None:
            only[key] = value
            if len(only) > ENTRIES_OF_A_PART:
                self._end_single_part(only)
            return
        part = self._places[hash(key) & self._mask]
        self._count += key not in part
        part[key] = value
        if self._count > self._room:
            self._add_part()

    def _get(self, key: Key) -> Value | None:
        return self._places[hash(key) & self._mask].get(key)

    def _pop(self, key: Key, _: None) -> Value | None:
        part = self._places[hash(key) & self._mask]
        if key not in part:
            return None
        self._count -= 1
        return part.pop(key)

    def popitem(self) -> tuple[Key, Value]:
        """Remove and return one entry. There must be one."""
        entry = next(part for part in reversed(self._places) if part).popitem()
        self._count -= 1
        return entry

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Yield all entries; nothing may be added or removed meanwhile."""
        for part in self._places[: self._parts]:
            yield from part.items()

    def values(self) -> Iterator[Value]:
        """Yield all values; nothing may be added or removed meanwhile."""
        for part in self._places[: self._parts]:
            yield from part.values()

    def parts(self) -> Iterator[list[Value]]:
        """Yield all values, some at a time, whatever is added or removed meanwhile; some may come twice."""
        at = 0
        while at < self._parts:  # what goes over into a new part is met there
            yield [*self._places[at].values()]
            at += 1

    def _end_single_part(self, only: dict[Key, Value]) -> None:
        self._only, self._count = None, len(only)
        self.get, self.pop = self._get, self._pop
        self._add_part()

    def _add_part(self) -> None:
        if self._parts > self._mask:
            self._places += self._places
            self._mask = 2 * self._mask + 1
        at = self._parts & self._mask >> 1
        stay: dict[Key, Value] = {}
        go: dict[Key, Value] = {}
        for key, value in self._places[at].items():
            (go if hash(key) & self._mask == self._parts else stay)[key] = value
        self._places[at], self._places[self._parts] = stay, go
        self._parts += 1
        self._room += ENTRIES_OF_A_PART
