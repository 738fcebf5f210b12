"""Row 25: a week of normal days, its clock pressed together: all is served once, told on time, and nobody grows."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.faults import oracle, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import ROLES, Kingdom, Load, kingdom
from tests.faults.watch.test_clock import clock, with_clock
from tests.waiting import SOON, wait_until

HOURS = 7 * 24
MORNING = {"name": "morning", "cron": "0 9 * * 1-5", "task_type": "look"}
MANIFEST = {"engine": "command", "sandbox": "off", "max_soldiers": 4, "schedules": [MORNING]}
CONFIG = {
    "system": {"timezone": "UTC", "heartbeat": {"threshold_seconds": 12}, "roles": {"mailbox": True}},
    "king": {"intervals": {"schedule_check_seconds": 0.3}, "concurrency": {"max_soldiers": 50}},
    # The times of files other than heartbeats are the machine's own; their age is judged by the clock that runs ahead.
    "chamberlain": {
        "intervals": {"roll_call_seconds": 0.3, "vitals_seconds": 0.3},
        "retention": {"queue_days": 90, "results_days": 90},
    },
}
REPORTS = {"daily": 7, "weekly": 1}
REPORT_HOUR = 18
MOST_GROWTH_KB = 3_000


def arrivals(hour: int) -> int:
    """Quiet nights, a heap in the morning, some in the afternoon, a little on the weekend."""
    day, hour = divmod(hour, 24)
    if day > 4:
        return int(hour in (11, 17))
    return 12 if hour == 9 else 2 if 10 <= hour < 19 else 0


def live(court: Kingdom, load: Load) -> dict[str, list[tuple[int, int]]]:
    """Live a week from Monday, half past midnight. Return each role's memory and descriptors after each day."""
    now = datetime.now(UTC)
    monday = (now + timedelta(days=7 - now.weekday())).replace(hour=0, minute=30, second=0)
    begin = int((monday - now).total_seconds())
    clock(court, begin)
    court.up()
    known = court.places.own("chamberlain") / "reports.json"
    wait_until(known.exists, SOON, "the chamberlain knows since when to report")
    sizes: dict[str, list[tuple[int, int]]] = {role: [] for role in ROLES}
    for hour in range(HOURS):
        clock(court, begin + hour * 3600)
        load.arrive(arrivals(hour))
        load.wait_done(SOON)
        wait_for_turns(court)
        if hour % 24 == REPORT_HOUR:
            wait_until(lambda day=hour // 24: told(court)["daily"] > day, SOON, "the daily report")
        if hour % 24 == 23:
            for role in ROLES:
                sizes[role].append(size(court.pid(role)))
    return sizes


def reports(court: Kingdom) -> list[str]:
    messages = [message for message in court.messages() if message["type"] == "report"]
    return [str(message["content"]) for message in sorted(messages, key=lambda message: str(message["created_at"]))]


def told(court: Kingdom) -> Counter[str]:
    """Count the reports by kind."""
    return Counter(text.split()[0].strip("[") for text in reports(court))


def wait_for_turns(court: Kingdom) -> None:
    """Each hour, whoever looks at the clock has looked at it."""
    before = {role: court.beat(role)["seq"] for role in ("king", "chamberlain")}
    wait_until(lambda: all(court.beat(role)["seq"] > seq + 1 for role, seq in before.items()), SOON, "a turn of each")


def size(pid: int) -> tuple[int, int]:
    """Return the kB that a process has for itself, and how many descriptors it holds."""
    rows = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    own = sum(int(row[1]) for row in rows if row[0] in ("Private_Clean:", "Private_Dirty:"))
    return own, len(os.listdir(f"/proc/{pid}/fd"))


@trees.in_campaigns
def test_a_week_is_served_once_reported_on_time_and_no_role_grows(figure: Figure) -> None:
    with kingdom("supervisord", tree=trees.program(), config=CONFIG, manifest=MANIFEST, env=with_clock()) as court:
        load = Load(court)
        sizes = live(court, load)
        tasks = oracle.contents(court.home, "tasks")
        runs = [task["scheduled_for"] for task in tasks if task.get("scheduled_for")]
        print(*reports(court), sep="\n\n")
        sent = dict(told(court))
        wrong = [*oracle.half_visible(court.home), *oracle.parked(court.home), *court.missed()]
        wrong += oracle.exactly("tasks of events", load.put, len(tasks) - len(runs))
        wrong += oracle.exactly(
            "events with a task", load.put, len({task["event_id"] for task in tasks if not task.get("scheduled_for")})
        )
        wrong += oracle.exactly("mornings", 5, len(set(runs)))
        wrong += oracle.exactly("runs", 5, len(runs))
        wrong += [f"{task['id']} is {task['state']}" for task in tasks if task["state"] != "completed"]
        wrong += [f"{kind} reports: {sent.get(kind)}" for kind, number in REPORTS.items() if sent.get(kind) != number]
        wrong += [f"the report is of trouble: {text}" for text in reports(court) if "Nothing needs you." not in text]
        wrong += unfair(court)
        for role, days in sizes.items():
            (first, files), (last, now_files) = days[0], days[-1]
            print(f"{role}: {[own for own, _ in days]} kB, {[fds for _, fds in days]} descriptors")
            wrong += [f"{role} grew from {first} to {last} kB"] if last > first + MOST_GROWTH_KB else []
            wrong += [f"{role} holds {now_files} descriptors, not {files}"] if now_files > files + 2 else []
    growth = max(days[-1][0] - days[0][0] for days in sizes.values())
    figure(
        f"row 25 a week in {HOURS} steps: {load.put} events, 5 runs, {sent} reports, {len(wrong)} wrong; "
        f"from the first evening to the last nobody grew by more than {growth} kB"
    )
    assert not wrong, "\n".join(wrong)


def unfair(court: Kingdom) -> list[str]:
    """Whoever came first is served first, as long as nothing is more urgent: here all is alike."""
    served = [line.split()[0] for line in (court.home / "begun").read_text().splitlines()]
    made = {task["id"]: task["created_at"] for task in oracle.contents(court.home, "tasks")}
    times = [made[task] for task in served]
    return [
        f"{task} was served late" for task, at, last in zip(served[8:], times[8:], times, strict=False) if at < last
    ]
