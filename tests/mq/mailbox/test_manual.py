"""What docs/mq says is true: the shell client, the Python lines, the tables of commands."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kingdom.mq.cli.yirangmq import cli
from kingdom.mq.mailbox.commands import COMMANDS
from tests.mq.mailbox.boxes import Running
from tests.waiting import SOON

DOCS = Path(__file__).parents[3] / "docs" / "mq"


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", (DOCS / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_shell_client_is_ten_lines_and_works(manager: Running, home: Path) -> None:
    script = block("sh")
    assert len([line for line in script.splitlines() if line and not line.startswith("#")]) <= 10
    (home / "mq.sh").write_text(script)

    def call(command: str, payload: object) -> dict[str, object]:
        ended = subprocess.run(
            ["sh", str(home / "mq.sh"), command, json.dumps(payload)],
            env={**os.environ, "YIRANGMQ_ROOT": str(manager.root)},
            capture_output=True,
            text=True,
            timeout=SOON,
            check=True,
        )
        answer: dict[str, object] = json.loads(ended.stdout)
        return answer

    sent = call("publish", {"queue": "telemetry", "message": {"temp": 36.5}})
    assert sent["ok"] is True
    got = call("consume", {"queue": "telemetry", "consumerId": "shell"})
    data = got["data"]
    assert isinstance(data, dict)
    assert json.loads(data["message"]["payload"]) == {"temp": 36.5}
    assert call("ack", {"messageKey": data["message"]["messageKey"], "consumerId": "shell"})["ok"] is True
    assert call("nonsense", {})["ok"] is False


def test_the_python_lines_work(manager: Running, home: Path) -> None:
    """As they are printed: the library in its own process, the worker through a manager."""
    library, worker = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in library.splitlines() if line]) <= 10
    ended = _run(library, home, manager.environment)
    assert (ended.stdout, ended.stderr) == ("{'image': 'a.png'} 1\n", "")
    _run(library.replace('open("data")', "connect()").split("    for message")[0], home, manager.environment)
    ended = _run(worker.replace("q.run()", "q.run(until_empty=True)"), home, manager.environment)
    assert (ended.stdout, ended.stderr) == ("{'image': 'a.png'}\n", "")
    with manager.client() as mq:
        assert mq.status("jobs")["metrics"] | {"ready": 0, "inflight": 0, "dlq": 0} == mq.status("jobs")["metrics"]


def _run(program: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {**environment, "PYTHONPATH": str(DOCS.parents[1])}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)


def test_both_languages_have_the_same_parts() -> None:
    for page in ("operations", "troubleshooting"):
        english, korean = ((DOCS / f"{page}{end}").read_text() for end in (".md", ".ko.md"))
        for what in (r"^## ", r"^\| ", r"^```", r"^- "):
            counts = [len(re.findall(what, text, re.MULTILINE)) for text in (english, korean)]
            assert counts[0] == counts[1], (page, what, counts)


README = (DOCS / "README.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_manual_has_a_row_for_each_command_of_the_wire(name: str) -> None:
    row = re.search(rf"^\| {name}(?: \((.*?)\))? \| (.*?) \|", README, re.MULTILINE)
    assert row is not None
    assert tuple((row[1] or "").split(", ")) == (COMMANDS[name].aliases or ("",))
    fields = {field.name for field in COMMANDS[name].fields}
    assert fields == {word for word in re.findall(r"[a-zA-Z]+", row[2]) if word in fields}


def test_the_manual_names_only_commands_and_fields_that_exist() -> None:
    wire = README[README.index("## The wire") : README.index("| limit |")]
    named = re.findall(r"^\| ([a-z_]+)(?: \(.*?\))? \| (.*?) \|", wire, re.MULTILINE)
    rows = {name: payload for name, payload in named if name != "command"}
    assert set(rows) == set(COMMANDS)
    for name, payload in rows.items():
        optional = set(re.findall(r"\*([a-zA-Z]+)\*", payload))
        assert optional <= {field.name for field in COMMANDS[name].fields}, name


@pytest.mark.parametrize("name", cli.commands)
def test_the_manual_has_each_command_of_yirangmq_with_options_that_exist(name: str) -> None:
    if name == "extend-lease":
        assert f"also called `{name}`" in README
        return
    row = re.search(rf"^\| `{name}(.*)$", README, re.MULTILINE)
    assert row is not None
    options = {word for param in cli.commands[name].params for word in param.opts}
    assert set(re.findall(r"--[a-z-]+", row[0].replace("`extend-lease`", ""))) <= options


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_examples_use_options_that_exist(page: Path) -> None:
    for name, words in re.findall(r"yirangmq ([a-z-]+)((?: [^`\n|#']*)?)", page.read_text()):
        assert name in cli.commands, name
        options = {word for param in cli.commands[name].params for word in param.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= options, (name, words)


@pytest.mark.parametrize("name", cli.commands)
def test_the_help_of_a_command_explains_every_option(name: str) -> None:
    for param in cli.commands[name].params:
        assert isinstance(param, click.Option)
        assert param.help, (name, param.name)
