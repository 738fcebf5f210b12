"""Replay power cuts: what a disk may hold after a power cut at any moment of a run.

For any program, any root folder and any oracle:

    record = powerloss.record([sys.executable, "-m", "kingdom.king", "--once"], home, cwd=tree, env=env)
    report = powerloss.replay("king", record, judge)

`record` runs the program (and all its threads and children) to its end under strace, with every byte that
it writes below the root folder. What lies there before the run counts as safely on the platter.
`replay` cuts the power after every call that changed something, and for each cut rebuilds in a fresh
folder every outcome that is possible then:

    synced      only what was fsynced: a file's bytes by fsync of the file, a name by fsync of its folder
    names       all names, but of the files only the bytes that were fsynced: the classical empty file
    torn        all names, and of every unsynced write only the first half
    everything  all of it

and asks `judge(folder, cut)`, which starts the program again on that folder and returns what is wrong.
`cut.said` is what the program had written to its standard output until then: an acknowledgement that stands
there must still hold. Outcomes that look the same are judged once.

A rename is one step, as in every journal: when either folder is synced, both names are; and a new folder
that is synced is there, with the new folders above it. What is written by
way of mmap is not seen (of SQLite that is the -shm file, which it makes anew), nor is where plain writes
go after a read from the same descriptor; pwrite and appends are exact. Links to files are followed by
inode, hard links as well.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.faults import trees
from tests.faults.strace import Call, path_of_descriptor, paths_of, read_calls, strace, unescape

SYNCED, NAMES, TORN, EVERYTHING = OUTCOMES = ("synced", "names", "torn", "everything")

_WATCHED = (
    "openat open creat close dup dup2 dup3 fcntl lseek write pwrite64 writev pwritev pwritev2 rename renameat "
    "renameat2 link linkat symlink symlinkat unlink unlinkat mkdir mkdirat rmdir truncate ftruncate fallocate "
    "fsync fdatasync syncfs sync copy_file_range sendfile chdir clone clone3 fork vfork"
).split()
_LONGEST_WRITE = 1 << 26


@dataclass(frozen=True)
class Cut:
    """One moment of a power cut, and one possible state of the disk."""

    after: str
    outcome: str
    said: bytes

    def __str__(self) -> str:
        return f"cut after {self.after}, {self.outcome}"


Judge = Callable[[Path, Cut], list[str]]


@dataclass
class Record:
    root: Path
    before: Path
    calls: list[Call]
    cwd: str
    code: int
    errors: str


@dataclass
class Report:
    name: str
    cuts: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    left_out: int = 0
    seconds: float = 0.0

    @property
    def line(self) -> str:
        tried = self.outcomes.total()
        text = f"power loss {self.name}: {self.cuts} cuts, {tried} states of the disk, {len(self.bad)} bad"
        return text + (f", {self.left_out} left out" if self.left_out else "")

    @property
    def details(self) -> str:
        return "\n".join([self.line, *self.bad])


class Unknown(Exception):
    """A call that the model does not support."""


def record(argv: Sequence[str], root: Path, *, cwd: Path, env: Mapping[str, str], timeout: float = 60) -> Record:
    """Run the program on `root` and remember every change. `root` is left as the run left it."""
    folder = trees.new_folder()
    before, log = folder / "before", folder / "strace"
    subprocess.run(["cp", "-a", "--", root, before], check=True)
    watched = ",".join(f"?{name}" for name in _WATCHED)
    ended = subprocess.run(
        [
            *(strace(), "-q", "-f", "--seccomp-bpf", "-y", "-xx", "-s", str(_LONGEST_WRITE)),
            *("-o", str(log), "-e", f"trace={watched}", *argv),
        ],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    calls = list(read_calls(log))
    log.unlink()
    return Record(root, before, calls, str(cwd), ended.returncode, ended.stderr)


def replay(
    name: str,
    recorded: Record,
    judge: Judge,
    *,
    budget: int | None = None,
) -> Report:
    """Judge every distinct state of the disk; outside a campaign at most `budget`, evenly spread."""
    began = time.monotonic()
    report = Report(name)
    outcomes = (trees.NEAR,) if trees.NEAR in OUTCOMES else OUTCOMES
    states: list[tuple[Cut, dict[str, Leaf]]] = []
    seen: set[str] = set()
    for cut, picture in pictures(recorded, outcomes):
        if cut.outcome == outcomes[0]:
            report.cuts += 1
        mark = _mark(picture, cut.said)
        if mark not in seen:
            seen.add(mark)
            states.append((cut, picture))
    found = len(states)
    if budget is not None and not trees.CAMPAIGN and found > budget:
        states = [states[place * found // budget] for place in range(budget)]
    states = states[trees.PART - 1 :: trees.PARTS]
    report.left_out = found - len(states)

    def one(state: tuple[Cut, dict[str, Leaf]]) -> None:
        if trees.NEAR and report.bad:
            return
        cut, picture = state
        home = trees.new_folder() / "home"
        try:
            build(picture, home)
            wrong = judge(home, cut)
        finally:
            subprocess.run(["rm", "-rf", "--", home.parent], check=False)
        report.outcomes[cut.outcome] += 1
        if wrong:
            report.bad.append(f"{cut}: {'; '.join(wrong)}")
            print(report.bad[-1], flush=True)

    with ThreadPoolExecutor(trees.WORKERS) as pool:
        list(pool.map(one, states))
    report.seconds = time.monotonic() - began
    return report


class Leaf(NamedTuple):
    """What lies at a path: a folder (None), a link's target (str), or a file's bytes."""

    content: bytes | str | None
    mode: int


def build(picture: Mapping[str, Leaf], home: Path) -> None:
    home.mkdir(mode=0o700, parents=True)
    for name, leaf in sorted(picture.items()):
        path = home / name
        if leaf.content is None:
            path.mkdir(mode=leaf.mode, exist_ok=True)
        elif isinstance(leaf.content, str):
            path.symlink_to(leaf.content)
        else:
            path.write_bytes(leaf.content)
            path.chmod(leaf.mode)


def pictures(recorded: Record, outcomes: Sequence[str]) -> Iterator[tuple[Cut, dict[str, Leaf]]]:
    """Yield the disk after every change, once for each outcome."""
    disk = _Model(recorded)
    yield from disk.pictures("the start", outcomes)
    for call in recorded.calls:
        if disk.apply(call):
            where = " ".join(_below(path, recorded.root) for path in paths_of(call, recorded.cwd))
            yield from disk.pictures(f"{call.name} {where}", outcomes)


# The model of a file system.


class _Node:
    """An inode: what readers see now, and what is on the platter."""

    def __init__(self, mode: int) -> None:
        self.mode = mode


class _File(_Node):
    def __init__(self, mode: int, data: bytes = b"") -> None:
        super().__init__(mode)
        self.data = bytearray(data)
        self.safe = data
        self.unsynced: list[tuple[int, bytes]] = []
        self.cut_to: int | None = None

    def write(self, at: int, data: bytes) -> None:
        if at > len(self.data):
            self.data.extend(bytes(at - len(self.data)))
        self.data[at : at + len(data)] = data
        self.unsynced.append((at, data))

    def resize(self, size: int) -> None:
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.cut_to = size if self.cut_to is None else min(size, self.cut_to)
        self.unsynced = [(at, data) for at, data in self.unsynced if at < size]

    def sync(self) -> None:
        self.safe, self.unsynced, self.cut_to = bytes(self.data), [], None

    def content(self, outcome: str) -> bytes:
        if outcome == EVERYTHING:
            return bytes(self.data)
        if outcome == SYNCED:
            return self.safe
        # The length is a matter of the inode, which is written with the names: a file that was truncated
        # is truncated, and only its new bytes are missing.
        kept = bytearray(self.safe if self.cut_to is None else self.safe[: self.cut_to])
        if outcome == TORN:
            for at, data in self.unsynced:
                half = data[: len(data) // 2]
                kept.extend(bytes(max(0, at - len(kept))))
                kept[at : at + len(half)] = half
        return bytes(kept)


class _Link(_Node):
    def __init__(self, target: str) -> None:
        super().__init__(0o777)
        self.target = target


class _Folder(_Node):
    def __init__(self, mode: int) -> None:
        super().__init__(mode)
        self.names: dict[str, _Node] = {}
        self.safe: dict[str, _Node] = {}
        self.above: tuple[_Folder, str] | None = None


class _Opened:
    def __init__(self, node: _Node, append: bool) -> None:
        self.node = node
        self.append = append
        self.at = 0


class _Model:
    def __init__(self, recorded: Record) -> None:
        self._root = str(recorded.root)
        self._cwd = recorded.cwd
        self._top = _read_folder(recorded.before)
        self._opened: dict[tuple[int, int], _Opened] = {}
        self._group: dict[int, int] = {}
        self._renames: list[tuple[_Folder, str, _Folder, str]] = []
        self._said = bytearray()

    def pictures(self, after: str, outcomes: Sequence[str]) -> Iterator[tuple[Cut, dict[str, Leaf]]]:
        for outcome in outcomes:
            picture: dict[str, Leaf] = {}
            self._paint(self._top, "", outcome, picture)
            yield Cut(after, outcome, bytes(self._said)), picture

    def apply(self, call: Call) -> bool:
        """Whether the call changed the disk below the root, or what is safe there."""
        if call.name in ("clone", "clone3", "fork", "vfork"):
            self._follow_child(call)
            return False
        if call.value is None:
            return False
        act = getattr(self, f"_{_ACTS.get(call.name, 'ignore')}")
        return bool(act(call))

    # descriptors

    def _table(self, pid: int) -> int:
        return self._group.get(pid, pid)

    def _follow_child(self, call: Call) -> None:
        """A thread shares its creator's descriptors; a child process gets a copy."""
        if not call.value:
            return
        if any("CLONE_FILES" in part for part in call.args):
            self._group[call.value] = self._table(call.pid)
            return
        for (pid, number), opened in list(self._opened.items()):
            if pid == self._table(call.pid):
                self._opened[call.value, number] = opened

    def _open(self, call: Call) -> bool:
        path = paths_of(call, self._cwd)[-1]
        found = self._inside(path)
        if found is None or call.value is None:
            return False
        folder, name = found
        flags = next((part for part in call.args if part.startswith("O_")), "O_WRONLY|O_CREAT|O_TRUNC")
        node = folder.names.get(name) if name else folder
        changed = False
        if node is None:
            if "O_CREAT" not in flags:
                raise Unknown(f"{path} was opened, but the model has no such file")
            node = folder.names[name] = _File(_mode_of(call))
            changed = True
        elif "O_TRUNC" in flags and isinstance(node, _File):
            node.resize(0)
            changed = True
        key = (self._table(call.pid), call.value)
        self._opened[key] = _Opened(node, append="O_APPEND" in flags)
        return changed

    def _close(self, call: Call) -> bool:
        self._opened.pop((self._table(call.pid), _number(call.args[0])), None)
        return False

    def _dup(self, call: Call) -> bool:
        if call.name == "fcntl" and "F_DUPFD" not in call.args[1]:
            return False
        opened = self._opened.get((self._table(call.pid), _number(call.args[0])))
        if opened is not None and call.value is not None:
            self._opened[self._table(call.pid), call.value] = opened
        return False

    def _chdir(self, call: Call) -> bool:
        self._cwd = paths_of(call, self._cwd)[0]
        return False

    def _at(self, call: Call) -> _Opened | None:
        """What a descriptor stands for, when that lies below the root."""
        return self._opened.get((self._table(call.pid), _number(call.args[0])))

    # bytes

    def _lseek(self, call: Call) -> bool:
        if (opened := self._at(call)) and call.value is not None:
            opened.at = call.value
        return False

    def _write(self, call: Call) -> bool:
        data = b"".join(_data(call))[: call.value]
        opened = self._at(call)
        if opened is None:
            if _number(call.args[0]) == 1:
                self._said += data
                return True
            return False
        if not isinstance(opened.node, _File):
            return False
        if opened.append:
            opened.at = len(opened.node.data)
        opened.node.write(opened.at, data)
        opened.at += len(data)
        return True

    def _pwrite(self, call: Call) -> bool:
        opened = self._at(call)
        if opened is None or not isinstance(opened.node, _File):
            return False
        offset = call.args[-2] if call.name == "pwritev2" else call.args[-1]
        opened.node.write(int(offset), b"".join(_data(call))[: call.value])
        return True

    def _truncate(self, call: Call) -> bool:
        if call.name == "truncate":
            node = self._node(paths_of(call, self._cwd)[0])
        else:
            opened = self._at(call)
            node = opened.node if opened else None
        if not isinstance(node, _File):
            return False
        if call.name == "fallocate":
            if call.args[1] == "0":
                size = int(call.args[2]) + int(call.args[3])
                node.data.extend(bytes(max(0, size - len(node.data))))
            return True
        node.resize(int(call.args[1]))
        return True

    def _copy(self, call: Call) -> bool:
        if any(self._inside(path) for path in paths_of(call, self._cwd)):
            raise Unknown(f"{call.name} below {self._root}: the model does not follow it")
        return False

    # names

    def _mkdir(self, call: Call) -> bool:
        found = self._inside(paths_of(call, self._cwd)[0])
        if found is None:
            return False
        folder, name = found
        made = _Folder(int(call.args[-1], 8) & 0o777)
        made.above = found
        folder.names[name] = made
        return True

    def _unlink(self, call: Call) -> bool:
        found = self._inside(paths_of(call, self._cwd)[0])
        if found is None:
            return False
        folder, name = found
        folder.names.pop(name, None)
        return True

    def _rename(self, call: Call) -> bool:
        source, target = paths_of(call, self._cwd)
        out, into = self._inside(source), self._inside(target)
        if out is None and into is None:
            return False
        if out is None or into is None:
            raise Unknown(f"a rename across the border of {self._root}: {source} to {target}")
        node = out[0].names.pop(out[1])
        into[0].names[into[1]] = node
        if isinstance(node, _Folder):
            node.above = into
        self._renames.append((out[0], out[1], into[0], into[1]))
        return True

    def _link(self, call: Call) -> bool:
        source, target = paths_of(call, self._cwd)
        into, node = self._inside(target), self._node(source)
        if into is None or node is None:
            return False
        into[0].names[into[1]] = node
        return True

    def _symlink(self, call: Call) -> bool:
        target, path = paths_of(call, self._cwd)[0], paths_of(call, self._cwd)[-1]
        into = self._inside(path)
        if into is None:
            return False
        into[0].names[into[1]] = _Link(target)
        return True

    # durability

    def _sync(self, call: Call) -> bool:
        opened = self._at(call)
        if opened is None:
            return False
        self._sync_node(opened.node)
        return True

    def _sync_all(self, call: Call) -> bool:
        if call.name == "syncfs" and self._at(call) is None:
            path = path_of_descriptor(call.args[0])
            if path is None or os.stat(path).st_dev != os.stat(self._root).st_dev:
                return False
        stack: list[_Node] = [self._top]
        while stack:
            node = stack.pop()
            self._sync_node(node)
            if isinstance(node, _Folder):
                stack.extend(node.names.values())
        return True

    def _ignore(self, call: Call) -> bool:
        return False

    def _sync_node(self, node: _Node) -> None:
        if isinstance(node, _File):
            node.sync()
        elif isinstance(node, _Folder):
            node.safe = dict(node.names)
            self._keep_above(node)
            for rename in [step for step in self._renames if node in (step[0], step[2])]:
                self._finish(rename)

    def _keep_above(self, folder: _Folder) -> None:
        while folder.above is not None:
            parent, name = folder.above
            if parent.names.get(name) is not folder:
                return
            parent.safe[name] = folder
            folder = parent

    def _finish(self, rename: tuple[_Folder, str, _Folder, str]) -> None:
        out, old, into, new = rename
        self._renames.remove(rename)
        for folder, name in ((out, old), (into, new)):
            if name in folder.names:
                folder.safe[name] = folder.names[name]
            else:
                folder.safe.pop(name, None)

    # looking things up

    def _inside(self, path: str) -> tuple[_Folder, str] | None:
        """The folder and the name of a path below the root; the root itself is its own folder with no name."""
        whole = os.path.normpath(path)
        if whole == self._root:
            return self._top, ""
        if not whole.startswith(f"{self._root}/"):
            return None
        *above, name = whole[len(self._root) + 1 :].split("/")
        folder: _Node = self._top
        for part in above:
            below = folder.names.get(part) if isinstance(folder, _Folder) else None
            if not isinstance(below, _Folder):
                raise Unknown(f"{path}: the model has no folder {part}")
            folder = below
        assert isinstance(folder, _Folder)
        return folder, name

    def _node(self, path: str) -> _Node | None:
        found = self._inside(path)
        return None if found is None else found[0].names.get(found[1])

    def _paint(self, folder: _Folder, prefix: str, outcome: str, picture: dict[str, Leaf]) -> None:
        names = folder.safe if outcome == SYNCED else folder.names
        for name, node in names.items():
            path = f"{prefix}{name}"
            if isinstance(node, _Folder):
                picture[path] = Leaf(None, node.mode)
                self._paint(node, f"{path}/", outcome, picture)
            elif isinstance(node, _Link):
                picture[path] = Leaf(node.target, node.mode)
            elif isinstance(node, _File):
                picture[path] = Leaf(node.content(outcome), node.mode)


