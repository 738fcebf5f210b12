"""The same source event told again and again: one task, whatever lies there of it still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees

KING = ("-m", "kingdom.king", "--once")
NAME = "evt-github-12345678-2026-02-07T10:00:00Z"

Story = Callable[[Path, Callable[[], list[str]]], list[str]]


def told_again_while_dispatched(home: Path, king: Callable[[], list[str]]) -> list[str]:
    return [*tell(home), *king(), *tell(home), *king(), *tell(home), *king(), *one_task(home)]


def told_again_after_completion(home: Path, king: Callable[[], list[str]]) -> list[str]:
    return [*tell(home), *king(), *finish(home), *king(), *tell(home), *king(), *one_task(home), *completed(home)]


def told_again_after_retention(home: Path, king: Callable[[], list[str]]) -> list[str]:
    return [*tell(home), *king(), *finish(home), *king(), *forget(home), *tell(home), *king(), *no_task(home)]


def told_again_after_retention_and_a_torn_index(home: Path, king: Callable[[], list[str]]) -> list[str]:
    wrong = [*tell(home), *king(), *finish(home), *king(), *forget(home)]
    with (Places(home).own("king") / "done.idx").open("a") as index:
        index.write("20260207 evt-github-torn")
    return [*wrong, *tell(home), *king(), *no_task(home), *king()]


def put_back_after_a_lost_move(home: Path, king: Callable[[], list[str]]) -> list[str]:
    """The event as the king left it, noted, beside its own dispatched copy: as after a restored backup."""
    wrong = [*tell(home), *king()]
    places = Places(home)
    dispatched = places.queue_file("events", "dispatched", NAME)
    places.queue_file("events", "pending", NAME).write_bytes(dispatched.read_bytes())
    dispatched.unlink()
    return [*wrong, *king(), *one_task(home)]


def a_discarded_one_told_again(home: Path, king: Callable[[], list[str]]) -> list[str]:
    wrong = []
    for _ in range(3):
        homes.put(home, "events", "pending", homes.event("evt-x", "nobody.wants.this"))
        wrong += king()
    states = oracle.states_of(home, "events")
    return wrong + ([] if states == {"evt-x": ["completed"]} else [f"the discarded event: {states}"])


def an_answer_told_again(home: Path, king: Callable[[], list[str]]) -> list[str]:
    question = {"target_general": homes.GENERAL, "task_id": "task-20260207-001", "repo": None}
    homes.write(Places(home).checkpoint("task-20260207-001"), question)
    answer = {"task_id": "task-20260207-001", "human_response": "yes"}
    wrong = []
    for _ in range(3):
        homes.put(home, "events", "pending", homes.event(NAME, "slack.human_response", payload=answer))
        wrong += king()
    return wrong + one_task(home, "thread_update")


def another_event_under_its_id(home: Path, king: Callable[[], list[str]]) -> list[str]:
    wrong = [*tell(home), *king()]
    homes.put(home, "events", "pending", homes.event(NAME, payload={"subject_title": "Something else"}))
    wrong += king()
    states = sorted(oracle.states_of(home, "events").get(NAME, []))
    return wrong + ([] if states == ["dead", "dispatched"] else [f"the other event under a used id: {states}"])


def tell(home: Path) -> list[str]:
    homes.put(home, "events", "pending", homes.event(NAME))
    return []


def finish(home: Path) -> list[str]:
    """What a general does, in short: claim, then a result."""
    places = Places(home)
    for task in oracle.contents(home, "tasks"):
        places.queue_file("tasks", "pending", task["id"]).replace(places.queue_file("tasks", "in_progress", task["id"]))
        homes.write(places.result(task["id"]), {"task_id": task["id"], "status": "success", "summary": "done"})
    return []


def forget(home: Path) -> list[str]:
    """What retention does after some days."""
    for path in [*home.glob("queue/*/*/*"), *Places(home).results.iterdir()]:
        path.unlink()
    return []


def one_task(home: Path, kind: str = "thread_start") -> list[str]:
    made = [task for task in oracle.contents(home, "tasks") if task["event_id"] == NAME]
    messages = [message for message in oracle.contents(home, "messages") if message["type"] == kind]
    return oracle.exactly("tasks", 1, len(made)) + oracle.exactly(f"{kind} messages", 1, len(messages)) + settled(home)


def no_task(home: Path) -> list[str]:
    made = len(oracle.contents(home, "tasks")) + len(oracle.contents(home, "messages"))
    return oracle.exactly("tasks and messages of a forgotten event", 0, made) + settled(home)


def completed(home: Path) -> list[str]:
    finals = [message for message in oracle.contents(home, "messages") if message["type"] == "notification"]
    return oracle.exactly("final messages", 1, len(finals))


def settled(home: Path) -> list[str]:
    states = oracle.states_of(home, "events").get(NAME, [])
    waits = [f"the event lies in {states}"] if len(states) != 1 or "pending" in states else []
    return [*oracle.tidy(home), *waits]


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        told_again_while_dispatched,
        told_again_after_completion,
        told_again_after_retention,
        told_again_after_retention_and_a_torn_index,
        put_back_after_a_lost_move,
        a_discarded_one_told_again,
        an_answer_told_again,
        another_event_under_its_id,
    )
}


def check(story: Story, tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)

    def king() -> list[str]:
        ended = trees.run(tree, home, KING)
        return [] if ended.returncode == 0 else [f"the king ended with {ended.returncode}: {ended.stderr}"]

    wrong = story(home, king)
    trees.remove(home)
    return wrong


QUICK = ("told_again_while_dispatched", "told_again_after_retention_and_a_torn_index", "another_event_under_its_id")


@pytest.mark.parametrize("what", STORIES if trees.CAMPAIGN else QUICK)
def test_one_source_event_is_one_task(what: str, figure: oracle.Figure) -> None:
    wrong = check(STORIES[what], trees.program())
    figure(f"duplicates, {what.replace('_', ' ')}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
