"""The heartbeat file of a role: its launcher and the chamberlain see by it that its loop turns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from kingdom.base.disk.atomic import make_folder
from kingdom.base.times import stamp

HEARTBEAT_BYTES = 256


class Heartbeat:
    """One record of fixed size, overwritten in place, so that it can also be written on a full disk."""

    def __init__(self, path: Path, role: str, clock: Callable[[], float]) -> None:
        make_folder(path.parent)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._role = role
        self._clock = clock
        self._written = 0
        self._worked = False
        self._said: tuple[object, ...] = ()

    def write(self, state: str, worked: bool = False) -> None:
        """Overwrite the record, at most once a second with the same words.

        Once `worked` was true, it says so until this process ends.
        """
        self._worked = self._worked or worked
        now = self._clock()
        said = (state, self._worked, int(now))
        if said == self._said:
            return
        self._written += 1
        record = {
            "pid": os.getpid(),
            "role": self._role,
            "seq": self._written,
            "state": state,
            "time": stamp(now),
            "worked": self._worked,
        }
        text = json.dumps(record).ljust(HEARTBEAT_BYTES - 1)
        os.pwrite(self._fd, text.encode()[: HEARTBEAT_BYTES - 1] + b"\n", 0)
        self._said = said
