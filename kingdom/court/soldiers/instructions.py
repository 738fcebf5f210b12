"""Instruction files above the workspaces, where engines look for them: what all soldiers, or a general's, are told."""

from __future__ import annotations

from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import text_of
from kingdom.base.home.places import Places

LARGEST = 64 << 10
OF_CLAUDE, OF_ALL = "CLAUDE.md", "AGENTS.md"
FOR_ALL_SOLDIERS = "workspace-claude.md"
"""In config/: what every soldier is told."""
OF_GENERAL = {OF_CLAUDE: ("general-claude.md",), OF_ALL: ("general-codex.md", "general-claude.md")}
"""In a general's package, by the file that they become; the first that is there."""


def lay(places: Places, disk: Disk, general: str) -> list[Path]:
    """Lay the instruction files that there are above a general's workspaces. Return them: soldiers may read them."""
    laid = []
    for folder, name, text in (*_for_all(places), *_of_general(places, general)):
        path = folder / name
        if _text(path) != text:
            make_folder(folder)
            disk.rewrite(path, text.encode())
        laid.append(path)
    return laid


def together(places: Places, general: str) -> str | None:
    """Return all of it as one text, for an engine that looks for it in its HOME; None when there is nothing."""
    parts = [text for _, name, text in (*_for_all(places), *_of_general(places, general)) if name == OF_ALL]
    return "\n".join(parts) or None


def _for_all(places: Places) -> list[tuple[Path, str, str]]:
    text = _text(places.config / FOR_ALL_SOLDIERS)
    return [(places.workspaces, name, text) for name in OF_GENERAL if text]


def _of_general(places: Places, general: str) -> list[tuple[Path, str, str]]:
    folder = places.workspace(general, "any").parent
    texts = (
        (name, next(filter(None, (_text(places.package(general) / own) for own in owns)), ""))
        for name, owns in OF_GENERAL.items()
    )
    return [(folder, name, text) for name, text in texts if text]


def _text(path: Path) -> str:
    return text_of(path, LARGEST)
