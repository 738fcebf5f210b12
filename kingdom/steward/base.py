"""What every launcher can do, and what all of them need to know to do it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kingdom.disk.atomic import make_folder
from kingdom.disk.lock import Lock
from kingdom.errors import Exit, LauncherTrouble
from kingdom.home.places import Places, find_data
from kingdom.home.roster import RoleRow

STAYS_DOWN = (Exit.DONE, Exit.LOCKED, Exit.REFUSED)
"""A role that ended so is not started again; one that ended otherwise is, at once."""
CANNOT_RUN = (126, 127)
"""sh's words for a command that it cannot execute: trying again at once would spin."""
ANSWER_SECONDS = 5.0
"""A launcher that takes longer to answer hangs."""

LAUNCH_LOCK_SECONDS = 60.0
"""How long one who raises the launcher waits for another who is at it."""

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
"""What roles inherit, beside KINGDOM_*. Secrets come from .env, which each role reads itself."""


@dataclass(frozen=True)
class Patience:
    """Seconds before stronger means; only tests have less."""

    stop: float = 15.0
    """From TERM to KILL when a role is stopped."""
    hung: float = 10.0
    """From TERM to KILL of a hung role."""
    quarantine: float = 600.0
    """A quarantined role gets another chance when all others have been well for so long."""


PATIENT = Patience()


@dataclass(frozen=True)
class Word:
    """A launcher's word on one role: it runs as `pid`, or its last life ended with `code` (a signal is negative).

    Neither: the launcher knows the role and has not started it.
    """

    pid: int | None = None
    code: int | None = None


class Steward(Protocol):
    """A launcher. All but `alive` and `standing` take effect before they return; all can be repeated."""

    name: str

    def raise_all(self, rows: Sequence[RoleRow]) -> None:
        """The launcher stands and exactly these roles are in its care. Takes the launch lock itself."""

    def start(self, row: RoleRow) -> None:
        """A running role is left alone. The launcher must stand."""

    def stop(self, name: str) -> None:
        """TERM, then KILL, for the role's whole process group; it is gone on return and not restarted."""

    def alive(self) -> dict[str, Word]:
        """Every role in the launcher's care; empty when it is dead, LauncherTrouble when it does not answer."""

    def standing(self) -> bool:
        """Whether the launcher lives; a hung one does."""

    def down(self) -> None:
        """All roles stopped and the launcher gone; soldiers run on."""

    def kill(self) -> None:
        """The launcher itself, at once: it lives and does not answer. Its roles end as after any death of it."""


def command(row: RoleRow) -> list[str]:
    return ["/bin/sh", str(find_data() / "bin" / "role"), row.name]


def environment(places: Places, launcher: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("KINGDOM_")}
    kept.setdefault("KINGDOM_PYTHON", sys.executable)
    kept.pop("KINGDOM_LAUNCHER_PID", None)
    kept.pop("KINGDOM_BASE_DIR", None)
    return {**kept, "KINGDOM_HOME": str(places.home), "KINGDOM_LAUNCHER": launcher}


@contextmanager
def launching(places: Places) -> Iterator[None]:
    """One at a time raises the launcher."""
    make_folder(places.run)
    lock = Lock(places.launch_lock, "launcher")
    lock.acquire(LAUNCH_LOCK_SECONDS)
    try:
        yield
    finally:
        lock.release()


def answers(door: Path, launcher: str) -> bool:
    """Whether somebody listens there; LauncherTrouble when it is there and does not answer."""
    try:
        connect(door).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError as trouble:
        raise LauncherTrouble(launcher=launcher, action="reach", what="its socket", why=str(trouble)) from None
    return True


def connect(path: Path) -> socket.socket:
    """A connection to a Unix socket, however long its path: the folder is addressed by its descriptor."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.settimeout(ANSWER_SECONDS)
        try:
            door.connect(f"/proc/self/fd/{folder}/{path.name}")
        except OSError:
            door.close()
            raise
        return door
    finally:
        os.close(folder)
