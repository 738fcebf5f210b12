"""What has been dispatched, remembered longer than the files are kept, so that a replay is recognised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kingdom.atomic import Disk

KEPT_DAYS = 400


class DoneIndex:
    """Lines `<day> <key> <task id>`. In memory only hashes; a hit is confirmed in the file."""

    def __init__(self, disk: Disk, path: Path, clock: Callable[[], float]) -> None:
        self._disk = disk
        self._path = path
        self._clock = clock
        self._hashes: set[int] = set()
        self._load()

    def task_of(self, key: str) -> str | None:
        """The task that this event or scheduled run became, if it ever did."""
        if hash(key) not in self._hashes:
            return None
        found = [task for _, known, task in self._lines() if known == key]
        return found[-1] if found else None

    def note(self, pairs: Iterable[tuple[str, str]]) -> None:
        day = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y%m%d")
        new = [(key, task) for key, task in pairs if hash(key) not in self._hashes or self.task_of(key) is None]
        if not new:
            return
        lines = "".join(f"{day} {key} {task}\n" for key, task in new).encode()
        self._disk.append(self._path, lines, sync=True)
        self._hashes.update(hash(key) for key, _ in new)

    def _load(self) -> None:
        """Forget what is too old, mend a last line that a power cut left torn."""
        oldest = (datetime.fromtimestamp(self._clock(), UTC) - timedelta(days=KEPT_DAYS)).strftime("%Y%m%d")
        kept = [line for line in self._lines() if line[0] >= oldest]
        whole = "".join(f"{day} {key} {task}\n" for day, key, task in kept).encode()
        if self._path.exists() and self._path.read_bytes() != whole:
            self._disk.rewrite(self._path, whole)
        self._hashes = {hash(key) for _, key, _ in kept}

    def _lines(self) -> list[tuple[str, str, str]]:
        try:
            text = self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        whole = text.split("\n")[:-1]
        found = (line.split(" ") for line in whole)
        return [(parts[0], parts[1], parts[2]) for parts in found if len(parts) == 3 and parts[0].isdigit()]
