"""Who may read and write: own folders and secrets are private, and a home that is not ours alone is refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.base.errors import Exit
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees
from tests.waiting import SOON

KING = ("-m", "kingdom.king", "--once")
NOBODY = 65534


def check_private(tree: Path) -> list[str]:
    """After a run every folder of ours is 0700 and every file 0600, whatever the caller's umask."""
    home = trees.new_folder() / "castle"
    home.mkdir(mode=0o700)
    previous = os.umask(0)
    try:
        ended = trees.run(tree, home, KING)
        homes.install(home, homes.GENERAL)
        homes.put(home, "events", "pending", homes.event("evt-github-1-x"), homes.event("evt-2", "nobody.wants"))
        (Places(home).folder("events", "pending") / "bad.json").write_text("{")
        again = trees.run(tree, home, KING)
    finally:
        os.umask(previous)
    wrong = [f"ended with {run.returncode}: {run.stderr}" for run in (ended, again) if run.returncode]
    for path in home.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        name = path.relative_to(home)
        if path.is_dir() and mode != 0o700:
            wrong.append(f"folder {name} has mode {mode:o}")
        elif path.is_file() and name.parts[0] != "config" and mode != 0o600 and "dead/bad.json" not in str(name):
            wrong.append(f"file {name} has mode {mode:o}")
    trees.remove(home)
    return wrong


def check_open_to_all(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    home.chmod(0o707)
    return refused(tree, home, "everybody may write")


def check_open_secrets(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    secrets = Places(home).env_file
    secrets.write_text("SLACK_BOT_TOKEN=xoxb-of-the-owner\n")
    secrets.chmod(0o644)
    wrong = refused(tree, home, "others may read")
    logs = "".join(path.read_text() for path in Places(home).logs.rglob("*.log"))
    wrong += ["the secret stands in a log"] if "xoxb-of-the-owner" in logs else []
    secrets.chmod(0o600)
    ended = trees.run(tree, home, KING)
    return wrong + ([] if ended.returncode == 0 else [f"a 0600 .env is refused too: {ended.stderr}"])


CLUMSY = """
from kingdom.base.runtime import role

class Clumsy:
    def __init__(self, services):
        pass

    def folders(self):
        return {}

    def turn(self, arrivals):
        raise ValueError("xoxb-of-the-owner is what it died of")

raise SystemExit(role.run(role.RoleSpec("king", "king"), Clumsy))
"""


def check_told_defects(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    secrets = Places(home).env_file
    secrets.touch(0o600)
    secrets.write_text("SLACK_BOT_TOKEN=xoxb-of-the-owner\n")
    ended = trees.run(tree, home, ("-c", CLUMSY))
    logs = "".join(path.read_text() for path in Places(home).logs.rglob("*.log"))
    wrong = [] if "[hidden] is what it died of" in logs else [f"the defect is not told: {logs}{ended.stderr}"]
    return wrong + (["the secret is told"] if "xoxb" in logs + ended.stderr + ended.stdout else [])


def check_not_a_home(tree: Path) -> list[str]:
    folder = trees.new_folder()
    wrong = refused(tree, folder / "nowhere", "does not exist")
    (folder / "file").touch()
    return wrong + refused(tree, folder / "file", "not a folder")


def check_foreign(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    os.chown(home, NOBODY, NOBODY)
    return refused(tree, home, f"belongs to uid {NOBODY}")


def check_read_only(tree: Path) -> list[str]:
    """One line, no traceback, no loop of its own; nothing is changed."""
    home = trees.new_folder()
    homes.make(home)
    homes.put(home, "events", "pending", homes.event("evt-github-1-x"))
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(home), sys.executable, *KING],
        cwd=tree,
        env=trees.environment(tree, home),
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    wrong = [] if ended.returncode in (Exit.REFUSED, Exit.FAILED) else [f"ended with {ended.returncode}"]
    told = ended.stderr.strip()
    wrong += [] if told and "\n" not in told and "ead-only" in told else [f"said {told!r}"]
    return wrong + ([] if oracle.states_of(home, "events") == {"evt-github-1-x": ["pending"]} else ["the event moved"])


def refused(tree: Path, home: Path, because: str) -> list[str]:
    before = {path: path.lstat().st_mtime_ns for path in home.glob("queue/*/*")}
    ended = trees.run(tree, home, KING)
    told = ended.stderr.strip()
    wrong = [] if ended.returncode == Exit.REFUSED else [f"{because}: ended with {ended.returncode}, {told!r}"]
    wrong += [] if because in told and "\n" not in told and str(home) in told else [f"{because}: said {told!r}"]
    after = {path: path.lstat().st_mtime_ns for path in home.glob("queue/*/*")}
    return wrong + ([] if before == after else [f"{because}: something was written all the same"])


def may_mount() -> bool:
    return trees.is_root() and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


CHECKS = {
    "private": check_private,
    "open to all": check_open_to_all,
    "open secrets": check_open_secrets,
    "a defect and a secret": check_told_defects,
    "not a home": check_not_a_home,
    "foreign": check_foreign,
    "read-only": check_read_only,
}


@pytest.mark.parametrize("what", CHECKS)
def test_a_home_is_private_or_refused(what: str, figure: oracle.Figure) -> None:
    if what == "foreign" and not trees.is_root():
        pytest.skip("only root can give a home to somebody else")
    if what == "read-only" and not may_mount():
        pytest.skip("only root can mount a home read-only")
    wrong = CHECKS[what](trees.program())
    figure(f"permissions, {what}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
