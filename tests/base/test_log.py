"""What roles tell: sentences for people, events for machines, secrets for nobody."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kingdom
from kingdom.base.disk.atomic import Disk
from kingdom.base.home.places import Places
from kingdom.base.log import EVENTS, Log, as_json
from tests.fixtures import Clock, founded


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


def log_of(places: Places, secrets: list[str] | None = None, actor: str = "king") -> Log:
    return Log(places, actor, Disk(places.scratch(actor), durability="process"), Clock(), secrets or [])


def test_a_sentence_stands_in_its_roles_log_and_in_the_systems(places: Places) -> None:
    log = log_of(places)
    log.info("starts")
    log.warn("one\ntwo")
    assert not places.system_log.exists(), "written together at the end of a step"
    log.flush()
    told = "2026-02-07T10:00:00Z info  king: starts\n2026-02-07T10:00:00Z warn  king: one ⏎ two\n"
    assert places.role_log("king").read_text() == told
    assert places.system_log.read_text() == told


def test_an_event_is_one_line_of_json(places: Places) -> None:
    log = log_of(places)
    log.event("file.buried", kind="events", type="why", reason="one\ntwo 왕")
    log.flush()
    log.flush()
    (line,) = places.events_log.read_text().splitlines()
    assert json.loads(line) == {
        "ts": "2026-02-07T10:00:00Z",
        "type": "file.buried",
        "actor": "king",
        "data": {"kind": "events", "type": "why", "reason": "one\ntwo 왕"},
    }


def test_a_sentence_may_name_the_event_that_it_tells_of(places: Places) -> None:
    log = log_of(places)
    log.warn("lost it", event="message.failed", error="gone")
    log.flush()
    assert places.role_log("king").read_text().endswith("Z warn  king: lost it\n")
    event = json.loads(places.events_log.read_text())
    assert (event["type"], event["data"]) == ("message.failed", {"error": "gone"})


def test_an_event_of_an_unknown_type_is_an_error(places: Places) -> None:
    with pytest.raises(AssertionError):
        log_of(places).event("event.invented")


def test_secrets_are_struck_out_the_longest_first(places: Places) -> None:
    log = log_of(places, ["token-12345", "token-12345-and-more", "short", ""])
    log.info("token-12345-and-more, token-12345 and a short word")
    log.event("message.failed", error="token-12345")
    log.redact(["another-secret"])
    log.info("another-secret")
    log.flush()
    said = places.role_log("king").read_text()
    assert "[hidden], [hidden] and a short word" in said
    assert said.count("[hidden]") == 3
    assert "token" not in places.events_log.read_text()


@pytest.mark.parametrize("secret", ['with"quote', "back\\slash", "üñïçødé", "tab\tbed1"])
def test_secrets_are_struck_out_however_json_spells_them(places: Places, secret: str) -> None:
    log = log_of(places, [secret])
    log.event("message.failed", error=f"it said {secret}!")
    log.flush()
    assert json.loads(places.events_log.read_text())["data"]["error"] == "it said [hidden]!"


def test_what_would_steer_a_terminal_is_left_out(places: Places) -> None:
    log = log_of(places, ["token-12345"])
    log.info("\033]0;owned\a red\033[31m \x9b2J\r\ttabbed tok\033en-12345")
    log.event("message.failed", error="\x9b2J\x7f tok\x9ben-12345")
    log.flush()
    assert places.role_log("king").read_text().endswith(": ]0;owned red[31m 2J\ttabbed [hidden]\n")
    assert json.loads(places.events_log.read_text())["data"]["error"] == "2J [hidden]"


def test_names_that_are_no_utf8_are_told_all_the_same(places: Places) -> None:
    log = log_of(places)
    log.info(f"buried {os.fsdecode(b'n%ct' % 255)}")
    log.event("file.buried", file=os.fsdecode(b"n\xfft"))
    log.flush()
    assert "buried n" in places.role_log("king").read_text("utf-8")
    assert places.events_log.read_text("utf-8").count("\n") == 1


def test_a_disk_that_takes_no_log_stops_nobody(places: Places) -> None:
    places.system_log.mkdir()
    places.events_log.symlink_to("/dev/full")
    log = log_of(places)
    log.info("goes on")
    log.event("system.startup", role="king")
    log.flush()
    assert "goes on" in places.role_log("king").read_text()


def test_a_log_may_be_json_on_standard_error_too(places: Places, capfd: pytest.CaptureFixture[str]) -> None:
    log = log_of(places, ["token-12345"])
    log.also_as_json(True)
    log.warn("lost\ntoken-12345", event="message.failed", msg_id="msg-1", error="gone")
    log.flush()
    log.also_as_json(False)
    log.info("text alone")
    log.flush()
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line) == {
        "ts": "2026-02-07T10:00:00Z",
        "level": "warn",
        "role": "king",
        "message": "lost ⏎ [hidden]",
        "event": "message.failed",
        "data": {"msg_id": "msg-1", "error": "gone"},
    }
    assert places.role_log("king").read_text().count("\n") == 2


SHAPES = {
    "event.detected": {"event_id", "source", "event_type"},
    "event.dispatched": {"event_id", "task_id", "target_general"},
    "event.discarded": {"event_id", "event_type", "reason"},
    "task.created": {"task_id", "event_type", "target_general", "priority"},
    "task.completed": {"task_id", "status"},
    "task.failed": {"task_id", "error"},
    "task.needs_human": {"task_id", "question"},
    "task.resumed": {"task_id", "original_task_id"},
    "soldier.spawned": {"soldier_id", "task_id"},
    "soldier.completed": {"soldier_id", "task_id"},
    "soldier.timeout": {"soldier_id", "task_id", "timeout_seconds"},
    "soldier.killed": {"soldier_id", "task_id", "reason"},
    "system.health_changed": {"from", "to"},
    "system.heartbeat_missed": {"target", "threshold_seconds"},
    "system.session_orphaned": {"soldier_id", "task_id"},
    "recovery.session_restarted": {"target"},
    "recovery.log_rotated": {"file", "size_mb"},
    "recovery.files_cleaned": {"deleted_count"},
    "recovery.sessions_cleaned": {"removed_count"},
    "message.sent": {"msg_id", "task_id", "channel"},
    "message.human_response": {"task_id", "thread_ts"},
}
"""What readers of events.log in other kingdoms expect."""


def test_a_line_for_people_becomes_the_json_that_its_role_writes(
    places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_of(places)
    log.also_as_json(True)
    log.warn("it fails: no token: none\nat all")
    log.flush()
    written = json.loads(capfd.readouterr().err)
    assert json.loads(as_json(places.system_log.read_text().rstrip("\n"))) == written
    assert json.loads(as_json("odd")) == {"message": "odd"}


def test_events_have_the_fields_that_other_readers_expect() -> None:
    assert {type: needed for type, needed in SHAPES.items() if not needed <= set(EVENTS.get(type, ()))} == {}


def test_every_writer_gives_an_event_its_fields() -> None:
    """By the source: what a call names, and what a dictionary that it unfolds is made of in the same function."""
    found, slips = set(), []
    for path in sorted(Path(kingdom.__file__).parent.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for type, names in _written(function):
                found.add(type)
                if missing := set(EVENTS[type]) - names:
                    slips.append(f"{path.name}:{function.lineno} {type} lacks {sorted(missing)}")
    assert slips == []
    assert found >= {"event.dispatched", "task.created", "soldier.killed", "message.sent", "system.startup"}


def _written(function: ast.FunctionDef) -> Iterator[tuple[str, set[str]]]:
    """The events that a function logs under a name that stands there, each with the names of its data."""
    unfolded = {
        key.value
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        types = [word.value for word in node.keywords if word.arg == "event"]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "event":
            types += node.args[:1]
        names = {word.arg for word in node.keywords if word.arg}
        if any(word.arg is None for word in node.keywords):
            names |= unfolded
        for type in types:
            if isinstance(type, ast.Constant) and type.value in EVENTS:
                yield type.value, names
