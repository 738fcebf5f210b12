"""Where a thing may lie, and every legal move. The directory is the state.

event    pending ──> dispatched ──> completed          (its task has ended)
            └──────────────────────────^               (nobody wants it: discarded, with the reason)
task     pending ──> in_progress ──> completed         (claimed by its general, ended by the king)
            └──────────────────────────^               (cancelled before anybody took it)
message  pending ──> sent                              (spoken, with a receipt)
            └──> failed ──> pending                    (three refusals; an order puts it back)
order    pending ──> done                              (carried out, with its outcome)

From everywhere: ──> dead, with <file>.reason beside it, when it cannot be read.
Back by a person's order: completed event ──> pending (requeue), dead ──> pending once mended.
"""

from __future__ import annotations

from kingdom.errors import IllegalMove

MOVES: dict[str, dict[str, frozenset[str]]] = {
    "events": {
        "pending": frozenset({"dispatched", "completed", "dead"}),
        "dispatched": frozenset({"completed", "dead"}),
        "completed": frozenset({"pending"}),
        "dead": frozenset({"pending"}),
    },
    "tasks": {
        "pending": frozenset({"in_progress", "completed", "dead"}),
        "in_progress": frozenset({"completed", "dead"}),
        "completed": frozenset(),
        "dead": frozenset({"pending"}),
    },
    "messages": {
        "pending": frozenset({"sent", "failed", "dead"}),
        "sent": frozenset(),
        "failed": frozenset({"pending"}),
        "dead": frozenset({"pending"}),
    },
    "orders": {
        "pending": frozenset({"done", "dead"}),
        "done": frozenset(),
        "dead": frozenset({"pending"}),
    },
}


def check_move(kind: str, src: str, dst: str) -> None:
    if dst not in MOVES[kind][src]:
        raise IllegalMove(what=kind, src=src, dst=dst)
