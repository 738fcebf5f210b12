"""A soldier that tries to get out of its sandbox: whatever it tries is refused, and nothing of the home has changed."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json
from kingdom.base.records import notes
from kingdom.base.runtime.cgroup import Cgroup
from kingdom.court.soldier import sandbox
from tests.faults import homes, oracle, trees
from tests.faults.sandbox import attempts, rigs
from tests.faults.sandbox.attempts import DOTFILES, FLEES, NUISANCES
from tests.faults.sandbox.rigs import GENERAL, LATER, OTHER, SECRET, Rig
from tests.machine import needs_sandbox
from tests.waiting import SOON, wait_until

ABSTRACT = f"\0kingdom-breakout-{os.getpid()}"

PRELUDE = """
import ctypes, fcntl, json, os, resource, shutil, signal, socket, struct, subprocess, sys, time
HOME = os.environ["KINGDOM_HOME"]
RESULT = os.environ["KINGDOM_RESULT_PATH"]
ROOM = os.path.dirname(RESULT)
TASK = os.environ["KINGDOM_TASK_ID"]
PARENT = os.getppid()
ROLE = int(json.load(open(os.environ["KINGDOM_TASK_FILE"]))["payload"].get("role") or 0)
LIBC = ctypes.CDLL(None, use_errno=True)
FCNTL, CLONE = (72, 56) if os.uname().machine == "x86_64" else (25, 220)

def must(code):
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return code

def at(*names):
    return os.path.join(HOME, *names)

def tell(**said):
    with open(RESULT, "w") as file:
        json.dump({"task_id": TASK, "status": "success", "summary": json.dumps(said)}, file)
"""

ATTEMPTS: dict[str, str] = {
    # what others wait for or go by
    "an event of its own": """open(at("queue/events/pending/evt-forged.json"), "w").write("{}")""",
    "an event taken away": """os.unlink(at("queue/events/pending/evt-other.json"))""",
    "an event changed": """open(at("queue/events/pending/evt-other.json"), "a").write(" ")""",
    "an event emptied": """os.truncate(at("queue/events/pending/evt-other.json"), 0)""",
    "an event moved": """os.rename(at("queue/events/pending/evt-other.json"), at("queue/events/completed/x.json"))""",
    "an event moved to itself": """os.rename(at("queue/events/pending/evt-other.json"), "mine.json")""",
    "its own file moved into the queue": """open("m", "w"); os.rename("m", at("queue/orders/pending/ord-1.json"))""",
    "a message": """open(at("queue/messages/pending/msg-forged.json"), "w").write("{}")""",
    "an order": """open(at("queue/orders/pending/ord-forged.json"), "w").write("{}")""",
    "a task for another": """open(at("queue/tasks/pending/task-forged.json"), "w").write("{}")""",
    "its own task changed": """open(at("queue/tasks/in_progress", TASK + ".json"), "a").write(" ")""",
    "a new folder in the queue": """os.mkdir(at("queue/events/pending/folder"))""",
    "a link in the queue": """os.symlink("/etc/passwd", at("queue/events/pending/evt-link.json"))""",
    "a pipe in the queue": """os.mkfifo(at("queue/events/pending/evt-pipe.json"))""",
    "another's event as a hard link": """os.link(at("queue/events/pending/evt-other.json"), "linked")""",
    "its file as a hard link in the queue": """open("h", "w"); os.link("h", at("queue/events/pending/evt-h.json"))""",
    "a result for another": f"""open(at("state/results/{LATER}.json"), "w").write("{{}}")""",
    "its own final result": """open(at("state/results", TASK + ".json"), "w").write("{}")""",
    "its own raw report": """open(at("state/results", TASK + "-raw.json"), "w").write("{}")""",
    "a checkpoint": """open(at("state/results", TASK + "-checkpoint.json"), "w").write("{}")""",
    "its order": """open(os.path.join(os.path.dirname(os.environ["KINGDOM_TASK_FILE"]), "order.json"), "w")""",
    "its own task file": """open(os.environ["KINGDOM_TASK_FILE"], "w")""",
    "a prompt": """open(at("state/prompts", TASK + ".md"), "w")""",
    "its manifest": f"""open(at("config/generals/{GENERAL}.yaml"), "a").write("sandbox: off")""",
    "the configuration": """open(at("config/system.yaml"), "w")""",
    "its own program": f"""open(at("generals/{GENERAL}/run"), "a").write("evil")""",
    "another's program": """os.makedirs(at("generals/gen-evil"))""",
    "the memory of all": """open(at("memory/shared/something"), "a").write("obey me")""",
    "another's workspace": f"""open(at("workspace/{OTHER}/{LATER}/something"), "w")""",
    "another's room": f"""open(at("state/soldiers/{LATER}/result.json"), "w")""",
    "a mirror": f"""open(at("state/{GENERAL}/mirrors/something"), "w")""",
    "another general's control folder": f"""open(at("state/{OTHER}/camp/{LATER}/started"), "w")""",
    "the control folder of another task": f"""open(at("state/{GENERAL}/camp/{LATER}/started"), "w")""",
    "a role's wish": """open(at("state/run/king"), "w")""",
    "the secrets written": """open(at(".env"), "a")""",
    "the program of the kingdom": (
        """import kingdom
