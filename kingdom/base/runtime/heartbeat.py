"""The heartbeat file of a role: its launcher and the chamberlain see by it that its loop turns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.errors import Collision
from kingdom.base.home.code import installed_code
from kingdom.base.home.places import Places
from kingdom.base.times import stamp

HEARTBEAT_BYTES = 256


class Heartbeat:
    """One record of fixed size, overwritten in place, so that it can also be written on a full disk."""

    def __init__(self, places: Places, role: str, clock: Callable[[], float]) -> None:
        path = places.heartbeat(role)
        self._role = role
        self._clock = clock
        self._code = installed_code()
        self._written = 0
        self._worked = False
        self._said: tuple[object, ...] = ()
        self.polls = False
        """Whether files that arrive do not wake it, though they should."""
        make_folder(path.parent)
        if not is_there(path):
            # Whole from the first: an empty one is that of another program, which ours would stand by beside.
            with suppress(Collision):
                Disk(places.scratch(role)).create(path, self._record("starting"))
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def write(self, state: str, worked: bool = False) -> None:
        """Overwrite the record, at most once a second with the same words.

        Once `worked` was true, it says so until this process ends.
        """
        self._worked = self._worked or worked
        said = (state, self._worked, int(self._clock()))
        if said == self._said:
            return
        self._written += 1
        os.pwrite(self._fd, self._record(state), 0)
        self._said = said

    def _record(self, state: str) -> bytes:
        record = {
            "pid": os.getpid(),
            "role": self._role,
            "seq": self._written,
            "state": state,
            "time": stamp(self._clock()),
            "worked": self._worked,
            "code": self._code,
        }
        if self.polls:
            record["polls"] = True
        text = json.dumps(record).ljust(HEARTBEAT_BYTES - 1)
        return text.encode()[: HEARTBEAT_BYTES - 1] + b"\n"
