"""Which code is installed; a role that was started before an upgrade runs another one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import kingdom
from kingdom.base.home.places import find_schema

PACKAGE = Path(kingdom.__file__).parent
NOT_CODE = ("__pycache__", "data")


def installed_code(*folders: Path) -> str:
    """Return a word that changes with every file of the program; a version number alone stays the same in a checkout.

    Names, sizes and times are looked at and no file is read, so that each role and each `status` can afford it.
    """
    folders = folders or (PACKAGE, find_schema("event").parent)
    words = sorted(word for folder in folders for word in _files(folder.name, str(folder)))
    return f"{kingdom.__version__}+{crc32(chr(10).join(words).encode()):08x}"


def _files(name: str, folder: str) -> Iterator[str]:
    """Yield a word for each file below a folder: its name, its size and when it was written."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:  # an upgrade may be under way
        for entry in entries:
            if entry.name.startswith(".") or entry.name in NOT_CODE:
                continue
            if entry.is_dir():
                yield from _files(f"{name}/{entry.name}", entry.path)
            else:
                about = entry.stat()
                yield f"{name}/{entry.name} {about.st_size} {about.st_mtime_ns}"
