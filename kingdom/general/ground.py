"""The ground a soldier stands on: an empty workspace of its own, removed when nobody needs it any more."""

from __future__ import annotations

import shutil
from pathlib import Path

from kingdom.atomic import make_folder
from kingdom.places import Places


def prepare(places: Places, general: str, task: str) -> Path:
    workspace = places.workspace(general, task)
    make_folder(workspace)
    return workspace


def clear(places: Places, general: str, task: str) -> None:
    shutil.rmtree(places.workspace(general, task), ignore_errors=True)
