"""The products of this kingdom, beside the court that every home has. One that is deleted is deleted here too."""

from __future__ import annotations

from functools import cache

from kingdom.base import tables
from kingdom.base.wing import Wing

WINGS = ("mq", "hall", "council")


@cache
def rows() -> tuple[Wing, ...]:
    return tuple(tables.load(f"kingdom.{name}.wing:WING") for name in WINGS)


@cache
def steps() -> dict[str, str]:
    """Return the engines that need no soldiers, each with how tasks go on with it."""
    return {engine: row for wing in rows() for engine, row in wing.steps.items()}
