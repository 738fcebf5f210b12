"""Several clients at once, each call for itself: our mailbox beside brokers, our library beside itself."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any

from bench.figures import Row, median, ratio, row
from bench.homes import folder
from bench.mq_peers import BACKLOG, BATCH, BODY, Peer

CLIENTS = (1, 4, 16)
MEASURES = ("publish", "take+ack")
BATCHED = f"publish by {BATCH}"
#: processes: each client is a process; threads: all are threads of one program, which is a process of its own.
KINDS = ("processes", "threads")
_fork = get_context("fork")
Rates = dict[tuple[str, str, int], float]
Table = dict[str, Any]


def measure(peer: Peer, each: int, kinds: tuple[str, ...] = KINDS) -> Rates:
    """Return messages a second by measure, kind of client and their number. Each meets the same backlog."""
    place = folder()
    with ExitStack() as stack:
        address = stack.enter_context(peer.server(place)) if peer.server else None
        opens = lambda: peer.opens(place, address)  # noqa: E731
        _apart(lambda: _fill(opens))
        found: Rates = {}
        for kind in kinds:
            for clients in CLIENTS:
                for what in MEASURES:
                    found[what, kind, clients] = rate(kind, clients, opens, what, each, peer.shared)
        return found


def table(
    peers: Sequence[Peer], quick: bool, skipped: Mapping[str, str], kinds: tuple[str, ...] = KINDS
) -> dict[str, Any]:
    """Measure single operations of several clients, rounds interleaved. Return the rates of every round, by peer."""
    rounds, each = (1, 50) if quick else (5, 100)
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for peer in peers:
            if peer.name in skipped:
                continue
            try:
                rates = measure(peer, each, kinds)
            except Exception as error:  # noqa: BLE001 - a peer that breaks must not cost the others' figures
                print(f"bench: SKIPPED several clients of {peer.name}: {error!r}", file=sys.stderr)
                continue
            for (what, kind, clients), rate in rates.items():
                cases = found.setdefault(f"{peer.name}, {peer.durability}", {})
                cases.setdefault(f"{what}, {kind}, {clients}", []).append(round(rate, 1))
    return {"calls of each client": each, "backlog": BACKLOG, "rounds": found}


def rows(
    who: str,
    rounds: Mapping[str, Mapping[str, Sequence[float]]],
    peers: Sequence[Peer],
    goals: Mapping[str, float],
    reason: str,
) -> list[Row]:
    """Return single operations of the first of two peers beside the second; the goals are for the most clients."""
    ours, theirs = (rounds.get(f"{peer.name}, {peer.durability}", {}) for peer in peers)
    found = []
    for case in [case for case in ours if len(theirs.get(case, ())) == len(ours[case])]:
        what, kind, clients = case.split(", ")
        least = goals.get(what) if clients == str(max(CLIENTS)) else None
        reached = ratio(ours[case], theirs[case])
        found.append(
            row(
                f"{who} {what}, one by one, {clients} {kind}",
                durability=peers[0].durability,
                goal=f"≥ {least:g}" if least else "",
                met=reached >= least if least else None,
                ours=round(median(ours[case])),
                unit="messages/s",
                floor=round(median(theirs[case])),
                floor_is=peers[1].name,
                ratio=round(reached, 2),
                reason=reason,
            )
        )
    return found


def _fill(opens: Callable[[], Any]) -> None:
    queue = opens()
    for _ in range(BACKLOG // BATCH):
        if hasattr(queue, "publish_many"):
            queue.publish_many([BODY] * BATCH)
        else:
            for _ in range(BATCH):
                queue.publish(BODY)
    getattr(queue, "close", lambda: None)()


def _apart(work: Callable[[], None]) -> None:
    """In a process of its own: what a library starts behind the scenes does not go on in the next measure."""
    process = _fork.Process(target=work)
    process.start()
    process.join(60)
    if process.exitcode:
        raise RuntimeError(f"a client ended with {process.exitcode}")


def rate(kind: str, clients: int, opens: Callable[[], Any], what: str, each: int, shared: bool) -> float:
    spans = _fork.Queue()
    go = _fork.Barrier(clients)
    work = lambda queue: _calls(queue, what, each, go, spans)  # noqa: E731
    if kind == "processes":
        processes = [_fork.Process(target=lambda: _with_queue(opens, work)) for _ in range(clients)]
    else:
        processes = [_fork.Process(target=lambda: _threads(clients, opens, work, shared))]
    for process in processes:
        process.start()
    times = [spans.get(timeout=120) for _ in range(clients)]
    for process in processes:
        process.join(20)
    began, ended = min(began for began, _ in times), max(ended for _, ended in times)
    return float(each * clients / (ended - began))


def _with_queue(opens: Callable[[], Any], work: Callable[[Any], None]) -> None:
    queue = opens()
    work(queue)
    getattr(queue, "close", lambda: None)()


def _threads(clients: int, opens: Callable[[], Any], work: Callable[[Any], None], shared: bool) -> None:
    if shared:
        queue = opens()
        threads = [threading.Thread(target=work, args=(queue,)) for _ in range(clients)]
    else:
        threads = [threading.Thread(target=_with_queue, args=(opens, work)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if shared:
        queue.close()


def _calls(queue: Any, what: str, times: int, go: Any, spans: Any) -> None:
    go.wait(60)
    began = time.perf_counter()
    if what == "publish":
        for _ in range(times):
            queue.publish(BODY)
    elif what == BATCHED:
        for _ in range(times // BATCH):
            queue.publish_many([BODY] * BATCH)
    else:
        for _ in range(times):
            assert queue.take() is not None
    spans.put((began, time.perf_counter()))
