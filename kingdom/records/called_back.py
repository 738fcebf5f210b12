"""Soldiers that a person has ended together with their kingdom: the command line notes it, the general makes good.

Such an end is nobody's failure, and costs the task no try.
"""

from __future__ import annotations

from pathlib import Path

from kingdom.disk.atomic import Disk, make_folder
from kingdom.disk.codec import read_json_or, to_json
from kingdom.home.places import Places


def note(places: Places, disk: Disk, camp: Path) -> None:
    """Before it is ended. A later soldier of the same task is another one."""
    if soldier := read_json_or(camp / "started", {}):
        path = places.stopped_by_down(camp.name)
        make_folder(path.parent)
        disk.rewrite(path, to_json({"task_id": camp.name, "soldier": soldier}))


def was(places: Places, camp: Path) -> bool:
    soldier, noted = read_json_or(camp / "started", {}), read_json_or(places.stopped_by_down(camp.name), {})
    return bool(soldier) and noted.get("soldier") == soldier


def forget_all(places: Places, disk: Disk) -> None:
    """Of earlier times: whoever was called back then has long been replaced."""
    folder = places.stopped_by_down("any").parent
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        disk.remove(path)
