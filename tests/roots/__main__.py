"""`python -m tests.roots [trixie …]`: what a newcomer types, on other Linux distributions.

Each root is made by debootstrap and kept for a week in build/roots/. Every try works on a copy of it, with a clean
clone of HEAD, in its own mount and PID namespaces: however it ends, no mount and no process is left.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = CHECKOUT / "tests/roots"
BUILD = CHECKOUT / "build/roots"
SUITES = ("bookworm", "trixie", "sid")
#: What a newcomer's machine has beside Debian's smallest set of packages. `bin/setup` adds what it may.
PACKAGES = ("python3", "python3-venv", "git", "make", "ca-certificates")
KEPT_SECONDS = 7 * 86400
#: Variables of this machine that a root needs, most of them to reach the package index; the files that they name are
#: copied. Paths of the machine's own that say how to reach others come along too.
PASSED_ON = re.compile(r"WORKERS|PIP_.*|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|(https?|no|all)_proxy", re.I)
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts")
NEEDED = ("debootstrap", "unshare", "pivot_root", "setpriv", "git")


def main(suites: list[str]) -> int:
    if reason := cannot():
        print(f"NO OTHER DISTRIBUTION IS TRIED: {reason}".upper(), flush=True)
        return 0
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))
    return max([tried(suite) for suite in suites or SUITES])


def cannot() -> str | None:
    """Return why this machine cannot make roots, or None."""
    if os.geteuid() != 0:
        return "this needs root"
    if missing := [tool for tool in NEEDED if shutil.which(tool) is None]:
        return f"{' and '.join(missing)} not found"
    namespaces = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return None if namespaces.returncode == 0 else namespaces.stderr.strip()


def tried(suite: str) -> int:
    """Run the newcomer's commands in a fresh copy of the suite's root. Return 0 if all of them succeeded."""
    kept, copy, logs = BUILD / suite, BUILD / f"{suite}.try", BUILD / f"{suite}.log"
    with alone(suite):
        try:
            made(suite, kept)
            for folder in (copy, logs):
                removed(folder)
            logs.mkdir()
            subprocess.run(["cp", "--archive", "--reflink=auto", kept, copy], check=True)
            subprocess.run(["git", "clone", "--quiet", CHECKOUT, copy / "srv/kingdom"], check=True)
            shutil.copy(HERE / "inside.py", copy)
            settings = {"suite": suite, "quick": "QUICK" in os.environ, "environment": passed_on(copy)}
            return entered(copy, logs, json.dumps(settings))
        except subprocess.CalledProcessError as error:
            print(f"{suite}: {' '.join(map(str, error.cmd))}: exit code {error.returncode}", flush=True)
            return 1
        finally:
            removed(copy)


@contextmanager
def alone(suite: str) -> Iterator[None]:
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{suite}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made(suite: str, root: Path) -> None:
    """Make a root, unless a young one with the same packages is there."""
    stamp, packages = root / "made", " ".join(PACKAGES)
    if stamp.exists() and stamp.read_text() == packages and time.time() - stamp.stat().st_mtime < KEPT_SECONDS:
        return
    began = time.monotonic()
    removed(root)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, root, *mirror()]
    with open(BUILD / f"{suite}.debootstrap", "w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    stamp.write_text(packages)
    print(f"{suite}: debootstrap took {time.monotonic() - began:.0f} s", flush=True)


def mirror() -> list[str]:
    """Return the mirror that this machine's apt uses; without one debootstrap takes its own."""
    if shutil.which("apt-get") is None:
        return []
    command = ["apt-get", "indextargets", "Origin: Debian", "Label: Debian", "--format", "$(REPO_URI)"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()[:1]


def passed_on(root: Path) -> dict[str, str]:
    """Return the variables for the root, in which the files that they name are put."""
    variables = dict(pip_settings()) | {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    # Never through a link of the root: it may point at this machine's own file.
    copy = ["cp", "--recursive", "--dereference", "--preserve", "--remove-destination", "--no-target-directory"]
    for name in {*NETWORK_FILES, *variables.values()}:
        if name.startswith("/") and os.path.exists(name):
            target = root / name.removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([*copy, name, target], check=True)
    return variables


def pip_settings() -> Iterator[tuple[str, str]]:
    """Yield what pip's configuration files say, as variables."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in ("global", "install"):
            yield f"PIP_{key.upper().replace('-', '_')}", ast.literal_eval(value)


def entered(root: Path, logs: Path, settings: str) -> int:
    """Run inside.py as the first process of a PID namespace. It ends with this process, and all others end with it."""
    namespaces = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
    command = [*namespaces, HERE / "enter.sh", root, logs]
    return subprocess.run(command, input=settings, text=True, check=False).returncode


def removed(root: Path) -> None:
    subprocess.run(["rm", "--recursive", "--force", "--one-file-system", root], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