open(os.path.join(os.path.dirname(kingdom.__file__), "court/king/job.py"), "a")"""
    ),
    "a file beside the home": """open(HOME + "-beside", "w")""",
    "the machine": """open("/etc/kingdom-was-here", "w")""",
    "another temporary file": """open("/tmp/kingdom-was-here", "w")""",
    # modes, times, owners: no content, and yet enough to stop a kingdom
    "the home open to all": """os.chmod(HOME, 0o777)""",
    "the queue shut": """os.chmod(at("queue"), 0)""",
    "a heartbeat made young": """os.utime(at("state/king/something"), (2**31, 2**31))""",
    "an owner changed": """os.chown(at("queue"), 12345, 12345)""",
    "an attribute": """os.setxattr(at("queue/events/pending/evt-other.json"), "user.x", b"1")""",
    # what is not for it to read
    "the secrets": """open(at(".env")).read()""",
    "a copy of the secrets": """open(at(".env.bak")).read()""",
    "what an editor left of the secrets": """open(at(".env~")).read()""",
    "the secrets by the way of a link": """os.symlink(at(".env"), "link"); open("link").read()""",
    "the hall's key": """open(at("state/gateway/jwt-secret")).read()""",
    "the order of another task": f"""open(at("state/{GENERAL}/camp/{LATER}/something")).read()""",
    "the key of the house's owner": """open(os.path.expanduser("~/.ssh/id_key")).read()""",
    # locks that would keep a role out
    "the king's lock": """fcntl.flock(os.open(at("state/king/lock"), os.O_RDONLY), fcntl.LOCK_EX)""",
    "the generals' lock": """fcntl.flock(os.open(at("state/sessions.lock"), os.O_RDONLY), fcntl.LOCK_EX)""",
    "the launcher's lock": """fcntl.flock(os.open(at("state/run/launch.lock"), os.O_RDONLY), fcntl.LOCK_EX)""",
    "the mailbox's lock": """fcntl.flock(os.open(at("queue/mailbox/manager.lock"), os.O_RDONLY), fcntl.LOCK_EX)""",
    "the store's lock": """fcntl.flock(os.open(at("queue/mq/lock"), os.O_RDONLY), fcntl.LOCK_EX)""",
    # leases, for which everybody waits who opens such a file
    "a lease": """fcntl.fcntl(os.open(at("config/king.yaml"), os.O_RDONLY), 1024, fcntl.F_RDLCK)""",
    "a lease on its task": (
        """fcntl.fcntl(os.open(os.environ["KINGDOM_TASK_FILE"], os.O_RDONLY), 1024, fcntl.F_RDLCK)"""
    ),
    "a lease on what is its own": """fcntl.fcntl(os.open("own", os.O_RDWR | os.O_CREAT), 1024, fcntl.F_WRLCK)""",
    "a lease by the other table": """must(LIBC.syscall(0x40000000 + 72, os.open("o", 66), 1024, 1))""",
    "a lease with more bits": """must(LIBC.syscall(72, os.open("o", 66), ctypes.c_ulong((1 << 32) + 1024), 1))""",
    "a role on one processor": """os.sched_setaffinity(ROLE, {0})""",
    "datagrams from a pair": """socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)""",
    "raw ones from a pair": """socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)""",
    "what another works on": f"""open(at("workspace/{OTHER}/{LATER}/something")).read()""",
    "what another keeps": f"""open(at("state/soldiers/{LATER}/something")).read()""",
    "what another is told": f"""open(at("state/prompts/{LATER}.md")).read()""",
    "what another reports": f"""open(at("state/results/{LATER}-raw.json")).read()""",
    "what another says": f"""open(at("logs/sessions/soldier-{LATER}-0.out")).read()""",
    "what another has learnt": f"""open(at("memory/generals/{OTHER}/something")).read()""",
    "what another has cloned": f"""open(at("state/{OTHER}/mirrors/something")).read()""",
    "the lock of another soldier": f"""os.open(at("state/{OTHER}/camp/{LATER}/lock"), os.O_RDONLY)""",
    # what nobody has lent: of this kingdom, of another, of the machine
    "the rooms of the chat": """open(at("queue/topics/chat/1.jsonl")).read()""",
    "what other programs send": """open(at("queue/mailbox/requests/other.json")).read()""",
    "what waits for other programs": """open(at("queue/mq/other.json")).read()""",
    "what waits for another agent": """open(at("workspace/queue/leader/other.mime")).read()""",
    "the folder of a product that is gone": """open(at("state/gone/other.db")).read()""",
    "the queue of a product that is gone": """open(at("queue/gone/other.json")).read()""",
    "a file in the state that nobody names": """open(at("state/other.json")).read()""",
    "a backup": """open(at("backup.tar")).read()""",
    "the secrets of another kingdom": """open(at("neighbour/.env")).read()""",
    "the chat of another kingdom": """open(at("neighbour/state/hall/hall.db")).read()""",
    "what another kingdom works on": """open(at("neighbour/workspace/secret")).read()""",
    "the secrets of another project": """open(at("project/.env")).read()""",
    "the passwords of the machine": """open("/etc/shadow").read()""",
    # other processes
    "a role ended": """os.kill(ROLE, signal.SIGKILL)""",
    "a role stopped": """os.kill(ROLE, signal.SIGSTOP)""",
    "its soldier ended": """os.kill(PARENT, signal.SIGKILL)""",
    "a role's environment": """open(f"/proc/{ROLE}/environ", "rb").read(1)""",
    "a role's memory": """open(f"/proc/{ROLE}/mem", "rb").read(1)""",
    "its soldier's memory": """open(f"/proc/{PARENT}/mem", "r+b").read(1)""",
    "its soldier's memory by a thread of it": """
