"""A tiny role to try the machinery on: turns each waiting event into a task and moves the event on.

    python tests/faults/toy.py right|in_place|no_fsync|move_first|random_ids|leave_litter

It works in $KINGDOM_HOME. Every variant but the first has the defect that it is named after.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.errors import Collision
from kingdom.base.home.places import Places

VARIANTS = ("right", "in_place", "no_fsync", "move_first", "random_ids", "leave_litter")


def main(variant: str) -> None:
    places = Places(Path(os.environ["KINGDOM_HOME"]))
    disk = Disk(places.scratch("toy"), durability="process" if variant == "no_fsync" else "power")
    if variant != "leave_litter":
        disk.sweep_scratch()
    waiting = places.folder("events", "pending")
    for name in sorted(os.listdir(waiting)):
        event = read_json(waiting / name)
        dispatched = places.folder("events", "dispatched") / name
        if variant == "move_first":
            disk.move(waiting / name, dispatched)
        task = f"task-{uuid.uuid4() if variant == 'random_ids' else event['id']}"
        path = places.queue_file("tasks", "pending", task)
        of_event = {key: event[key] for key in ("type", "payload", "created_at")}
        data = to_json({"id": task, "event_id": event["id"], "target_general": "gen-toy", **of_event})
        if variant == "in_place":
            write_in_place(path, data)
        else:
            with suppress(Collision):
                disk.create(path, data)
        if variant != "move_first":
            disk.move(waiting / name, dispatched)
        print(f"done {event['id']}", flush=True)


def write_in_place(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    main(sys.argv[1])
