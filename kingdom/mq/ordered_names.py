"""Names kept in order: one can be taken out of the middle for the same little work as from the ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

LONGEST_PART = 1024


class OrderedNames:
    """A sorted list in short parts, so that no change moves more than one part. Names come once."""

    __slots__ = ("_lasts", "_parts", "count")

    def __init__(self, found: Iterable[str] = ()) -> None:
        ordered = sorted(found)
        half = LONGEST_PART // 2
        self._parts = [ordered[start : start + half] for start in range(0, len(ordered), half)]
        #: The last name of each part.
        self._lasts = [part[-1] for part in self._parts]
        #: How many names there are; quicker to read than len().
        self.count = len(ordered)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __contains__(self, name: str) -> bool:
        following = bisect_left(self._lasts, name)
        if following == len(self._lasts):
            return False
        part = self._parts[following]
        return part[bisect_left(part, name)] == name

    def parts(self) -> list[list[str]]:
        """Return the parts that there are now. What stays in this set meanwhile stays in its part."""
        return list(self._parts)

    def first(self) -> str:
        """Return the lowest name; an empty text when there is none."""
        return self._parts[0][0] if self._parts else ""

    def after(self, name: str, most: int) -> list[str]:
        """Return up to `most` names that are higher than this one, in order."""
        found: list[str] = []
        at = bisect_right(self._lasts, name)
        while at < len(self._parts) and len(found) < most:
            part = self._parts[at]
            begin = bisect_right(part, name)
            found += part[begin : begin + most - len(found)]
            at += 1
        return found

    def add(self, name: str) -> None:
        self.count += 1
        if not self._parts:
            self._parts.append([name])
            self._lasts.append(name)
            return
        at = bisect_left(self._lasts, name)
        if at == len(self._lasts):
            at -= 1
            self._parts[at].append(name)
            self._lasts[at] = name
        else:
            insort(self._parts[at], name)
        if len(self._parts[at]) > LONGEST_PART:
            self._split(at)

    def _split(self, at: int) -> None:
        part, half = self._parts[at], LONGEST_PART // 2
        self._parts[at : at + 1] = [part[:half], part[half:]]
        self._lasts.insert(at, part[half - 1])

    def remove(self, name: str) -> bool:
        """Remove a name. Return whether it was there."""
        at = bisect_left(self._lasts, name)
        if at == len(self._lasts):
            return False
        within = bisect_left(self._parts[at], name)
        if self._parts[at][within] != name:
            return False
        self._delete(at, within)
        return True

    def pop_first(self) -> str:
        """Remove and return the lowest name. There must be one."""
        return self._delete(0, 0)

    def pop_last(self) -> str:
        """Remove and return the highest name. There must be one."""
        return self._delete(len(self._parts) - 1, -1)

    def _delete(self, at: int, within: int) -> str:
        part = self._parts[at]
        name = part.pop(within)
        self.count -= 1
        if not part:
            del self._parts[at], self._lasts[at]
        else:
            self._lasts[at] = part[-1]
        return name
