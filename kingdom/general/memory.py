"""What a general remembers between tasks: short lines in Markdown, the oldest going first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kingdom.atomic import Disk, make_folder
from kingdom.places import Places

LEARNED = "learned-patterns.md"


def recall(places: Places, general: str, repo: str | None) -> str:
    """What concerns this task: what all generals share, what this one learned, what it knows of the repository."""
    own = places.general_memory(general)
    files = [
        *sorted((places.memory / "shared").glob("*.md")),
        own / LEARNED,
        *([own / _repo_file(repo)] if repo else []),
    ]
    return "\n".join(path.read_text("utf-8", "replace").strip() for path in files if path.exists())


def learn(
    disk: Disk, places: Places, general: str, repo: str | None, lessons: Sequence[str], largest_bytes: int
) -> None:
    """Into the repository's file when the task had one, and into the general's own."""
    own = places.general_memory(general)
    for path in (own / LEARNED, *([own / _repo_file(repo)] if repo else [])):
        known = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
        lines = _kept([*known, *(f"- {_one_line(lesson)}" for lesson in lessons)], largest_bytes)
        if lines != known:
            make_folder(own)
            disk.rewrite(path, "".join(f"{line}\n" for line in lines).encode())


def _repo_file(repo: str) -> str:
    """A repository's name comes from outside, so what no file name may hold is written as its code point."""
    return "repo-" + re.sub(r"[^A-Za-z0-9_-]", lambda found: f"+{ord(found[0]):x}+", repo)[:150] + ".md"


def _kept(lines: Iterable[str], largest_bytes: int) -> list[str]:
    """Each line once, where it stood first; then as many of the newest as fit."""
    once = list(dict.fromkeys(line for line in lines if line.strip()))
    while once and sum(len(line.encode()) + 1 for line in once) > largest_bytes:
        once.pop(0)
    return once


def _one_line(text: str) -> str:
    return " ".join(text.split())
