"""More break-out attempts of a soldier: forbidden ones, and those allowed as long as nobody else is affected."""

from __future__ import annotations

import os

from tests.faults.sandbox.rigs import GENERAL

X86 = os.uname().machine == "x86_64"
DOTFILES = (
    *(
        ".netrc",
        ".git-credentials",
        ".npmrc",
        ".pypirc",
        ".pgpass",
        ".bash_history",
        ".aws/credentials",
        ".kube/config",
    ),
    *(".docker/config.json", ".config/gh/hosts.yml", ".gnupg/secring", ".cargo/credentials.toml"),
)

READ_OTHERWISE = {
    "by a path only": """fd = os.open(at(".env"), os.O_PATH); open(f"/proc/self/fd/{fd}").read()""",
    "by the root of its process": """open("/proc/self/root" + at(".env")).read()""",
    "by way of its folder": """os.chdir(HOME); open("/proc/self/cwd/.env").read()""",
    "by openat2": """must(LIBC.syscall(437, -100, at(".env").encode(), struct.pack("QQQ", 0, 0, 0), 24))""",
    "as a program": """os.execv(at(".env"), ["x"])""",
    "as a hard link": """os.link(at(".env"), "linked"); open("linked").read()""",
    "moved to its own": """os.rename(at(".env"), "moved"); open("moved").read()""",
    "changed for its own": """
must(LIBC.renameat2(-100, os.path.abspath("own").encode(), -100, at(".env").encode(), 2))
""",
    "by a handle of it": """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136); mount = ctypes.c_int()
must(LIBC.name_to_handle_at(-100, at(".env").encode(), handle, ctypes.byref(mount), 0))
os.read(must(LIBC.open_by_handle_at(os.open(".", os.O_RDONLY), handle, 0)), 1)
""",
    "by its general's folder": """open(f"/proc/{PARENT}/cwd/.env").read()""",
    "by a role's root": """open(f"/proc/{ROLE}/root" + at(".env")).read()""",
    "by its general's descriptors": """
[os.open(f"/proc/{PARENT}/fd/{n}", os.O_RDONLY) for n in os.listdir(f"/proc/{PARENT}/fd")]
""",
}

