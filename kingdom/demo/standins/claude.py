"""Claude Code, as far as generals send it: a program that reads a prompt and asks the Messages API what to do.

`python -m kingdom.demo.standins.claude` takes the real program's words and tells of itself as that does, a line of
JSON for each thing. It has two tools, Bash and StructuredOutput, and keeps its sessions in its HOME. A model of
`standins/anthropic.py` is what it asks.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

MODEL = "played-model"
TOOLS = [{"name": "Bash"}, {"name": "StructuredOutput"}]
"""What is offered to the model; it is a played one and needs no more than the names."""
LONGEST_ANSWER_SECONDS = 600.0
LONGEST_OUTPUT = 20_000

Json = dict[str, Any]


class RefusedByService(Exception):
    """The service has answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def main(arguments: Sequence[str]) -> int:
    """Do what standard input asks. Return the exit code of the real program."""
    resumed = _after("--resume", arguments)
    session = resumed or str(uuid4())
    kept = Path(os.environ["HOME"]) / ".claude" / "projects" / "played" / f"{session}.json"
    talk: list[Json] = json.loads(kept.read_text()) if resumed else []
    talk.append({"role": "user", "content": sys.stdin.read()})
    _tell(session, type="system", subtype="init", model=MODEL)
    end: Json = {"type": "result", "num_turns": 0, "total_cost_usd": 0.0}
    try:
        last = _converse(session, talk, end)
    except RefusedByService as error:
        _tell(session, **end, subtype="success", is_error=True, result=str(error), api_error_status=error.status)
        return 1
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(talk))
    _tell(session, **end, subtype="success", is_error=False, **last)
    return 0


def _converse(session: str, talk: list[Json], end: Json) -> Json:
    """Ask and obey until the model uses no tool or gives its result. Return what it said last."""
    while True:
        said = _ask(talk)
        end["num_turns"] += 1
        end["usage"] = said["usage"]
        talk.append({"role": "assistant", "content": said["content"]})
        _tell(session, type="assistant", message=said)
        use = next((block for block in said["content"] if block["type"] == "tool_use"), None)
        if use is None:
            return {"result": "".join(block["text"] for block in said["content"])}
        if use["name"] == "StructuredOutput":
            # A session may go on only after every tool was answered.
            talk.append(_tool_result(use, "taken"))
            return {"result": "", "structured_output": use["input"]}
        talk.append(_tool_result(use, _run(use["input"]["command"])))


def _ask(talk: list[Json]) -> Json:
    address = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=LONGEST_ANSWER_SECONDS)
    head = {"content-type": "application/json", "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "")}
    body = {"model": MODEL, "max_tokens": 4096, "tools": TOOLS, "messages": talk}
    connection.request("POST", "/v1/messages", json.dumps(body), head)
    answer = connection.getresponse()
    said: Json = json.loads(answer.read())
    if answer.status != 200:
        raise RefusedByService(answer.status, str(said["error"]["message"]))
    return said


def _run(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return (done.stdout + done.stderr)[:LONGEST_OUTPUT]


def _tool_result(use: Json, content: str) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": content}]}


def _tell(session: str, **event: Any) -> None:
    sys.stdout.write(json.dumps({**event, "session_id": session}) + "\n")
    sys.stdout.flush()


def _after(name: str, arguments: Sequence[str]) -> str | None:
    """Return the word after an option."""
    return arguments[arguments.index(name) + 1] if name in arguments else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