for thread in map(int, os.listdir(f"/proc/{PARENT}/task")):
    if thread != PARENT:
        open(f"/proc/{PARENT}/task/{thread}/maps").read(1)
raise PermissionError("it has no other thread")
""",
    "a role traced": """must(LIBC.ptrace(0x4206, ROLE, 0, 0))""",
    "a role's memory by another call": (
        """buffer = ctypes.create_string_buffer(64); vector = struct.pack("PN", ctypes.addressof(buffer), 1)
must(LIBC.process_vm_readv(ROLE, vector, 1, struct.pack("PN", 0x400000, 1), 1, 0))"""
    ),
    "a role's limit": """resource.prlimit(ROLE, resource.RLIMIT_CPU, (0, 0))""",
    "a role's descriptors": """os.readlink(f"/proc/{ROLE}/fd/0")""",
    "a role's descriptor": """must(LIBC.syscall(438, LIBC.syscall(434, ROLE, 0), 0, 0))""",
    "a role made slow": """os.setpriority(os.PRIO_PROCESS, ROLE, 19)""",
    "a user's processes made slow": (
        """try:
    os.setpriority(os.PRIO_USER, 54321, 19)
except ProcessLookupError:
    pass  # allowed, had that user any"""
    ),
    "a role made idle": """os.sched_setscheduler(ROLE, os.SCHED_IDLE, os.sched_param(0))""",
    "a role made to wait for its disk": """must(LIBC.syscall(251, 1, ROLE, 3 << 13))""",
    "its own priority": """os.nice(-20)""",
    "its own survival": """open("/proc/self/oom_score_adj", "w").write("-1000")""",
    # other sockets
    "the terminals": """os.chdir(HOME); socket.socket(socket.AF_UNIX).connect("state/run/roles.sock")""",
    "the launcher": """os.chdir(HOME); socket.socket(socket.AF_UNIX).connect("state/run/supervisor.sock")""",
    "a socket without a file": f"""socket.socket(socket.AF_UNIX).connect({ABSTRACT!r})""",
    "a datagram": """socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)""",
    "a ring": """must(LIBC.syscall(425, 4, ctypes.create_string_buffer(256)))""",
    "the keyring": """must(LIBC.syscall(250, 0, -4, 0))""",
    "another disk": """os.mkdir("m1"); must(LIBC.mount(b"none", b"m1", b"tmpfs", 0, None))""",
    "a view of its own": (
        """must(LIBC.unshare(0x10020000)); must(LIBC.mount(HOME.encode(), HOME.encode(), None, 4096, None))"""
    ),
    "the disk writable again": """must(LIBC.mount(None, b"/", None, 32 | 4096, None))""",
    "the view of its general": """must(LIBC.setns(os.open(f"/proc/{PARENT}/ns/mnt", os.O_RDONLY), 0))""",
    "the home through its parent": """open(f"/proc/{PARENT}/root" + at("queue/events/pending/evt-p.json"), "w")""",
    "another root": """os.chroot(ROOM)""",
    "the disk itself": """os.open([e for e in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mem")][0], os.O_RDWR)""",
    "a disk of its own making": """os.mknod("disk", 0o60666, os.makedev(254, 0)); os.open("disk", os.O_RDWR)""",
    "a handle": """must(LIBC.open_by_handle_at(-100, ctypes.create_string_buffer(64), 0))""",
    "the kernel": """open("/proc/sys/kernel/hostname", "w").close()""",
    "the machine's end": """open("/proc/sysrq-trigger", "w").close()""",
    "a group of processes": """os.mkdir("/sys/fs/cgroup/pids/rogue")""",
    "a group of another kind": """os.mkdir("/sys/fs/cgroup/unified/rogue")""",
    "a module": """must(LIBC.syscall(175, b"", 0, b""))""",
    "another user": """os.setuid(12345 if os.getuid() == 0 else 0)""",
    "raw packets": """socket.socket(socket.AF_PACKET, socket.SOCK_RAW)""",
    "shared memory": """open("/dev/shm/kingdom-was-here", "w")""",
    **attempts.REFUSED,
}

FIRST_THINGS = """
print("said")
open("/dev/stderr", "w").write("also said")
open("work", "w").write("work"); os.chmod("work", 0o600); os.utime("work"); os.rename("work", "works")
subprocess.run(["sh", "-c", "sleep 0 & wait; echo hi > /dev/null; nice -n 5 true"], check=True)
left, right = socket.socketpair()
socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
os.sched_setaffinity(0, os.sched_getaffinity(0))
fcntl.fcntl(os.open("works", os.O_RDONLY), fcntl.F_GETFL)
"""


