"""Run the newcomer's commands, first as a plain user, then as root. This is the first process of its PID namespace."""

from __future__ import annotations

import json
import os
import re
import shutil
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
#: What `make up` says, and nothing is installed, where Python is too old.
REFUSAL = "setup: no Python 3.11 or newer found"
IS_OLD = sys.version_info < (3, 11)
#: The user may install nothing, so the roles run under supervisord. Root's set-up adds tmux, strace and jq.
ACCOUNTS = {"user": "/home/user", "root": "/root"}
COUNTS = re.compile(r"^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s", re.MULTILINE)


def main() -> int:
    settings = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, too_late)
    subprocess.run(["useradd", "--create-home", "user"], check=True)
    commands = COMMANDS if not IS_OLD else {"make up": COMMANDS["make up"]}
    all_well = True
    for account, home in ACCOUNTS.items():
        clone = f"{home}/kingdom"
        subprocess.run(["cp", "--recursive", SOURCE, clone], check=True)
        subprocess.run(["chown", "--recursive", f"{account}:", clone], check=True)
        # No locale, no editor, no git identity: as Debian leaves a new account.
        environment = {**settings["environment"], "PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm"}
        name = f"{settings['suite']} {account}"
        for number, (command, minutes) in enumerate(commands.items(), 1):
            if command != TESTS or (account == "root" and not settings["quick"]):
                words = ["setpriv", f"--reuid={account}", f"--regid={account}", "--init-groups", "sh", "-c", command]
                typed = ["timeout", "--kill-after=10", str(minutes * MINUTE), *words]
                all_well &= goes_well(name, command, typed, clone, environment, LOGS / f"{account}-{number}.log")
        if left := still_running():
            all_well = False
            print(f"{name}: still running in the end:", *left, sep="\n    ", flush=True)
    for words in (["python3", "--version"], ["tmux", "-V"]):
        if shutil.which(words[0]):
            print(settings["suite"], subprocess.check_output(words, text=True).strip(), flush=True)
    return 0 if all_well else 1


def goes_well(name: str, command: str, typed: list[str], folder: str, environment: dict[str, str], log: Path) -> bool:
    """Run a command and print its line: exit code, seconds, and the counts of tests; if it fails, what it said last."""
    began = time.monotonic()
    code = run(typed, folder, environment, log)
    said = log.read_text(errors="replace")
    counts = " | ".join(COUNTS.findall(said))
    print(f"{name:14} {command:36} {code:3} {time.monotonic() - began:6.0f} s  {counts}".rstrip(), flush=True)
    well = said.startswith(REFUSAL) if IS_OLD else code == 0
    if not well:
        print("\n".join(f"    {line}" for line in said.splitlines()[-LAST_LINES:]), flush=True)
    return well


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
