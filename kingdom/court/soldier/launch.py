"""Start a program without copying our process: copying its page tables takes longer than a small program runs.

Until its program runs, the new process shares our memory. It runs no Python there, only calls of the C library, one
after the other: each lies ready as a context (makecontext) whose end goes on with the next.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

_libc = ctypes.CDLL(None, use_errno=True)

HANDLED = (signal.SIGTERM, signal.SIGINT)
"""Signals with a handler in Python. Who starts a program blocks them first: it must not run in the new process."""
DEFAULT = (*HANDLED, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that have their default effect in the program: those above, and what Python ignores."""
LONGEST_PATH = 4096
_CLONE_VM = 0x100
_PR_SET_PDEATHSIG = 1
_CLOSE_RANGE_CLOEXEC, _LAST = 4, 0xFFFFFFFF
_CONTEXT_BYTES, _STACK_BYTES = 8192, 8192
"""More than any machine needs for a context, and for the stack of one call."""
_UNBLOCKED = 3
"""The last contexts of a row, from execve on, do not block the handled signals."""
_MOST_CALLS = 16 + _UNBLOCKED


class _Context(ctypes.Structure):
    """The C library's `ucontext_t`, as far as makecontext wants it filled in, and a stack."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("next", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("stack_flags", ctypes.c_int),
        ("stack_size", ctypes.c_size_t),
        ("rest", ctypes.c_char * (_CONTEXT_BYTES - 5 * ctypes.sizeof(ctypes.c_void_p))),
        ("room", ctypes.c_char * _STACK_BYTES),
    )


def prepare() -> bool:
    """Get ready, while no signal is blocked. Return False where that cannot be.

    Not every C library has contexts, and a kernel before 5.11 cannot close descriptors when a program starts.
    """
    if not (hasattr(_libc, "makecontext") and hasattr(_libc, "close_range")):
        return False
    return _libc.close_range(_LAST, _LAST, _CLOSE_RANGE_CLOEXEC) == 0 and bool(_contexts())


class Launch:
    """A process that becomes a program once it is told to. One at a time: they are prepared in the same memory."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], streams: Iterable[int]) -> None:
        self._program = argv[0].encode("utf-8", "surrogateescape") + b"\0"
        self._path = ctypes.create_string_buffer(LONGEST_PATH)
        self._argv = _texts(map(os.fsencode, argv))
        self._environment = _texts(os.fsencode(f"{name}={value}") for name, value in environment.items())
        self._streams = tuple(streams)
        self._told, self._tells = os.pipe2(os.O_CLOEXEC)
        self._waits, self._goes = os.pipe2(os.O_CLOEXEC)

    def fork(self, group: int | None) -> int:
        """Start the process, from the thread whose credentials and sandbox it shall have, and return its pid.

        It enters the control group itself whose descriptor is given.
        """
        error_number = _libc["__errno_location"]
        error_number.restype = ctypes.c_void_p
        calls = [
            ("setsid",),
            *(("dup2", fd, target) for target, fd in enumerate(self._streams)),
            *([("write", group, _ZERO, 1)] if group is not None else []),
            *(("signal", int(number), int(signal.SIG_DFL)) for number in DEFAULT),
            ("close", self._goes),
            # The path comes with the word to go. Without it, as we are gone, there is nothing to be started.
            ("read", self._waits, self._path, LONGEST_PATH),
            # Not before: the end of the thread that forks, too, would be its parent's.
            ("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL)),
            ("close_range", 3, _LAST, _CLOSE_RANGE_CLOEXEC),
            ("execve", self._path, self._argv, self._environment),
            ("write", self._tells, error_number(), ctypes.sizeof(ctypes.c_int)),
            ("_exit", 1),
        ]
        pid: int = _libc.clone(
            ctypes.cast(_libc.setcontext, ctypes.c_void_p),
            ctypes.c_void_p(_top(_contexts()[0])),
            _CLONE_VM | signal.SIGCHLD,
            ctypes.c_void_p(_in_a_row(calls)),
        )
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "clone")
        return pid

    def go(self) -> None:
        """Send the path of its program, and wait until that runs. OSError when it cannot."""
        os.write(self._goes, self._program)
        self._close("_goes", "_waits", "_tells")
        if error := os.read(self._told, ctypes.sizeof(ctypes.c_int)):
            number = ctypes.c_int.from_buffer_copy(error).value
            raise OSError(number, os.strerror(number), os.fsdecode(self._program[:-1]))

    def close(self) -> None:
        """Close the pipes. A process that was not sent its path ends."""
        self._close("_goes", "_waits", "_tells", "_told")

    def _close(self, *ends: str) -> None:
        for end in ends:
            if (fd := getattr(self, end)) >= 0:
                os.close(fd)
                setattr(self, end, -1)


_ZERO = ctypes.create_string_buffer(b"0")


@cache
def _contexts() -> list[_Context]:
    """Return the first one, on whose stack the new process begins, and those of all calls."""
    contexts = [_Context() for _ in range(1 + _MOST_CALLS)]
    for context in contexts[-_UNBLOCKED:]:
        _libc.getcontext(ctypes.byref(context))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    for context in contexts[:-_UNBLOCKED]:
        _libc.getcontext(ctypes.byref(context))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for context in contexts:
        context.stack = ctypes.addressof(context) + _Context.room.offset
        context.stack_size = _STACK_BYTES
    return contexts


def _in_a_row(calls: Sequence[tuple[object, ...]]) -> int:
    """Prepare calls so that each goes on with the next, and return the address of the first one's context."""
    following = 0
    for context, (name, *arguments) in zip(reversed(_contexts()), reversed(calls), strict=False):
        context.next = following
        call = ctypes.cast(getattr(_libc, str(name)), ctypes.c_void_p)
        _libc.makecontext(ctypes.byref(context), call, len(arguments), *map(_word, arguments))
        following = ctypes.addressof(context)
    return following


def _word(argument: object) -> ctypes.c_void_p:
    """Return an argument as wide as a register: a number, or the address of a buffer."""
    return ctypes.c_void_p(argument if isinstance(argument, int) else ctypes.addressof(argument))  # type: ignore[arg-type]


def _top(context: _Context) -> int:
    return ctypes.addressof(context) + ctypes.sizeof(context)


def _texts(texts: Iterable[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    words = [*texts]
    return (ctypes.c_char_p * (len(words) + 1))(*words)
