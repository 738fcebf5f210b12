"""What happens to very many messages at once is done in parts, and other calls are answered between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kingdom.mq.budget import Budget, step
from kingdom.mq.call_fields import Call
from kingdom.mq.calls import CALLS, OngoingCall
from kingdom.mq.engine import Engine, Stored
from kingdom.mq.errors import LeaseMismatch, MessageNotFound, Refusal
from kingdom.mq.large_map import LargeMap
from kingdom.mq.message_format import Draft
from kingdom.mq.search import NotSeenYet
from tests.mq.rigs import QUEUE, Rig

MANY = 1_500
MOST_CHANGES = 500
"""What one turn may do to messages, for one kind of event."""
CHANGES = ("drop", "move", "rewrite", "adopt")


class Counted:
    """Counts the store's changes since `forget`."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        for change in CHANGES:
            monkeypatch.setattr(rig.mq.store, change, self._counting(getattr(rig.mq.store, change)))

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
def mass(open_rig: Callable[..., Rig]) -> Rig:
    return open_rig("memory", policy={"retry": {"limit": 2, "initialDelaySec": 5}, "dlq": {"retentionDays": 1}})


def publish_many(rig: Rig, **more: Any) -> None:
    for number in range(MANY):
        rig.mq.publish(QUEUE, Draft(str(number), **more))
    rig.mq.commit()


def die_all(rig: Rig) -> None:
    publish_many(rig)
    for leased in rig.mq.lease(QUEUE, "c", MANY):
        rig.mq.nack(leased.message_key, leased.lease_id, reason="broken")
    rig.mq.commit()


def answered(rig: Rig, command: str, **payload: Any) -> Any:
    """Carry a call out to its end, as a manager does, and check that no part is too long. Return the answer."""
    given = {"queue": QUEUE, **payload} if command != "handed_over" else payload
    work = OngoingCall(CALLS[command], Call(given, "c"))
    parts = 1
    while (data := work.go_on(rig.mq)) is None:
        rig.mq.commit()
        parts += 1
    rig.mq.commit()
    assert parts >= MANY // MOST_CHANGES
    return data


