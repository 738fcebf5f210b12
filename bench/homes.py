"""Homes to measure in, with role processes of their own; removed again at the end."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places

GENERAL = "gen-bench"
LOOK_SECONDS = 0.0005
HOUSE = Path(__file__).resolve().parent.parent
SOLDIER = """\
#!/bin/sh
printf '{"status": "success", "summary": "done"}' >"$KINGDOM_RESULT_PATH"
"""


class TooSlow(Exception):
    """Raised when something did not happen within its deadline."""


def wait_for(predicate: Callable[[], object], seconds: float, what: str) -> None:
    give_up = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > give_up:
            raise TooSlow(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_SECONDS)


def folder() -> Path:
    """Make a folder on the file system that KINGDOM_BENCH_DIR names, else where temporary files lie.

    It is removed when the run ends and not before: for minutes after many removals ext4 is slow to create files, and
    whoever is measured next would pay for it.
    """
    root = Path(tempfile.mkdtemp(prefix="kingdom-bench-", dir=os.environ.get("KINGDOM_BENCH_DIR")))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


class Home:
    """One home with one general, and the roles that were started in it."""

    def __init__(self, root: Path, *, durability: str, config: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.places = Places(root)
        for there in self.places.folders():
            make_folder(there)
        files = {
            "system": {"durability": durability, "roles": {"gateway": False, "worker": False}},
            "king": {"concurrency": {"max_soldiers": 1_000_000}},
            **(config or {}),
        }
        for name, content in files.items():
            (self.places.config / f"{name}.yaml").write_text(yaml.safe_dump(dict(content)))
        self._install()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *roles: str) -> None:
        """Start roles under no launcher and wait until they beat: what is measured is the role."""
        for role in roles:
            module = ["kingdom.general", role] if role.startswith("gen-") else [f"kingdom.{role}"]
            self._running[role] = subprocess.Popen(
                [sys.executable, "-P", "-m", *module],
                cwd=self.places.home,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        for role in roles:
            wait_for(lambda role=role: self.beats(role), 30, f"{role} beats")

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            process.wait(30)
        self._running.clear()

    def pid(self, role: str) -> int:
        return self._running[role].pid

    def beats(self, role: str, not_pid: int = 0) -> bool:
        beat = self.beat(role)
        return beat.get("state") in ("idle", "working") and beat.get("pid") != not_pid

    def beat(self, role: str) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(self.places.heartbeat(role).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return record

    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
        return {**clean, "KINGDOM_HOME": str(self.places.home), "PYTHONPATH": str(HOUSE)}

    def _install(self) -> None:
        manifest = {
            "name": GENERAL,
            "description": "does nothing, quickly",
            "timeout_seconds": 60,
            "subscribes": ["github.*"],
        }
        self.places.manifest(GENERAL).write_text(yaml.safe_dump(manifest))
        package = self.places.package(GENERAL)
        make_folder(package)
        (package / "prompt.md").write_text("{{TASK_ID}} {{payload.subject_title}}\n")
        (package / "run").write_text(SOLDIER)
        (package / "run").chmod(0o700)


def event(name: str) -> bytes:
    """Return an event as a watcher of GitHub writes it, about 600 bytes."""
    value = {
        "id": name,
        "type": "github.pr.review_requested",
        "source": "github",
        "repo": None,
        "payload": {
            "reason": "review_requested",
            "subject_title": "Make the checkout faster, and explain how it was measured",
            "subject_url": "https://api.example.test/repos/acme/shop/pulls/4711",
            "subject_type": "PullRequest",
            "updated_at": "2026-11-18T09:30:00Z",
            "pr_number": "4711",
        },
        "priority": "normal",
        "created_at": "2026-11-18T09:30:00Z",
        "status": "pending",
    }
    return json.dumps(value, indent=1).encode()
