"""The sweeps and power cuts of the stores are shown stores with a defect, and must catch it."""

from __future__ import annotations

import pytest

from tests.faults import mutants
from tests.faults.mq.test_sweep_stores import step
from tests.faults.mutants import Check, Mutant
from tests.faults.oracle import Figure
from tests.faults.powerloss import OUTCOMES
from tests.faults.sweep import FULL, KILL, power_cuts, sweep

BULK, ENGINE = "kingdom/disk/bulk.py", "kingdom/mq/engine.py"
FILES, SQLITE, HYBRID = (f"kingdom/mq/stores/{name}.py" for name in ("files", "sqlite", "hybrid"))


def killed(backend: str, *operations: str) -> Check:
    return lambda tree, near: sweep(step(backend, *operations), KILL, tree=tree, near=near, stop_at=1).bad


def full(backend: str, *operations: str) -> Check:
    return lambda tree, near: sweep(step(backend, *operations), FULL, tree=tree, near=near, stop_at=1).bad


def cut(backend: str, *operations: str) -> Check:
    """`near` is the outcome of a cut that shows it; without one all are tried."""
    powerful = step(backend, *operations, durability="power")
    return lambda tree, near: power_cuts(powerful, tree=tree, stop_at=1, outcomes=[near] if near else OUTCOMES).bad


CHECKS = {
    "files publish kill": killed("filesystem", "publish", "publish_batch"),
    "files bury kill": killed("filesystem", "bury", "reprocess"),
    "files publish power": cut("filesystem", "publish", "publish_large", "publish_batch"),
    "files ack power": cut("filesystem", "lease", "ack", "nack"),
    "files batch full": full("filesystem", "publish_batch"),
    "sqlite kill": killed("sqlite", "publish", "lease", "nack"),
    "sqlite power": cut("sqlite", "publish", "ack"),
    "hybrid publish power": cut("hybrid", "publish", "publish_large"),
    "hybrid ack kill": killed("hybrid", "ack", "bury"),
}

MUTANTS = [
    Mutant("a file's content is not synced", BULK, "                os.fsync(fd)\n        else:\n            way", "                pass\n        else:\n            way", "files publish power", near="names", quick=True),  # noqa: E501
    Mutant("the folder is not synced", BULK, "        self._sync(self._gained)\n", "        self._gained.clear()\n", "files publish power"),  # noqa: E501
    Mutant("a removal is not synced", BULK, "        self._lost[folder] = None\n        elif", "        pass\n        elif", "files ack power"),  # noqa: E501
    Mutant("messages are written in place", BULK, "            os.close(fd)\n            os.rename(draft, f\"{folder}/{name}\")\n", "            os.close(fd)\n            os.unlink(draft)\n            with open(f\"{folder}/{name}\", 'xb', 0) as half:\n                half.write(data[:99]), half.write(data[99:])\n", "files publish kill", near="inbox|requests", quick=True),  # noqa: E501
    Mutant("a request is remembered before its message is there", FILES, "            if self._group.power:\n                if self._group.has_removals:\n", "            if self._memos:\n                self._journal.write(self._memos)\n                self._memos = []\n            if self._group.power:\n                if self._group.has_removals:\n", "files publish power", near="everything", quick=True),  # noqa: E501
    Mutant("requests that a crash kept from the journal are forgotten", FILES, "            recovered = self._recovered()\n", "            recovered: list[Memo] = []\n", "files publish kill", near="inbox|requests"),  # noqa: E501
    Mutant("a message leaves before its dead letter is there", FILES, '            self._group.create(places[to], f"{new}.json", body.encode())\n            self._group.remove(places[state], f"{name}.json")\n', '            self._group.remove(places[state], f"{name}.json")\n            self._group.create(places[to], f"{new}.json", body.encode())\n', "files bury kill", near="inbox|processing|dlq", quick=True),  # noqa: E501
    Mutant("a message that lies twice after a crash is served twice", FILES, "        if inflight or dead:\n            ready, inflight, dead = self._once(places, ready, inflight, dead)\n", "", "files bury kill", near="inbox|processing|dlq"),  # noqa: E501
    Mutant("half a batch is forgotten when the disk fills", ENGINE, "            self._remember_batch(queue, request_id, outcomes)\n", "            if len(outcomes) == len(drafts):\n                self._remember_batch(queue, request_id, outcomes)\n", "files batch full"),  # noqa: E501
    Mutant("a commit is not synced", SQLITE, "'FULL' if self._plan.durability == 'power' else 'NORMAL'", "'NORMAL'", "sqlite power", near="synced", quick=True),  # noqa: E501
    Mutant("a crash before the tables are settled loses what they did not hold", SQLITE, "        self._forget()\n        self._recover()\n", "        self._forget()\n", "sqlite kill", near="promised", quick=True),  # noqa: E501
    Mutant("a promise before the commit", ENGINE, "                store.commit()\n                return\n", "                return\n", "sqlite kill"),  # noqa: E501
    Mutant("the row comes before its payload", HYBRID, "            self._group.commit()\n            super().commit()\n", "            super().commit()\n            self._group.commit()\n", "hybrid publish power", near="names", quick=True),  # noqa: E501
    Mutant("the payload goes before its row", HYBRID, "        super().drop(queue, state, name)\n        self._condemn(queue, _file(name))\n", "        super().drop(queue, state, name)\n        self._group.remove(self._folder(queue), _file(name))\n", "hybrid ack kill"),  # noqa: E501
]  # fmt: skip

_caught: list[bool] = []


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_store_with_a_defect_is_caught(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    caught = mutants.is_caught(mutant, CHECKS[mutant.caught_by])
    _caught.append(caught)
    assert caught, f"{mutant.caught_by} does not see that {name}"


def test_the_score(figure: Figure) -> None:
    figure(f"mutants of the stores caught: {sum(_caught)} of {len(_caught)}")


def test_every_mutant_still_fits_the_stores() -> None:
    for mutant in MUTANTS:
        mutants.defective(mutant)
