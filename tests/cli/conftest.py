"""Run the command line in this process, on a home without roles unless a test starts them."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.cli.init import furnish
from kingdom.cli.main import main
from tests.waiting import SOON, wait_until


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


class Terminal:
    def __init__(self, places: Places, capsys: pytest.CaptureFixture[str]) -> None:
        self.places = places
        self._capsys = capsys

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        mask = os.umask(0o077)
        try:
            code = main(list(words))
        finally:
            os.umask(mask)
        heard = self._capsys.readouterr()
        return Said(code, heard.out, heard.err)

    def ok(self, *words: str) -> str:
        said = self(*words)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    def put(self, kind: str, state: str, name: str, **content: Any) -> Path:
        path = self.places.queue_file(kind, state, name)
        path.write_text(json.dumps({"id": name, **content}))
        return path

    def event(self, state: str, name: str, **content: Any) -> Path:
        known = {"type": "a.b", "source": "test", "payload": {}, "created_at": "2026-11-18T09:00:00Z"}
        return self.put("events", state, name, **{**known, **content})

    def task(self, state: str, name: str, **content: Any) -> Path:
        known = {"event_id": "evt-1", "target_general": "gen-briefing", "type": "a.b", "payload": {}, "attempt": 0}
        return self.put("tasks", state, name, **{**known, "created_at": "2026-11-18T09:00:00Z", **content})


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home as `kingdom init` makes it; made once, because that waits for the disk."""
    folder = tmp_path_factory.mktemp("model")
    furnish(Places(folder))
    return folder


@pytest.fixture
def terminal(model: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Return a terminal on a home whose roles do not run."""
    for name in [name for name in os.environ if name.startswith("KINGDOM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KINGDOM_HOME", str(home))
    monkeypatch.chdir(home)
    shutil.copytree(model, home, dirs_exist_ok=True)
    return Terminal(Places(home), capsys)


class Held:
    """Pretend that a role runs: hold its lock."""

    def __init__(self, places: Places, role: str) -> None:
        self._lock = Lock(places.lock(role), role)
        self._lock.acquire()

    def close(self) -> None:
        self._lock.release()


@pytest.fixture
def court_answers(terminal: Terminal) -> Iterator[None]:
    """Play king and envoy: make the first event a task, and mark its message as sent."""
    places = terminal.places
    pending = places.folder("events", "pending")

    def answer() -> None:
        wait_until(lambda: any(pending.glob("*.json")), SOON, "an event", (pending,))
        path = next(pending.glob("*.json"))
        event = json.loads(path.read_text())
        terminal.event("dispatched", event["id"], type=event["type"], task_id="task-9")
        path.unlink()
        whose = {"event_id": event["id"]} if event["source"] == "console" else None
        said = {"type": "notification", "content": "[complete] done", "source_ref": whose}
        terminal.put("messages", "sent", "msg-9", task_id="task-9", context={}, **said)

    court = threading.Thread(target=answer, daemon=True)
    with closing(Held(places, "king")), closing(Held(places, "envoy")):
        court.start()
        yield
        court.join()


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a person types, where no terminal is; `typed` puts it there."""
    stdin = io.StringIO()
    monkeypatch.setattr(sys, "stdin", stdin)
    return stdin


def typed(stdin: io.StringIO, *lines: str) -> None:
    stdin.write("".join(f"{line}\n" for line in lines))
    stdin.seek(0)


@pytest.fixture
def king_runs(terminal: Terminal) -> Iterator[None]:
    with closing(Held(terminal.places, "king")):
        yield
