"""The sandbox of a soldier's engine. Entered just before the engine's program starts, by the process that becomes it
or by a thread that forks that process.

Landlock guards the contents of files, and who gets signals. A mount namespace, read-only for the most part, guards
what Landlock does not know: modes, times, attributes. A seccomp filter refuses sockets other than those of the network
(the launcher listens on a Unix socket), namespaces of its own, leases on files (who opens a leased one waits), signals
by way of a descriptor, and changes of limits, processors and priorities of processes that are not the soldier's.
Rlimits bound memory and processor time, and a soldier gives way to the roles. Root loses its privileges. Where this
machine lacks a part, `missing` says so.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.cgroup import Cgroup

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_SECCOMP_MODE_FILTER = 2
_CLONE_FS, _CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWIPC = 0x00000200, 0x00020000, 0x10000000, 0x08000000
_CLONE_NEWCGROUP, _CLONE_NEWUTS, _CLONE_NEWPID, _CLONE_NEWNET = 0x02000000, 0x04000000, 0x20000000, 0x40000000
_CLONE_NEWTIME = 0x80
"""In `unshare` alone: in `clone` it is part of the signal's number."""
_NAMESPACES = (
    *(_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWIPC),
    *(_CLONE_NEWCGROUP, _CLONE_NEWUTS, _CLONE_NEWPID, _CLONE_NEWNET),
)
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18
_MOUNT_SETATTR, _MOUNT_ATTR_RDONLY, _AT_FDCWD, _AT_RECURSIVE = 442, 1, -100, 0x8000
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_ASK_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522

# linux/landlock.h, by the version of the interface that brought them
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _REMOVE_AND_MAKE = 1 << 5, sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_SCOPE_SIGNALS_AND_ABSTRACT_SOCKETS = 0b11

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_DEEPEST = 1000
"""Folders above a chroot's root, at most."""

GIVES_WAY = 10
"""How nice a soldier is: the roles turn in time whatever it does."""
FIRST_TO_GO = 500
"""When the machine is out of memory, a soldier is ended before a role."""

_F_SETOWN_EX = 15
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
"""From linux/fcntl.h and linux/sockios.h: Python does not name them."""
REFUSED_OF_FCNTL = (fcntl.F_SETLEASE, fcntl.F_SETOWN, fcntl.F_SETSIG, _F_SETOWN_EX)
REFUSED_OF_IOCTL = (_FIOSETOWN, _SIOCSPGRP)
FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Of sockets, for the network, and for what asks the kernel about it. All others are refused: Unix sockets, those to
the machine that runs this one (vsock), raw packets, and any other kind that a kernel has."""
_SOCKET_KIND, _PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0xF, 0, 1
_ITSELF = 0
_STEP = struct.Struct("=HBBI")
"""One step of a filter's program."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
"""Answers of a filter. With the second the call fails with the error number in its lower bits."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets of what it looks at in struct seccomp_data."""

STACK_BYTES = 1 << 19
"""The stack of the thread that enters a sandbox."""
LOOK_SECONDS = 0.00005
FRESH_SECONDS = 1.0
MOST_HELD = 512
"""Trees that are held open for those that are forked: a process may have so many files open, and needs some itself."""


class SystemCalls(NamedTuple):
    """One architecture's numbers; calls of another architecture of the same machine are refused."""

    #: The architecture, as seccomp names it.
    audit: int
    socket: int
    setpriority: int
    ioprio_set: int
    prlimit64: int
    fcntl: int
    ioctl: int
    socketpair: int
    clone: int
    clone3: int
    unshare: int
    #: sched_setparam, sched_setscheduler, sched_setattr and sched_setaffinity: allowed for the process itself.
    of_scheduling: tuple[int, ...]
    #: setns, io_uring, which could make a socket, and the keyrings of the user.
    refused: tuple[int, ...]


_CALLS = {
    "x86_64": SystemCalls(
        audit=0xC000003E,
        socket=41,
        setpriority=141,
        ioprio_set=251,
        prlimit64=302,
        fcntl=72,
        ioctl=16,
        socketpair=53,
        clone=56,
        clone3=435,
        unshare=272,
        of_scheduling=(142, 144, 314, 203),
        refused=(308, 425, 248, 249, 250),
    ),
    "aarch64": SystemCalls(
        audit=0xC00000B7,
        socket=198,
        setpriority=140,
        ioprio_set=30,
        prlimit64=261,
        fcntl=25,
        ioctl=29,
        socketpair=199,
        clone=220,
        clone3=435,
        unshare=97,
        of_scheduling=(118, 119, 274, 122),
        refused=(268, 425, 217, 218, 219),
    ),
}


