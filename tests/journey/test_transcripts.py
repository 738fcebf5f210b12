"""What people read of a piece of work, from its first message to its last; `pytest -s` prints it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.faults import oracle, trees
from tests.faults.watch import kingdoms
from tests.faults.watch.test_clock import clock, with_clock
from tests.journey.kingdoms import Kingdom, answer
from tests.waiting import SOON, stays, wait_until

BURST = 300
ENOUGH_TO_MISS_IT = 3.0


def told(kingdom: Kingdom, task: str, last: str) -> list[str]:
    kingdom.until(lambda: any(text.startswith(last) for text in kingdom.messages(task)), f"{last} of {task}")
    messages = kingdom.messages(task)
    print(f"\n{task}:", *messages, sep="\n  ")
    return messages


def installed(kingdom: Kingdom, name: str, run: str, **manifest: object) -> None:
    kingdom.ok("generals", "install", str(kingdom.general(name, run, **manifest)))
    kingdom.until(lambda: kingdom.runs(name), f"{name} runs")


def a_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("print('hello')\n")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "a first line")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@trees.in_campaigns
def test_a_review(own: Kingdom) -> None:
    repository = a_repository(own.home / "elsewhere" / "app")
    known = {"repositories": {"known": {"acme/app": str(repository)}}}
    (own.places.config / "general.yaml").write_text(json.dumps(known))
    reads = """
