"""What an agent answers a message with: what it remembers of the thread, and how it writes to others."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile, KingdomError
from kingdom.council import mime
from kingdom.council.bodies import read_body, yaml_of

Body = Mapping[str, Any]
SCHEMA = """
create table if not exists seen (id text primary key) without rowid;
create table if not exists facts (thread text, name text, value text, primary key (thread, name)) without rowid;
"""


class NotUnderstood(KingdomError):
    """{type} from {sender}: {why}"""


class CannotSend(KingdomError):
    """could not send a {type} to {to}"""


@dataclass(frozen=True, slots=True)
class TeamMessage:
    """A message that an agent was told of."""

    path: Path
    id: str
    type: str
    sender: str
    thread: str
    repository: str
    body: Body

    def text(self, name: str) -> str:
        """Return a field of the body that must be a text; NotUnderstood when it is none."""
        value = self.body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise NotUnderstood(type=self.type, sender=self.sender, why=f"its body says no {name}")
        return value


Answer = Callable[["Context", TeamMessage], None]


class Context:
    """The answering of one message. What the agent remembers is durable before the message is deleted."""

    def __init__(self, agent: str, path: Path, folder: Path) -> None:
        self.agent = agent
        self.folder = folder
        """Where it may write."""
        self.path = path
        """The file of the message."""

    @property
    def repository(self) -> str:
        return self._message.repository

    def work(self, answers: Mapping[str, Answer]) -> None:
        """Answer the message unless that was done before, and delete it. A type that is not ours has no answer."""
        try:
            message = _read(self.path)
        except FileNotFoundError:
            return
        make_folder(self.folder)
        with closing(sqlite3.connect(self.folder / "memory.db", timeout=30)) as self.memory:
            self.memory.executescript(SCHEMA)
            self.memory.execute("pragma synchronous = full")
            key = message.id or message.path.name
            if self.memory.execute("select 1 from seen where id = ?", (key,)).fetchone():
                print(f"{message.type} {key} is answered already")
            elif message.type not in answers:
                print(f"{message.sender} sent a {message.type}, to which {self.agent} has no answer")
            else:
                self._message = message
                answers[message.type](self, message)
            self.memory.execute("insert or ignore into seen values (?)", (key,))
            self.memory.commit()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def send(
        self, to: Sequence[str], kind: str, body: Body, key: str = "", *, cc: Sequence[str] = (), answers: str = ""
    ) -> None:
        """Send a message in this thread, once for each key. `answers` is the id of an earlier one that it answers."""
        words = ["send", "--from", self.agent, "--type", kind, "--reply-to", str(self.path), "--once", key or kind]
        words += [f"--to={','.join(to)}", *([f"--cc={','.join(cc)}"] if cc else [])]
        words += ["--priority", "high" if kind == "strategy_request" else "normal"]
        for option, value in (("--in-reply-to", answers), ("--repo", self._message.repository)):
            words += [option, value] if value else []
        if mime.main([*words, "--body", yaml_of(body)], lambda _kind, _body: []):
            raise CannotSend(type=kind, to=", ".join(to))

    def recall(self, name: str, default: Any = None) -> Any:
        """Return what is remembered of this thread."""
        row = self.memory.execute(
            "select value from facts where thread = ? and name = ?", (self._message.thread, name)
        ).fetchone()
        return default if row is None else json.loads(row[0])

    def remember(self, **facts: Any) -> None:
        """Remember something of this thread."""
        rows = [(self._message.thread, name, json.dumps(value)) for name, value in facts.items()]
        self.memory.executemany("insert or replace into facts values (?, ?, ?)", rows)


def _read(path: Path) -> TeamMessage:
    try:
        found = mime.parse_message(read_bytes(path).decode("utf-8", "replace"))
    except BadFile as error:
        raise NotUnderstood(type="a message", sender=path, why=error) from None
    head = {name: str(value) for name, value in found.items()}
    return TeamMessage(
        path,
        head["message_id"],
        head["type"],
        head["from"],
        head["thread_id"] or head["message_id"],
        head["repository"],
        read_body(head["body"]),
    )
