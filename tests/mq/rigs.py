"""An engine over a store that a test can close, kill and reopen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kingdom.base.disk.atomic import Durability
from kingdom.base.tables import load
from kingdom.mq.budget import Steps, step
from kingdom.mq.engine import Engine
from kingdom.mq.message_format import Draft
from kingdom.mq.names import Ids
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores import STORES
from kingdom.mq.stores.base import MessageStore, StoreConfig
from tests.mq.clocks import Clock

T = TypeVar("T")
QUEUE = "telemetry"
PAYLOAD = '{"temp":36.5,"rpm":1200}'


class Rig:
    """`mq` is the engine. What a test does is committed with `commit`, as a manager would."""

    def __init__(
        self,
        backend: str,
        folder: Path,
        durability: Durability = "process",
        policy: Mapping[str, Any] | None = None,
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        strict: bool = False,
        random: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.backend = backend
        self.folder = folder
        self.clock = Clock()
        #: What somebody has added to the wall clock since the engine was opened, in ms.
        self.step = 0
        self.said: list[str] = []
        self.config = StoreConfig.at(folder, backend=backend, durability=durability)
        self.settings = EngineSettings(
            Policy.from_json(policy or {}),
            {queue: Policy.from_json(policy) for queue, policy in (queues or {}).items()},
            strict,
        )
        self._random = random
        self._store: MessageStore | None = None
        self.mq = self._open()

    def use(self, policy: Mapping[str, Any], queue: str = QUEUE) -> None:
        self.mq.queues.set_policy(queue, Policy.from_json(policy))

    def publish(self, text: str = PAYLOAD, queue: str = QUEUE, request: str = "", **more: Any) -> str:
        key = self.mq.publish(queue, Draft(text, **more), request).message_key
        self.mq.commit()
        return key

    def lease(self, consumer: str = "c", queue: str = QUEUE, **more: Any) -> Any:
        leased = self.mq.lease(queue, consumer, **more)
        self.mq.commit()
        return leased[0] if leased else None

    def lease_texts(self, limit: int = 100, consumer: str = "c", queue: str = QUEUE) -> list[str]:
        texts = [message.payload for message in self.mq.lease(queue, consumer, limit)]
        self.mq.commit()
        return texts

    def ack(self, leased: Any) -> None:
        self.mq.ack(leased.message_key, leased.lease_id)
        self.mq.commit()

    def nack(self, leased: Any, reason: str = "", requeue: bool = True) -> str:
        fate = self.mq.nack(leased.message_key, leased.lease_id, reason=reason, requeue=requeue)
        self.mq.commit()
        return fate

    def sweep(self, seconds: float = 0.0) -> int | None:
        self.clock.pass_(seconds)
        due = self.mq.sweep()
        self.mq.commit()
        return due

    def die(self, queue: str = QUEUE, reason: str = "broken") -> str:
        """Make a message a dead letter, and return its key."""
        key = self.publish(queue=queue)
        self.nack(self.lease(queue=queue), reason, requeue=False)
        return key

    def counts(self, queue: str = QUEUE) -> tuple[int, int, int, int]:
        status = self.mq.status(queue)
        return status.ready, status.inflight, status.delayed, status.dlq

    def finish(self, work: Steps[T]) -> T:
        """Do work to its end, with a commit after each turn, and return what came of it."""
        while (result := step(work)) is None:
            self.mq.commit()
        self.mq.commit()
        return result

    def reopen(self, kill: bool = False) -> None:
        """Reopen the store, as after a restart; after a kill nothing more is written before."""
        if self.backend != "memory":
            if kill:
                self._kill()
            else:
                self.mq.close()
            self._store = None
        self.mq = self._open()

    def close(self) -> None:
        self.mq.close()

    def _kill(self) -> None:
        """Drop everything without what close() does."""
        store = self.mq.store
        connection = getattr(store, "_connection", None)
        if connection is not None:
            connection.rollback()
            connection.close()

    def _open(self) -> Engine:
        self.clock.now, self.step = self.clock.now + self.step, 0
        if self._store is None:
            store: MessageStore = load(STORES[self.backend])(self.config)
            self._store = store
        return Engine(
            self._store,
            settings=self.settings,
            clock=self.clock,
            wall=lambda: self.clock.now + self.step,
            random=self._random,
            ids=Ids(),
            log=lambda key, sentence, **facts: self.said.append(key),
        )
