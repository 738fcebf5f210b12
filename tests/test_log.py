"""What roles tell: sentences for people, events for machines, secrets for nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kingdom.disk.atomic import Disk
from kingdom.home.places import Places
from kingdom.log import Log
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


def test_an_event_that_nobody_counts_is_a_slip(places: Places) -> None:
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
