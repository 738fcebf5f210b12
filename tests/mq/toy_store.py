"""One more store, for the tests alone: memory that a commit writes into one JSON file.

Loaded as a pytest plugin it adds its row to STORES, so that the contract's tests run on it as on the others.
"""

from __future__ import annotations

import json

from kingdom.base.disk.atomic import Disk
from kingdom.mq.stores import STORES
from kingdom.mq.stores.base import DedupEntry, StoreConfig
from kingdom.mq.stores.memory import MemoryStore

ROW = "tests.mq.toy_store:ToyStore"
BLOCK = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"file": {"type": "string", "default": ""}},
    "default": {},
}


def pytest_configure() -> None:
    STORES["toy"] = ROW


class ToyStore(MemoryStore):
    def __init__(self, config: StoreConfig) -> None:
        super().__init__(config)
        self._file = config.path(config.values.get("toy", {}).get("file", ""), "toy.json")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._disk = Disk(self._file.parent / ".scratch", durability=config.durability)
        if self._file.exists():
            kept = json.loads(self._file.read_text())
            self._records = kept["queues"]
            for queue, _, state, name, body in kept["messages"]:
                self.put(queue, state, name, body)
            self._entries.extend(DedupEntry(*entry[:4], tuple(entry[4])) for entry in kept["entries"])

    def save_queue(self, queue: str, record: str) -> None:
        super().save_queue(queue, record)
        self._keep()

    def commit(self) -> None:
        self._keep()

    def _keep(self) -> None:
        messages = [[*key, *message] for key, message in self._bodies.items()]
        kept = {"queues": self._records, "messages": messages, "entries": list(self._entries)}
        self._disk.rewrite(self._file, json.dumps(kept).encode())
