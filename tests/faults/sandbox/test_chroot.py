"""A kingdom in a chroot, whose root is no mount point: what holds its soldiers elsewhere holds them there too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.court.soldier import sandbox
from tests.faults import oracle, trees
from tests.faults.sandbox import rigs
from tests.faults.sandbox.rigs import GENERAL, Rig
from tests.faults.sandbox.test_breakout import PRELUDE, TRIAL
from tests.machine import needs_sandbox

IN_CHROOT = Path(__file__).with_name("in_chroot.sh")
NEW_MOUNTS = 0x00020000
INSIDE = "/castle"
"""The home, as it is called in the chroot."""
ATTEMPTS = {
    "the home open to all": "os.chmod(HOME, 0o777)",
    "all of the home open to all": """
for folder, _, names in os.walk(HOME):
    for name in names:
        try: os.chmod(os.path.join(folder, name), 0o777)
        except OSError: continue
        if folder.startswith(at("queue")): print(folder)
raise PermissionError
""",
    "a heartbeat made young": """os.utime(at("state/king/something"), (2**31, 2**31))""",
    "an owner changed": """os.chown(at("queue"), 12345, 12345)""",
    "an event of its own": """open(at("queue/events/pending/evt-forged.json"), "w").write("{}")""",
    "the secrets": """open(at(".env")).read()""",
    "another root": """os.chroot(ROOM)""",
    "the root of its general": f"""os.listdir(f"/proc/{{PARENT}}/root{INSIDE}")""",
    "the folder above its root": """os.chdir("/" + "../" * 100); open("tmp/kingdom-was-here", "w")""",
}
ALLOWED = """open("own", "w").write("x"); os.chmod("own", 0o640)"""

pytestmark = [
    pytest.mark.skipif(not trees.is_root(), reason="NO ROOT: NO CHROOT"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="NO UNSHARE: NO CHROOT"),
    needs_sandbox,
]


def served(rig: Rig) -> subprocess.CompletedProcess[str]:
    """Run its general in the chroot until its task has ended."""
    root = rig.home.parent
    folders = sorted({str(rig.tree), sys.prefix, sys.base_prefix})
    environment = trees.environment(rig.tree, Path(INSIDE))
    command = ["timeout", "--signal=KILL", "90", sys.executable, "-m", "kingdom.general", GENERAL, "--once"]
    return subprocess.run(
        [IN_CHROOT, root, *folders, "--", *command], env=environment, capture_output=True, text=True, timeout=120
    )


def check_chroot(root: Path, tree: Path | None = None) -> list[str]:
    root.chmod(0o755)
    home = root / INSIDE.strip("/")
    home.mkdir(mode=0o700)
    rig = rigs.build(home, tree)
    rig.arm(f"{PRELUDE}{TRIAL}{ALLOWED}\ntell(**{{name: trial(code) for name, code in {ATTEMPTS!r}.items()}})\n")
    task = rig.send()
    before = rigs.seen(rig, task)
    ended = served(rig)
    if ended.returncode:
        return [f"it ended with {ended.returncode}: {ended.stderr}"]
    if rig.result(task).get("status") != "success":
        return [f"no report: {rig.result(task)} {rig.log()}"]
    wrong = [f"{name}: done" for name, outcome in rig.said(task).items() if outcome == "DONE"]
    wrong += [f"{name}: was not tried" for name in ATTEMPTS if name not in rig.said(task)]
    return wrong + rigs.changed(before, rigs.seen(rig, task))


def test_a_soldier_in_a_chroot_changes_nothing_and_no_mount_is_left_to_all(home: Path, figure: oracle.Figure) -> None:
    wrong = check_chroot(home)
    figure(f"breakout in a chroot: {len(ATTEMPTS)} attempts, {len(wrong)} effects outside")
    assert not wrong, "\n".join(wrong)


def test_who_cannot_have_the_root_of_a_chroot_as_a_mount_is_where_it_was(home: Path) -> None:
    """Here the chroot lies in a disk that was taken off, to which nothing can be mounted."""
    child = os.fork()
    if child == 0:
        view = [["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "none", home]]
        sandbox._libc.unshare(NEW_MOUNTS)
        for command in view:
            subprocess.run(command, check=True)
        (home / "root/proc").mkdir(parents=True)
        (home / "root/mark").touch()
        os.chdir(home / "root")
        subprocess.run(["umount", "--lazy", home], check=True)
        os.chroot(".")
        held = sandbox._mount_root()
        os._exit(0 if not held and os.path.exists("/mark") else 1)
    assert os.waitpid(child, 0)[1] == 0
