"""Run the newcomer's commands, first as a plain user, then as root. This is the first process of its PID namespace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

SOURCE = Path("/srv/kingdom")
LOGS = Path("/logs")
MINUTE = 60
SOON = 10
LAST_LINES = 30
TESTS = "make test"
#: What is typed, and the minutes that it may take on a busy machine.
COMMANDS = {
    "make up": 15,
    'bin/kingdom say "brief me"': 3,
    "make demo": 8,
    TESTS: 120,
    "make down": 3,
    'test -z "$(git status --porcelain)"': 1,
}
#: The user may install nothing, so the roles run under supervisord. Root's set-up adds tmux, strace and jq.
ACCOUNTS = {"user": "/home/user", "root": "/root"}
COUNTS = re.compile(r"^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s", re.MULTILINE)


def main() -> int:
    settings = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, too_late)
    subprocess.run(["useradd", "--create-home", "user"], check=True)
    bad = 0
    for account, home in ACCOUNTS.items():
        clone = f"{home}/kingdom"
        subprocess.run(["cp", "--recursive", SOURCE, clone], check=True)
        subprocess.run(["chown", "--recursive", f"{account}:", clone], check=True)
        # No locale, no editor, no git identity: as Debian leaves a new account.
        environment = {**settings["environment"], "PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm"}
        for number, (command, minutes) in enumerate(COMMANDS.items(), 1):
            if command == TESTS and (account != "root" or settings["quick"]):
                continue
            log = LOGS / f"{account}-{number}.log"
            began = time.monotonic()
            words = ["setpriv", f"--reuid={account}", f"--regid={account}", "--init-groups", "sh", "-c", command]
            code = run(["timeout", "--kill-after=10", str(minutes * MINUTE), *words], clone, environment, log)
            text = log.read_text(errors="replace")
            name, seconds = f"{settings['suite']} {account}", time.monotonic() - began
            counts = " | ".join(COUNTS.findall(text))
            print(f"{name:14} {command:36} {code:3} {seconds:6.0f} s  {counts}".rstrip(), flush=True)
            if code:
                bad = 1
                print("\n".join(f"    {line}" for line in text.splitlines()[-LAST_LINES:]), flush=True)
        if left := still_running():
            bad = 1
            print(f"{settings['suite']} {account}: still running after `make down`:", *left, sep="\n    ", flush=True)
    versions = subprocess.run("python3 --version; tmux -V", shell=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    print(f"{settings['suite']}: {', '.join(filter(None, versions))}", flush=True)
    return bad


def run(words: list[str], folder: str, environment: dict[str, str], log: Path) -> int:
    """Return the exit code. Processes that others have left end here too, and must not stay as zombies."""
    with log.open("w") as output:
        child = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def still_running() -> list[str]:
    """Return the command lines of processes that have not ended soon: every other one of the namespace."""
    signal.alarm(SOON)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return []
    except TimeoutError:
        return [
            Path(f"/proc/{name}/cmdline").read_text().replace("\0", " ")
            for name in os.listdir("/proc")
            if is_other(name)
        ]
    finally:
        signal.alarm(0)


def is_other(name: str) -> bool:
    return name.isdecimal() and int(name) != os.getpid()


def too_late(*_: object) -> NoReturn:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main())
