"""A home whose generals start the real programs, with stand-ins of their services on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from kingdom.base.home.places import Places
from kingdom.demo.standins.anthropic import Anthropic
from kingdom.demo.standins.model import Model, Script, Step, in_turn
from kingdom.demo.standins.openai import OpenAI
from tests.faults import homes
from tests.waiting import wait_until

INSTALLED = Path(__file__).parents[2] / "build" / "outside" / "node_modules"
GENERAL = homes.GENERAL
TASK = "task-20261119-001"
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "opencode": "OPENAI_API_KEY"}
CANARY = "sk-canary-7f3a9b2c4d5e6f708192"
SERVICES: Mapping[str, type[Model]] = {"claude": Anthropic, "codex": OpenAI, "opencode": OpenAI}
SHELLS = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd"), "opencode": ("bash", "command")}
PROGRAMS = {
    "claude": INSTALLED / ".bin" / "claude",
    "codex": INSTALLED / ".bin" / "codex",
    "opencode": INSTALLED / "opencode-linux-x64" / "bin" / "opencode",
}
WHOLE_RUN_SECONDS = 600.0
"""A program that takes a second alone takes minutes beside thirty others: soldiers give way to everything."""


def service(engine: str, script: Script) -> Model:
    """The service that an engine's program speaks to."""
    return SERVICES[engine](script)


def shell(engine: str, command: str, **more: Any) -> Step:
    """A step in which the model runs a command, by the tool that its program has for it."""
    tool, key = SHELLS[engine]
    given = {key: command, **({"description": "a step"} if engine != "codex" else {})}
    return Step(tool=tool, input=given, **more)


def report(engine: str, **result: Any) -> Step:
    """A step in which the model writes its result as a file."""
    return shell(engine, f"cat > \"$KINGDOM_RESULT_PATH\" <<'END'\n{json.dumps(result)}\nEND")


class Home:
    """A home with one general of an engine, whose program is the real one."""

    def __init__(self, home: Path, engine: str, model: Model | None, **manifest: Any) -> None:
        address = "http://127.0.0.1:9" if model is None else model.address
        self.engine = engine
        self.runtime: dict[str, Any] = {"command": str(PROGRAMS[engine])}
        if engine != "claude":
            self.runtime |= {"base_url": f"{address}/v1", "model": "played-model"}
        about = {"system": {"runtime": {engine: self.runtime}}, "king": {"retry": {"max_attempts": 1}}}
        self.places = homes.make(home, config=about)
        homes.install(home, GENERAL, engine=engine, **{"timeout_seconds": int(WHOLE_RUN_SECONDS), **manifest})
        self.package = self.places.package(GENERAL)
        self.package.mkdir(parents=True, exist_ok=True)
        (self.package / "prompt.md").write_text("Do what {{TASK_ID}} asks.\n")
        self.secrets = {KEYS[engine]: CANARY, **({"ANTHROPIC_BASE_URL": address} if engine == "claude" else {})}

    def environment(self) -> dict[str, str]:
        env = self.places.env_file
        env.write_text("".join(f"{name}={value}\n" for name, value in self.secrets.items()))
        env.chmod(0o600)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))}
        return {**kept, "KINGDOM_HOME": str(self.places.home)}

    def configure(self, name: str, content: Mapping[str, Any]) -> None:
        (self.places.config / f"{name}.yaml").write_text(yaml.safe_dump(dict(content)))

    def put(self, task: str = TASK, **fields: Any) -> None:
        """A task in its general's queue."""
        plain = {"repo": None, "payload": {}, "type": "console.message"}
        homes.put(self.places.home, "tasks", "pending", homes.task(task, "evt-1", **{**plain, **fields}))

    @contextmanager
    def at_work(self) -> Iterator[subprocess.Popen[bytes]]:
        """Its general, for as long as this lasts."""
        command = [sys.executable, "-P", "-m", "kingdom.general", GENERAL]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        general = subprocess.Popen(command, env=self.environment(), cwd=self.places.home, **quiet)
        try:
            yield general
        finally:
            general.terminate()
            general.wait(30)

    def until(self, seen: Callable[[], Any], what: str) -> Any:
        """Wait for the condition while its general works, and return its value."""
        try:
            return wait_until(seen, WHOLE_RUN_SECONDS, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def result(self, task: str = TASK) -> dict[str, Any]:
        path = self.places.result(task)
        assert path.exists(), self.log()
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def do(self, task: str = TASK, **fields: Any) -> dict[str, Any]:
        """Do one task, and return its result."""
        self.put(task, **fields)
        with self.at_work():
            self.until(self.places.result(task).exists, f"a result of {task}")
        return self.result(task)

    def waiting(self, task: str = TASK) -> dict[str, Any]:
        """The task as it lies in progress."""
        try:
            found: dict[str, Any] = json.loads(self.places.queue_file("tasks", "in_progress", task).read_text())
        except FileNotFoundError:
            return {}
        return found

    def log(self) -> str:
        said = self.places.system_log.read_text() if self.places.system_log.exists() else ""
        outputs = sorted(self.places.session_logs.glob("*"))
        return said + "".join(f"\n--- {path.name}\n{path.read_text('utf-8', 'replace')[-3000:]}" for path in outputs)


__all__ = ["CANARY", "GENERAL", "TASK", "Home", "Model", "Places", "Step", "in_turn", "report", "service", "shell"]
