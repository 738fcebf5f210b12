"""A kingdom at work whose files are broken and mended while its roles come and go, and what must hold afterwards."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kingdom.base.errors import KingdomError
from kingdom.base.home import roster
from kingdom.base.home.places import Places
from kingdom.base.records import refusals
from tests.faults import homes, oracle, trees
from tests.faults.watch.kingdoms import Kingdom, kingdom

WORKER, ASKER = homes.GENERAL, "gen-ask"
OPTIONAL = ("mailbox", "council", "gateway", "worker")
ROLES = ("chamberlain", "king", "envoy", "sentinel", *OPTIONAL, WORKER, ASKER)
QUICK_ROLES = ("chamberlain", "king", "envoy", "sentinel", "mailbox", WORKER, ASKER)
CONFIGS = ("system", "king", "general", "sentinel", "envoy", "chamberlain", "mq", "council", "hall")
MANIFESTS = tuple(f"config/generals/{general}.yaml" for general in (WORKER, ASKER))
FILES = (*(f"config/{name}.yaml" for name in CONFIGS), *MANIFESTS, ".env")
ENV = {"KINGDOM_SHORT_RUNS": "100000", "KINGDOM_DELAY_LONGEST": "100"}
"""Roles are killed all the time, also while they load: that is no crash loop here."""

SOLDIER = """#!/bin/sh
# Does as its task says: asks a person, fails, takes a while, or is done at once.
read -r type say
status=success more=
case $type in resume) say= ;; esac
case $say in
    ask) status=needs_human more=', "question": "and now?"' ;;
    fail) status=failed more=', "error": "as it was asked to"' ;;
    slow) sleep 20 ;;
