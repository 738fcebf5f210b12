"""What a soldier's engine may do in its sandbox: seen from inside, and the filter of its calls step by step."""

from __future__ import annotations

import ctypes
import errno
import json
import operator
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.cgroup import Cgroup
from kingdom.court.soldier import sandbox
from kingdom.court.soldier.sandbox import Prepared
from tests.base.records.test_soldiers import ORDER
from tests.machine import needs_sandbox

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
REFUSED, ALLOWED, NOT_THERE = 0x00050001, 0x7FFF0000, 0x00050000 | errno.ENOSYS

# Of linux/sched.h, CLONE_NEWNS to CLONE_NEWNET
NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)

# What the kernel calls it, its number on x86_64 and on aarch64, its arguments, and whether it is refused.
CALLS: list[tuple[str, int, int, tuple[int, ...], bool]] = [
    ("read", 0, 63, (), False),
    ("socket of Unix", 41, 198, (1, 1), True),
    ("socket of the internet", 41, 198, (2, 1), False),
    ("socket of the newer internet", 41, 198, (10, 2), False),
    ("socket that asks about the network", 41, 198, (16, 3), False),
    ("socket of packets", 41, 198, (17, 3), True),
    ("socket to the machine's own host", 41, 198, (40, 1), True),
    ("socket of the kernel's ciphers", 41, 198, (38, 5), True),
    ("socketpair of another family", 53, 199, (30, 1), True),
    ("socketpair of a stream", 53, 199, (1, 1), False),
    ("socketpair of a stream that is closed by exec", 53, 199, (1, 1 | 0x80000), False),
    ("socketpair of packets in order", 53, 199, (1, 5), False),
    ("socketpair of datagrams", 53, 199, (1, 2), True),
    ("socketpair of a kind unknown", 53, 199, (1, 3), True),
    ("fcntl for a lease", 72, 25, (3, 1024), True),
    ("fcntl for a lease of descriptor 1024", 72, 25, (1024, 1), False),
    ("fcntl for the owner of signals", 72, 25, (3, 8), True),
    ("fcntl for the number of a signal", 72, 25, (3, 10), True),
    ("fcntl for the owner of signals, extended", 72, 25, (3, 15), True),
    ("fcntl for its flags", 72, 25, (3, 4), False),
    ("ioctl for the owner of signals", 16, 29, (3, 0x8901), True),
    ("ioctl for the group of signals", 16, 29, (3, 0x8902), True),
    ("ioctl for the size of a window", 16, 29, (3, 0x5413), False),
    ("clone of a process", 56, 220, (0x11,), False),
    ("clone of a thread", 56, 220, (0x3D0F00,), False),
    *((f"clone into a namespace, {bit:#x}", 56, 220, (0x11 | bit,), True) for bit in NAMESPACES),
    *((f"unshare of a namespace, {bit:#x}", 272, 97, (bit,), True) for bit in (*NAMESPACES, 0x80)),
    ("unshare of the working directory", 272, 97, (0x200,), False),
    ("setns", 308, 268, (3, 0), True),
    ("setpriority of itself", 141, 140, (0, 0, 5), False),
    ("setpriority of another", 141, 140, (0, 77, 0), True),
    ("setpriority of a group", 141, 140, (1, 0, 0), True),
    ("ioprio_set of itself", 251, 30, (1, 0), False),
    ("ioprio_set of another", 251, 30, (1, 77), True),
    ("ioprio_set of a user", 251, 30, (3, 0), True),
    ("prlimit64 of itself", 302, 261, (0, 7), False),
    ("prlimit64 of another", 302, 261, (77, 7), True),
    ("sched_setparam of itself", 142, 118, (0,), False),
    ("sched_setparam of another", 142, 118, (77,), True),
    ("sched_setscheduler of another", 144, 119, (77,), True),
    ("sched_setattr of another", 314, 274, (77,), True),
    ("sched_setaffinity of another", 203, 122, (77,), True),
    ("io_uring_setup", 425, 425, (), True),
    ("add_key", 248, 217, (), True),
    ("request_key", 249, 218, (), True),
    ("keyctl", 250, 219, (), True),
    ("a number of another table", 0x40000000, 0x40000000, (), True),
    ("the last number of this table", 0x3FFFFFFF, 0x3FFFFFFF, (), False),
]


