"""`kingdom tasks work`: show what ended tasks have left in their workspaces, without running anything of theirs."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from subprocess import CalledProcessError
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.disk.codec import text_of
from kingdom.base.errors import BadFile, NoSuchThing
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.screen import Column, Line, Section, Table
from kingdom.base.records import kept
from kingdom.base.records.kept import Kept
from kingdom.base.times import stamp
from kingdom.base.words import DAY, count, duration, one_line, printable
from kingdom.cli import complete
from kingdom.cli.queue_files import find_typed
from kingdom.court.soldiers import work
from kingdom.court.soldiers.work import Comparison

MOST = 20
"""Commits and files that are shown of one workspace."""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--ignore-submodules=dirty")
"""With these git runs nothing; otherwise it would look into a repository in the workspace, as that configures it."""
NOT_WORK = tuple(f":(exclude,glob)**/{name}/**" for name in work.CACHES)


class Shown(NamedTuple):
    """What is in a kept workspace."""

    commits: list[str]
    files: list[str]


@click.command("work", short_help="Show the work that ended tasks have left in their workspaces.")
@click.argument("id", required=False, shell_complete=complete.ids("tasks"))
@click.option("--diff", "as_diff", is_flag=True, help="Print everything that it changed, as a patch for `git apply`.")
@click.option("--commits", "as_mails", is_flag=True, help="Print its commits alone, as mails for `git am`.")
@click.option("--json", "in_json", is_flag=True, help="Print each workspace as one line of JSON.")
def show_work(id: str | None, as_diff: bool, as_mails: bool, in_json: bool) -> None:
    """List the workspaces that are kept because a task has left work in them, or show that of one task.

    Use this rather than git inside such a folder: git would run what the task has written into its configuration.
    """
    places = home.find()
    found = sorted(kept.kept(places), key=lambda one: one.since, reverse=True) if id is None else _of(places, id)
    if as_diff or as_mails:
        if id is None or (as_diff and as_mails):
            raise click.UsageError("--diff or --commits goes with the ID of a task")
        last, *earlier = found
        _print((_patch if as_diff else _mails)(places, last))
        for name in _repositories_in(last.folder):
            path = printable(str(last.folder / name))
            print(f"not in the patch: {path} is a repository of its own; copy it", file=sys.stderr)
        for one in earlier:
            print(f"not in the patch: {one.folder.name}, another try; name it instead of the task", file=sys.stderr)
    elif in_json:
        for one in found:
            about = {"task": one.task, "general": one.general, "folder": str(one.folder), "since": stamp(one.since)}
            print(as_json.line("kept", {**about, **(_look(places, one)._asdict() if id else {})}))
    elif id is None:
        _list(places, found)
    else:
        days = _days(places)
        screen.show([_section(places, one, days) for one in found])


def _of(places: Places, id: str) -> list[Kept]:
    """Return what is kept of the task of this ID, whose file may be gone by now, or the one workspace of this name."""
    with suppress(NoSuchThing):
        id = find_typed(places, id, ("tasks",)).id
    found = kept.of_task(places, id) or [one for one in kept.kept(places) if one.folder.name == id]
    if not found:
        raise NoSuchThing(
            what="kept work of a task", name=one_line(id, 80), hint=f"; `{_command()}` lists what is kept"
        )
    return found


def _command() -> str:
    return f"{home.command()} tasks work"


def _days(places: Places) -> float:
    return float(config.for_looking(places, "chamberlain")[0]["retention"]["workspaces_days"])


def _list(places: Places, found: Sequence[Kept]) -> None:
    if not found:
        print("none", file=sys.stderr)
        return
    days = _days(places)
    columns = (Column("task"), Column("general", shrinks=True), Column("age"), Column("goes in"), Column("lies in"))
    rows = [
        (one.task, one.general, _age(one), _goes_in(one, days), str(one.folder.relative_to(places.home)))
        for one in found
    ]
    screen.show([Section([Table(columns, rows, indent=0)])])


def _age(one: Kept) -> str:
    return duration(max(0.0, time.time() - one.since))


def _goes_in(one: Kept, days: float) -> str:
    return duration(max(0.0, one.since + days * DAY - time.time()))


def _section(places: Places, one: Kept, days: float) -> Section:
    shown = _look(places, one)
    lines = [screen.line(str(one.folder)), *_rows("commit", shown.commits), *_rows("file", shown.files)]
    if shown.commits:
        lines.append(screen.line("To take over its commits, in a clone of yours:"))
        lines.append(screen.command(f"{_command()} {one.folder.name} --commits | git am"))
    lines.append(screen.line("To see all of its changes, or take them over with `git apply`:"))
    lines.append(screen.command(f"{_command()} {one.folder.name} --diff"))
    return Section(lines, one.folder.name, remark=f"of {one.general}, deleted in {_goes_in(one, days)}")


def _rows(what: str, texts: Sequence[str]) -> list[Line]:
    if not texts:
        return []
    rows = [screen.line(text, indent=2 * screen.INDENT) for text in texts[:MOST]]
    more = [screen.line(f"… {len(texts) - MOST} more", indent=2 * screen.INDENT)] if len(texts) > MOST else []
    return [screen.line(f"{count(len(texts), what)}:"), *rows, *more]


def _look(places: Places, one: Kept) -> Shown:
    """Return the commits and the changed files of a workspace, all that can be read of it."""
    commits: list[str] = []
    files: list[str] = []
    with _git(places, one) as (git, tips):
        with suppress(CalledProcessError):
            if tips:
                log = git.output("log", "-z", "--format=%h %s", *tips, "--not", "--all")
                commits += [one_line(row.decode("utf-8", "replace"), 200) for row in log.split(b"\0") if row]
        _read(git, tips)
        deleted = set(git.names("ls-files", "-z", "--deleted"))
        changed = set(git.names("ls-files", "-z", "--modified")) - deleted
        others = git.names("ls-files", "-z", "--others", "--directory")
        new = {name for name in others if work.is_work(one.folder / os.fsdecode(name))}
        marked = [(name, mark) for mark, names in (("M", changed), ("D", deleted), ("?", new)) for name in names]
        files += [f"{mark} {one_line(name.decode('utf-8', 'replace'), 200)}" for name, mark in sorted(marked)]
    return Shown(commits, files)


def _patch(places: Places, one: Kept) -> bytes:
    """Return what differs from where the task began."""
    with _git(places, one) as (git, tips):
        base, tip = EMPTY_TREE, _read(git, tips)
        if tip is not None:
            rows = git.output("rev-list", "--boundary", tip, "--not", "--all").decode().split()
            base = next((row[1:] for row in rows if row.startswith("-")), EMPTY_TREE if rows else tip)
        elif tips:
            where = printable(str(one.folder))
            print(
                f"not compared: the commits of {where} cannot be read; the patch has its files whole", file=sys.stderr
            )
        inner = [f":(exclude,literal){name}" for name in _repositories_in(one.folder)]
        git.output("add", "--intent-to-add", "--force", "--", ".", *NOT_WORK, *inner)
        return git.output("diff", *PLAIN, base)


def _repositories_in(folder: Path) -> Iterator[str]:
    """Yield the folders of a workspace that are repositories of their own, relative to it."""
    for path, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git" and name not in work.CACHES]
        for name in list(folders):
            inner = Path(path, name)
            if is_there(inner / ".git"):
                folders.remove(name)
                yield os.path.relpath(inner, folder)


def _mails(places: Places, one: Kept) -> bytes:
    """Return the commits of the task, the first one first."""
    with _git(places, one) as (git, tips):
        tip = _read(git, tips)
        return git.output("format-patch", "--stdout", *PLAIN, tip, "--not", "--all") if tip is not None else b""


def _print(patch: bytes) -> None:
    """Print a patch; on a terminal without control characters."""
    if sys.stdout.isatty():
        print(printable(patch.decode("utf-8", "replace")), end="")
    else:
        sys.stdout.buffer.write(patch)


def _read(git: Comparison, tips: Sequence[str]) -> str | None:
    """Compare with the checked-out commit from now on, and return it; None, and with nothing, when it is broken."""
    with suppress(CalledProcessError):
        for tip in tips[:1]:
            git.read(tip)
            return tip
    return None


@contextmanager
def _git(places: Places, one: Kept) -> Iterator[tuple[Comparison, list[str]]]:
    """Give git for a workspace, and the commits that it has: the checked-out one first.

    Its repository is the mirror, or an empty one of ours. It only borrows objects, and writes into a folder of ours.
    """
    make_folder(places.scratch("cli"))
    with TemporaryDirectory(dir=places.scratch("cli")) as name:
        scratch, own = Path(name), one.folder / ".git"
        make_folder(scratch / "objects")
        mirror = _mirror(places, one)
        borrowed = [own / "objects", *([] if mirror is None else [mirror / "objects"])]
        variables = {
            "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(map(str, borrowed)),
        }
        if mirror is None:
            mirror = scratch / "git"
            Comparison(mirror, one.folder, scratch / "index").output("init", "--quiet", "--template=")
        try:
            yield Comparison(mirror, one.folder, scratch / "index", **variables), _tips(own)
        except CalledProcessError as error:
            raise BadFile(
                path=one.folder, why=f"git cannot read it with {mirror} and ends with {error.returncode}"
            ) from None


def _mirror(places: Places, one: Kept) -> Path | None:
    """Return the mirror that a workspace was cloned from: the one of its general's that it names; None if no mirror is.

    A home may have been moved, or restored elsewhere without its mirrors.
    """
    named = ""
    with suppress(NotADirectoryError):
        named = text_of(one.folder / ".git" / "objects" / "info" / "alternates", work.LONGEST_REF).strip()
    mirrors = places.mirrors(one.general)
    *_, general, folder, name, objects = ("", "", "", "", *Path(named).parts)
    if (general, folder, objects) != (one.general, mirrors.name, "objects") or not name.endswith(".git"):
        return None
    if not is_there(mirrors / name):
        hint = f"`git clone --mirror ADDRESS {shlex.quote(str(mirrors / name))}` brings it"
        raise BadFile(path=one.folder, why=f"it was cloned from a mirror that is not here; {hint}")
    return mirrors / name


def _tips(git: Path) -> list[str]:
    """Return the commits that a repository's files name: of HEAD, of its branches, of its stash."""
    checked_out = work.head(git)
    branches = (Path(folder, name) for folder, _, names in os.walk(git / "refs" / "heads") for name in names)
    named = [work.commit_in(path) for path in islice((git / "refs" / "stash", *branches), MOST)]
    return list(dict.fromkeys(commit for commit in (checked_out, *named) if commit))
