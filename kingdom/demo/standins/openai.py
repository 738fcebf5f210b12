"""The Responses API, as far as Codex uses it, and the Chat Completions of programs that speak to any model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from kingdom.demo.standins.model import Model, Step, pieces
from kingdom.demo.standins.server import Answer, HttpRequest, answer_json

RESPONSES, CHAT = "/responses", "/chat/completions"
MODEL = "played-model"
INPUT_TOKENS, OUTPUT_TOKENS = 1000, 50

_numbers = count(1)


class OpenAI(Model):
    def is_question(self, request: HttpRequest) -> bool:
        return request.method == "POST" and request.path.endswith((RESPONSES, CHAT))

    def answer(self, request: HttpRequest) -> Answer:
        if not self.takes(request):
            return _error(401, "invalid_request_error", "Incorrect API key provided", {})
        if request.path.endswith("/models"):
            return answer_json({"object": "list", "data": [{"id": MODEL, "object": "model"}], "models": []})
        if not self.is_question(request):
            return _error(404, "invalid_request_error", f"there is no {request.path}", {})
        body = request.json()
        step = self.step(body)
        if step.error is not None:
            return _error(step.error, step.kind, step.message, step.headers, step.about)
        if request.path.endswith(CHAT):
            return self._chat(body, step)
        response = _response(body, step)
        if body.get("stream"):
            return self.stream(_events(response, step), step)
        return answer_json(response)

    def _chat(self, body: Mapping[str, Any], step: Step) -> Answer:
        message: dict[str, Any] = {"role": "assistant", "content": step.text}
        if step.tool is not None:
            call = {"name": step.tool, "arguments": json.dumps(step.input)}
            message["tool_calls"] = [{"index": 0, "id": f"call_{next(_numbers)}", "type": "function", "function": call}]
        end = "tool_calls" if step.tool else "stop"
        fields = {"id": f"chatcmpl-{next(_numbers)}", "created": 0, "model": body.get("model")}
        used = _used(step)
        usage = {
            "prompt_tokens": used["input_tokens"],
            "completion_tokens": used["output_tokens"],
            "total_tokens": used["total_tokens"],
        }
        if not body.get("stream"):
            choices = [{"index": 0, "message": message, "finish_reason": end}]
            return answer_json({**fields, "object": "chat.completion", "choices": choices, "usage": usage})
        fields["object"] = "chat.completion.chunk"
        chunks: list[Mapping[str, Any]] = [
            {**fields, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**fields, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {**fields, "choices": [], "usage": usage},
        ]
        lines = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
        parts = [f"data: {line}\n\n".encode() for line in lines]
        return Answer(headers={"content-type": "text/event-stream"}, parts=parts[:1] if step.cut else parts)


def _error(
    status: int, kind: str, message: str, headers: Mapping[str, str], about: Mapping[str, Any] | None = None
) -> Answer:
    error = {"message": message, "type": kind, "code": kind, "param": None, **(about or {})}
    return answer_json({"error": error}, status, headers)


def _used(step: Step) -> dict[str, Any]:
    used = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, **step.usage}
    return {**used, "total_tokens": used["input_tokens"] + used["output_tokens"]}


def _response(body: Mapping[str, Any], step: Step) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if step.text is not None:
        text = {"type": "output_text", "text": step.text, "annotations": []}
        fields = {"role": "assistant", "status": "completed", "content": [text]}
        output.append({"type": "message", "id": f"msg_{next(_numbers)}", **fields})
    if step.tool is not None:
        namespace, _, name = step.tool.rpartition("/")
        call = {"call_id": f"call_{next(_numbers)}", "name": name, "status": "completed"}
        if namespace:
            call["namespace"] = namespace
        if isinstance(step.input, str):
            output.append({"type": "custom_tool_call", "id": f"ctc_{next(_numbers)}", **call, "input": step.input})
        else:
            said = json.dumps(step.input)
            output.append({"type": "function_call", "id": f"fc_{next(_numbers)}", **call, "arguments": said})
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": 0,
        "model": body.get("model"),
        "status": "completed",
        "output": output,
        "usage": {**_used(step), **details},
    }


def _events(response: dict[str, Any], step: Step) -> Iterator[tuple[str, Mapping[str, Any]]]:
    numbers = count()

    def event(name: str, **fields: Any) -> tuple[str, Mapping[str, Any]]:
        return name, {"sequence_number": next(numbers), **fields}

    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    if step.fails_in_stream:
        error = {"code": step.kind, "message": step.message}
        yield event("response.failed", response={**begun, "status": "failed", "error": error})
        return
    for index, item in enumerate(response["output"]):
        empty = {**item, "status": "in_progress"}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            about = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield event("response.output_item.added", output_index=index, item={**empty, "content": []})
            yield event("response.content_part.added", **about, part={**item["content"][0], "text": ""})
            for part in pieces(text):
                yield event("response.output_text.delta", **about, delta=part)
            yield event("response.output_text.done", **about, text=text)
        else:
            yield event("response.output_item.added", output_index=index, item=empty)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)
