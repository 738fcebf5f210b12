"""Rows that the original manager has written, of any age, get names of ours: from then on they are served."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import count
from typing import Any

from kingdom.mq.stores.original_messages import STATES, Original, envelope, name_of

LATER_COLUMNS = ("dlq_reason", "dlq_at", "target_consumer_id", "expired_at")
"""Columns that older databases lack: the oldest have none of them, later ones the first two."""

COLUMNS = 9 + len(LATER_COLUMNS)
"""What `name_rows` hands to the function that names a row: see `original`."""

Naming = Callable[..., str | None]


def take_over(
    connection: sqlite3.Connection,
    sql: dict[str, str],
    states: str,
    naming: Naming | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> int:
    """Give a name to every row that has none, and mark policies as such. Return how many rows were named.

    `naming` returns the name of a row, and may do something with the row first; with None the row stays unnamed.
    """
    if connection.execute(sql["select_unnamed"]).fetchone() is None:
        return 0
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({states})")}
    columns = ", ".join(f"{states}.{column}" if column in there else "NULL" for column in LATER_COLUMNS)
    connection.create_function("original_name", COLUMNS, naming or namer())
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(sql["mark_policies"])
        for other, ours in STATES.items():
            connection.execute(sql["rename_state"], (ours, other))
        named = connection.execute(sql["name_rows"].replace("{{later_columns}}", columns)).rowcount
        before_commit()
        connection.execute("COMMIT")
    except (sqlite3.Error, OSError):
        connection.rollback()
        raise
    return named


def namer() -> Callable[..., str]:
    """Return a function from a row and its envelope to a name. Rows come in the order in which they were published."""
    numbers = count(1)

    def named(*row: Any) -> str:
        return name_of(original(row, next(numbers)))

    return named


def original(row: tuple[Any, ...], sequence: int) -> Original:
    """Return what a row and its envelope say."""
    queue, state, priority, available_at, lease_until, attempt, key, created_at, value, *later = row
    reason, dead_at, target, expires = later
    about = envelope(value)
    due = available_at
    if state == "inflight":
        due = lease_until or available_at
    elif state == "dlq":
        due = about.get("dlqAt") or dead_at or available_at
    return Original(
        queue,
        state,
        key,
        sequence,
        priority,
        due,
        attempt,
        about.get("createdAt") or created_at,
        expires,
        target,
        about.get("dlqReason") or reason,
    )
