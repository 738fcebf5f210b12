"""Packages: what can be installed, what is refused, and what installing does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home import manifests
from kingdom.base.home.places import Places, find_data
from kingdom.cli import launchers
from tests.cli.conftest import Terminal

WHOLE: dict[str, Any] = {"name": "gen-x", "description": "does x", "timeout_seconds": 60, "engine": "command"}


def package(folder: Path, manifest: dict[str, Any] | str | None = None, **files: str | None) -> Path:
    folder.mkdir()
    texts = {
        "manifest.yaml": json.dumps(WHOLE) if manifest is None else manifest,
        "prompt.md": "x",
        "run": "#!/bin/sh\n",
    }
    texts |= {name.replace("_", "."): text for name, text in files.items()}
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
    if (folder / "run").exists():
        (folder / "run").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("manifest", "files", "said"),
    [
        (None, {"prompt_md": None}, "it has no prompt.md"),
        (None, {"run": None}, "its engine is `command`, and it has no executable `run`"),
        (None, {"manifest_yaml": None}, "it has no manifest.yaml"),
        ({**WHOLE, "name": "x"}, {}, "manifest.yaml:1: name: must be the name of a general: gen-"),
        ({**WHOLE, "timeout_seconds": 1}, {}, "timeout_seconds: 1 is less than the minimum of 30"),
        ({**WHOLE, "subscribe": []}, {}, "unknown key 'subscribe', did you mean 'subscribes'? known are cc_plugins, "),
        ("name: [", {}, ": YAML: "),
        ("- just\n- a list\n", {}, "must hold keys and values"),
    ],
)
def test_what_cannot_be_installed(
    manifest: dict[str, Any] | str | None, files: dict[str, str | None], said: str, terminal: Terminal, tmp_path: Path
) -> None:
    path = package(tmp_path / "gen-x", manifest, **files)
    for word in ("validate", "install"):
        told = terminal("generals", word, str(path))
        assert (told.code, told.err.count("\n")) == (78, 1), told
        assert said in told.err
    assert not terminal.places.manifest("gen-x").exists()


def test_what_another_kingdom_alone_understands_is_told_with_its_line(terminal: Terminal, tmp_path: Path) -> None:
    manifest = "name: gen-x\ndescription: x\ntimeout_seconds: 60\nengine: command\nmode: x\nharness: {name: y}\n"
    path = package(tmp_path / "gen-x", manifest)
    for word in ("validate", "install"):
        said = terminal.ok("generals", word, str(path)).splitlines()
        assert said[:2] == [
            f"Note: {path / 'manifest.yaml'}:{line}: {key} has no effect here."
            for line, key in ((5, "mode"), (6, "harness"))
        ]


def test_everything_that_is_wrong_is_told_at_once(terminal: Terminal, tmp_path: Path) -> None:
    manifest = "name: gen-x\ndescripton: x\ntimeout_seconds: 5\nlimits:\n  memory: 7\n  cores: 2\n"
    path = package(tmp_path / "gen-x", manifest, prompt_md=None)
    told = terminal("generals", "validate", str(path))
    assert told.code == 78
    limits = "known are budget_tokens, budget_usd, cpu_seconds, memory_mb, processes"
    said = [row.rpartition("manifest.yaml")[2] for row in told.err.splitlines()]
    assert said[0] == ":1: top level: 'description' is a required property"
    assert said[1].startswith(
        ":2: descripton: unknown key 'descripton', did you mean 'description'? known are cc_plugins"
    )
    assert said[2] == ":3: timeout_seconds: 5 is less than the minimum of 30"
    assert said[3] == f":5: limits.memory: unknown key 'memory', did you mean 'memory_mb'? {limits}"
    assert said[4] == f":6: limits.cores: unknown key 'cores'; {limits}"
    assert said[5:] == [f"{path}: it has no prompt.md, the prompt of its soldiers"]


def test_what_no_clock_can_keep_is_told_with_its_line(terminal: Terminal, tmp_path: Path) -> None:
    plans = """
  - {name: a, task_type: x, cron: "0 25 * * *"}
  - {name: b, task_type: x, cron: "0 9 * * *", timezone: Asia/Seol}
  - {name: b, task_type: x, cron: "every day"}