def test_messages_that_expire_together_go_in_parts(mass: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_many(mass, ttl_ms=1_000)
    mass.publish("stays", priority=-1)
    counted = Counted(mass, monkeypatch)
    mass.clock.pass_(1)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (1, 0, 0, 0)


def test_a_consumer_is_served_while_messages_expire(mass: Rig) -> None:
    publish_many(mass, ttl_ms=1_000)
    mass.publish("stays", priority=1)
    mass.clock.pass_(1)
    mass.sweep()
    assert mass.lease().payload == "stays"


def test_a_consumer_who_meets_only_expired_messages_is_answered_in_parts(mass: Rig) -> None:
    publish_many(mass, ttl_ms=1_000, priority=1)
    mass.publish("stays")
    mass.clock.pass_(1)
    assert answered(mass, "consume_next")["message"]["payload"] == "stays"


def test_delayed_messages_that_expire_before_they_are_due_go_in_parts(
    mass: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_many(mass, delay_ms=10_000, ttl_ms=1_000)
    counted = Counted(mass, monkeypatch)
    mass.clock.pass_(1)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (0, 0, 0, 0)


def test_leases_that_end_together_are_redelivered_in_parts(mass: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_many(mass)
    mass.mq.lease(QUEUE, "c", MANY)
    counted = Counted(mass, monkeypatch)
    mass.clock.pass_(30)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (0, 0, MANY, 0)


def test_delayed_messages_that_are_due_together_become_ready_in_parts(mass: Rig) -> None:
    publish_many(mass, delay_ms=1_000)
    mass.clock.pass_(1)
    mass.mq.sweep()
    assert mass.counts()[0] <= 2 * MOST_CHANGES
    while (due := mass.mq.sweep()) is not None and due <= mass.clock.now:
        pass
    assert mass.counts() == (MANY, 0, 0, 0)


def test_one_call_makes_few_messages_ready(mass: Rig) -> None:
    publish_many(mass, delay_ms=1_000)
    mass.clock.pass_(1)
    assert mass.lease().payload == "0"
    assert mass.counts()[2] >= MANY - MOST_CHANGES


def test_dead_letters_that_are_old_together_are_archived_in_parts(mass: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    die_all(mass)
    mass.clock.pass_(86_400)
    counted = Counted(mass, monkeypatch)
    assert counted.turns(mass.mq) >= MANY // MOST_CHANGES
    assert mass.counts() == (0, 0, 0, 0)


def test_a_purge_goes_in_parts(mass: Rig) -> None:
    publish_many(mass)
    assert answered(mass, "purge") == {"queue": QUEUE, "purged": MANY}


def test_a_purge_of_dead_letters_goes_in_parts(mass: Rig) -> None:
    die_all(mass)
    assert answered(mass, "purge", dlq=True) == {"queue": QUEUE, "purged": MANY}
    assert mass.counts() == (0, 0, 0, 0)


def test_dead_letters_go_back_to_work_in_parts(mass: Rig) -> None:
    die_all(mass)
    data = answered(mass, "reprocess_dlq")
    assert data["count"] == len(set(data["messageKeys"])) == MANY
    assert mass.counts() == (MANY, 0, 0, 0)


def test_dead_letters_that_die_again_meanwhile_are_not_reprocessed_twice(mass: Rig) -> None:
    die_all(mass)
    work = OngoingCall(CALLS["reprocess_dlq"], Call({"queue": QUEUE}, "c"))
    assert work.go_on(mass.mq) is None
    mass.clock.pass_(1)
    for leased in mass.mq.lease(QUEUE, "c", MANY):
        mass.mq.nack(leased.message_key, leased.lease_id)
    while (data := work.go_on(mass.mq)) is None:
        pass
    assert data["count"] == MANY


def test_files_laid_in_by_hand_together_are_adopted_in_parts(
    open_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_rig("filesystem")
    rig.publish("first")
    assert rig.lease_texts() == ["first"]
    inbox = rig.folder / "fs" / QUEUE / "inbox"
    for number in range(1_200):
        (inbox / f"by-hand-{number}.json").write_text("{}")
    counted = Counted(rig, monkeypatch)
    rig.clock.pass_(2)
    rig.mq.sweep()
    assert 0 < counted.made <= MOST_CHANGES
    while (due := rig.mq.sweep()) is not None and due <= rig.clock.now:
        pass
    assert rig.counts()[0] == 1_200


def test_many_dead_letters_are_listed_and_counted_in_parts(mass: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.mq.dead_letters.COUNTED_AT_ONCE", MOST_CHANGES)
    die_all(mass)
    assert answered(mass, "list_dlq", limit=MANY)["count"] == MANY
    assert answered(mass, "dlq_stats", sinceMs=1_000)["reasons"] == {"HANDLER_ERROR": MANY}


def test_late_dead_letters_alone_are_counted(mass: Rig) -> None:
    mass.die()
    mass.clock.pass_(10)
    mass.die()
    assert mass.mq.dead_letters.counts(QUEUE, 10_000) == {"HANDLER_ERROR": 2}
    assert mass.mq.dead_letters.counts(QUEUE, 9_999) == {"HANDLER_ERROR": 1}


def test_a_large_batch_is_handed_out_and_acknowledged_in_parts(mass: Rig) -> None:
    publish_many(mass)
    delivered = answered(mass, "consume_batch", limit=MANY)["messages"]
    assert [message["message"]["payload"] for message in delivered] == [str(number) for number in range(MANY)]
    results = answered(mass, "ack_batch", acks=[message["lease"] for message in delivered])["results"]
    assert [result["messageKey"] for result in results if result["ok"]] == [
        message["lease"]["messageKey"] for message in delivered
    ]
    assert mass.counts() == (0, 0, 0, 0)


def test_a_large_batch_is_published_in_parts(mass: Rig) -> None:
    sent = [{"message": str(number)} for number in range(MANY)]
    sent[7]["priority"] = "high"
    published = answered(mass, "publish_batch", messages=sent)["messages"]
    assert [index for index, one in enumerate(published) if "error" in one] == [7]
    assert mass.lease_texts(MANY) == [str(number) for number in range(MANY) if number != 7]


@pytest.mark.parametrize("backend", ["filesystem", "sqlite", "hybrid"])
def test_a_batch_that_was_killed_between_its_parts_is_published_once(
    open_rig: Callable[..., Rig], backend: str
) -> None:
    rig = open_rig(backend)
    drafts = [Draft(str(number)) for number in range(30)]
    publishing = rig.mq.publishing(QUEUE, drafts, "r", "c", Budget(10, seconds=60))
    for _ in range(2):
        assert step(publishing) is None
        rig.mq.commit()
    before = [seen.message_id for seen in rig.mq.peek(QUEUE, 30)]
    rig.reopen(kill=True)
    outcomes = rig.mq.publish_batch(QUEUE, drafts, "r", "c")
    assert [one.message_id for one in outcomes[:20] if isinstance(one, Stored)] == before
    assert rig.lease_texts() == [str(number) for number in range(30)]


def test_many_messages_are_looked_at_in_parts(mass: Rig) -> None:
    die_all(mass)
    publish_many(mass)
    numbers = [str(number) for number in range(MANY)]
    assert [message["payload"] for message in answered(mass, "peek", limit=MANY)["messages"]] == numbers
    assert [message["payload"] for message in answered(mass, "peek", limit=MANY, dlq=True)["messages"]] == numbers


def test_messages_of_another_store_are_taken_over_and_dropped_in_parts(mass: Rig) -> None:
    publish_many(mass)
    seen = answered(mass, "peek", limit=MANY)["messages"]
    taken = answered(mass, "take_over", queue="there", messages=seen)["messages"]
    assert len({message["messageKey"] for message in taken}) == MANY
    keys = [message["messageKey"] for message in seen]
    assert answered(mass, "handed_over", holder="h", messageKeys=keys) == {"dropped": MANY}
    assert (mass.counts()[0], mass.counts("there")[0]) == (0, MANY)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.mq.queue_state.LOOKED_AT_ONCE", 1)


UNKNOWN = f"msg:{QUEUE}:0199f2c1-5a2b-7000-8000-3c9d1e5f7a90"


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("more", [{}, {"delay_ms": 60_000}, {"ttl_ms": 60_000}, {"target": "x"}], ids=str)
@pytest.mark.parametrize("command", ["ack", "nack", "extend_lease", "delete_message"])
def test_a_message_that_is_not_there_is_looked_for_in_parts(mass: Rig, command: str, more: dict[str, Any]) -> None:
    publish_many(mass, **more)
    if not more:
        call = Call(
            {"messageKey": UNKNOWN, "leaseId": "1" * 16} if "delete" not in command else {"messageKey": UNKNOWN}, "c"
        )
        assert OngoingCall(CALLS[command], call).go_on(mass.mq) is None
    with pytest.raises(MessageNotFound):
        answer_at_last(mass, command, {"messageKey": UNKNOWN})


@pytest.mark.usefixtures("one_at_a_time")
def test_who_asks_the_engine_itself_hears_that_there_is_more_to_look_through(mass: Rig) -> None:
    publish_many(mass)
    with pytest.raises(NotSeenYet, match=UNKNOWN) as unseen:
        mass.mq.ack(UNKNOWN, "1" * 16)
    assert unseen.value.code == MessageNotFound.code


@pytest.mark.usefixtures("one_at_a_time")
def test_a_message_is_found_in_parts_while_others_come_and_go(mass: Rig) -> None:
    publish_many(mass)
    waiting = [message.message_key for message in mass.mq.peek(QUEUE, MANY)]
    seldom = waiting[MANY // 2]

    def meanwhile() -> None:
        for leased in mass.mq.lease(QUEUE, "c", 40):
            mass.mq.nack(leased.message_key, leased.lease_id, requeue=True)
        mass.mq.publish(QUEUE, Draft("new", priority=7))

    with pytest.raises(LeaseMismatch):
        answer_at_last(mass, "ack", {"messageKey": seldom, "leaseId": "1" * 16}, meanwhile)
    answer_at_last(mass, "delete_message", {"messageKey": seldom}, meanwhile)
    assert seldom not in [message.message_key for message in mass.mq.peek(QUEUE, 2 * MANY)]
    mass.reopen()
    assert seldom not in [message.message_key for message in mass.mq.peek(QUEUE, 2 * MANY)]


@pytest.mark.usefixtures("one_at_a_time")
def test_what_a_manager_before_had_given_back_is_found_in_parts(mass: Rig) -> None:
    (key, lease_id) = (mass.publish("first"), mass.lease().lease_id)
    mass.mq.nack(key, lease_id, requeue=True)
    publish_many(mass)
    mass.clock.pass_(60)
    assert answer_at_last(mass, "nack", {"messageKey": key, "leaseId": lease_id}, again=True) == {}
    for command in ("nack", "reprocess_dlq"):
        with pytest.raises(Refusal):
            answer_at_last(mass, command, {"messageKey": UNKNOWN, "leaseId": lease_id}, again=True)
    leased = mass.lease()
    died = leased.message_key
    mass.mq.nack(died, leased.lease_id)
    mass.mq.dead_letters.reprocess(died)
    assert answer_at_last(mass, "reprocess_dlq", {"messageKey": died}, again=True)["reprocessed"]


@pytest.mark.usefixtures("one_at_a_time")
def test_acks_of_what_is_not_there_are_answered_in_parts(mass: Rig) -> None:
    publish_many(mass)
    (leased,) = mass.mq.lease(QUEUE, "c")
    acks = [{"messageKey": key, "leaseId": leased.lease_id} for key in (UNKNOWN, leased.message_key, UNKNOWN)]
    assert [result["ok"] for result in answered(mass, "ack_batch", acks=acks)["results"]] == [False, True, False]
    keys = [UNKNOWN, mass.mq.peek(QUEUE, 1)[0].message_key, UNKNOWN]
    assert answered(mass, "handed_over", holder="h", messageKeys=keys) == {"dropped": 1}
    assert mass.counts()[0] == MANY - 2


def answer_at_last(
    rig: Rig, command: str, payload: Any, meanwhile: Callable[[], object] = lambda: None, again: bool = False
) -> Any:
    """Carry a call out to its end, while other things happen between its parts."""
    work = OngoingCall(CALLS[command], Call(payload, "c", again=again))
    while (data := work.go_on(rig.mq)) is None:
        meanwhile()
        rig.mq.commit()
    rig.mq.commit()
    return data


def test_an_answer_names_no_more_than_ten_thousand_dead_letters(mass: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.mq.calls.LARGEST_BATCH", 1_000)
    die_all(mass)
    data = answered(mass, "reprocess_dlq")
    assert (data["count"], len(data["messageKeys"])) == (MANY, 1_000)


def test_what_comes_next_is_found_without_looking_at_all(mass: Rig) -> None:
    for number in range(MANY):
        mass.mq.publish(QUEUE, Draft(str(number), priority=number * 7919 % 1000, ttl_ms=1_000 * (number % 2)))
    seen = [message.payload for message in mass.mq.peek(QUEUE, MANY)]
    assert seen[:20] == [message.payload for message in mass.mq.peek(QUEUE, 20)]
    assert mass.lease_texts(MANY) == seen


def test_leases_that_are_extended_again_and_again_leave_nothing_behind(mass: Rig) -> None:
    publish_many(mass)
    held = mass.mq.lease(QUEUE, "c", MANY)
    for _ in range(10):
        for leased in held:
            mass.clock.now += 1
            mass.mq.extend(leased.message_key, leased.lease_id, 60_000)
        mass.mq.next_due()
    for _ in range(60):
        mass.mq.next_due()
    leases = mass.mq._leases
    assert len(leases._ends) + len(leases._old_ends) <= 3 * MANY + 4096
    assert mass.mq.next_due() is not None
    mass.clock.pass_(30)
    mass.sweep()
    assert mass.counts()[1] == MANY
    mass.clock.pass_(31)
    while mass.counts()[1]:
        mass.mq.sweep()
    assert mass.counts() == (0, 0, MANY, 0)


def test_a_turn_does_a_little_also_when_its_time_is_over(mass: Rig) -> None:
    publish_many(mass, ttl_ms=1_000)
    mass.clock.pass_(1)
    looking = mass.mq.looking(QUEUE, MANY, budget=Budget(seconds=0.0))
    turns = 1
    while (seen := step(looking)) is None:
        turns += 1
    assert (len(seen), MANY // 20 < turns < MANY) == (MANY, True)


class Looked:
    """Counts the leases that are looked at."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        leases = rig.mq._leases.by_message_id
        parts = leases.parts

        def counted() -> Iterator[Any]:
            for part in parts():
                self.times += len(part)
                yield part

        monkeypatch.setattr(type(leases), "parts", lambda _: counted())


def test_a_queue_is_deleted_without_looking_at_all_leases_of_others_in_one_turn(
    mass: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.mq.large_map.ENTRIES_OF_A_PART", 32)
    mass.mq._leases.forget()
    for queue in (QUEUE, "other"):
        for number in range(MANY):
            mass.mq.publish(queue, Draft(str(number)))
        mass.mq.lease(queue, "c", MANY)
    mass.mq.commit()
    looked = Looked(mass, monkeypatch)
    deleting = mass.mq.removal.delete_queue("other", Budget(20, seconds=60))
    deleted, turns = None, 0
    while deleted is None:
        looked.times = 0
        deleted = step(deleting)
        mass.mq.commit()
        assert looked.times <= 20 * 128
        turns += 1
    assert deleted == MANY
    assert mass.counts() == (0, MANY, 0, 0)
    assert turns > MANY // 20


def test_dead_letters_go_with_their_queue_in_parts(mass: Rig) -> None:
    die_all(mass)
    assert answered(mass, "delete_queue") == {"queue": QUEUE, "deleted": MANY}


def test_what_another_queue_does_not_take_goes_back_in_parts(mass: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mass.use({"schema": {"type": "object"}}, "there")
    publish_many(mass)
    back = Calls(mass.mq.moving, "_give_back", monkeypatch)
    moving = mass.mq.moving.move(QUEUE, "there", 0, Budget(seconds=60))
    done = None
    while done is None:
        back.times = 0
        done = step(moving)
        assert back.times <= MOST_CHANGES
    assert (done, mass.counts()[0]) == ((0, MANY), MANY)


def test_what_a_holder_leaves_is_given_back_in_parts(mass: Rig) -> None:
    publish_many(mass)
    while mass.mq.handover.offer(QUEUE, "h", MANY, mass.clock()):
        pass
    assert not mass.lease()
    assert not mass.mq.handover.end("h", mass.clock(), Budget(200, seconds=60))
    assert len(mass.lease_texts(MANY)) == 200
    assert answered(mass, "handed_over", holder="h", messageKeys=[], end=True) == {"dropped": 0}
    assert mass.counts()[:2] == (MANY - 200, 200)


def test_how_much_others_hold_is_known_without_looking_at_what_they_hold(
    mass: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain holds all that its target refuses, and asks after each part."""
    publish_many(mass)
    offer, held = mass.mq.handover.offer, mass.mq.handover.held_by_others
    first = offer(QUEUE, "h", 100, mass.clock())
    offer(QUEUE, "other", 20, mass.clock())
    monkeypatch.delattr(LargeMap, "values")
    assert (held(QUEUE, "h"), held(QUEUE, "other"), held(QUEUE, "nobody")) == (20, 100, 120)
    assert mass.mq.handover.drop("h", first[0].message_key, mass.clock())
    assert mass.mq.handover.drop("h", first[0].message_key, mass.clock()) is None
    assert (held(QUEUE, "h"), held(QUEUE, "other")) == (20, 99)
    assert not mass.mq.handover.end("h", mass.clock(), Budget(30, seconds=60))
    assert (held(QUEUE, "h"), held(QUEUE, "other")) == (20, 69)
    assert mass.mq.handover.end("h", mass.clock(), Budget(100, seconds=60))
    assert (held(QUEUE, "h"), held(QUEUE, "other")) == (20, 0)


class Calls:
    """Counts the calls of a method."""

    def __init__(self, of: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        method = getattr(of, name)

        def counted(*words: Any) -> Any:
            self.times += 1
            return method(*words)

        monkeypatch.setattr(of, name, counted)


@pytest.mark.parametrize(("command", "more"), [("hand_over", {"holder": "h", "limit": 10}), ("consume_next", {})])
def test_what_was_taken_away_by_hand_is_passed_over_in_parts(
    open_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, command: str, more: dict[str, Any]
) -> None:
    rig = open_rig("filesystem")
    for number in range(600):
        rig.mq.publish(QUEUE, Draft(str(number)))
    rig.mq.commit()
    kept = "599"
    for file in (rig.folder / "fs" / QUEUE / "inbox").glob("*.json"):
        if f'"payload":{kept}' not in file.read_text().replace(" ", ""):
            file.unlink()
    looked = Calls(rig.mq.store, "read" if command == "hand_over" else "move", monkeypatch)
    work = OngoingCall(CALLS[command], Call({"queue": QUEUE, **more}, "c"))
    data: Any = None
    turns = 0
    while data is None:
        looked.times = 0
        data = work.go_on(rig.mq)
        rig.mq.commit()
        assert looked.times <= MOST_CHANGES
        turns += 1
    assert turns > 1
    (message,) = data["messages"] if "messages" in data else [data["message"]]
    assert message["payload"] == kept
