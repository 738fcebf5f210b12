"""A mailbox for tests: the server stepped by hand with a test clock, or the manager as its own process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from kingdom.base.disk.atomic import Disk
from kingdom.base.home import config as home_config
from kingdom.mq import configuration
from kingdom.mq.cli.yirangmq import cli
from kingdom.mq.client import Client
from kingdom.mq.mailbox.commands import CommandContext
from kingdom.mq.mailbox.counters import Counters
from kingdom.mq.mailbox.responses import Responses
from kingdom.mq.mailbox.serve import Server
from tests.waiting import SOON

Answer = dict[str, Any]
MOST_TURNS = 100


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class ByHand:
    """One server in this process. `ask` writes a request as any client would, turns, and reads the answer."""

    def __init__(self, home: Path, **config: Any) -> None:
        self.now = 1_700_000_000.0
        #: What somebody has added to the wall clock.
        self.step = 0.0
        self.said: list[str] = []
        whole = home_config.validated("config/mq", {"durability": "process", **config}, {}, home / "mq.yaml")
        self.settings = configuration.resolve(whole, home, home / "mq.yaml")
        self.box = self.settings.box
        self._count = itertools.count(1)
        self.open()

    def open(self) -> None:
        self.now, self.step = self.now + self.step, 0.0
        wall = lambda: self.now + self.step  # noqa: E731
        self.engine = configuration.open_engine(
            self.settings, lambda: int(self.now * 1000), lambda *_, **__: None, lambda: int(wall() * 1000)
        )
        ipc = self.settings.config["ipc"]
        scratch = self.box.root / ".drafts"
        responses = Responses(
            self.box.responses, scratch, ipc["clients"], ipc["responseTtlSec"], wall, lambda: self.now
        )
        context = CommandContext(self.engine, Counters(self.now), "here", wall)
        disk = Disk(scratch, durability="process")
        self.server = Server(context, self.settings, disk, disk, responses, lambda text, _: self.said.append(text))
        self.server.open()

    def reopen(self) -> None:
        """Restart on the same files, as after a kill."""
        self.engine.close()
        self.open()

    def post(self, command: Any, payload: Any = None, client: Any = "me", **fields: Any) -> str:
        """A request in requests/; returns its id."""
        name = fields.pop("requestId", f"r{next(self._count)}")
        request = {"requestId": name, "clientId": client, "command": command, "payload": payload or {}, **fields}
        self.lay(f"{name}.json", json.dumps(request).encode())
        return str(name)

    def lay(self, filename: str, data: bytes) -> Path:
        path = self.box.requests / filename
        draft = path.with_name(f"{filename}.tmp")
        draft.write_bytes(data)
        os.rename(draft, path)
        return path

    def turn(self) -> None:
        self.server.serve_arrivals(None)

    def answer(self, request_id: str, client: str = "me") -> Answer | None:
        try:
            text = (self.box.responses / client / f"{request_id}.json").read_text()
        except FileNotFoundError:
            return None
        answer: Answer = json.loads(text)
        return answer

    def ask(self, command: Any, payload: Any = None, client: str = "me", **fields: Any) -> Answer:
        """Turn until there is an answer: some calls take several turns."""
        name = self.post(command, payload, client, **fields)
        answer = None
        for _ in range(MOST_TURNS):
            self.turn()
            if (answer := self.answer(name, client)) is not None:
                break
        assert answer is not None, f"no answer to {command}"
        return answer

    def data(self, command: str, payload: Any = None, client: str = "me", **fields: Any) -> Answer:
        answer = self.ask(command, payload, client, **fields)
        assert answer["ok"], answer
        data: Answer = answer["data"]
        return data

    def code(self, command: Any, payload: Any = None, client: str = "me", **fields: Any) -> str:
        answer = self.ask(command, payload, client, **fields)
        assert not answer["ok"], answer
        return str(answer["error"]["code"])

    def names(self, folder: Path) -> list[str]:
        return sorted(os.listdir(folder))


def configure(home: Path, config: Mapping[str, Any]) -> None:
    folder = home / "config"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "mq.yaml").write_text(json.dumps(config))


class Running:
    """`python -m kingdom.mailbox` on a home of its own."""

    def __init__(self, home: Path, arguments: tuple[str, ...] = (), **config: Any) -> None:
        self.home = home
        self.root = home / "queue" / "mailbox"
        self._arguments = arguments
        (self.root / "requests").mkdir(mode=0o700, parents=True, exist_ok=True)
        if config or not (home / "config" / "mq.yaml").exists():
            configure(home, config)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        self.wait_ready()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KINGDOM_HOME": str(self.home)}

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kingdom.mailbox", *self._arguments],
            env=self.environment,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )

    def wait_ready(self) -> None:
        with self.client(timeout=SOON) as client:
            client.health()

    def client(self, name: str | None = None, timeout: float = 20.0) -> Client:
        return Client(self.root, name, timeout=timeout)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=SOON)
        return self.process.returncode

    def cli(self, *words: str) -> Ended:
        """yirangmq in this process: twenty times faster than a new one."""
        ended = CliRunner().invoke(cli, list(words), env={"KINGDOM_HOME": str(self.home)})
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    def shell(self, *words: str, given: str = "") -> Ended:
        """yirangmq as a process of its own."""
        ended = subprocess.run(
            [sys.executable, "-m", "kingdom.mq.cli.yirangmq", *words],
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=Path(__file__).parents[3],
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)