cat >prompt
grep -q 'Say hello' prompt
summary="$(git log --format=%s): one line, reads well"
printf '{"status": "success", "summary": "%s"}' "$summary" >"$KINGDOM_RESULT_PATH.tmp"
mv "$KINGDOM_RESULT_PATH.tmp" "$KINGDOM_RESULT_PATH"
"""
    installed(own, "gen-review", reads, subscribes=["github.pr.review_requested"])
    (own.home / "packages" / "gen-review" / "prompt.md").write_text("Review {{payload.subject_title}}\n")
    own.ok("generals", "install", str(own.home / "packages" / "gen-review"))
    payload = {"subject_title": "Say hello", "pr_number": "7", "reason": "review_requested"}
    own.event("evt-github-1-20261118", "github.pr.review_requested", repo="acme/app", payload=payload)
    own.until_there(own.places.queue_file("events", "completed", "evt-github-1-20261118"))
    assert told(own, own.task_of("evt-github-1-20261118"), "[complete]") == [
        "[start] github.pr.review_requested — acme/app",
        "[complete] github.pr.review_requested — a first line: one line, reads well",
    ]


@trees.in_campaigns
def test_out_of_scope_is_silent(kingdom: Kingdom) -> None:
    installed(kingdom, "gen-picky", answer(status="skipped", reason="only drafts"), subscribes=["a.draft"])
    kingdom.event("evt-a-1", "a.draft")
    kingdom.until_there(kingdom.places.queue_file("events", "completed", "evt-a-1"))
    task = kingdom.task_of("evt-a-1")
    assert kingdom.read("tasks", "completed", task)["outcome"] == "skipped"
    assert told(kingdom, task, "[start]") == ["[start] a.draft"]
    assert "reason: only drafts" in kingdom.ok("why", task)


def test_a_proclamation_is_said_beside_the_thread(kingdom: Kingdom) -> None:
    proclaims = answer(
        status="success",
        summary="released",
        notify_channel="releases",
        proclamation={"channel": "town-square", "message": "1.0 is out"},
    )
    installed(kingdom, "gen-crier", proclaims, subscribes=["a.release"])
    kingdom.event("evt-r-1", "a.release")
    kingdom.until_there(kingdom.places.queue_file("events", "completed", "evt-r-1"))
    task = kingdom.task_of("evt-r-1")
    assert told(kingdom, task, "[complete]") == ["[start] a.release", "[complete] a.release — released"]
    assert told(kingdom, f"proclamation-{task}", "1.0") == ["1.0 is out"]
    sent = {message["content"]: message["channel"] for message in kingdom.all("messages", "sent")}
    assert (sent["[complete] a.release — released"], sent["1.0 is out"]) == ("releases", "town-square")


def test_failed_after_its_tries(kingdom: Kingdom) -> None:
    installed(kingdom, "gen-hopeless", "echo no compiler >&2; exit 2", subscribes=["a.build"])
    kingdom.event("evt-b-1", "a.build")
    kingdom.until_there(kingdom.places.queue_file("events", "completed", "evt-b-1"))
    task = kingdom.task_of("evt-b-1")
    *_, last = told(kingdom, task, "[failed]")
    assert last.startswith("[failed] no result (ended with code 2): no compiler")
    assert kingdom.read("tasks", "completed", task)["attempt"] == 1


@trees.in_campaigns
def test_a_burst_is_served_whole(own: Kingdom) -> None:
    calm = {"concurrency": {"max_soldiers": 6}, "resources": {"stale_seconds": 3600}}
    (own.places.config / "king.yaml").write_text(json.dumps(calm))
    installed(own, "gen-quick", answer(status="success", summary="served"), subscribes=["a.wave"])
    began = time.monotonic()
    for number in range(BURST):
        own.event(f"evt-wave-{number}", "a.wave")
    done, ended = own.places.folder("messages", "sent"), own.places.folder("tasks", "completed")
    wait_until(lambda: len(os.listdir(done)) >= 2 * BURST, 30 + BURST, f"{2 * BURST} messages", [done])
    wait_until(lambda: len(os.listdir(ended)) >= BURST, SOON, f"{BURST} tasks have ended", [ended])
    print(f"\n{BURST} events, {2 * BURST} messages in {time.monotonic() - began:.1f} s")
    outcomes = Counter(task["outcome"] for task in own.all("tasks", "completed"))
    said = Counter(message["content"] for message in own.all("messages", "sent"))
    assert outcomes == {"success": BURST}
    assert said == {"[start] a.wave": BURST, "[complete] a.wave — served": BURST}
    assert Counter(task["event_id"] for task in own.all("tasks", "completed")).most_common(1)[0][1] == 1


START_SECONDS = 12
"""The king must run before his first evening: a schedule that he sees for the first time starts at that moment."""


@trees.in_campaigns
def test_weekdays_at_ten_in_the_evening() -> None:
    """By the clock: Friday's run comes, Saturday's does not, Monday's does."""
    evenings = {"name": "nightly", "cron": "0 22 * * 1-5", "task_type": "tests", "timezone": "UTC"}
    manifest = {"engine": "command", "sandbox": "off", "schedules": [evenings]}
    config = {
        "king": {"intervals": {"schedule_check_seconds": 0.5}, "resources": {"stale_seconds": 10**7}},
        "chamberlain": {"retention": {"queue_days": 60}},  # by that clock Friday's files are old as soon as written
    }
    friday = next_friday()
    with kingdoms.kingdom("tmux", config=config, manifest=manifest, env=with_clock()) as court:
        just_before(court, friday, START_SECONDS)
        court.up()
        wait_until(lambda: due(court), SOON, "Friday's run")
        just_before(court, friday + timedelta(days=1))
        stays(lambda: len(due(court)) == 1, 2.0 + ENOUGH_TO_MISS_IT, "nothing on Saturday")
        just_before(court, friday + timedelta(days=3))
        wait_until(lambda: len(due(court)) == 2, SOON, "Monday's run")
        runs = due(court)
    print(f"\n{', '.join(runs)}")
    assert runs == [f"{friday + timedelta(days=days):%Y-%m-%dT22:00:00Z}" for days in (0, 3)]


def next_friday() -> datetime:
    today = datetime.now(UTC).replace(hour=22, minute=0, second=0, microsecond=0)
    return today + timedelta(days=(4 - today.weekday()) % 7 + 7)


def just_before(court: kingdoms.Kingdom, evening: datetime, seconds: float = 2) -> None:
    clock(court, int(evening.timestamp() - seconds - time.time()))


def due(court: kingdoms.Kingdom) -> list[str]:
    return sorted(task["scheduled_for"] for task in oracle.contents(court.home, "tasks") if task.get("scheduled_for"))
