"""`python -m kingdom.court.soldier.mcp`: tools for a model, by the Model Context Protocol on standard input and output.

Inside its soldier's sandbox: it reports a result, asks a person, and remembers, so that no file format has to be known.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import to_json
from kingdom.court.soldiers.engines.endings import FIELDS, SCHEMA, STATUSES

MEMORY_VARIABLE = "KINGDOM_LENT_MEMORY"
"""Names the file to which lessons are added."""
PROTOCOL = "2025-06-18"
NO_SUCH_METHOD, BAD_PARAMETERS = -32601, -32602
LONGEST_LESSON = 1000

Arguments = Mapping[str, Any]


def report_result(arguments: Arguments) -> str:
    """Write the result, whole."""
    status = arguments.get("status")
    if status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}")
    if status == "needs_human" and not arguments.get("question"):
        raise ValueError("needs_human requires a question")
    path = Path(os.environ["KINGDOM_RESULT_PATH"])
    given = {key: arguments[key] for key in FIELDS if arguments.get(key) is not None}
    Disk(path.parent).rewrite(path, to_json(given))
    return "Reported. End now: nothing that you do after this is read."


def ask_human(arguments: Arguments) -> str:
    """Write the question as the result; a new task continues when a person has answered."""
    question = arguments.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("question must be a text")
    choices = arguments.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise ValueError("choices must be a list of texts")
    lines = [question.rstrip(), *(f"- {' '.join(choice.split())}" for choice in choices)]
    report_result({"status": "needs_human", "question": "\n".join(lines)})
    return "A person will be asked. End now: you continue in this session and folder when they have answered."


def remember(arguments: Arguments) -> str:
    """Add a lesson to the copy of the general's memory; the general takes it over after the run."""
    lesson = arguments.get("lesson")
    if not isinstance(lesson, str) or not lesson.strip():
        raise ValueError("lesson must be a text")
    line = " ".join(lesson.split())[:LONGEST_LESSON]
    with open(os.environ[MEMORY_VARIABLE], "a", encoding="utf-8") as memory:
        memory.write(f"- {line}\n")
    return "Remembered, for later tasks of this general."


TOOLS: dict[str, tuple[Callable[[Arguments], str], str, Mapping[str, Any]]] = {
    "report_result": (
        report_result,
        "Report how the task ended. The last thing to do; people read the summary.",
        {**SCHEMA, "required": ["status"]},
    ),
    "ask_human": (
        ask_human,
        "Ask a person what only a person can decide: one question that can be answered in a sentence.",
        {
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "choices": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "answers to choose from, if any: at most 10 of at most 70 letters become buttons",
                },
            },
            "required": ["question"],
        },
    ),
    "remember": (
        remember,
        "Remember one line that will help with later tasks of this kind.",
        {"type": "object", "properties": {"lesson": {"type": "string"}}, "required": ["lesson"]},
    ),
}
"""Function, description and schema of each tool."""


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests, one JSON object a line, until there are no more."""
    for line in requests:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(request, dict) and "id" in request:
            answers.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **_answer(request)}) + "\n")
            answers.flush()


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    given = request.get("params")
    parameters: Mapping[str, Any] = given if isinstance(given, dict) else {}
    match request.get("method"):
        case "initialize":
            about = {"name": "kingdom", "version": "1"}
            version = parameters.get("protocolVersion", PROTOCOL)
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            tools = [
                {"name": name, "description": text, "inputSchema": schema} for name, (_, text, schema) in TOOLS.items()
            ]
            return {"result": {"tools": tools}}
        case "tools/call":
            return _called(parameters)
    return {"error": {"code": NO_SUCH_METHOD, "message": f"no such method: {request.get('method')}"}}


def _called(parameters: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = parameters.get("name"), parameters.get("arguments")
    if name not in TOOLS:
        return {"error": {"code": BAD_PARAMETERS, "message": f"no such tool: {name}"}}
    try:
        text, failed = TOOLS[name][0](arguments if isinstance(arguments, dict) else {}), False
    except (ValueError, OSError) as error:
        text, failed = str(error), True
    return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
