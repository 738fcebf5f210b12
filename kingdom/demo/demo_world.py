"""The surroundings of `kingdom demo`: stand-ins of GitHub, Jira, Slack and a model, and a home that uses them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places, find_data
from kingdom.base.program import home
from kingdom.cli import packages
from kingdom.cli.init import furnish
from kingdom.demo.standins import github, jira
from kingdom.demo.standins.anthropic import Anthropic
from kingdom.demo.standins.model import Step
from kingdom.demo.standins.slack import BOT_USER, Slack

GENERALS = ("gen-pr", "gen-jira")
REPO, TICKET = "acme/shop", "SHOP-7"
REVIEWED, BURST = 7, range(101, 113)
"""Pull requests: the one of the first chapter, and those of the burst."""
VICTIM = BURST[0]
"""The pull request whose review does not end until its soldier was killed once."""
QUESTION = "In which currency shall prices be shown? I would take EUR.\n- EUR\n- USD"
CHANGES = 'git fetch -q origin "refs/pull/{}/head" && git diff --stat origin/HEAD...FETCH_HEAD'

CONFIG: dict[str, dict[str, Any]] = {
    # People talk in its Slack.
    "system.yaml": {
        "launcher": "supervisord",
        "default_engine": "claude",
        "roles": {"gateway": False, "worker": False},
    },
    # The demo goes on however busy the machine is.
    "chamberlain.yaml": {"thresholds": {"yellow": 101, "orange": 101, "red": 101}},
    "king.yaml": {"retry": {"max_attempts": 2, "backoff_seconds": 0}},
}
LEAST_FREE_MB = 100
REACH_SECONDS = 5.0


def lacking(folder: Path) -> Iterator[str]:
    """Yield what the demo needs and this machine does not have, each with what to do."""
    if shutil.which("git") is None:
        yield "git, by which soldiers get the code that they review; install it"
    free_mb = shutil.disk_usage(folder).free >> 20
    if free_mb < LEAST_FREE_MB:
        yield f"{LEAST_FREE_MB} MB in {folder}, where {free_mb} MB are free; make room or set TMPDIR to another folder"
    try:
        with socket.create_server(("127.0.0.1", 0)) as tried:
            socket.create_connection(tried.getsockname(), timeout=REACH_SECONDS).close()
    except OSError as error:
        yield f"a free port of 127.0.0.1, where the world is played ({error.strerror}); is the interface lo up?"


class World:
    """All stand-ins, for as long as `with` lasts, with what they received and sent."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder / "home")
        self.github = github.GitHub()
        self.github.poll_interval = 1
        self.jira = jira.Jira()
        self.slack = Slack()
        self.model = Anthropic(self._answer)
        self.is_killed = threading.Event()
        """Set when the soldier of VICTIM was killed."""
        self._shop = folder / "shop"
        self._claude = folder / "claude"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for service in (self.github, self.jira, self.slack, self.model):
            self._stack.enter_context(service)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_killed.set()
        self._stack.close()

    def make_home(self) -> None:
        """Make the home, with two generals that stay as they were shipped, and what belongs to the world beside it."""
        self._make_shop()
        run = f"exec {shlex.quote(sys.executable)} -P -m kingdom.demo.standins.claude"
        self._claude.write_text(f'#!/bin/sh\n{run} "$@"\n')
        self._claude.chmod(0o700)
        make_folder(self.places.config)
        for name, content in (CONFIG | self._addresses()).items():
            (self.places.config / name).write_text(json.dumps(content))
        furnish(self.places)
        for name in packages.DEFAULTS:
            packages.uninstall(self.places, home.disk(self.places), name)
        for name in GENERALS:
            packages.install(self.places, home.disk(self.places), Places(find_data()).package(name))
        self.places.env_file.write_text("".join(f"{name}={value}\n" for name, value in self._secrets().items()))
        self.places.env_file.chmod(0o600)

    def _addresses(self) -> dict[str, dict[str, Any]]:
        runtime = {"bring": [], "claude": {"command": str(self._claude)}}
        looks = {"interval_seconds": 1}
        slack = {"api_url": self.slack.api_url, "people": [*self.slack.people], "seconds_between_posts": 0.05}
        return {
            "system.yaml": {**CONFIG["system.yaml"], "runtime": runtime},
            # Nothing of what they read comes from outside: they may work on machines without a whole sandbox too.
            "general.yaml": {"repositories": {"known": {REPO: str(self._shop)}}, "trusted": [*GENERALS]},
            "sentinel.yaml": {"polling": {"github": {**looks, "base_url": self.github.address}, "jira": looks}},
            "envoy.yaml": {"slack": slack},
        }

    def _secrets(self) -> dict[str, str]:
        return {
            "GH_TOKEN": github.TOKEN,
            "JIRA_URL": self.jira.address,
            "JIRA_USER_EMAIL": jira.EMAIL,
            "JIRA_API_TOKEN": jira.TOKEN,
            "SLACK_BOT_TOKEN": "xoxb-played",
            "SLACK_APP_TOKEN": "xapp-played",
            "ANTHROPIC_API_KEY": "sk-played",
            "ANTHROPIC_BASE_URL": self.model.address,
        }

    def _make_shop(self) -> None:
        """Make acme/shop: one commit, and the same change to it as every pull request."""
        self._shop.mkdir()
        self._git("init", "-q", "-b", "main")
        (self._shop / "sum.py").write_text("def total(cart):\n    return sum(cart, 0)\n")
        self._git("add", ".")
        self._git("commit", "-q", "-m", "Begin")
        (self._shop / "sum.py").write_text("def total(cart):\n    return max(cart)\n")
        self._git("commit", "-q", "-a", "-m", "Fix the sum")
        pulls = (REVIEWED, *BURST)
        self._git("update-ref", "--stdin", said="".join(f"create refs/pull/{n}/head HEAD\n" for n in pulls))
        self._git("reset", "-q", "--hard", "HEAD~1")

    def _git(self, *words: str, said: str = "") -> None:
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, "-C", self._shop, *words], input=said.encode(), check=True)

    def ask_for_review(self) -> str:
        self.github.notify(REVIEWED, repo=REPO, title="Fix the sum")
        return f"ann asks us to review pull request #{REVIEWED} of {REPO}"

    def assign_ticket(self) -> str:
        self.jira.ticket(TICKET, "Show prices in the right currency", text="As agreed.")
        return f"{TICKET} is given to us: “Show prices in the right currency”"

    def answer_in_thread(self) -> str:
        question = next(post for post in self.slack.from_kingdom() if "[question]" in post["text"])
        self.slack.say("EUR", channel=question["channel"], user="U0BEN", thread_ts=question["thread_ts"])
        return "ben answers in the thread: “EUR”"

    def notify_all(self) -> str:
        with self.github.lock:  # at once: nobody sees half of them
            for number in BURST:
                self.github.notify(number, repo=REPO, title=f"Change {number}")
        return f"{len(BURST)} more reviews are asked for at once, #{BURST[0]} to #{BURST[-1]}"

    def _answer(self, asked: Mapping[str, Any]) -> Step:
        talk = asked["messages"]
        prompts = [str(said["content"]) for said in talk if isinstance(said["content"], str)]
        if TICKET in prompts[0]:
            return _ticket_step(prompts)
        number = int(re.findall(r"[Pp]ull request (\d+)", prompts[0])[0])
        if isinstance(talk[-1]["content"], str):
            return Step("I look at the change first.", tool="Bash", input={"command": CHANGES.format(number)})
        if number == VICTIM:
            self.is_killed.wait()
        changed = str(talk[-1]["content"][0]["content"]).strip().splitlines()
        return _result(status="success", summary=f"should be changed first: an empty cart raises now ({changed[0]})")


def _ticket_step(prompts: Sequence[str]) -> Step:
    if len(prompts) == 1:
        return _result(status="needs_human", question=QUESTION)
    answer = re.findall(r'"human_response": "([^"]*)"', prompts[-1])[0]
    return _result(status="success", summary=f"prices are shown in {answer}, with a test")


def _result(**result: Any) -> Step:
    return Step(tool="StructuredOutput", input=result)


def people_said(world: World) -> list[dict[str, Any]]:
    """Return what people have written in Slack."""
    return [post for post in world.slack.posts if post["user"] != BOT_USER]
