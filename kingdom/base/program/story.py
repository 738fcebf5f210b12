"""What `kingdom why` shows of one thing: a sentence about it, and details."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kingdom.base.times import stamp


@dataclass(frozen=True)
class Detail:
    """One more line, and when that was."""

    text: str
    at: float | None


@dataclass(frozen=True)
class Story:
    """The text about a message of a product."""

    id: str
    #: Where it is now.
    lies_in: str
    at: float | None
    sentence: str
    details: tuple[Detail, ...] = ()

    def lines(self) -> Iterator[tuple[float | None, int, str]]:
        """Yield time, depth and text of every line."""
        yield self.at, 0, self.sentence
        yield from ((detail.at, 1, detail.text) for detail in self.details)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "lies_in": self.lies_in,
            "at": _stamped(self.at),
            "sentence": self.sentence,
            "details": [detail.text for detail in self.details],
            "details_at": [_stamped(detail.at) for detail in self.details],
            "followed_by": [],
        }


def _stamped(at: float | None) -> str | None:
    return None if at is None else stamp(at)
