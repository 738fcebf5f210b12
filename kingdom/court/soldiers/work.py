"""Whether a workspace holds work that would be lost with it: files, changes or commits.

Nothing that a soldier wrote is run or obeyed. Its git configuration, hooks and index are not read: git compares by the
configuration of the mirror and with an index of ours, in a child process (`python -m`) whose time is bounded.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, CalledProcessError, Popen, run

from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile
from kingdom.base.runtime.processes import end_with_parent

SAFE_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.fsmonitor=false")
SAFE_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
CACHES = ("__pycache__", "node_modules")
CACHE_TAG, TAG_BEGINS = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"
"""Folders that tools make again, by name or by the file that marks them (bford.info/cachedir), are no work."""
FEW = 2000
"""Entries of a folder that are looked at within a turn."""
SECONDS = 60.0
"""How long a child may search a workspace; one that it could not finish is kept."""
LONGEST_REF = 4096
_BRANCH = re.compile(r"ref: refs/heads/[\w./-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SUBMODULE = b"160000 "


def at_a_glance(workspace: Path, *, is_clone: bool) -> bool | None:
    """Return whether a workspace holds work; None when git has to compare it, which takes a child."""
    if not is_clone:
        return has_files(workspace, FEW)
    return True if _has_objects(workspace / ".git") else None


def has_files(folder: Path, most: int | None = None) -> bool:
    """Return whether a folder holds any file that no tool can make again. True if it cannot be read."""
    folders, seen = [folder], 0
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if not entry.is_dir(follow_symlinks=False) or (most is not None and seen > most):
                        return True
                    if not _is_cache(Path(entry)):
                        folders.append(Path(entry))
    except OSError:
        return True
    return False


def _is_cache(folder: Path) -> bool:
    if folder.name in CACHES:
        return True
    with suppress(OSError, BadFile):
        return read_bytes(folder / CACHE_TAG).startswith(TAG_BEGINS)
    return False


def _has_objects(git: Path) -> bool:
    """Return whether anything was committed or staged in a clone: all other objects are the mirror's.

    A repository that is not as it was cloned counts as well, and so do submodules that were filled.
    """
    objects = git / "objects"
    try:
        if any(not stat.S_ISDIR(os.lstat(folder).st_mode) for folder in (git, objects)):
            return True
        with os.scandir(objects) as entries:
            if any(_has_entries(entry.path) for entry in entries if entry.name != "info"):
                return True
        return os.path.lexists(git / "modules")
    except OSError:
        return True


def _has_entries(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return any(True for _ in entries)


def head(git: Path) -> str | None:
    """Return the commit that a repository has checked out; None when its files name none."""
    with suppress(OSError, BadFile, UnicodeDecodeError):
        named = _line(git / "HEAD")
        if _BRANCH.fullmatch(named) and ".." not in named:
            return commit_in(git / named.removeprefix("ref: "))
        return named if _COMMIT.fullmatch(named) else None
    return None


def commit_in(ref: Path) -> str | None:
    """Return the commit that a file of `refs/` names, if any."""
    with suppress(OSError, BadFile, UnicodeDecodeError):
        named = _line(ref)
        return named if _COMMIT.fullmatch(named) else None
    return None


def _line(path: Path) -> str:
    return read_bytes(path, LONGEST_REF).decode().strip()


class Comparison:
    """Git on the files of a workspace: with the mirror as its repository and a separate index."""

    def __init__(self, mirror: Path, workspace: Path, index: Path, **variables: str) -> None:
        self._workspace, self._index = workspace, index
        self._environment = {
            **SAFE_ENVIRONMENT,
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "GIT_DIR": str(mirror),
            "GIT_WORK_TREE": str(workspace),
            "GIT_INDEX_FILE": str(index),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            **variables,
        }

    def differs_from(self, commit: str) -> bool:
        """Return whether there is anything in the workspace that is not in this commit of the mirror."""
        remove_index(self._index)
        try:
            self.read(commit)
            if any(self.names("ls-files", "-z", "--modified", "--deleted")):
                return True
            found = (self._workspace / os.fsdecode(name) for name in self._unknown())
            return any(map(is_work, found))
        finally:
            remove_index(self._index)

    def read(self, commit: str) -> None:
        """Make the index that of a commit."""
        self.output("read-tree", commit)

    def _unknown(self) -> Iterator[bytes]:
        """Yield what the commit does not have, ignored or not, and the folders of submodules, which are empty here."""
        yield from self.names("ls-files", "-z", "--others", "--directory")
        for row in self.names("ls-files", "-z", "--stage"):
            if row.startswith(_SUBMODULE):
                yield row.partition(b"\t")[2]

    def output(self, *words: str) -> bytes:
        """Return what git prints. CalledProcessError when it fails."""
        command = [*SAFE_GIT, *words]
        return run(
            command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=self._environment, cwd=self._workspace, check=True
        ).stdout

    def names(self, *words: str) -> Iterator[bytes]:
        """Yield the names that git prints with a zero byte after each. CalledProcessError when it fails."""
        command = [*SAFE_GIT, *words]
        with Popen(
            command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=self._environment, cwd=self._workspace
        ) as git:
            assert git.stdout is not None
            rest = b""
            try:
                while data := os.read(git.stdout.fileno(), 1 << 16):
                    *whole, rest = (rest + data).split(b"\0")
                    yield from whole
            except GeneratorExit:  # one name was enough
                git.kill()
                raise
        if git.returncode != 0:
            raise CalledProcessError(git.returncode, command)


def remove_index(index: Path) -> None:
    """Remove such an index, and the lock that a killed git has left."""
    for path in (index, index.with_name(f"{index.name}.lock")):
        path.unlink(missing_ok=True)


def is_work(path: Path) -> bool:
    """Return whether there is work in what nobody but a soldier has made."""
    is_folder = path.is_dir() and not path.is_symlink()
    return not is_folder or (not _is_cache(path) and has_files(path))


def main(mirror: str, workspace: str, index: str) -> int:
    """Return 0 when there is nothing to lose. With any other exit code the workspace is kept."""
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(int(SECONDS))
    end_with_parent(signal.SIGALRM)
    os.nice(10)
    folder = Path(workspace)
    commit = head(folder / ".git")
    if commit is None:  # of an empty repository
        return int(any(is_work(path) for path in folder.iterdir() if path.name != ".git"))
    return int(Comparison(Path(mirror), folder, Path(index)).differs_from(commit))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
