"""Connections to outside services: which tokens each needs, and how it is tried. Roles use them too."""

from __future__ import annotations

from collections.abc import Mapping

from kingdom.connections.base import Service
from kingdom.errors import NoSuchThing
from kingdom.runtime import tables
from kingdom.words import closest

SERVICES = {
    "github": "kingdom.connections.github:GitHub",
    "jira": "kingdom.connections.jira:Jira",
    "slack": "kingdom.connections.slack:Slack",
    "webhook": "kingdom.connections.webhook:Webhook",
    "email": "kingdom.connections.email:Email",
}
"""In the order in which `kingdom connect` lists them."""


def load(name: str, rows: Mapping[str, str] = SERVICES) -> Service:
    """Return the service of this name; NoSuchThing when there is no such row."""
    if name not in rows:
        hint = closest(name, list(rows)) or f"; there are {', '.join(rows)}"
        raise NoSuchThing(what="service", name=name, hint=hint)
    service: Service = tables.load(rows[name])()
    return service
