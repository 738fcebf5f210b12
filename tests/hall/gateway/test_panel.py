"""What the page's panel is told of the kingdom: read from the files, in the form that /openapi.json names."""

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.base.home.roster import desired_state
from kingdom.base.runtime.processes import started_at
from kingdom.base.times import stamp
from kingdom.base.words import Said
from kingdom.court import reasons
from kingdom.court.soldiers import budgets
from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso
from kingdom.hall.gateway.openapi import DESCRIPTION
from kingdom.hall.gateway.orders import PageOrders
from kingdom.hall.gateway.panel import Panel, panel
from kingdom.hall.gateway.refusals import HttpRefusal
from tests.fixtures import Clock, event, founded, install, put, services, task, write
from tests.hall.gateway.halls import CHECKOUT

NOW = float(int(time.time()))
ROOM = "0b8f1c1e-0000-4000-8000-000000000001"
SCHEMA = DESCRIPTION["paths"]["/kingdom"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
TASK = "task-20260207-001"
ASKS = "task-20260207-007"
RESTS = {"not_before": stamp(NOW + 60), "waits_because": "attempt 1 failed: no tests"}


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    install(home, "gen-pr")
    return places


@contextmanager
def running(places: Places, *roles: str) -> Iterator[None]:
    """Let roles hold their locks, and beat."""
    locks = []
    for role in roles:
        places.own(role).mkdir(parents=True, exist_ok=True)
        lock = Lock(places.lock(role), role)
        lock.acquire()
        locks.append(lock)
        write(places.heartbeat(role), {"pid": 1, "state": "idle"})
    try:
        yield
    finally:
        for lock in locks:
            lock.release()


def told(places: Places) -> dict[str, Any]:
    said = panel(places, NOW)
    jsonschema.validate(json.loads(json.dumps(said)), SCHEMA)
    return said


def given(places: Places) -> PageOrders:
    own = services(places.home, "gateway", Clock())
    return PageOrders(places, own.queues, own.disk, own.clock)


def ask(places: Places, room: str | None = ROOM) -> None:
    asked = {"question": "Which currency?\n- EUR\n- USD", "target_general": "gen-pr", "payload": {"headline": "#4"}}
    write(places.checkpoint(ASKS), asked)
    if room:
        rows = [{"task_id": ASKS, "thread_ts": "p1", "channel": room, "on": "hall"}]
        places.own("envoy").mkdir(parents=True, exist_ok=True)
        places.questions.write_text(json.dumps(rows))


def test_an_empty_kingdom_tells_that_its_king_does_not_run(places: Places) -> None:
    said = told(places)
    assert said["state"] == "stopped"
    assert said["line"] == "nothing runs: chamberlain and king do not run; `kingdom up` starts it"
    assert said["says"] == {"code": "stopped", "values": {"roles": "chamberlain, king", "command": "kingdom up"}}
    assert [said[kind] for kind in ("asking", "failed", "running", "waiting")] == [[], [], [], []]
    assert {"king", "gen-pr"} <= {role["name"] for role in said["roles"]}


def test_a_question_is_told_with_its_choices_and_its_room(places: Places) -> None:
    ask(places)
    [asked] = told(places)["asking"]
    assert asked["question"] == "Which currency?\n- EUR\n- USD"
    assert (asked["taskId"], asked["general"], asked["about"]) == (ASKS, "gen-pr", "#4")
    assert (asked["choices"], asked["roomId"]) == (["EUR", "USD"], ROOM)


def test_a_question_that_was_asked_elsewhere_has_no_room(places: Places) -> None:
    ask(places, room=None)
    places.own("envoy").mkdir(parents=True, exist_ok=True)
    places.questions.write_text(json.dumps([{"task_id": ASKS, "thread_ts": "1", "channel": "C1", "on": "slack"}, 7]))
    [asked] = told(places)["asking"]
    assert "roomId" not in asked


def test_a_task_that_is_worked_on_runs_and_says_where_it_speaks(places: Places) -> None:
    put(places.home, "tasks", "in_progress", **task(status="in_progress", created_at=stamp(NOW - 30)))
    speaks_in_a_room(places)
    with running(places, "king", "chamberlain", "gen-pr"):
        said = told(places)
    assert said["state"] == "working"
    assert said["line"] == f"1 task is worked on: {TASK}"
    [row] = said["running"]
    assert (row["taskId"], row["seconds"], row["hasSoldier"], row["roomId"]) == (TASK, 30.0, False, ROOM)


@pytest.mark.parametrize(
    ("lies", "state", "line"),
    [
        (
            {"tasks": task(**RESTS)},
            "waiting",
            f"{TASK} waits: attempt 1 failed: no tests",
        ),
        ({"events": event()}, "waiting", "evt-1 waits: the king has not come to it yet"),
        ({}, "asking", f"{ASKS} asks a person"),
    ],
)
def test_when_nothing_runs_it_says_why(places: Places, lies: dict[str, Any], state: str, line: str) -> None:
    for kind, thing in lies.items():
        os.utime(put(places.home, kind, "in_progress" if kind == "tasks" else "pending", **thing), (NOW - 9, NOW - 9))
    ask(places)
    with running(places, "king", "chamberlain", "gen-pr"):
        said = told(places)
    assert (said["state"], said["line"].partition(";")[0]) == (state, f"nothing runs: {line}")


def test_what_failed_is_told_with_its_reason(places: Places) -> None:
    put(places.home, "tasks", "completed", **task(outcome="failed"))
    write(places.result(TASK), {"error": "no tests"})
    [failed] = told(places)["failed"]
    assert (failed["what"], failed["why"], failed["taskId"]) == (TASK, "no tests", TASK)


def test_what_failed_and_is_no_task_has_no_task(places: Places) -> None:
    put(places.home, "messages", "failed", id="msg-1", refused_because="no such channel")
    [failed] = told(places)["failed"]
    assert (failed["what"], failed["requeues"]) == ("messages/failed/msg-1.json", "msg-1")
    assert "taskId" not in failed


def test_a_restart_that_an_owner_asks_for_names_the_process_and_is_told(places: Places) -> None:
    orders = given(places)
    with running(places, "king"):
        orders.restart("king", "anna@example.org")
        assert [role["name"] for role in told(places)["roles"] if role["restarting"]] == ["king"]
    wish = read_json(places.restart("king"))
    assert wish == {"pid": os.getpid(), "started": started_at(os.getpid()), "by": "anna@example.org"}
    assert desired_state(places, "king") == "up"


@pytest.mark.parametrize(
    ("role", "word", "status", "says"),
    [
        ("nobody", "up", 404, "There is no such role"),
        ("../king", "up", 404, "There is no such role"),
        ("gateway", "up", 404, "There is no such role"),
        ("envoy", "up", 409, "envoy does not run; `kingdom start envoy` starts it"),
        ("king", "down", 409, "king does not run; `kingdom start king` starts it"),
        ("king", "quarantined", 409, "king does not run; `kingdom start king` starts it"),
    ],
)
def test_a_restart_of_who_does_not_run_is_refused_in_one_line(
    places: Places, role: str, word: str, status: int, says: str
) -> None:
    places.wanted_folder.mkdir(parents=True, exist_ok=True)
    places.wanted("king").write_text(f"{word}\n")
    with running(places, "king"), pytest.raises(HttpRefusal) as refused:
        given(places).restart(role, "anna@example.org")
    assert (refused.value.status, refused.value.message) == (status, says)
    assert [path.name for path in places.wanted_folder.iterdir()] == ["king"]
    assert places.wanted("king").read_text() == f"{word}\n"


def test_many_who_look_at_once_cost_one_look(places: Places) -> None:
    looks = []

    def clock() -> float:
        looks.append(1)
        return NOW

    async def look() -> set[bytes]:
        with ThreadPoolExecutor(1) as threads:
            board = Panel(places, threads, clock)
            return set(await asyncio.gather(*(board.look() for _ in range(50))))

    [said] = asyncio.run(look())
    assert json.loads(said)["takenAt"] == iso(NOW)
    assert len(looks) == 1


def test_a_task_that_waits_says_where_it_speaks(places: Places) -> None:
    put(places.home, "tasks", "in_progress", **task(**RESTS))
    speaks_in_a_room(places)
    [waits] = told(places)["waiting"]
    assert (waits["id"], waits["roomId"]) == (TASK, ROOM)


def speaks_in_a_room(places: Places) -> None:
    """Note, as the envoy does, that the task has a room."""
    places.own("envoy").mkdir(parents=True, exist_ok=True)
    places.threads.write_text(json.dumps({TASK: {"thread_ts": "p1", "channel": ROOM, "on": "hall"}}))


def test_a_reason_is_told_as_data_with_the_reasons_within_it(places: Places) -> None:
    put(places.home, "tasks", "in_progress", **task(**RESTS))
    put(places.home, "tasks", "completed", **task(id="task-20260207-009", outcome="failed"))
    write(places.result("task-20260207-009"), {"error": "no such branch"})
    with running(places, "king", "chamberlain"):
        said = told(places)
    [waits] = said["waiting"]
    failed = {"code": "attempt_failed", "values": {"attempt": "1", "why": "no tests"}}
    assert waits["says"] == {"code": "goes_on", "values": {"why": failed, "seconds": 60.0}}
    assert said["says"] == {"code": "held", "values": {"id": TASK, "why": waits["says"]}}
    [foreign] = said["failed"]
    assert (foreign["why"], "says" in foreign) == ("no such branch", False)


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        ("attempt 2 failed: timeout: it took 61 s (timeout_seconds of gen-pr)", "attempt_failed"),
        ("timeout: it took 61 s (timeout_seconds of gen-pr)", "timeout"),
        (budgets._rests("claude", "2026-11-20T08:00:00Z"), "account_rests"),
        ("its budget of 5 usd is used up", "budget_used"),
        ("cancelled by anna@example.org", "cancelled_by"),
        ("no result (it ended with 3): Traceback", "no_result"),
        ("failed without a reason", "no_reason"),
    ],
)
def test_sentences_of_ours_that_lie_in_files_are_known(kept: str, code: str) -> None:
    said = reasons.read_reason(kept)
    assert isinstance(said, Said)
    assert (said, said.code) == (kept, code)


def test_every_sentence_of_the_kingdom_has_a_korean_one() -> None:
    source = "\n".join(path.read_text() for path in (CHECKOUT / "kingdom").rglob("*.py"))
    said = {*re.findall(r'\bSaid\(\s*"(\w+)"', source), *(code for code, _ in reasons.SHAPES)}
    korean = (CHECKOUT / "kingdom/hall/gateway/pages/words-ko.js").read_text().partition("  sentences: {\n")[2]
    assert set(re.findall(r"^    (\w+): \(", korean.partition("\n  },")[0], re.MULTILINE)) == said


def test_the_page_knows_the_kingdoms_own_ids() -> None:
    own = (CHECKOUT / "kingdom/hall/gateway/pages/own.js").read_text()
    assert re.findall(r'= "(.+)";', own) == [own_rooms.USER, own_rooms.THRONE_ROOM]
