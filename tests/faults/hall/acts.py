"""Run a publisher or a reader of a topic in files once.

    python tests/faults/hall/acts.py HOME DURABILITY publish|read|overtake

The ledgers HOME/acked and HOME/effects play the outside: a line of the first is there, synced, once an event was told
to be stored; a line of the second is the reader's effect, known by the event's position, before it commits.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.errors import KingdomError
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import GroupReader, PublishOutcome, Topics, TopicsKit

TOPIC, GROUP = "chat.messages.v1", "readers"
EVENTS = 7
TOGETHER = 3


def opened(home: Path, durability: str, who: str) -> Topics:
    kit = TopicsKit(
        folder=home / "topics",
        scratch=home / f"scratch-{who}",
        durability=durability,  # type: ignore[arg-type]
        guard=lambda: None,
        settings={"retention_files": 20_000},
    )
    return open_topics("files", kit)


def publish(home: Path, durability: str) -> None:
    """Publish events that are not acknowledged yet, in groups, and note the acknowledged ones."""
    ledger = Disk(home / "ledger-scratch", durability="power")
    known = set(lines(home / "acked"))
    topics = opened(home, durability, "publisher")
    producer = topics.producer(patient=True)
    missing = [number for number in range(EVENTS) if str(number) not in known]
    for at in range(0, len(missing), TOGETHER):
        told: dict[int, PublishOutcome] = {}
        for number in missing[at : at + TOGETHER]:
            producer.append(TOPIC, "room", b'{"n":%d}' % number, _teller(told, number))
        if producer.flush(5.0) and set(told.values()) == {PublishOutcome.STORED}:
            ledger.append(home / "acked", "".join(f"{number}\n" for number in told).encode(), sync=True)
        else:
            raise SystemExit(1)
    topics.close()


def _teller(told: dict[int, PublishOutcome], number: int):  # type: ignore[no-untyped-def]
    return lambda outcome, why: told.__setitem__(number, outcome)


def prepare_reading(home: Path) -> None:
    publish(home, "process")
    (home / "acked").unlink()


def read(home: Path, durability: str) -> None:
    """Read on for the group: first the effect, then the commit."""
    ledger = Disk(home / "ledger-scratch", durability="power")
    topics = opened(home, durability, "reader")
    reader = topics.group(GROUP, TOPIC)
    while _read(home, ledger, reader):
        pass
    topics.close()


def overtake(home: Path, durability: str) -> None:
    """Write events as a gateway does, and read each for the group before its writer has made its name durable."""
    ledger, disk = (Disk(home / scratch, durability="power") for scratch in ("ledger-scratch", "scratch-writer"))
    topics = opened(home, durability, "reader")
    reader = topics.group(GROUP, TOPIC)
    disk.sweep_scratch()
    _read(home, ledger, reader)
    for number in range(len(events(home)), EVENTS):
        with disk.new_file() as draft:
            draft.write(b'{"key":"room","value":{"n":%d}}\n' % number)
            draft.take(home / "topics" / TOPIC / f"{number:020}.jsonl")
            _read(home, ledger, reader)
    topics.close()


def _read(home: Path, ledger: Disk, reader: GroupReader) -> bool:
    records = reader.poll(0.0, 2)
    if records:
        # Each on a line of its own, also behind one that a power cut has torn.
        effects = "".join(f"\n{record.position} {json.loads(record.value)['n']}\n" for record in records)
        ledger.append(home / "effects", effects.encode(), sync=True)
        reader.commit(records)
        reader._noted_at = 0.0  # type: ignore[attr-defined]  # a note each time: all its calls are swept
    return bool(records)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file: a power cut may leave blank ones at its end."""
    return path.read_bytes().rstrip(b"\n").splitlines()


def whole(home: Path) -> list[str]:
    """Check that every visible file is whole."""
    wrong = []
    for path in (home / "topics").rglob("*.json*"):
        for line in whole_lines(path) or [b""]:
            try:
                json.loads(line) if path.suffix == ".jsonl" else json.loads(path.read_bytes())
            except ValueError as error:
                wrong.append(f"half visible: {path}: {error}")
    return wrong


def events(home: Path) -> list[int]:
    """Return the topic's events, in order."""
    found = []
    for path in sorted((home / "topics" / TOPIC).glob("*.jsonl")):
        found += [(json.loads(line)["value"]["n"]) for line in whole_lines(path)]
    return found


def numbering(home: Path) -> list[str]:
    """Check that the files' numbers have no gap."""
    wrong, at = [], 0
    for path in sorted((home / "topics" / TOPIC).glob("*.jsonl")):
        if int(path.stem) != at:
            wrong.append(f"{path.name} follows on {at}")
        at = int(path.stem) + len(whole_lines(path))
    return wrong


def litter(home: Path) -> list[str]:
    return [f"litter: {path}" for path in home.glob("scratch-*/**/*") if path.is_file()]


def check_publishing(home: Path) -> list[str]:
    there = events(home)
    lost = {int(number) for number in lines(home / "acked")} - set(there)
    wrong = [f"acknowledged, but not there: {number}" for number in sorted(lost)]
    wrong += [f"never published: {number}" for number in sorted(set(range(EVENTS)) - set(there))]
    return [*wrong, *whole(home), *numbering(home), *litter(home)]


def check_reading(home: Path) -> list[str]:
    effects = dict(line.split() for line in lines(home / "effects") if len(line.split()) == 2)
    expected = {f"0:{number}": str(number) for number in range(EVENTS)}
    wrong = [] if effects == expected else [f"effects are {effects}"]
    note = home / "topics" / TOPIC / "groups" / f"{GROUP}.json"
    passed = json.loads(note.read_text())["next"] if note.exists() else None
    wrong += [] if passed == EVENTS else [f"the group has passed {passed}"]
    return [*wrong, *whole(home), *litter(home)]


def check_while_reading(home: Path) -> list[str]:
    """Check right after a fault that the position has not moved past an event without its effect."""
    note = home / "topics" / TOPIC / "groups" / f"{GROUP}.json"
    wrong = whole(home)
    if not wrong and note.exists():
        passed = json.loads(note.read_text())["next"]
        done = {line.split()[0] for line in lines(home / "effects") if " " in line}
        wrong += [f"passed without effect: {n}" for n in range(passed) if f"0:{n}" not in done]
    return wrong


def check_while_overtaking(home: Path) -> list[str]:
    """Check right after a fault that what had an effect is still there: else its number would be given away again."""
    there = {f"0:{number}" for number in events(home)}
    done = [line.split()[0] for line in lines(home / "effects") if " " in line]
    lost = [f"has had its effect, and is not there: {position}" for position in done if position not in there]
    return [*check_while_reading(home), *lost]


def check_while_publishing(home: Path) -> list[str]:
    """Check right after a fault that all acknowledged events are there."""
    if wrong := whole(home):
        return wrong
    there = set(events(home))
    return [f"acknowledged, but not there: {n}" for n in _complete(home / "acked") if n not in there]


def _complete(path: Path) -> Iterable[int]:
    text = path.read_text() if path.exists() else ""
    return [int(line) for line in text.split("\n")[:-1] if line]


def main() -> int:
    os.umask(0o077)
    try:
        {"publish": publish, "read": read, "overtake": overtake}[sys.argv[3]](Path(sys.argv[1]), sys.argv[2])
    except (OSError, KingdomError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
