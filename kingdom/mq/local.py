"""A store in this process, called as a manager is: by command and payload. Refused while somebody else holds it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock
from typing import Any

import orjson

from kingdom.errors import BadInput, Usage
from kingdom.home import config as home_config
from kingdom.home.places import Places, find_home
from kingdom.mq import configuration
from kingdom.mq.call_fields import WAIT, Call
from kingdom.mq.calls import CALLS, Command, NotYet
from kingdom.mq.configuration import Settings
from kingdom.mq.engine import Engine
from kingdom.mq.errors import Refusal, StoreError
from kingdom.mq.typed_calls import Answer, Calls, Refused

BACKEND_BY_TRACE = {"payloads": "hybrid", "yirangmq.db": "sqlite", "fs": "filesystem"}
"""What a store leaves in its data folder."""


def settings_of(path: Path | str | None = None, **config: Any) -> Settings:
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
class _Group:
    """Calls that are made durable together."""

    is_over: bool = False
    error: StoreError | None = None


class Local(Calls):
    """The store of these settings. What threads ask for at the same time is made durable together."""

    def __init__(self, settings: Settings, client_id: str = "local") -> None:
        """`client_id` is the consumer when a call names none."""
        self.client_id = client_id
        self._engine: Engine = configuration.open_engine(settings, None, lambda *_, **__: None, _wall)
        #: Held while somebody works on the engine; notified when a message has arrived.
        self._arrived = Condition(Lock())
        self._committing = Lock()
        self._group = _Group()

    def call(
        self, command: str, payload: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> Answer:
        if command == "health":
            return {"status": "ok", "timestamp": _wall()}
        row = CALLS.get(command)
        if row is None:
            raise Usage(message=f"only a running manager knows its {command}")
        call = Call(_as_travelled(command, payload), self.client_id, request_id or "")
        until = time.monotonic() + (call[WAIT] / 1000 if row.nothing is not None else 0)
        while True:
            try:
                answer, group = self._answer(row, call, until)
            except Refusal as refusal:
                raise Refused(code=refusal.code, text=str(refusal)) from None
            self._commit(group)
            if not isinstance(answer, NotYet):
                return answer
            call = Call(call.payload, call.client, call.request_id, done=answer.done)

    def _answer(self, row: Command[Engine], call: Call, until: float) -> tuple[Answer | NotYet, _Group]:
        """Answer a call; what is undecided until the group is over is not told to anybody before."""
        with self._arrived:
            while True:
                group = self._group
                try:
                    self._engine.sweep()
                    answer = row.answer(self._engine, call)
                except StoreError as error:
                    self._end_group(error)
                    raise
                if self._engine.arrived():
                    self._arrived.notify_all()
                left = until - time.monotonic()
                if row.nothing is None or answer != row.nothing or left <= 0:
                    return answer, group
                due = self._engine.next_due()
                until_due = left if due is None else (due - self._engine.clock()) / 1000
                self._arrived.wait(max(0.001, min(left, until_due)))

    def _commit(self, group: _Group) -> None:
        """Make a group durable, unless another thread of it has done so."""
        with self._committing:
            if not group.is_over:
                with self._arrived:
                    if not group.is_over:  # by an error of one of them meanwhile
                        self._end_group()
        if group.error is not None:
            raise group.error

    def _end_group(self, error: StoreError | None = None) -> None:
        """Commit. After an error of one of them, what all of a group have done is undecided."""
        group, self._group = self._group, _Group()
        try:
            self._engine.commit()
        except StoreError as failure:
            error = error or failure
        group.error = error
        group.is_over = True

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
