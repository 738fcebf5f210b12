"""What changes during a message's life, as one line of text that sorts in the order of delivery.

    0999995-1763465000123-00000042-1.s1x8f3a01-0199f2c1-5a2b-7000-802a-3c9d1e5f7a90
    rank    due           sequence marks       message id

rank = 1,000,000 - priority. due: when a waiting message is available, when a lease ends, when a dead
letter or an archived message came to rest. The marks begin with the attempts so far; then, each behind
a dot and a letter: e expiresAt · t target (digest) · s row of same reasons x digest of the reason ·
h laid in by hand · l lease id · c consumer (digest) · r reason code · a when it became a dead letter ·
q quarantined. Free text never stands here, so that a name can always name a file.
"""

from __future__ import annotations

import re
from hashlib import blake2s

HIGHEST = 1_000_000
SEQUENCES = 100_000_000
ID = slice(-36, None)
MARKS = slice(31, -37)
_GUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = re.compile(rf"{_GUID}\Z")
_WHOLE = re.compile(rf"\d{{7}}-\d{{13}}-\d{{8}}-\d{{1,6}}(?:\.[a-z][A-Za-z0-9_]*)*-{_GUID}\Z", re.ASCII)


def compose(rank: int, due: int, sequence: int, marks: str, message_id: str) -> str:
    return f"{rank:07d}-{due:013d}-{sequence:08d}-{marks}-{message_id}"


def changed(name: str, due: int, marks: str) -> str:
    """The same message, due at another time, with other marks."""
    return f"{name[:8]}{due:013d}{name[21:31]}{marks}{name[-37:]}"


def is_id(text: str) -> bool:
    return _ID.match(text) is not None


def is_name(text: str) -> bool:
    return _WHOLE.match(text) is not None


def priority_of(name: str) -> int:
    return HIGHEST - int(name[:7])


def due_of(name: str) -> int:
    return int(name[8:21])


def sequence_of(name: str) -> int:
    return int(name[22:30])


def attempt_of(name: str) -> int:
    return int(name[MARKS].partition(".")[0])


def marks_of(name: str) -> dict[str, str]:
    """By letter; the attempts stand under the empty letter."""
    attempt, *rest = name[MARKS].split(".")
    return {"": attempt, **{mark[0]: mark[1:] for mark in rest}}


def join(marks: dict[str, str]) -> str:
    return ".".join(letter + text for letter, text in marks.items())


def due_first(name: str) -> str:
    """Turned so that it sorts by due time: how delayed messages wait. Its own inverse is rank_first."""
    return f"{name[8:22]}{name[:8]}{name[22:]}"


def by_due(name: str) -> str:
    """To sort by, when priority does not count."""
    return name[8:30]


def rank_first(turned: str) -> str:
    return f"{turned[14:22]}{turned[:14]}{turned[22:]}"


def created_of(name: str) -> int:
    """When the message was published: the id begins with it."""
    return int(name[-36:-28] + name[-27:-23], 16)


def key_of(queue: str, name: str) -> str:
    return f"msg:{queue}:{name[-36:]}"


def digest(text: str) -> str:
    return blake2s(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
