"""Two producers, two consumers, and a manager that is killed every few hundred milliseconds, while somebody sets the
clock, many messages expire together and many leases end together: no message that was acknowledged to its producer is
lost or doubled, none comes back after its ack, all end acked or dead."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kingdom.base.errors import KingdomError
from kingdom.mq.client import Client
from tests.faults import trees
from tests.faults.mailbox import actors, history
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import ROLE_FAULTS
from tests.waiting import SOON

SECONDS = 45.0 if trees.CAMPAIGN else 2.0
LEAST_KILLS = 20 if trees.CAMPAIGN else 2
"""Also where a machine is so busy that a life takes long."""
LIVES_FOR = (0.05, 0.4)
CONFIG = {"durability": "process", "ipc": {"responseTtlSec": 10**9}}
"""The kernel dates files by the true time, so that no answer may be judged by its age here."""
HOUR = 3600
BETWEEN_LIVES = (-HOUR, 0, HOUR)
WHILE_IT_LIVES = (-3 * 24 * HOUR, -HOUR, HOUR, 3 * 24 * HOUR)
AT_THE_END = 2 * HOUR
"""All leases and delays that any life has given are over by then."""
ACTORS = ("produce-1", "produce-2", "consume-1", "consume-2", "mortal-1", "hog-1")
BACKENDS = ("filesystem", "sqlite", "hybrid") if trees.CAMPAIGN else ("filesystem",)


class SetClock:
    """The wall clock of the manager and all who talk to it, which can be set."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        shutil.copy(ROLE_FAULTS, folder / "sitecustomize.py")
        self.env = {"PYTHONPATH": str(folder), "KINGDOM_CLOCK_FILE": str(self._file)}
        self.step(0)

    def step(self, seconds: float) -> None:
        self._ahead = seconds
        self._file.write_text(str(seconds))

    def __call__(self) -> float:
        return time.time() + self._ahead


class Killing:
    """The manager's launcher: starts it, lets it serve for a moment, kills it, and again."""

    def __init__(self, tree: Path, home: Path, clock: SetClock, root: Path, dice: random.Random) -> None:
        self._tree = tree
        self._home = home
        self._clock = clock
        self._root = root
        self._dice = dice
        self.kills = 0

    def go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end or self.kills < LEAST_KILLS:
            base = self._dice.choice(BETWEEN_LIVES)
            self._clock.step(base)
            with trees.running(self._tree, self._home, ("-m", "kingdom.mailbox"), self._clock.env) as manager:
                if not self._serves():
                    raise AssertionError(f"the manager does not serve: {_said(manager)}")
                half = self._dice.uniform(*LIVES_FOR) / 2
                self._clock.step(self._dice.choice(WHILE_IT_LIVES))
                trees.until(lambda: False, half)
                self._clock.step(base)
                trees.until(lambda: False, half)
                manager.kill()
            self.kills += 1

    def _serves(self) -> bool:
        with suppress(KingdomError), Client(self._root, timeout=60, clock=self._clock) as client:
            return client.health()["status"] == "ok"
        return False


def _said(manager: subprocess.Popen[str]) -> str:
    manager.kill()
    return manager.communicate()[1][-500:]


def run_under_kills(tree: Path, backend: str, seconds: float, seed: int) -> tuple[history.Judgement, int]:
    home = trees.new_folder()
    root = home / "queue" / "mailbox"
    notes = home / "notes"
    for folder in (home / "config", notes, root / "requests", home / "site"):
        folder.mkdir(mode=0o700, parents=True)
    clock = SetClock(home / "site")
    (home / "config" / "mq.yaml").write_text(json.dumps(CONFIG | {"backend": backend}))
    processes = [_actor(root, notes, name, home, clock) for name in ACTORS]
    killing = Killing(tree, home, clock, root, random.Random(seed))
    try:
        killing.go_on(seconds)
        (notes / "stop").touch()
        clock.step(AT_THE_END)
        with trees.running(tree, home, ("-m", "kingdom.mailbox"), clock.env):
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(actors.PATIENCE)
            dead, left = _rest(root, clock)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    judgement = history.judge(history.read(notes), dead, left)
    trees.remove(home)
    return judgement, killing.kills


def _actor(root: Path, notes: Path, name: str, home: Path, clock: SetClock) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.faults.mailbox.actors", name.partition("-")[0], str(root), str(notes), name]
    env = {**os.environ, "KINGDOM_HOME": str(home), **clock.env}
    return subprocess.Popen(argv, cwd=trees.CHECKOUT, env=env)


def _rest(root: Path, clock: SetClock) -> tuple[list[str], int]:
    with Client(root, timeout=SOON, clock=clock) as client:
        letters = client.list_dlq(actors.QUEUE, 10_000)
        metrics = client.status(actors.QUEUE)["metrics"]
    left = metrics["ready"] + metrics["inflight"] + metrics["delayed"]
    return [str(letter["messageKey"]).rpartition(":")[2] for letter in letters], left


_seeds = itertools.count(26)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_manager_loses_and_doubles_nothing(backend: str, figure: Figure) -> None:
    judgement, kills = run_under_kills(trees.program(), backend, SECONDS, next(_seeds))
    counts = judgement.counts
    figure(
        f"mailbox over {backend}: {kills} kills, {counts['published']} published, {counts['got']} delivered, "
        f"{counts['acked']} acked, {counts['buried']} dead, {counts['refused']} leases lost, {counts['held']} held "
        f"till their leases ended, {counts['mortal']} batches with a time to live, {counts['too late']} requests past "
        f"their deadline, {len(judgement.wrong)} wrong"
    )
    assert not judgement.wrong, "\n".join(judgement.wrong[:20])
    assert counts["acked"] > 5


def test_the_judge_sees_what_is_wrong() -> None:
    notes = [
        {"at": 1, "who": "p", "what": "published", "label": "a", "id": "1"},
        {"at": 2, "who": "p", "what": "published", "label": "b", "id": "2"},
        {"at": 3, "who": "c", "what": "got", "label": "a", "id": "1"},
        {"at": 4, "who": "c", "what": "acked", "label": "a", "id": "1"},
        {"at": 5, "who": "c", "what": "got", "label": "a", "id": "1"},
        {"at": 6, "who": "c", "what": "got", "label": "a", "id": "3"},
    ]
    wrong = history.judge(notes, [], 1).wrong
    assert [sentence.split(":")[0] for sentence in wrong[1:]] == ["lost", "doubled", "1 messages are left in the queue"]
    assert "after its ack" in wrong[0]
