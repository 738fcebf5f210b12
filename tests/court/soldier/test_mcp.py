"""The tools that a model may have: one JSON object a line, as a program of the Model Context Protocol speaks."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import SOON


def spoken(home: Path, *requests: Any) -> list[dict[str, Any]]:
    """What the server answers to these lines."""
    lines = "".join(request if isinstance(request, str) else f"{json.dumps(request)}\n" for request in requests)
    told = {"KINGDOM_RESULT_PATH": str(home / "result.json"), "KINGDOM_LENT_MEMORY": str(home / "learned.md")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kingdom.court.soldier.mcp"],
        input=lines,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    parameters = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": parameters}


def test_it_says_what_it_offers_and_leaves_notifications_and_noise_unanswered(home: Path) -> None:
    answers = spoken(
        home,
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        "no JSON\n",
        "[]\n",
        {"jsonrpc": "2.0", "id": "two", "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "resources/list"},
    )
    first, second, third = answers
    assert (first["id"], first["result"]["protocolVersion"]) == (1, "2024-11-05")
    assert [tool["name"] for tool in second["result"]["tools"]] == ["report_result", "ask_human", "remember"]
    assert all(tool["inputSchema"]["type"] == "object" for tool in second["result"]["tools"])
    assert third["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("request_", "result"),
    [
        (
            call(1, "report_result", status="success", summary="fine", colour="blue"),
            {"status": "success", "summary": "fine"},
        ),
        (call(1, "ask_human", question="Which one?"), {"status": "needs_human", "question": "Which one?"}),
        (
            call(1, "ask_human", question="Which one?\n", choices=["the first", "the\nsecond"]),
            {"status": "needs_human", "question": "Which one?\n- the first\n- the second"},
        ),
        (call(1, "ask_human", question="Which one?", choices="both"), None),
        (call(1, "ask_human", question="Which one?", choices=[1]), None),
        (call(1, "report_result", status="great"), None),
        (call(1, "report_result", status="needs_human"), None),
        (call(1, "ask_human", question="  "), None),
        (call(1, "ask_human"), None),
        (call(1, "shout"), None),
    ],
    ids=str,
)
def test_a_result_is_written_or_the_model_is_told_why_not(
    home: Path, request_: dict[str, Any], result: dict[str, Any] | None
) -> None:
    (answer,) = spoken(home, request_)
    if result is not None:
        assert json.loads((home / "result.json").read_text()) == result
        assert not answer["result"]["isError"]
    else:
        assert not (home / "result.json").exists()
        assert "error" in answer or answer["result"]["isError"]


def test_each_request_is_answered_before_the_next_one_comes() -> None:
    words = [sys.executable, "-P", "-m", "kingdom.court.soldier.mcp"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, env=buffered, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b'{"id": 1, "method": "ping"}\n')
        server.stdin.flush()
        answered, _, _ = select.select([server.stdout], [], [], SOON)
        server.stdin.close()
        assert answered


def test_a_lesson_is_one_line_of_the_lent_memory(home: Path) -> None:
    spoken(home, call(1, "remember", lesson="run\nit  twice"), call(2, "remember", lesson=""))
    assert (home / "learned.md").read_text() == "- run it twice\n"
    spoken(home, call(3, "remember", lesson="x" * 2000))
    assert len((home / "learned.md").read_text().splitlines()[1]) == 2 + 1000
