"""What a general remembers between tasks: short lines in Markdown, the oldest going first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kingdom.atomic import Disk, make_folder
from kingdom.places import Places

LEARNED = "learned-patterns.md"


def recall(places: Places, general: str) -> str:
    """Everything that concerns this general: what all share, then its own."""
    files = [*sorted((places.memory / "shared").glob("*.md")), *sorted(places.general_memory(general).glob("*.md"))]
    return "\n".join(path.read_text("utf-8", "replace").strip() for path in files)


def learn(disk: Disk, places: Places, general: str, lessons: Sequence[str], largest_bytes: int) -> None:
    path = places.general_memory(general) / LEARNED
    known = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    lines = _kept([*known, *(f"- {_one_line(lesson)}" for lesson in lessons)], largest_bytes)
    if lines != known:
        make_folder(path.parent)
        disk.rewrite(path, "".join(f"{line}\n" for line in lines).encode())


def _kept(lines: Iterable[str], largest_bytes: int) -> list[str]:
    """Each line once, where it stood first; then as many of the newest as fit."""
    once = list(dict.fromkeys(line for line in lines if line.strip()))
    while once and sum(len(line.encode()) + 1 for line in once) > largest_bytes:
        once.pop(0)
    return once


def _one_line(text: str) -> str:
    return " ".join(text.split())
