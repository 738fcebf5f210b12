"""Homes to measure in, with role processes of their own; removed again at the end."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places

GENERAL = "gen-bench"
HOUSE = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
SOLDIER = """\
#!/bin/sh
printf '{"status": "success", "summary": "done"}' >"$KINGDOM_RESULT_PATH"
"""
MANIFEST = f"name: {GENERAL}\ndescription: does nothing\ntimeout_seconds: 60\nsubscribes: ['github.*']\n"


def folder() -> Path:
    """Make a folder on the file system that KINGDOM_BENCH_DIR names, or among the temporary files.

    It is removed when the run ends and not before: for minutes after many removals ext4 is slow to create files, and
    the next measure would pay for it.
    """
    root = Path(tempfile.mkdtemp(prefix="kingdom-bench-", dir=os.environ.get("KINGDOM_BENCH_DIR")))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def wait_for(predicate: Callable[[], object], seconds: float, what: str) -> None:
    give_up = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.0005)


def environment(home: Path, **variables: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
    return {**clean, "KINGDOM_HOME": str(home), "PYTHONPATH": str(HOUSE), **variables}


def kingdom(places: Places, *words: str, **variables: str) -> None:
    command = [str(Path(sys.executable).parent / "kingdom"), *words]
    about = environment(places.home, **variables)
    done = subprocess.run(command, env=about, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kingdom {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")


@contextmanager
def installed(**variables: str) -> Iterator[Places]:
    """A home as `kingdom init` makes it."""
    places = Places(folder() / "castle")
    kingdom(places, "init", str(places.home), **variables)
    try:
        yield places
    finally:
        kingdom(places, "down", "--soldiers", **variables)


@contextmanager
def process(module: str, *words: str, home: Path, **popen: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process of the kingdom under no launcher, ended with TERM."""
    argv = [sys.executable, "-P", "-m", module, *words]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    started = subprocess.Popen(argv, cwd=home, env=environment(home), **{**quiet, **popen})
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)


@contextmanager
def court(root: Path, mode: str, *roles: str, most: int = 1_000_000) -> Iterator[tuple[Places, dict[str, int]]]:
    """A home with one general, and roles that beat in it, with their pids: what is measured is the role."""
    places = bare(root, system={"durability": mode, "roles": {"gateway": False, "worker": False}})
    configure(places, king={"concurrency": {"max_soldiers": most}})
    package = places.package(GENERAL)
    make_folder(package)
    places.manifest(GENERAL).write_text(MANIFEST)
    (package / "prompt.md").write_text("{{TASK_ID}} {{payload.subject_title}}\n")
    (package / "run").write_text(SOLDIER)
    (package / "run").chmod(0o700)
    modules = {role: ["kingdom.general", role] if role == GENERAL else [f"kingdom.{role}"] for role in roles}
    with ExitStack() as stack:
        pids = {role: stack.enter_context(process(*module, home=root)).pid for role, module in modules.items()}
        for role, pid in pids.items():
            wait_for(partial(beats, places, role, pid), 30, f"{role} beats")
        yield places, pids


def bare(root: Path, **config: Mapping[str, Any]) -> Places:
    """Make the folders of a home, and its configuration."""
    places = Places(root)
    make_folder(root)
    for there in places.folders():
        make_folder(there)
    configure(places, **config)
    return places


def configure(places: Places, **config: Mapping[str, Any]) -> None:
    for name, content in config.items():
        (places.config / f"{name}.yaml").write_text(json.dumps(content))


def beat(places: Places, role: str) -> dict[str, Any]:
    try:
        return dict(json.loads(places.heartbeat(role).read_bytes()))
    except (FileNotFoundError, ValueError):
        return {}


def beats(places: Places, role: str, pid: int) -> bool:
    about = beat(places, role)
    return about.get("state") in ("idle", "working") and about.get("pid") == pid


def roles(places: Places) -> list[str]:
    return sorted(path.parent.name for path in places.state.glob("*/heartbeat"))


def processor_seconds(home: Path) -> dict[int, float]:
    """Return the processor time, with that of ended children, of all processes that were started for this home."""
    mark, spent = f"KINGDOM_HOME={home}".encode(), {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                spent[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    return spent


def megabytes(pid: int, kind: str = "Private_") -> float:
    """Return the memory that a process keeps for itself; with "Pss:" its share of what is used together."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def event(name: str) -> bytes:
    """Return an event as a watcher of GitHub writes it, about 600 bytes."""
    payload = {
        "reason": "review_requested",
        "subject_title": "Make the checkout faster, and explain how it was measured",
        "subject_url": "https://api.example.test/repos/acme/shop/pulls/4711",
        "subject_type": "PullRequest",
        "updated_at": "2026-11-18T09:30:00Z",
        "pr_number": "4711",
    }
    about = {"id": name, "type": "github.pr.review_requested", "source": "github", "repo": None, "payload": payload}
    value = {**about, "priority": "normal", "created_at": "2026-11-18T09:30:00Z", "status": "pending"}
    return json.dumps(value, indent=1).encode()