@cache
def missing() -> str | None:
    """Return what this machine lacks for a whole sandbox; None when nothing. It is tried, once in each process."""
    version = _landlock_version()
    if version < 1:
        return "this kernel has no Landlock"
    if version < 3:
        return f"this kernel's Landlock (version {version}) cannot forbid truncating files"
    if version < 6:
        return f"this kernel's Landlock (version {version}) cannot forbid signals to others"
    if os.uname().machine not in _CALLS:
        return f"no system call filter for {os.uname().machine}"
    if not can_have_view():
        return "no read-only view of the disk can be had here"
    return None


def missing_hold() -> str | None:
    """Return why a process could outlive its soldier on this machine; None when none can."""
    cgroup = Cgroup(Path("/"), f"probe-{os.getpid()}")
    cgroup.create(1)
    held = cgroup.is_there()
    cgroup.kill_all()
    if held or can_have_view():
        return None
    return "neither control groups nor a read-only view of the disk here"


def can_have_view() -> bool:
    """Return whether a process can have a read-only view of the disk here: tried in a child, as none can be left."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):  # whatever happens, it must not go on as a second soldier
            os._exit(not _mount_read_only(()))
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def go_first() -> None:
    """Let this process, and what it starts, be ended before a role when the machine is out of memory."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(str(FIRST_TO_GO))


def adopt_orphans() -> None:
    """Make whatever the engine leaves behind our child, so that we can end it."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Prepared:
    """What sandboxes have in common that are entered within a second: the processes of this user, and the trees that
    may be read. A process that forks many soldiers looks them up beforehand."""

    def __init__(self) -> None:
        self._until = 0.0
        self._hidden: list[str] = []
        #: Of this user: the kernel counts all of them, not those of one tree.
        self.processes = 0
        self._held: list[int] = []
        self._told: list[bytes] = []
        self._more: list[str] = []

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self._until

    def renew(self, may_not_read: Iterable[str]) -> None:
        """Look at processes and trees as they are now."""
        self._close()
        self._hidden = [*may_not_read]
        self.processes = _own_processes()
        for path in _all_but("", *_real_paths([*self._hidden, "/dev"])):
            if len(self._held) == MOST_HELD:
                self._more.append(path)
            elif (descriptor := _opened(path)) >= 0:
                self._held.append(descriptor)
                self._told.append(_rule(descriptor, _handled(_landlock_version())[0] & _READ))
        _system_calls()
        self._until = time.monotonic() + FRESH_SECONDS

    def close_old(self) -> None:
        """Close the trees once they are too old to be used: a deleted file uses its space as long as it is open."""
        if not self.is_fresh:
            self._close()

    def _close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)
        self._held, self._told, self._more = [], [], []

    def fit(self, order: SoldierOrder) -> None:
        """Renew it if it is old, or was made for a soldier that may read other things."""
        if not self.is_fresh or self._hidden != [*order.may_not_read]:
            self.renew(order.may_not_read)

    def allow_reading(self, rules: int) -> None:
        """Add to a ruleset all that may be read."""
        for told in self._told:
            _libc.syscall(_LANDLOCK_ADD_RULE, rules, _LANDLOCK_RULE_PATH_BENEATH, told, 0)
        for path in self._more:
            _allow(rules, path, _handled(_landlock_version())[0] & _READ)


def enter(order: SoldierOrder, prepared: Prepared) -> None:
    """Bind this thread, and all that it forks: it writes only where it may, and reads nothing that is hidden.

    Without a whole sandbox (see `missing`) as much of it is set up as this kernel can.
    """
    prepared.fit(order)
    os.nice(GIVES_WAY)
    if order.sandbox:
        if not _mount_read_only([*order.may_write, *order.may_remove]) and order.external:
            raise OSError(errno.EPERM, "no read-only view of the disk")
        os.chdir(order.workspace)
        _drop_privileges()
        _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if _landlock_version() >= 1:
            _landlock(order, prepared)
        _filter_calls()


def limit(pid: int, order: SoldierOrder, prepared: Prepared) -> None:
    """Let a process, 0 for this one, use no more than its limits."""
    for what, most in (
        (resource.RLIMIT_DATA, (order.limits["memory_mb"] * 5 // 4 + order.limits.get("reserved_mb", 0)) << 20),
        (resource.RLIMIT_CPU, order.limits["cpu_seconds"] + 1),
        # A few more than allowed: only what it can exceed is seen, and named, by `limits`.
        (resource.RLIMIT_NPROC, prepared.processes + order.limits["processes"] + 8),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.prlimit(pid, what, (bound, bound))


def die_with_parent() -> None:
    """End with our parent. After the sandbox, as a change of credentials takes it back."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def may_enter_by_thread() -> bool:
    """Return whether a thread may enter: it needs a working directory of its own, which some containers refuse, and
    who needs a namespace for users can have it for a whole process alone."""
    return os.geteuid() == 0 and _libc.unshare(0) == 0


