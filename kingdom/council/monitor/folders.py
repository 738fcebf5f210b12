"""The folders of agents, and what lies there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kingdom.base.home.places import Places
from kingdom.base.runtime.processes import started_at
from kingdom.council import mime

DRAFT = re.compile(rf"\.{re.escape(mime.PROGRAM)}-(\d+)-[0-9a-f]+\.tmp\Z")


def agents_of(places: Places) -> list[str]:
    """Return the agents that have a folder, sorted."""
    names = os.listdir(places.council)
    return sorted(name for name in names if mime.folder_of(name) == name and _is_folder(places.agent(name)))


def senders_of(places: Places) -> list[str]:
    """Return the agents that have an outbox."""
    return [agent for agent in agents_of(places) if os.path.isdir(places.outbox(agent))]


def listed(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none where there is no folder. An agent may have closed its own to us."""
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        os.chmod(folder, 0o700)
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def clear_drafts(folders: Iterable[Path]) -> None:
    """Delete what killed processes have left of edits."""
    for folder in folders:
        for name in listed(folder):
            found = DRAFT.match(name)
            if found is not None and (int(found[1]) == os.getpid() or started_at(int(found[1])) is None):
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
