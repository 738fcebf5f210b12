"""Ids and moments of the chat: ULIDs that only grow, and times to the millisecond."""

from __future__ import annotations

import secrets

from kingdom.base.errors import BadInput
from kingdom.base.times import stamp

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 26
_RANDOM_BITS = 80
_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}


class NoMoreIds(BadInput):
    """no ULID is greater than {after}"""


def next_ulid(now_ms: int, after: str | None = None) -> str:
    """Return a ULID of this moment that is greater than `after`, also when the clock has gone back."""
    number = now_ms << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    if after is not None and number <= (last := _number(after)):
        number = last + 1
    if number >> 128:
        raise NoMoreIds(after=after)
    return _spelt(number)


def first_ulid(ms: int) -> str:
    """Return the least ULID of a moment."""
    return _spelt(max(0, ms) << _RANDOM_BITS)


def _spelt(number: int) -> str:
    return "".join(ALPHABET[number >> shift & 31] for shift in range(5 * (LENGTH - 1), -1, -5))


def _number(ulid: str) -> int:
    number = 0
    for letter in ulid:
        number = number << 5 | _VALUES[letter]
    return number


def is_ulid(text: str) -> bool:
    """Return whether a text is 26 upper-case Crockford characters within 128 bits."""
    return len(text) == LENGTH and text[0] <= "7" and all(letter in _VALUES for letter in text)


def new_uuid() -> str:
    """Return a random id as rooms, users and events have it."""
    a = secrets.token_hex(16)  # uuid.uuid4 takes five times as long
    return f"{a[:8]}-{a[8:12]}-4{a[13:16]}-{'89ab'[int(a[16], 16) & 3]}{a[17:20]}-{a[20:]}"


def iso(seconds: float) -> str:
    """Return a moment as the chat writes it: UTC, to the millisecond."""
    ms = int(seconds * 1000)
    return f"{stamp(seconds).removesuffix('Z')}.{ms % 1000:03d}Z"
