"""Workspaces: clones that cost next to nothing and run nobody's code while they are made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.errors import BadConfig
from kingdom.base.home.places import Places
from kingdom.base.records.messages import Checkpoint, Task
from kingdom.court.soldiers.workspace import NoWorkspace, Workspaces
from tests import fixtures as tools
from tests.fixtures import Clock, services, write
from tests.waiting import SOON, wait_until


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit, and hooks that would tell on us."""
    path = tmp_path / "app"
    git(tmp_path, "init", "-q", "-b", "main", str(path))
    (path / "README").write_text("hello\n")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    return path


def git(where: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", "-C", str(where), *who, *words], check=True, capture_output=True, text=True).stdout


def workspaces(home: Path, **known: Any) -> Workspaces:
    ours = services(home, "gen-pr", Clock())
    rules = {"url": str(home / "nowhere" / "{repo}.git"), "known": {name: str(path) for name, path in known.items()}}
    return Workspaces(ours.places, "gen-pr", ours.unsynced, rules)


def a_task(name: str = "task-20260207-001", repo: str | None = None) -> Task:
    return Task.from_json({"priority": "normal", "status": "pending", "attempt": 0, **tools.task(name), "repo": repo})


def made(ours: Workspaces, task: Task) -> Path:
    return wait_until(lambda: ours.prepare(task, None), SOON, "the workspace is ready")


def lost(ours: Workspaces, task: Task) -> str:
    """Why it cannot be had."""

    def refusal() -> str:
        try:
            ours.prepare(task, None)
        except NoWorkspace as error:
            return str(error)
        return ""

    return wait_until(refusal, SOON, "git has given up")


def test_without_a_repository_it_is_an_empty_folder_of_its_own(home: Path) -> None:
    workspace = workspaces(home).prepare(a_task(), None)
    assert workspace == home / "workspace" / "gen-pr" / "task-20260207-001"
    assert list(workspace.iterdir()) == []


def test_a_repository_is_cloned_and_shares_its_objects(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    workspace = made(ours, a_task(repo="acme/app"))
    assert (workspace / "README").read_text() == "hello\n"
    shared = (workspace / ".git" / "objects" / "info" / "alternates").read_text()
    assert str(home / "state" / "gen-pr" / "mirrors") in shared


def test_what_a_killed_clone_has_left_is_in_nobodys_way(home: Path, repo: Path) -> None:
    for left in ("state/gen-pr/mirrors/acme+2f+app.git.tmp", "workspace/gen-pr/task-20260207-001.tmp"):
        (home / left).mkdir(parents=True)
        (home / left / "half").touch()
    workspace = made(workspaces(home, **{"acme/app": repo}), a_task(repo="acme/app"))
    assert sorted(path.name for path in workspace.iterdir()) == [".git", "README"]


def test_a_second_task_sees_what_was_committed_meanwhile(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    made(ours, a_task(repo="acme/app"))
    (repo / "README").write_text("changed\n")
    git(repo, "commit", "-qam", "second")
    workspace = made(ours, a_task("task-20260207-002", "acme/app"))
    assert (workspace / "README").read_text() == "changed\n"


def test_two_tasks_at_once_share_one_mirror(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    tasks = [a_task(f"task-20260207-00{number}", "acme/app") for number in range(4)]
    ready = wait_until(lambda: len([1 for task in tasks if ours.prepare(task, None)]) == 4, SOON, "all four are ready")
    assert ready
    assert [path.name for path in (home / "state" / "gen-pr" / "mirrors").glob("*.git*")] == ["acme+2f+app.git"]


@pytest.mark.parametrize("hook", ["post-checkout", "reference-transaction", "post-merge"])
def test_no_hook_runs_in_a_git_call_of_ours(home: Path, repo: Path, tmp_path: Path, hook: str) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    made(ours, a_task(repo="acme/app"))
    (mirror,) = (home / "state" / "gen-pr" / "mirrors").glob("*.git")
    trap = tmp_path / "sprung"
    for hooks in (repo / ".git" / "hooks", mirror / "hooks"):
        hooks.mkdir(exist_ok=True)
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (hooks / hook).chmod(0o755)
    made(ours, a_task("task-20260207-002", "acme/app"))
    assert not trap.exists()


@pytest.mark.parametrize(
    "name", ["../etc", "a/b/c", "-oProxyCommand=x/y", "ext::sh -c x", "/etc", "a/..", "acme/app;x", "acme/app\n", ""]
)
def test_a_name_that_is_no_repositorys_is_refused(home: Path, name: str) -> None:
    with pytest.raises(NoWorkspace, match="not the name of a repository"):
        workspaces(home).prepare(a_task(repo=name), None)


def test_a_repository_that_cannot_be_had_is_told_with_gits_own_words(home: Path) -> None:
    ours = workspaces(home)

    said = lost(ours, a_task(repo="acme/none"))
    assert said.startswith("no workspace for acme/none: ")
    assert "nowhere/acme/none.git" in said
    assert said.endswith("name its path or URL in config/general.yaml: `repositories: {known: {acme/none: …}}`")


@pytest.mark.parametrize("url", ["https://git/{repo}/{branch}.git", "https://git/all.git", "https://git/{repo}/{}", ""])
def test_a_pattern_that_fits_no_repository_is_refused_where_it_stands(home: Path, url: str) -> None:
    with pytest.raises(BadConfig, match=r"general\.yaml:2: repositories\.url: "):
        services(home, "gen-pr", Clock(), general={"repositories": {"url": url}})


def test_a_known_repository_that_has_gone_is_not_replaced_by_its_old_mirror(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    made(ours, a_task(repo="acme/app"))
    ours.rules = {**ours.rules, "known": {"acme/app": str(repo / "gone")}}
    said = lost(ours, a_task("task-20260207-002", "acme/app"))
    assert said == (
        f"no workspace for acme/app: repositories.known of config/general.yaml names {repo / 'gone'}, "
        "and it does not exist"
    )


def test_a_repository_that_has_moved_is_cloned_from_its_new_place(home: Path, repo: Path, tmp_path: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    made(ours, a_task(repo="acme/app"))
    moved = tmp_path / "moved"
    git(tmp_path, "clone", "-q", str(repo), str(moved))
    (moved / "README").write_text("moved\n")
    git(moved, "commit", "-qam", "second")
    ours.rules = {**ours.rules, "known": {"acme/app": str(moved)}}
    workspace = made(ours, a_task("task-20260207-002", "acme/app"))
    assert (workspace / "README").read_text() == "moved\n"


def test_a_resumed_task_stands_where_its_question_was_asked(home: Path) -> None:
    ours = workspaces(home)
    asked = ours.prepare(a_task(), None)
    assert ours.prepare(a_task("task-20260207-002"), Checkpoint(workspace=str(asked))) == asked


@pytest.mark.parametrize("kept", ["/etc", "/", "../../x", "", "gone"])
def test_a_checkpoint_cannot_send_it_anywhere_else(home: Path, kept: str) -> None:
    workspace = workspaces(home).prepare(a_task("task-20260207-002"), Checkpoint(workspace=kept))
    assert workspace == home / "workspace" / "gen-pr" / "task-20260207-002"


def test_a_cleared_workspace_is_removed_and_its_mirror_stays(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    workspace = made(ours, a_task(repo="acme/app"))
    ours.clear("task-20260207-001")
    assert not workspace.exists()
    assert [path.suffix for path in (home / "state" / "gen-pr" / "mirrors").iterdir()] == [".git"]


def test_clearing_ends_the_clone_that_is_under_way(home: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = home / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\necho $$ >>pids\nexec sleep 600\n")
    (slow / "git").chmod(0o755)
    monkeypatch.chdir(home)
    monkeypatch.setenv("PATH", str(slow), prepend=":")
    ours = workspaces(home, **{"acme/app": repo})
    task = a_task(repo="acme/app")
    assert ours.prepare(task, None) is None
    wait_until(lambda: (home / "pids").exists() and (home / "pids").read_text(), 10, "git has begun")
    (pid,) = map(int, (home / "pids").read_text().split())
    ours.clear(task.id)
    assert not Path(f"/proc/{pid}").exists(), "it has ended, and is no zombie"
    assert ours.prepare(a_task("task-20260207-002", "acme/app"), None) is None
    wait_until(lambda: len((home / "pids").read_text().split()) == 2, 10, "the mirror is free for another task")
    ours.clear("task-20260207-002")


def test_a_task_that_was_cleared_begins_with_what_was_committed_meanwhile(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    made(ours, a_task(repo="acme/app"))
    ours.clear("task-20260207-001")
    (repo / "README").write_text("changed\n")
    git(repo, "commit", "-qam", "second")
    assert (made(ours, a_task(repo="acme/app")) / "README").read_text() == "changed\n"


@pytest.mark.parametrize(
    ("status", "goes"), [("success", True), ("skipped", True), ("failed", False), ("needs_human", False), (None, False)]
)
def test_the_workspaces_of_a_task_stay_while_somebody_may_need_them(home: Path, status: str | None, goes: bool) -> None:
    ours = workspaces(home)
    asked, own = ours.prepare(a_task(), None), ours.prepare(a_task("task-20260207-002"), None)
    assert asked is not None
    assert own is not None
    if status is not None:
        make_folder(Places(home).results)
        write(Places(home).result("task-20260207-002"), {"status": status})
    ours.clear_if_done("task-20260207-002", str(asked))
    assert (asked.exists(), own.exists()) == (not goes, not goes)


COMMITS: Mapping[str, tuple[bool, Callable[[Path], object]]] = {
    "nothing": (False, lambda _: None),
    "a change that is not committed": (False, lambda here: (here / "README").write_text("changed\n")),
    "a look at an older commit": (False, lambda here: git(here, "checkout", "-q", "HEAD~1")),
    "a look at another branch": (
        False,
        lambda here: (git(here, "fetch", "-q", "origin", "side"), git(here, "checkout", "-q", "FETCH_HEAD")),
    ),
    "a commit": (True, lambda here: git(here, "commit", "-q", "--allow-empty", "-m", "mine")),
    "a commit on a branch of its own": (
        True,
        lambda here: (git(here, "checkout", "-qb", "fix/it"), git(here, "commit", "-q", "--allow-empty", "-m", "mine")),
    ),
    "a pipe in place of a file": (
        False,
        lambda here: ((here / ".git/HEAD").unlink(), os.mkfifo(here / ".git/HEAD")),
    ),
    "a HEAD that points elsewhere": (False, lambda here: (here / ".git/HEAD").write_text("ref: refs/heads/../../x\n")),
}


@pytest.mark.parametrize("what", COMMITS)
def test_what_was_committed_is_kept_when_its_task_has_ended(home: Path, repo: Path, what: str) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    git(repo, "branch", "side", "HEAD~1")
    is_kept, works = COMMITS[what]
    ours = workspaces(home, **{"acme/app": repo})
    workspace = made(ours, a_task(repo="acme/app"))
    works(workspace)
    assert ours.committed("task-20260207-001") == (workspace if is_kept else None)
    make_folder(Places(home).results)
    write(Places(home).result("task-20260207-001"), {"status": "success"})
    ours.clear_if_done("task-20260207-001")
    assert workspace.exists() == is_kept


def test_what_was_committed_where_a_question_was_asked_is_found_as_well(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    asked = made(ours, a_task(repo="acme/app"))
    git(asked, "commit", "-q", "--allow-empty", "-m", "mine")
    later = "task-20260207-002"
    assert ours.committed(later) is None
    assert ours.committed(later, str(asked)) == asked
    assert ours.committed(later, "/elsewhere") is None
    make_folder(Places(home).results)
    write(Places(home).result(later), {"status": "success"})
    ours.clear_if_done(later, str(asked))
    assert asked.exists()
