"""Connections to outside services: which tokens each needs, and how it is tried. Roles use them too."""

from __future__ import annotations

from collections.abc import Mapping

from kingdom.base import tables
from kingdom.base.errors import NoSuchThing
from kingdom.base.words import closest
from kingdom.court.connections.base import Service

SERVICES = {
    "github": "kingdom.court.connections.github:GitHubService",
    "jira": "kingdom.court.connections.jira:JiraService",
    "slack": "kingdom.court.connections.slack:SlackService",
    "webhook": "kingdom.court.connections.webhook:WebhookService",
    "email": "kingdom.court.connections.email:EmailService",
}
"""In the order in which `kingdom connect` lists them."""


def load(name: str, rows: Mapping[str, str] = SERVICES) -> Service:
    """Return the service of this name; NoSuchThing when there is no such row."""
    if name not in rows:
        hint = closest(name, list(rows)) or f"; there are {', '.join(rows)}"
        raise NoSuchThing(what="service", name=name, hint=hint)
    service: Service = tables.load(rows[name])()
    return service
