"""A channel that does not take our token is told of on another one, once until it takes one again."""

from __future__ import annotations

from pathlib import Path

from kingdom.court.envoy.channels import Channels
from kingdom.court.envoy.locked_out import LockedOut
from tests.fixtures import Clock, all_of, services


def note(home: Path, clock: Clock) -> LockedOut:
    given = services(home, "envoy", clock, envoy={"grumpy": {}, "pigeon": {}})
    locked_out = LockedOut(given, Channels(given))
    locked_out.note("grumpy", "grumpy does not take our token")
    return locked_out


def test_it_is_told_once_elsewhere_under_the_time_since_when_it_is_so(home: Path, clock: Clock) -> None:
    for _ in range(2):
        note(home, clock)
        clock.pass_(60)
    (told,) = all_of(home, "messages", "pending")
    assert told["id"] == "msg-20260207-envoy-grumpy-locked-out-10+3a+00+3a+00Z"
    assert told["content"] == (
        "[alert] grumpy does not take our token; until then nothing is posted or received there, and its messages wait"
    )
    assert told["source_ref"] == {"source": "console"}


def test_when_it_was_over_it_is_told_anew(home: Path, clock: Clock) -> None:
    note(home, clock).over("grumpy")
    clock.pass_(60)
    note(home, clock)
    assert len(all_of(home, "messages", "pending")) == 2


def test_a_damaged_note_counts_as_none(home: Path, clock: Clock) -> None:
    note(home, clock)
    (home / "state/envoy/locked-out.json").write_text('{"grumpy": "2026-02-07T"}')
    clock.pass_(60)
    note(home, clock)
    told = [message["id"] for message in all_of(home, "messages", "pending")]
    assert told == [f"msg-20260207-envoy-grumpy-locked-out-10+3a+{minute}+3a+00Z" for minute in ("00", "01")]
