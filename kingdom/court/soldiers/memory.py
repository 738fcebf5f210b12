"""A general's memory between tasks: short lines in Markdown, the oldest removed first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import text_of
from kingdom.base.home.places import Places, as_filename

LEARNED = "learned-patterns.md"
MOST_FILES = 64
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,180}\.md")


def recall(places: Places, general: str, repo: str | None) -> str:
    """Return what concerns a task: what all generals share, what this one learned, what it knows of the repository.

    A lesson that is in both of its files comes once, with the repository's: what comes last is cut last.
    """
    own = places.general_memory(general)
    of_repo = text_of(own / _repo_file(repo)).strip() if repo else ""
    # As other kingdoms have it: one for all generals, under a name that does not reveal the repository.
    of_others = text_of(places.memory / f"repo-{repo.replace('/', '-')}.md") if repo and _REPO.fullmatch(repo) else ""
    known_of_repo = set(of_repo.splitlines())
    learned = "\n".join(line for line in text_of(own / LEARNED).splitlines() if not line or line not in known_of_repo)
    shared = (text_of(path) for path in sorted((places.memory / "shared").glob("*.md")))
    parts = (part.strip() for part in (*shared, of_others, learned, of_repo))
    return "\n".join(part for part in parts if part)


def learn(
    disk: Disk, places: Places, general: str, repo: str | None, lessons: Sequence[str], largest_bytes: int
) -> None:
    """Add lessons to the general's own file, and to the repository's when the task had one."""
    own = places.general_memory(general)
    for path in (own / LEARNED, *([own / _repo_file(repo)] if repo else [])):
        known = text_of(path).splitlines()
        new = [f"- {_one_line(lesson, largest_bytes // 5)}" for lesson in lessons if lesson.strip()]
        lines = _kept([*known, *new], largest_bytes)
        if lines != known:
            make_folder(own)
            disk.rewrite(path, "".join(f"{line}\n" for line in lines).encode())


def lend(disk: Disk, places: Places, general: str, largest_bytes: int) -> Path:
    """Lay a copy of the general's memory beside its workspaces, for soldiers to change. Return its folder."""
    own, lent = places.general_memory(general), places.lent_memory(general)
    collect(disk, places, general, largest_bytes)
    make_folder(lent)
    for path in sorted(own.glob("*.md")):
        disk.rewrite(lent / path.name, text_of(path).encode())
    shared = places.lent_shared_memory
    if not shared.is_symlink():
        with suppress(FileExistsError):
            shared.symlink_to(os.path.relpath(places.memory / "shared", shared.parent))
    return lent


def collect(disk: Disk, places: Places, general: str, largest_bytes: int) -> None:
    """Take over the lines that soldiers have added to the copy. Prompts give them as data, as they do all of memory."""
    lent = places.lent_memory(general)
    if not lent.is_dir():
        return
    own = places.general_memory(general)
    for path in sorted(lent.glob("*.md"))[:MOST_FILES]:
        if not _NAME.fullmatch(path.name):
            continue
        known = text_of(own / path.name).splitlines()
        found = [_one_line(line, largest_bytes // 5) for line in text_of(path).splitlines()]
        lines = _kept([*known, *found], largest_bytes)
        if lines != known:
            make_folder(own)
            disk.rewrite(own / path.name, "".join(f"{line}\n" for line in lines).encode())


def _repo_file(repo: str) -> str:
    return f"repo-{as_filename(repo)}.md"


def _kept(lines: Iterable[str], largest_bytes: int) -> list[str]:
    """Return each line once, where it stood first; then as many of the newest as fit."""
    once = list(dict.fromkeys(line for line in lines if line.strip()))
    while once and sum(len(line.encode()) + 1 for line in once) > largest_bytes:
        once.pop(0)
    return once


def _one_line(text: str, largest_bytes: int) -> str:
    """Return a lesson as one line, cut so that a long one does not push out all the others."""
    line = " ".join(text.split())
    cut = line.encode()[:largest_bytes].decode("utf-8", "ignore")
    return line if cut == line else f"{cut}…"
