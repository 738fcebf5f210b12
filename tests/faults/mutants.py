"""Seeded defects: every check must catch the defect that it is for.

A mutant changes one place of the program in a copy of it; the same check then runs on that copy and must
find something wrong. A row of MUTANTS is one mutant; `checks` in test_mutants.py says what each check runs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults import changes, trees
from tests.faults.changes import Change, Text, before, constant, drop, omit, replace, swap
from tests.faults.sweep import StepFails

Check = Callable[[Path, str], list[str]]
"""A check runs the program of a tree and returns what is wrong; with the unchanged program, nothing.
It may look only near the calls that the pattern names."""


@dataclass(frozen=True)
class Mutant:
    name: str
    #: A package or module with what is changed in it, if need be with a qualified name:
    #: kingdom.base.disk.atomic:Disk._draft
    place: str
    change: Change | Text
    #: The check that must find something wrong with it.
    caught_by: str = ""
    #: Where the defect can show: a sweep tries only the calls that match, a power cut only this outcome.
    near: str = ""
    quick: bool = False


def plant(mutant: Mutant) -> Path:
    """Return a compiled copy of the program with the defect in it."""
    folder = trees.new_folder()
    shutil.copytree(trees.program(), folder, dirs_exist_ok=True)
    path, text = changes.changed(folder, mutant.place, mutant.change)
    path.write_text(text)
    if path.suffix == ".py":
        trees.compile_file(path)
    return folder


def outdated(mutants: Iterable[Mutant]) -> list[str]:
    """Return a sentence for every mutant that no longer applies to the program."""
    found = []
    for mutant in mutants:
        try:
            changes.apply(trees.CHECKOUT, mutant.place, mutant.change)
        except changes.DoesNotApply as error:
            found.append(f"{mutant.name!r}: {error}")
    return found


def is_caught(mutant: Mutant, check: Check) -> bool:
    tree = plant(mutant)
    try:
        found = check(tree, mutant.near)
    except StepFails as error:
        found = [str(error)]
    finally:
        trees.remove(tree)
    print(f"{mutant.name}: {found[0][:300] if found else 'NOT CAUGHT'}")
    return bool(found)


def failing(tree: Path, test: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Return what a test of the checkout says when it fails with the program of a tree. Skip where it is skipped."""
    shutil.copytree(trees.CHECKOUT / "tests", tree / "tests", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(trees.CHECKOUT / "pyproject.toml", tree)
    home = trees.new_folder()
    done = trees.run(tree, home, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", test], timeout=900, env=env)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    if " skipped" in done.stdout and not re.search(r"\d (passed|failed|error)", done.stdout):
        pytest.skip(f"the check of a defect: {done.stdout.splitlines()[-2].partition(' — ')[2]}")
    return done.stdout.splitlines()[-3:] if done.returncode else []


def chosen(mutants: Iterable[Mutant]) -> list[Any]:
    """Return those that this run plants: all in a campaign of them, else the quick ones."""
    found = [mutant for mutant in mutants if mutant.quick or trees.ALL_MUTANTS]
    return found or [pytest.param(*list(mutants)[:1], marks=pytest.mark.skip(reason="in make faults MUTANTS=1"))]


MUTANTS = [
    # 1: killed anywhere
    Mutant(
        "files are written in place",
        "kingdom.base.disk.atomic",
        replace("os.replace(A, B)", "(Path(B).write_bytes(Path(A).read_bytes()), os.unlink(A))"),
        caught_by="king kill",
        near="^write queue",
        quick=True,
    ),
    Mutant(
        "an event moves before its task is made",
        "kingdom.court.king.dispatch:Dispatch._serve_events",
        swap("hand_over", "_finish"),
        caught_by="king kill",
        near="tasks|tmp",
    ),
    Mutant(
        "the task's id is not noted in its event first",
        "kingdom.court.king.context:KingContext.hand_over",
        drop("self.disk.show_changed(noting)"),
        caught_by="king kill",
        near="^renameat2 queue/events|done",
    ),
    Mutant(
        "litter of a killed life is left",
        "kingdom.base.runtime.role",
        drop("sweep_scratch"),
        caught_by="king kill",
        near="tmp",
    ),
    Mutant(
        "what an earlier process has posted is posted again",
        "kingdom.court.envoy.outbound:Outbound._post",
        replace("message.id in self._earlier", "False"),
        caught_by="envoy kill",
        near="messages/",
    ),
    Mutant(
        "a result is reported before its checkpoint and its lessons",
        "kingdom.court.general.report:finish",
        before(
            "A.disk.rewrite(A.places.checkpoint(B), C)",
            "A.disk.create_all([(A.places.result(task.id), to_json(result.to_json()))])",
        ),
        caught_by="general kill",
        near="results|memory",
    ),
    Mutant(
        "a restarted general does not know its soldiers",
        "kingdom.court.general",
        replace("A.look(B)", "replace(A.look(B), is_running=queued.filename in self._last_looks)"),
        caught_by="general kill",
        near="logs/gen-pr",
    ),
    Mutant(
        "an order forgets what it has made before it is done",
        "kingdom.court.king.orders",
        replace(
            'A.change("pending", B.id, outcome=C, code=D, says=E)',
            'A.update("pending", [replace(B, outcome=C, code=D, says=E)])',
        ),
        caught_by="orders kill",
        near="orders/pending/ord-retry",
    ),
    # 2: power cuts
    Mutant(
        "no fsync of files",
        "kingdom.base.disk.atomic:Drafts.sync",
        drop("sync_files"),
        caught_by="king power",
        near="names",
    ),
    Mutant(
        "no fsync of the folder in which a cause is noted",
        "kingdom.court.king.context:KingContext.hand_over",
        replace("A.show_changed(noting)", "A.show_changed(noting, sync=False)"),
        caught_by="king power",
        near="synced",
    ),
    Mutant(
        "messages are filed before their posts are durable",
        "kingdom.court.envoy.outbound:Outbound._file",
        replace("self._channels.unsynced()", "()"),
        caught_by="envoy power",
        near="synced",
    ),
    # 3: a disk that fails
    Mutant(
        "a full disk ends the role for good",
        "kingdom.base.runtime.role:_Loop",
        replace("DEGRADED_PAUSE_SECONDS", "sys.exit(78)"),
        caught_by="full disk, king",
        quick=True,
    ),
    Mutant(
        "a beat needs room",
        "kingdom.base.runtime.heartbeat",
        before("os.pwrite(A, B, 0)", "os.pwrite(A, b' ', 4096 * self._written)"),
        caught_by="full disk, king",
    ),
    Mutant(
        "up calls a full disk well",
        "kingdom.cli.launchers:disk_is_full",
        replace("why_full(A)", "''"),
        caught_by="full disk, up",
    ),
    # 8: two kings
    Mutant(
        "no flock",
        "kingdom.base.disk.lock",
        drop("fcntl.flock(A, fcntl.LOCK_EX | fcntl.LOCK_NB)"),
        caught_by="parallel starts",
    ),
    Mutant(
        "a replaced lock is not noticed",
        "kingdom.base.runtime.role:_Loop",
        drop("_lock.check"),
        caught_by="replaced while it idles",
    ),
    # 13: bad files
    Mutant(
        "reads wait for a pipe's writer",
        "kingdom.base.disk.codec",
        replace("A | os.O_NONBLOCK", "A"),
        caught_by="bad events",
    ),
    Mutant(
        "duplicate keys pass",
        "kingdom.base.disk.codec",
        omit("JSONDecoder", "object_pairs_hook"),
        caught_by="bad events",
    ),
    Mutant("NaN passes", "kingdom.base.disk.codec", omit("JSONDecoder", "parse_constant"), caught_by="bad events"),
    Mutant(
        "no reason beside the dead",
        "kingdom.base.records.queues",
        replace('f"{A}.reason"', 'f"{A}.tmp"'),
        caught_by="bad events",
    ),
    # secrets
    Mutant(
        "a defect is told with its secrets",
        "kingdom.base.runtime.role:_services",
        drop("log.redact"),
        caught_by="a defect and a secret",
        quick=True,
    ),
    # 14: names
    Mutant(
        "a slash may stand in a name",
        "kingdom.base.home.places",
        constant("_NAME", 're.compile(r"[A-Za-z0-9_:@+-][A-Za-z0-9._:@+/-]*\\Z")'),
        caught_by="named paths",
    ),
    # 15: permissions
    Mutant(
        "everybody may write to the home",
        "kingdom.base.home.places",
        replace("A & stat.S_IWOTH", "0"),
        caught_by="open to all",
    ),
    Mutant(
        "others may read the secrets",
        "kingdom.base.home.dotenv",
        replace("A & (stat.S_IRWXG | stat.S_IRWXO)", "0"),
        caught_by="open secrets",
    ),
    # 16: duplicates
    Mutant(
        "a replay after retention is not recognised",
        "kingdom.court.king",
        replace("return A.task_of(B)", "return None"),
        caught_by="told_again_after_retention",
    ),
    # 19: configuration
    Mutant(
        "broken configuration ends a running role",
        "kingdom.base.runtime.role",
        replace("self._config_error = str(A)", "raise SystemExit(78)"),
        caught_by="reload",
    ),
    Mutant(
        "broken configuration is told at every turn",
        "kingdom.base.runtime.config_files:ConfigFiles.changed",
        replace("self.seen = A", "pass"),
        caught_by="reload",
    ),
    Mutant(
        "a broken manifest is forgotten",
        "kingdom.base.home.manifests:in_force",
        replace("_accepted(A, B)", "None"),
        caught_by="reload",
    ),
    Mutant(
        "what a manifest that cannot be read might take is discarded",
        "kingdom.court.king.dispatch",
        replace("self._waits_for_manifest(A)", "False"),
        caught_by="never accepted",
        quick=True,
    ),
    Mutant(
        "tasks of a general that is gone take room",
        "kingdom.base.records.load:_by_general",
        replace("_is_served(A, B, C)", "True"),
        caught_by="uninstalled",
    ),
    Mutant(
        "another event under a used id counts as a repetition",
        "kingdom.court.king.dispatch:Dispatch._is_a_repetition",
        replace("return A == B", "return True"),
        caught_by="another_event_under_its_id",
    ),
    # 31: the warm server of soldiers, and what it forks
    Mutant(
        "a serving process that does not begin is waited for",
        "kingdom.court.soldiers.starter",
        constant("ANSWER_SECONDS", "600.0"),
        caught_by="serving process stopped",
    ),
    Mutant(
        "a serving process that does not begin is left alone",
        "kingdom.court.soldiers.starter:Starter.wait",
        replace("A.kill()", "A.close()"),
        caught_by="serving process stopped",
    ),
    Mutant(
        "a serving process that is done is known by its last task",
        "kingdom.court.soldier.warm:serve_requests",
        replace("overwrite_environment({'KINGDOM_HOME': A})", "None"),
        caught_by="serving process, idle",
        quick=True,
    ),
    Mutant(
        "a warm server outlives its general",
        "kingdom.court.soldier.warm",
        drop("end_with_parent"),
        caught_by="warm server, its general killed",
    ),
]
