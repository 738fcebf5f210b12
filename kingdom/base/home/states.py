"""The states of every queue, and every legal move. The folder that a file lies in is its state.

event    pending ──> dispatched ──> completed          (its task has ended)
            └──────────────────────────^               (no general subscribes to it: discarded, with the reason)
task     pending ──> in_progress ──> completed         (claimed by its general, ended by the king)
            └──────────────────────────^               (cancelled before it was claimed)
message  pending ──> sent                              (posted, with a receipt)
            └──> failed ──> pending                    (three refusals; an order puts it back)
order    pending ──> done                              (carried out, with its outcome)

From everywhere: ──> dead, with <file>.reason beside it, when it cannot be read.
Back by a person's order (requeue): completed event ──> pending, dead ──> pending once it is corrected.
"""

from __future__ import annotations

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
