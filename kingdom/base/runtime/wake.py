"""Sleep until a file arrives, a descriptor is readable or time is up. The only file that knows inotify.

The inotify library is loaded when something is watched: commands that only look do not pay for it.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kingdom.base.home.places import is_hidden

if TYPE_CHECKING:
    from inotify_simple import INotify

Mode = Literal["inotify", "poll"]
EVENT = struct.Struct("iIII")
"""The kernel's `inotify_event`, before its name: watch, mask, cookie, length of the name."""
LONGEST_EVENT = EVENT.size + 256
READ_AT_ONCE = 1 << 15
SHARED_SECONDS = 0.0002
"""When others ran for longer than this before we could look again, they need the processor."""
NOT_EAGER_SECONDS = 0.02
"""For so long we sleep at once then."""
NO_ENDINGS: Mapping[Path, tuple[str, ...]] = {}

MOVE_SELF, Q_OVERFLOW, IGNORED = 0x0800, 0x4000, 0x8000
"""The kernel's numbers: an `&` with the library's enum takes longer than everything else on the way."""


class Waker:
    """Wakes one sleeper. With mode "poll", or where inotify cannot be had, files that arrive do not wake it.

    Arrivals are hints: whoever wakes looks at the folder, which alone is the truth.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        mode: Mode = "inotify",
        ignored: Mapping[Path, tuple[str, ...]] = NO_ENDINGS,
        *,
        only_renamed: bool = False,
    ) -> None:
        """`ignored` are endings of names, by folder, that are no news when they arrive. With `only_renamed` files that
        are linked in or written in place are none either."""
        self._poll = select.poll()
        self._on_wake: dict[int, Callable[[], object]] = {}
        self._inotify: INotify | None = None
        self._folders: dict[int, Path] = {}
        self._unwatched: list[Path] = []
        self._ignored = ignored
        self._only_renamed = only_renamed
        #: Until then others need the processor, and `eager` has no effect, by the monotonic clock.
        self._shared_until = 0.0
        # Watching nothing takes no inotify instance: a user has only 128.
        if mode == "inotify" and (watched := list(folders)):
            self._watch(watched)
        self.polls = self._inotify is None
        """Whether arrivals do not wake this sleeper, so that it has to look by itself."""

    def wait(self, seconds: float, own: Collection[str] = (), eager: float = 0.0) -> dict[Path, list[str]] | None:
        """Sleep at most `seconds`. Return names that arrived, by folder; None when some were lost: look everywhere.

        Arrivals of the sleeper's `own` making, given by path, do not end the sleep. What is expected within `eager`
        seconds is looked for so long without sleeping: to wake a processor that sleeps takes as long as to answer.
        """
        until = time.monotonic() + seconds
        while True:
            if self._unwatched and self._watch_again():
                return None
            ready = dict(self._look_awake(min(eager, seconds)) or self._poll.poll(max(0, int(seconds * 1000 + 0.999))))
            for fd in ready:
                if fd in self._on_wake:
                    self._on_wake[fd]()
            if self._inotify is None or self._inotify.fileno() not in ready:
                return {}
            arrivals = self._arrivals(self._inotify, own)
            seconds = until - time.monotonic()
            if arrivals != {} or len(ready) > 1 or seconds <= 0:
                return arrivals

    def add_descriptor(self, fd: int, on_wake: Callable[[], object] | None = None) -> None:
        """End the sleep when a descriptor is readable; `on_wake` is called then."""
        self._poll.register(fd, select.POLLIN)
        if on_wake is not None:
            self._on_wake[fd] = on_wake

    def close(self) -> None:
        """Stop watching."""
        if self._inotify is not None:
            self._inotify.close()

    def _look_awake(self, seconds: float) -> list[tuple[int, int]]:
        """Return what is ready within so short a time, without sleeping; [] when nothing is.

        Others may use the processor meanwhile. When they do, this ends early: the kernel wakes a sleeper sooner than it
        gives the processor back to a process that looks again and again.
        """
        now = time.monotonic()
        end = now + seconds if now >= self._shared_until else now
        while now < end:
            if ready := self._poll.poll(0):
                return ready
            os.sched_yield()
            before, now = now, time.monotonic()
            if now - before > SHARED_SECONDS:
                self._shared_until = now + NOT_EAGER_SECONDS
                break
        return []

    def _watch(self, folders: Iterable[Path]) -> None:
        from inotify_simple import INotify

        try:
            self._inotify = INotify(nonblocking=True)
            for folder in folders:
                self._folders[self._inotify.add_watch(folder, _arrival_flags(self._only_renamed))] = folder
        except OSError:
            # Out of watches or instances: polling must do, and does.
            if self._inotify is not None:
                self._inotify.close()
            self._inotify = None
            return
        self._poll.register(self._inotify.fileno(), select.POLLIN)

    def _arrivals(self, inotify: INotify, own: Collection[str]) -> dict[Path, list[str]] | None:
        arrived: dict[Path, list[str]] = {}
        lost = False
        for watch, mask, name in _events(_read_all(inotify.fileno())):
            if mask & MOVE_SELF:
                inotify.rm_watch(watch)
            elif mask & IGNORED:
                self._unwatched.append(self._folders.pop(watch))
                lost = True
            elif mask & Q_OVERFLOW:
                lost = True
            elif self._is_news(folder := self._folders[watch], name, own):
                arrived.setdefault(folder, []).append(name)
        return None if lost else arrived

    def _is_news(self, folder: Path, name: str, own: Collection[str]) -> bool:
        is_ignored = name.endswith(self._ignored.get(folder, ())) or (own and f"{folder}/{name}" in own)
        return not is_ignored and not is_hidden(name)

    def _watch_again(self) -> bool:
        """Watch folders again that were removed or moved away. Return whether all are back."""
        assert self._inotify is not None
        while self._unwatched:
            try:
                watch = self._inotify.add_watch(self._unwatched[-1], _arrival_flags(self._only_renamed))
                self._folders[watch] = self._unwatched[-1]
            except OSError:
                return False
            self._unwatched.pop()
        return True


class Alarm:
    """Ends a role's sleep when a descriptor becomes readable, a thread rings or a signal comes, in both wake modes.

    Only new data wakes: what a turn has left unread does not end the next sleep.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closed = weakref.finalize(self, _close, self._read_end, self._write_end)
        self.add(self._read_end)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def add(self, fd: int) -> None:
        """Wake for this descriptor, until it is closed."""
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def ring(self) -> None:
        """Wake the role. Any thread may call this at any time."""
        with suppress(BlockingIOError):  # full: it has been rung often enough
            os.write(self._write_end, b"!")

    def ring_on_signals(self) -> None:
        """Ring on every signal that has a Python handler (a child's end too, with a SIGCHLD handler)."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Forget what has rung until now."""
        self._epoll.poll(0)
        with suppress(BlockingIOError):
            while os.read(self._read_end, 4096):
                pass

    def close(self) -> None:
        """Stop ringing, also on signals."""
        self._epoll.close()
        self._closed()


