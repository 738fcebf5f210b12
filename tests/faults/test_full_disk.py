"""A disk that is really full, and later is not: the role lives on, says so in its beat, breaks no file, and
goes on by itself as soon as there is room."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from kingdom.base.disk.codec import to_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.home.places import Places, find_codec
from kingdom.council import mime
from kingdom.council.agents import COUNCIL
from kingdom.council.monitor.orders import conversation
from tests.faults import homes, oracle, trees
from tests.machine import WHOLE_SANDBOX
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


AGENT = f"""\
cd "$KINGDOM_WORKSPACE"; echo kept >>memory
until [ -e go ]; do sleep 0.05; done
python3 {find_codec()} send --from leader --to user --type progress_update --reply-to "$1" \\
    --body "{{repository: a, summary: seen}}"
rm "$1"; touch sent; sleep 1000
"""
"""It has answered and deleted its message, and is still at work."""


def check_council(tree: Path) -> list[str]:
    """What an agent keeps and has sent outlives its turn; what waits is told when there is room, and no try counts."""
    row = {"command": ["sh", "-c", AGENT, "agent"], "sandbox": WHOLE_SANDBOX}
    settings = {"agents": {"leader": row}, "retry": {"base_delay": 0}, "defaults": {"task_timeout": 60}}
    with on_small_disk(tree, "council", "16m", {"council": settings}) as (process, home):
        places = Places(home)

        def workspace() -> Path:
            return next(iter(places.workspaces.glob("council/leader*")), home / "none")

        if not trees.until(lambda: oracle.beats(places, "council") > 1, SOON):
            return ["it never beat"]
        _, second = (put_goal(places, number) for number in (1, 2))
        if not trees.until(lambda: (workspace() / "memory").exists(), SOON):
            return ["its agent never began"]
        process.send_signal(signal.SIGSTOP)
        (workspace() / "go").touch()
        trees.until(lambda: (workspace() / "sent").exists(), SOON)
        ballast = fill(home, leave=128 << 10)
        ended = trees.until(lambda: not is_locked(places.agent_turn("leader") / "lock"), SOON)
        process.send_signal(signal.SIGCONT)
        waits = trees.until(lambda: "agents wait: the disk is" in places.role_log("council").read_text(), SOON)
        wrong = [] if ended and waits else [f"the agent has ended: {ended}; the others wait: {waits}"]
        wrong += [] if (places.agent("leader") / second).exists() else [f"{second} was told on a full disk"]
        ballast.unlink()
        if not trees.until(lambda: len(oracle.contents(home, "messages")) == 2, SOON):
            wrong.append(f"people were told {len(oracle.contents(home, 'messages'))} of 2 answers")
        lines = (workspace() / "memory").read_text().splitlines() if (workspace() / "memory").exists() else []
        wrong += oracle.exactly("what the agent remembers", 2, len(lines))
        wrong += oracle.exactly("dead letters", 0, len(list(places.dead_letters.iterdir())))
        return wrong


HOARDS = """\
import os, pathlib
for number in range(1 << 20):
    pathlib.Path(os.environ["KINGDOM_WORKSPACE"], str(number)).write_text("x")
