"""What a soldier's engine may touch and use. Entered in the child, just before the engine's program starts.

Landlock holds the file system, a seccomp filter the one door Landlock leaves open (Unix sockets: the launcher
listens on one), rlimits the machine's means. Root loses its privileges first. Where the kernel lacks a part,
`missing` says so and the task's general decides.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_ASK_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522

# linux/landlock.h, by the version of the interface that brought them
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_SCOPE_SIGNALS_AND_ABSTRACT_SOCKETS = 0b11

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

# (audit architecture, socket, io_uring_setup); 32-bit calls of the same machine are refused with the rest
_CALLS = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
_AF_UNIX = 1


def missing() -> str | None:
    """What this kernel lacks for a whole cage; None when nothing."""
    version = _landlock_version()
    if version < 1:
        return "this kernel has no Landlock"
    if version < 3:
        return f"this kernel's Landlock (version {version}) cannot forbid truncating files"
    if platform.machine() not in _CALLS:
        return f"no system call filter for {platform.machine()}"
    return None


def adopt_orphans() -> None:
    """Whatever the engine leaves behind becomes our child, so that we can end it."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter(order: Mapping[str, Any]) -> None:
    """In the child: dies with its soldier, uses no more than its limits, and writes only where it may."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _limit(order["limits"])
    if order["sandbox"]:
        _drop_privileges()
        _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _landlock(order["may_write"], [*order["may_not_read"], "/dev"])
        _refuse_unix_sockets()


def _limit(limits: Mapping[str, int]) -> None:
    for what, most in (
        (resource.RLIMIT_DATA, (limits["memory_mb"] << 20) * 5 // 4),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_NPROC, _own_processes() + limits["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))


def _own_processes() -> int:
    """The kernel counts all processes of a user, not those of one tree."""
    mine = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            mine += name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid()
    return mine


def _drop_privileges() -> None:
    """Root keeps its name and its files, and loses everything that would lead around the cage."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _must(_libc.capset(header, bytes(24)), "capset")


def _landlock_version() -> int:
    return int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_LANDLOCK_ASK_VERSION)))


def _landlock(may_write: list[str], may_not_read: list[str]) -> None:
    version = _landlock_version()
    handled = _READ | _WRITE_FILE | _REMOVE_AND_MAKE
    handled |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled |= _IOCTL_DEV if version >= 5 else 0
    scoped = _SCOPE_SIGNALS_AND_ABSTRACT_SOCKETS if version >= 6 else 0
    attributes = struct.pack("=QQQ", handled, 0, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    _must(rules, "landlock_create_ruleset")
    _allow(rules, "/", _READ_DIR)
    for path in _all_but("", may_not_read):
        _allow(rules, path, handled & _READ)
    for path in may_write:
        _allow(rules, path, handled)
    for device in DEVICES:
        _allow(rules, f"/dev/{device}", handled & (_READ_FILE | _WRITE_FILE | _IOCTL_DEV))
    _must(_libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, ctypes.c_uint(0)), "landlock_restrict_self")
    os.close(rules)


def _all_but(folder: str, hidden: list[str]) -> Iterator[str]:
    """The largest trees under a folder that hold none of the hidden paths. Landlock can only allow: we go around."""
    try:
        inside = [f"{folder}/{name}" for name in os.listdir(folder or "/")]
    except OSError:
        return
    for path in inside:
        if path in hidden:
            continue
        if any(each.startswith(f"{path}/") for each in hidden):
            yield from _all_but(path, hidden)
        else:
            yield path


def _allow(rules: int, path: str, access: int) -> None:
    """Whatever is gone, or cannot be opened by us, cannot be allowed and stays shut."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            access &= _ON_FILES
        attributes = struct.pack("=Qi", access, fd)
        # EINVAL or EBADFD for a thing that no rule can name, such as a link: shut as well.
        _libc.syscall(_LANDLOCK_ADD_RULE, rules, _LANDLOCK_RULE_PATH_BENEATH, attributes, ctypes.c_uint(0))
    finally:
        os.close(fd)


def _refuse_unix_sockets() -> None:
    """EPERM for socket(AF_UNIX), for io_uring (which could make one), and for calls of another architecture."""
    machine = _CALLS.get(platform.machine())
    if machine is None:
        return
    architecture, socket_call, io_uring_setup = machine
    load, jump_if_equal, jump_if_at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | 1
    program = [
        (load, 0, 0, 4),
        (jump_if_equal, 0, 6, architecture),
        (load, 0, 0, 0),
        (jump_if_at_least, 4, 0, 0x40000000),
        (jump_if_equal, 3, 0, io_uring_setup),
        (jump_if_equal, 0, 3, socket_call),
        (load, 0, 0, 16),
        (jump_if_equal, 0, 1, _AF_UNIX),
        (answer, 0, 0, refuse),
        (answer, 0, 0, allow),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    _must(_libc.prctl(_PR_SET_SECCOMP, 2, filter_, 0, 0), "seccomp")


def _must(code: int, what: str) -> None:
    """A cage that is not shut must not be entered: the engine then never runs."""
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
