"""Packages: what can be installed, what is refused, and what installing does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.places import Places, find_data
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
        ({**WHOLE, "name": "x"}, {}, "manifest.yaml:1: name: 'x' does not match"),
        ({**WHOLE, "timeout_seconds": 1}, {}, "timeout_seconds: 1 is less than the minimum of 30"),
        ({**WHOLE, "subscribe": []}, {}, "unknown key 'subscribe'; known are"),
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
    assert terminal.ok("generals", "uninstall", "gen-x").startswith("gen-x is taken out; `")
    assert (terminal.places.package("gen-x") / "run").exists()
    assert not terminal.places.manifest("gen-x").exists()


def test_a_claim_that_is_taken_is_told(terminal: Terminal, tmp_path: Path) -> None:
    path = package(tmp_path / "gen-x", {**WHOLE, "keywords": ["briefing"]})
    said = terminal.ok("generals", "install", str(path))
    assert "Note: 'briefing' belongs to gen-briefing already; gen-x does not get it." in said


def test_the_list_names_what_cannot_be_used(terminal: Terminal) -> None:
    terminal.places.manifest("gen-bad").write_text("name: gen-bad\n")
    said = terminal("generals")
    assert said.code == 1
    assert "gen-briefing  does not run  " in said.out
    assert "cannot be used: " in said.out
    told = json.loads(terminal("generals", "ls", "--json").out)
    assert [each["name"] for each in told["generals"]] == ["gen-briefing", "gen-herald"]
    assert len(told["bad"]) == 1


@pytest.mark.parametrize("name", ["gen-briefing", "gen-herald"])
def test_the_embedded_generals_can_be_installed(name: str, terminal: Terminal) -> None:
    assert f"{name} can be installed" in terminal.ok("generals", "validate", str(Places(find_data()).package(name)))
