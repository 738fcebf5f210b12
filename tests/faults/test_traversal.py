"""Names from outside that want to be paths or shell words: refused wherever they come in, and nothing is ever written
outside the home, nor where a name points."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees
from tests.faults.named_paths import EVIL, LONGEST_NAME, SAFE

COUNT = 100_000 if trees.CAMPAIGN else 400

NAMED_PATHS = Path(__file__).with_name("named_paths.py")


def check_named_paths(tree: Path) -> list[str]:
    """Each path of the home that takes a name, with all of the names."""
    ended = trees.run(tree, trees.new_folder(), [str(NAMED_PATHS), str(COUNT)], timeout=600)
    return ended.stdout.splitlines() + ([ended.stderr] if ended.returncode else [])


def jailed_home() -> tuple[Path, Path]:
    """A home some folders deep in one that is watched."""
    jail = trees.new_folder()
    home = jail / "a" / "b" / "home"
    home.mkdir(parents=True, mode=0o700)
    roomy = {"concurrency": {"max_soldiers": 100_000}, "retry": {"max_attempts": 1}}
    homes.make(home, config={"king": roomy, "general": {"repositories": {"url": f"file://{jail}/nowhere/{{repo}}"}}})
    return jail, home


def escapes(tree: Path, jail: Path, home: Path, *argv: str) -> list[str]:
    """Two runs of a role, and what of it came to lie where nothing should."""
    before = outside(jail, home)
    wrong: list[str] = []
    for _ in range(2):
        ended = trees.run(tree, home, ["-m", *argv, "--once"], timeout=120)
        wrong += [] if ended.returncode == 0 else [f"it ended with {ended.returncode}: {ended.stderr[-500:]}"]
    wrong += [f"outside the home: {path}" for path in sorted(outside(jail, home) ^ before)]
    wrong += [f"a strange path: {path.relative_to(home)}" for path in home.rglob("*") if is_strange(path)]
    return wrong + [f"a command of theirs ran: {path}" for path in jail.rglob("evil")]


def check_king(tree: Path) -> list[str]:
    """Events and answers full of such names."""
    jail, home = jailed_home()
    places = Places(home)
    homes.install(home, homes.GENERAL, subscribes=["*", "github.*", "console.*"])
    for number, name in enumerate(EVIL):
        for thing in events(number, speakable(name)):
            homes.put(home, "events", "pending", thing)
    wrong = escapes(tree, jail, home, "kingdom.king")
    wrong += foreign_names(home)
    dead, left = (list(places.folder(*queue).iterdir()) for queue in (("tasks", "dead"), ("events", "pending")))
    wrong += oracle.exactly("tasks that the king made and put away", 0, len(dead))
    wrong += oracle.exactly("events that still wait", 0, len(left))
    trees.remove(jail)
    return wrong


def check_envoy(tree: Path) -> list[str]:
    """Messages for such rooms, about such tasks, in such threads."""
    jail, home = jailed_home()
    for number, name in enumerate(map(speakable, EVIL)):
        for kind in ("thread_start", "human_input_request", "notification"):
            context = {"checkpoint_path": name, "reply_context": {"general": name, "task_id": name, "session_id": name}}
            source = {"source": name, "channel": name, "thread_ts": name}
            message = homes.message(f"msg-{number}-{kind}", type=kind, channel=name, context=context)
            homes.put(home, "messages", "pending", message | {"task_id": name, "source_ref": source, "dedup_key": name})
    wrong = escapes(tree, jail, home, "kingdom.envoy")
    left = list(Places(home).folder("messages", "pending").iterdir())
    wrong += oracle.exactly("messages that still wait", 0, len(left))
    trees.remove(jail)
    return wrong


def check_general(tree: Path) -> list[str]:
    """Tasks for such repositories, sessions and answers, and a soldier that reports such paths."""
    jail, home = jailed_home()
    homes.install(home, homes.GENERAL, max_soldiers=8)
    package = Places(home).package(homes.GENERAL)
    package.mkdir(parents=True, mode=0o700)
    (package / "prompt.md").write_text("{{REPO}} {{payload.session_id}} {{payload.human_response}}")
    (package / "run").write_text(REPORTER)
    (package / "run").chmod(0o700)
    for number, name in enumerate(map(speakable, EVIL)):
        payload = {"session_id": name, "human_response": name, "checkpoint_path": name, "original_task_id": name}
        payload |= {"workspace": name, "branch": name, "reply_context": {"workspace": name, "repo": name}}
        kind = "resume" if number % 2 else "github.pr.comment"
        for which, repo in {"own": name or None, "acme": f"acme/{name}", "none": None}.items():
            task = homes.task(f"task-{number}-{which}", "evt-x", type=kind, repo=repo, payload=payload)
            homes.put(home, "tasks", "pending", task)
    wrong = escapes(tree, jail, home, "kingdom.general", homes.GENERAL)
    without = [task["id"] for task in oracle.contents(home, "tasks") if not Places(home).result(task["id"]).exists()]
    wrong += [f"tasks without a result: {without[:5]}"] if without else []
    trees.remove(jail)
    return wrong


REPORTER = """#!/bin/sh
cat > /dev/null
cat > "$KINGDOM_RESULT_PATH" <<END
{"status": "needs_human", "question": "?", "checkpoint_path": "../../../evil",
 "session_id": "../../evil", "memory_updates": ["../../evil"], "notify_channel": "../evil", "workspace": "/"}
END
"""


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


CHECKS = {"king": check_king, "envoy": check_envoy, "general": check_general, "named paths": check_named_paths}


@pytest.mark.parametrize("role", CHECKS)
def test_no_name_leads_out_of_the_home(role: str, figure: oracle.Figure) -> None:
    wrong = CHECKS[role](trees.program())
    count = {"king": 7, "envoy": 3, "general": 3}.get(role, 0) * len(EVIL) or COUNT
    figure(f"path traversal, {role}: {count} names, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