TRIAL = """
def trial(code):
    # Each in a child: what one achieves must not help or hinder the next.
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.chdir(ROOM)
            exec(code, dict(globals()))
            said = "DONE"
        except BaseException as refusal:
            said = repr(refusal)
        os.write(write, said.encode()[:1000])
        os._exit(0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.wait()
    return said
"""


def script() -> str:
    # Backwards, as the secret itself would be struck out of what a soldier says.
    held = "environment={name: value[::-1] for name, value in os.environ.items()}"
    report = f"tell(outcome={{name: trial(code) for name, code in {ATTEMPTS!r}.items()}}, {held})"
    nuisance = 'json.load(open(os.environ["KINGDOM_TASK_FILE"]))["payload"].get("nuisance")'
    nuisances = f"{FLEES}\nif {nuisance}:\n    exec({NUISANCES!r}[{nuisance}])\n    tell()\n    sys.exit()\n"
    return f"{PRELUDE}{nuisances}{FIRST_THINGS}{TRIAL}\n{report}\n"


@contextmanager
def listening(home: Path) -> Iterator[list[socket.socket]]:
    """The sockets on which a launcher and other programs listen."""
    sockets = []
    here = os.getcwd()
    try:
        os.chdir(home)
        for address in ("state/run/roles.sock", "state/run/supervisor.sock", ABSTRACT):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(address)
            listener.listen(8)
            listener.setblocking(False)
            sockets.append(listener)
    finally:
        os.chdir(here)
    try:
        yield sockets
    finally:
        for listener in sockets:
            listener.close()


LONG_SECONDS = 300
"""A soldier with more than a hundred attempts takes a minute and more on a busy machine."""


def break_out(rig: Rig, nuisances: Sequence[str] = ()) -> list[str]:
    rig.arm(script(), max_soldiers=3, timeout_seconds=LONG_SECONDS)
    kept = [rig.home / name for name in (".ssh/id_key", *DOTFILES)]
    for path in kept:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(SECRET)
    heartbeat = rig.places.heartbeat("envoy")
    with listening(rig.home) as sockets, trees.running(rig.tree, rig.home, ["-m", "kingdom.envoy"]) as role:
        wait_until(
            lambda: (
                heartbeat.exists() and not rig.places.folder("messages", "pending").joinpath("msg-other.json").exists()
            ),
            SOON,
            "the envoy has posted its message",
        )
        wait_until(lambda: json.loads(heartbeat.read_text())["state"] == "idle", SOON, "the envoy rests")
        tasks = send_all(rig, role.pid, nuisances)
        before, limits = rigs.seen(rig, *tasks), standing(role.pid)
        served = rig.serve(2 * LONG_SECONDS)
        if served.returncode:
            return [f"the general ended with {served.returncode}: {served.stderr}"]
        ended = role.poll()
        wrong = [f"the envoy ended: {ended}"] if ended is not None else []
        wrong += [] if ended is not None or standing(role.pid) == limits else ["the envoy stands elsewhere"]
        wrong += rigs.changed(
            *({k: v for k, v in state.items() if "envoy" not in k} for state in (before, rigs.seen(rig, *tasks)))
        )
        wrong += [f"somebody came in by {listener.getsockname()!r}" for listener in sockets if came_in(listener)]
    result = rig.result(tasks[0])
    if result.get("status") != "success":
        return [*wrong, f"no report: {result} {rig.log()}"]
    said = rig.said(tasks[0])
    wrong += [f"{name}: done" for name, outcome in said["outcome"].items() if outcome == "DONE"]
    refused = {name: outcome for name, outcome in said["outcome"].items() if outcome != "DONE"}
    wrong += [
        f"never tried: {name}: {refused.get(name)}" for name in ATTEMPTS if not was_tried(said["outcome"].get(name))
    ]
    wrong += [f"it holds {name}" for name, value in said["environment"].items() if SECRET in value[::-1]]
    wrong += [f"without a result: {task}" for task in tasks if not rig.result(task)]
    return wrong + rigs.secrets_told(rig) + outside()


def was_tried(outcome: str | None) -> bool:
    """Whether the kernel has said no, and not the interpreter."""
    return outcome is not None and not outcome.startswith(("NameError", "TypeError", "AttributeError", "SyntaxError"))


def send_all(rig: Rig, role: int, nuisances: Sequence[str]) -> list[str]:
    """One task with everything that has to be refused, and one for whatever a soldier may do."""
    tasks = [rig.send(payload={"role": role, "body": "whatever"})]
    for number, nuisance in enumerate(nuisances, 2):
        tasks.append(rig.send(number, payload={"role": role, "nuisance": nuisance}))
    return tasks


def standing(pid: int) -> tuple[object, ...]:
    status = Path(f"/proc/{pid}/limits").read_text()
    return status, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)


