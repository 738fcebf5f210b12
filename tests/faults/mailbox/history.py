"""Compare what was promised to producers and consumers with what happened."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Note = Mapping[str, Any]


@dataclass(frozen=True)
class Judgement:
    wrong: list[str]
    counts: Counter[str]


def read(folder: Path) -> list[Note]:
    notes = [json.loads(line) for path in sorted(folder.glob("*.notes")) for line in path.read_text().splitlines()]
    return sorted(notes, key=lambda note: int(note["at"]))


def judge(notes: Iterable[Note], dead: Iterable[str], left: int) -> Judgement:
    """Return what is wrong. `dead`: IDs of the dead letters at the end; `left`: number of messages in the queue."""
    counts: Counter[str] = Counter()
    unsure: set[str] = set()
    promised: dict[str, str] = {}
    acked: dict[str, int] = {}
    seen_under: dict[str, set[str]] = defaultdict(set)
    wrong: list[str] = []
    for note in notes:
        what, label, message = note["what"], note.get("label", ""), note.get("id") or ""
        counts[what] += 1
        if what == "published":
            promised[message] = label
        elif what == "got":
            seen_under[label].add(message)
            if message in acked:
                wrong.append(f"{label} was delivered {(note['at'] - acked[message]) / 1e6:.1f} ms after its ack")
        elif what == "acked":
            acked[message] = note["at"]
        elif what == "refused" and note["code"] == "ERR_TIMEOUT":
            unsure.add(message)  # a manager that was killed may have done it: the next one only sees that it is late
        elif what == "gave up":
            wrong.append(f"{note['who']} gave up: {note['why']}")
    buried = set(dead)
    ended = buried | acked.keys() | unsure
    wrong += [f"lost: {label}" for message, label in promised.items() if message not in ended]
    wrong += [f"doubled: {label} under {len(ids)} ids" for label, ids in seen_under.items() if len(ids) > 1]
    wrong += [f"both acked and dead: {message}" for message in buried & acked.keys()]
    if left:
        wrong.append(f"{left} messages are left in the queue")
    return Judgement(wrong, counts)
