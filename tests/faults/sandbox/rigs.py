"""A home with one general and hostile soldiers; starts one and returns what it did."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from tests.faults import homes, trees
from tests.fixtures import content

GENERAL = "gen-rogue"
OTHER = "gen-other"
SECRET = "sesame-3f9a77"
LATER = "task-20260207-900"
"""A task of somebody else's, with everything that belongs to one."""

PROTECTED = ("queue", "config", "generals", "memory", "workspace", "state", ".env")
THE_GENERALS_OWN = (f"state/{GENERAL}", "state/prompts", "state/sessions.json", "state/sessions.lock", "state/purse")

NOT_LENT = (
    *("queue/topics/chat/1.jsonl", "queue/mailbox/requests/other.json", "queue/mq/other.json", "queue/gone/other.json"),
    *("workspace/queue/leader/other.mime", "state/gone/other.db", "state/other.json", "backup.tar", "project/.env"),
    *("neighbour/state/home.json", "neighbour/state/hall/hall.db", "neighbour/workspace/secret", "neighbour/.env"),
)
"""Of this home, of another kingdom and of another project of its owner, whose own folder the home is here."""

BUSY = ("state/envoy/heartbeat",)
"""Written by those whom the soldier would like to disturb."""


@dataclass(frozen=True)
class Rig:
    home: Path
    tree: Path

    @property
    def places(self) -> Places:
        return Places(self.home)

    def arm(self, script: str, **manifest: Any) -> None:
        """Write the soldier's program, in Python, and its general's manifest."""
        package = self.places.package(GENERAL)
        package.mkdir(parents=True, exist_ok=True)
        (package / "prompt.md").write_text("Do {{TASK_ID}} of {{TASK_TYPE}} for {{REPO}}.\n\n{{payload.body}}\n")
        (package / "run").write_text(f"#!/usr/bin/env python3\n{script}")
        (package / "run").chmod(0o755)
        homes.install(self.home, GENERAL, **manifest)

    def send(self, number: int = 1, **fields: Any) -> str:
        name = f"task-20260207-{number:03}"
        homes.put(self.home, "tasks", "pending", homes.task(name, f"evt-{number}", target_general=GENERAL, **fields))
        return name

    def serve(self, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the general until none of its tasks is left."""
        return trees.run(self.tree, self.home, ["-m", "kingdom.general", GENERAL, "--once"], timeout=seconds)

    def result(self, task: str) -> dict[str, Any]:
        path = self.places.result(task)
        return read_json(path, 64 << 20) if path.exists() else {}

    def said(self, task: str) -> dict[str, Any]:
        """Return the soldier's own report, JSON in its summary."""
        result = self.result(task)
        assert result.get("status") == "success", f"{task}: {result} {self.log()}"
        said: dict[str, Any] = json.loads(result["summary"].partition("\n")[0])  # behind it: where its work is kept
        return said

    def log(self) -> str:
        path = self.places.role_log(GENERAL)
        return path.read_text() if path.exists() else ""


def build(home: Path, tree: Path | None = None, **config: dict[str, Any]) -> Rig:
    """Create everything that a soldier must not reach, each with a content."""
    retry = {"max_attempts": 1, "backoff_seconds": 0}
    homes.make(home, config={"king": {"retry": retry}, **config})
    places = Places(home)
    places.env_file.write_text(f"SLACK_BOT_TOKEN={SECRET}\n")
    places.env_file.chmod(0o600)
    for copy in (".env.bak", ".env~"):
        (home / copy).write_text(f"SLACK_BOT_TOKEN={SECRET}\n")
    homes.install(home, OTHER)
    homes.put(home, "events", "pending", homes.event("evt-other"))
    homes.put(home, "tasks", "pending", homes.task(LATER, "evt-other", target_general=OTHER))
    homes.put(home, "messages", "pending", homes.message("msg-other"))
    folders = (
        places.workspace(OTHER, LATER),
        places.control_folder(OTHER, LATER),
        places.control_folder(GENERAL, LATER),
        places.soldier_folder(LATER),
        places.own("king"),
        places.own("gateway"),
        places.memory / "shared",
        places.mirrors(GENERAL),
        places.mirrors(OTHER),
        places.general_memory(OTHER),
        places.run,
    )
    for folder in folders:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        (folder / "something").write_text("as it was")
    for told in (places.prompt(LATER), places.raw_result(LATER), places.session_log(f"soldier-{LATER}-0", "out")):
        told.write_text("{}")
    for lock in (places.lock("king"), places.control_folder(OTHER, LATER) / "lock", places.launch_lock):
        lock.touch()
    for lock in (places.mailbox / "manager.lock", places.queue / "mq" / "lock"):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    (places.own("gateway") / "jwt-secret").write_text(SECRET)
    for name in NOT_LENT:
        (home / name).parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        (home / name).write_text("not for soldiers")
    places.backups.parent.mkdir(parents=True, exist_ok=True)
    places.backups.write_text(f"{home / 'backup.tar'}\n")
    return Rig(home, tree or trees.program())


def seen(rig: Rig, *tasks: str) -> dict[str, tuple[Any, ...]]:
    """Return what a soldier may not change (contents, kinds, modes, times), without its general's files for it."""
    own = (*THE_GENERALS_OWN, *(f"state/soldiers/{task}" for task in tasks), f"workspace/{GENERAL}")
    own += tuple(f"state/results/{task}" for task in tasks)
    found = {}
    for path in _all(rig.home):
        name = str(path.relative_to(rig.home))
        if name in BUSY or (name.startswith(own) and not name.startswith(f"state/{GENERAL}/camp/{LATER}")):
            continue
        if any(name.endswith(f"{task}.json") for task in tasks):
            continue
        about = path.lstat()
        plain = stat.S_ISREG(about.st_mode)
        body = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
        times = about.st_mtime_ns if plain else None
        found[name] = (oct(about.st_mode), about.st_uid, about.st_gid, times, body)
    return found


def changed(before: dict[str, tuple[Any, ...]], after: dict[str, tuple[Any, ...]]) -> list[str]:
    return [
        f"{name}: {before.get(name)} became {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def secrets_told(rig: Rig) -> list[str]:
    """Return the files that hold the secret and should not."""
    own = (*rig.home.glob(".env*"), rig.places.own("gateway") / "jwt-secret")
    return [
        f"the secret stands in {path.relative_to(rig.home)}"
        for path in (*_all(rig.home), *(rig.home / "logs").rglob("*"))
        if path not in own and path.is_file() and not path.is_symlink() and SECRET.encode() in content(path)
    ]


def alive(pids: list[int]) -> list[str]:
    return [f"process {pid} is left" for pid in pids if runs(pid)]


def runs(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def _all(home: Path) -> Iterator[Path]:
    for name in PROTECTED:
        top = home / name
        yield top
        for folder, folders, files in os.walk(top):
            yield from (Path(folder, name) for name in (*folders, *files))
