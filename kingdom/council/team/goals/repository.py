"""A folder of source files, as the team reads it. What stands in it is data: it is quoted, never obeyed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

MOST_FILES, LARGEST = 20_000, 512 << 10
LEFT_OUT = frozenset(["node_modules", "__pycache__", "build", "dist", "target", "vendor", "venv", "site-packages"])
"""Folders of what others have made."""
OF_A_HOME = frozenset(("workspace", "state", "logs", "queue"))
"""Folders of a kingdom's own work, in its home."""
SECRET_ENDINGS = (".env", ".pem", ".key", ".p12", ".pfx", ".db")
LONGEST_QUOTE = 160


class Repository:
    """Its files, by their paths in it, sorted. Hidden ones, links, and what looks like secrets are left out."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)

    @property
    def name(self) -> str:
        return quoted(os.path.basename(self.folder))

    @cached_property
    def files(self) -> list[str]:
        found = []
        for path in self._walk():
            found.append(path)
            if len(found) >= MOST_FILES:
                break
        return sorted(found)

    def text(self, path: str) -> str:
        """Return a file's text; "" for what is gone, large or no text."""
        with suppress(OSError), open(os.path.join(self.folder, path), "rb") as file:
            data = file.read(LARGEST + 1)
            if len(data) <= LARGEST and b"\0" not in data:
                return data.decode("utf-8", "replace")
        return ""

    def has(self, path: str) -> bool:
        return path in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.files)

    def _walk(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self.folder):
            is_home = "config" in folders and os.path.isdir(os.path.join(folder, "queue", "events"))
            left_out = LEFT_OUT | OF_A_HOME if is_home else LEFT_OUT
            folders[:] = sorted(name for name in folders if name not in left_out and not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if name.startswith(".") or name.endswith(SECRET_ENDINGS) or os.path.islink(path):
                    continue
                yield os.path.relpath(path, self.folder)


def quoted(text: str, longest: int = LONGEST_QUOTE) -> str:
    """Return words of a file on one line, without what a terminal or a reader of Markdown would act on."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = line if len(line) <= longest else f"{line[: longest - 1]}…"
    for mark in "\\`*_<>[]|#":
        line = line.replace(mark, f"\\{mark}")
    return line


def code(text: str) -> str:
    """Return a path or a command as Markdown shows code."""
    return f"`{''.join(char for char in text if char.isprintable()).replace('`', chr(39))}`"