"""


def check_hoard(tree: Path) -> list[str]:
    """What an agent fills the disk with goes, however small it is in parts; what it has kept stays; its tries count."""
    row = {"command": [sys.executable, "-c", HOARDS], "sandbox": WHOLE_SANDBOX}
    settings = {"agents": {"leader": row}, "retry": {"base_delay": 0}, "dlq": {"max_retries": 1}}
    with on_small_disk(tree, "council", "16m", {"council": settings}) as (_, home):
        places = Places(home)
        if not trees.until(lambda: oracle.beats(places, "council") > 1, SOON):
            return ["it never beat"]
        memory = places.workspace(COUNCIL, conversation("leader", "t")) / "memory"
        memory.parent.mkdir(parents=True, mode=0o700)
        memory.write_text("kept")
        put_goal(places, 1)
        given_up = trees.until(lambda: any(places.dead_letters.iterdir()), SOON)
        return [
            *([] if given_up else ["its message was not given up"]),
            *oracle.exactly("files in its folder", 1, len(list(memory.parent.iterdir()))),
            *([] if memory.exists() else ["what it kept is gone"]),
        ]


def put_goal(places: Places, number: int) -> str:
    """Put a message for leader into the queue, in one thread, and return its name."""
    name = f"user_goal_{1_770_000_000_000_000 + number}.mime"
    raw = mime.build_message(
        from_agent="user", to_agents="leader", msg_type="user_goal", thread_id="t", body="goal: x\n"
    )
    places.told("leader").mkdir(parents=True, exist_ok=True)
    draft = places.agent("leader") / f".{name}"
    draft.write_text(raw)
    draft.rename(places.agent("leader") / name)
    return name


def check_hall(tree: Path) -> list[str]:
    """/health says that nothing can be stored on a full disk, and that all is well when there is room again."""
    with on_small_disk(tree, "gateway", "4m", {"hall": {"port": 0}}) as (process, home):
        beside = ["nsenter", "-m", "-t", str(process.pid), sys.executable, "-m", "kingdom.worker"]
        places, seen = Places(home), Path(f"/proc/{process.pid}/root")
        trees.until(lambda: oracle.beats(places, "gateway") > 1, SOON)
        env = trees.environment(tree, Path("/", home.relative_to(seen)))
        with subprocess.Popen(
            beside, cwd=tree, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as worker:
            try:
                return _hall_on_full_disk(places)
            finally:
                worker.kill()


def _hall_on_full_disk(places: Places) -> list[str]:
    wrong = []
    for moment, expected in (("before", well := ["up"] * 3), ("on a full disk", ["down"] * 3), ("after", well)):
        ballast = fill(places.home) if expected != well else None
        if not trees.until(lambda expected=expected: parts(places) == expected, SOON):
            wrong.append(f"{moment}: database, topics and worker are {parts(places)}")
        if ballast is not None:
            ballast.unlink()
    return wrong


def parts(places: Places) -> list[str]:
    """What the gateway says of database, topics and worker."""
    try:
        address = (places.own("gateway") / "address").read_text().strip()
        said = requests.get(f"{address}/health", timeout=SOON).json()["details"]
    except (OSError, ValueError):
        return []
    return [said[name]["status"] for name in ("database", "topics", "worker")]


@contextmanager
def on_small_disk(
    tree: Path, role: str, size: str = SIZE, config: dict[str, Any] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The role in a mount namespace of its own, and its home as it is seen from here."""
    prepared, home = trees.new_folder(), trees.new_folder()
    quick = {"king": {"intervals": {"event_check_seconds": 0.5}}} if role == "king" else {}
    homes.make(prepared, config=config or quick)
    command = ["unshare", "-m", "sh", "-c", MOUNT, "sh", size, str(home), str(prepared)]
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


def fill(home: Path, leave: int = 0) -> Path:
    """To the last byte, or to so many."""
    ballast = home / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017
        if leave:
            file.truncate(file.tell() - leave)
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


UP = """\
cd "$KINGDOM_HOME"; up() { "$0" -m kingdom up || echo "up exits with $?"; }
up; cat /dev/zero >ballast; up; rm ballast; up; "$0" -m kingdom down
"""
"""`up` while there is room, beside roles that work on a full disk, and when there is room again."""


def check_up(tree: Path) -> list[str]:
    """`up` says that the disk is full, and not that all is well, also when every role beats."""
    prepared, home = trees.new_folder(), trees.new_folder()
    homes.make(prepared)
    command = ["unshare", "-m", "sh", "-c", MOUNT, "sh", SIZE, str(home), str(prepared), "sh", "-c"]
    command += [UP, sys.executable]
    done = subprocess.run(
        command, cwd=tree, env=trees.environment(tree, home), capture_output=True, text=True, timeout=90
    )
    heads = [line for line in done.stdout.splitlines() if line.startswith(("The kingdom is", "Not every", "up exits"))]
    full = f"The kingdom is up in {home}, under tmux, but the disk is 100 % full; make room on the disk of {home}."
    well = f"The kingdom is up in {home}, under tmux."
    return [] if heads == [well, full, "up exits with 1", well] else [done.stdout, done.stderr]


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    **{f"full disk, {role}": lambda tree, role=role: check(role, tree) for role in CASES},
    "full disk, council": check_council,
    "full disk, hall": check_hall,
    "full disk, up": check_up,
    "full disk, an agent that fills it with small files": check_hoard,
}


@pytest.mark.parametrize("what", CHECKS)
def test_a_full_disk_passes(what: str, figure: oracle.Figure) -> None:
    if not may_mount():
        pytest.skip("only root can mount a small disk")
    wrong = CHECKS[what](trees.program())
    figure(f"{what}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
