"""Find out by trying whether there is room for more."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

TRIED = 64 * 1024


def check_room(folder: Path) -> None:
    """Return if a folder takes a small file now; OSError, which says why, if it does not."""
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, TRIED)
