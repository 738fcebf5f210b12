"""What the mailbox has done since it started, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

UNKNOWN = "unknown"
"""What is no command is counted under one name, whatever it is called."""
ORIGINAL_WORDS = {
    "publish": "publish",
    "consume": "consume_next",
    "ack": "ack",
    "nack": "nack",
    "status": "status",
    "health": "health",
    "dlq": "list_dlq",
}
"""What original clients look for, also where nothing was counted, and the command's first name."""

ERROR_KINDS = {
    "ERR_PARSE_ERROR": "parse",
    "ERR_INVALID_REQUEST": "validation",
    "ERR_UNKNOWN_COMMAND": "validation",
    "ERR_VALIDATION_FAILED": "validation",
    "ERR_NOT_ALLOWED": "validation",
    "ERR_TIMEOUT": "timeout",
    "ERR_INTERNAL_ERROR": "internal",
}


class Counters:
    def __init__(self, now: float) -> None:
        self._since = now
        self._success = 0
        self._error = 0
        self._commands: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._seconds = 0.0
        self._last = 0.0

    def count(self, command: str, code: str | None, now: float, seconds: float = 0.0) -> None:
        """Count one request, answered at `now`; `code` is the error it was answered with, None when it succeeded."""
        self._commands[command] += 1
        if code is None:
            self._success += 1
        else:
            self._error += 1
            if kind := ERROR_KINDS.get(code):
                self._errors[kind] += 1
        self._seconds += seconds
        self._last = now

    def as_json(self, now: float) -> dict[str, Any]:
        total = self._success + self._error
        return {
            "uptimeMs": int((now - self._since) * 1000),
            "requests": {"total": total, "success": self._success, "error": self._error},
            "commands": {
                **{word: self._commands[name] for word, name in ORIGINAL_WORDS.items()},
                **self._commands,
            },
            "errors": {kind: self._errors[kind] for kind in dict.fromkeys(ERROR_KINDS.values())},
            "timing": {
                "totalProcessingMs": int(self._seconds * 1000),
                "avgProcessingMs": round(self._seconds * 1000 / total, 3) if total else 0,
                "lastRequestMs": int(self._last * 1000),
            },
        }
