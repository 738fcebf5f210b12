"""Give the king an order: put it into the queue, wait for its outcome and print that."""

from __future__ import annotations

import time
from pathlib import Path

from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import Collision, Exit, TookTooLong
from kingdom.base.home.places import Places, check_name
from kingdom.base.program import home
from kingdom.base.records.messages import Order
from kingdom.base.runtime.wake import Waker
from kingdom.base.times import stamp
from kingdom.base.words import printable

ANSWER_SECONDS = 30.0
LOOK_SECONDS = 0.5


def give(places: Places, action: str, target: str) -> int:
    """Give an order, print its outcome and return the exit code: 1 when the king refused it."""
    places.check()
    bare = check_name("id", Path(target).name.removesuffix(".json"))
    done = places.folder("orders", "done")
    waker = Waker((done,))
    try:
        order = _put(places, action, bare)
        if not is_locked(places.lock("king")):
            others = home.is_played(places, "king")
            why = "while another program plays the king" if others else "for the king, which does not run"
            print(f"{order} waits {why}; `{home.how_to_start(places, 'king')}` starts ours.")
            return Exit.NOT_RUNNING
        outcome, was_refused = _outcome(places, order, waker)
    finally:
        waker.close()
    print(printable(outcome))
    return Exit.FAILED if was_refused else Exit.DONE


def _put(places: Places, action: str, target: str) -> str:
    disk = home.disk(places)
    while True:
        now = time.time_ns()
        name = f"ord-{now // 1000}"
        order = Order(id=name, action=action, target=target, by=home.user(), created_at=stamp(now / 1e9))
        try:
            disk.create(places.queue_file("orders", "pending", name), to_json(order.to_json()))
        except Collision:
            continue
        return name


def _outcome(places: Places, order: str, waker: Waker) -> tuple[str, bool]:
    """Return what came of it, in words, and whether it was refused."""
    give_up = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < give_up:
        for state in ("done", "dead"):
            path = places.queue_file("orders", state, order)
            if path.exists():
                order_file = read_json_or(path, {})
                return str(order_file.get("outcome") or "refused: it could not be read"), order_file.get(
                    "code"
                ) != "done"
        waker.wait(LOOK_SECONDS)
    hint = f"`{home.command()} why {order}` tells what came of it"
    raise TookTooLong(what=f"answer of the king to {order}", seconds=ANSWER_SECONDS, hint=hint)