class ProcessExits:
    """Ends a role's sleep when processes end that are not its children."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        self._is_new = False
        self._ended: set[int] = set()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def watch(self, pid: int) -> bool:
        """Wake when this process ends. Return False if that cannot be: it has ended already, or there are too many."""
        if pid in self._watched.values():
            return True
        try:
            fd = os.pidfd_open(pid)
            self._watched[fd] = pid
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        except OSError:  # the role also looks from time to time
            return False
        return True

    def note(self) -> None:
        """Take note of those that have ended, so that they do not end the next sleep."""
        for fd, _ in self._epoll.poll(0):
            self._ended.add(self._watched.pop(fd))
            os.close(fd)
            self._is_new = True

    def take_ended(self) -> set[int]:
        """Return the pids of those that have ended since the last call."""
        self.note()
        ended, self._ended = self._ended, set()
        return ended

    def new(self) -> bool:
        """Return whether a watched process has ended since the last call."""
        self.note()
        was_new, self._is_new = self._is_new, False
        return was_new


def _read_all(fd: int) -> bytes:
    data = part = os.read(fd, READ_AT_ONCE)
    while len(part) > READ_AT_ONCE - LONGEST_EVENT:
        try:
            part = os.read(fd, READ_AT_ONCE)
        except BlockingIOError:
            break
        data += part
    return data


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the watch, the mask and the name of each event: the library takes twice as long for that."""
    end = 0
    while end < len(data):
        watch, mask, _, length = EVENT.unpack_from(data, end)
        start = end + EVENT.size
        end = start + length
        yield watch, mask, os.fsdecode(data[start:end].rstrip(b"\0"))


def _close(read_end: int, write_end: int) -> None:
    """Close an alarm's pipe. A signal that came afterwards would be an error on stderr."""
    with suppress(ValueError):  # in another thread than the one that hears signals
        heard = signal.set_wakeup_fd(-1)
        if heard not in (-1, write_end):
            signal.set_wakeup_fd(heard, warn_on_full_buffer=False)
    os.close(read_end)
    os.close(write_end)


def _arrival_flags(only_renamed: bool) -> int:
    """Return the kernel's events of whole files: renamed or linked in, or closed by a program that writes in place."""
    from inotify_simple import flags

    written = 0 if only_renamed else flags.CREATE | flags.CLOSE_WRITE
    return int(flags.MOVED_TO | written | flags.MOVE_SELF | flags.ONLYDIR)
