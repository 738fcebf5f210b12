"""Where a gateway listens whose port nobody has set: on one that it finds once and keeps."""

from __future__ import annotations

from contextlib import suppress

from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places

FIRST, PORTS = 7700, 100


def to_try(places: Places, gateway: str) -> list[int]:
    """Return the ports in the order of preference: the one that this home has had before, then the next ones."""
    kept = kept_port(places, gateway)
    return list(dict.fromkeys([*([kept] if kept else []), *range(FIRST, FIRST + PORTS)]))


def kept_port(places: Places, gateway: str) -> int | None:
    """Return the port that a gateway found at an earlier start; None before the first."""
    with suppress(OSError, ValueError, BadFile):
        return int(read_bytes(places.gateway_port(gateway), 16))
    return None
