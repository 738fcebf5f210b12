"""The power cut while a client is served: what the client was told holds, and nothing lies twice or in half."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from kingdom.base.disk.codec import parse_json
from kingdom.base.home.places import Places
from kingdom.mq import configuration
from tests.faults import powerloss, trees
from tests.faults.mailbox import life
from tests.faults.oracle import Figure
from tests.faults.sweep import QUICK_STATES, none_bad

BACKENDS = ("filesystem", "sqlite", "hybrid") if trees.CAMPAIGN else ("hybrid",)
RECORDINGS = 4
AN_HOUR_MS = 3_600_000


def prepare(home: Path, backend: str) -> None:
    for folder in (home / "config", home / "queue" / "mailbox" / "requests"):
        folder.mkdir(mode=0o700, parents=True)
    config = {"backend": backend, "durability": "power", "sqlite": {"reserveMiB": 0.01}}
    (home / "config" / "mq.yaml").write_text(json.dumps(config))


def cuts(tree: Path, backend: str, *, budget: int | None = None) -> powerloss.Report:
    def judge(home: Path, cut: powerloss.Cut) -> list[str]:
        again = trees.run(tree, home, ("-m", "kingdom.mailbox", "--once"))
        if again.returncode != 0:
            return [f"the restart ended with {again.returncode}: {again.stderr[-600:]}"]
        return [*halves(home), *broken_promises(home, cut.said)]

    name = f"mailbox over {backend}"
    for _ in range(RECORDINGS):
        recorded = _recorded(tree, backend)
        # Two processes: strace may tell of an open before it tells that the rename it saw has ended.
        with suppress(powerloss.Unknown):
            return powerloss.replay(name, recorded, judge, budget=budget)
    raise AssertionError(f"{RECORDINGS} recordings of two processes, none of them in order")


def _recorded(tree: Path, backend: str) -> powerloss.Record:
    home = trees.new_folder() / "home"
    home.mkdir(mode=0o700)
    prepare(home, backend)
    argv = [sys.executable, life.__file__, str(home)]
    recorded = powerloss.record(argv, home, cwd=tree, env=trees.environment(tree, home))
    assert recorded.code == 0, recorded.errors
    trees.remove(home.parent)
    return recorded


def halves(home: Path) -> list[str]:
    """What anybody may read after the restart, and cannot; dead/ is for that."""
    wrong = []
    for path in [*home.glob("queue/mailbox/[!d]*/**/*.json"), *home.glob("queue/mq/**/*.json")]:
        try:
            parse_json(path.read_bytes())
        except ValueError as error:
            wrong.append(f"{path.relative_to(home)}: {error}")
    return wrong


def broken_promises(home: Path, said: bytes) -> list[str]:
    told: dict[str, set[str]] = {}
    for line in said.decode("utf-8", "replace").splitlines():
        if line.startswith(life.MARK):
            what, label, _ = json.loads(line.removeprefix(life.MARK))
            told.setdefault(what, set()).add(label)
    waiting, dead = there(home)
    lies = waiting + dead
    wrong = [f"{label} lies there {count} times" for label, count in lies.items() if count > 1]
    kept = told.get("published", set()) - told.get("ends", set()) | told.get("buried", set())
    wrong += [f"{label} was promised and is lost" for label in sorted(kept - set(lies))]
    wrong += [f"{label} was acknowledged and is back" for label in sorted(told.get("acked", set()) & set(lies))]
    wrong += [f"{label} is no dead letter any more" for label in sorted(told.get("buried", set()) - set(dead))]
    return wrong


def there(home: Path) -> tuple[Counter[str], Counter[str]]:
    """What waits once all leases have ended, and what is dead, by label."""
    later = time.time_ns() // 1_000_000 + AN_HOUR_MS
    engine = configuration.open_engine(configuration.load(Places(home)), lambda: later, lambda *_, **__: None)
    try:
        engine.sweep()
        if life.QUEUE not in engine.queues.names():
            return Counter(), Counter()
        waiting = [json.loads(message.payload) for message in engine.peek(life.QUEUE, 100)]
        letters = [json.loads(letter.record) for letter in engine.dead_letters.listed(life.QUEUE)]
    finally:
        engine.close()
    dead = [letter["originalMessage"]["payload"] for letter in letters]
    return Counter(payload["label"] for payload in waiting), Counter(payload["label"] for payload in dead)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_power_cut_breaks_no_promise(backend: str, figure: Figure) -> None:
    none_bad(cuts(trees.program(), backend, budget=QUICK_STATES), figure)
