"""Sleep until a file arrives, a signal comes or time is up. The only file that knows inotify.

The library is loaded when something is watched: commands that only look do not pay for it.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kingdom.home.places import is_hidden

if TYPE_CHECKING:
    from inotify_simple import INotify

Mode = Literal["inotify", "poll"]

MOVE_SELF, Q_OVERFLOW, IGNORED = 0x0800, 0x4000, 0x8000
"""As the kernel has them: an `&` with the library's enum takes longer than everything else on the way."""


class Waker:
    """One sleeper's alarm. With mode "poll", or where inotify cannot be had, only time and signals wake it.

    Arrivals are hints: whoever wakes looks at the directory, which alone is the truth.
    """

    def __init__(self, folders: Iterable[Path], mode: Mode = "inotify") -> None:
        self._poll = select.poll()
        self._bell, self._bell_rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._bell, select.POLLIN)
        self._inotify: INotify | None = None
        self._hears_signals = False
        self._folders: dict[int, Path] = {}
        self._unwatched: list[Path] = []
        if mode == "inotify":
            self._watch(folders)

    def wait(self, seconds: float) -> dict[Path, list[str]] | None:
        """Sleep at most `seconds`. Names that arrived, by folder; None when arrivals were lost (look everywhere)."""
        if self._unwatched and self._watch_again():
            return None
        ready = dict(self._poll.poll(max(0, int(seconds * 1000 + 0.999))))
        if self._bell in ready:
            with suppress(BlockingIOError):
                while os.read(self._bell, 4096):
                    pass
        if self._inotify is None or self._inotify.fileno() not in ready:
            return {}
        return self._arrivals(self._inotify)

    @property
    def polls(self) -> bool:
        """Whether nothing but time and signals wakes this sleeper, so that it has to look by itself."""
        return self._inotify is None

    def wake_on_signals(self, in_place_of: Waker | None = None) -> None:
        """Every signal that has a Python handler ends the sleep (a child's end too, with a SIGCHLD handler)."""
        signal.set_wakeup_fd(self._bell_rope, warn_on_full_buffer=False)
        self._hears_signals = True
        if in_place_of is not None:
            in_place_of._hears_signals = False  # else its end would take them from us

    def add_descriptor(self, fd: int) -> None:
        """Another descriptor whose readiness ends the sleep."""
        self._poll.register(fd, select.POLLIN)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        if self._hears_signals:
            signal.set_wakeup_fd(-1)
        os.close(self._bell)
        os.close(self._bell_rope)

    def _watch(self, folders: Iterable[Path]) -> None:
        from inotify_simple import INotify

        try:
            self._inotify = INotify(nonblocking=True)
            for folder in folders:
                self._folders[self._inotify.add_watch(folder, _arrival_flags())] = folder
        except OSError:
            # Out of watches or instances: polling alone must do, and does.
            if self._inotify is not None:
                self._inotify.close()
            self._inotify = None
            return
        self._poll.register(self._inotify.fileno(), select.POLLIN)

    def _arrivals(self, inotify: INotify) -> dict[Path, list[str]] | None:
        arrived: dict[Path, list[str]] = {}
        lost = False
        for event in inotify.read(timeout=0):
            if event.mask & MOVE_SELF:
                inotify.rm_watch(event.wd)
            elif event.mask & IGNORED:
                self._unwatched.append(self._folders.pop(event.wd))
                lost = True
            elif event.mask & Q_OVERFLOW:
                lost = True
            elif not is_hidden(event.name):
                arrived.setdefault(self._folders[event.wd], []).append(event.name)
        return None if lost else arrived

    def _watch_again(self) -> bool:
        """Folders that were removed or moved away: whether all are there again, and watched."""
        assert self._inotify is not None
        while self._unwatched:
            try:
                self._folders[self._inotify.add_watch(self._unwatched[-1], _arrival_flags())] = self._unwatched[-1]
            except OSError:
                return False
            self._unwatched.pop()
        return True


class ProcessExits:
    """The ends of processes that are not our children, as one descriptor that wakes a sleeper."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._followed: dict[int, int] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def follow(self, pid: int) -> None:
        if pid in self._followed.values():
            return
        with suppress(OSError):  # gone already, or too many: whoever looks from time to time finds out as well
            fd = os.pidfd_open(pid)
            self._followed[fd] = pid
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def new(self) -> frozenset[int]:
        """Who of the followed has ended since the last question."""
        ended = set()
        for fd, _ in self._epoll.poll(0):
            ended.add(self._followed.pop(fd))
            os.close(fd)
        return frozenset(ended)


def _arrival_flags() -> int:
    """Renamed or linked in, and closed by somebody who writes in place: its start shows up half-finished."""
    from inotify_simple import flags

    return int(flags.MOVED_TO | flags.CREATE | flags.CLOSE_WRITE | flags.MOVE_SELF | flags.ONLYDIR)
