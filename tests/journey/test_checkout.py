"""A checkout that is a home: a run leaves git nothing to tell, a pull meets no change, a wheel takes nothing along."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from kingdom.base.home.places import Places, find_data
from tests.faults import trees
from tests.journey.test_demo import left_in

CHECKOUT = find_data()
CHANGE_OVER = """\
cp -r config /tmp/my-config
git checkout -- config
git pull
cp /tmp/my-config/*.yaml config/
"""
DEPENDENCIES = sysconfig.get_path("purelib")
OURS = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "GIT_", "PYTHON"))}
OURS |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
OURS |= {f"GIT_{who}_{what}": "tester@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def run(*words: str | Path, cwd: Path, env: dict[str, str] = OURS, code: int = 0) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def cloned(target: Path) -> Path:
    """The tree as it stands, in a repository of its own."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=CHECKOUT)
    for name in filter(None, listed.split("\0")):
        if (CHECKOUT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, target / name)
    run("git", "init", "-q", "-b", "main", cwd=target)
    committed(target, "the tree")
    return target


def committed(checkout: Path, subject: str) -> None:
    run("git", "add", "-A", cwd=checkout)
    run("git", "commit", "-q", "-m", subject, cwd=checkout)


def status(checkout: Path) -> str:
    return run("git", "status", "--porcelain", cwd=checkout)


def environment_in(folder: Path, *paths: Path) -> Path:
    """A virtual environment that borrows what Kingdom depends on, and what else lies at these paths."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in (*paths, DEPENDENCIES)))
    return folder


def set_up(checkout: Path) -> Path:
    """As `bin/setup run` leaves it, without the network."""
    venv = environment_in(checkout / ".venv", checkout)
    program = venv / "bin" / "kingdom"
    program.write_text(f"#!{venv}/bin/python\nimport sys\nfrom kingdom.cli.main import main\nsys.exit(main())\n")
    program.chmod(0o755)
    stamps = {"venv": (), "run": ("requirements.lock",), "kingdom": ("pyproject.toml", "requirements.lock")}
    for stamp, files in stamps.items():
        made_of = "".join((checkout / name).read_text() for name in files)
        (venv / f".made-{stamp}").write_text(f"{checkout.resolve()}\n{made_of}")
    return program


def used(checkout: Path) -> None:
    """What an owner does to a checkout."""
    (checkout / "config" / "king.yaml").write_text("slack: {default_channel: mine}\n")
    (checkout / "config" / "generals").mkdir(parents=True, exist_ok=True)
    (checkout / "config" / "generals" / "gen-mine.yaml").write_text("name: gen-mine\n")
    (checkout / "generals" / "gen-mine").mkdir(exist_ok=True)
    (checkout / "generals" / "gen-mine" / "prompt.md").write_text("my secret plans\n")
    (checkout / ".env").write_text("TOKEN=sesame\n")
    (checkout / ".env").chmod(0o600)


@trees.in_campaigns
def test_a_run_leaves_a_checkout_clean(folder: Path) -> None:
    checkout = cloned(folder / "checkout")
    kingdom = set_up(checkout)
    (checkout / "config" / "chamberlain.yaml").write_text("intervals: {vitals_seconds: 3600}\n")
    try:
        assert "The kingdom is up" in run("make", "up", cwd=checkout)
        assert "[complete]" in run(kingdom, "say", "brief me", cwd=checkout)
        run(kingdom, "generals", "new", "weather", cwd=checkout)
        for general in ("weather", "doctor"):
            run(kingdom, "generals", "install", general, cwd=checkout)
        assert "weather hello" in run(kingdom, "say", "weather hello", cwd=checkout)
    finally:
        run("make", "down", cwd=checkout)
    assert status(checkout) == ""
    pristine = {path.name: path.read_bytes() for path in (checkout / "config" / "default").iterdir()}
    made = {path.name: path.read_bytes() for path in (checkout / "config").glob("*.yaml")}
    assert made.keys() == pristine.keys()
    assert {name for name in made if made[name] != pristine[name]} == {"chamberlain.yaml"}
    used(checkout)
    assert status(checkout) == ""


def wheel(checkout: Path, target: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=checkout)
    (built,) = target.glob("*.whl")
    return built


def digests(built: Path) -> dict[str, str]:
    with zipfile.ZipFile(built) as archive:
        return {
            f"{entry.filename} {entry.external_attr:o}": sha256(archive.read(entry)).hexdigest()
            for entry in archive.infolist()
        }


def test_a_wheel_from_a_used_checkout_holds_what_a_pristine_one_does(folder: Path) -> None:
    checkout = cloned(folder / "checkout")
    pristine = digests(wheel(checkout, folder / "pristine"))
    names = {name.split()[0] for name in pristine}
    assert {"kingdom/data/config/default/king.yaml", "kingdom/data/generals/gen-briefing/run"} <= names
    assert {"kingdom/data/bin/role", "kingdom/data/supervisord.conf", "kingdom/data/schemas/event.schema.json"} <= names
    used(checkout)
    for name in ("config/default/king.yaml", "generals/gen-briefing/prompt.md", "generals/gen-briefing/run"):
        (checkout / name).write_text("changed where it stands\n")
    for name in ("bin/mine", "schemas/mine.json", "generals/gen-briefing/notes.txt", "generals/gen-herald/run.orig"):
        (checkout / name).write_text("mine\n")
    assert digests(wheel(checkout, folder / "used")) == pristine
    shutil.rmtree(checkout / ".git")
    refused = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=checkout,
        env=OURS,
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert "generals/gen-briefing/prompt.md is not as it was shipped" in refused.stderr + refused.stdout


def test_a_wheel_can_be_installed_and_runs(folder: Path) -> None:
    checkout = cloned(folder / "checkout")
    used(checkout)
    venv = environment_in(folder / "venv")
    built = wheel(checkout, folder / "wheel")
    install = (sys.executable, "-m", "pip", "--python", venv, "install", "-q", "--no-deps", "--no-index", built)
    run(*install, cwd=folder)
    shutil.rmtree(checkout)
    home = folder / "home"
    kingdom = venv / "bin" / "kingdom"
    run(kingdom, "init", home, cwd=folder, env=OURS)
    assert sorted(path.name for path in (home / "generals").iterdir()) == [
        *("gen-briefing", "gen-catchup", "gen-council", "gen-doctor", "gen-herald", "gen-jira", "gen-pr", "gen-test")
    ]
    assert not (home / ".env").exists()
    own = {"HOME": str(folder / "owner"), "TMPDIR": str(folder / "tmp")}
    elsewhere = folder / "elsewhere"
    for made in (*own.values(), elsewhere):
        Path(made).mkdir()
    before = sorted(folder.rglob("*"))
    shown = run(kingdom, "demo", cwd=elsewhere, env=OURS | own)
    assert "6 roles are up" in shown
    assert "0 lost, 0 doubled, 0 left over" in shown
    assert [path for path in sorted(folder.rglob("*")) if path not in before and "__pycache__" not in path.parts] == []
    assert left_in(Path(own["TMPDIR"])) == []


def of_before(target: Path) -> Path:
    """A repository whose first commit has the files in config/ themselves, as it was, and whose second is this tree."""
    upstream = cloned(target)
    default = upstream / "config" / "default"
    run("git", "checkout", "-q", "--orphan", "before", cwd=upstream)
    for path in default.iterdir():
        path.rename(upstream / "config" / path.name)
    default.rmdir()
    ignored = (upstream / ".gitignore").read_text()
    (upstream / ".gitignore").write_text(
        "".join(line for line in ignored.splitlines(True) if "config/" not in line and "generals/" not in line)
    )
    Places(upstream).manifests.mkdir()
    (Places(upstream).manifests / ".gitignore").write_text("*\n!.gitignore\n")
    committed(upstream, "before")
    (Places(upstream).manifests / ".gitignore").unlink()
    run("git", "checkout", "-q", "main", "--", ".", cwd=upstream)
    for path in (upstream / "config").glob("*.yaml"):
        path.unlink()
    committed(upstream, "now")
    return upstream


@trees.in_campaigns
@pytest.mark.parametrize("is_edited", [False, True], ids=["unchanged", "edited"])
def test_an_older_checkout_survives_the_change_over(folder: Path, is_edited: bool) -> None:
    upstream = of_before(folder / "upstream")
    checkout = folder / "checkout"
    run("git", "clone", "-q", upstream, checkout, cwd=folder)
    run("git", "reset", "-q", "--hard", "HEAD~1", cwd=checkout)
    (checkout / "config" / "generals" / "gen-mine.yaml").write_text("name: gen-mine\n")
    if is_edited:
        (checkout / "config" / "king.yaml").write_text("slack: {default_channel: mine}\n")
        run("git", "pull", "-q", cwd=checkout, code=1)
        assert CHANGE_OVER in (CHECKOUT / "docs" / "operations.md").read_text()
        run("sh", "-euc", CHANGE_OVER.replace("/tmp/my-config", f"{folder}/my-config"), cwd=checkout)
    else:
        run("git", "pull", "-q", cwd=checkout)
    run(set_up(checkout), "init", ".", cwd=checkout)
    assert status(checkout) == ""
    assert ((checkout / "config" / "king.yaml").read_text() == "slack: {default_channel: mine}\n") is is_edited
    for path in (checkout / "config" / "default").iterdir():
        if path.name != "king.yaml" or not is_edited:
            assert (checkout / "config" / path.name).read_bytes() == path.read_bytes()
    assert (checkout / "config" / "generals" / "gen-mine.yaml").exists()
