"""Names from outside that want to be paths or shell words: refused at every door, and nothing is ever written
outside the home, nor where a name points."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.errors import BadName
from kingdom.places import LONGEST_NAME, Places
from tests.faults import homes, oracle, trees

COUNT = 100_000 if trees.CAMPAIGN else 10_000
KING = ("-m", "kingdom.king", "--once")

EVIL = (
    *("..", ".", "../x", "../../../../../../tmp/evil", "/etc/passwd", "/tmp/evil", "a/b", "a/../../b", "./a", "~root"),
    *("a\0b", "a\nb", "a\rb", "a b", "a\tb", "a;b", "$(touch evil)", "`touch evil`", "a|b", "a&b", "a>b", "*", "?"),
    *("-rf", "--upload-pack=touch evil", "-oProxyCommand=x", "%2e%2e%2f", "..%2f..", "..\\..\\x", "C:\\x", "\\\\x\\y"),
    *(".hidden", "x.tmp/../y", "a\u202egnp", "a\u2044b", "\uff0e\uff0e\uff0fx", "a\u0000", "\uff41", "é", "가", ""),
    *(
        " ",
        "x" * 201,
        "x" * 5000,
        "con",
        "nul",
        "a'b",
        'a"b',
        "{a}",
        "%s%n",
        "\ud800",
        "#{pane_pid}",
        "#(touch evil)",
        "=king",
    ),
)
ALPHABET = [*"abc019._:@+-", *"/\\.. \n\0~$`;|&<>*?'\"%#(){}[]!,=^", "é", "가", "\u2028", "\ufeff", "\udcff"]

DOORS: dict[str, Callable[[Places, str], tuple[Path, Path]]] = {
    "letter": lambda places, name: (places.letter("events", "pending", name), places.folder("events", "pending")),
    "own": lambda places, name: (places.own(name), places.state),
    "scratch": lambda places, name: (places.scratch(name).parent, places.state),
    "heartbeat": lambda places, name: (places.heartbeat(name).parent, places.state),
    "lock": lambda places, name: (places.lock(name).parent, places.state),
    "role_log": lambda places, name: (places.role_log(name), places.logs),
    "wanted": lambda places, name: (places.wanted(name), places.wanted_folder),
    "starts": lambda places, name: (places.starts(name), places.run),
    "result": lambda places, name: (places.result(name), places.results),
    "raw_result": lambda places, name: (places.raw_result(name), places.results),
    "checkpoint": lambda places, name: (places.checkpoint(name), places.results),
    "prompt": lambda places, name: (places.prompt(name), places.prompts),
    "soldier": lambda places, name: (places.soldier(name), places.soldiers),
    "workspace of a general": lambda places, name: (places.workspace(name, "t").parent, places.workspaces),
    "workspace of a task": lambda places, name: (places.workspace("g", name).parent, places.workspaces),
    "session_log": lambda places, name: (places.session_log(name, "out"), places.session_logs),
    "manifest": lambda places, name: (places.manifest(name), places.manifests),
    "package": lambda places, name: (places.package(name), places.home / "generals"),
    "memory": lambda places, name: (places.general_memory(name), places.memory / "generals"),
}
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@+-")


def names(count: int) -> Iterator[str]:
    dice = random.Random(14)
    yield from EVIL
    for _ in range(count - len(EVIL)):
        yield "".join(dice.choices(ALPHABET, k=dice.choice((1, 2, 3, 5, 8, 30))))


@pytest.mark.parametrize("door", DOORS)
def test_a_name_is_one_safe_path_component_or_refused(door: str) -> None:
    places = Places(Path("/home/of/ours"))
    for name in names(COUNT // len(DOORS)):
        try:
            path, parent = DOORS[door](places, name)
        except BadName:
            continue
        assert set(name) <= SAFE, name
        assert not name.startswith(".")
        assert 0 < len(name.encode()) <= LONGEST_NAME
        below = path if door != "workspace of a task" else path.parent
        assert below.parent == parent or path.parent == parent, (name, path)
        assert os.path.normpath(path) == str(path), (name, path)


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


CHECKS = {"king": check_king}


@pytest.mark.parametrize("role", CHECKS)
def test_no_name_leads_a_role_out_of_the_home(role: str, figure: oracle.Figure) -> None:
    wrong = CHECKS[role](trees.program())
    figure(f"path traversal, {role}: {len(EVIL) * 7} files, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