esac
echo "$KINGDOM_TASK_ID" >>"$KINGDOM_HOME/served"
exec >"$KINGDOM_RESULT_PATH"
printf '{"task_id": "%s", "status": "%s", "summary": "done"%s}' "$KINGDOM_TASK_ID" "$status" "$more"
"""
BAD_VALUES = {
    "system": "heartbeat: {threshold_seconds: -1}\n",
    "king": "concurrency: {max_soldiers: many}\n",
    "general": "budgets: 7\n",
    "sentinel": "polling: {github: {interval_seconds: x}}\n",
    "envoy": "intervals: {message_check_seconds: -2}\n",
    "chamberlain": "thresholds: {yellow: hot}\n",
    "mq": "backend: paper\n",
    "council": "queue: {parallel_max: -1}\n",
    "hall": "port: 99999999\n",
}


class Damages:
    """Ways in which a file can be broken. Each leaves something from which `mend` comes back."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._half: dict[Path, Any] = {}

    def truncated(self, path: Path, whole: bytes) -> None:
        path.write_bytes(whole[: self._dice.randrange(1, max(2, len(whole) - 4))])

    def empty(self, path: Path, whole: bytes) -> None:
        path.write_bytes(b"")

    def bad_yaml(self, path: Path, whole: bytes) -> None:
        path.write_bytes(whole + b"\na: [1, {\n")

    def wrong_type(self, path: Path, whole: bytes) -> None:
        path.write_bytes(b"- this\n- is a list\n")

    def bad_value(self, path: Path, whole: bytes) -> None:
        known = BAD_VALUES.get(path.stem)
        path.write_bytes(known.encode() if known else whole.replace(b"timeout_seconds: 60", b"timeout_seconds: 1"))
        if path.name == ".env":
            path.chmod(0o644)

    def unreadable(self, path: Path, whole: bytes) -> None:
        path.chmod(0)

    def a_folder(self, path: Path, whole: bytes) -> None:
        path.unlink()
        path.mkdir()

    def half_written(self, path: Path, whole: bytes) -> None:
        file = path.open("wb")
        file.write(whole[: len(whole) // 2])
        file.flush()
        self._half[path] = file, whole[len(whole) // 2 :]

    def missing(self, path: Path, whole: bytes) -> None:
        path.unlink()

    def mend(self, path: Path, whole: bytes) -> None:
        if path in self._half:
            file, rest = self._half.pop(path)
            with file:
                file.write(rest)
            return
        if path.is_dir():
            path.rmdir()
        if path.exists():
            path.chmod(0o600)
            if path.read_bytes() == whole:
                return
        if path.exists() and self._dice.random() < 0.5:
            path.write_bytes(whole)
        else:
            draft = path.with_name(f".{path.name}.draft")
            draft.write_bytes(whole)
            draft.chmod(0o600)
            draft.replace(path)


KINDS = tuple(name for name in vars(Damages) if not name.startswith("_") and name != "mend")


def kinds_of(file: str) -> list[str]:
    """Return how a file can be damaged. Without its port the hall would take that of another kingdom on the machine."""
    without_port = ("empty", "missing") if file == "config/hall.yaml" else ()
    return [kind for kind in KINDS if kind not in without_port]


class Turmoil:
    """The kingdom, what was done to it, and what it was given to do."""

    def __init__(self, court: Kingdom, dice: random.Random, roles: tuple[str, ...]) -> None:
        self.court, self.places, self.dice, self.roles = court, court.places, dice, roles
        self._damages = Damages(dice)
        self.whole = {file: (self.places.home / file).read_bytes() for file in FILES}
        self.broken: set[str] = set()
        #: What each event says that its task shall do.
        self.put: dict[str, str] = {}
        #: The questions that were answered, by the event that answers.
        self.answered: dict[str, str] = {}
        #: Orders of people: the task that each one is about, by order.
        self.cancelled: dict[str, str] = {}
        self.retried: dict[str, str] = {}
        self.did: Counter[str] = Counter()

    # What people and other programs do.

    def arrive(self, say: str = "work") -> str:
        name = f"evt-{len(self.put) + 1:05}"
        general_type = "github.issue.assigned" if say == "ask" else "github.pr.review_requested"
        self.put[name] = say
        payload = {"subject_title": "x", "say": say}
        homes.put(self.places.home, "events", "pending", homes.event(name, general_type, repo=None, payload=payload))
        return name

    def open_questions(self) -> list[str]:
        answered = set(self.answered.values())
        asked = (path.name.removesuffix("-checkpoint.json") for path in self.places.results.glob("*-checkpoint.json"))
        return sorted(task for task in asked if task not in answered and self._has_asked(task))

    def _has_asked(self, task: str) -> bool:
        return self.places.queue_file("tasks", "completed", task).exists()

    def answer(self, task: str) -> None:
        name = f"evt-answer-{len(self.answered) + 1:05}"
        self.answered[name] = task
        payload = {"task_id": task, "human_response": "go on", "text": "go on", "user": "me"}
        event = homes.event(name, "console.human_response", repo=None, payload=payload, priority="high")
        homes.put(self.places.home, "events", "pending", event)

    def cancel(self, task: str) -> None:
        name = f"order-cancel-{len(self.cancelled) + 1:05}"
        self.cancelled[name] = task
        homes.put(self.places.home, "orders", "pending", homes.order(name, action="cancel", target=task))

    def retry(self, task: str) -> None:
        name = f"order-retry-{len(self.retried) + 1:05}"
        self.retried[name] = task
        homes.put(self.places.home, "orders", "pending", homes.order(name, action="retry", target=task))

    # Faults.

    def damage(self, file: str, kind: str) -> None:
        self.broken.add(file)
        self.did[kind] += 1
        getattr(self._damages, kind)(self.places.home / file, self.whole[file])

    def mend(self, file: str) -> None:
        self.broken.discard(file)
        self._damages.mend(self.places.home / file, self.whole[file])

    def kill(self, role: str) -> None:
        pids = self.court.role_processes(role)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.did["kill -9"] += len(pids)

    def has_come_back(self, role: str) -> bool:
        """Return whether a role that was killed works again, or has refused to."""
        return self.court.works(role) or refusals.why(self.places, role) != ""

    def stop(self, role: str) -> None:
        """As `supervisorctl stop` does it, and `kingdom stop` under tmux."""
        with suppress(KingdomError):
            self.court.steward.stop(role)
            self.did["stop"] += 1

    def start(self, role: str) -> None:
        with suppress(KingdomError):
            self.court.steward.start(self._row(role))
            self.did["start"] += 1

    def _row(self, role: str) -> roster.RoleRow:
        return roster.general(role) if role.startswith("gen-") else roster.ROLES[role]

    def pause(self, most: float) -> None:
        trees.until(lambda: False, most * self.dice.random())

    # What must hold.

    def done(self) -> int:
        """Return how many events and messages are done: it grows while there is progress."""
        ends = (self.places.folder("events", "completed"), self.places.folder("messages", "sent"))
        return sum(len(_names(folder)) for folder in ends)

    def is_at_rest(self) -> bool:
        """Return whether all roles work, and all that has come in is done and told."""
        return not self.not_yet()

    def not_yet(self) -> list[str]:
        places, home = self.places, self.places.home
        done = set(_names(places.folder("events", "completed")))
        waits = [f"{name}.json" for name in (*self.put, *self.answered) if f"{name}.json" not in done]
        left = [f"{kind}/{state}" for kind, state in LEFT if _names(places.folder(kind, state))]
        idle = [f"{role} is {self.court.beat(role)['state']}" for role in self.roles if not self.court.works(role)]
        return [*waits[:5], *left, *idle] if home.exists() else []

    def wrong(self) -> list[str]:
        """Each event one task, each answer one resume, each told once; nothing is discarded, parked or left over.

        A task that was cancelled, and one that was asked to fail, may end so.
        """
        home = self.places.home
        found = [*oracle.half_visible(home), *oracle.in_one_place(home), *oracle.parked(home)]
        found += [f"not at rest: {what}" for what in self.not_yet()]
        tasks = oracle.contents(home, "tasks")
        again = {made for task in tasks for made in task.get("retried_as") or ()}
        by_event = Counter(task["event_id"] for task in tasks if task["id"] not in again)
        cancelled = {task["event_id"] for task in tasks if task["id"] in self.cancelled.values()}
        for name in (*self.put, *self.answered):
            found += oracle.exactly(f"tasks of {name}", 1, by_event[name])
        for event in oracle.contents(home, "events"):
            may_fail = event["id"] in cancelled or self.put.get(event["id"]) == "fail"
            if event.get("status") in ("discarded", "failed") and not may_fail:
                found.append(f"{event['id']} is {event['status']}: {event.get('discarded_reason')}")
        for order in oracle.contents(home, "orders"):
            wanted = int(order["action"] == "retry" and order.get("code") == "done")
            found += oracle.exactly(f"tasks made by {order['id']}", wanted, int(order.get("made") in again))
        found += oracle.exactly("orders", len(self.cancelled) + len(self.retried), len(oracle.contents(home, "orders")))
        resumed = Counter(
            task["payload"].get("original_task_id")
            for task in tasks
            if task["type"] == "resume" and task["id"] not in again
        )
        for question in self.answered.values():
            found += oracle.exactly(f"resumes of {question}", 1, resumed[question])
        found += [f"{task['id']} is {task['state']}" for task in tasks if task["state"] != "completed"]
        messages = oracle.contents(home, "messages")
        found += [f"{message['id']} is {message['state']}" for message in messages if message["state"] != "sent"]
        first = Counter(message["task_id"] for message in messages if message["type"] in FIRST)
        last = Counter((_ended_by(message), message["type"]) for message in messages)
        threads = Counter(task.get("thread_task_id") or task["id"] for task in tasks if task["id"] not in again)
        for thread, tasks_in_it in threads.items():
            found += oracle.exactly(f"beginnings told of {thread}", tasks_in_it, first[thread])
        for task in tasks:
            if (type_ := LAST.get(task["outcome"])) is not None:
                found += oracle.exactly(f"{type_} of {task['id']}", 1, last[task["id"], type_])
        return found


FIRST = ("thread_start", "thread_update")
LAST = {"success": "notification", "failed": "notification", "needs_human": "human_input_request"}
"""What people are told at the beginning of a task, and by its outcome at its end."""


def _ended_by(message: dict[str, Any]) -> str | None:
    context = (message.get("context") or {}).get("reply_context") or {}
    task: str | None = context.get("task_id")
    return task


LEFT = (
    ("events", "pending"),
    ("events", "dispatched"),
    ("tasks", "pending"),
    ("tasks", "in_progress"),
    ("messages", "pending"),
    ("orders", "pending"),
)


def _names(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith(".")]


@contextmanager
def turmoil(launcher: str, seed: int, roles: tuple[str, ...] = ROLES, tree: Path | None = None) -> Iterator[Turmoil]:
    """Return a kingdom that is up, with two generals: one that works and one that asks."""
    switched = {role: role in roles for role in OPTIONAL}
    config: dict[str, dict[str, Any]] = {
        # Shipped times, apart from those of a busy machine.
        "system": {"heartbeat": {"threshold_seconds": 120}, "roles": switched},
        "chamberlain": {"intervals": {"roll_call_seconds": 5}},
        "king": {"concurrency": {"max_soldiers": 6}, "retry": {"max_attempts": 2, "backoff_seconds": 0}},
        "general": {"budgets": {}},
        "sentinel": {"polling": {}},
        "envoy": {"intervals": {"message_check_seconds": 5}},
        "mq": {"backend": "filesystem"},
        "council": {"queue": {"parallel_max": 4}},
        "hall": {"port": 0},
    }
    manifest = {"engine": "command", "sandbox": "off"}
    with kingdom(launcher, tree=tree, config=config, env=ENV, manifest=manifest) as court:
        homes.install(court.home, ASKER, subscribes=["github.issue.*"], **manifest)
        for general in (WORKER, ASKER):
            _package(court.places, general)
        court.places.env_file.write_text("CANARY=a-secret-of-nobody\n")
        court.places.env_file.chmod(0o600)
        done = court.cli("up", timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr + court.logs()
        court.wait_for_beats(*roles, seconds=60)
        with _environment(court.env):
            yield Turmoil(court, random.Random(seed), roles)


@contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    """Let roles that are started from here have the environment of the others: it is handed on by who starts them."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _package(places: Places, general: str) -> None:
    package = places.package(general)
    package.mkdir(parents=True, mode=0o700, exist_ok=True)
    (package / "prompt.md").write_text("{{TASK_TYPE}} {{payload.say}}\n")
    (package / "run").write_text(SOLDIER)
    (package / "run").chmod(0o700)
