"""A whole kingdom of real processes in a home of its own, and the command line to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import is_locked
from kingdom.base.home.places import Places
from kingdom.base.runtime.processes import all_pids
from tests.waiting import SOON, wait_until

KINGDOM = Path(sys.executable).with_name("kingdom")
CALM = {
    # Measured once at the start: on a busy machine the gate would rightly hold what a test is waiting for.
    "chamberlain.yaml": "intervals: {vitals_seconds: 3600}\n",
    "king.yaml": "retry: {max_attempts: 2, backoff_seconds: 0}\nresources: {stale_seconds: 3600}\n",
    # Any free one: several are up at once.
    "hall.yaml": "port: 0\n",
}

Document = dict[str, Any]


class Kingdom:
    soon = SOON

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.places = Places(home)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "SLACK_"))}
        self._environment = {**kept, "KINGDOM_HOME": str(home), **variables}
        make_folder(self.places.config)
        for name, text in CALM.items():
            (self.places.config / name).write_text(text)

    def run(self, *words: str, seconds: float = 60.0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(KINGDOM), *words],
            env=self._environment,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def ok(self, *words: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}: {done.stdout}{done.stderr}{self.complaints()}"
        return done.stdout

    def refused(self, *words: str) -> tuple[int, str]:
        """Run a command that must fail, and return its exit code and its one error line."""
        done = self.run(*words)
        assert done.returncode != 0, f"{words}: {done.stdout}"
        assert done.stderr.count("\n") == 1, done.stderr
        return done.returncode, done.stderr

    def until(self, seen: Callable[[], Any], what: str, *folders: Path) -> Any:
        return wait_until(seen, self.soon, f"{what}; the kingdom says:\n{self.complaints()}", folders)

    def until_there(self, path: Path) -> Path:
        self.until(path.exists, str(path.relative_to(self.home)), path.parent)
        return path

    def complaints(self) -> str:
        log = self.places.system_log
        return "\n".join(log.read_text().splitlines()[-25:]) if log.exists() else "nothing was logged"

    def event(self, name: str, type_: str, **fields: Any) -> None:
        """Write an event as another program does: hidden first, then renamed."""
        event = {"id": name, "type": type_, "source": "test", "payload": {}, "created_at": "2026-11-18T09:00:00Z"}
        self.put("events", name, {**event, **fields})

    def put(self, kind: str, name: str, content: Mapping[str, Any] | str) -> None:
        folder = self.places.folder(kind, "pending")
        draft = folder / f".{name}.tmp"
        draft.write_text(content if isinstance(content, str) else json.dumps(content))
        draft.rename(folder / f"{name}.json")

    def read(self, kind: str, state: str, name: str) -> Document:
        """Return a file's content, waiting for it for a moment."""
        document: Document = json.loads(self.until_there(self.places.queue_file(kind, state, name)).read_text())
        return document

    def all(self, kind: str, state: str) -> list[Document]:
        """Return all files there; one that moves away meanwhile is left out."""
        found = []
        for path in sorted(self.places.folder(kind, state).glob("[!.]*.json")):
            with suppress(FileNotFoundError):
                found.append(json.loads(path.read_text()))
        return found

    def messages(self, task: str) -> list[str]:
        """Return the messages of a task's thread, in order."""
        return [message["content"] for message in self.all("messages", "sent") if message["task_id"] == task]

    def task_of(self, event: str) -> str:
        for state in ("dispatched", "completed"):  # the way it goes, so that it is met in one of them
            with suppress(FileNotFoundError):
                return str(json.loads(self.places.queue_file("events", state, event).read_text())["task_id"])
        raise AssertionError(f"{event} became no task")

    def beat(self, role: str) -> Document:
        beat: Document = json.loads(self.places.heartbeat(role).read_text())
        return beat

    def runs(self, role: str) -> bool:
        return is_locked(self.places.lock(role))

    def processes(self) -> list[str]:
        """Return the processes with this home in their environment, except the tests' own."""
        found = []
        for pid in all_pids():
            try:
                told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if f"KINGDOM_HOME={self.home}".encode() in told and words:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
        return found

    def general(self, name: str, run: str, **manifest: Any) -> Path:
        """Write a package whose soldier is a shell script."""
        package = self.home / "packages" / name
        package.mkdir(parents=True, exist_ok=True)
        about = {"name": name, "description": f"tests {name}", "timeout_seconds": 30, "engine": "command"}
        (package / "manifest.yaml").write_text(json.dumps({**about, "sandbox": "off", **manifest}))
        (package / "prompt.md").write_text(f"# {name} {{{{TASK_ID}}}}\n")
        (package / "run").write_text(f"#!/bin/sh\nset -eu\n{run}\n")
        (package / "run").chmod(0o755)
        return package


def answer(**result: Any) -> str:
    """The end of a soldier's script: its result, whole or not at all."""
    document = json.dumps({"task_id": "TASK", **result}, ensure_ascii=False)
    return (
        f'sed "s/TASK/$KINGDOM_TASK_ID/" >"$KINGDOM_RESULT_PATH.tmp" <<\'END\'\n{document}\nEND\n'
        'mv "$KINGDOM_RESULT_PATH.tmp" "$KINGDOM_RESULT_PATH"'
    )