def in_thread(order: SoldierOrder, prepared: Prepared, fork: Callable[[], int]) -> int:
    """Call `fork` in a thread that has entered the sandbox. Return what it returns, or raise what it raises.

    So the new process is in the sandbox from its beginning, and need not run Python. The thread has ended on return:
    whoever is in its sandbox may trace it, and it shares our memory.
    """
    done = _thread.allocate_lock()
    threads: list[int] = []
    found: list[int | BaseException] = []

    def run() -> None:
        threads.append(_thread.get_native_id())
        try:
            _must(_libc.unshare(_CLONE_FS), "unshare")  # its working directory is its own
            os.chdir(order.workspace)
            enter(order, prepared)
            found.append(fork())
        except BaseException as error:  # noqa: BLE001
            # It is raised again where somebody waits for it.
            found.append(error)
        done.release()

    done.acquire()
    _thread.stack_size(STACK_BYTES)
    _thread.start_new_thread(run, ())
    done.acquire()
    with suppress(ProcessLookupError):
        while os.getpriority(os.PRIO_PROCESS, threads[0]) is not None:
            time.sleep(LOOK_SECONDS)
    (outcome,) = found
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _own_processes() -> int:
    """Count the processes of this user. For root, whose processes the kernel does not limit, all that there are."""
    if (ours := os.getuid()) == 0:
        with open("/proc/loadavg") as load:
            return int(load.read().split()[3].partition("/")[2])
    count = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            count += name.isdigit() and os.stat(f"/proc/{name}").st_uid == ours
    return count


def _mount_read_only(but: Iterable[str]) -> bool:
    """Enter a mount namespace that is read-only but for these folders: this also stops chmod and utime.

    Return False where it cannot be had (no root, and no namespaces for users): Landlock alone guards the contents of
    files then.
    """
    uid, gid = os.geteuid(), os.getegid()
    if not _unshare():
        return False
    if uid:
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with suppress(OSError), open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    if not (_keep_mounts_private() or _mount_root()):
        return False
    for path in but:
        _libc.mount(os.fsencode(path), os.fsencode(path), None, ctypes.c_ulong(_MS_BIND), None)
    _set_mount("/", _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, 0)
    for path in but:
        _set_mount(path, 0, 0, _MOUNT_ATTR_RDONLY)
    return bool(os.statvfs("/").f_flag & os.ST_RDONLY)


def _keep_mounts_private() -> bool:
    """Keep what is mounted from now on to this namespace. Return False where `/` is no mount point, as in a chroot."""
    return not _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)


def _mount_root() -> bool:
    """Make `/`, the root of a chroot, a mount point. True if it is one now; otherwise nothing has changed."""
    try:
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with suppress(OSError):
            if _mount_from_outside(root):
                return True
        os.fchdir(root)
        os.chroot(".")
        return False
    finally:
        os.close(root)


