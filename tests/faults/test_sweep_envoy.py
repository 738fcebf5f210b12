"""The envoy, killed or cut off from its disk at every file call: every message is on the console once, in its
thread, and filed."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places
from tests.faults import homes, oracle
from tests.faults.sweep import FAULTS, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, sweep

ARGV = ("-m", "kingdom.envoy", "--once")
TASK, ASKING = "task-20260207-001", "task-20260207-002"
START, FINAL, UPDATE, QUESTION, ALERT, REPORT = (f"msg-20260207-00{number}" for number in range(1, 7))


def prepare(home: Path) -> None:
    """One message of each kind that the king writes, one of them in a thread that stands already."""
    homes.make(home, config={"envoy": {"retry": {"backoff_seconds": 0}}})
    thread = {ASKING: {"channel": "console", "room": "dev-eddy", "thread": "1770458400.000001"}}
    homes.write(Places(home).own("envoy") / "thread-mappings.json", thread)
    transcript = Places(home).own("envoy") / "console" / f"{datetime.now(UTC):%Y-%m-%d}.jsonl"
    make_folder(transcript.parent)
    earlier = {"ts": "1770458400.000001", "letter": "msg-20260206-001", "text": "[start] earlier"}
    transcript.write_text(f"{json.dumps(earlier)}\n")
    common = {"channel": "dev-eddy", "context": {}}
    question = {"checkpoint_path": "x", "reply_context": {"general": homes.GENERAL, "task_id": ASKING}}
    homes.put(
        home,
        "messages",
        "pending",
        homes.message(START, type="thread_start", task_id=TASK, content="[start] work", **common),
        homes.message(FINAL, task_id=TASK, dedup_key=f"{TASK}:notification:success", **common),
        homes.message(UPDATE, type="thread_update", task_id=ASKING, **common),
        homes.message(
            QUESTION, type="human_input_request", task_id=ASKING, urgency="high", **{**common, "context": question}
        ),
        homes.message(ALERT, task_id=None, urgency="urgent", **common),
        homes.message(REPORT, type="report", task_id=None, channel="news"),
    )


def check(home: Path) -> list[str]:
    return [*oracle.tidy(home), *_filed(home), *_said_once(home), *_threads(home), *_no_traces(home)]


def posts(home: Path) -> list[dict[str, Any]]:
    lines = []
    for path in sorted((Places(home).own("envoy") / "console").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue  # torn by a kill, and said again
    return lines


def _filed(home: Path) -> list[str]:
    states = oracle.states_of(home, "messages")
    messages = (START, FINAL, UPDATE, QUESTION, ALERT, REPORT)
    return [f"{name} lies in {states.get(name)}" for name in messages if states.get(name) != ["sent"]]


def _said_once(home: Path) -> list[str]:
    said = Counter(post["letter"] for post in posts(home))
    messages = (START, FINAL, UPDATE, QUESTION, ALERT, REPORT)
    return [line for name in messages for line in oracle.exactly(f"posts of {name}", 1, said[name])]


def _threads(home: Path) -> list[str]:
    by_letter = {post["letter"]: post for post in posts(home)}
    if not {START, FINAL, UPDATE, QUESTION} <= by_letter.keys():
        return []
    wrong = []
    begun_before = float(by_letter[START]["ts"]) < float(by_letter[FINAL]["ts"])
    if begun_before and by_letter[FINAL]["thread"] != by_letter[START]["ts"]:
        wrong.append("the final message is not in its task's thread")
    for name in (UPDATE, QUESTION):
        if by_letter[name]["thread"] != "1770458400.000001":
            wrong.append(f"{name} is not in its task's thread")
    book = Places(home).own("envoy") / "awaiting-responses.json"
    awaited = [row["task_id"] for row in json.loads(book.read_text())] if book.exists() else []
    return wrong + ([] if awaited == [ASKING] else [f"awaited are {awaited}"])


def _no_traces(home: Path) -> list[str]:
    own = Places(home).own("envoy")
    left = [path for folder in ("intents", "receipts") for path in (own / folder).glob("*")]
    return [f"left behind: {path.relative_to(home)}" for path in left]


ENVOY = Step("envoy", ARGV, prepare, check, restarts=2)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_file_call_of_the_envoy_loses_or_repeats_a_message(fault: str, figure: oracle.Figure) -> None:
    report = none_bad(sweep(ENVOY, fault, budget=QUICK_POINTS), figure)
    assert not report.missed, report.details


def test_no_power_cut_under_the_envoy_loses_or_repeats_a_message(figure: oracle.Figure) -> None:
    none_bad(power_cuts(ENVOY, budget=QUICK_STATES), figure)
