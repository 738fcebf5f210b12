"""The queues and runners that people use, beside ours: an environment for them, and one way to measure any queue.

Peers live in an environment of their own under a cache folder, installed by package name; servers are used where
they are installed, or unpacked there. What is not there is left out, and said so.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.homes import folder

BODY = json.dumps({"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "x" * 440})
BACKLOG, BATCH = 2_000, 100
MEASURES = ("publish", "take+ack", "publish by 100", "take+ack by 100")
NOTES = (
    "*survives*: *power*, acknowledged means on the platter; *process*, a killed process, not a power cut; *no ack*, "
    "a killed process, but a consumer that dies loses the message it took.",
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kingdom-bench"
ROOTS = CACHE / "programs"
PACKAGES = (
    "persist-queue",
    "litequeue",
    "diskcache",
    "huey",
    "kombu",
    "redis",
    "greenstalk",
    "nats-py",
    "psycopg[binary]",
)
DEBS = {
    "beanstalkd": ("beanstalkd",),
    "nats-server": ("nats-server",),
    "tsp": ("task-spooler",),
    "redis-server": (
        *("redis-server", "redis-tools", "libhiredis0.14", "libjemalloc2", "liblua5.1-0", "liblzf1"),
        *("lua-cjson", "lua-bitop"),
    ),
}
"""Unpacked below the cache, never installed."""
INSTALL_SECONDS = 240.0


class Queue(Protocol):
    """What a peer must be able to do. One with batches also has `publish_many(bodies)` and `take_many(count)`."""

    def publish(self, body: str) -> None: ...
    def take(self) -> str | None:
        """Consume and acknowledge one."""


@dataclass(frozen=True)
class Peer:
    name: str
    #: What its acknowledged messages survive: power, process, or "no ack".
    durability: str
    opens: Callable[[Path, Any], Queue]
    #: Starts what it talks to, and yields its address.
    server: Callable[[Path], Any] | None = None
    #: The package and the program that have to be there.
    module: str = ""
    program: str = ""
    #: What the peers of its durability are compared with.
    ours: bool = False
    #: Threads of one program share a connection, as its manual says; others have one for each.
    shared: bool = False


def prepare(quick: bool) -> Path | None:
    """Fetch what is missing of the peers, unless it has to be quick. Return their own Python, if there is one."""
    if not quick:
        fetch_programs()
    return environment() if not quick or (CACHE / "packages").exists() else None


def environment() -> Path | None:
    """The peers' own environment; None, loudly, when it cannot be made."""
    python = CACHE / "bin" / "python"
    stamp = CACHE / "packages"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(CACHE)], check=True, capture_output=True, timeout=120)
        argv = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run(argv, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"bench: NO PEER LIBRARIES: {error}", file=sys.stderr)
        return None
    stamp.write_text(wanted)
    return python


def surroundings() -> dict[str, str]:
    """Where the unpacked programs and their libraries are found."""
    folders = [str(ROOTS / "usr" / "bin"), str(ROOTS / "usr" / "sbin"), os.environ.get("PATH", "")]
    libraries = [str(folder) for folder in sorted((ROOTS / "usr" / "lib").glob("*-linux-gnu"))]
    return {**os.environ, "PATH": ":".join(folders), "LD_LIBRARY_PATH": ":".join(libraries)}


def fetch_programs() -> None:
    """Where Debian's packages can be had, programs that are not installed are unpacked into the cache."""
    for program, packages in DEBS.items():
        if shutil.which(program, path=surroundings()["PATH"]) or not shutil.which("apt-get"):
            continue
        place = CACHE / "packages.d" / program
        place.mkdir(parents=True, exist_ok=True)
        try:
            argv = ["apt-get", "download", *packages]
            subprocess.run(argv, cwd=place, check=True, capture_output=True, timeout=INSTALL_SECONDS)
            for package in place.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(ROOTS)], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"bench: NO {program}: {error}", file=sys.stderr)


def use(python: Path) -> None:
    """Only what we do not have ourselves comes from there."""
    found = sorted((python.parents[1] / "lib").glob("python3*/site-packages"))
    sys.path.extend(str(folder) for folder in found)


def missing(peer: Peer) -> str:
    from importlib.util import find_spec

    if peer.module and peer.module not in sys.modules and find_spec(peer.module) is None:
        return f"package {peer.module} is not there"
    if peer.program and shutil.which(peer.program, path=surroundings()["PATH"]) is None:
        return f"program {peer.program} is not there"
    return ""


def measure(peer: Peer, seconds: float) -> dict[str, float]:
    """Return messages a second for each measure, with BACKLOG messages waiting before each of them.

    A round that takes is as long as the one that published, so that the backlog is the same again; one that is too
    slow for that ends after three times the seconds.
    """
    place = folder()
    with ExitStack() as stack:
        address = stack.enter_context(peer.server(place)) if peer.server else None
        queue: Any = peer.opens(place, address)
        stack.callback(getattr(queue, "close", lambda: None))
        batches = hasattr(queue, "publish_many")
        for _ in range(BACKLOG // BATCH):
            _publish_batch(queue) if batches else _publish_singly(queue)
        found = {}
        published, found["publish"] = _rate(seconds, BACKLOG, lambda: _one(queue.publish(BODY)))
        _, found["take+ack"] = _rate(3 * seconds, published, lambda: queue.take() is not None)
        if batches:
            published, found["publish by 100"] = _rate(seconds, BACKLOG, lambda: _publish_batch(queue))
            _, found["take+ack by 100"] = _rate(3 * seconds, published, lambda: queue.take_many(BATCH))
        return found


def _publish_batch(queue: Any) -> int:
    queue.publish_many([BODY] * BATCH)
    return BATCH


def _publish_singly(queue: Any) -> None:
    for _ in range(BATCH):
        queue.publish(BODY)


def _one(_: object) -> int:
    return 1


def _rate(seconds: float, most: int, work: Callable[[], int]) -> tuple[int, float]:
    """Work until so many messages are done or the time is over. Return their number, and messages a second."""
    done, began = 0, time.perf_counter()
    while done < most and time.perf_counter() - began < seconds:
        done += work()
    if not done:
        raise ValueError("nothing came")
    return done, done / (time.perf_counter() - began)


def table(peers: Sequence[Peer], quick: bool) -> dict[str, Any]:
    """Measure all that are there, rounds interleaved. Return the table of peers and who was left out."""
    rounds, seconds = (1, 0.2) if quick else (5, 0.5)
    if python := prepare(quick):
        use(python)
    skipped = {peer.name: why for peer in peers if (why := missing(peer))}
    found: dict[Peer, list[dict[str, float]]] = {peer: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            if peer.name in skipped:
                continue
            try:
                found[peer].append(measure(peer, seconds))
            except Exception as error:  # noqa: BLE001 - a peer that breaks must not cost the others' figures
                skipped[peer.name] = f"{type(error).__name__}: {error}"
    for name, why in skipped.items():
        print(f"bench: SKIPPED {name}: {why}", file=sys.stderr)
    rows = [_row(peer, rates) for peer, rates in found.items() if rates]
    return {"peers": {"measures": MEASURES, "rows": rows}, "skipped": skipped, "notes": NOTES}


def _row(peer: Peer, rates: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    medians = {name: round(statistics.median(rate[name] for rate in rates)) for name in rates[0]}
    return {"name": peer.name, "durability": peer.durability, "ours": peer.ours, "rates": medians}
