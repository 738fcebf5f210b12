"""What can be wrong in a store, by class: made broken, found, repaired, served; and no alarm about a healthy one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.mq.rigs import QUEUE, Rig

Break = Callable[[Rig], None]
"""Breaks a store with two messages, `1` and `2`, and a dead letter, while its engine is closed."""


def sql(*statements: str) -> Break:
    def broken(rig: Rig) -> None:
        with closing(sqlite3.connect(rig.folder / "yirangmq.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return broken


def folder(rig: Rig, name: str) -> Path:
    return rig.folder / "fs" / QUEUE / name


def files(change: Callable[[Path], object], name: str) -> Break:
    """Change the first file of a folder."""

    def broken(rig: Rig) -> None:
        change(min(folder(rig, name).glob("*.json")))

    return broken


def payloads(change: Callable[[Path], object]) -> Break:
    def broken(rig: Rig) -> None:
        change(min(path for path in (rig.folder / "payloads" / QUEUE).glob("*.json") if ".dlq" not in path.name))

    return broken


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def to(name: str, new: str = "") -> Callable[[Path], object]:
    return lambda path: path.rename(path.parent.parent / name / (new or path.name))


def doubled(rig: Rig) -> None:
    file = min(folder(rig, "inbox").glob("*.json"))
    dead = min(folder(rig, "dlq").glob("*.json"))
    (folder(rig, "dlq") / f"{dead.name[:-41]}{file.name[-41:]}").write_bytes(dead.read_bytes())


def copied(rig: Rig) -> None:
    """Copy a message as a person may who wants it to come first."""
    file = min(folder(rig, "inbox").glob("*.json"))
    file.with_name(f"0000007{file.name[7:]}").write_bytes(file.read_bytes())


def orphan(rig: Rig) -> None:
    place = rig.folder / "payloads" / QUEUE
    (place / "01a1ee9d-2b93-7000-8001-0e12cbe34015.json").write_text("{}")


FIRST = "message_key = (SELECT min(message_key) FROM msg_index WHERE state = 'ready')"
FIRST_KEY = "key = (SELECT min(message_key) FROM msg_index WHERE state = 'ready')"
ROWS: dict[str, Break] = {
    "invalid_state": sql(f"UPDATE msg_index SET state = 'banana' WHERE {FIRST}"),
    "invalid_state of a dead letter": sql("UPDATE msg_index SET state = 'ready' WHERE state = 'dlq'"),
    "bad_name": sql(f"UPDATE msg_index SET name = 'x-1..y' WHERE {FIRST}"),
    "bad_name of another": sql(
        f"UPDATE msg_index SET name = substr(name, 1, length(name) - 1) || 'g' WHERE {FIRST}",
    ),
    "bad_name in a queue that its key does not tell": sql(f"UPDATE msg_index SET queue = 'other' WHERE {FIRST}"),
    "foreign": sql(f"UPDATE msg_index SET name = NULL WHERE {FIRST}"),
    "lost_policy": sql("DELETE FROM kv WHERE key LIKE 'policy:%'"),
}
CASES: dict[tuple[str, str], tuple[Break, int]] = {
    **{("sqlite", kind): (broken, 2) for kind, broken in ROWS.items()},
    **{("hybrid", kind): (broken, 2) for kind, broken in ROWS.items()},
    ("sqlite", "missing_payload"): (sql(f"DELETE FROM kv WHERE {FIRST_KEY}"), 1),
    ("sqlite", "truncated"): (sql(f"UPDATE kv SET value = substr(value, 1, 200) WHERE {FIRST_KEY}"), 1),
    ("sqlite", "invalid_state of a body without one"): (sql(f"DELETE FROM msg_index WHERE {FIRST}"), 2),
    ("hybrid", "missing_payload"): (payloads(lambda path: path.unlink()), 1),
    ("hybrid", "orphan_payload"): (orphan, 2),
    ("hybrid", "truncated"): (payloads(cut), 1),
    ("filesystem", "truncated"): (files(cut, "inbox"), 1),
    ("filesystem", "truncated dead letter"): (files(cut, "dlq"), 2),
    ("filesystem", "doubled"): (doubled, 2),
    ("filesystem", "doubled in one folder"): (copied, 2),
    ("filesystem", "invalid_state"): (files(to("dlq"), "inbox"), 2),
    ("filesystem", "invalid_state of a waiting one"): (files(to("processing"), "inbox"), 2),
    ("filesystem", "bad_name"): (files(to("processing", "x..y-01a1ee9d-2b93-7000-8001-0e12cbe34015.json"), "inbox"), 2),
    ("filesystem", "foreign"): (files(to("dlq", "AB01-0F3C-77E1-9A00-1B2C.json"), "inbox"), 2),
    ("filesystem", "missing_payload"): (lambda rig: folder(rig, "archive").rmdir(), 2),
    ("filesystem", "lost_policy"): (lambda rig: (folder(rig, "meta") / "queue.json").unlink(), 2),
}
"""By store and class: how it is broken, and how many of the two messages are served after the repair."""
MENDED_AT_THE_START = ("lost_policy", "doubled", "orphan_payload", "foreign", "missing_payload")


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_what_is_broken_is_found_repaired_and_served(open_rig: Callable[..., Rig], backend: str, kind: str) -> None:
    broken, served = CASES[backend, kind]
    rig = open_rig(backend)
    rig.die()
    for text in ("1", "2"):
        rig.publish(text)
    rig.mq.sweep()
    rig.mq.close()
    rig._store = None
    rig.mq.store = None  # type: ignore[assignment]
    broken(rig)
    rig.mq = rig._open()
    for known in rig.mq.queues.by_name.values():
        assert known.name in (QUEUE, "other")
    found = [finding.kind for finding in rig.mq.check()]
    repaired = rig.mq.check(repair=True)
    if kind.partition(" ")[0] not in MENDED_AT_THE_START:
        assert kind.partition(" ")[0] in found
        assert {finding.repaired for finding in repaired} == {True}
    else:
        assert kind.partition(" ")[0] in found or not found
    rig.mq.sweep()
    rig.sweep(61)
    assert rig.mq.check() == []
    texts = [text for text in rig.lease_texts() if text in ("1", "2")]
    assert (len(texts), len(set(texts))) == (served, served)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (f"UPDATE kv SET value = substr(value, 1, 200) WHERE {FIRST_KEY}", '"messageId"'),
        (f"UPDATE kv SET value = 'garbage' WHERE {FIRST_KEY}", "garbage"),
        (f"INSERT INTO kv VALUES ('msg:{QUEUE}:foreign', '{{\"so\": 1}}', 'json', 1, 1, NULL)", '"so"'),
    ],
)
def test_a_body_without_a_state_is_kept_whatever_it_is(open_rig: Callable[..., Rig], body: str, kept: str) -> None:
    rig = open_rig("sqlite")
    rig.publish("1")
    rig.mq.close()
    rig._store = None
    rig.mq.store = None  # type: ignore[assignment]
    sql(body, f"DELETE FROM msg_index WHERE {FIRST}")(rig)
    rig.mq = rig._open()
    rig.mq.check(repair=True)
    assert rig.mq.check() == []
    with closing(sqlite3.connect(rig.folder / "yirangmq.db")) as connection:
        ((letters,),) = connection.execute(
            "SELECT group_concat(value) FROM kv WHERE key IN (SELECT message_key FROM msg_index)"
        ).fetchall()
    assert kept in str(letters).replace("\\", "")


@pytest.mark.parametrize("kill", [False, True])
def test_a_healthy_store_at_work_raises_no_alarm(rig: Rig, kill: bool) -> None:
    rig.use({"archive": True, "retry": {"limit": 2, "initialDelaySec": 5}})
    for number in range(40):
        rig.publish(str(number), priority=number % 3, delay_ms=number % 4 * 1_000, ttl_ms=number % 5 * 60_000)
        rig.publish("x" * 9_000, target="c" if number % 2 else "")
        if number % 3 == 0:
            rig.nack(rig.lease(), "no", requeue=number % 2 == 0)
        elif number % 3 == 1:
            rig.ack(rig.lease())
        else:
            rig.lease()
        rig.sweep(1)
        assert rig.mq.check() == []
    rig.lease(queue=f"{QUEUE}-dlq")
    rig.reopen(kill=kill)
    assert rig.mq.check() == []
    assert rig.mq.check(repair=True) == []
