"""Workspaces: clones that cost next to nothing and run nobody's code while they are made."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.errors import BadConfig
from kingdom.base.home.places import Places
from kingdom.base.records.messages import Checkpoint, Task
from kingdom.court.soldiers import work
from kingdom.court.soldiers.workspace import NoWorkspace, Workspaces
from tests import fixtures as tools
from tests.fixtures import Clock, services, write
from tests.waiting import SOON, wait_until


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit, and hooks that would tell on us."""
    return a_repository(tmp_path / "app")


def a_repository(path: Path) -> Path:
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
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
    return Workspaces(ours.places, "gen-pr", ours.unsynced, ours.exits, rules)


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


def searched(ours: Workspaces, task: Task, inherited: str | None = None) -> list[Path]:
    """Return the workspaces that hold work."""
    found: list[list[Path]] = []

    def look() -> bool:
        left = ours.left(task, inherited)
        found.extend([] if left is None else [left])
        return left is not None

    wait_until(look, SOON, "the workspaces are searched")
    return found[0]


def overwrite(path: Path, text: str = "mine\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def stamp_back(path: Path) -> None:
    """Change a file, but neither its size nor its times."""
    about = path.stat()
    path.write_text("HELLO\n")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


LEFT: Mapping[str, Callable[[Path], object]] = {
    "a change": lambda here: overwrite(here / "README"),
    "a change of nothing that `ls` shows": lambda here: stamp_back(here / "README"),
    "a change of a file's mode": lambda here: (here / "README").chmod(0o755),
    "a deleted file": lambda here: (here / "README").unlink(),
    "a link in place of a file": lambda here: ((here / "README").unlink(), (here / "README").symlink_to("/etc")),
    "a new file": lambda here: overwrite(here / "notes" / "plan.md"),
    "a file that git ignores": lambda here: overwrite(here / "out.log"),
    "a file that a .gitignore of its own hides": lambda here: overwrite(here / "notes" / ".gitignore", "*\n"),
    "a file that is ignored in .git/info/exclude": lambda here: (
        overwrite(here / ".git" / "info" / "exclude", "*\n"),
        overwrite(here / "plan.md"),
    ),
    "a change that its index denies": lambda here: (
        git(here, "update-index", "--assume-unchanged", "README"),
        overwrite(here / "README"),
    ),
    "a file that was staged and taken back": lambda here: (
        overwrite(here / "plan.md"),
        git(here, "add", "plan.md"),
        git(here, "rm", "-q", "-f", "plan.md"),
    ),
    "a commit": lambda here: git(here, "commit", "-q", "--allow-empty", "-m", "mine"),
    "a commit on a branch of its own": lambda here: (
        git(here, "checkout", "-qb", "fix/it"),
        git(here, "commit", "-q", "--allow-empty", "-m", "mine"),
    ),
    "a commit on a branch that it has left": lambda here: (
        git(here, "checkout", "-qb", "fix/it"),
        git(here, "commit", "-q", "--allow-empty", "-m", "mine"),
        git(here, "checkout", "-q", "main"),
    ),
    "a commit on no branch": lambda here: (
        git(here, "checkout", "-q", "--detach"),
        git(here, "commit", "-q", "--allow-empty", "-m", "mine"),
        git(here, "checkout", "-q", "main"),
    ),
    "a commit in a pack": lambda here: (
        git(here, "commit", "-q", "--allow-empty", "-m", "mine"),
        git(here, "repack", "-a", "-d", "-l", "-q"),
    ),
    "a stash": lambda here: (overwrite(here / "README"), git(here, "stash", "-q")),
    "a repository in a folder": lambda here: (
        (here / "lib").mkdir(),
        git(here / "lib", "init", "-q"),
        git(here / "lib", "commit", "-q", "--allow-empty", "-m", "mine"),
    ),
    "a file in a submodule's folder": lambda here: overwrite(here / "module" / "plan.md"),
    "a repository made anew": lambda here: (
        shutil.rmtree(here / ".git"),
        git(here, "init", "-q"),
        git(here, "commit", "-q", "--allow-empty", "-m", "mine"),
    ),
    "no repository any more": lambda here: shutil.rmtree(here / ".git"),
    "a repository that lies elsewhere": lambda here: (
        (here / ".git").rename(here / "moved"),
        overwrite(here / ".git", "gitdir: moved\n"),
    ),
    "a broken HEAD": lambda here: overwrite(here / ".git" / "HEAD"),
    "a HEAD that points elsewhere": lambda here: overwrite(here / ".git" / "HEAD", "ref: refs/heads/../../x\n"),
    "a pipe in place of a HEAD": lambda here: ((here / ".git/HEAD").unlink(), os.mkfifo(here / ".git/HEAD")),
    "a name that is no text": lambda here: (Path(os.fsdecode(bytes(here) + b"/\xff\nx"))).touch(),
}
CLEAN: Mapping[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "a file that was only touched": lambda here: (here / "README").touch(),
    "a look at an older commit": lambda here: git(here, "checkout", "-q", "HEAD~1"),
    "a look at another branch": lambda here: (
        git(here, "fetch", "-q", "origin", "side"),
        git(here, "checkout", "-q", "FETCH_HEAD"),
    ),
    "an empty folder": lambda here: (here / "a" / "b").mkdir(parents=True),
    "caches": lambda here: (
        overwrite(here / "src" / "__pycache__" / "x.pyc"),
        overwrite(here / "node_modules" / "x.js"),
        overwrite(here / "target" / "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n"),
        overwrite(here / "target" / "x.o"),
    ),
}


@pytest.fixture(scope="module")
def whole_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with three commits, a branch, a .gitignore and a submodule."""
    folder = tmp_path_factory.mktemp("whole")
    repo, other = a_repository(folder / "app"), folder / "module"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "first")
    (repo / ".gitignore").write_text("*.log\n")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "module")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "second")
    git(repo, "commit", "-q", "--allow-empty", "-m", "third")
    git(repo, "branch", "side", "HEAD~1")
    return repo


@pytest.mark.parametrize("what", [*LEFT, *CLEAN])
def test_what_a_soldier_leaves_in_a_clone_is_kept_and_nothing_else(home: Path, whole_repo: Path, what: str) -> None:
    ours, task = workspaces(home, **{"acme/app": whole_repo}), a_task(repo="acme/app")
    workspace = made(ours, task)
    {**LEFT, **CLEAN}[what](workspace)
    left = searched(ours, task)
    assert left == ([workspace] if what in LEFT else [])
    ours.keep(task.id, None, left)
    assert workspace.exists() == (what in LEFT)
    assert [path.name for path in (home / "state" / "gen-pr" / "mirrors").iterdir()] == ["acme+2f+app.git"]


@pytest.mark.parametrize("made_of", ["nothing", "folders", "a file", "a deep file", "a repository", "too many folders"])
def test_every_file_is_kept_where_there_is_no_repository(home: Path, made_of: str) -> None:
    ours, task = workspaces(home), a_task()
    workspace = made(ours, task)
    {
        "nothing": lambda: None,
        "folders": lambda: (workspace / "a" / "b").mkdir(parents=True),
        "a file": lambda: (workspace / "report.md").touch(),
        "a deep file": lambda: overwrite(workspace / "a" / "b" / "report.md"),
        "a repository": lambda: git(workspace, "init", "-q"),
        "too many folders": lambda: [(workspace / str(number)).mkdir() for number in range(work.FEW + 1)],
    }[made_of]()
    assert ours.left(task, None) == ([] if made_of in ("nothing", "folders") else [workspace])


def test_what_a_soldier_may_not_be_read_is_kept(home: Path, repo: Path) -> None:
    ours, task = workspaces(home, **{"acme/app": repo}), a_task(repo="acme/app")
    workspace = made(ours, task)
    overwrite(workspace / "secret" / "plan.md")
    (workspace / "secret").chmod(0)
    assert searched(ours, task) == [workspace]
    (workspace / "secret").chmod(0o700)


HOSTILE = {
    "core.fsmonitor": "TRAP",
    "core.hooksPath": "HOOKS",
    "core.pager": "TRAP",
    "core.sshCommand": "TRAP",
    "diff.external": "TRAP",
    "diff.trap.textconv": "TRAP",
    "diff.trap.command": "TRAP",
    "filter.trap.clean": "TRAP",
    "filter.trap.process": "TRAP",
    "alias.ls-files": "!TRAP",
    "alias.read-tree": "!TRAP",
    "credential.helper": "TRAP",
    "gpg.program": "TRAP",
}


def test_nothing_that_a_soldier_wrote_is_run_or_obeyed(home: Path, repo: Path, tmp_path: Path) -> None:
    sprung, hooks = tmp_path / "sprung", tmp_path / "hooks"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 $* >>{sprung}\n")
    trap.chmod(0o755)
    hooks.mkdir()
    for hook in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout"):
        (hooks / hook).symlink_to(trap)
    ours, task = workspaces(home, **{"acme/app": repo}), a_task(repo="acme/app")
    workspace = made(ours, task)
    for name, value in HOSTILE.items():
        git(workspace, "config", name, value.replace("TRAP", str(trap)).replace("HOOKS", str(hooks)))
    overwrite(workspace / ".gitattributes", "* filter=trap diff=trap\n")
    subprocess.run(["git", "-C", str(workspace), "status"], check=False, capture_output=True)
    assert sprung.exists(), "the trap works"
    sprung.unlink()
    for text in ("mine\n", "hello\n"):
        overwrite(workspace / "README", text)
        assert searched(ours, task) == [workspace]
        ours._known.clear()
    (workspace / ".gitattributes").unlink()
    assert searched(ours, task) == []
    assert not sprung.exists()


@pytest.mark.parametrize("trouble", ["it takes too long", "git fails", "there is no git", "its mirror is gone"])
def test_what_cannot_be_searched_is_kept(home: Path, repo: Path, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    ours, task = workspaces(home, **{"acme/app": repo}), a_task(repo="acme/app")
    workspace = made(ours, task)
    programs = home / "bin"
    programs.mkdir()
    if trouble == "its mirror is gone":
        shutil.rmtree(home / "state" / "gen-pr" / "mirrors" / "acme+2f+app.git")
    elif trouble == "it takes too long":
        monkeypatch.setattr(work, "SECONDS", 0.0)
        (programs / "git").write_text("#!/bin/sh\nexec sleep 600\n")
        monkeypatch.setenv("PATH", str(programs), prepend=":")
    elif trouble == "git fails":
        (programs / "git").write_text("#!/bin/sh\nexit 1\n")
        monkeypatch.setenv("PATH", str(programs), prepend=":")
    else:
        monkeypatch.setenv("PATH", str(programs))
    for program in programs.iterdir():
        program.chmod(0o755)
    assert searched(ours, task) == [workspace]
    assert ours._searches == {}


def test_objects_of_a_kept_clone_stay_in_the_mirror_when_a_branch_is_rewritten(home: Path, repo: Path) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    ours, task = workspaces(home, **{"acme/app": repo}), a_task(repo="acme/app")
    workspace = made(ours, task)
    git(workspace, "commit", "-q", "--allow-empty", "-m", "mine")
    (mirror,) = (home / "state" / "gen-pr" / "mirrors").glob("*.git")
    eager = {"gc.autoPackLimit": "1", "gc.pruneExpire": "now", "gc.autoDetach": "false", "fetch.unpackLimit": "1"}
    eager["maintenance.strategy"] = "gc"  # as git does by default before 2.54
    for name, value in eager.items():
        git(mirror, "config", name, value)
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    for number in range(2, 5):
        git(repo, "commit", "-q", "--allow-empty", "-m", f"another {number}")
        made(ours, a_task(f"task-20260207-00{number}", "acme/app"))
    assert len([*mirror.glob("objects/pack/*.pack")]) <= 2, "git has collected its garbage"
    assert git(workspace, "log", "--format=%s").split() == ["mine", "second", "first"]


def test_a_workspace_in_which_a_question_was_asked_is_searched_as_well(home: Path, repo: Path) -> None:
    ours = workspaces(home, **{"acme/app": repo})
    asked, later = made(ours, a_task(repo="acme/app")), a_task("task-20260207-002", "acme/app")
    git(asked, "commit", "-q", "--allow-empty", "-m", "mine")
    assert searched(ours, later) == []
    assert searched(ours, later, str(asked)) == [asked]
    assert searched(ours, later, "/elsewhere") == []


def test_every_try_that_leaves_work_has_a_place_of_its_own(home: Path) -> None:
    ours, task = workspaces(home), a_task()
    for number in (1, 2):
        overwrite(made(ours, task) / "work", f"{number}\n")
        ours.renew(task)
    made(ours, task)
    ours.renew(task)
    assert [(path.name, (path / "work").read_text()) for path in ours.earlier(task.id)] == [
        (f"{task.id}.earlier-1", "1\n"),
        (f"{task.id}.earlier-2", "2\n"),
    ]
    assert not (home / "workspace" / "gen-pr" / task.id).exists()
