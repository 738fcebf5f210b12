"""The lines of `kingdom status` about the hall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kingdom.base.program.screen import BAD, LONGEST_TEXT, Line, Part, Section
from kingdom.base.words import count, one_line


def section(figures: Mapping[str, Any]) -> Section:
    rows = [
        *((said, _gateway(said)) for said in figures["gateways"]),
        *((said, _worker(said)) for said in figures["workers"]),
    ]
    return Section([Line([Part(f"{one_line(said['role'])}  ", "dim"), *parts], indent=0) for said, parts in rows])


def _gateway(said: dict[str, Any]) -> Iterator[Part]:
    """Yield what a gateway of the hall has counted."""
    numbers = {name: said[name] for name in ("sockets", "accepted", "failed") if isinstance(said.get(name), int)}
    if said.get("address"):
        yield Part(f"{one_line(said['address'])}, ")
    yield Part(f"{count(numbers.get('sockets', 0), 'socket')}, {count(numbers.get('accepted', 0), 'message')} accepted")
    if numbers.get("failed"):
        yield Part(f", {numbers['failed']} failed", "yellow")
    if said.get("why"):
        yield Part(f"; {one_line(said['why'], LONGEST_TEXT)}", BAD)


def _worker(said: dict[str, Any]) -> Iterator[Part]:
    """Yield what a worker of the hall has done, and what waits for it."""
    numbers = {name: said[name] for name in ("stored", "lag", "dead", "gaps") if isinstance(said.get(name), int)}
    yield Part(f"{count(numbers.get('stored', 0), 'message')} stored, {numbers.get('lag', '?')} waiting")
    if numbers.get("dead"):
        yield Part(f", {count(numbers['dead'], 'dead letter')}", BAD)
    if numbers.get("gaps"):
        yield Part(f", {count(numbers['gaps'], 'gap')} in its topic", BAD)
    if said.get("state") == "waiting":
        yield Part(f"; it waits: {one_line(said.get('why'), LONGEST_TEXT)}", "yellow")
    elif said.get("state") != "working":
        yield Part(f"; {one_line(said.get('state'))}")
