"""Messages that wait for their rooms: whose turn it is, and how long a channel that is away is left alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import schemas
from kingdom.base.records.messages import Message
from kingdom.base.runtime.role import Services
from kingdom.court.envoy.channels import CHANNELS, Channels
from kingdom.court.envoy.channels.base import (
    Channel,
    ChannelDown,
    ChannelKit,
    ChannelLocked,
    ChannelRefused,
    NeighbourDown,
    Post,
    PostDraft,
    RoomBusy,
    Stuck,
)
from kingdom.court.envoy.conversations import Address
from kingdom.court.envoy.deliveries import Deliveries, DeliveryOutcomes, Room
from kingdom.court.envoy.job import EnvoyJob
from kingdom.court.envoy.locked_out import LockedOut
from tests.court.envoy.envoys import traces
from tests.fixtures import MORNING, Clock, all_of, message, put, services, write
from tests.waiting import SOON, wait_until

HERE, THERE = Room("errand", "here"), Room("errand", "there")


class Errand(Channel):
    """What it is told to raise it raises, else it posts; while `held`, its calls do not return."""

    waits = True
    raises: list[Exception] = []  # noqa: RUF012
    posted: list[PostDraft] = []  # noqa: RUF012
    held = threading.Event()

    def __init__(self, kit: ChannelKit) -> None:
        self.raises.clear()
        self.posted.clear()
        self.held.set()

    def post(self, draft: PostDraft) -> Post:
        assert self.held.wait(SOON)
        if self.raises:
            raise self.raises.pop(0)
        self.posted.append(draft)
        return Post(f"p-{draft.id}", draft.room)


@pytest.fixture
def given(home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setitem(CHANNELS, "errand", f"{__name__}:Errand")
    return replace(services(home, "envoy", clock, envoy={"errand": {}}), monotonic=clock)


@pytest.fixture
def deliveries(given: Services, monkeypatch: pytest.MonkeyPatch) -> Deliveries:
    channels = Channels(given)
    monkeypatch.setattr(channels, "_opened", {"errand": Errand(None)})  # type: ignore[arg-type]
    return Deliveries(given, channels, LockedOut(given, channels))


def a_message(name: str, type: str = "notification", **fields: Any) -> Message:
    return Message.from_json(schemas.check("message", message(name, type, **fields)))


def begin(deliveries: Deliveries, one: Message, *parts: str, room: Room = HERE) -> None:
    drafts = [PostDraft(f"{one.id}.{number}", room.name, text) for number, text in enumerate(parts or ("words",), 1)]
    deliveries.begin(room, one, Address(room.channel, room.name, None), drafts, look_first=False)


def outcomes(deliveries: Deliveries) -> DeliveryOutcomes:
    """What comes of the call that is being made."""
    found: list[DeliveryOutcomes] = []

    def collect() -> bool:
        found.append(deliveries.collect())
        return any(found[-1]) or not deliveries.is_calling

    wait_until(collect, SOON, "the call returns")
    return found[-1]


def logged(given: Services) -> list[str]:
    given.log.flush()
    log = given.places.role_log("envoy")
    return [line.partition("envoy: ")[2] for line in (log.read_text() if log.exists() else "").splitlines()]


def test_a_channel_that_is_away_is_left_alone_for_longer_and_longer_and_told_of_once(
    deliveries: Deliveries, given: Services, clock: Clock
) -> None:
    pauses = []
    for _ in range(8):
        deliveries.down("errand", ChannelDown(channel="errand", why="no route"))
        pauses.append(deliveries._free(HERE) - clock())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    deliveries.down("errand", ChannelDown(channel="errand", why="no route", after=600.0))
    assert deliveries._free(HERE) - clock() == 600
    deliveries.down("errand", NeighbourDown(channel="errand", why="its worker is away"))
    assert deliveries._free(HERE) - clock() == 4
    assert logged(given) == ["errand cannot be reached: no route; its messages wait"]


def test_what_is_posted_again_is_up_and_its_next_pause_is_short(
    deliveries: Deliveries, given: Services, clock: Clock
) -> None:
    for _ in range(3):
        deliveries.down("errand", ChannelDown(channel="errand", why="no route"))
    begin(deliveries, a_message("msg-1"))
    (delivered,) = outcomes(deliveries).delivered
    assert (delivered.message.id, delivered.post) == ("msg-1", Post("p-msg-1.1", "here"))
    assert logged(given)[-1] == "errand can be reached again"
    assert deliveries._free(HERE) <= clock()
    deliveries.down("errand", ChannelDown(channel="errand", why="no route"))
    assert deliveries._free(HERE) - clock() == 1


def test_a_channel_that_does_not_take_our_token_is_told_of_elsewhere(deliveries: Deliveries, given: Services) -> None:
    deliveries.down("errand", ChannelLocked(channel="errand", why="token revoked"))
    (told,) = all_of(given.places.home, "messages", "pending")
    assert "errand does not take our token: token revoked" in told["content"]


def test_what_could_not_be_posted_waits_and_may_have_been(
    deliveries: Deliveries, given: Services, clock: Clock
) -> None:
    for why in (ChannelDown(channel="errand", why="no route"), OSError("full")):
        Errand.raises.append(why)
        begin(deliveries, a_message("msg-1"))
        assert [message.id for message in outcomes(deliveries).uncertain] == ["msg-1"]
        assert (deliveries.take_due(), len(deliveries)) == ([], 1)
        clock.pass_(60)
        ((room, queued),) = deliveries.take_due()
        assert (room, queued.filename, len(deliveries)) == (HERE, "msg-1.json", 0)


def test_a_busy_room_goes_on_with_the_same_part_when_it_is_free(deliveries: Deliveries, clock: Clock) -> None:
    Errand.raises.append(RoomBusy(channel="errand", why="slow down", after=30.0))
    begin(deliveries, a_message("msg-1"), "first", "second")
    assert not any(outcomes(deliveries))
    assert deliveries.next_due() == clock() + 30
    clock.pass_(30)
    deliveries.collect()
    wait_until(lambda: (deliveries.collect(), len(Errand.posted))[1] == 2, SOON, "both parts")
    assert [(draft.text, draft.thread) for draft in Errand.posted] == [("first", None), ("second", "p-msg-1.1")]


def test_a_room_rests_after_a_post_and_only_that_room(
    deliveries: Deliveries, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Errand, "seconds_between_posts", 5.0)
    for name, room in (("msg-2", HERE), ("msg-3", THERE)):
        deliveries.add(a_message(name).queued(), room)
    begin(deliveries, a_message("msg-1"))
    assert deliveries.is_calling
    assert deliveries.next_due() == 0.0, "the other room is free"
    assert [queued.filename for _, queued in deliveries.take_due()] == ["msg-3.json"]
    assert outcomes(deliveries).delivered
    assert not deliveries.is_calling
    assert (deliveries.take_due(), deliveries.next_due()) == ([], clock() + 5)
    deliveries.rest(HERE, clock() + 3)
    assert deliveries.next_due() == clock() + 5, "it is not made shorter"
    clock.pass_(5)
    assert [queued.filename for _, queued in deliveries.take_due()] == ["msg-2.json"]
    assert (len(deliveries), deliveries.next_due()) == (0, float("inf"))


def test_what_is_refused_says_so_and_the_channel_is_up(deliveries: Deliveries, given: Services) -> None:
    deliveries.down("errand", ChannelDown(channel="errand", why="no route"))
    Errand.raises.append(ChannelRefused(channel="errand", why="no such room"))
    begin(deliveries, a_message("msg-1"))
    (refused,) = outcomes(deliveries).refused
    assert (refused.message.id, refused.why) == ("msg-1", "errand did not take the message: no such room")
    assert logged(given)[-1] == "errand can be reached again"
    assert (len(deliveries), deliveries.is_calling) == (0, False)


def test_an_error_of_ours_in_a_channel_is_raised_where_it_is_seen(deliveries: Deliveries) -> None:
    Errand.raises.append(ZeroDivisionError("ours"))
    begin(deliveries, a_message("msg-1"))
    with pytest.raises(ZeroDivisionError):
        outcomes(deliveries)


def test_an_update_does_not_wait_for_what_another_task_opens_elsewhere(deliveries: Deliveries) -> None:
    deliveries.add(a_message("msg-1", "thread_start", task_id="task-2").queued(), THERE)
    deliveries.add(a_message("msg-2", "thread_update", task_id="task-1").queued(), HERE)
    deliveries.add(a_message("msg-3", "thread_start", task_id=None).queued(), HERE)
    begin(deliveries, a_message("msg-4", task_id="task-1"), room=THERE)
    assert [queued.filename for _, queued in deliveries.take_due()] == ["msg-2.json"]


def test_a_call_that_does_not_return_ends_the_envoy(deliveries: Deliveries, clock: Clock) -> None:
    Errand.held.clear()
    begin(deliveries, a_message("msg-1"))
    try:
        wait_until(lambda: deliveries._posters["errand"]._begun, SOON, "it is called")
        clock.pass_(90)
        deliveries.collect()
        clock.pass_(1)
        with pytest.raises(Stuck):
            deliveries.collect()
    finally:
        Errand.held.set()


def test_the_most_urgent_comes_first_but_what_opens_its_thread_before_it(deliveries: Deliveries) -> None:
    opens = a_message("msg-1", "thread_start", task_id="task-1")
    goes_on = a_message("msg-2", "thread_update", task_id="task-1", urgency="urgent")
    other = a_message("msg-3", urgency="high")
    for one in (other, goes_on, opens):
        deliveries.add(one.queued(), HERE)
        deliveries.add(one.queued(), HERE)
    assert len(deliveries) == 3
    order = []
    while len(deliveries):
        ((_, queued),) = deliveries.take_due()
        order.append(queued.filename)
    assert order == ["msg-1.json", "msg-2.json", "msg-3.json"]


def test_what_is_opened_in_another_room_waits_for_that(deliveries: Deliveries) -> None:
    opens = a_message("msg-1", "thread_start", task_id="task-1")
    deliveries.add(opens.queued(), THERE)
    deliveries.add(a_message("msg-2", "thread_update", task_id="task-1").queued(), HERE)
    assert [queued.filename for _, queued in deliveries.take_due()] == ["msg-1.json"]
    begin(deliveries, opens, room=THERE)
    assert deliveries.take_due() == []
    assert outcomes(deliveries).delivered
    assert [queued.filename for _, queued in deliveries.take_due()] == ["msg-2.json"]


def test_that_a_message_is_about_to_be_posted_is_on_the_disk_before_it_is(
    given: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, found = Errand.post, []

    def look_and_post(channel: Errand, draft: PostDraft) -> Post:
        found.append(traces(given.places.home))
        return post(channel, draft)

    monkeypatch.setattr(Errand, "post", look_and_post)
    put(given.places.home, "messages", "pending", **message("msg-1", channel="here", source_ref={"source": "errand"}))
    job = EnvoyJob(given)
    assert turned(job) == ["msg-1"]
    assert (found, traces(given.places.home)) == ([["msg-1.json"]], [])
    job.close()


@pytest.fixture
def job(given: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvoyJob]:
    """An envoy that has begun a message for the errand and was ended; nobody knows whether it is posted."""
    monkeypatch.setattr(Errand, "settle_seconds", 3.0)
    intents = given.places.own("envoy") / "intents"
    intents.mkdir(parents=True)
    write(intents / "msg-1.json", {"letter": "msg-1", "since": MORNING})
    put(given.places.home, "messages", "pending", **message("msg-1", channel="here", source_ref={"source": "errand"}))
    job = EnvoyJob(given)
    yield job
    Errand.held.set()
    job.close()


def turned(job: EnvoyJob) -> list[str]:
    """Run turns until nothing is being posted. Return what was."""
    job.turn(None)
    wait_until(lambda: (job.turn({}), not job._deliveries.is_calling)[1], SOON, "no call is being made")
    return [draft.id for draft in Errand.posted]


def test_an_interrupted_post_is_not_looked_for_before_it_has_had_the_time_to_appear(
    job: EnvoyJob, clock: Clock
) -> None:
    assert turned(job) == []
    clock.pass_(2)
    assert turned(job) == []
    clock.pass_(1)
    assert turned(job) == ["msg-1"]


def test_what_may_have_been_posted_is_not_looked_for_before_it_has_had_the_time_to_appear(
    job: EnvoyJob, clock: Clock
) -> None:
    job.turn(None)
    Errand.raises.append(ChannelDown(channel="errand", why="no answer"))
    clock.pass_(3)
    assert turned(job) == []
    assert Errand.raises == [], "it was tried"
    clock.pass_(2)
    assert turned(job) == []
    clock.pass_(1)
    assert turned(job) == ["msg-1"]


def test_new_configuration_comes_at_once_but_not_while_a_channel_is_being_called(
    job: EnvoyJob, given: Services, clock: Clock
) -> None:
    renewed, again = (replace(given, config={**given.config, "note": word}) for word in ("renewed", "again"))
    job.reload(renewed)
    assert job._services.config["note"] == "renewed"
    job.turn(None)
    Errand.held.clear()
    clock.pass_(3)
    job.turn(None)
    assert job._deliveries.is_calling
    job.reload(again)
    job.turn({})
    assert job._services.config["note"] == "renewed"
    Errand.held.set()
    wait_until(lambda: (job.turn({}), job._services.config["note"] == "again")[1], SOON, "the call has returned")
    assert [draft.id for draft in Errand.posted] == ["msg-1"]
