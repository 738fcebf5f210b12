"""A store in this process, called as a manager is: by command and payload. Refused while somebody else holds it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock
from typing import Any

import orjson

from kingdom.base.errors import BadInput, Usage
from kingdom.base.home import config as home_config
from kingdom.base.home.places import Places, find_home
from kingdom.mq import configuration
from kingdom.mq.call_fields import WAIT, Call
from kingdom.mq.calls import CALLS, OngoingCall, leases_in
from kingdom.mq.configuration import QueueSettings
from kingdom.mq.engine import Engine
from kingdom.mq.errors import Refusal, StoreError
from kingdom.mq.together import Together
from kingdom.mq.typed_calls import Answer, Calls, Refused

BACKEND_BY_TRACE = {"payloads": "hybrid", "yirangmq.db": "sqlite", "fs": "filesystem"}
"""What a store leaves in its data folder."""

FORGOTTEN = "what another thread asked for meanwhile failed, or the store was repaired; it may be done or not"


def settings_of(path: Path | str | None = None, **config: Any) -> QueueSettings:
    """Return the settings for a data folder, or those in a configuration file, or those of the home around us.

    `config` are keys of config/mq.yaml for a data folder. The store that has left its data there goes on, if none is
    named.
    """
    if path is None:
        return configuration.load(Places(find_home()))
    path = Path(path).absolute()
    if path.is_file():
        return configuration.load(Places(find_home()), path)
    if "backend" not in config:
        found = (backend for trace, backend in BACKEND_BY_TRACE.items() if (path / trace).exists())
        config["backend"] = next(found, "sqlite")
    value = {**config, "paths": {"dataRoot": str(path)}}
    return configuration.resolve(home_config.validated(configuration.SCHEMA, value, {}, path), path, path)


@dataclass(slots=True)
class _LocalCall:
    """A call of one thread."""

    work: OngoingCall[Engine]
    #: How often the engine had loaded the store when the last part of it was carried out.
    loads: int = 0
    answer: Answer | None = None
    error: Exception | None = None


class Local(Calls):
    """The store of these settings. What threads ask for at the same time is made durable together."""

    def __init__(self, settings: QueueSettings, client_id: str = "local") -> None:
        """`client_id` is the consumer when a call names none."""
        self.client_id = client_id
        self._engine: Engine = configuration.open_engine(settings, None, lambda *_, **__: None, _wall)
        #: Held while somebody works on the engine; notified when a message has arrived.
        self._arrived = Condition(Lock())
        self._together = Together(self._carry_out)
        #: Whether a commit waits for the disk. What does not wait is carried out sooner than handed to another thread.
        self._waits_for_disk = settings.config["durability"] == "power"
        #: How often messages have arrived.
        self._arrivals = 0

    def call(
        self, command: str, payload: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> Answer:
        if command == "health":
            return {"status": "ok", "timestamp": _wall()}
        row = CALLS.get(command)
        if row is None:
            raise Usage(message=f"only a running manager knows its {command}")
        call = Call(_as_travelled(command, payload), self.client_id, request_id or "")
        asked = _LocalCall(OngoingCall(row, call))
        until = time.monotonic() + (call[WAIT] / 1000 if row.nothing is not None else 0)
        while True:
            arrivals = self._arrivals
            self._serve(asked)
            if isinstance(asked.error, Refusal):
                raise Refused(code=asked.error.code, text=str(asked.error)) from None
            if asked.error is not None:
                raise asked.error
            if asked.answer is None:
                continue
            if row.nothing is None or asked.answer != row.nothing or not self._wait(arrivals, until):
                return asked.answer
            asked = _LocalCall(OngoingCall(row, call))

    def _serve(self, asked: _LocalCall) -> None:
        if self._waits_for_disk:
            self._together.serve(asked)
        else:
            self._carry_out([asked], 0.0)

    def _carry_out(self, group: Sequence[_LocalCall], until: float) -> None:
        """Answer several calls and make them durable together. A StoreError is for all: what they did is undecided."""
        with self._arrived:
            self._engine.check_lock()
            try:
                self._engine.sweep()
                for asked in group:
                    if asked.work.has_begun and asked.loads != self._engine.loads:
                        store = type(self._engine.store).__name__
                        asked.error = StoreError(backend=store, action="go on with this call", why=FORGOTTEN)
                        continue
                    asked.loads = self._engine.loads
                    try:
                        asked.answer = asked.work.go_on(self._engine)
                    except StoreError:
                        raise
                    except Exception as error:  # noqa: BLE001
                        # Raised again in the thread that asked: it is nothing to the others.
                        asked.error = error
            finally:
                self._commit(group)
            if self._engine.arrived():
                self._arrivals += 1
                self._arrived.notify_all()

    def _commit(self, group: Sequence[_LocalCall]) -> None:
        try:
            self._engine.commit()
        except StoreError:
            # A store of files has moved what was to be handed out: it would be leased to somebody who does not know it.
            answers = [asked.answer for asked in group if isinstance(asked.answer, dict)]
            with suppress(StoreError):
                for lease in (lease for answer in answers for lease in leases_in(answer)):
                    with suppress(Refusal):
                        self._engine.give_back(lease["messageKey"], lease["leaseId"])
                self._engine.commit()
            raise

    def _wait(self, arrivals: int, until: float) -> bool:
        """Wait for a message to arrive since then. False when the time was over before."""
        with self._arrived:
            left = until - time.monotonic()
            if left > 0 and self._arrivals == arrivals:
                due = self._engine.next_due()
                until_due = left if due is None else (due - self._engine.clock()) / 1000
                self._arrived.wait(max(0.001, min(left, until_due)))
            return left > 0

    def check(self, repair: bool) -> list[Answer]:
        """Return what does not fit in the store; with `repair`, after mending what can be mended."""
        with self._arrived:
            findings = [
                {"kind": finding.kind, "queue": finding.queue, "what": finding.what, "repaired": finding.repaired}
                for finding in self._engine.check(repair)
            ]
            self._engine.commit()
        return findings

    def close(self) -> None:
        with self._arrived:
            self._engine.close()


def _wall() -> int:
    return int(time.time() * 1000)


def _as_travelled(command: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a payload as a manager would read it."""
    try:
        travelled: Mapping[str, Any] = orjson.loads(orjson.dumps(payload))
    except TypeError as error:
        raise BadInput(message=f"{command}: what it says cannot be written as JSON: {error}") from None
    return travelled
