"""Ordered logs of events with keys, groups of readers and positions: what the hall's roles tell each other through.

Roles choose the transport in config/hall.yaml; what they may rely on stands in `base`.
"""

from __future__ import annotations

from kingdom.runtime import tables
from kingdom.topics.base import Kit, Topics

TOPICS = {
    "files": "kingdom.topics.files:FilesTopics",
}


def open_topics(transport: str, kit: Kit) -> Topics:
    """Return the topics of a transport. Nothing is connected yet: a broker that is away shows when it is used."""
    opened: Topics = tables.load(TOPICS[transport])(kit)
    return opened
