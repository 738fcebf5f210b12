"""What docs/mq says is true: the shell client, the Python lines, the tables of commands."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest

from kingdom.mq.cli.yirangmq import cli
from kingdom.mq.client import Client
from kingdom.mq.mailbox.commands import COMMANDS
from tests.mq.mailbox.boxes import Running, configure
from tests.waiting import SOON, wait_until

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


@pytest.mark.skipif(shutil.which("cc") is None, reason="NO C COMPILER: THE CLIENT IN C IS NOT TESTED")
def test_the_c_client_compiles_and_talks_to_python(manager: Running, home: Path, q: str) -> None:
    program = home / "mq"
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-format-truncation")
    subprocess.run(["cc", *warnings, "-o", program, DOCS / "mq.c"], check=True, timeout=60)
    environment = {**os.environ, "YIRANGMQ_ROOT": str(manager.root), "YIRANGMQ_CLIENT": "c-program"}

    def call(command: str, payload: object) -> tuple[int, dict[str, object]]:
        words = [program, command, json.dumps(payload)]
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SOON, check=False)
        return ended.returncode, json.loads(ended.stdout)

    assert call("publish", {"queue": q, "message": {"from": "C"}})[0] == 0
    with manager.client() as mq:
        delivery = mq.take(q)
        assert delivery is not None
        assert delivery.payload == {"from": "C"}
        mq.ack(delivery)
        mq.publish(q, {"from": "Python", "pad": "x" * 10_000})
    code, answer = call("consume_next", {"queue": q, "waitMs": 5000})
    data = answer["data"]
    assert code == 0
    assert isinstance(data, dict)
    assert json.loads(data["message"]["payload"])["from"] == "Python"
    lease = {key: data["lease"][key] for key in ("messageKey", "leaseId")}
    assert call("ack", lease)[0] == 0
    code, answer = call("nonsense", {})
    assert (code, answer["ok"]) == (1, False)


UNIT = DOCS.parents[1] / "deploy" / "yirangmq.service"


OPEN = {
    "requestsMode": "1733",
    "clients": {"sensor": {"owner": 61002, "group": 62000, "mode": "2770", "may": {"publish": ["telemetry"]}}},
}


PROGRAM = f"{DOCS.parents[1]}:{sysconfig.get_path('purelib')}"


def _runs_for_others(python: str) -> bool:
    try:
        words, environment = [python, "-c", "import kingdom.mq"], {"PYTHONPATH": PROGRAM}
        return subprocess.run(words, user=61001, cwd="/", env=environment, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="ONLY ROOT CAN BECOME OTHER USERS: NOT TESTED")
def test_other_users_reach_the_mailbox_of_the_unit() -> None:
    """By the unit's own words, but for where its home is: the manager as one user, a client as another."""
    python = next(filter(_runs_for_others, (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")), None)
    if python is None:
        pytest.skip("NO PROGRAM THAT OTHER USERS MAY START: NOT TESTED")
    said = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] not in "#[")
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    configure(home, {"durability": "process", "backend": "memory", "ipc": OPEN})
    home.chmod(int(said["StateDirectoryMode"], 8))
    for path in (home, home / "config", home / "config" / "mq.yaml"):
        os.chown(path, 61001, 61001)
    manager: dict[str, Any] = {"user": 61001, "group": 61001, "extra_groups": [62000], "umask": 0o077, "cwd": home}
    environment = {**os.environ, "KINGDOM_HOME": str(home), "PYTHONPATH": PROGRAM}
    prepare = said["ExecStartPre"].replace(said["Environment"].partition("=")[2], str(home))
    subprocess.run(prepare.split(), check=True, **manager)
    serve = [python, *said["ExecStart"].split()[1:]]
    with subprocess.Popen(serve, env=environment, stderr=subprocess.DEVNULL, **manager) as process:
        try:
            there = home / "queue" / "mailbox" / "responses" / "sensor"
            wait_until(there.is_dir, SOON, "the client has its folder")
            words = ["publish", "--client-id", "sensor", "--queue", "telemetry", "--message", "{}"]
            ask = [python, "-m", "kingdom.mq.cli.yirangmq", *words, "--ipc-root", home / "queue" / "mailbox"]
            client: dict[str, Any] = {"user": 61002, "group": 61002, "extra_groups": [62000], "cwd": "/"}
            ended = subprocess.run(ask, env=environment, capture_output=True, text=True, check=False, **client)
            assert (ended.returncode, "messageKey" in ended.stdout) == (0, True), ended.stderr
        finally:
            process.terminate()
    shutil.rmtree(home)


def test_the_unit_starts_a_manager_that_serves_and_ends(home: Path) -> None:
    lines = [line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    said = dict(lines)
    assert said["Environment"] == "KINGDOM_HOME=/var/lib/yirangmq"
    words = said["ExecStart"].split()
    words[0] = sys.executable
    environment = {**os.environ, "KINGDOM_HOME": str(home), "PYTHONPATH": str(DOCS.parents[1])}
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL, cwd=home) as process:
        try:
            requests = home / "queue" / "mailbox" / "responses"
            wait_until(requests.is_dir, SOON, "there is a mailbox")
            with Client(home / "queue" / "mailbox", timeout=SOON) as mq:
                assert mq.health()["status"] == "ok"
            process.terminate()
            assert process.wait(SOON) == 0
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NO SYSTEMD: THE UNIT IS NOT VERIFIED")
def test_systemd_takes_the_unit(home: Path) -> None:
    unit = home / UNIT.name
    unit.write_text(
        UNIT.read_text().replace("/opt/yirangmq/venv/bin/python", sys.executable).replace("User=yirangmq\n", "")
    )
    ended = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, UNIT.name in ended.stderr) == (0, False), ended.stderr


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