def _mount_from_outside(root: int) -> bool:
    """Leave the chroot whose root is open, and enter it again by a mount of it.

    The mount that it is in has to be private first: otherwise the whole machine would get the new mount. That can be
    reached from outside alone; root leaves a chroot with a working directory that is above its root.
    """
    os.chdir("/")
    os.chroot("/proc")
    os.chdir("../" * _DEEPEST)
    os.chroot(".")
    if not _keep_mounts_private():
        return False
    os.fchdir(root)
    if _libc.mount(b".", b".", None, ctypes.c_ulong(_MS_BIND | _MS_REC), None):
        return False
    os.chroot(os.getcwd())  # by its path, which leads to the mount
    os.chdir("/")
    return os.path.samestat(os.fstat(root), os.stat("/"))


def _unshare() -> bool:
    """Return whether this process has a mount namespace of its own now.

    Where it can be had, with System V memory and message queues of its own, which end with its last process.
    """
    own = _CLONE_NEWNS | _CLONE_NEWUSER if os.geteuid() else _CLONE_NEWNS
    return not _libc.unshare(own | _CLONE_NEWIPC) or not _libc.unshare(own)


def _set_mount(path: str, flags: int, on: int, off: int) -> None:
    attributes = struct.pack("=QQ16x", on, off)  # nothing of propagation, nor of a namespace of users
    _libc.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(path),
        ctypes.c_uint(flags),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def _drop_privileges() -> None:
    """Drop every capability of root that would lead out of the sandbox; it keeps its user id and its files."""
    for capability in range(_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, capability) < 0:
            break  # the last that this kernel knows was dropped before, or we have none to drop
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _must(_libc.capset(header, bytes(24)), "capset")


@cache
def _landlock_version() -> int:
    return int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_LANDLOCK_ASK_VERSION)))


def _landlock(order: SoldierOrder, prepared: Prepared) -> None:
    rules = _ruleset(order, prepared)
    _must(_libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, ctypes.c_uint(0)), "landlock_restrict_self")
    os.close(rules)


def _ruleset(order: SoldierOrder, prepared: Prepared) -> int:
    """Return a ruleset that allows a soldier what its order does; whoever starts a program does not pass it on."""
    handled, attributes = _handled(_landlock_version())
    made = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    rules = _must(made, "landlock_create_ruleset")
    _allow(rules, "/", _READ_DIR)
    prepared.allow_reading(rules)
    for path in order.may_read:
        _allow(rules, path, _READ_FILE)
    for path in order.may_remove:
        _allow(rules, path, _READ_FILE | _REMOVE_FILE)
    for path in order.may_write:
        _allow(rules, path, handled)
    for path in (order.out, order.err):
        _allow(rules, path, handled & (_WRITE_FILE | _TRUNCATE))
    for device in DEVICES:
        _allow(rules, f"/dev/{device}", handled & (_READ_FILE | _WRITE_FILE | _IOCTL_DEV))
    return rules


@cache
def _handled(version: int) -> tuple[int, bytes]:
    """Return the rights that this version of Landlock can forbid, and how it is told that all of them are."""
    handled = _READ | _WRITE_FILE | _REMOVE_AND_MAKE
    for right, brought_by in ((_REFER, 2), (_TRUNCATE, 3), (_IOCTL_DEV, 5)):
        if version >= brought_by:
            handled |= right
    told = [handled]
    if version >= 4:
        told.append(0)  # the network stays as it is
    if version >= 6:
        told.append(_SCOPE_SIGNALS_AND_ABSTRACT_SOCKETS)
    return handled, struct.pack(f"={len(told)}Q", *told)


