"""What other kings, generals and envoys write where we would write something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadMessage
from kingdom.base.home.places import Places
from kingdom.base.log import Log
from kingdom.base.records import foreign, notes
from kingdom.base.records.messages import Filed
from kingdom.base.records.queues import Queue, Queues
from kingdom.base.records.soldiers import CONSENT
from tests import fixtures as made
from tests.fixtures import Clock, founded, put, write

TASK = "task-20260207-001"
EMPTY = {"general": "gen-pr", "session_id": "s-1", "repo": ""}
NONE = {**EMPTY, "repo": None}


def taken(home: Path, kind: str, **fields: Any) -> Filed | None:
    """What a role takes from a file in pending/."""
    places = founded(home)
    disk = Disk(places.scratch("king"), durability="process")
    queues = Queues(places, disk, Log(places, "king", disk, Clock()), Clock())
    whole = getattr(made, kind.removesuffix("s"))(**fields)
    put(home, kind, "pending", **whole)
    queue: Queue[Any] = getattr(queues, kind)
    record: Filed | None = queue.take("pending", f"{whole['id']}.json")
    return record


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        ("events", {"repo": ""}, {"repo": None}),
        ("tasks", {"repo": ""}, {"repo": None}),
        ("events", {"payload": {"reply_context": EMPTY}}, {"payload": {"reply_context": NONE}}),
        ("tasks", {"payload": {"reply_context": EMPTY}}, {"payload": {"reply_context": NONE}}),
        ("messages", {"context": {"reply_context": EMPTY}}, {"context": {"reply_context": NONE}}),
        ("messages", {"reply_context": EMPTY}, {"reply_context": NONE}),
        ("events", {"payload": None}, {"payload": {}}),
        ("tasks", {"payload": None}, {"payload": {}}),
        ("messages", {"context": None}, {"context": {}}),
        ("events", {"priority": None}, {"priority": "normal"}),
        ("events", {"priority": "urgent"}, {"priority": "normal"}),
        ("tasks", {"priority": ["high"]}, {"priority": "normal"}),
        ("tasks", {"priority": "low"}, {"priority": "low"}),
        ("messages", {"urgency": None}, {"urgency": "normal"}),
        ("messages", {"urgency": "low"}, {"urgency": "normal"}),
        ("messages", {"urgency": "urgent"}, {"urgency": "urgent"}),
        ("tasks", {"retry_count": None}, {"attempt": 0}),
        *(
            (kind, {"created_at": at}, {"created_at": "2026-11-18T09:30:00Z"})
            for kind in ("events", "tasks", "messages")
            for at in ("2026-11-18T18:30:00+09:00", "20261118T093000Z", "2026-11-18 06:00:00-0330", "2026-11-18T09:30z")
        ),
        ("events", {"created_at": "2026-11-18T18:30:00.5+09:00"}, {"created_at": "2026-11-18T09:30:00.500000Z"}),
        ("events", {"created_at": "2026-11-18T09:30:00.123456789Z"}, {"created_at": "2026-11-18T09:30:00.123456789Z"}),
        ("tasks", {"not_before": "2026-11-18T18:30:00+09:00"}, {"not_before": "2026-11-18T09:30:00Z"}),
    ],
)
def test_what_is_spelt_otherwise_is_read(home: Path, kind: str, written: dict[str, Any], read: dict[str, Any]) -> None:
    record = taken(home, kind, **written)
    assert record is not None, "it was set aside"
    assert {name: getattr(record, name) for name in read} == read


def test_a_checkpoint_without_a_repository_or_a_payload(home: Path) -> None:
    path = founded(home).checkpoint(TASK)
    write(path, {"task_id": TASK, "target_general": "gen-pr", "repo": "", "payload": None})
    checkpoint = notes.checkpoint(founded(home), TASK)
    assert (checkpoint.repo, checkpoint.payload, checkpoint.workspace) == (None, {}, None)


FITTING: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"memory_updates": None}, {"memory_updates": []}, 1),
    ({"memory_updates": "one"}, {"memory_updates": []}, 1),
    ({"memory_updates": ["one", 2, None]}, {"memory_updates": ["one"]}, 1),
    ({"memory_updates": ["x"] * 201}, {"memory_updates": ["x"] * 200}, 1),
    ({"metrics": None}, {"metrics": {}}, 1),
    ({"metrics": {"cost_usd": 1e308, "tokens_used": 5}}, {"metrics": {"tokens_used": 5}}, 1),
    ({"metrics": {"duration_seconds": "12", "tokens_used": None}}, {"metrics": {}}, 1),
    ({"proclamation": {}}, {"proclamation": None}, 1),
    ({"proclamation": ""}, {"proclamation": None}, 1),
    ({"proclamation": {"channel": "C1"}}, {"proclamation": None}, 1),
    ({"proclamation": {"channel": "", "message": "m"}}, {"proclamation": None}, 1),
    ({"summary": 5, "error": [], "notify_channel": {}}, {"summary": None, "error": None, "notify_channel": None}, 3),
    ({"session_id": 7, "quota": "soon"}, {"session_id": None, "quota": None}, 2),
    ({"quota": {"resets_at": 5, "seen": 1}}, {"quota": {"seen": 1}}, 1),
    ({"question": 5}, {"question": None}, 1),
    ({"notify_channel": "", "proclamation": None, "summary": None}, {"notify_channel": None}, 0),
]


@pytest.mark.parametrize(("written", "read", "dropped"), FITTING)
def test_an_optional_field_that_does_not_fit_is_dropped(
    written: dict[str, Any], read: dict[str, Any], dropped: int
) -> None:
    result, warnings = foreign.result({"task_id": TASK, "status": "success", **written})
    assert {name: getattr(result, name) for name in read} == read
    assert (result.status, len(warnings)) == ("success", dropped), warnings
    assert all(any(f"does not fit in {name}" in warning for name in written) for warning in warnings)


def test_killed_means_failed() -> None:
    result, warnings = foreign.result({"task_id": TASK, "status": "killed"})
    assert (result.status, result.error, warnings) == ("failed", None, [])


@pytest.mark.parametrize(
    "fields", [{"status": "fine"}, {"status": None}, {"status": ["failed"]}, {"status": "needs_human", "question": 5}]
)
def test_what_a_result_cannot_do_without_must_fit(fields: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        foreign.result({"task_id": TASK, **fields})


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({"question": "Well. " + foreign.OLD_CONSENT.format("gen-pr")}, CONSENT),
        ({"question": foreign.OLD_CONSENT.format("gen-other")}, None),
        ({"question": "which?"}, None),
        ({"question": foreign.OLD_CONSENT.format("gen-pr"), "asks": "more"}, "more"),
    ],
)
def test_a_question_for_consent_is_known_though_an_older_general_asked_it(
    fields: dict[str, str], asks: str | None
) -> None:
    assert foreign.checkpoint({"task_id": TASK, "target_general": "gen-pr", **fields}).asks == asks


def test_keys_of_others_make_no_other_record(home: Path) -> None:
    assert taken(home, "tasks", colour="blue") == taken(home, "tasks")


@pytest.mark.parametrize("at", ["2026-11-18T09:30:00", "2026-11-18", "18.11.2026 09:30", "0001-01-01T00:00:00+09:00"])
def test_a_time_that_says_not_which_is_refused_in_words(home: Path, at: str) -> None:
    """Without an offset it may be any of two dozen."""
    assert taken(home, "events", id="evt-1", created_at=at) is None
    told = read_json(Places(home).folder("events", "dead") / "evt-1.json.reason")["reason"]
    asked = (
        "created_at must be a time with its offset from UTC, such as 2026-11-18T09:30:00Z or 2026-11-18T18:30:00+09:00"
    )
    assert asked in told
    assert f"not {at!r}" in told