"""
    manifest = f"name: gen-x\ndescription: x\ntimeout_seconds: 60\nengine: command\nschedules:{plans}"
    told = terminal("generals", "install", str(package(tmp_path / "gen-x", manifest)))
    assert told.code == 78
    bad_hour, bad_zone, twice, bad_cron = (row.rpartition("manifest.yaml")[2] for row in told.err.splitlines())
    assert bad_hour.startswith(":6: schedules.0.cron: '0 25 * * *': ")
    assert bad_zone == ":7: schedules.1.timezone: there is no time zone 'Asia/Seol', did you mean 'Asia/Seoul'?"
    assert twice == ":8: schedules.2.name: 'b' is here a second time"
    assert bad_cron.startswith(":8: schedules.2.cron: 'every day' must have five fields")
    assert not terminal.places.manifest("gen-x").exists()


def test_a_run_whose_interpreter_is_missing(terminal: Terminal, tmp_path: Path) -> None:
    path = package(tmp_path / "gen-x", run="#!/opt/no/such\n")
    said = terminal("generals", "validate", str(path)).err
    assert "run:1 begins with `#!/opt/no/such`, and there is no /opt/no/such here" in said


def test_a_run_that_may_not_be_executed(terminal: Terminal, tmp_path: Path) -> None:
    path = package(tmp_path / "gen-x")
    (path / "run").chmod(0o644)
    assert f"run `chmod +x {path / 'run'}`" in terminal("generals", "validate", str(path)).err


def test_installing_copies_the_package_and_then_the_manifest(terminal: Terminal, tmp_path: Path) -> None:
    path = package(tmp_path / "a folder of any name")
    assert terminal.ok("generals", "install", str(path)).startswith("gen-x is installed: 0 event types,")
    assert (terminal.places.package("gen-x") / "run").exists()
    assert terminal.places.manifest("gen-x").read_text() == json.dumps(WHOLE)
    (path / "manifest.yaml").write_text(json.dumps({**WHOLE, "keywords": ["x"]}))
    assert "1 word" in terminal.ok("generals", "install", str(path)), "again takes over what has changed"
    assert terminal.ok("generals", "uninstall", "gen-x").startswith("gen-x is uninstalled; `")
    assert (terminal.places.package("gen-x") / "run").exists()
    assert not terminal.places.manifest("gen-x").exists()


def test_installing_waits_for_the_king_and_says_who_has_not_taken_it_over(
    terminal: Terminal, tmp_path: Path, king_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "START_SECONDS", 0.1)
    said = terminal("generals", "install", str(package(tmp_path / "p")))
    assert said.code == 1
    assert "king has not taken its manifest over within 0.1 s: " in said.out


@pytest.mark.parametrize("named", ["gen-doctor", "doctor"])
def test_a_package_may_be_named_and_the_list_shows_what_could_be_installed(terminal: Terminal, named: str) -> None:
    before = terminal.ok("generals")
    assert "gen-doctor    not installed  Looks for what is wrong" in before
    told = json.loads(terminal.ok("generals", "ls", "--json"))
    assert [other["name"] for other in told["installable"]] == [
        *("gen-catchup", "gen-council", "gen-doctor", "gen-jira", "gen-pr", "gen-test")
    ]
    assert terminal.ok("generals", "validate", named).startswith("gen-doctor can be installed")
    assert terminal.ok("generals", "install", named).startswith("gen-doctor is installed: ")
    assert "gen-doctor    does not run   Looks for" in terminal.ok("generals")


def test_a_package_that_nobody_knows_by_that_name(terminal: Terminal) -> None:
    told = terminal("generals", "install", "doktor")
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert "no package named 'doktor'" in told.err
    assert "gen-doctor" in told.err
    assert "no such folder" in terminal("generals", "install", "./doctor").err


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("claudius", "Note: needs set-up: the engine 'claudius' of gen-x is not there"),
        (None, "Note: needs set-up: gen-x cannot work"),
    ],
)
def test_an_engine_that_is_not_there_is_told(terminal: Terminal, tmp_path: Path, engine: str | None, said: str) -> None:
    path = package(tmp_path / "gen-x", {**WHOLE, "engine": engine}, run=None)
    told = terminal.ok("generals", "install", str(path))
    assert said in told
    assert "gen-x is installed: " in told


def test_taking_a_general_out_names_the_tasks_that_nobody_will_do(terminal: Terminal, tmp_path: Path) -> None:
    terminal.ok("generals", "install", str(package(tmp_path / "gen-x")))
    terminal.task("pending", "task-1", target_general="gen-x")
    terminal.task("in_progress", "task-2", target_general="gen-x")
    terminal.task("pending", "task-3", target_general="gen-y")
    said = terminal.ok("generals", "uninstall", "gen-x").splitlines()[-1]
    assert said.startswith("2 tasks of it will wait until then, without counting against max_soldiers; `")
    assert {"task-1", "task-2"} == set(said.partition(" (")[2].removesuffix(").").split(", "))


def test_a_claim_that_is_taken_is_told(terminal: Terminal, tmp_path: Path) -> None:
    path = package(tmp_path / "gen-x", {**WHOLE, "keywords": ["briefing"]})
    said = terminal.ok("generals", "install", str(path))
    assert "Note: 'briefing' belongs to gen-briefing already; gen-x does not get it." in said


def test_a_manifest_that_is_gone_is_named_until_its_general_is_uninstalled(terminal: Terminal) -> None:
    places = terminal.places
    path = manifests.accepted(places, "gen-briefing")
    make_folder(path.parent)
    places.manifest("gen-briefing").rename(path)
    said = terminal("generals")
    assert said.code == 1
    assert f"{places.manifest('gen-briefing')}: the file: is gone; put it back, or run `" in said.out
    assert terminal.ok("generals", "uninstall", "gen-briefing").startswith("gen-briefing is uninstalled; ")
    assert "is gone" not in terminal.ok("generals")


def test_a_general_that_was_uninstalled_can_be_installed_again(terminal: Terminal) -> None:
    terminal.ok("generals", "uninstall", "gen-briefing")
    assert manifests.is_uninstalled(terminal.places, "gen-briefing")
    terminal("generals", "install", "gen-briefing")
    assert not terminal.places.wanted("gen-briefing").exists()


def test_the_list_names_what_cannot_be_used(terminal: Terminal) -> None:
    terminal.places.manifest("gen-bad").write_text("name: gen-bad\n")
    said = terminal("generals")
    assert said.code == 1
    assert "gen-briefing  does not run  " in said.out
    assert "cannot be used: " in said.out
    told = json.loads(terminal("generals", "ls", "--json").out)
    assert [general["name"] for general in told["generals"]] == ["gen-briefing", "gen-herald"]
    assert len(told["bad"]) == 1


@pytest.mark.parametrize("name", ["gen-briefing", "gen-herald"])
def test_the_embedded_generals_can_be_installed(name: str, terminal: Terminal) -> None:
    assert f"{name} can be installed" in terminal.ok("generals", "validate", str(Places(find_data()).package(name)))


@pytest.mark.parametrize("inside", ["agents/link", "link"])
def test_a_link_in_a_package_is_not_followed(terminal: Terminal, tmp_path: Path, inside: str) -> None:
    made = package(tmp_path / "gen-x")
    (tmp_path / "secret").write_text("sesame")
    (made / "agents").mkdir()
    (made / inside).symlink_to(tmp_path / "secret")
    said = terminal("generals", "install", str(made))
    assert said.code == 78
    assert f"{made / inside}: neither a file nor a folder" in said.err
    assert not terminal.places.package("gen-x").exists()


def test_secrets_and_version_control_stay_where_they_are(terminal: Terminal, tmp_path: Path) -> None:
    made = package(tmp_path / "gen-x")
    for name in (".env", ".env.bak", ".git", "agents"):
        (made / name).mkdir() if name in (".git", "agents") else (made / name).write_text("TOKEN=sesame")
    (made / ".git" / "config").touch()
    (made / "agents" / "helper.md").touch()
    terminal.ok("generals", "install", str(made))
    installed = {
        str(path.relative_to(terminal.places.package("gen-x"))) for path in terminal.places.package("gen-x").rglob("*")
    }
    assert installed == {"manifest.yaml", "prompt.md", "run", "agents", "agents/helper.md"}
