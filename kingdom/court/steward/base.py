"""What every launcher can do, and what the launchers share."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.disk.lock import Lock
from kingdom.base.errors import BadFile, Exit, LauncherError
from kingdom.base.home.places import Places, find_data
from kingdom.base.home.roster import RoleRow

STAYS_DOWN = (Exit.DONE, Exit.LOCKED, Exit.REFUSED)
"""A role that ended with one of these codes is not restarted; one that ended otherwise is, at once."""
CANNOT_RUN = (126, 127)
"""sh's codes for a command that it cannot execute: restarting it at once would spin."""
ANSWER_SECONDS = 5.0
"""A launcher that takes longer to answer counts as hung."""
NO_ANSWER = f"it has not answered within {ANSWER_SECONDS:g} s, and may be stopped or hang"

PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)
"""Variables that roles inherit, beside KINGDOM_*. Secrets come from .env, which each role reads itself."""


@dataclass(frozen=True)
class Timeouts:
    """How many seconds to wait before using force. Tests wait less."""

    #: From TERM to KILL when a role is stopped.
    stop: float = 15.0
    #: From TERM to KILL of a hung role.
    hung: float = 10.0
    #: A quarantined role is started again when all others have been well for so long.
    quarantine: float = 600.0
    #: For another process that is starting or stopping the launcher.
    launch: float = 60.0


TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class RoleStatus:
    """What a launcher says of one role. With neither pid nor code it knows the role and has not started it."""

    #: The process, while the role runs.
    pid: int | None = None
    #: The exit code of its last process; a signal is negative.
    code: int | None = None
    #: Somebody asked the launcher itself to stop it.
    stopped: bool = False


class Steward(Protocol):
    """A launcher of roles. `start_launcher`, `start`, `stop` and `down` are done when they return, and can be repeated.

    A launcher that does not answer makes any of them raise LauncherError.
    """

    name: str

    def start_launcher(self, rows: Sequence[RoleRow]) -> None:
        """Start the launcher unless it runs, and run exactly these roles. Takes the launch lock itself."""

    def start(self, row: RoleRow) -> None:
        """Start one role; one that runs is left alone. The launcher must run."""

    def stop(self, name: str) -> None:
        """End a role's whole process group by TERM, then KILL. It is not restarted."""

    def statuses(self) -> dict[str, RoleStatus]:
        """Return the status of every role that the launcher knows; nothing when the launcher is dead."""

    def launcher_runs(self) -> bool:
        """Return whether the launcher runs; a hung one does."""

    def down(self) -> None:
        """Stop all roles and end the launcher; soldiers run on."""

    def kill(self) -> None:
        """KILL the launcher itself, because it hangs. Its roles end as after any death of it."""


def command(row: RoleRow) -> list[str]:
    """Return the command line by which every launcher starts a role."""
    return ["/bin/sh", str(find_data() / "bin" / "role"), row.name]


def environment(places: Places, launcher: str) -> dict[str, str]:
    """Return the environment that a launcher gives to its roles."""
    kept = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("KINGDOM_")}
    kept.setdefault("KINGDOM_PYTHON", sys.executable)
    kept.pop("KINGDOM_LAUNCHER_PID", None)
    kept.pop("KINGDOM_BASE_DIR", None)
    kept.pop("KINGDOM_LEDGER", None)
    return {**kept, "KINGDOM_HOME": str(places.home), "KINGDOM_LAUNCHER": launcher}


@contextmanager
def launching(places: Places, seconds: float = TIMEOUTS.launch) -> Iterator[None]:
    """Hold the launch lock: one process at a time starts or stops the launcher."""
    make_folder(places.run)
    lock = Lock(places.launch_lock, "launcher")
    lock.acquire(seconds)
    try:
        yield
    finally:
        lock.release()


def remember(places: Places, launcher: str) -> None:
    """Note which launcher runs the roles: it is started again, also where another one would be preferred."""
    if last_used(places) != launcher:
        Disk(places.launch_scratch).rewrite(places.last_launcher, f"{launcher}\n".encode())


def last_used(places: Places) -> str:
    """Return the launcher that ran the roles last; "" after `kingdom down`."""
    try:
        return read_bytes(places.last_launcher, 64).decode("ascii", "replace").strip()
    except (OSError, BadFile):
        return ""


def answers(path: Path, launcher: str) -> bool:
    """Return whether somebody listens on this socket; LauncherError when it is there and does not answer."""
    try:
        connect(path).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError as error:
        raise LauncherError(launcher=launcher, action="reach", what="its socket", why=str(error)) from None
    return True


def connect(path: Path) -> socket.socket:
    """Connect to a Unix socket, however long its path: the folder is addressed by its descriptor."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        except OSError:
            connection.close()
            raise
        return connection
    finally:
        os.close(folder)
