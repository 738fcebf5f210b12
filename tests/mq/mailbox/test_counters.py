"""What the mailbox counts, as its clients read it."""

from __future__ import annotations

import pytest

from kingdom.mq.mailbox.counters import ERROR_KINDS, ORIGINAL_WORDS, UNKNOWN, Counters

NO_ERRORS = {"parse": 0, "validation": 0, "timeout": 0, "internal": 0}


def test_what_was_answered_is_told_with_its_times() -> None:
    counters = Counters(100.0)
    counters.count("consume_next", None, 101.0, 0.25)
    counters.count("purge", None, 102.0)
    counters.count(UNKNOWN, "ERR_UNKNOWN_COMMAND", 102.5, 0.5)
    assert counters.as_json(103.0) == {
        "uptimeMs": 3000,
        "requests": {"total": 3, "success": 2, "error": 1},
        "commands": {**dict.fromkeys(ORIGINAL_WORDS, 0), "consume": 1, "consume_next": 1, "purge": 1, UNKNOWN: 1},
        "errors": {**NO_ERRORS, "validation": 1},
        "timing": {"totalProcessingMs": 750, "avgProcessingMs": 250.0, "lastRequestMs": 102_500},
    }


def test_at_first_all_is_nothing() -> None:
    assert Counters(100.0).as_json(100.0) == {
        "uptimeMs": 0,
        "requests": {"total": 0, "success": 0, "error": 0},
        "commands": dict.fromkeys(ORIGINAL_WORDS, 0),
        "errors": NO_ERRORS,
        "timing": {"totalProcessingMs": 0, "avgProcessingMs": 0, "lastRequestMs": 0},
    }


@pytest.mark.parametrize(("code", "kind"), [*ERROR_KINDS.items(), ("ERR_QUEUE_NOT_FOUND", None)])
def test_an_error_has_its_kind_and_a_refusal_none(code: str, kind: str | None) -> None:
    counters = Counters(0.0)
    counters.count("ack", code, 1.0)
    told = counters.as_json(1.0)
    assert told["requests"] == {"total": 1, "success": 0, "error": 1}
    assert {name for name, count in told["errors"].items() if count} == ({kind} if kind else set())
