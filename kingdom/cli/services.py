"""The services of `kingdom connect` and `kingdom doctor`: outside services, and model programs."""

from __future__ import annotations

from kingdom.court import connections
from kingdom.court.connections.base import Service

SERVICES = {
    **connections.SERVICES,
    "claude": "kingdom.cli.engine_services:Claude",
    "codex": "kingdom.cli.engine_services:Codex",
}


def load(name: str) -> Service:
    """Return the service of this name; NoSuchThing when there is no such row."""
    return connections.load(name, SERVICES)