def came_in(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def outside() -> list[str]:
    places = ("/etc/kingdom-was-here", "/tmp/kingdom-was-here", "/dev/shm/kingdom-was-here")
    found = [path for path in places if os.path.lexists(path)]
    for path in found:
        os.unlink(path)
    return [f"written outside: {path}" for path in found]


@needs_sandbox
def test_nothing_that_a_soldier_tries_gets_it_out_of_its_sandbox(home: Path, figure: oracle.Figure) -> None:
    rig = rigs.build(home)
    wrong = break_out(rig, list(NUISANCES))
    left = survivors(home)
    tried = len(ATTEMPTS) + len(NUISANCES)
    figure(f"breakout{who()}: {tried} attempts, {len(wrong)} effects outside, {len(left)} survivors")
    assert not wrong + left, "\n".join(wrong + left)
    log = rig.places.session_log("soldier-task-20260207-001-0", "err").read_text()
    assert "also said" in log


TURN_SECONDS = 4
BESIDE = list(NUISANCES)[:: 1 if trees.CAMPAIGN else 3]
SERVED = "gen-calm"
ROLES: dict[str, dict[str, Any]] = {
    "envoy": {"intervals": {"message_check_seconds": TURN_SECONDS}},
    "king": {
        "intervals": dict.fromkeys(
            ("event_check_seconds", "result_check_seconds", "schedule_check_seconds"), TURN_SECONDS
        ),
        "retry": {"max_attempts": 1},
    },
    "general": {"intervals": {"task_check_seconds": TURN_SECONDS}},
}
CALM = """#!/bin/sh
printf '{"task_id": "%s", "status": "success"}' "$KINGDOM_TASK_ID" >"$KINGDOM_RESULT_PATH"
"""


@needs_sandbox
def test_while_it_tries_the_roles_turn_and_others_are_served(home: Path, figure: oracle.Figure) -> None:
    served, slowest, wrong = disturb(rigs.build(home, **ROLES))
    tried, late = len(ATTEMPTS) + len(BESIDE), late_roles(slowest)
    gaps = ", ".join(f"{name} {gap:.1f} s" for name, gap in slowest.items())
    figure(f"breakout{who()}: {tried} attempts beside {served} events served, {len(late)} roles late ({gaps})")
    assert not wrong + late, "\n".join(wrong + late)


def late_roles(slowest: Mapping[str, float]) -> list[str]:
    return [f"{name} is late: {gap:.1f} s" for name, gap in slowest.items() if gap > 2 * TURN_SECONDS]


def disturb(rig: Rig) -> tuple[int, dict[str, float], list[str]]:
    """Return how many events were served meanwhile, each role's longest time without a heartbeat, and what is wrong.

    A role turns every four seconds here, at the latest: it is late when it misses more than one turn.
    """
    rig.arm(script(), max_soldiers=3, subscribes=["rogue.*"], timeout_seconds=LONG_SECONDS)
    homes.install(rig.home, SERVED, subscribes=["calm.*"])
    package = rig.places.package(SERVED)
    package.mkdir()
    (package / "prompt.md").write_text("Do it.\n")
    (package / "run").write_text(CALM)
    (package / "run").chmod(0o755)
    modules = {
        "envoy": ["kingdom.envoy"],
        "king": ["kingdom.king"],
        SERVED: ["kingdom.general", SERVED],
        GENERAL: ["kingdom.general", GENERAL],
    }
    heard: dict[str, tuple[float, str]] = {}
    slowest = dict.fromkeys(modules, 0.0)
    events: list[str] = []
    with ExitStack() as stack:
        roles = {
            name: stack.enter_context(trees.running(rig.tree, rig.home, ["-m", *words]))
            for name, words in modules.items()
        }
        wait_until(lambda: all(rig.places.heartbeat(name).exists() for name in modules), 60, "all roles beat")
        tasks = send_all(rig, roles["king"].pid, BESIDE)
        began = time.monotonic()
        while unserved(rig, events) or not all(rig.places.result(task).exists() for task in tasks):
            now = time.monotonic()
            if now > began + 2 * LONG_SECONDS:
                late = unserved(rig, events)
                return len(events) - len(late), slowest, [f"not served: {late}; {rig.log()[-3000:]}"]
            if ended := [name for name, role in roles.items() if role.poll() is not None]:
                return 0, slowest, [f"{name} has ended" for name in ended]
            for name in modules:
                beat = rig.places.heartbeat(name).read_text()
                since, last = heard.get(name, (now, ""))
                slowest[name] = max(slowest[name], now - since)
                heard[name] = (since, last) if beat == last else (now, beat)
            if len(events) < now - began and not all(rig.places.result(task).exists() for task in tasks):
                events.append(f"evt-calm-{len(events):03}")
                homes.put(rig.home, "events", "pending", homes.event(events[-1], "calm.work", repo=None))
            trees.until(lambda: False, 0.02)
    wrong = [f"{task}: {rig.result(task)}" for task in calm_tasks(rig) if rig.result(task).get("status") != "success"]
    return len(events), slowest, wrong + survivors(rig.home)


def unserved(rig: Rig, events: Sequence[str]) -> list[str]:
    done = {path.stem for path in rig.places.folder("events", "completed").iterdir()}
    return [event for event in events if event not in done]


def calm_tasks(rig: Rig) -> list[str]:
    ended = rig.places.folder("tasks", "completed").iterdir()
    return [path.stem for path in ended if read_json(path)["target_general"] == SERVED]


def survivors(home: Path) -> list[str]:
    """Processes of this home's soldiers, by what they are called, where they are, and what they were given."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            marks = [path.joinpath("cmdline").read_bytes(), path.joinpath("environ").read_bytes()]
            marks.append(os.fsencode(path.joinpath("cwd").readlink()))
            if any(str(home).encode() in mark for mark in marks) and rigs.runs(int(path.name)):
                found.append(f"left: {path.name} {marks[0]!r}")
    return found


def who() -> str:
    probe = Cgroup(Path("/"), f"probe-{os.getpid()}")
    probe.create(1)
    cgroups = "with" if probe.is_there() else "without"
    probe.kill_all()
    return f" as {'root' if trees.is_root() else 'a user'} {cgroups} control groups"


@trees.in_campaigns
@needs_sandbox
def test_a_home_behind_a_link_is_as_safe(home: Path) -> None:
    real = home / "real"
    real.mkdir(mode=0o700)
    (home / "linked").symlink_to(real)
    wrong = break_out(rigs.build(home / "linked"))
    assert not wrong, "\n".join(wrong)


ORPHAN = """
def orphan(command):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            os.execvp("sh", ["sh", "-c", command])
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))
"""
UNREADABLE = "mode 000" if trees.is_root() else "Permission denied"
PLANTED: dict[str, tuple[str, str]] = {
    "a link to the secrets": ("""os.symlink(at(".env"), RESULT)""", "symbolic link"),
    "a link to itself": ("""os.symlink(RESULT, RESULT)""", "symbolic link"),
    "a link to another's event": ("""os.symlink(at("queue/events/pending/evt-other.json"), RESULT)""", "symbolic link"),
    "a pipe": ("""os.mkfifo(RESULT)""", "not a regular file"),
    "a folder": ("""os.mkdir(RESULT)""", "not a regular file"),
    "a huge file": ("""open(RESULT, "wb").truncate(1 << 40)""", "bytes, more than"),
    "a huge file of text": ("""open(RESULT, "wb").write(b"[" * (40 << 20))""", "bytes, more than"),
    "deep JSON": ("""open(RESULT, "w").write("[" * 100000)""", "nested too deeply"),
    "no JSON": ("""open(RESULT, "w").write("done!")""", "Expecting value"),
    "two answers": ("""open(RESULT, "w").write('{"status": "failed", "status": "success"}')""", "twice"),
    "another's name": (
        f"""open(RESULT, "w").write('{{"task_id": "{LATER}", "status": "failed", "error": "mine"}}')""",
        f"its task_id is {LATER}",
    ),
    "a status that does not exist": ("""open(RESULT, "w").write('{"status": "triumph"}')""", "no valid result"),
    "a file that nobody may read": ("""open(RESULT, "w").write("{}"); os.chmod(RESULT, 0)""", UNREADABLE),
    "nothing": ("pass", "no result"),
}


@contextmanager
def served(rig: Rig, codes: Iterable[str]) -> Iterator[list[str]]:
    """Yield the tasks of soldiers, one for each code, that have run beside each other; none has changed anything."""
    script = 'exec(json.load(open(os.environ["KINGDOM_TASK_FILE"]))["payload"]["code"])'
    rig.arm(f"{PRELUDE}{ORPHAN}\n{script}\n", timeout_seconds=300)
    tasks = [rig.send(number, payload={"code": code}) for number, code in enumerate(codes, 1)]
    before = rigs.seen(rig, *tasks)
    ended = rig.serve(360)
    assert (ended.returncode, ended.stderr) == (0, "")
    yield tasks
    hidden = ("workspace/*/.*", "state/soldiers/.*")
    wait_until(lambda: not any(list(rig.home.glob(pattern)) for pattern in hidden), SOON, "what they left is gone")
    assert not rigs.changed(before, rigs.seen(rig, *tasks))


@needs_sandbox
def test_what_lies_where_the_result_should_is_told_and_harms_nobody(home: Path) -> None:
    rig = rigs.build(home)
    with served(rig, (code for code, _ in PLANTED.values())) as tasks:
        for task, (what, (_, reason)) in zip(tasks, PLANTED.items(), strict=True):
            result = rig.result(task)
            assert (result["status"], result["task_id"]) == ("failed", task), what
            assert reason in result["error"], (what, result["error"])
            assert not rig.places.soldier_folder(task).exists(), what
    assert not rigs.secrets_told(rig)
    assert not rig.places.result(LATER).exists()


LITTER = {
    "a tree deeper than anybody can name": """
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
""",
    "a tree that its owner may not enter": """