REFUSED: dict[str, str] = {
    **{f"the secrets {how}": code for how, code in READ_OTHERWISE.items()},
    **{f"what the owner keeps in {name}": f"open(at({name!r})).read()" for name in DOTFILES},
    # what is open for reading, used for more
    "an event opened again": """
fd = os.open(at("queue/events/pending/evt-other.json"), os.O_RDONLY); open(f"/proc/self/fd/{fd}", "r+").write("x")
""",
    "an event by its descriptor linked": """
fd = os.open(at("queue/events/pending/evt-other.json"), os.O_RDONLY)
os.link(f"/proc/self/fd/{fd}", "mine", follow_symlinks=True)
""",
    "an event's mode by its descriptor": """os.fchmod(os.open(at("queue/events/pending/evt-other.json"), 0), 0)""",
    "an event's times by its descriptor": (
        """os.utime(os.open(at("queue/events/pending/evt-other.json"), 0), (0, 0))"""
    ),
    "an event in shared memory": """
import mmap
mmap.mmap(os.open(at("queue/events/pending/evt-other.json"), 0), 1, mmap.MAP_SHARED, mmap.PROT_WRITE)[0] = 1
""",
    "an event that never changes": """
fcntl.ioctl(os.open(at("queue/events/pending/evt-other.json"), 0), 0x40086602, struct.pack("l", 0x10))
""",
    "a file without a name in the queue": """os.open(at("queue/events/pending"), os.O_TMPFILE | os.O_RDWR)""",
    "a folder of the queue for its own": """
os.mkdir("d"); must(LIBC.renameat2(-100, os.path.abspath("d").encode(), -100, at("queue/events").encode(), 2))
""",
    "its workspace moved away": """os.rename(os.path.dirname(os.getcwd()), HOME + "/workspace/x")""",
    "a link in the place of its folder": """os.rename(ROOM, ROOM + "-gone"); os.symlink(at("queue"), ROOM)""",
    "its folder by way of a link to the queue": """
os.symlink(at("queue/events/pending"), "way"); open("way/evt-way.json", "w")
""",
    "a race of a link and a folder": """
import threading
ends = time.monotonic() + 0.5
os.mkdir("race")
def swap():
    while time.monotonic() < ends:
        try:
            os.rmdir("race"); os.symlink(at("queue/events/pending"), "race"); os.unlink("race"); os.mkdir("race")
        except OSError: pass
thread = threading.Thread(target=swap); thread.start()
won = False
while time.monotonic() < ends:
    try:
        open("race/evt-race.json", "w").close()
        won = won or os.path.exists(at("queue/events/pending/evt-race.json"))
        os.unlink("race/evt-race.json")
    except OSError: pass
thread.join()
if not won: raise PermissionError("lost the race")
""",
    "the folder of the home made old": """os.utime(HOME, (0, 0))""",
    "the mode of its general's folder": f"""os.chmod(at("state/{GENERAL}"), 0)""",
    "a lock of the kernel's other kind on its lock": """
fcntl.fcntl(os.open(at("state/king/lock"), os.O_RDWR), 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
""",
    # other processes, by other calls
    "a role ended by its thread": """must(LIBC.syscall(234, ROLE, ROLE, 9))""",
    "a role ended by a descriptor": """must(LIBC.syscall(424, os.pidfd_open(ROLE), 9, 0, 0))""",
    "a role ended by a queued signal": """
must(LIBC.syscall(129, ROLE, 9, struct.pack("iii", 9, 0, -1) + bytes(116)))
""",
    "a role seized": """must(LIBC.ptrace(16, ROLE, 0, 0))""",
    "a role's memory written": """
buffer = ctypes.create_string_buffer(64); vector = struct.pack("PN", ctypes.addressof(buffer), 1)
must(LIBC.process_vm_writev(ROLE, vector, 1, struct.pack("PN", 0x400000, 1), 1, 0))
""",
    "a role's memory thrown out": """
must(LIBC.syscall(440, os.pidfd_open(ROLE), struct.pack("PN", 4096, 4096), 1, 21, 0))
""",
    "a role's memory moved": """must(LIBC.syscall(256, ROLE, 8, struct.pack("Q", 1), struct.pack("Q", 1)))""",
    "a role's map": """open(f"/proc/{ROLE}/maps").read(1)""",
    "a role's place": """os.readlink(f"/proc/{ROLE}/cwd")""",
    "a role's root": """os.listdir(f"/proc/{ROLE}/root")""",
    "a role first to go": """open(f"/proc/{ROLE}/oom_score_adj", "w").write("1000")""",
    "a role's call": """open(f"/proc/{ROLE}/syscall").read()""",
    "its general's environment": """open(f"/proc/{PARENT}/environ", "rb").read(1)""",
    "a role compared": """must(LIBC.syscall(312, ROLE, os.getpid(), 2, 0, 0))""",
    "a role's robust list": """
must(LIBC.syscall(274, ROLE, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())))
""",
    "a role's times": """os.sched_setparam(ROLE, os.sched_param(0))""",
    "a role at a deadline": """must(LIBC.syscall(314, ROLE, struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0), 0))""",
    "a role counted": """must(LIBC.syscall(298, struct.pack("IIQ", 1, 128, 0) + bytes(112), ROLE, -1, -1, 0))""",
    "a whole group made slow": """os.setpriority(os.PRIO_PGRP, 0, 19)""",
    "more processor time": """resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))""",
    "more processes": """resource.setrlimit(resource.RLIMIT_NPROC, (-1, -1))""",
    # signals without kill: to whom a descriptor belongs
    "a descriptor that signals a role": """fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, ROLE)""",
    "a descriptor that signals a group": """fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, -os.getpgid(ROLE))""",
    "a descriptor that signals a role, extended": """
must(LIBC.syscall(FCNTL, os.pipe()[0], 15, struct.pack("ii", 1, ROLE)))
""",
    "a descriptor that ends who gets its signal": """fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, signal.SIGKILL)""",
    "a socket that signals a role": """fcntl.ioctl(socket.socket(), 0x8901, struct.pack("i", ROLE))""",
    "a socket that signals a role, in the older way": """
fcntl.ioctl(socket.socket(), 0x8902, struct.pack("i", ROLE))
""",
    # namespaces, in which it would have privileges
    "a namespace of users": """must(LIBC.unshare(0x10000000))""",
    "a namespace of users by a new process": """
if (pid := must(LIBC.syscall(CLONE, 0x10000000 | signal.SIGCHLD, None, None, None, None))) == 0: os._exit(0)
os.waitpid(pid, 0)
""",
    "a namespace of users by the newest call": """
told = struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
if (pid := must(LIBC.syscall(435, told, 64))) == 0: os._exit(0)
os.waitpid(pid, 0)
""",
    "a network of its own": """must(LIBC.unshare(0x50000000))""",
    "a time of its own": """must(LIBC.unshare(0x10000080))""",
    "packets in a network of its own": """
must(LIBC.unshare(0x50000000)); socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
""",
    # sockets of other kinds than the network's
    "the machine that runs this one": """socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)""",
    "the kernel's ciphers": """socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)""",
    "a pair of another family": """socket.socketpair(socket.AF_TIPC, socket.SOCK_STREAM)""",
    # the machine
    "the files of the machine watched": """must(LIBC.syscall(300, 8, 0))""",
    "the programs in the kernel": """must(LIBC.syscall(321, 11, ctypes.create_string_buffer(12), 12))""",
    "a key added": """must(LIBC.syscall(248, b"user", b"k", b"v", 1, -4))""",
    "a key asked for": """must(LIBC.syscall(249, b"user", b"k", None, -4))""",
    "the view of its general by a descriptor": """must(LIBC.setns(os.pidfd_open(PARENT), 0x20000))""",
    "the disk taken off": """must(LIBC.unshare(0x10020000)); must(LIBC.umount2(b"/", 2))""",
    "another root for all": """must(LIBC.unshare(0x10020000)); must(LIBC.syscall(155, b".", b"."))""",
    "a copy of the disk": """must(LIBC.syscall(428, -100, HOME.encode(), 1))""",
    "a new disk by another call": """
must(LIBC.unshare(0x10020000)); disk = must(LIBC.syscall(430, b"tmpfs", 0)); must(LIBC.syscall(431, disk, 6, 0, 0, 0))
must(LIBC.syscall(429, must(LIBC.syscall(432, disk, 0, 0)), b"", -100, HOME.encode(), 4))
""",
    "the disk writable by another call": """
must(LIBC.syscall(442, -100, b"/", 0x8000, struct.pack("QQQQ", 0, 1, 0, 0), 32))
""",
    "its capabilities back": """must(LIBC.capset(struct.pack("Ii", 0x20080522, 0), b"\\xff" * 24))""",
    "root by a program": """
said = subprocess.run(["su", "-c", "id -u", "root"], stdin=subprocess.DEVNULL, capture_output=True)
caps = [line for line in open("/proc/self/status") if line.startswith("CapEff")][0]
if int(caps.split()[1], 16) == 0: raise PermissionError("without capabilities")
""",
    "the clock": """time.clock_settime(time.CLOCK_REALTIME, time.time())""",
    "the machine's name": """socket.sethostname(socket.gethostname())""",
    "the machine restarted": """must(LIBC.syscall(169, 0xFEE1DEAD, 672274793, 0, 0))""",
    "the machine's swap": """must(LIBC.syscall(167, b"own", 0))""",
    "the machine's books": """must(LIBC.acct(None))""",
    "the machine's ports": """must(LIBC.iopl(3))""",
    "another kernel": """must(LIBC.syscall(246, 0, 0, None, 0))""",
    "the kernel's log by its file": """open("/dev/kmsg", "w").write("rogue")""",
    "where cores go": """open("/proc/sys/kernel/core_pattern", "w").write("|" + at("x"))""",
    "a terminal": """fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x")""",
    "a new terminal": """os.openpty()""",
    "the console": """os.open("/dev/console", os.O_RDWR)""",
    "out of its group": """open("/sys/fs/cgroup/pids/cgroup.procs", "w").write("0")""",
}
if X86:
    REFUSED |= {
        "a role ended by the other table": """must(LIBC.syscall(0x40000000 + 62, ROLE, 9))""",
        "a role ended in the language of another machine": """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\\x53\\x89\\xfb\\x89\\xf1\\xb8\\x25\\x00\\x00\\x00\\xcd\\x80\\x5b\\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
if call(ROLE, 9) != 0: raise PermissionError("refused")
""",
    }

