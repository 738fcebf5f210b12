"""The Messages API, as far as Claude Code uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from kingdom.demo.standins.model import Model, Step, pieces
from kingdom.demo.standins.server import Answer, HttpRequest, answer_json

MESSAGES = "/v1/messages"
MODEL = {
    "type": "model",
    "id": "claude-played",
    "display_name": "Played",
    "created_at": "2026-01-01T00:00:00Z",
}
USED = {"input_tokens": 1000, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 50}

_numbers = count(1)


class Anthropic(Model):
    def is_question(self, request: HttpRequest) -> bool:
        return request.method == "POST" and request.path == MESSAGES

    def answer(self, request: HttpRequest) -> Answer:
        if not self.takes(request):
            return _error(401, "authentication_error", "invalid x-api-key", {})
        if request.path == "/v1/models":
            return answer_json({"data": [MODEL], "has_more": False, "first_id": MODEL["id"], "last_id": MODEL["id"]})
        if request.path == f"{MESSAGES}/count_tokens":
            return answer_json({"input_tokens": 100})
        if not self.is_question(request):
            return _error(404, "not_found_error", f"there is no {request.path}", {})
        body = request.json()
        step = self.step(body)
        if step.error is not None:
            return _error(step.error, step.kind, step.message, step.headers)
        message = _message(body, step)
        if body.get("stream"):
            return self.stream(_events(message, step), step)
        return answer_json(message, headers=step.headers)


def _error(status: int, kind: str, message: str, headers: Mapping[str, str]) -> Answer:
    return answer_json({"type": "error", "error": {"type": kind, "message": message}}, status, headers)


def _message(body: Mapping[str, Any], step: Step) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if step.text is not None:
        content.append({"type": "text", "text": step.text})
    if step.tool is not None:
        content.append(
            {"type": "tool_use", "id": f"toolu_{next(_numbers):024}", "name": step.tool, "input": step.input}
        )
    return {
        "id": f"msg_{next(_numbers):024}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": content,
        "stop_reason": "tool_use" if step.tool else "end_turn",
        "stop_sequence": None,
        "usage": {**USED, **step.usage},
    }


def _events(message: dict[str, Any], step: Step) -> Iterator[tuple[str, Mapping[str, Any]]]:
    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield "message_start", {"message": begun}
    if step.fails_in_stream:
        yield "error", {"error": {"type": step.kind, "message": step.message}}
        return
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
        else:
            empty = {**block, "input": {}}
            said = pieces(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in said]
        yield "content_block_start", {"index": index, "content_block": empty}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": ended, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield "message_stop", {}
