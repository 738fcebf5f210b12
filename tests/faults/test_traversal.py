"""Names from outside that want to be paths or shell words: refused at every door, and nothing is ever written
outside the home, nor where a name points."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import homes, oracle, trees
from tests.faults.doors import EVIL, LONGEST_NAME, SAFE

COUNT = 100_000 if trees.CAMPAIGN else 10_000
KING = ("-m", "kingdom.king", "--once")

DOORS = Path(__file__).with_name("doors.py")


def check_doors(tree: Path) -> list[str]:
    """Each path of the home that takes a name, with all of the names."""
    ended = trees.run(tree, trees.new_folder(), [str(DOORS), str(COUNT)], timeout=600)
    return ended.stdout.splitlines() + ([ended.stderr] if ended.returncode else [])


def check_king(tree: Path) -> list[str]:
    """Events, tasks, results and answers full of such names, in a home inside a folder that is watched."""
    jail = trees.new_folder()
    home = jail / "a" / "b" / "home"
    home.mkdir(parents=True, mode=0o700)
    (jail / "evil").mkdir()
    places = homes.make(home, config={"king": {"concurrency": {"max_soldiers": 100_000}}})
    homes.install(home, homes.GENERAL, subscribes=["*", "github.*", "console.*"])
    for number, name in enumerate(EVIL):
        for thing in events(number, speakable(name)):
            homes.put(home, "events", "pending", thing)
    before = outside(jail, home)
    wrong: list[str] = []
    for _ in range(2):
        ended = trees.run(tree, home, KING, timeout=60)
        wrong += [] if ended.returncode == 0 else [f"the king ended with {ended.returncode}: {ended.stderr[-500:]}"]
    after = outside(jail, home)
    wrong += [f"outside the home: {path}" for path in sorted(after ^ before)]
    wrong += [f"a strange path: {path.relative_to(home)}" for path in home.rglob("*") if is_strange(path)]
    wrong += foreign_names(home)
    wrong += oracle.exactly(
        "tasks that the king made and put away", 0, len(list(places.folder("tasks", "dead").iterdir()))
    )
    left = list(places.folder("events", "pending").iterdir())
    wrong += oracle.exactly("events that still wait", 0, len(left))
    trees.remove(jail)
    return wrong


def speakable(name: str) -> str:
    """JSON cannot hold a lone surrogate: those have their own test among the bad files."""
    return name.encode("utf-8", "replace").decode()


def events(number: int, name: str) -> Iterator[dict[str, Any]]:
    """The name in every field that becomes a path, a task or a word."""
    payloads: tuple[dict[str, Any], ...] = (
        {"task_id": name, "human_response": "x"},
        {"task_id": "task-1", "reply_context": {"general": f"gen-{name}", "session_id": name, "task_id": name}},
        {"reply_context": {"general": name, "repo": name, "thread_task_id": name}},
        {"text": name, "channel": name, "user": name, "thread_ts": name},
    )
    kinds = ("console.human_response", "console.thread.reply", "console.thread.reply", "console.message")
    for which, (kind, payload) in enumerate(zip(kinds, payloads, strict=True)):
        yield homes.event(f"evt-{number}-{which}", kind, payload=payload, repo=name)
    yield homes.event(f"evt-{number}-type", name[:200] or "x", repo=name)
    yield homes.event(f"evt-{number}-task", task_id=name)
    yield homes.event(f"evt-{number}-letters", task_id=name, letters={"start": name})


def foreign_names(home: Path) -> list[str]:
    """A task may only be for a general, and stand in a thread, whose name could be a file's."""
    wrong = []
    for task, field in itertools.product(oracle.contents(home, "tasks"), ("id", "target_general", "thread_task_id")):
        value = task.get(field)
        if value is not None and not (0 < len(value) <= LONGEST_NAME and set(value) <= SAFE and value[0] != "."):
            wrong.append(f"a task with {field} {value!r}")
    return wrong


def outside(jail: Path, home: Path) -> set[str]:
    return {str(path) for path in jail.rglob("*") if home not in path.parents and path != home}


def is_strange(path: Path) -> bool:
    return path.is_symlink() or not set(path.name.removesuffix(".reason")) <= SAFE


CHECKS = {"king": check_king, "doors": check_doors}


@pytest.mark.parametrize("role", CHECKS)
def test_no_name_leads_out_of_the_home(role: str, figure: oracle.Figure) -> None:
    wrong = CHECKS[role](trees.program())
    count = COUNT if role == "doors" else len(EVIL) * 7
    figure(f"path traversal, {role}: {count} names, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