_ACTS = {
    **dict.fromkeys(("openat", "open", "creat"), "open"),
    "close": "close",
    **dict.fromkeys(("dup", "dup2", "dup3", "fcntl"), "dup"),
    "chdir": "chdir",
    "lseek": "lseek",
    **dict.fromkeys(("write", "writev"), "write"),
    **dict.fromkeys(("pwrite64", "pwritev", "pwritev2"), "pwrite"),
    **dict.fromkeys(("truncate", "ftruncate", "fallocate"), "truncate"),
    **dict.fromkeys(("copy_file_range", "sendfile"), "copy"),
    **dict.fromkeys(("mkdir", "mkdirat"), "mkdir"),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), "unlink"),
    **dict.fromkeys(("rename", "renameat", "renameat2"), "rename"),
    **dict.fromkeys(("link", "linkat"), "link"),
    **dict.fromkeys(("symlink", "symlinkat"), "symlink"),
    **dict.fromkeys(("fsync", "fdatasync"), "sync"),
    **dict.fromkeys(("syncfs", "sync"), "sync_all"),
}


def _read_folder(path: Path) -> _Folder:
    folder = _Folder(path.stat().st_mode & 0o7777)
    for entry in os.scandir(path):
        below = Path(entry.path)
        if entry.is_symlink():
            folder.names[entry.name] = _Link(os.readlink(below))
        elif entry.is_dir():
            folder.names[entry.name] = _read_folder(below)
        elif entry.is_file():
            folder.names[entry.name] = _File(below.stat().st_mode & 0o7777, below.read_bytes())
    folder.safe = dict(folder.names)
    return folder


def _number(part: str) -> int:
    found = re.match(r"\d+", part)
    return int(found[0]) if found else -1


def _data(call: Call) -> list[bytes]:
    if call.name in ("write", "pwrite64"):
        return [unescape(call.args[1])]
    return [unescape(text) for text in re.findall(r'iov_base=("(?:[^"\\]|\\.)*")', call.args[1])]


def _mode_of(call: Call) -> int:
    last = call.args[-1]
    return int(last, 8) & 0o777 & ~0o077 if re.fullmatch(r"0\d+", last) else 0o600


def _below(path: str, root: Path) -> str:
    return re.sub(r"\d+-\d+\.tmp", "#.tmp", path.replace(f"{root}/", ""))


def _mark(picture: Mapping[str, Leaf], said: bytes) -> str:
    """Two states with the same mark are the same to everyone; a pid in a temporary name tells nothing."""
    digest = hashlib.sha256(said)
    for name, leaf in sorted(picture.items()):
        digest.update(f"{name}\0{leaf.mode}\0{type(leaf.content).__name__}\0".encode())
        content = leaf.content.encode() if isinstance(leaf.content, str) else leaf.content or b""
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