os.makedirs("shut/in/there"); open("shut/in/file", "x").close(); os.chmod("shut/in", 0)
""",
    "links to what is not its own": """
os.symlink(HOME, "home"); os.symlink("/", "root"); os.symlink(at("queue"), "queue")
""",
    "many files": """
for number in range(4000): os.close(os.open(str(number), os.O_CREAT))
""",
    "drafts under the soldier's own names": """
for pid in range(PARENT - 2, PARENT + 3):
    for number in range(4):
        os.symlink(at("queue/events/pending/evt-other.json"), f"{ROOM}/{pid}-{number}.tmp")
os.mkdir(f"{ROOM}/x")
""",
}


@pytest.fixture
def deep(home: Path) -> Iterator[Path]:
    yield home
    remove(home)


def remove(tree: Path) -> None:
    """Python's own way is too shallow for some of these."""
    subprocess.run(["chmod", "-R", "u+rwx", "--", tree], check=True)
    subprocess.run(["rm", "-rf", "--", tree], check=True)


@pytest.mark.parametrize("where", ["workspace", "room"] if trees.CAMPAIGN else ["room"])
@needs_sandbox
def test_whatever_they_leave_behind_is_cleared_away_or_kept_as_work(where: str, deep: Path) -> None:
    rig = rigs.build(deep)
    start = "" if where == "workspace" else "os.chdir(ROOM)"
    with served(rig, (f"{start}\n{code}\ntell(done=True)\n" for code in LITTER.values())) as tasks:
        for task, (what, code) in zip(tasks, LITTER.items(), strict=True):
            result, workspace = rig.result(task), rig.places.workspace(GENERAL, task)
            assert result["status"] == "success", (what, result)
            is_work = where == "workspace" and "ROOM" not in code
            assert result["kept"] == ([str(workspace)] if is_work else []), what
            left = (rig.places.soldier_folder(task), *(() if is_work else (workspace,)))
            wait_until(lambda left=left: not any(map(os.path.lexists, left)), SOON, f"{what} is gone")
            if is_work:
                remove(workspace)