def _real_paths(paths: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the paths without links in them, and all folders that these lie in. Each folder is looked at once."""
    real_folder = cache(os.path.realpath)
    real, above = set(), set()
    for path in paths:
        folder, name = os.path.split(path)
        found = f"{real_folder(folder).rstrip('/')}/{name}"
        real.add(os.path.realpath(path) if name in ("", ".", "..") or os.path.islink(found) else found)
    for path in real:
        while (path := os.path.dirname(path)) not in above:
            above.add(path)
    return real, above


def _all_but(folder: str, hidden: Set[str], above: Set[str]) -> Iterator[str]:
    """Yield the largest trees under a folder without any hidden path: Landlock can only allow, not forbid.

    Hidden paths are real ones, and `above` are the folders that they lie in: by way of a link, nothing under it would
    look hidden.
    """
    try:
        inside = [f"{folder}/{name}" for name in os.listdir(folder or "/")]
    except OSError:
        return
    for path in inside:
        if path in hidden:
            continue
        if path in above:
            yield from _all_but(path, hidden, above)
        else:
            yield path


def _allow(rules: int, path: str, access: int) -> None:
    """Allow access to a path. One that does not exist, or that we cannot open, stays forbidden."""
    if (descriptor := _opened(path)) >= 0:
        told = _rule(descriptor, access)
        _libc.syscall(_LANDLOCK_ADD_RULE, rules, _LANDLOCK_RULE_PATH_BENEATH, told, 0)
        os.close(descriptor)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return -1


def _rule(descriptor: int, access: int) -> bytes:
    """Return how Landlock is told of a rule.

    It answers EINVAL or EBADFD for a thing that no rule can name, such as a link: that stays forbidden as well.
    """
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        access &= _ON_FILES
    return struct.pack("=Qi", access, descriptor)


def _filter_calls() -> None:
    """Refuse with EPERM what no file permission guards: see the head of this file."""
    if code := _system_calls():
        buffer = ctypes.create_string_buffer(code, len(code))
        filter_ = struct.pack("@HP", len(code) // _STEP.size, ctypes.addressof(buffer))
        _must(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter_), "seccomp")


@cache
def _system_calls() -> bytes:
    """Return the program of the filter; none for a machine whose calls are not known."""
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return b""
    load, jump_if_equal, jump_if_at_least, jump_if_any, answer, keep_bits = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        """Return one step; a jump passes over so many of the next ones."""
        return _STEP.pack(code, then, otherwise, value)

    def when(call: int, *steps: bytes) -> list[bytes]:
        return [step(load, _NUMBER), step(jump_if_equal, call, otherwise=len(steps)), *steps]

    def argument(index: int) -> bytes:
        return step(load, _ARGUMENTS + 8 * index)

    def unless(*values: int) -> list[bytes]:
        """Return steps that refuse all but these values."""
        left = range(len(values), 0, -1)
        return [*(step(jump_if_equal, value, then=to) for to, value in zip(left, values, strict=True)), refuse]

    def refused(*values: int) -> list[bytes]:
        return [part for value in values for part in (step(jump_if_equal, value, otherwise=1), refuse)]

    allow, refuse = step(answer, _ALLOW), step(answer, _ERRNO | errno.EPERM)
    of_namespace = sum(_NAMESPACES)
    program = [
        step(load, _ARCHITECTURE),
        step(jump_if_equal, calls.audit, then=1),
        refuse,
        step(load, _NUMBER),
        step(jump_if_at_least, 0x40000000, otherwise=1),
        refuse,
        *when(calls.socket, argument(0), *unless(*FAMILIES)),
        *when(calls.fcntl, argument(1), *refused(*REFUSED_OF_FCNTL)),
        *when(calls.ioctl, argument(1), *refused(*REFUSED_OF_IOCTL)),
        *when(calls.clone, argument(0), step(jump_if_any, of_namespace, otherwise=1), refuse),
        *when(calls.unshare, argument(0), step(jump_if_any, of_namespace | _CLONE_NEWTIME, otherwise=1), refuse),
        # Its flags are in memory, which no filter can look at; who gets this answer takes clone.
        *when(calls.clone3, step(answer, _ERRNO | errno.ENOSYS)),
    ]
    # A pair that is not of connected kinds could send to any Unix socket, descriptors included.
    connected = unless(socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    pair = [argument(0), *unless(socket.AF_UNIX), argument(1), step(keep_bits, _SOCKET_KIND), *connected]
    program += when(calls.socketpair, *pair)
    is_itself = step(jump_if_equal, _ITSELF, then=1)
    for call, whose in ((calls.setpriority, _PRIO_PROCESS), (calls.ioprio_set, _IOPRIO_WHO_PROCESS)):
        is_one = step(jump_if_equal, whose, then=1)
        program += when(call, argument(0), is_one, refuse, argument(1), is_itself, refuse)
    for call in (calls.prlimit64, *calls.of_scheduling):
        program += when(call, argument(0), is_itself, refuse)
    for call in calls.refused:
        program += when(call, refuse)
    return b"".join([*program, allow])


def _must(code: int, what: str) -> int:
    """Raise OSError for a failed call: the engine must not run in half a sandbox."""
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
    return code