@pytest.fixture(params=MACHINES)
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, bytes]]:
    """A machine, and the filter for it."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=request.param))
    sandbox._system_calls.cache_clear()
    yield request.param, sandbox._system_calls()
    sandbox._system_calls.cache_clear()


COMPARES: dict[int, Callable[[int, int], object]] = {0x15: operator.eq, 0x35: operator.ge, 0x45: operator.and_}


def answer(program: bytes, machine: int, call: int, arguments: tuple[int, ...]) -> int:
    """What the kernel answers to a call, by linux/bpf_common.h and struct seccomp_data of linux/seccomp.h."""
    data = struct.pack("=IIQ6Q", call, machine, 0, *(*arguments, *(0,) * 6)[:6])
    steps, at, held = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            held &= value
        elif code in COMPARES:
            passed = then if COMPARES[code](held, value) else otherwise
            at += passed
            looks_on = {0x20, 0x06} | ({code} if passed == 1 else set())
            assert not passed or steps[at][0] in looks_on, "it compares on, looks at the call anew, or answers"
        else:
            assert code == 0x06
            return int(value)


def test_each_call_is_answered_as_the_table_says(program: tuple[str, bytes]) -> None:
    machine, steps = program
    wrong = []
    for name, *numbers, arguments, is_refused in CALLS:
        number = int(numbers[list(MACHINES).index(machine)])  # type: ignore[call-overload]
        said = answer(steps, MACHINES[machine], number, arguments)  # type: ignore[arg-type]
        if said != (REFUSED if is_refused else ALLOWED):
            wrong.append(name)
    assert wrong == []
    assert answer(steps, MACHINES[machine], 435, ()) == NOT_THERE, "clone3, for which the C library takes clone"
    foreign = next(number for other, number in MACHINES.items() if other != machine)
    assert answer(steps, foreign, 0, ()) == REFUSED, "calls of another machine"


def test_a_machine_whose_calls_are_not_known_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="vax"))
    sandbox._system_calls.cache_clear()
    assert sandbox._system_calls() == b""
    sandbox._system_calls.cache_clear()


@pytest.mark.parametrize(
    ("version", "handled", "more"),
    [
        (1, 0x1FFF, []),
        (2, 0x3FFF, []),
        (3, 0x7FFF, []),
        (4, 0x7FFF, [0]),
        (5, 0xFFFF, [0]),
        (6, 0xFFFF, [0, 3]),
        (7, 0xFFFF, [0, 3]),
    ],
)
def test_each_version_of_landlock_is_told_all_that_it_can_forbid(version: int, handled: int, more: list[int]) -> None:
    assert sandbox._handled(version) == (handled, struct.pack(f"={1 + len(more)}Q", handled, *more))


LOOKS = """
import ctypes, json, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
def tries(do):
    try:
        do()
        return "done"
    except OSError as error:
        return type(error).__name__ if error.errno != 30 else "ReadOnly"
