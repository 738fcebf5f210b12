"""The codec as its users have it: the file copied alone into an empty tree, and called as a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kingdom.base.home.places import find_codec

CODEC = find_codec()


@dataclass(frozen=True)
class Said:
    code: int
    out: bytes
    err: str


class Program:
    """The codec, copied alone to `scripts/lib/` of a tree that holds nothing else."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.file = tree / "scripts" / "lib" / "ignite_mime.py"
        self.file.parent.mkdir(parents=True)
        shutil.copy(CODEC, self.file)

    def __call__(self, *words: str | bytes | Path, stdin: bytes = b"", **variables: str) -> Said:
        env = {**os.environ, **variables}
        # Without site-packages, in which Kingdom may lie: this file is alone.
        command = [sys.executable, "-S", "-I", str(self.file.relative_to(self.tree)), *words]
        if variables:
            command.remove("-I")  # it would ignore the variables of Python
        done = subprocess.run(command, cwd=self.tree, env=env, input=stdin, capture_output=True)
        return Said(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def ok(self, *words: str | bytes | Path, stdin: bytes = b"", **variables: str) -> bytes:
        said = self(*words, stdin=stdin, **variables)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    def put(self, content: bytes, name: str = "message.mime") -> Path:
        path = self.tree / name
        path.write_bytes(content)
        return path


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "tree")
