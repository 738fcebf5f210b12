"""The lines of `kingdom status` about the council."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kingdom.base.program.screen import BAD, LONGEST_TEXT, Line, Part, Section
from kingdom.base.words import count, one_line


def section(figures: Mapping[str, Any]) -> Section:
    """Say what the council has done, and who is at work."""
    said = figures["council"]
    if not said:
        return Section([])
    at_work = said.get("at_work")
    busy = one_line(", ".join(sorted(at_work)), LONGEST_TEXT) if isinstance(at_work, dict) and at_work else "nobody"
    numbers = {name: said[name] for name in ("waiting", "retrying", "buried") if isinstance(said.get(name), int)}
    parts = [Part("council  ", "dim"), Part(f"{busy} at work, {count(numbers.get('waiting', 0), 'message')} waiting")]
    if numbers.get("retrying"):
        parts.append(Part(f", {numbers['retrying']} to be retried", "yellow"))
    if numbers.get("buried"):
        parts.append(Part(f", {count(numbers['buried'], 'dead letter')}", BAD))
    return Section([Line(parts, indent=0)])