inside, outside, hidden, log = sys.argv[1:]
death = ctypes.c_int()
libc.prctl(2, ctypes.byref(death))
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
limits = ("DATA", "CPU", "CORE", "NPROC")
rlimits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[0] for name in limits}
found = {
    "nice": os.nice(0), "oom": int(open("/proc/self/oom_score_adj").read()), "dies with": death.value, **rlimits,
    "user": os.geteuid(), "folder": os.getcwd(),
    "CapEff": int(status["CapEff"], 16), "CapBnd": int(status["CapBnd"], 16),
    "NoNewPrivs": int(status["NoNewPrivs"]), "Seccomp": int(status["Seccomp"]),
    "reads": tries(lambda: open(outside).read()), "reads what is hidden": tries(lambda: open(hidden).read()),
    "writes": tries(lambda: open(outside, "w")), "makes": tries(lambda: os.mkdir(outside + ".d")),
    "changes a mode": tries(lambda: os.chmod(outside, 0o777)), "changes a time": tries(lambda: os.utime(outside)),
    "truncates": tries(lambda: os.truncate(outside, 0)), "removes": tries(lambda: os.unlink(outside)),
    "signals": tries(lambda: os.kill(os.getppid(), 0)), "leases": tries(lambda: __import__("fcntl").fcntl(0, 1024, 0)),
    "writes inside": tries(lambda: open(inside + "/new", "w").write("x")),
    "makes inside": tries(lambda: os.mkdir(inside + "/folder")),
    "changes a mode inside": tries(lambda: os.chmod(inside + "/new", 0o640)),
    "opens its log again": tries(lambda: open("/dev/stderr", "a").write("x")),
    "removes its log": tries(lambda: os.unlink(log)),
    "writes to null": tries(lambda: open("/dev/null", "w").write("x")),
}
print(json.dumps(found))
"""


def becomes_engine(order: SoldierOrder) -> None:
    prepared = Prepared()
    sandbox.go_first()
    sandbox.enter(order, prepared)
    sandbox.limit(0, order, prepared)
    sandbox.die_with_parent()


def looked(home: Path, before: Callable[[], object] = bool, **fields: Any) -> dict[str, Any]:
    """What an engine finds that looks around; `before` is done before it enters."""
    for name in ("inside", "deep/hidden"):
        (home / name).mkdir(parents=True, exist_ok=True)
    for name in ("outside", "deep/hidden/key", "out", "err"):
        (home / name).write_text("x")
        (home / name).chmod(0o600)
    inside = str(home / "inside")
    paths = {"workspace": inside, "may_write": [inside], "out": str(home / "out"), "err": str(home / "err")}
    order = ORDER._replace(**{"may_not_read": [str(home / "deep/hidden")], "may_read": [], **paths, **fields})
    words = [inside, *(str(home / name) for name in ("outside", "deep/hidden/key", "out"))]
    with open(order.err, "ab") as err:
        done = subprocess.run(
            [sys.executable, "-P", "-c", LOOKS, *words],
            preexec_fn=lambda: (before(), becomes_engine(order)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            check=True,
        )
    return dict(json.loads(done.stdout))


@needs_sandbox
def test_inside_it_reads_what_is_not_hidden_and_changes_only_what_is_its_own(home: Path) -> None:
    nice, guards = os.nice(0), "ReadOnly" if sandbox.can_have_view() else "PermissionError"
    found = looked(home)
    processes = found.pop("NPROC")
    assert processes > 64 + 8, "and those of this user that run already"
    assert found == {
        "nice": min(19, nice + 10),
        "oom": 500,
        "dies with": 9,
        "DATA": 2560 << 20,
        "CPU": 61,
        "CORE": 0,
        "user": os.geteuid(),
        "folder": str(home / "inside"),
        "CapEff": 0,
        "CapBnd": 0,
        "NoNewPrivs": 1,
        "Seccomp": 2,
        "reads": "done",
        "reads what is hidden": "PermissionError",
        "writes": guards,
        "makes": guards,
        "changes a mode": "ReadOnly" if sandbox.can_have_view() else "done",
        "changes a time": "ReadOnly" if sandbox.can_have_view() else "done",
        "truncates": guards,
        "removes": guards,
        "signals": "PermissionError",
        "leases": "PermissionError",
        "writes inside": "done",
        "makes inside": "done",
        "changes a mode inside": "done",
        "opens its log again": "done",
        "removes its log": guards,
        "writes to null": "done",
    }


def may_not_bound_privileges() -> None:
    """Give up CAP_SETPCAP, as containers do for their root: it keeps the set that bounds its privileges."""
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16) & ~(1 << 8)
    low, high = held & 0xFFFFFFFF, held >> 32
    header, data = struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", low, low, 0, high, high, 0)
    assert ctypes.CDLL(None).capset(header, data) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="ONLY ROOT HAS PRIVILEGES")
@needs_sandbox
def test_root_that_may_not_bound_its_privileges_has_none_inside(home: Path) -> None:
    found = looked(home, may_not_bound_privileges)
    assert found["CapBnd"] != 0
    assert found["CapEff"] == 0


def few_files() -> None:
    """Hold no trees open beforehand, and be allowed few files more than there are."""
    sandbox.MOST_HELD = 0
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")) + 10, hard))


@needs_sandbox
def test_it_needs_one_file_at_a_time_however_many_trees_may_be_read(home: Path) -> None:
    assert looked(home, few_files, may_not_read=[str(home / "deep/hidden"), "/usr/share/none"])["reads"] == "done"


@needs_sandbox
def test_the_first_landlock_hides_what_is_hidden_as_well(home: Path) -> None:
    found = looked(home, lambda: setattr(sandbox, "_landlock_version", lambda: 1))
    assert (found["reads"], found["reads what is hidden"]) == ("done", "PermissionError")


def test_without_a_sandbox_only_its_limits_hold(home: Path) -> None:
    found = looked(home, sandbox=False)
    assert (found["reads what is hidden"], found["makes"], found["CPU"], found["dies with"]) == ("done", "done", 61, 9)


def test_a_view_of_the_disk_can_be_had_where_others_get_one() -> None:
    words = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user"]), "true"]
    got = subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0
    assert sandbox.can_have_view() == got


def test_a_call_that_fails_says_why() -> None:
    with pytest.raises(OSError, match="sandbox") as failed:
        sandbox._must(sandbox._libc.prctl(-1, 0, 0, 0, 0), "sandbox")
    assert failed.value.errno == errno.EINVAL


def test_whether_a_process_could_outlive_its_soldier_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Cgroup(Path("/"), "probe")
    probe.create(1)
    has_groups = probe.is_there()
    probe.kill_all()
    monkeypatch.setattr(sandbox, "can_have_view", lambda: False)
    assert (sandbox.missing_hold() is None) is has_groups
    assert not Cgroup(Path("/"), f"probe-{os.getpid()}").is_there()


def test_of_somebody_without_processes_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert sandbox._own_processes() == 0


def test_the_processes_of_this_user_are_counted() -> None:
    """About, as others start and end meanwhile; the threads of all users are no fewer than the processes of one.

    Root's are those of the whole machine, and in a container /proc shows only a part of them.
    """
    processes = list(psutil.process_iter(["uids", "num_threads", "name"]))
    ours = sum(process.info["uids"] is not None and process.info["uids"].real == os.getuid() for process in processes)
    threads = sum(process.info["num_threads"] or 1 for process in processes)
    counted = sandbox._own_processes()
    assert ours / 2 <= counted
    if os.getuid() or any(process.info["name"] == "kthreadd" for process in processes):
        assert counted <= 2 * threads


def test_so_many_trees_are_held_open_and_let_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_HELD", 3)
    (home / "hidden").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    prepared = Prepared()
    for _ in range(2):
        prepared.renew([str(home / "hidden")])
        assert len(os.listdir("/proc/self/fd")) == before + 3
        assert str(home / "hidden") not in prepared._more
        assert prepared._more
    for descriptor in prepared._held:
        os.close(descriptor)


@pytest.mark.parametrize("name", ["deep/key", "link", "way/key", "way/../deep/key"])
def test_a_hidden_path_is_a_real_one_with_all_folders_that_it_lies_in(home: Path, name: str) -> None:
    (home / "deep").mkdir()
    (home / "deep/key").touch()
    (home / "link").symlink_to("deep/key")
    (home / "way").symlink_to("deep")
    real, above = sandbox._real_paths([f"{home}/{name}"])
    deep = (home / "deep").resolve()
    assert real == {f"{deep}/key"}
    assert above == {str(deep), *map(str, deep.parents)}
