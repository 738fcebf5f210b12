"""A home with the council, its team and its general, all turned by hand; and a small repository to work on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import read_json
from kingdom.court.general.job import GeneralJob
from tests.council.monitor.councils import Council, council_of
from tests.fixtures import Clock, all_of, founded, install, put, services, task
from tests.waiting import LATER, wait_until

TASK = "task-20260207-001"
GENERAL = "gen-council"
FILES = {
    "README.md": "# Shop\n\nSells things.\n",
    "pyproject.toml": '[project]\nname = "shop"\ndescription = "Sells things"\nversion = "1.2"\n'
    '[project.scripts]\nshop = "shop.main:main"\n',
    "Makefile": "test:\n\tpytest\nrun:\n\tpython -m shop\n",
    "LICENSE": "MIT\n",
    "shop/cart.py": "def add():\n    pass  # TODO: count `twice` <b>\n",
    "shop/price.py": "# FIXME(ann) round it\nPRICE = 1\n",
    "shop/todos.py": "todo_list = 'TODOS'\n",
    "tests/test_cart.py": "from shop.cart import add\n",
    "docs/guide.md": "# Guide\n",
    ".env": "TODO=secret\n",
}


def repository(folder: Path) -> Path:
    """Write a small repository."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Team:
    """`council` tells the agents, `general` gives it goals. Both can be started again as after a kill."""

    def __init__(self, council: Council, shop: Path) -> None:
        self.council, self.home, self.places, self.shop = council, council.home, council.places, shop
        self.start()

    def start(self) -> None:
        """Start the general, also again."""
        self.clock = Clock()
        self.services = services(self.home, GENERAL, self.clock)
        self.general = GeneralJob(self.services)

    def give(self, goal: str = "README outline", name: str = TASK, **fields: Any) -> None:
        """Give the general a task, as the king does."""
        payload = {"goal": goal, "folder": str(self.shop), **fields.pop("payload", {})}
        fields = {"type": "council.message", "repo": None, "priority": "normal", **fields}
        reply = {"source": "console", "channel": "console", "event_id": "evt-1"}
        put(self.home, "tasks", "pending", **task(name, GENERAL, payload=payload, reply_to=reply, **fields))

    def answer(self, words: str, original: str = TASK, name: str = "task-20260207-002", thread: str = TASK) -> None:
        """Let a person say something in the conversation of a task."""
        payload = {"original_task_id": original, "human_response": words, "session_id": thread}
        self.give(name=name, type="resume", thread_task_id=TASK, payload={**payload, "goal": None})

    def until(self, seen: Callable[[], Any], what: str) -> Any:
        """Turn both until something is so."""

        def turned() -> Any:
            self.general.turn(None)
            self.council.turn()
            return seen()

        return wait_until(turned, LATER, what, (self.places.council, self.places.results))

    def result(self, name: str = TASK) -> dict[str, Any]:
        found: dict[str, Any] = self.until(lambda: _json_or_none(self.places.result(name)), f"the result of {name}")
        return found

    task = TASK

    def step_to_result(self) -> Any:
        """Turn both once, and return the result of the first task when it is there."""
        self.general.turn(None)
        self.council.turn()
        return _json_or_none(self.places.result(TASK))

    def told(self, *types: str) -> list[str]:
        """Return what was sent in the thread of the first task: `leader → strategist strategy_request`."""
        listed = self.places.council_threads / f"{TASK}.jsonl"
        lines = listed.read_text().splitlines() if listed.exists() else []
        rows = [json.loads(line) for line in lines]
        return [f"{row['from']} → {row['agent']} {row['type']}" for row in rows if not types or row["type"] in types]

    def posts(self) -> list[str]:
        return [post["content"] for post in all_of(self.home, "messages", "pending")]


def _json_or_none(path: Path) -> Any:
    return read_json(path) if path.exists() else None


@contextmanager
def team_of(home: Path, shop: Path, **settings: Any) -> Iterator[Team]:
    """A council whose agents are the team's."""
    founded(home)
    install(home, GENERAL, engine="council", needs_model=False, keywords=["council"])
    settings = {"queue": {"parallel_max": 8}, "retry": {"base_delay": 0}, **settings}
    with council_of(home, **settings) as council:
        yield Team(council, repository(shop))
