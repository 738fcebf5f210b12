"""The council, killed or cut off from its disk at every file call: each message is told as often as the rules say,
deleted ones stay so, and what failed is given up, and escalated, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places, find_codec
from kingdom.council import mime
from kingdom.council.bodies import original_of, read_body
from tests.faults import homes, oracle
from tests.faults.oracle import exactly
from tests.faults.sweep import FAULTS, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, processes_of, sweep
from tests.machine import needs_sandbox

ARGV = ("-m", "kingdom.council", "--once")
NOTE = 'printf "\\n%s\\n" "$(basename "$1")" >>"$KINGDOM_HOME/served.txt"; '
AGENTS = {"leader": 'rm "$1"', "architect": "exit 3", "strategist": "true", "evaluator": "exit 4"}
GOAL, FAILS, CRITICAL, BAD, PROGRESS = (f"message_{1_770_000_000_000_000 + number}.mime" for number in range(5))
NAMED = "user_goal_1770000009000000.mime"
"""How a message is called in the end whose own name does not fit."""
TRIES = {GOAL: 1, NAMED: 1, FAILS: 2, CRITICAL: 2, BAD: 0}
SENDS, ASKED = "innovator", "message_1770000000000005.mime"
"""An agent in its sandbox, and its message: it sends leader one of type insight_result."""
SENDING = f"python3 {find_codec()} send --from {SENDS} --to leader --type insight_result --body '{{a: b}}'"
GIVEN_UP = {FAILS: "architect", CRITICAL: "strategist", BAD: "evaluator"}
SENT = "insight_result_"
ESCALATIONS = 3
"""Of the critical message at its first failure, and of both at their last."""


SYNCED = 'sync "$KINGDOM_HOME/served.txt" "$KINGDOM_HOME"; '
"""What an agent notes outlasts a power cut."""


def prepare(home: Path, note: str = NOTE) -> None:
    agents = {
        name: {"command": ["sh", "-c", note + script, "agent"], "sandbox": False} for name, script in AGENTS.items()
    }
    agents[SENDS] = {"command": ["sh", "-c", f'{SENDING} && rm "$1"', "agent"]}
    settings: dict[str, Any] = {"agents": agents, "retry": {"base_delay": 0}, "dlq": {"max_retries": 1}}
    places = homes.make(home, config={"council": settings})
    put(places, "leader", GOAL)
    put(places, "leader", "odd.mime", date="Mon, 02 Feb 2026 02:40:09 +0000")
    put(places, "architect", FAILS)
    put(places, "strategist", CRITICAL, priority="critical")
    put(places, "evaluator", BAD, body="- no mapping\n")
    put(places, SENDS, ASKED)
    put(
        places,
        "user",
        PROGRESS,
        from_agent="leader",
        msg_type="progress_update",
        body="repository: ''\nsummary: seen\n",
    )


def prepare_for_a_cut(home: Path) -> None:
    prepare(home, NOTE + SYNCED)


def put(places: Places, agent: str, name: str, date: str = "", **fields: Any) -> None:
    fields = {"from_agent": "user", "to_agents": agent, "msg_type": "user_goal", "body": "goal: x\n", **fields}
    raw = mime.build_message(**fields)
    path = places.agent(agent) / name
    places.told(agent).mkdir(parents=True, exist_ok=True)
    path.write_bytes((mime.update_header(raw, "Date", date) if date else raw).encode())


def half_visible(home: Path) -> list[str]:
    wrong = oracle.half_visible(home)
    for path in Places(home).council.rglob("*.mime"):
        if path.name != BAD and not path.name.startswith(".") and (faults := mime.faults(path.read_bytes())):
            wrong.append(f"half visible: {path.relative_to(home)}: {faults[0]}")
    return wrong


def served(home: Path) -> Counter[str]:
    notes = home / "served.txt"
    return Counter(notes.read_text().split() if notes.exists() else [])


def _given_up(home: Path) -> list[str]:
    """Everything has left the queue but for one dead letter of each message that failed, with the message in it."""
    places = Places(home)
    wrong = [
        f"still there: {path.relative_to(home)}"
        for path in places.council.rglob("*.mime")
        if path.parent != places.dead_letters
    ]
    found: Counter[str] = Counter()
    for path in places.dead_letters.iterdir():
        body = read_body(mime.extract_body(path.read_text()))
        found[body["original_file"]] += 1
        if "MIME-Version: 1.0\n" not in original_of(body).decode():
            wrong.append(f"{path.name} does not hold its message")
    wrong += [line for name, agent in GIVEN_UP.items() for line in exactly(name, 1, found[f"{agent}/{name}"])]
    return wrong + exactly("dead letters", len(GIVEN_UP), found.total())


def _no_traces(home: Path) -> list[str]:
    places = Places(home)
    left = [
        *places.council.rglob(".*"),
        *places.agent_turns.iterdir(),
        *places.outboxes.rglob("*.*"),
        *places.postings.rglob("*.mime"),
    ]
    wrong = [f"left behind: {path.relative_to(home)}" for path in left]
    return wrong + [f"a process is left: {pid}" for pid in processes_of(home)]


def check(home: Path) -> list[str]:
    """What holds after a kill: nobody is told once too often."""
    told = served(home)
    wrong = [line for name, times in TRIES.items() for line in exactly(f"times {name} was told", times, told[name])]
    escalations = [times for name, times in told.items() if name.startswith("escalation_")]
    wrong += exactly("escalations", ESCALATIONS, len(escalations))
    wrong += exactly("times escalations were told", ESCALATIONS, sum(escalations))
    wrong += exactly("messages that were sent", 1, sum(times for name, times in told.items() if name.startswith(SENT)))
    return [*wrong, *oracle.tidy(home), *_given_up(home), *_no_traces(home), *_people_were_told(home)]


def check_after_a_cut(home: Path) -> list[str]:
    """What holds after a power cut: what an agent deleted just before may come back, and is told again."""
    told = served(home)
    wrong = [f"{name} was never told" for name, times in TRIES.items() if times and not told[name]]
    if not any(name.startswith(SENT) for name in told):
        wrong.append("what an agent sent was lost")
    return [*wrong, *oracle.tidy(home), *_given_up(home), *_no_traces(home), *_people_were_told(home)]


def _people_were_told(home: Path) -> list[str]:
    """People read what leader wrote to `user`, once, and no alert."""
    told = [message["content"] for message in oracle.contents(home, "messages")]
    return [] if told == ["[council] leader: seen"] else [f"people were told {told}"]


COUNCIL = Step("council", ARGV, prepare, check, at_fault=half_visible, timeout=180, steady=False)
CUT = Step("council", ARGV, prepare_for_a_cut, check_after_a_cut, at_fault=half_visible, timeout=180, steady=False)


@pytest.mark.parametrize("fault", FAULTS)
@needs_sandbox
def test_no_fault_at_any_file_call_of_the_council_loses_or_repeats_a_message(fault: str, figure: oracle.Figure) -> None:
    none_bad(sweep(COUNCIL, fault, budget=QUICK_POINTS), figure)


@needs_sandbox
def test_no_power_cut_under_the_council_loses_a_message(figure: oracle.Figure) -> None:
    none_bad(power_cuts(CUT, budget=QUICK_STATES), figure)
