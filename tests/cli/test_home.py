"""A home is made once, kept as it is, and written to carefully."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kingdom.base.home.places import Places, find_data
from kingdom.base.program import home as commands
from kingdom.cli import init
from kingdom.cli.packages import DEFAULTS
from tests.cli.conftest import Terminal


def test_init_makes_a_home(terminal: Terminal, tmp_path: Path) -> None:
    castle = tmp_path / "my castle"
    said = terminal.ok("init", str(castle))
    assert f"export KINGDOM_HOME={castle}" in said or f"export KINGDOM_HOME='{castle}'" in said
    places = Places(castle)
    assert {path.name for path in places.config.glob("*.yaml")} >= {"king.yaml", "system.yaml", "envoy.yaml"}
    assert {path.stem for path in places.manifests.iterdir()} == set(DEFAULTS)
    for name in DEFAULTS:
        assert os.access(places.package(name) / "run", os.X_OK)
    made = [path for path in (castle, *castle.rglob("*")) if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    files = [path for path in castle.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files} == {0}


def test_init_again_changes_nothing(terminal: Terminal) -> None:
    king = terminal.places.config / "king.yaml"
    king.write_text("# mine\n")
    terminal.ok("init", str(terminal.places.home))
    assert king.read_text() == "# mine\n"


def test_a_folder_that_holds_something_else_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    said = terminal("init", str(tmp_path))
    assert said.code == 78
    assert "it holds something else" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_fresh_volume_counts_as_empty(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".env").write_text("SLACK_BOT_TOKEN=x\n")
    terminal.ok("init", str(tmp_path))


def test_an_uninstalled_default_stays_away(terminal: Terminal) -> None:
    terminal.ok("generals", "uninstall", "gen-herald")
    terminal.ok("init", str(terminal.places.home))
    assert [path.stem for path in terminal.places.manifests.iterdir()] == ["gen-briefing"]
    terminal.ok("generals", "install", str(terminal.places.package("gen-herald")))
    assert len(list(terminal.places.manifests.iterdir())) == 2


def test_what_a_killed_command_left_is_swept_after_a_minute(terminal: Terminal) -> None:
    scratch = terminal.places.scratch("cli")
    scratch.mkdir(parents=True, exist_ok=True)
    for name, age in (("old.tmp", 61), ("young.tmp", 5)):
        (scratch / name).write_text("half")
        os.utime(scratch / name, (time.time() - age,) * 2)
    terminal.ok("say", "--no-wait", "hello")
    assert [path.name for path in scratch.iterdir()] == ["young.tmp"]


def test_default_configuration_says_nothing_but_defaults(terminal: Terminal) -> None:
    from kingdom.base.home import config, schemas

    for path in sorted(Places(find_data()).default_config.glob("*.yaml")):
        if path.stem == "mq":
            continue
        value, _ = config.read_yaml(path)
        whole = schemas.with_defaults(schemas.load(f"config/{path.stem}"), {})
        assert schemas.with_defaults(schemas.load(f"config/{path.stem}"), value) == whole, path.name


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in Places(find_data()).default_config.glob("*.yaml") if path.stem != "mq")
)
def test_a_commented_default_is_the_default(name: str, terminal: Terminal) -> None:
    """Each commented setting, taken in as it stands, changes nothing."""
    from kingdom.base.home import config, schemas

    lines = (Places(find_data()).default_config / f"{name}.yaml").read_text().splitlines()
    settings = [line.removeprefix("# ") for line in lines if line.startswith("# ") and _is_setting(line[2:])]
    (terminal.places.config / f"{name}.yaml").write_text("\n".join([*(x for x in lines if x[:1] != "#"), *settings]))
    loaded = config.thawed(config.load(terminal.places, name))
    assert loaded == schemas.with_defaults(schemas.load(f"config/{name}"), {})


def _is_setting(line: str) -> bool:
    return re.fullmatch(r" *[a-z_]+:( +[^ #]+( = [^ #]+)?)?( +#.*)?", line) is not None


def test_the_command_is_named_as_one_would_type_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = tmp_path / "kingdom"
    called.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(called)])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(find_data())
    assert commands.command() == "bin/kingdom"
    monkeypatch.chdir("/tmp")
    assert Path(commands.command()).resolve() == find_data() / "bin" / "kingdom"
    for folder in (called.parent, find_data() / "bin"):  # the latter starts another file of the same name
        monkeypatch.setenv("PATH", str(folder))
        assert commands.command() == "kingdom"


def test_broken_configuration_keeps_nobody_from_looking_or_stopping(terminal: Terminal) -> None:
    (terminal.places.config / "system.yaml").write_text("roles: 5\n")
    commands._warn.cache_clear()
    assert "the defaults are used until that is corrected" in terminal("status").err
    for words in (["status"], ["doctor"], ["down"], ["stop", "king"], ["queue"], ["generals"]):
        said = terminal(*words)
        assert said.code in (0, 1), (words, said)
    assert "Nothing was running." in terminal("down").out
    assert "system.yaml:1: roles: " in terminal("up").err


def test_the_doctor_names_keys_that_have_no_effect(terminal: Terminal) -> None:
    (terminal.places.config / "system.yaml").write_text("roels: {}\n")
    assert "ignored unknown keys: roels (line 1, did you mean 'roles'?)" in terminal("doctor").out


def test_who_was_stopped_by_hand_is_started_by_hand(terminal: Terminal) -> None:
    terminal("stop", "king")
    assert "start king`" in terminal("say", "hello").err
    terminal.event("pending", "evt-1")
    assert "start king` starts it" in terminal.ok("why", "evt-1")


def test_a_second_init_says_that_it_is_one(terminal: Terminal) -> None:
    assert "was a home already" in terminal.ok("init", ".")
    assert terminal("init", " ").code == 2


def test_what_is_to_be_pasted_can_be(terminal: Terminal, tmp_path: Path) -> None:
    odd = tmp_path / 'my "odd" home'
    assert f"export KINGDOM_HOME='{odd}'" in terminal.ok("init", str(odd))


def test_outside_a_checkout_the_program_that_was_called_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As from a wheel, whose data holds a bin/ of its own."""
    data, called = tmp_path / "data", tmp_path / "v" / "kingdom"
    for program in (data / "bin" / "kingdom", called):
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    monkeypatch.setattr(commands, "find_data", lambda: data)
    monkeypatch.setattr("sys.argv", [str(called)])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert commands.command() == "v/kingdom"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act on another user's home")