FLEES = """
def flees(command):
    # Twice forked, with a session of its own, no environment, and the home in its name that it can be found by.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            for fd in range(3): os.dup2(os.open("/dev/null", os.O_RDWR), fd)
            os.execve("/bin/sh", ["sh", "-c", command, HOME], {})
        os._exit(0)
    os.wait()

def alone():
    # Without its sandbox this would end far more than a test.
    try:
        os.kill(ROLE, 0)
    except PermissionError:
        return
    os._exit(0)

def signals(number):
    for command, value in ((fcntl.F_SETOWN, ROLE), (fcntl.F_SETSIG, signal.SIGKILL)):
        try:
            fcntl.fcntl(number, command, value)
        except OSError: pass
"""

NUISANCES: dict[str, str] = {
    "all signals to all": """alone(); os.kill(-1, signal.SIGKILL)""",
    "its group ended": """alone(); os.killpg(0, signal.SIGKILL)""",
    "an old way to be told of changes": """
for folder in ("queue/events/pending", "config", "state"):
    fd = os.open(at(folder), os.O_RDONLY)
    try:
        signals(fd); fcntl.fcntl(fd, fcntl.F_NOTIFY, 0x8000003F)
    except OSError: pass
time.sleep(1)
""",
    "a pipe that signals a role": """
left, right = socket.socketpair()
signals(left.fileno()); fcntl.fcntl(left, fcntl.F_SETFL, os.O_ASYNC); right.send(b"x"); time.sleep(0.5)
""",
    "watches without end": """
made = []
while len(made) < 1000 and (fd := LIBC.inotify_init()) >= 0: made.append(fd)
for fd in made[:1]:
    for folder, _, names in os.walk(HOME):
        LIBC.inotify_add_watch(fd, folder.encode(), 0xFFF)
time.sleep(0.5)
""",
    "locks on all that it may read": """
held = []
for folder, _, names in os.walk(HOME):
    for name in names:
        try:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
            held.append(fd); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: pass
time.sleep(2)
""",
    "locks of ranges on all that it may read": """
held = []
for folder, _, names in os.walk(HOME):
    for name in names:
        try:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
            held.append(fd); fcntl.fcntl(fd, 37, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0))
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError: pass
time.sleep(2)
""",
    "memory in files without a name": """
kept = [os.memfd_create(str(n)) for n in range(3)]
for fd in kept: os.write(fd, bytes(32 << 20))
""",
    "shared memory of the old kind": """
for _ in range(8): LIBC.shmget(0, 1 << 20, 0o1600)
LIBC.semget(0, 8, 0o1600); LIBC.msgget(0, 0o1600)
""",
    "a message queue": """LIBC.syscall(240, b"kingdom-was-here", 0o102, 0o600, None)""",
    "many files": """
for n in range(3000): os.close(os.open(f"f{n}", os.O_CREAT))
""",
    "many open files": """
made = []
try:
    while len(made) < 5000: made.append(os.dup(0))
except OSError: pass
time.sleep(1)
""",
    "full pipes": """
kept = []
try:
    for _ in range(200):
        kept += os.pipe(); fcntl.fcntl(kept[-1], 1031, 1 << 20); os.set_blocking(kept[-1], False)
        os.write(kept[-1], bytes(1 << 20))
except OSError: pass
time.sleep(1)
""",
    "a log of three terabytes": """os.truncate(1, 3 << 40)""",
    "logs that nobody may read": """
for fd in (0, 1, 2):
    os.fchmod(fd, 0); os.utime(fd, (2**33, 2**33))
""",
    "a core": """os.kill(os.getpid(), signal.SIGSEGV)""",
    "faults in its own hands": """LIBC.syscall(323, 1)""",
    "handles of all files": """
buffer = ctypes.create_string_buffer(136); mount = ctypes.c_int()
for folder, _, names in os.walk(HOME):
    for name in names:
        buffer[0:8] = struct.pack("Ii", 128, 0)
        LIBC.name_to_handle_at(-100, os.path.join(folder, name).encode(), buffer, ctypes.byref(mount), 0)
""",
    "a child that flees": """flees("while :; do sleep 1; done")""",
    "a child that flees and is deaf": """flees("trap '' TERM HUP INT; while :; do sleep 1; done")""",
    "children that flee again and again": """
for _ in range(10): flees("while :; do setsid sleep 1; done")
""",
    "a child that stops": """flees("kill -STOP $$")""",
    "a namesake of the king": """
if os.fork() == 0:
    os.execve(sys.executable, ["python", "-m", "kingdom.king", HOME], {})
time.sleep(1)
""",
    "a pipe for a result": """os.mkfifo(os.environ["KINGDOM_RESULT_PATH"]); os._exit(0)""",
    "a result without end": """open(os.environ["KINGDOM_RESULT_PATH"], "w").truncate(1 << 40); os._exit(0)""",
    "a result too deep": """open(os.environ["KINGDOM_RESULT_PATH"], "w").write("[" * 900000); os._exit(0)""",
    "its own folders shut": """
os.chmod(".", 0); os.chmod(ROOM, 0); os._exit(0)
""",
    "a flood of words": """
for _ in range(40): os.write(1, b"x" * (1 << 20))
""",
    "a port": """
door = socket.socket(); door.bind(("127.0.0.1", 0)); door.listen(); time.sleep(0.5)
""",
}
