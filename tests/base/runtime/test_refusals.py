"""A role that refuses its configuration notes which files it refused, so that its watcher sees when they are mended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kingdom.base.errors import Exit
from kingdom.base.home.places import Places
from kingdom.base.records import refusals
from tests.fixtures import founded, install
from tests.waiting import SOON, wait_until

ROLES = {
    "king": ("king.yaml", ["-m", "kingdom.king"]),
    "envoy": ("envoy.yaml", ["-m", "kingdom.envoy"]),
    "sentinel": ("sentinel.yaml", ["-m", "kingdom.sentinel"]),
    "chamberlain": ("chamberlain.yaml", ["-m", "kingdom.chamberlain"]),
    "mailbox": ("mq.yaml", ["-m", "kingdom.mailbox"]),
    "worker": ("hall.yaml", ["-m", "kingdom.worker"]),
    "gen-pr": ("generals/gen-pr.yaml", ["-m", "kingdom.general", "gen-pr"]),
}
Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "broken YAML": lambda path: path.write_text("a: ["),
    "wrong type": lambda path: path.write_text("- a\n"),
    "unreadable": lambda path: path.chmod(0),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    for file, _ in ROLES.values():
        (places.config / file).touch()
    install(home, "gen-pr")
    return places


def start(places: Places, argv: list[str], launcher: str = "") -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
    env = {**clean, "KINGDOM_HOME": str(places.home), **({"KINGDOM_LAUNCHER": launcher} if launcher else {})}
    return subprocess.Popen([sys.executable, *argv], env=env, stderr=subprocess.PIPE, text=True)


def ended(role: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = role.communicate(timeout=SOON)
    return role.returncode, said


@pytest.mark.parametrize(
    ("role", "file", "damage"),
    [
        *((role, ROLES[role][0], "broken YAML") for role in ROLES),
        *(("king", "king.yaml", damage) for damage in DAMAGES if damage != "broken YAML"),
        ("envoy", "system.yaml", "unreadable"),
        ("gen-pr", "king.yaml", "wrong type"),
        ("gen-pr", "generals/gen-pr.yaml", "a folder"),
        ("mailbox", "../.env", "a folder"),
    ],
)
def test_what_a_role_refuses_is_noted_until_it_changes(role: str, file: str, damage: str, places: Places) -> None:
    path = places.config / file
    path.touch()
    DAMAGES[damage](path)
    code, said = ended(start(places, [*ROLES[role][1], "--once"]))
    assert (code, said.count("\n")) == (Exit.REFUSED, 1), said
    assert path.name in refusals.why(places, role)
    assert refusals.why(places, role) in said
    assert not refusals.is_mended(places, role)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    assert refusals.is_mended(places, role)


def test_permissions_that_are_given_back_are_a_change(places: Places) -> None:
    path = places.config / "king.yaml"
    path.chmod(0)
    assert ended(start(places, ["-m", "kingdom.king", "--once"]))[0] == Exit.REFUSED
    path.chmod(0o600)
    assert refusals.is_mended(places, "king")


def test_a_role_that_starts_forgets_what_it_refused(places: Places) -> None:
    path = places.config / "king.yaml"
    path.write_text("a: [")
    assert ended(start(places, ["-m", "kingdom.king", "--once"]))[0] == Exit.REFUSED
    path.write_text("")
    assert ended(start(places, ["-m", "kingdom.king", "--once"]))[0] == Exit.DONE
    assert refusals.why(places, "king") == ""


def test_a_general_whose_manifest_is_gone_waits_for_it_and_is_no_crash(places: Places) -> None:
    places.manifest("gen-pr").unlink()
    assert ended(start(places, ["-m", "kingdom.general", "gen-pr", "--once"]))[0] == Exit.REFUSED
    install(places.home, "gen-pr")
    assert refusals.is_mended(places, "gen-pr")


def test_while_system_yaml_is_broken_no_role_takes_itself_for_switched_off(places: Places) -> None:
    (places.config / "system.yaml").write_text("roles: {mailbox: true}\nheartbeat: soon\n")
    assert ended(start(places, ["-m", "kingdom.mailbox", "--once"], "tmux"))[0] == Exit.REFUSED
    (places.config / "system.yaml").write_text("roles: {mailbox: false}\n")
    assert ended(start(places, ["-m", "kingdom.mailbox", "--once"], "tmux"))[0] == Exit.DONE


def test_a_home_that_is_refused_is_noted_and_its_mend_seen(places: Places) -> None:
    places.home.chmod(0o777)
    assert ended(start(places, ["-m", "kingdom.king", "--once"]))[0] == Exit.REFUSED
    assert not refusals.is_mended(places, "king")
    places.home.chmod(0o700)
    assert refusals.is_mended(places, "king")


@pytest.fixture
def chamberlain(places: Places) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        started.append(start(places, ROLES["chamberlain"][1]))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def is_at_work(places: Places, process: subprocess.Popen[str]) -> bool:
    text = places.heartbeat("chamberlain").read_text() if places.heartbeat("chamberlain").exists() else ""
    assert process.poll() is None, places.role_log("chamberlain").read_text()
    return f'"pid": {process.pid},' in text and ('"idle"' in text or '"working"' in text)


@pytest.mark.parametrize(
    ("file", "damage"),
    [("system.yaml", "broken YAML"), ("chamberlain.yaml", "unreadable"), ("../.env", "a folder")],
)
def test_a_chamberlain_starts_with_what_it_accepted_last(
    file: str, damage: str, places: Places, chamberlain: Callable[[], subprocess.Popen[str]]
) -> None:
    (places.config / "system.yaml").write_text("heartbeat: {threshold_seconds: 77}\nroles: {mailbox: true}\n")
    first = chamberlain()
    wait_until(lambda: is_at_work(places, first), SOON, "the chamberlain works")
    first.send_signal(signal.SIGTERM)
    assert first.wait(SOON) == Exit.DONE
    path = places.config / file
    path.touch()
    DAMAGES[damage](path)
    second = chamberlain()
    wait_until(lambda: is_at_work(places, second), SOON, "it works again")
    log = places.role_log("chamberlain").read_text()
    assert "starts with the configuration that it accepted last: " in log
    assert (places.accepted("chamberlain") / "system.yaml").read_text().count("77") == 1
