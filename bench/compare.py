"""`python bench/compare.py --old TREE [--new TREE] [--rounds N] [--parts … | --processor-time] [--dir DIR]`

Say whether a checkout is slower than another one. Each measures with its own bench and its own .venv, in turns: old,
new, old, new, …, old. Neighbouring runs of the old one, compared with each other, are the spread that the machine
alone makes. New is worse where its median is slower by more than 5 % beyond that spread; then this ends with 1.
With `--dir` on a tmpfs of its own the disk makes no difference, and the code alone is compared. (Not in /dev/shm:
soldiers have no access to it.)

With `--processor-time` the queue's stores are compared by the processor time of a message instead of by the clock, the
trees in turns of a fraction of a second: that says something on a busy machine, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

PARTS = "court,mq_stores,mq_mailbox"
MEASURE = """
import json, sys
from importlib import import_module
quick = sys.argv[2] == "quick"
found = {name: import_module("bench." + name).run(quick)["rows"] for name in sys.argv[1].split(",")}
print(json.dumps(found), file=sys.stderr)
"""
TURN = """
import gc, sys, time
from bench import mq_stores as stores
place = (getattr(stores, "Scratch", None) or stores.Ground)()  # in older checkouts it is called so
gc.disable()
with stores.engine(place, sys.argv[1], "process") as mq:
    for line in sys.stdin:
        began = time.process_time_ns()
        stores.publish(mq, int(line))
        published = time.process_time_ns()
        stores.take(mq, int(line))
        print(published - began, time.process_time_ns() - published, flush=True)
"""
STORES = ("memory", "filesystem", "sqlite", "hybrid")
MESSAGES_A_TURN, TURNS_A_ROUND = 200, 40
RENAMED = {"letter filed": "message filed", "of it ours, without the": "the same without the"}
"""Words of rows of older checkouts."""
MOST_WORSE = 0.05
Figures = dict[tuple[str, str], float]


def measure(tree: Path, parts: str, how: str, folder: Path | None) -> tuple[Figures, dict[tuple[str, str], bool]]:
    """Return what one run found, by row and durability, and of which of them more is better."""
    command = [str(tree / ".venv/bin/python"), "-c", MEASURE, parts, how]
    environment = {
        **os.environ,
        **({name: str(folder) for name in ("KINGDOM_BENCH_DIR", "BENCH_DIR")} if folder else {}),
    }
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"compare: {tree} could not measure:\n{done.stderr[-2000:]}")
    figures: Figures = {}
    more_is_better = {}
    for rows in json.loads(done.stderr.strip().splitlines()[-1]).values():
        for row in rows:
            name = row["name"]
            for before, now in RENAMED.items():
                name = name.replace(before, now)
            figures[name, row["durability"]] = float(row["ours"])
            more_is_better[name, row["durability"]] = row["unit"].endswith("/s")
    return figures, more_is_better


class Turns:
    """A process of one tree that publishes, takes and acknowledges some messages whenever it is asked."""

    def __init__(self, tree: Path, store: str, folder: Path | None) -> None:
        places = {name: str(folder) for name in ("KINGDOM_BENCH_DIR", "BENCH_DIR")} if folder else {}
        self._process = subprocess.Popen(
            [str(tree / ".venv/bin/python"), "-c", TURN, store],
            cwd=tree,
            env={**os.environ, **places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def take(self) -> tuple[float, float]:
        """Return the microseconds of the processor for one publish, and for one take with its ack."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(MESSAGES_A_TURN, file=self._process.stdin, flush=True)
        publish, take = self._process.stdout.readline().split()
        return int(publish) / MESSAGES_A_TURN / 1000, int(take) / MESSAGES_A_TURN / 1000

    def close(self) -> None:
        self._process.communicate()


def processor_times(old: Path, new: Path, rounds: int, folder: Path | None) -> tuple[list[Figures], list[Figures]]:
    """Return the figures of each round of old and of new, old twice a round: each the median of many short turns."""
    before: list[Figures] = [{} for _ in range(2 * rounds)]
    after: list[Figures] = [{} for _ in range(rounds)]
    for store in STORES:
        trees = [Turns(old, store, folder), Turns(new, store, folder), Turns(old, store, folder)]
        for number in range(rounds):
            taken = [[tree.take() for tree in trees] for _ in range(TURNS_A_ROUND)]
            for at, figures in enumerate((before[2 * number], after[number], before[2 * number + 1])):
                for what, times in zip(
                    ("publish", "take+ack"), zip(*(turn[at] for turn in taken), strict=True), strict=True
                ):
                    figures[f"{store} {what}", "µs of processor"] = statistics.median(times)
        for tree in trees:
            tree.close()
    return before, after


def compare(old: Sequence[Figures], new: Sequence[Figures], more_is_better: dict[tuple[str, str], bool]) -> list[str]:
    """Print a line for each row that both know. Return the names of those that became worse."""
    worse = []
    print(f"{'':62} {'old':>10} {'new':>10} {'slower':>7} {'spread':>7}")
    for key, better in more_is_better.items():
        if any(key not in figures or not figures[key] for figures in (*old, *new)):
            continue
        before, after = ([figures[key] for figures in runs] for runs in (old, new))
        medians = statistics.median(before), statistics.median(after)
        slower = medians[0] / medians[1] if better else medians[1] / medians[0]
        spread = statistics.median(abs(b / a - 1) for a, b in pairwise(before))
        is_worse = slower - 1 > spread + MOST_WORSE
        name = " ".join(key)
        worse += [name] if is_worse else []
        print(f"{name:62} {medians[0]:10,.2f} {medians[1]:10,.2f} {slower:7.2f} {spread:7.2f}{'  WORSE' * is_worse}")
    return worse


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[1])
    words.add_argument("--old", type=Path, required=True, help="a checkout with its own .venv")
    words.add_argument("--new", type=Path, default=Path(__file__).parent.parent, help="default: this one")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--parts", default=PARTS)
    words.add_argument("--full", action="store_true", help="full runs instead of quick ones")
    words.add_argument("--processor-time", action="store_true", help="of the queue's stores, instead of --parts")
    words.add_argument("--dir", type=Path, help="where the files that are measured with lie")
    given = words.parse_args()
    if given.processor_time:
        before, after = processor_times(given.old.resolve(), given.new.resolve(), given.rounds, given.dir)
        return report(before, after, dict.fromkeys(after[0], False))
    how = given.parts, "full" if given.full else "quick", given.dir
    old, new, more_is_better = [], [], {}
    for number in range(given.rounds):
        for tree, runs in ((given.old, old), (given.new, new)):
            figures, more_is_better = measure(tree.resolve(), *how)
            runs.append(figures)
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
    old.append(measure(given.old.resolve(), *how)[0])
    return report(old, new, more_is_better)


def report(old: Sequence[Figures], new: Sequence[Figures], more_is_better: dict[tuple[str, str], bool]) -> int:
    """Print the comparison, and return the exit code."""
    worse = compare(old, new, more_is_better)
    print(f"\n{len(old)} runs of old, {len(new)} of new; worse: {', '.join(worse) or 'none'}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