SURVIVORS = {
    "in a session of its own": """subprocess.Popen(["sleep", "300"], start_new_session=True).pid""",
    "an orphan of an orphan": """orphan("sleep 300")""",
    "without its environment": """subprocess.Popen(["env", "-i", "setsid", "sleep", "300"]).pid""",
    "an orphan without its environment": """orphan("exec env -i sleep 300")""",
    "deaf to all signals": """orphan("trap '' TERM HUP INT; while :; do sleep 1; done")""",
    "stopped": """orphan("kill -STOP $$")""",
}


@needs_sandbox
def test_nothing_of_a_soldier_outlives_its_task(home: Path) -> None:
    wrong = check_survivors(rigs.build(home), *SURVIVORS)
    assert not wrong, wrong


def check_survivors(rig: Rig, *names: str) -> list[str]:
    wrong = []
    with served(rig, (f"tell(pid={SURVIVORS[name]})" for name in names)) as tasks:
        for task, name in zip(tasks, names, strict=True):
            pid = rig.said(task)["pid"]
            if rigs.runs(pid):
                wrong.append(f"left: {name}")
                os.kill(pid, signal.SIGKILL)
    return wrong


Ending = Callable[[Rig, str], None]


def by_its_death(rig: Rig, task: str) -> None:
    os.kill(int(read_json(rig.places.control_folder(GENERAL, task) / "started")["pid"]), signal.SIGKILL)


def by_a_cancel(rig: Rig, task: str) -> None:
    notes.note_cancelled(rig.places, Disk(rig.places.scratch("king")), task, "kim")


def by_down(rig: Rig, task: str) -> None:
    said = trees.run(rig.tree, rig.home, ["-c", "from kingdom.cli.main import main; main(['down', '--soldiers'])"])
    assert said.returncode == 0, said


ENDINGS = {"killed": by_its_death, "cancelled": by_a_cancel, "down --soldiers": by_down}


