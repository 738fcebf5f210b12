"""What `--json` prints: one envelope for all commands, described by schemas/output.schema.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

VERSION = 1
"""Raised when a field that was there goes or changes its meaning; new fields do not raise it."""


def line(kind: str, content: Mapping[str, Any]) -> str:
    """Return one line of JSON: the version of its shape, what it is, and its content."""
    envelope = {"version": VERSION, "kind": kind}
    return json.dumps({**envelope, **content, **envelope}, ensure_ascii=False)
