"""What a role could not start with. Its watcher starts it again as soon as one of these files has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kingdom.base.disk.atomic import Disk, Version, version
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.errors import BadConfig, KingdomError
from kingdom.base.home.places import Places


def versions(paths: Iterable[Path]) -> dict[str, Version]:
    return {str(path): version(path) for path in paths}


def note(places: Places, disk: Disk, role: str, error: KingdomError, read: Mapping[str, Version]) -> None:
    """Note why a role refuses to start; `read` are the files that its configuration comes from, as they were before."""
    files = dict(read)
    if isinstance(error, BadConfig):
        named = str(error.facts["path"])
        files.setdefault(named, version(named))
    disk.rewrite(places.refused(role), to_json({"why": str(error), "files": files}))


def forget(places: Places, disk: Disk, role: str) -> None:
    """Note that a role has started."""
    if places.refused(role).exists():
        disk.remove(places.refused(role))


def why(places: Places, role: str) -> str:
    """Return why a role refused to start, in a line; "" when it noted nothing."""
    return str(read_json_or(places.refused(role), {}).get("why", ""))


def is_mended(places: Places, role: str) -> bool:
    """Return whether a file that a role refused has changed since."""
    files = read_json_or(places.refused(role), {}).get("files")
    return isinstance(files, dict) and any(version(path) != seen for path, seen in files.items())
