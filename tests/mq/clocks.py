"""A clock in milliseconds that stands still until a test moves it."""

from __future__ import annotations

MORNING_MS = 1_770_458_400_000


class Clock:
    def __init__(self, now: int = MORNING_MS) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += round(seconds * 1000)
