"""The unit that `kingdom systemd` prints, under a real systemd: it works, comes back, is watched, and ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import trees
from tests.faults.oracle import Figure
from tests.waiting import wait_until

NAMESPACES = ("--mount", "--pid", "--mount-proc", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child")
TOOLS = ("nsenter", "setpriv", "systemctl", "unshare")
HOME, UNIT = "/srv/castle", "/etc/systemd/system/kingdom.service"
SOONER = "[Service]\nRestartSec=1\nWatchdogSec=10\n"
BACK_SECONDS = 120.0
IS_HIDDEN = trees.CHECKOUT.is_relative_to("/tmp")
needs_systemd = pytest.mark.skipif(
    os.geteuid() != 0 or IS_HIDDEN or not all(map(shutil.which, TOOLS)),
    reason="NO ROOT, NO SYSTEMD, OR A CHECKOUT IN /tmp: the unit is not run under a real systemd",
)


class Machine:
    """A machine as far as systemd knows: namespaces of their own, in which it is the first process."""

    def __init__(self) -> None:
        boot = Path(__file__).with_name("own_systemd.sh")
        self._around = subprocess.Popen(["unshare", *NAMESPACES, str(boot)])
        children = Path(f"/proc/{self._around.pid}/task/{self._around.pid}/children")
        wait_until(lambda: children.read_text().split(), 10, "the first process")
        self._first = children.read_text().split()[0]
        wait_until(lambda: self.run("systemctl", "is-active", "basic.target") == "active", 30, "systemd")

    def run(self, *words: str, text: str | None = None) -> str:
        """Run a command there as root and return what it prints, the line break at its end left out."""
        enter = ["nsenter", "-t", self._first, "-m", "-p", "-u", "-i", "-C"]
        command = [*enter, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180)
        return (done.stdout + done.stderr).rstrip("\n")

    def kingdom(self, *words: str) -> str:
        """Run `kingdom` there as a user who is not root."""
        user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
        path = f"{trees.CHECKOUT}/.venv/bin:/usr/bin:/bin"
        return self.run(*user, "env", f"PATH={path}", f"KINGDOM_HOME={HOME}", "LANG=C.UTF-8", "kingdom", *words)

    def shown(self, name: str) -> str:
        return self.run("systemctl", "show", "kingdom", "--value", "-p", name)

    def is_back(self, times: int) -> bool:
        return (self.shown("NRestarts"), self.shown("ActiveState")) == (str(times), "active")

    def end(self) -> None:
        self._around.kill()
        self._around.wait()


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    try:
        yield machine
    finally:
        machine.end()


@trees.in_campaigns
@needs_systemd
def test_the_unit_works_comes_back_is_watched_and_ends(machine: Machine, figure: Figure) -> None:
    assert "Next:" in machine.kingdom("init", HOME)
    machine.run("tee", UNIT, text=machine.kingdom("systemd") + "\n")
    machine.run("mkdir", f"{UNIT}.d")
    machine.run("tee", f"{UNIT}.d/sooner.conf", text=SOONER)
    machine.run("systemctl", "daemon-reload")
    assert machine.run("systemctl", "start", "kingdom") == "", "it returns when the unit says that it is ready"
    assert (machine.shown("ActiveState"), machine.shown("StatusText")) == ("active", "every role works")
    assert machine.shown("User") == "nobody"

    machine.kingdom("generals", "new", "gen-echo")
    machine.kingdom("generals", "install", f"{HOME}/generals/gen-echo")
    assert "I was told: echo hello" in machine.kingdom("say", "echo hello"), "from a soldier in its whole sandbox"
    assert "NO SANDBOX" not in machine.run("cat", f"{HOME}/logs/gen-echo.log")

    for times, blow in enumerate(("-KILL", "-STOP"), start=1):
        machine.run("kill", blow, machine.shown("MainPID"))
        wait_until(lambda times=times: machine.is_back(times), BACK_SECONDS, f"back after {blow}")
    assert "I was told: echo again" in machine.kingdom("say", "echo again")

    assert machine.run("systemctl", "stop", "kingdom") == ""
    assert (machine.shown("ActiveState"), machine.shown("Result")) == ("inactive", "success")
    left = [line for line in machine.run("ps", "-e", "-o", "args").splitlines() if "kingdom" in line]
    assert left == []
    assert machine.kingdom("fsck") == "All is well."
    figure("the unit under a real systemd: ready, 2 tasks done, back after KILL and after STOP, ended with nobody left")
