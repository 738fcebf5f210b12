"""The bodies of the council's messages: YAML mappings, each type with a schema in `schemas/council/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kingdom.errors import BadConfig, BadMessage
from kingdom.home import config, schemas
from kingdom.home.places import find_schema

WRAPPED = frozenset({"type", "payload"})
"""The keys of a body that repeats its headers: its payload is the body that is meant."""


def read_body(text: str) -> dict[str, Any]:
    """Return a body's mapping; BadMessage when it is none."""
    try:
        value, _ = config.from_yaml(text, Path("body"))
    except BadConfig as error:
        raise BadMessage(what="the body", why=f"{error.facts['why']}{error.facts['line']}") from None
    if isinstance(value, dict) and value.keys() >= WRAPPED and isinstance(value["payload"], dict):
        value = value["payload"]
    if not isinstance(value, dict) or not value:
        raise BadMessage(what="the body", why="it is no YAML mapping")
    return value


def faults_of_body(kind: str, text: str) -> list[str]:
    """Return what is wrong with the body of a message of this type. Of a type without a schema any mapping will do."""
    try:
        body = read_body(text)
    except BadMessage as error:
        return [str(error)]
    if not find_schema(_schema(kind)).is_file():
        return []
    misfit = schemas.judge_by_name(_schema(kind))(body)
    return [f"the body of a {kind}: {misfit}"] if misfit else []


def _schema(kind: str) -> str:
    return f"council/{kind.replace('/', '_')}"
