"""What happens to very many messages at once is done in parts, and other calls are answered between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kingdom.mq.call_fields import Call
from kingdom.mq.calls import CALLS, NotYet
from kingdom.mq.engine import Engine
from kingdom.mq.message_format import Draft
from tests.mq.houses import QUEUE, House

MANY = 3_000
MOST_CHANGES = 500
"""What one turn may do to messages, for one kind of event."""
CHANGES = ("drop", "move", "rewrite", "adopt")


class Counted:
    """Counts the store's changes since `forget`."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        for change in CHANGES:
            monkeypatch.setattr(house.mq.store, change, self._counting(getattr(house.mq.store, change)))

    def _counting(self, change: Callable[..., None]) -> Callable[..., None]:
        def counted(*words: Any) -> None:
            self.made += 1
            change(*words)

        return counted

    def turns(self, engine: Engine) -> int:
        """Sweep until nothing is due. Return how many turns that took; none may do too much."""
        turns = 0
        while True:
            self.made = 0
            due = engine.sweep()
            engine.commit()
            assert self.made <= 2 * MOST_CHANGES
            turns += 1
            if due is None or due > engine.clock():
                return turns


@pytest.fixture
def mass(open_house: Callable[..., House]) -> House:
    return open_house("memory", policy={"retry": {"limit": 2, "initialDelaySec": 5}, "dlq": {"retentionDays": 1}})


def publish_many(house: House, **more: Any) -> None:
    for number in range(MANY):
        house.mq.publish(QUEUE, Draft(str(number), **more))
    house.mq.commit()


def die_all(house: House) -> None:
    publish_many(house)
    for leased in house.mq.lease(QUEUE, "c", MANY):
        house.mq.nack(leased.message_key, leased.lease_id, reason="broken")
    house.mq.commit()


def answered(house: House, command: str, **payload: Any) -> Any:
    """Carry a call out to its end, as a manager does, and check that no part is too long. Return the answer."""
    call = Call({"queue": QUEUE, **payload}, "c")
    parts = 1
    data = CALLS[command].answer(house.mq, call)
    while isinstance(data, NotYet):
        house.mq.commit()
        call = Call(call.payload, "c", done=data.done)
        data = CALLS[command].answer(house.mq, call)
        parts += 1
    house.mq.commit()
    assert parts >= MANY // MOST_CHANGES
    return data


def test_messages_that_expire_together_go_in_parts(mass: House, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_many(mass, ttl_ms=1_000)
    mass.publish("stays", priority=-1)
    counted = Counted(mass, monkeypatch)
    mass.clock.pass_(1)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (1, 0, 0, 0)


def test_a_consumer_is_served_while_messages_expire(mass: House) -> None:
    publish_many(mass, ttl_ms=1_000)
    mass.publish("stays", priority=1)
    mass.clock.pass_(1)
    mass.sweep()
    assert mass.lease().payload == "stays"


def test_a_consumer_who_meets_only_expired_messages_is_answered_in_parts(mass: House) -> None:
    publish_many(mass, ttl_ms=1_000, priority=1)
    mass.publish("stays")
    mass.clock.pass_(1)
    assert answered(mass, "consume_next")["message"]["payload"] == "stays"


def test_delayed_messages_that_expire_before_they_are_due_go_in_parts(
    mass: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_many(mass, delay_ms=10_000, ttl_ms=1_000)
    counted = Counted(mass, monkeypatch)
    mass.clock.pass_(1)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (0, 0, 0, 0)


def test_leases_that_end_together_are_redelivered_in_parts(mass: House, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_many(mass)
    mass.mq.lease(QUEUE, "c", MANY)
    counted = Counted(mass, monkeypatch)
    mass.clock.pass_(30)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (0, 0, MANY, 0)


def test_delayed_messages_that_are_due_together_become_ready_in_parts(mass: House) -> None:
    publish_many(mass, delay_ms=1_000)
    mass.clock.pass_(1)
    mass.mq.sweep()
    assert mass.counts()[0] <= 2 * MOST_CHANGES
    while (due := mass.mq.sweep()) is not None and due <= mass.clock.now:
        pass
    assert mass.counts() == (MANY, 0, 0, 0)


def test_one_call_makes_few_messages_ready(mass: House) -> None:
    publish_many(mass, delay_ms=1_000)
    mass.clock.pass_(1)
    assert mass.lease().payload == "0"
    assert mass.counts()[2] >= MANY - MOST_CHANGES


def test_dead_letters_that_are_old_together_are_archived_in_parts(mass: House, monkeypatch: pytest.MonkeyPatch) -> None:
    die_all(mass)
    mass.clock.pass_(86_400)
    counted = Counted(mass, monkeypatch)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (0, 0, 0, 0)


def test_a_purge_goes_in_parts(mass: House) -> None:
    publish_many(mass)
    assert answered(mass, "purge") == {"queue": QUEUE, "purged": MANY}


def test_a_purge_of_dead_letters_goes_in_parts(mass: House) -> None:
    die_all(mass)
    assert answered(mass, "purge", dlq=True) == {"queue": QUEUE, "purged": MANY}
    assert mass.counts() == (0, 0, 0, 0)


def test_dead_letters_go_back_to_work_in_parts(mass: House) -> None:
    die_all(mass)
    data = answered(mass, "reprocess_dlq")
    assert data["count"] == len(set(data["messageKeys"])) == MANY
    assert mass.counts() == (MANY, 0, 0, 0)


def test_dead_letters_that_die_again_meanwhile_are_not_reprocessed_twice(mass: House) -> None:
    die_all(mass)
    call = Call({"queue": QUEUE}, "c")
    data = CALLS["reprocess_dlq"].answer(mass.mq, call)
    assert isinstance(data, NotYet)
    mass.clock.pass_(1)
    for leased in mass.mq.lease(QUEUE, "c", MANY):
        mass.mq.nack(leased.message_key, leased.lease_id)
    while isinstance(data, NotYet):
        data = CALLS["reprocess_dlq"].answer(mass.mq, Call(call.payload, "c", done=data.done))
    assert data["count"] == MANY


def test_files_laid_in_by_hand_together_are_adopted_in_parts(
    open_house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = open_house("filesystem")
    house.publish("first")
    assert house.lease_texts() == ["first"]
    inbox = house.folder / "fs" / QUEUE / "inbox"
    for number in range(1_200):
        (inbox / f"by-hand-{number}.json").write_text("{}")
    counted = Counted(house, monkeypatch)
    house.clock.pass_(2)
    house.mq.sweep()
    assert 0 < counted.made <= MOST_CHANGES
    while (due := house.mq.sweep()) is not None and due <= house.clock.now:
        pass
    assert house.counts()[0] == 1_200
