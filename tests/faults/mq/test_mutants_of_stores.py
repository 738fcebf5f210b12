"""The sweeps and power cuts of the stores are shown stores with a defect, and must catch it."""

from __future__ import annotations

import pytest

from tests.faults import mutants
from tests.faults.changes import body, drop, replace, swap
from tests.faults.mq.test_sweep_stores import step
from tests.faults.mutants import Check, Mutant
from tests.faults.oracle import Figure
from tests.faults.powerloss import OUTCOMES
from tests.faults.sweep import BROKEN, KILL, power_cuts, sweep


def killed(backend: str, *operations: str) -> Check:
    return lambda tree, near: sweep(step(backend, *operations), KILL, tree=tree, near=near, stop_at=1).bad


def broken(backend: str, *operations: str) -> Check:
    return lambda tree, near: sweep(step(backend, *operations), BROKEN, tree=tree, near=near, stop_at=1).bad


def cut(backend: str, *operations: str) -> Check:
    """`near` is the outcome of a cut that shows it; without one all are tried."""
    powerful = step(backend, *operations, durability="power")
    return lambda tree, near: power_cuts(powerful, tree=tree, stop_at=1, outcomes=[near] if near else OUTCOMES).bad


CHECKS = {
    "files publish kill": killed("filesystem", "publish", "publish_batch"),
    "files bury kill": killed("filesystem", "bury", "reprocess"),
    "files publish power": cut("filesystem", "publish", "publish_large", "publish_batch"),
    "files ack power": cut("filesystem", "lease", "ack", "nack"),
    "files batch broken": broken("filesystem", "publish_batch"),
    "sqlite kill": killed("sqlite", "publish", "lease", "nack"),
    "sqlite power": cut("sqlite", "publish", "ack"),
    "sqlite take power": cut("sqlite", "take_and_ack"),
    "files take power": cut("filesystem", "take_and_extend"),
    "hybrid take power": cut("hybrid", "take_and_nack", "take_and_bury"),
    "sqlite move kill": killed("sqlite", "move"),
    "files delete queue kill": killed("filesystem", "delete_queue"),
    "hybrid publish power": cut("hybrid", "publish", "publish_large"),
    "hybrid ack kill": killed("hybrid", "ack", "bury"),
}

MUTANTS = [
    Mutant(
        "a message that is moved to another queue stays in its own as well",
        "kingdom.mq.stores.sqlite:SqliteStore.transfer",
        drop("drop"),
        "sqlite move kill",
    ),
    Mutant(
        "the folder of a deleted queue goes file by file",
        "kingdom.mq.stores.files:FileStore.remove_queue",
        replace("self._disk.move(A, B)", "(__import__('shutil').rmtree(A), B.mkdir())"),
        "files delete queue kill",
    ),
    Mutant(
        "an ack is not synced",
        "kingdom.mq.stores.sqlite:SqliteStore.drop",
        replace("self._only_takes = False", "pass"),
        "sqlite take power",
    ),
    Mutant(
        "room is made where commits are",
        "kingdom.mq.stores.write_ahead_log",
        replace("os.pwrite(A, B, C)", "os.pwrite(A, B, 0)"),
        "sqlite power",
    ),
    Mutant(
        "every step of a leased message counts as a take",
        "kingdom.mq.stores.base:is_take",
        replace("state != 'inflight'", "True"),
        "files take power",
    ),
    Mutant(
        "the end of a lease counts as a take",
        "kingdom.mq.stores.base:is_take",
        body("return True"),
        "hybrid take power",
    ),
    Mutant(
        "a file's content is not synced",
        "kingdom.base.disk.bulk:FileBatch._show",
        drop("fsync"),
        "files publish power",
        near="names",
    ),
    Mutant(
        "the folder is not synced",
        "kingdom.base.disk.bulk",
        replace("self._sync(self._gained)", "self._gained.clear()"),
        "files publish power",
    ),
    Mutant(
        "a removal is not synced",
        "kingdom.base.disk.bulk:FileBatch.remove",
        drop("self._lose(folder)"),
        "files ack power",
    ),
    Mutant(
        "messages are written in place",
        "kingdom.base.disk.bulk:FileBatch.create",
        replace(
            "os.rename(A, B)",
            "[(os.unlink(A), half.write(data[:99]), half.write(data[99:])) for half in [open(B, 'xb', 0)]]",
        ),
        "files publish kill",
        near="inbox|requests",
    ),
    Mutant(
        "a request is remembered before its message is there",
        "kingdom.mq.stores.files",
        swap("_journal.write", "_batch.commit"),
        "files publish power",
        near="everything",
    ),
    Mutant(
        "requests that a crash kept from the journal are forgotten",
        "kingdom.mq.stores.files",
        replace("self._recovered()", "[]"),
        "files publish kill",
        near="inbox|requests",
    ),
    Mutant(
        "a message leaves before its dead letter is there",
        "kingdom.mq.stores.files",
        swap("_batch.create", "_batch.remove"),
        "files bury kill",
        near="inbox|processing|dlq",
    ),
    Mutant(
        "a message that lies twice after a crash is served twice",
        "kingdom.mq.stores.files_upkeep",
        replace("self._keep_later_states(A)", "pass"),
        "files bury kill",
        near="inbox|processing|dlq",
    ),
    Mutant(
        "half a batch is forgotten when the disk fails",
        "kingdom.mq.engine",
        replace(
            "self._remember_part(A, B)",
            "len(outcomes) == len(A.drafts) and self._remember_part(A, B)",
        ),
        "files batch broken",
    ),
    Mutant(
        "a commit is not synced",
        "kingdom.mq.stores.sqlite:SqliteStore.commit",
        drop("_sync"),
        "sqlite power",
        near="synced",
        quick=True,
    ),
    Mutant(
        "a crash before the tables are settled loses what they did not hold",
        "kingdom.mq.stores.sqlite",
        drop("_recover"),
        "sqlite kill",
        near="promised",
    ),
    Mutant("a promise before the commit", "kingdom.mq.engine", drop("store.commit"), "sqlite kill"),
    Mutant(
        "the row comes before its payload",
        "kingdom.mq.stores.hybrid",
        swap("_batch.commit", "super().commit"),
        "hybrid publish power",
        near="names",
    ),
    Mutant(
        "the payload goes before its row",
        "kingdom.mq.stores.hybrid:HybridStore.drop",
        replace("self._remove_later(A, B)", "self._batch.remove(self._folder(A), B)"),
        "hybrid ack kill",
    ),
]

_caught: list[bool] = []


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_store_with_a_defect_is_caught(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    caught = mutants.is_caught(mutant, CHECKS[mutant.caught_by])
    _caught.append(caught)
    assert caught, f"{mutant.caught_by} does not see that {name}"


def test_the_score(figure: Figure) -> None:
    figure(f"mutants of the stores caught: {sum(_caught)} of {len(_caught)}")
