"""What a message costs the processor in single operations: an echo that stores nothing, our mailbox, a broker.

Rates depend on the disk and on who else works on the machine; processor time hardly does. It says how many messages a
second so many cores can have at most, however quick the disk is.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import mq_clients
from bench.figures import median
from bench.homes import folder
from bench.mq_mailbox import Echo, echoing
from bench.mq_peers import BATCH, Peer

CASES = (("processes", 1), ("processes", 16), ("threads", 16))
TITLE = "Processor time of one message in µs, server + clients, survives a power cut"
Cost = tuple[float, float]


class EchoQueue:
    """The same files for each request as a mailbox, but nothing is kept: what a request in a file of its own costs."""

    def __init__(self, place: Path, base: str) -> None:
        self._echo = Echo(base, f"client-{os.getpid()}")

    def publish(self, body: str) -> None:
        self._echo.call()

    def take(self) -> str:
        """Two requests: for the message, and for its ack."""
        self._echo.call()
        self._echo.call()
        return ""

    def close(self) -> None:
        self._echo.close()


ECHO = Peer("echo, one request in a file", "power", EchoQueue, lambda folder: echoing(synced=True))


def table(peers: Sequence[Peer], quick: bool) -> dict[str, Any]:
    rounds, each = (1, 50) if quick else (3, 200)
    found: dict[str, dict[str, list[Cost]]] = {}
    for _ in range(rounds):
        for peer in (ECHO, *peers):
            for case, cost in _costs(peer, each).items():
                found.setdefault(case, {}).setdefault(peer.name, []).append(cost)
    rows = {
        case: [_in_short(peers_costs.get(peer.name, [])) for peer in (ECHO, *peers)]
        for case, peers_costs in found.items()
    }
    return {"title": TITLE, "columns": [peer.name for peer in (ECHO, *peers)], "rows": rows}


def _costs(peer: Peer, each: int) -> dict[str, Cost]:
    place = folder()
    with ExitStack() as stack:
        assert peer.server is not None
        address = stack.enter_context(peer.server(place))
        servers = _children()
        opens = lambda: peer.opens(place, address)  # noqa: E731
        found = {}
        for kind, clients in CASES:
            if peer is ECHO and kind == "threads":
                continue
            for what in (*mq_clients.MEASURES, *((mq_clients.BATCHED,) if peer.ours and clients == 1 else ())):
                times = each * BATCH if what == mq_clients.BATCHED else each
                before = sum(map(_microseconds, servers)), _of_ended_children()
                mq_clients.rate(kind, clients, opens, what, times, peer.shared)
                after = sum(map(_microseconds, servers)), _of_ended_children()
                server, ended = (late - early for late, early in zip(after, before, strict=True))
                found[f"{what}, {clients} {kind}"] = server / (times * clients), ended / (times * clients)
        return found


def _children() -> list[int]:
    return [int(pid) for task in os.listdir("/proc/self/task") for pid in _children_of(task)]


def _children_of(task: str) -> list[str]:
    return Path(f"/proc/self/task/{task}/children").read_text().split()


def _microseconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


def _of_ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e6


def _in_short(costs: Sequence[Cost]) -> str:
    if not costs:
        return "-"
    server, clients = (median([cost[part] for cost in costs]) for part in (0, 1))
    return f"{server:.0f} + {clients:.0f}"