@pytest.mark.parametrize("words", [["down"], ["stop", "king"], ["start", "king"], ["restart", "king"]])
def test_root_ends_and_starts_nothing_in_another_users_home(terminal: Terminal, words: list[str]) -> None:
    os.chown(terminal.places.home, 12345, -1)
    said = terminal(*words)
    assert said.code == 78
    assert "it belongs to uid 12345, and this is uid 0" in said.err
    assert not terminal.places.wanted("king").exists()


def test_init_makes_the_home_that_the_environment_names(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    castle, here = tmp_path / "castle", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("KINGDOM_HOME", str(castle))
    said = terminal.ok("init")
    assert (castle / "config" / "king.yaml").is_file()
    assert list(here.iterdir()) == []
    assert "export" not in said


@pytest.mark.parametrize("option", ["-C", "--home"])
def test_a_home_is_named_for_one_command(option: str, terminal: Terminal, tmp_path: Path) -> None:
    castle = tmp_path / "castle"
    made = terminal.ok(option, str(castle), "init")
    assert made.rstrip().endswith(f"-C {castle} up")
    assert (castle / "config" / "king.yaml").is_file()
    assert os.environ["KINGDOM_HOME"] == str(terminal.places.home)
    terminal.ok(option, str(castle), "say", "--no-wait", "hello")
    assert len(list(Places(castle).folder("events", "pending").iterdir())) == 1
    assert list(terminal.places.folder("events", "pending").iterdir()) == []
    assert f"-C {castle} up` starts it" in terminal.ok("-C", str(castle), "why", waiting(castle))


def waiting(castle: Path) -> str:
    return next(Places(castle).folder("events", "pending").iterdir()).stem


def test_a_home_that_is_not_there_is_named(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal("-C", str(tmp_path / "nowhere"), "events")
    assert (said.code, said.err) == (
        78,
        f"kingdom: home {tmp_path / 'nowhere'} is refused: it does not exist; run `kingdom init` first\n",
    )


LOOKS = (["why"], ["events"], ["tasks"], ["queue"], ["logs"], ["generals"], ["doctor"], ["status"], ["report"])


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_home_that_is_not_there_is_not_taken_for_an_empty_one(
    words: list[str], terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINGDOM_HOME", str(tmp_path / "nowhere"))
    said = terminal(*words)
    assert (said.code, said.err) == (
        78,
        f"kingdom: home {tmp_path / 'nowhere'} is refused: it does not exist; run `kingdom init` first\n",
    )


@pytest.mark.parametrize("words", [*LOOKS, ["say", "--no-wait", "hello"], ["emit", "a.b"], ["down"]], ids=" ".join)
def test_a_folder_that_holds_something_else_is_no_home(
    words: list[str], terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.tex").touch()
    monkeypatch.setenv("KINGDOM_HOME", str(tmp_path))
    said = terminal(*words)
    why = "it has neither config/ nor queue/; `kingdom init` makes a home"
    assert (said.code, said.err) == (78, f"kingdom: home {tmp_path} is refused: {why}\n")
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_home_that_is_a_file_is_named_as_one(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    refusal = f"kingdom: home {file} is refused: it is not a folder\n"
    assert terminal("-C", str(file), "tasks").err == refusal
    monkeypatch.setenv("KINGDOM_HOME", str(file))
    assert terminal("tasks").err == refusal


def test_the_package_can_be_run(terminal: Terminal) -> None:
    done = subprocess.run([sys.executable, "-m", "kingdom", "queue"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "events"), done.stderr


def test_a_fresh_checkout_is_closed_to_others_and_not_told_of_older_forms(tmp_path: Path) -> None:
    """Git makes these folders, for everybody."""
    for folder in ("config", "queue", "logs", "state/run"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder).chmod(0o755)
    assert init.furnish(Places(tmp_path)) == []
    assert Places(tmp_path).version.exists()
    for folder in ("queue", "logs", "state", "state/run"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700
    (tmp_path / "queue").chmod(0o711)
    init.furnish(Places(tmp_path))
    assert (tmp_path / "queue").stat().st_mode & 0o777 == 0o711, "its owner has opened it"
