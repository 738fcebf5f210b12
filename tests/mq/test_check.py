"""What can be wrong in a store, by class: made broken, found, repaired, served; and no alarm about a healthy one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mq.houses import QUEUE, House

Break = Callable[[House], None]
"""Breaks a store with two messages, `1` and `2`, and a dead letter, while its engine is closed."""


def sql(*statements: str) -> Break:
    def broken(house: House) -> None:
        with sqlite3.connect(house.folder / "yirangmq.db") as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    return broken


def folder(house: House, name: str) -> Path:
    return house.folder / "fs" / QUEUE / name


def files(change: Callable[[Path], object], name: str) -> Break:
    """Change the first file of a folder."""

    def broken(house: House) -> None:
        change(min(folder(house, name).glob("*.json")))

    return broken


def payloads(change: Callable[[Path], object]) -> Break:
    def broken(house: House) -> None:
        change(min(path for path in (house.folder / "payloads" / QUEUE).glob("*.json") if ".dlq" not in path.name))

    return broken


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def to(name: str, new: str = "") -> Callable[[Path], object]:
    return lambda path: path.rename(path.parent.parent / name / (new or path.name))


def doubled(house: House) -> None:
    file = min(folder(house, "inbox").glob("*.json"))
    dead = min(folder(house, "dlq").glob("*.json"))
    (folder(house, "dlq") / f"{dead.name[:-41]}{file.name[-41:]}").write_bytes(dead.read_bytes())


def orphan(house: House) -> None:
    place = house.folder / "payloads" / QUEUE
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
    ("filesystem", "invalid_state"): (files(to("dlq"), "inbox"), 2),
    ("filesystem", "invalid_state of a waiting one"): (files(to("processing"), "inbox"), 2),
    ("filesystem", "bad_name"): (files(to("processing", "x..y-01a1ee9d-2b93-7000-8001-0e12cbe34015.json"), "inbox"), 2),
    ("filesystem", "foreign"): (files(to("dlq", "AB01-0F3C-77E1-9A00-1B2C.json"), "inbox"), 2),
    ("filesystem", "missing_payload"): (lambda house: folder(house, "archive").rmdir(), 2),
    ("filesystem", "lost_policy"): (lambda house: (folder(house, "meta") / "queue.json").unlink(), 2),
}
"""By store and class: how it is broken, and how many of the two messages are served after the repair."""
MENDED_AT_THE_START = ("lost_policy", "doubled", "orphan_payload", "foreign", "missing_payload")


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_what_is_broken_is_found_repaired_and_served(open_house: Callable[..., House], backend: str, kind: str) -> None:
    broken, served = CASES[backend, kind]
    house = open_house(backend)
    house.die()
    for text in ("1", "2"):
        house.publish(text)
    house.mq.sweep()
    house.mq.close()
    house._store = None
    house.mq.store = None  # type: ignore[assignment]
    broken(house)
    house.mq = house._open()
    for known in house.mq.queues.by_name.values():
        assert known.name == QUEUE
    found = [finding.kind for finding in house.mq.check()]
    repaired = house.mq.check(repair=True)
    if kind.partition(" ")[0] not in MENDED_AT_THE_START:
        assert kind.partition(" ")[0] in found
        assert {finding.repaired for finding in repaired} == {True}
    else:
        assert kind in found or not found
    house.mq.sweep()
    house.sweep(61)
    assert house.mq.check() == []
    texts = set(house.lease_texts())
    assert len(texts & {"1", "2"}) == served


@pytest.mark.parametrize("kill", [False, True])
def test_a_healthy_store_at_work_raises_no_alarm(house: House, kill: bool) -> None:
    house.use({"archive": True, "retry": {"limit": 2, "initialDelaySec": 5}})
    for number in range(40):
        house.publish(str(number), priority=number % 3, delay_ms=number % 4 * 1_000, ttl_ms=number % 5 * 60_000)
        house.publish("x" * 9_000, target="c" if number % 2 else "")
        if number % 3 == 0:
            house.nack(house.lease(), "no", requeue=number % 2 == 0)
        elif number % 3 == 1:
            house.ack(house.lease())
        else:
            house.lease()
        house.sweep(1)
        assert house.mq.check() == []
    house.lease(queue=f"{QUEUE}-dlq")
    house.reopen(kill=kill)
    assert house.mq.check() == []
    assert house.mq.check(repair=True) == []
