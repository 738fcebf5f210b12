"""Ordered logs of events with keys, groups of readers and positions, for the hall's roles.

Roles choose the transport in config/hall.yaml; what they may rely on stands in `base`.
"""

from __future__ import annotations

from kingdom.base import tables
from kingdom.base.errors import BadInput
from kingdom.hall.topics.base import Topics, TopicsKit

TOPICS = {
    "files": "kingdom.hall.topics.files:FilesTopics",
    "kafka": "kingdom.hall.topics.kafka:KafkaTopics",
}


def open_topics(transport: str, kit: TopicsKit) -> Topics:
    """Return the topics of a transport. Nothing is connected yet: a broker that is away shows when it is used."""
    try:
        opened: Topics = tables.load(TOPICS[transport])(kit)
    except ModuleNotFoundError as missing:
        raise BadInput(
            message=f"transport {transport} needs {missing.name}: pip install 'yirang-kingdom[{transport}]'"
        ) from None
    return opened
