"""The king, killed or cut off from its disk at every file call: every event becomes one task, every result
its messages, every due run one task, and nothing of it twice."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees
from tests.faults.strace import READING
from tests.faults.sweep import BROKEN, FAULTS, KILL, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, sweep

ARGV = ("-m", "kingdom.king", "--once")
ROUTED = "evt-github-1-2026-02-07T10:00:00Z"
UNWANTED = "evt-github-2-2026-02-07T10:00:00Z"
ANSWER = "evt-console-1770458400000000"
LATE_ANSWER = "evt-console-1770458400000001"
ASKED, WELL, BADLY, OPEN = (f"task-20260207-00{number}" for number in range(1, 5))

EXPECTED_TASKS = {ROUTED: 1, UNWANTED: 0, ANSWER: 1, LATE_ANSWER: 0, "schedule-review": 1}
EXPECTED_LETTERS = {
    f"[start] github.pr.review_requested — acme/shop|{ROUTED}": 1,
    f"answer received, resuming|{ANSWER}": 1,
    "[start] schedule.yearly|schedule-review": 1,
    "[complete] github.pr.review_requested — Looks good|evt-of-002": 1,
    "News for all|evt-of-002": 1,
    "[failed] no compiler|evt-of-003": 1,
    "[question] May I merge?|evt-of-004": 1,
}
EXPECTED_STATES = {
    ROUTED: "dispatched",
    UNWANTED: "completed",
    ANSWER: "dispatched",
    LATE_ANSWER: "completed",
    "evt-of-002": "completed",
    "evt-of-003": "completed",
    "evt-of-004": "completed",
}


def prepare(home: Path) -> None:
    """Four events, three results and a run that has been due since new year."""
    places = homes.make(home)
    yearly = {"name": "review", "cron": "0 0 1 1 *", "task_type": "yearly", "payload": {}, "catch_up": "latest"}
    homes.install(home, homes.GENERAL, schedules=[yearly])
    handled = {f"{homes.GENERAL}:review": {"handled": "2020-06-01T00:00:00Z"}}
    homes.write(places.own("king") / "schedule-sent.json", handled)
    answer = {"task_id": ASKED, "human_response": "yes"}
    homes.put(
        home,
        "events",
        "pending",
        homes.event(ROUTED),
        homes.event(UNWANTED, "github.issue.assigned"),
        homes.event(ANSWER, "console.human_response", payload=answer),
        homes.event(LATE_ANSWER, "console.human_response", payload={**answer, "task_id": "task-20200101-001"}),
    )
    question = {"target_general": homes.GENERAL, "task_id": ASKED, "repo": "acme/shop", "question": "May I?"}
    homes.write(places.checkpoint(ASKED), question)
    homes.write(places.checkpoint(OPEN), {**question, "task_id": OPEN, "question": "May I merge?"})
    results = {
        WELL: {
            "status": "success",
            "summary": "Looks good",
            "proclamation": {"channel": "news", "message": "News for all"},
        },
        BADLY: {"status": "failed", "error": "no compiler"},
        OPEN: {"status": "needs_human", "question": "May I merge?"},
    }
    for task, result in results.items():
        homes.put(home, "events", "dispatched", homes.event(f"evt-of-{task[-3:]}", task_id=task))
        homes.put(home, "tasks", "in_progress", homes.task(task, f"evt-of-{task[-3:]}"))
        homes.write(places.result(task), {"task_id": task, **result})


def check(home: Path) -> list[str]:
    return [*oracle.tidy(home), *_events(home), *_tasks(home), *_letters(home), *_memory(home)]


def _events(home: Path) -> list[str]:
    there = oracle.states_of(home, "events")
    return [
        f"event {name} lies in {there.get(name)}"
        for name, state in EXPECTED_STATES.items()
        if there.get(name) != [state]
    ]


def _tasks(home: Path) -> list[str]:
    made = Counter(task["event_id"] for task in oracle.contents(home, "tasks"))
    wrong = [
        line for name, count in EXPECTED_TASKS.items() for line in oracle.exactly(f"tasks of {name}", count, made[name])
    ]
    states = oracle.states_of(home, "tasks")
    return wrong + [
        f"task {name} lies in {states.get(name)}" for name in (WELL, BADLY, OPEN) if states.get(name) != ["completed"]
    ]


def _letters(home: Path) -> list[str]:
    causes = {task["id"]: task["event_id"] for task in oracle.contents(home, "tasks")}
    written: Counter[str] = Counter()
    wrong = []
    for message in oracle.contents(home, "messages"):
        task = str(message["task_id"]).removeprefix("proclamation-")
        if message["content"].startswith("[failed] the question of"):
            written["lost answer"] += 1
        elif message["type"] == "thread_update":
            resumed = [other for other in oracle.contents(home, "tasks") if other.get("thread_task_id") == task]
            written.update(f"{message['content']}|{other['event_id']}" for other in resumed)
        elif task not in causes:
            wrong.append(f"message {message['id']} is about {task}, which is not there")
        else:
            written[f"{message['content']}|{causes[task]}"] += 1
    expected = Counter({**EXPECTED_LETTERS, "lost answer": 1})
    for what in expected | written:
        wrong += oracle.exactly(f"messages {what!r}", expected[what], written[what])
    return wrong


def _memory(home: Path) -> list[str]:
    """What keeps a replay from becoming a second task when the files are gone."""
    lines = (Places(home).own("king") / "done.idx").read_text().splitlines()
    known = {line.split(" ")[1] for line in lines}
    return [f"{name} is not in done.idx" for name in (ROUTED, ANSWER) if name not in known]


KING = Step("king", ARGV, prepare, check)


FAILED, WAITING = "task-20260206-001", "task-20260206-002"
UNWANTED_ONCE, HELD = "evt-github-3-2026-02-07T10:00:00Z", "evt-jira-QP-1-20260207100000"
ASKED_FOR = {"retry": FAILED, "cancel": WAITING, "requeue": UNWANTED_ONCE, "discard": HELD}


def prepare_orders(home: Path) -> None:
    """One order of each kind, all of which can be carried out; the gate holds what is not urgent."""
    places = homes.make(home)
    homes.write(places.resources, {"timestamp": "2100-01-01T00:00:00Z", "health": "yellow"})
    ended = {"status": "failed", "outcome": "failed", "letters": {"end": "msg-failed"}}
    homes.put(home, "tasks", "completed", homes.task(FAILED, "evt-old", **ended))
    homes.put(home, "messages", "sent", homes.message("msg-failed", task_id=FAILED, status="sent"))
    homes.write(places.result(FAILED), {"task_id": FAILED, "status": "failed", "error": "no compiler"})
    homes.put(home, "tasks", "pending", homes.task(WAITING, "evt-waiting"))
    homes.put(home, "events", "dispatched", homes.event("evt-waiting", task_id=WAITING))
    unwanted = homes.event(UNWANTED_ONCE, priority="high", status="discarded", discarded_reason="nobody")
    homes.put(home, "events", "completed", unwanted)
    homes.put(home, "events", "pending", homes.event(HELD))
    homes.put(
        home,
        "orders",
        "pending",
        *(homes.order(f"ord-{action}", action=action, target=target) for action, target in ASKED_FOR.items()),
    )


def check_orders(home: Path) -> list[str]:
    wrong = oracle.tidy(home)
    orders = {order["id"]: order for order in oracle.contents(home, "orders")}
    for action in ASKED_FOR:
        order = orders.get(f"ord-{action}", {})
        if order.get("state") != "done" or str(order.get("outcome")).startswith("refused"):
            wrong.append(f"{action} lies in {order.get('state')}: {order.get('outcome')}")
    states = {kind: oracle.states_of(home, kind) for kind in ("events", "tasks")}
    expected = {("tasks", FAILED): "completed", ("tasks", WAITING): "completed", ("events", "evt-waiting"): "completed"}
    expected |= {("events", UNWANTED_ONCE): "dispatched", ("events", HELD): "completed"}
    for (kind, name), state in expected.items():
        if states[kind].get(name) != [state]:
            wrong.append(f"{name} lies in {states[kind].get(name)}")
    made = Counter(task["event_id"] for task in oracle.contents(home, "tasks"))
    wrong += oracle.exactly("tasks of the event that was tried again", 2, made["evt-old"])
    wrong += oracle.exactly("tasks of the event taken back up", 1, made[UNWANTED_ONCE])
    return wrong + oracle.exactly("tasks of the discarded event", 0, made[HELD])


ORDERS = Step("king's orders", ARGV, prepare_orders, check_orders)


@trees.in_campaigns
def test_no_kill_leaves_an_order_half_carried_out(figure: oracle.Figure) -> None:
    report = none_bad(sweep(ORDERS, KILL, budget=QUICK_POINTS), figure)
    assert not report.missed, report.details


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_file_call_of_the_king_loses_or_doubles_anything(fault: str, figure: oracle.Figure) -> None:
    report = none_bad(sweep(KING, fault, budget=QUICK_POINTS), figure)
    assert not report.missed, report.details


@trees.in_campaigns
def test_what_cannot_be_read_for_a_moment_is_not_taken_for_bad(figure: oracle.Figure) -> None:
    report = none_bad(sweep(replace(KING, name="king's reads"), BROKEN, budget=QUICK_POINTS, calls=READING), figure)
    assert not report.missed, report.details


def test_no_power_cut_under_the_king_loses_or_doubles_anything(figure: oracle.Figure) -> None:
    none_bad(power_cuts(KING, budget=QUICK_STATES), figure)