@pytest.fixture(params=["with control groups", "without"])
def tree(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The program as it is, and as it is on a machine that lets nobody make control groups."""
    if request.param == "without":
        with trees.program_with(*NO_CGROUPS) as tree:
            yield tree
    else:
        yield trees.program()


NO_CGROUPS = ("kingdom/base/runtime/cgroup.py", '"/sys/fs/cgroup"', '"/nowhere"')


@pytest.mark.parametrize("ending", ENDINGS)
@needs_sandbox
def test_nothing_is_left_whoever_ends_the_soldier(ending: str, home: Path, tree: Path) -> None:
    """The serving part ends as well, and what it had under it has thrown away its environment."""
    wrong = check_orphan(rigs.build(home, tree), ENDINGS[ending])
    if wrong and (hides := sandbox.missing_hold()) is not None:
        pytest.skip(f"{hides}, and `doctor` says so")
    assert not wrong, wrong


@pytest.mark.parametrize("ending", ["cancelled", "down --soldiers"])
def test_nothing_is_left_of_a_soldier_without_a_sandbox(ending: str, home: Path) -> None:
    """Neither control groups nor mounts: what its serving part has under it is ended before that part."""
    with trees.program_with(*NO_CGROUPS) as tree:
        wrong = check_orphan(rigs.build(home, tree), ENDINGS[ending], sandbox="off")
    assert not wrong, wrong


def check_orphan(rig: Rig, end: Ending, **manifest: Any) -> list[str]:
    hide = "open('pid', 'w').write(str(pid)); os.rename('pid', 'there'); time.sleep(60)"
    rig.arm(f"{PRELUDE}{ORPHAN}\npid = orphan('exec env -i sleep 300')\n{hide}\n", **manifest)
    task = rig.send()
    told = rig.places.workspace(GENERAL, task) / "there"
    with trees.running(rig.tree, rig.home, ["-m", "kingdom.general", GENERAL]):
        wait_until(told.exists, SOON, "the soldier has sent its orphan out")
        orphan = int(told.read_text())
        end(rig, task)
        if end is not by_down:
            wait_until(rig.places.result(task).exists, SOON, "its general has seen it")
    wrong = rigs.alive([orphan])
    if wrong:
        os.kill(orphan, signal.SIGKILL)
    folder = Cgroup(rig.home, task).folder
    return wrong + ([f"{folder} is left"] if folder and os.path.isdir(folder) else [])


READS = """
path = json.load(open(os.environ["KINGDOM_TASK_FILE"]))["payload"]["checkpoint_path"]
try:
    tell(read=json.load(open(path)))
except OSError as error:
    tell(read=str(error))
"""


@pytest.mark.parametrize(("asked", "reads"), [(GENERAL, True), (OTHER, False)])
@needs_sandbox
def test_who_goes_on_reads_the_checkpoint_of_its_own_generals_question(asked: str, reads: bool, home: Path) -> None:
    rig = rigs.build(home)
    rig.arm(PRELUDE + READS)
    path = rig.places.checkpoint("task-20260207-777")
    homes.write(path, {"task_id": "task-20260207-777", "target_general": asked, "question": "May I?"})
    task = rig.send(
        type="resume", payload={"original_task_id": "task-20260207-777", "checkpoint_path": str(path), "body": ""}
    )
    assert rig.serve().returncode == 0
    assert (rig.said(task)["read"] != f"[Errno 13] Permission denied: '{path}'") is reads


@needs_sandbox
def test_the_modes_and_times_of_what_it_was_given_are_as_they_were(home: Path) -> None:
    """Also with much output: the serving part ends as always, and nothing of it stays."""
    rig = rigs.build(home)
    spoil = "os.truncate(1, 3 << 40); os.fchmod({0}, 0); os.utime({0}, (2**33, 2**33)); tell()"
    with served(rig, (spoil.format(number) for number in range(3))) as tasks:
        for number, task in enumerate(tasks):
            name = f"soldier-{task}-0"
            out, err = rig.places.session_log(name, "out"), rig.places.session_log(name, "err")
            about = (rig.places.prompt(task), out, err)[number].stat()
            assert stat.S_IMODE(about.st_mode) == 0o600
            assert about.st_mtime <= time.time() + 1
            assert out.stat().st_size <= 64 << 20
            assert rig.result(task)["status"] in ("success", "failed")
            assert "Traceback" not in str(rig.result(task))


@needs_sandbox
def test_shared_memory_ends_with_its_soldier(home: Path) -> None:
    rig = rigs.build(home)
    rig.arm(f"{PRELUDE}\ntell(made=must(LIBC.shmget(0, 1 << 20, 0o1600)))\n")
    task = rig.send()
    assert rig.serve().returncode == 0
    made = str(rig.said(task)["made"])
    assert made not in (row.split()[1] for row in Path("/proc/sysvipc/shm").read_text().splitlines())


PLANTED_IN_GIT = """
import stat
hook = f"#!/bin/sh\\necho caught > {HOME}/caught-$(basename $0)\\n"
for name in ("post-checkout", "pre-commit", "post-merge", "reference-transaction", "fsmonitor"):
    path = f".git/hooks/{name}"
    os.makedirs(".git/hooks", exist_ok=True)
    open(path, "w").write(hook); os.chmod(path, 0o755)
open(".git/config", "a").write(f'''
[core]
    fsmonitor = .git/hooks/fsmonitor
    hooksPath = .git/hooks
    sshCommand = .git/hooks/pre-commit
[filter "x"]
    smudge = .git/hooks/pre-commit
[alias]
    remote = !.git/hooks/pre-commit
''')
open(".gitattributes", "w").write("* filter=x")
refused = []
mirror = open(".git/objects/info/alternates").read().strip()
for path in (mirror + "/evil", os.path.dirname(mirror) + "/hooks/post-update", os.path.dirname(mirror) + "/config"):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "a").write("[core]\\n")
        refused.append("DONE " + path)
    except OSError:
        pass
"""


@needs_sandbox
def test_hooks_and_settings_planted_in_a_clone_never_run(home: Path) -> None:
    source = home / "source"
    git(home, "init", "-q", "-b", "main", "source")
    (source / "README").write_text("hello")
    git(source, "add", ".")
    git(source, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    (home / "h").mkdir()
    rig = rigs.build(home / "h", general={"repositories": {"known": {"acme/shop": str(source)}}})
    rig.arm(f"{PRELUDE}{PLANTED_IN_GIT}\ntell(refused=refused, there=os.path.exists('README'))\n")
    for number in (1, 2):
        task = rig.send(number, repo="acme/shop")
        assert rig.serve().returncode == 0
        assert rig.said(task) == {"refused": [], "there": True}
    assert not list(rig.home.glob("caught*"))


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
