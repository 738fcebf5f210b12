"""A council in a home of its own: its job is turned by hand, and its agents are small shell programs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kingdom.council import mime
from kingdom.council.monitor.job import CouncilJob
from kingdom.council.monitor.messages import CouncilMessage, read_message
from tests.fixtures import Clock, services
from tests.waiting import LATER, SOON, wait_until

Seen = TypeVar("Seen")

DONE = 'rm "$1"'
LEFT = "true"
CRASH = "echo broken >&2; exit 3"
HANG = "exec sleep 1000"
TOLD = 'echo "$KINGDOM_AGENT $@" >>told.txt; '
"""Notes in the home what an agent is told, and goes on."""


def sh(script: str) -> dict[str, Any]:
    """Return the row of an agent that runs a script with the path as $1."""
    return {"command": ["sh", "-c", script, "agent"], "sandbox": False}


def caged(script: str) -> dict[str, Any]:
    """Return the same in its sandbox, as agents run unless somebody says otherwise."""
    return {"command": sh(script)["command"]}


class Council:
    """The council of a home. `told` are the calls of its agents, in order, of those that note them."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        self.clock = Clock()
        self.dice = 1.0
        self.start(**settings)

    def start(self, **settings: Any) -> None:
        """Start it, also again: what an earlier run has left is as after a kill."""
        self.end()
        given = services(self.home, "council", self.clock, **({"council": settings} if settings else {}))
        self.services = given
        self.places = given.places
        self.job = CouncilJob(given, lambda: self.dice)

    def end(self) -> None:
        """Stop the council. Its agents go on."""
        if hasattr(self, "job"):
            self.job.close()
            for child in self.job._turns._starter._children:
                child.wait(SOON)

    def turn(self) -> None:
        self.job.turn(None)
        self.services.log.flush()

    def until(self, seen: Callable[[], Seen], what: str) -> Seen:
        """Turn until something is so."""

        def turned() -> Seen:
            self.turn()
            return seen()

        return wait_until(turned, LATER, what)

    def settle(self) -> None:
        """Turn until nobody is at work and nothing more may be told."""

        def is_settled() -> bool:
            turn = self.job.turn(None)
            return not (turn.busy or turn.worked)

        wait_until(is_settled, LATER, "the council has settled")
        self.services.log.flush()

    def fail(self, times: int) -> None:
        """Let the tries of what waits fail so often, each as soon as it is due."""
        for _ in range(times):
            self.settle()
            self.clock.pass_(1000)

    def write(self, agent: str = "leader", name: str = "", folder: str = "", raw: bytes = b"", **fields: Any) -> Path:
        """Put a message into a folder as another program would: whole, by a rename."""
        to = fields.pop("to", agent)
        fields = {"from_agent": "user", "msg_type": "user_goal", "body": "goal: a README\n", **fields}
        data = raw or mime.build_message(to_agents=to, **fields).encode()
        target = self.places.agent(agent) / folder / (name or f"{fields['msg_type']}_{self._next():016d}.mime")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.tmp")
        draft.write_bytes(data)
        draft.rename(target.parent / target.name)
        return target

    _number = 1_770_000_000_000_000

    def _next(self) -> int:
        self._number += 1
        return self._number

    def message(self, agent: str, name: str) -> CouncilMessage:
        """Return a message that lies in processed/."""
        path = self.places.told(agent) / name
        return read_message(path, agent, path.read_bytes())

    def headers(self, path: Path) -> dict[str, Any]:
        return mime.parse_message(path.read_text())

    @property
    def told(self) -> list[str]:
        """What agents were told: `leader user_goal_1.mime`."""
        notes = self.home / "told.txt"
        calls = [shlex.split(line) for line in notes.read_text().splitlines()] if notes.exists() else []
        return [f"{agent} {' '.join(Path(path).name for path in paths)}" for agent, *paths in calls]

    def names(self, *parts: str) -> list[str]:
        """Return the messages in a folder of the queue."""
        folder = self.places.council.joinpath(*parts)
        return sorted(path.name for path in folder.glob("*.mime")) if folder.is_dir() else []

    @property
    def everything(self) -> list[str]:
        """Return every message of the queue."""
        return sorted(str(path.relative_to(self.places.council)) for path in self.places.council.rglob("*.mime"))

    @property
    def log(self) -> str:
        path = self.places.role_log("council")
        return path.read_text() if path.exists() else ""


@contextmanager
def council_of(home: Path, **settings: Any) -> Iterator[Council]:
    """A council whose agents have ended at the end."""
    opened = Council(home, **settings)
    try:
        yield opened
    finally:
        for turn in opened.job._turns.running.values():
            turn.soldier.kill()
        opened.end()
