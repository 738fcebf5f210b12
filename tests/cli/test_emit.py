"""`kingdom emit` puts an event in as any program could, and may wait for what comes of it."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kingdom.base.home import schemas
from tests.cli.conftest import Terminal


def emitted(terminal: Terminal) -> dict[str, Any]:
    (path,) = terminal.places.folder("events", "pending").iterdir()
    event: dict[str, Any] = json.loads(path.read_text())
    assert path.stem == event["id"]
    return event


def test_an_event_is_put_in(terminal: Terminal) -> None:
    said = terminal.ok(
        "emit", "github.pr.mentioned", "--payload", '{"pr_number": "7"}', "--repo", "acme/shop", "--priority", "high"
    )
    event = emitted(terminal)
    assert said == f"{event['id']}\n"
    assert event["type"] == "github.pr.mentioned"
    assert (event["payload"], event["repo"], event["priority"]) == ({"pr_number": "7"}, "acme/shop", "high")
    schemas.check("event", event)


def test_a_payload_comes_from_standard_input(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO('{"text": "왕"}'.encode())))
    terminal.ok("emit", "a.b", "--payload", "-")
    assert emitted(terminal)["payload"] == {"text": "왕"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("a.b", "--payload", "hello"), 78, "the payload is not JSON: "),
        (("a.b", "--payload", "[1]"), 78, 'the payload is not a JSON object, such as {"text": "hello"}'),
        (("a.b", "--payload", '{"a": 1, "a": 2}'), 78, "the payload is not JSON: "),
        (("a.b", "--payload", json.dumps({"text": "x" * (1 << 20)})), 78, "and 1048576 is the most"),
        (("",), 2, "this is no event: type"),
        (("x" * 201,), 2, "this is no event: type"),
        (("a.b", "--priority", "urgent"), 2, "'urgent' is not one of"),
        (("a.b", "--wait"), 3, "the king is not running; start it with `"),
    ],
)
def test_what_is_no_event_is_refused(words: tuple[str, ...], code: int, said: str, terminal: Terminal) -> None:
    told = terminal("emit", *words)
    assert (told.code, told.err.count("\n")) == (code, 1), told
    assert said in told.err
    assert list(terminal.places.folder("events", "pending").iterdir()) == []


@pytest.mark.parametrize("type_", ["a.b", "console.message"])
def test_it_waits_for_the_messages_of_its_task(type_: str, terminal: Terminal, court_answers: None) -> None:
    assert terminal.ok("emit", type_, "--wait", "--timeout", "20") == "[complete] done\n"


def test_a_task_that_is_skipped_in_silence_ends_the_wait(terminal: Terminal, king_runs: None) -> None:
    from kingdom.cli.say import NoAnswer, ReplyListener

    listener = ReplyListener(terminal.places)
    terminal.event("completed", "evt-1", status="skipped", task_id="task-1")
    terminal.task("completed", "task-1", outcome="skipped", letters={})
    terminal.places.result("task-1").write_text('{"reason": "not for me"}')
    with pytest.raises(NoAnswer, match="evt-1: skipped: not for me"):
        list(listener.messages("evt-1", 20.0))
    listener.close()
