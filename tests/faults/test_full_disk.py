"""A disk that is really full, and later is not: the role lives on, says so in its beat, breaks no file, and
goes on by itself as soon as there is room."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kingdom.disk.codec import to_json
from kingdom.home.places import Places
from tests.faults import homes, oracle, trees
from tests.waiting import SOON

SIZE = "512k"
RESUMES_WITHIN = 5.0
MOUNT = 'mount -t tmpfs -o size="$1",mode=0700 tmpfs "$2" && cp -a "$3/." "$2" && shift 3 && exec "$@"'

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "king": ("events", homes.event("evt-github-1-x"), "dispatched"),
    "envoy": ("messages", homes.message("msg-1"), "sent"),
}
"""By role: what is put into which queue, and where it lies when it has been served."""


def check(role: str, tree: Path) -> list[str]:
    kind, thing, served = CASES[role]
    with on_small_disk(tree, role) as (process, home):
        places = Places(home)
        if not trees.until(lambda: oracle.beats(places, role) > 1, SOON):
            return ["it never beat"]
        draft = places.folder(kind, "pending") / ".draft"
        draft.write_bytes(to_json(thing))
        ballast = fill(home)
        draft.replace(places.queue_file(kind, "pending", thing["id"]))
        if wrong := lives_on(places, role, process):
            return wrong
        ballast.unlink()
        name = thing["id"]
        if not trees.until(lambda: oracle.states_of(home, kind).get(name) == [served], RESUMES_WITHIN):
            wrong.append(f"with room again, {name} lies in {oracle.states_of(home, kind).get(name)}")
        wrong += oracle.half_visible(home)
        wrong += oracle.exactly("tasks", int(role == "king"), len(oracle.contents(home, "tasks")))
        wrong += [] if trees.until(lambda: state(places, role) != "degraded") else ["it still says that it is degraded"]
    return wrong


@contextmanager
def on_small_disk(tree: Path, role: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The role in a mount namespace of its own, and its home as it is seen from here."""
    prepared, home = trees.new_folder(), trees.new_folder()
    quick = {"intervals": {"event_check_seconds": 0.5}} if role == "king" else {}
    homes.make(prepared, config={"king": quick} if quick else {})
    command = ["unshare", "-m", "sh", "-c", MOUNT, "sh", SIZE, str(home), str(prepared)]
    with subprocess.Popen(
        [*command, sys.executable, "-m", f"kingdom.{role}"],
        cwd=tree,
        env=trees.environment(tree, home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process, Path(f"/proc/{process.pid}/root{home}")
        finally:
            process.kill()


def fill(home: Path) -> Path:
    """To the last byte."""
    ballast = home / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017
    return ballast


def lives_on(places: Places, role: str, process: subprocess.Popen[bytes]) -> list[str]:
    """Three beats and more while there is no room, all of them honest."""

    def ended() -> bool:
        return process.poll() is not None

    trees.until(lambda: ended() or state(places, role) == "degraded")
    wrong = [] if state(places, role) == "degraded" else ["its beat does not say degraded"]
    beats = oracle.beats(places, role)
    trees.until(lambda: ended() or oracle.beats(places, role) >= beats + 3)
    if oracle.beats(places, role) < beats + 3:
        wrong.append("it beats no more")
    if process.poll() is not None:
        return [*wrong, f"it ended with {process.poll()}"]
    return [*wrong, *oracle.half_visible(places.home)]


def state(places: Places, role: str) -> str:
    try:
        return str(json.loads(places.heartbeat(role).read_text())["state"])
    except (OSError, ValueError):
        return "unreadable"


def may_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    f"full disk, {role}": lambda tree, role=role: check(role, tree) for role in CASES
}


@pytest.mark.parametrize("what", CHECKS)
def test_a_full_disk_passes(what: str, figure: oracle.Figure) -> None:
    if not may_mount():
        pytest.skip("only root can mount a small disk")
    wrong = CHECKS[what](trees.program())
    figure(f"{what}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
