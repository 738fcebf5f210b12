"""The council's general, killed or cut off from its disk at every file call: each goal reaches leader once, and each
end becomes one result, with what was delivered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.council import players
from kingdom.council.mime import parse_message
from tests.faults import homes, oracle, trees
from tests.faults.sweep import FAULTS, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, sweep

ARGV = ("-m", "kingdom.general", players.GENERAL, "--once")
FRESH, ENDED, CANCELLED, ASKED, ANSWER, WORDS = (f"task-20260207-00{number}" for number in range(1, 7))
PLANNED, OPEN = "task-20260206-001", "task-20260206-002"
STATUSES = dict.fromkeys((FRESH, ENDED, ANSWER, WORDS), "success") | {CANCELLED: "failed", ASKED: "needs_human"}


def prepare(home: Path) -> None:
    """A fresh goal, one that has ended, one that is cancelled, one whose plan waits, a yes, further words."""
    homes.make(home)
    homes.install(home, players.GENERAL, engine="council", needs_model=False)
    places = Places(home)
    goals = {name: {"goal": f"a README for {name}", "folder": str(home)} for name in (FRESH, ENDED, CANCELLED, ASKED)}
    tasks = [_task(name, payload=payload) for name, payload in goals.items()]
    answers = {ANSWER: (PLANNED, "yes"), WORDS: (OPEN, "and be quick")}
    for name, (original, words) in answers.items():
        payload = {"original_task_id": original, "human_response": words, "session_id": original}
        tasks.append(_task(name, type="resume", payload=payload))
    homes.put(home, "tasks", "in_progress", *tasks)
    for folder in (places.council_goals, places.council_news, places.told("leader"), places.cancelled("x").parent):
        folder.mkdir(parents=True)
    for name, more in {
        ENDED: {},
        CANCELLED: {},
        OPEN: {},
        ASKED: {"approve": True},
        PLANNED: {"approve": True},
    }.items():
        _write(places.council_goal(name), _note(name, sent=True, **more))
    made = places.workspaces / "council" / "ignitian_1" / "README-outline.md"
    made.parent.mkdir(parents=True)
    made.write_text("# an outline\n")
    for name in (FRESH, ENDED, PLANNED):
        end = {"thread": name, "status": "success", "summary": "done", "deliverables": [{"location": str(made)}]}
        _write(places.council_end(name), end)
    _write(places.council_plan(ASKED), {"thread": ASKED, "titles": ["a", "b"]})
    _write(places.cancelled(CANCELLED), {"task_id": CANCELLED, "by": "console"})


def _task(name: str, **fields: Any) -> dict[str, Any]:
    return homes.task(name, f"evt-{name}", **{"target_general": players.GENERAL, "type": "council.message", **fields})


def _note(thread: str, **fields: Any) -> dict[str, Any]:
    note = {"thread": thread, "task": thread, "root": thread, "goal": "a README", "context": "", "workspace": "/"}
    note |= {"reply_to": None, "reply_context": {}, "approve": False, "approved": None, "sent": False, "over": None}
    return {**note, "begun": "2100-01-01T00:00:00Z", **fields}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def check(home: Path) -> list[str]:
    """Return what is wrong: leader has each word once, each end is a result, what waits waits."""
    places = Places(home)
    wrong = oracle.tidy(home)
    sent = [parse_message(path.read_text()) for path in sorted(places.agent("leader").glob("*.mime"))]
    words = sorted(str(message["body"]).partition("\n")[0] for message in sent)
    expected = [f'goal: "a README for {FRESH}"', 'goal: "and be quick"']
    wrong += [] if words == expected else [f"leader has {words}"]
    for name, status in STATUSES.items():
        found = json.loads(places.result(name).read_text()) if places.result(name).exists() else {}
        wrong += [] if found.get("status") == status else [f"the result of {name}: {found.get('status')}"]
    notes = {path.stem: json.loads(path.read_text()) for path in places.council_goals.glob("*.json")}
    over = sorted(name for name, note in notes.items() if note["over"])
    wrong += [] if over == sorted([FRESH, ENDED, CANCELLED, PLANNED]) else [f"over are {over}"]
    answered = notes[PLANNED]
    wrong += [] if (answered["approved"], answered["task"]) == (True, ANSWER) else [f"the answer: {answered}"]
    kept = places.deliverables / ENDED / "README-outline.md"
    if not json.loads(places.council_end(ENDED).read_text())["deliverables"][0]["location"].startswith(str(home)):
        return wrong  # this home is a copy of the one in which the file was made
    return wrong + ([] if kept.exists() and kept.read_text() == "# an outline\n" else ["nothing was delivered"])


GOAL = Step("goal", ARGV, prepare, check, timeout=30)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_file_call_loses_or_doubles_a_goal(fault: str, figure: oracle.Figure) -> None:
    none_bad(sweep(GOAL, fault, budget=QUICK_POINTS), figure)


@trees.in_campaigns
def test_no_power_cut_loses_or_doubles_a_goal(figure: oracle.Figure) -> None:
    none_bad(power_cuts(GOAL, budget=QUICK_STATES), figure)
