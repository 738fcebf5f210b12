"""What `kingdom tasks work` shows of a workspace, by which nothing that a soldier wrote is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.errors import Exit
from kingdom.base.home.places import Places
from kingdom.base.program import home
from tests.cli.conftest import Terminal
from tests.fixtures import write

TASK, GENERAL = "task-20260207-001", "gen-pr"


def git(where: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", "-C", str(where), *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def kept(terminal: Terminal) -> Path:
    """A clone with a commit, a change, a deleted file, new files and a cache, of a task that has ended."""
    places = terminal.places
    origin, mirror = places.home / "origin", places.mirrors(GENERAL) / "acme+2f+app.git"
    origin.mkdir()
    git(origin, "init", "-q")
    for name in ("README", "old"):
        (origin / name).write_text(f"{name}\n")
    (origin / ".gitignore").write_text("*.log\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "theirs")
    mirror.parent.mkdir(parents=True)
    git(origin, "clone", "-q", "--mirror", str(origin), str(mirror))
    workspace = places.workspace(GENERAL, TASK)
    git(origin, "clone", "-q", "--shared", str(mirror), str(workspace))
    (workspace / "prices").write_text("1\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "SHOP-9: sort by \x1b[31mprice")
    (workspace / "README").write_text("changed\n")
    (workspace / "old").unlink()
    (workspace / "out.log").write_text("log\n")
    for folder in ("notes", "__pycache__"):
        (workspace / folder).mkdir()
        (workspace / folder / "plan").write_text("plan\n")
    ended(terminal, [str(workspace)])
    return workspace


def ended(terminal: Terminal, kept: list[str]) -> None:
    terminal.task("completed", TASK, outcome="success", target_general=GENERAL)
    write(terminal.places.result(TASK), {"task_id": TASK, "status": "success", "summary": "done", "kept": kept})


def test_commits_and_changes_of_a_task_are_shown(terminal: Terminal, kept: Path) -> None:
    told = terminal.ok("tasks", "work", TASK)
    lines = told.splitlines()
    assert lines[0] == f"{TASK}  of gen-pr, deleted in 30 d"
    assert f"  {kept}" in lines
    commit = git(kept, "log", "-1", "--format=%h").strip()
    assert f"    {commit} SHOP-9: sort by [31mprice" in lines
    assert "theirs" not in told
    assert [line.strip() for line in lines if line.startswith("    ") and line[5] == " "] == [
        "M README",
        "? notes/",
        "D old",
        "? out.log",
    ]
    assert f"    {home.command()} tasks work {TASK} --commits | git am" in lines


def test_a_patch_brings_all_of_it_into_another_clone(terminal: Terminal, kept: Path, tmp_path: Path) -> None:
    patch = tmp_path / "patch"
    patch.write_text(terminal.ok("tasks", "work", TASK, "--diff"))
    origin = terminal.places.home / "origin"
    git(origin, "apply", str(patch))
    files = {path.relative_to(origin).as_posix(): path for path in origin.rglob("*") if path.is_file()}
    found = {name: path.read_text() for name, path in files.items() if not name.startswith(".git")}
    assert found == {"README": "changed\n", "prices": "1\n", "out.log": "log\n", "notes/plan": "plan\n"}


def test_each_try_of_a_task_has_a_patch_of_its_own(terminal: Terminal, tmp_path: Path) -> None:
    ended(terminal, [])
    names = TASK, f"{TASK}.earlier-1"
    for name in names:
        folder = terminal.places.workspaces / GENERAL / name
        folder.mkdir(parents=True)
        (folder / "notes").write_text(f"{name}\n")
    shown = terminal.ok("tasks", "work", TASK)
    for name in names:
        patch, clone = tmp_path / "patch", tmp_path / name
        assert f"    {home.command()} tasks work {name} --diff" in shown.splitlines()
        patch.write_text(terminal("tasks", "work", name, "--diff").out)
        clone.mkdir()
        git(clone, "init", "-q")
        git(clone, "apply", str(patch))
        assert (clone / "notes").read_text() == f"{name}\n"


def test_its_commits_alone_come_as_mails(terminal: Terminal, kept: Path, tmp_path: Path) -> None:
    mails = tmp_path / "mails"
    mails.write_text(terminal.ok("tasks", "work", TASK, "--commits"))
    origin = terminal.places.home / "origin"
    git(origin, "am", "-q", str(mails))
    assert git(origin, "log", "-1", "--format=%s by %ae").strip().endswith("price by a@b")
    assert ((origin / "prices").read_text(), (origin / "README").read_text()) == ("1\n", "README\n")


def test_files_without_a_repository_are_shown(terminal: Terminal) -> None:
    workspace = terminal.places.workspace(GENERAL, TASK)
    workspace.mkdir(parents=True)
    (workspace / "report.md").write_text("all is well\n")
    ended(terminal, [str(workspace)])
    assert "    ? report.md" in terminal.ok("tasks", "work", TASK).splitlines()
    assert "+all is well\n" in terminal.ok("tasks", "work", TASK, "--diff")


def test_a_repository_of_the_soldiers_own_is_shown(terminal: Terminal) -> None:
    workspace = terminal.places.workspace(GENERAL, TASK)
    workspace.mkdir(parents=True)
    git(workspace, "init", "-q")
    (workspace / "report.md").write_text("all is well\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "first")
    ended(terminal, [str(workspace)])
    told = terminal.ok("tasks", "work", TASK)
    assert told.count(" first\n") == 1
    assert "+all is well\n" in terminal.ok("tasks", "work", TASK, "--diff")


def test_nothing_that_a_soldier_wrote_is_run(terminal: Terminal, kept: Path) -> None:
    sprung, trap = terminal.places.home / "sprung", terminal.places.home / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 $* >>{sprung}\n")
    trap.chmod(0o755)
    inner = kept / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "file").write_text("theirs\n")
    git(inner, "add", "file")
    git(inner, "commit", "--quiet", "-m", "inner")
    git(kept, "add", "inner")
    git(kept, "commit", "--quiet", "-m", "a repository in it")
    for where in (kept, inner):
        for name in (
            "core.fsmonitor",
            "core.pager",
            "diff.external",
            "diff.x.textconv",
            "filter.x.clean",
            "gpg.program",
        ):
            git(where, "config", name, str(trap))
        (where / ".gitattributes").write_text("* filter=x diff=x\n")
    os.utime(inner / "file", (0, 0))
    for words in ((), ("--diff",), ("--commits",), ("--json",)):
        assert terminal("tasks", "work", TASK, *words).code == 0
    assert not sprung.exists()


@pytest.mark.parametrize("has_commit", [True, False])
def test_a_repository_in_a_workspace_is_named_beside_the_patch(
    terminal: Terminal, kept: Path, has_commit: bool
) -> None:
    inner = kept / "folder" / "inner"
    inner.mkdir(parents=True)
    git(inner, "init", "--quiet")
    (inner / "file").write_text("theirs\n")
    if has_commit:
        git(inner, "add", "file")
        git(inner, "commit", "--quiet", "-m", "inner")
    told = terminal("tasks", "work", TASK, "--diff")
    assert (told.code, told.err) == (0, f"not in the patch: {inner} is a repository of its own; copy it\n")
    assert "\n+changed\n" in told.out


BROKEN: dict[str, Callable[[Path], object]] = {
    "no HEAD": lambda here: (here / ".git" / "HEAD").unlink(),
    "a HEAD that nobody has": lambda here: (here / ".git" / "HEAD").write_text(f"{'1' * 40}\n"),
    "a file in place of its repository": lambda here: (shutil.rmtree(here / ".git"), (here / ".git").touch()),
}


@pytest.mark.parametrize("how", BROKEN)
def test_of_a_broken_repository_the_files_are_shown(terminal: Terminal, kept: Path, how: str) -> None:
    BROKEN[how](kept)
    told = terminal.ok("tasks", "work", TASK).splitlines()
    assert ("    M README" if how == "no HEAD" else "    ? README") in told
    said = terminal("tasks", "work", TASK, "--diff")
    assert "\n+changed\n" in said.out
    what = f"the commits of {kept} cannot be read; the patch has its files whole"
    assert said.err == (f"not compared: {what}\n" if how == "a HEAD that nobody has" else "")


@pytest.fixture
def restored(terminal: Terminal, kept: Path, tmp_path: Path) -> tuple[Terminal, Path]:
    """A terminal on a restored copy of the home, which is gone, and where the mirror of its repository would be."""
    archive, again = tmp_path / "archive", Places(tmp_path / "again")
    terminal.ok("backup", str(archive))
    terminal.ok("restore", str(archive), str(again.home))
    mirror = terminal.places.mirrors(GENERAL)
    mirror.rename(tmp_path / "mirrors")
    terminal.places.home.rename(tmp_path / "gone")
    terminal.places.home.mkdir()
    os.environ["KINGDOM_HOME"] = str(again.home)
    terminal.places = again
    return terminal, again.mirrors(GENERAL)


@pytest.mark.parametrize("words", [(), ("--diff",), ("--commits",), ("--json",)])
def test_a_restored_home_says_which_mirror_its_kept_work_lacks(
    restored: tuple[Terminal, Path], words: tuple[str, ...]
) -> None:
    terminal, mirrors = restored
    mirror = mirrors / "acme+2f+app.git"
    said = terminal("tasks", "work", TASK, *words)
    assert (said.code, said.out) == (Exit.REFUSED, "")
    assert said.err.strip() == (
        f"kingdom: {terminal.places.workspace(GENERAL, TASK)}: it was cloned from a mirror that is not here; "
        f"`git clone --mirror ADDRESS {mirror}` brings it"
    )


def test_a_restored_home_shows_kept_work_once_its_mirror_is_back(
    restored: tuple[Terminal, Path], tmp_path: Path
) -> None:
    terminal, mirrors = restored
    mirrors.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mirrors").rename(mirrors)
    patch, origin = tmp_path / "patch", tmp_path / "gone/origin"
    patch.write_text(terminal.ok("tasks", "work", TASK, "--diff"))
    git(origin, "apply", str(patch))
    assert ((origin / "README").read_text(), (origin / "prices").read_text()) == ("changed\n", "1\n")
    assert "SHOP-9: sort by" in terminal.ok("tasks", "work", TASK)
    where = terminal.places.workspace(GENERAL, TASK)
    assert f"its work is kept in {where}; `" in terminal.ok("why", TASK)


def test_a_mirror_that_lacks_commits_is_named(terminal: Terminal, kept: Path) -> None:
    mirror = terminal.places.mirrors(GENERAL) / "acme+2f+app.git"
    shutil.rmtree(mirror / "objects")
    (mirror / "objects").mkdir()
    said = terminal("tasks", "work", TASK, "--diff")
    assert (said.code, said.out) == (Exit.REFUSED, "")
    assert said.err == f"kingdom: {kept}: git cannot read it with {mirror} and ends with 128\n"


def test_what_is_kept_is_listed_with_the_days_that_are_left(terminal: Terminal, kept: Path) -> None:
    earlier = kept.with_name(f"{TASK}.earlier-1")
    earlier.mkdir()
    ended(terminal, [str(kept), str(earlier)])
    old = os.stat(kept).st_mtime - 86400 * 10
    os.utime(earlier, (old, old))
    rows = [line.split() for line in terminal.ok("tasks", "work").splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (TASK, GENERAL, f"workspace/{GENERAL}/{TASK}"),
        (TASK, GENERAL, f"workspace/{GENERAL}/{TASK}.earlier-1"),
    ]
    assert rows[1][2:6] == ["10", "d", "20", "d"]
    about = [json.loads(line) for line in terminal.ok("tasks", "work", "--json").splitlines()]
    assert [row["folder"] for row in about] == [str(kept), str(earlier)]


def test_what_a_running_task_or_an_empty_one_has_is_not_kept_work(terminal: Terminal) -> None:
    for name in (TASK, "task-20260207-002"):
        terminal.places.workspace(GENERAL, name).mkdir(parents=True)
    terminal.task("in_progress", TASK, target_general=GENERAL)
    terminal.task("completed", "task-20260207-002", target_general=GENERAL)
    write(terminal.places.result("task-20260207-002"), {"task_id": TASK, "status": "failed", "kept": []})
    assert terminal("tasks", "work").err == "none\n"
    assert "no kept work of a task" in terminal("tasks", "work", TASK).err


@pytest.mark.parametrize(("most", "level"), [(0.2, "ok"), (0.0, "warn")])
def test_doctor_counts_it_and_warns_when_it_is_large(
    terminal: Terminal, kept: Path, monkeypatch: pytest.MonkeyPatch, most: float, level: str
) -> None:
    (kept / "large").write_bytes(b"x" * (5 << 20))
    monkeypatch.setattr("kingdom.cli.doctor.MOST_KEPT", most)
    (said,) = [line for line in terminal("doctor", "--all").out.splitlines() if " work: " in line]
    assert said.split()[0] == level
    assert "1 workspace keeps the work of ended tasks, 5 MB" in said
    assert said.startswith("warn") == (level == "warn")


def test_show_and_why_name_it(terminal: Terminal, kept: Path) -> None:
    where = f"work is kept in {kept}; `{home.command()} tasks work {TASK}` shows it"
    assert f"Its {where}" in terminal.ok("tasks", "show", TASK).splitlines()
    told = terminal.ok("why", TASK)
    assert f"its {where}" in told
    assert "summary: done\n" in told, "it is not said twice"
    kept.rename(kept.with_name("gone"))
    assert f"its work was kept in {kept}, which has been deleted" in terminal.ok("why", TASK)
