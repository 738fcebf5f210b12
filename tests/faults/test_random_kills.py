"""Any process is killed at any moment: every event becomes one task and one outcome, every message is posted once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees
from tests.faults.sweep import end_strays, processes_of
from tests.waiting import SOON

EVENTS = 500 if trees.CAMPAIGN else 12
SEED = int(os.environ.get("KINGDOM_SEED", "20260207"))
PAUSE_SECONDS = 0.6
HOMES = 20
LOOKS = 12
"""So often the home is looked over while it is at work."""
SECONDS = EVENTS * 6.0 + 120
GENERALS = (homes.GENERAL, "gen-other")
ROLES = {
    "king": ("-m", "kingdom.king"),
    "envoy": ("-m", "kingdom.envoy"),
    **{name: ("-m", "kingdom.general", name) for name in GENERALS},
}

SOLDIER = """#!/bin/sh
cat > /dev/null
sleep 0.2 & wait
echo "{\\"task_id\\": \\"$KINGDOM_TASK_ID\\", \\"status\\": \\"success\\", \\"summary\\": \\"well\\"}" > "$TMPDIR/draft"
mv "$TMPDIR/draft" "$KINGDOM_RESULT_PATH"
"""


@dataclass
class Court:
    """Roles that are started again whenever they end, and somebody who ends them."""

    home: Path
    dice: random.Random
    living: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    restarts: int = 0

    def raise_all(self) -> None:
        for name, argv in ROLES.items():
            child = self.living.get(name)
            if child is None or child.poll() is not None:
                self.restarts += child is not None
                self.living[name] = subprocess.Popen(
                    [sys.executable, *argv],
                    cwd=trees.program(),
                    env=trees.environment(trees.program(), self.home),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )

    def strike(self) -> None:
        """Somebody who is awake: a role, or a soldier with or without its engine."""
        soldiers = self.soldiers()
        victim = self.dice.choice([*ROLES, *(["soldier"] * 2 if soldiers else [])])
        if victim == "soldier":
            pid = self.dice.choice(soldiers)
        elif self.awake(victim):
            pid = self.living[victim].pid
        else:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[victim] += 1

    def awake(self, role: str) -> bool:
        with suppress(FileNotFoundError, BadFile):
            return read_json(Places(self.home).heartbeat(role))["pid"] == self.living[role].pid
        return False

    def soldiers(self) -> list[int]:
        roles = {child.pid for child in self.living.values()}
        return [pid for pid in processes_of(self.home) if pid not in roles and is_soldier(pid)]

    def stop(self) -> None:
        for child in self.living.values():
            child.send_signal(signal.SIGTERM)
        for child in self.living.values():
            child.wait(SOON)


@contextmanager
def court(home: Path) -> Iterator[Court]:
    gathered = Court(home, random.Random(SEED))
    try:
        yield gathered
    finally:
        for child in gathered.living.values():
            child.kill()
            child.wait()
        end_strays(home)


def is_soldier(pid: int) -> bool:
    try:
        return b"KINGDOM_TASK_ID=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def prepare(home: Path) -> Places:
    retry = {"max_attempts": 50, "backoff_seconds": 0}
    king = {"retry": retry, "concurrency": {"max_soldiers": 4}}
    places = homes.make(home, config={"king": king, "general": {"trusted": list(GENERALS)}})
    homes.install(home, "gen-other", subscribes=["jira.*"])
    for name in GENERALS:
        package = places.package(name)
        package.mkdir(parents=True)
        (package / "prompt.md").write_text("Do {{TASK_ID}}")
        (package / "run").write_text(SOLDIER)
        (package / "run").chmod(0o755)
    return places


def tell(places: Places, number: int) -> None:
    """As a foreign writer tells it: hidden first."""
    type_ = ("github.pr.review_requested", "jira.ticket.assigned")[number % 2]
    event = homes.event(f"evt-{number}", type_, repo=None)
    folder = places.folder("events", "pending")
    draft = folder / f".evt-{number}.tmp"
    draft.write_text(json.dumps(event))
    draft.rename(folder / f"evt-{number}.json")


def test_no_kill_at_any_moment_loses_or_doubles_anything(home: Path, figure: oracle.Figure) -> None:
    places = prepare(home)
    began = time.monotonic()
    with court(home) as roles:
        told, looks = 0, 0
        alarms: list[str] = []
        while ended(places) < EVENTS:
            assert time.monotonic() - began < SECONDS, f"{ended(places)} of {EVENTS} ended, {dict(roles.kills)}"
            roles.raise_all()
            if told < EVENTS and told - ended(places) < 12:
                tell(places, told)
                told += 1
            roles.strike()
            pause = partial(trees.until, lambda: False, PAUSE_SECONDS * roles.dice.random())
            if looks < LOOKS:
                looks += 1
                alarms += oracle.by_fsck(home, pause=pause)
            else:
                pause()
        roles.raise_all()
        assert trees.until(lambda: (roles.raise_all(), quiet(places))[1], 60), "all messages are posted"
        roles.stop()
        roles.raise_all()
        trees.until(lambda: all(roles.awake(name) for name in ROLES), SOON)
        roles.stop()
    wrong = [*lost_or_doubled(places), *oracle.tidy(home), *left(places), *alarms]
    kills = ", ".join(f"{name} {count}" for name, count in sorted(roles.kills.items()))
    seconds = time.monotonic() - began
    figure(f"fsck of a home at work, its roles being killed: {looks} looks, {len(alarms)} alarms")
    figure(f"random kills: {EVENTS} events, {roles.kills.total()} kills ({kills}), {len(wrong)} wrong, {seconds:.0f} s")
    assert not wrong, "\n".join(wrong)
    assert roles.kills.total() >= EVENTS / 4


@trees.in_campaigns
def test_homes_at_work_raise_no_alarm(figure: oracle.Figure) -> None:
    looks, alarms = 0, []
    for number in range(HOMES):
        folder = trees.new_folder()
        places = prepare(folder)
        with court(folder) as roles:
            roles.raise_all()
            began = time.monotonic()
            for event in range(number % 5 + 2):
                tell(places, event)
            while ended(places) < number % 5 + 2 or not quiet(places):
                assert time.monotonic() - began < SOON, f"{ended(places)} events ended"
                looks += 1
                alarms += oracle.by_fsck(folder, pause=partial(trees.until, lambda: False, 0.1))
            roles.stop()
    figure(f"fsck of {HOMES} homes at work: {looks} looks, {len(alarms)} alarms")
    assert not alarms, "\n".join(alarms)


def ended(places: Places) -> int:
    return len(os.listdir(places.folder("events", "completed")))


def quiet(places: Places) -> bool:
    return not any(os.listdir(places.folder(*queue)) for queue in (("messages", "pending"), ("tasks", "in_progress")))


def lost_or_doubled(places: Places) -> list[str]:
    """By event: one task, one success; by task: a start and an end; by message: one post."""
    home = places.home
    tasks = oracle.contents(home, "tasks")
    messages = oracle.contents(home, "messages")
    posts = Counter(post["letter"] for post in posted(places))
    by_event = Counter(task["event_id"] for task in tasks)
    by_task = Counter((message["task_id"], message["type"]) for message in messages)
    wrong = oracle.exactly("events", EVENTS, len(oracle.states_of(home, "events")))
    for number in range(EVENTS):
        wrong += oracle.exactly(f"tasks of evt-{number}", 1, by_event[f"evt-{number}"])
    for task in tasks:
        if (task["state"], task.get("outcome")) != ("completed", "success"):
            wrong.append(f"{task['id']} ended as {task['state']} {task.get('outcome')}: {error(places, task['id'])}")
        for type_ in ("thread_start", "notification"):
            wrong += oracle.exactly(f"{type_} of {task['id']}", 1, by_task[task["id"], type_])
    for message in messages:
        wrong += oracle.exactly(f"posts of {message['id']}", 1, posts[message["id"]])
    return wrong + oracle.exactly("letters", 2 * EVENTS, len(messages))


def posted(places: Places) -> Iterator[dict[str, str]]:
    for path in places.own("envoy").rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                yield json.loads(line)


def error(places: Places, task: str) -> object:
    with suppress(FileNotFoundError, BadFile):
        return read_json(places.result(task)).get("error")
    return None


def left(places: Places) -> list[str]:
    """Of those who were killed, and of those they had sent."""
    wrong = [f"a process is left: {pid}" for pid in processes_of(places.home)]
    folders = [places.soldiers, *(places.own(name) / "camp" for name in GENERALS)]
    folders += [places.workspaces / name for name in GENERALS]
    wrong += [f"left: {path}" for folder in folders if folder.is_dir() for path in folder.iterdir()]
    kept = re.compile(r"task-\d+-\d+(\.json|-session-id|-soldier-id)")
    raw = [path.name for path in places.results.iterdir() if not kept.fullmatch(path.name)]
    return wrong + [f"left among the results: {name}" for name in raw]
