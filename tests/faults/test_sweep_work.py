"""A general, killed or cut off from its disk at every file call while its tasks end with work: all of it is found
where their results say, and nothing is kept where nothing was left."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json_or
from kingdom.base.home.places import Places
from tests.faults import homes, oracle
from tests.faults.sweep import FAULTS, QUICK_POINTS, Step, none_bad, sweep
from tests.faults.test_sweep_general import ARGV, arm

CLEAN, COMMITS, CHANGES, FILES, TWICE, ASKS = (f"task-20260207-00{number}" for number in range(1, 7))
CLONES = (CLEAN, COMMITS, CHANGES, TWICE)
EXPECTED = {**dict.fromkeys((CLEAN, COMMITS, CHANGES, FILES), "success"), TWICE: "failed", ASKS: "needs_human"}
REPO = "acme/shop"

SOLDIER = """#!/bin/sh
# Leaves work that nobody else has made, and notes which.
cat > /dev/null
token=$KINGDOM_TASK_ID-$$
note() { echo "$token" >> "$KINGDOM_HOME/wrote"; }
status='"status": "success", "summary": "ok"'
case $KINGDOM_TASK_ID in
*-001) ;;
*-002) echo "$token" > made; git add made; git commit -qm work && git checkout -q --detach HEAD~1 && note ;;
*-005) echo "$token" >> README; status='"status": "failed", "error": "no compiler"'; note ;;
*-006) echo "$token" > made; status='"status": "needs_human", "question": "May I?"'; note ;;
*) echo "$token" > made; note ;;
esac
echo "{\\"task_id\\": \\"$KINGDOM_TASK_ID\\", $status}" > "$KINGDOM_RESULT_PATH"
"""


def prepare(home: Path) -> None:
    """Tasks that end clean, with a commit that no branch has, with changes, with files, twice badly, asking."""
    origin = home / "origin"
    retry, known = {"max_attempts": 2, "backoff_seconds": 0}, {REPO: str(origin)}
    homes.make(home, config={"king": {"retry": retry}, "general": {"repositories": {"known": known}}})
    homes.install(home, homes.GENERAL, sandbox="off")
    arm(home, SOLDIER)
    origin.mkdir()
    (origin / "README").write_text("hello\n")
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "first")
    repos = {name: REPO if name in CLONES else None for name in EXPECTED}
    homes.put(home, "tasks", "pending", *(homes.task(name, f"evt-{name}", repo=repos[name]) for name in EXPECTED))


def git(where: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(where), *who, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def check(home: Path) -> list[str]:
    places, wrong = Places(home), oracle.tidy(home)
    wrote = defaultdict(set)
    for token in (home / "wrote").read_text().split():
        wrote[token.rpartition("-")[0]].add(token)
    for task, status in EXPECTED.items():
        result = read_json_or(places.result(task), {})
        if result.get("status") != status:
            wrong.append(f"{task}: {result.get('status')} {result.get('error') or result.get('reason')}")
            continue
        kept = [Path(folder) for folder in result["kept"]]
        if lost := wrote[task] - {token for folder in kept for token in tokens_in(folder)}:
            wrong.append(f"{task}: {lost} is lost; kept are {kept}")
        if bool(kept) != bool(wrote[task]):
            wrong.append(f"{task}: kept are {kept}")
        if task == CLEAN and places.workspace(homes.GENERAL, task).exists():
            wrong.append(f"{task}: nothing was left, and its workspace is kept")
    return wrong


def tokens_in(folder: Path) -> set[str]:
    """Return the words in the files of a kept workspace, and in those of its branches."""
    files = [path for path in folder.glob("*") if path.is_file()]
    texts = [path.read_text() for path in files]
    if (folder / ".git").is_dir():
        texts += [git(folder, "log", "-p", "--all", "--reflog")]
    return {word.lstrip("+") for text in texts for word in text.split()}


WORK = Step("general with work", ARGV, prepare, check, timeout=180, steady=False)
"""Its calls come in another order each time: it waits for git."""


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_file_call_of_a_general_loses_work(fault: str, figure: oracle.Figure) -> None:
    report = none_bad(sweep(WORK, fault, budget=QUICK_POINTS), figure)
    assert len(report.missed) <= max(3, report.tried / 5), report.details
