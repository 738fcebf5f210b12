"""What agents make: files in their own folders, which all of them may read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.home.places import as_filename

LARGEST = 1 << 20


def deliverable(folder: Path, thread: str, task: str, file: str, text: str) -> Path:
    """Write a file for a task of a thread into an agent's folder, durably, and return its path."""
    target = folder / as_filename(thread) / as_filename(task) / as_filename(file)
    make_folder(target.parent)
    Disk(folder / "tmp").rewrite(target, text.encode("utf-8", "replace"))
    return target


def read_work(given: object) -> str:
    """Return the text of a deliverable that a message describes."""
    location = given.get("location") if isinstance(given, Mapping) else given
    return read_bytes(os.fspath(Path(str(location))), LARGEST).decode("utf-8", "replace")


def first(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first deliverable of a body; {} when it has none."""
    listed = body.get("deliverables")
    found = listed[0] if isinstance(listed, list) and listed else {}
    return found if isinstance(found, Mapping) else {}
