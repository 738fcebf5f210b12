"""What every engine must do, with the order that a general writes; and that one more is one file and one row."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.errors import BadFile
from kingdom.base.home import manifests
from kingdom.base.home.manifests import Manifest
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers import engines
from kingdom.court.soldiers.engines import ENGINES
from kingdom.court.soldiers.engines.base import LARGEST_RESULT, Engine, NeedsSetUp
from tests.faults import homes, trees
from tests.fixtures import Clock, install, services


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engines.load(request.param)


@pytest.fixture
def order(home: Path) -> SoldierOrder:
    (home / "prompt.md").write_text("SECRET WORDS of the prompt")
    (home / "out").touch()
    (home / "err").touch()
    return SoldierOrder(
        soldier="soldier-task-1-0",
        task_id="task-1",
        general="gen-pr",
        attempt=0,
        engine="any",
        account="any",
        program=str(home / "run"),
        workspace=str(home),
        prompt=str(home / "prompt.md"),
        result_path=str(home / "result.json"),
        out=str(home / "out"),
        err=str(home / "err"),
        limits={"memory_mb": 2048, "cpu_seconds": 60, "processes": 64, "budget_usd": 1.0, "budget_tokens": None},
        sandbox=True,
        external=False,
        question="?",
        may_write=[str(home)],
        may_not_read=[],
        env={},
    )


def a_manifest(home: Path, **fields: Any) -> Manifest:
    ours = services(home, "gen-pr", Clock())
    install(home, "gen-pr", **fields)
    return manifests.of(ours.places, "gen-pr")


def test_it_names_a_program_or_says_what_it_needs(engine: Engine, home: Path) -> None:
    manifest = a_manifest(home)
    package = Places(home).package("gen-pr")
    package.mkdir(parents=True)
    found = []
    with suppress(NeedsSetUp):
        found.append(engine.program(services(home, "gen-pr", Clock()), manifest))
    assert all(shutil.which(program) for program in found)


def test_it_has_an_account_and_names_its_variables(engine: Engine) -> None:
    assert engine.account("gen-pr")
    assert all(name.isidentifier() for name in engine.variables)


def test_it_warns_of_no_field_that_is_not_set(engine: Engine, home: Path) -> None:
    assert engine.warnings(services(home, "gen-pr", Clock()), a_manifest(home)) == []


def test_its_words_are_plain_and_hold_no_prompt(engine: Engine, order: SoldierOrder) -> None:
    argv = engine.argv(order)
    assert argv
    assert all(isinstance(word, str) and word and "\0" not in word for word in argv)
    assert "SECRET WORDS" not in " ".join(argv)


@pytest.mark.parametrize("code", [0, 1, -9])
def test_an_end_without_a_word_is_no_result(engine: Engine, order: SoldierOrder, code: int) -> None:
    assert engine.result(order, code) is None


def test_what_stands_at_the_result_path_is_the_result(engine: Engine, order: SoldierOrder) -> None:
    written = {"status": "success", "summary": "왕", "colour": "blue"}
    Path(order.result_path).write_text(json.dumps(written))
    found = engine.result(order, 0)
    assert found is not None
    assert dict(found) | written == dict(found)


@pytest.mark.parametrize("text", ["{half", "[]", '"success"', '{"status": NaN}', ""])
def test_what_is_no_result_is_reported_as_such(engine: Engine, order: SoldierOrder, text: str) -> None:
    Path(order.result_path).write_text(text)
    with pytest.raises(BadFile):
        engine.result(order, 0)


def test_a_result_that_could_not_be_passed_on_is_refused_with_the_reason(engine: Engine, order: SoldierOrder) -> None:
    """Wrapped in the soldier's report and in its general's result it must still be what one reads of a file."""
    written = {"status": "success", "summary": "x" * (LARGEST_RESULT - 100)}
    Path(order.result_path).write_text(json.dumps(written))
    found = engine.result(order, 0)
    assert found is not None
    assert {key: found[key] for key in written} == written
    written["summary"] += "x" * 200
    Path(order.result_path).write_text(json.dumps(written))
    with pytest.raises(BadFile, match=f"bytes, more than {LARGEST_RESULT}"):
        engine.result(order, 0)


def test_it_needs_nothing_but_the_standard_library_and_no_dataclasses() -> None:
    """A soldier starts in milliseconds: what it loads is paid for by every task."""
    script = "import sys; import kingdom.court.soldier.serve as _; from importlib import import_module as i\n"
    script += "".join(f"i({row.partition(':')[0]!r})\n" for row in ENGINES.values())
    script += "print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    modules = ended.stdout.split()
    packages = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert {name for name in packages if not name.startswith(("_", "sitecustomize"))} == {"kingdom"}
    assert "dataclasses" not in modules


TOY = """
from __future__ import annotations

import json


class Toy:
    variables = ("TOY_KEY",)

    def program(self, services, manifest):
        return "/bin/sh"

    def account(self, general):
        return "toy"

    is_model = True
    kept = ("sessions",)
    reserves_mb = 0

    def warnings(self, services, manifest):
        return ["a toy has no use for keywords"] if manifest.keywords else []

    def furnish(self, services, manifest, home):
        (home / "sessions").mkdir(exist_ok=True)
        (home / "settings").write_text("plain")

    def environment(self, order):
        return {"TOY_MODE": "quiet"}

    def argv(self, order):
        play = "cat >/dev/null; echo $TOY_KEY; echo $0 $@ $TOY_MODE $(cat $HOME/settings); echo hook >$HOME/settings"
        return [order.program, "-c", play, *order.plugins]

    def result(self, order, exit_code):
        with open(order.out) as out:
            key, words = out.read().splitlines()
        metrics = {"cost_usd": 0.25}
        return {"status": "success", "summary": f"{exit_code} {key} {words}", "metrics": metrics}

    def readable(self, line):
        return None
"""


def test_one_more_engine_is_one_file_and_one_row(home: Path) -> None:
    tree = trees.new_folder()
    trees.copy_program(trees.program(), tree)
    folder = tree / "kingdom" / "court" / "soldiers" / "engines"
    (folder / "toy.py").write_text(TOY)
    table = (folder / "__init__.py").read_text()
    row = '    "toy": "kingdom.court.soldiers.engines.toy:Toy",\n'
    (folder / "__init__.py").write_text(table.replace("ENGINES = {\n", f"ENGINES = {{\n{row}"))
    trees.compile_program(tree)
    places = homes.make(home)
    homes.install(home, homes.GENERAL, engine="toy", cc_plugins=["wind", "up"], keywords=["play"])
    places.package(homes.GENERAL).mkdir(parents=True)
    (places.package(homes.GENERAL) / "prompt-toy.md").write_text("Play {{TASK_ID}}.\n")
    places.env_file.write_text("TOY_KEY=red\nOTHER_KEY=blue\n")
    places.env_file.chmod(0o600)
    homes.put(home, "tasks", "pending", homes.task("task-1", "evt-1"))
    ended = trees.run(tree, home, ["-m", "kingdom.general", homes.GENERAL, "--once"], timeout=60)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(places.result("task-1").read_text())
    assert (result["status"], result["summary"]) == ("success", "0 red wind up quiet plain")
    assert "How to report" in places.prompt("task-1").read_text()
    own_home = places.engine_home(homes.GENERAL, "task-1") / "home"
    assert [path.name for path in own_home.iterdir()] == ["sessions"], "what a soldier leaves is not for the next one"
    assert result["warnings"] == ["a toy has no use for keywords"]
    assert "Play task-1." in places.prompt("task-1").read_text()
    (day,) = json.loads(places.budgets.read_text()).values()
    assert day[homes.GENERAL]["usd"] == 0.25


def test_a_line_of_somebody_else_is_left_as_it_is(engine: Engine) -> None:
    for line in ("plain words", '{"type": "stranger"}', "{half", '["type"]', "{" * 100_000):
        assert engine.readable(line) is None
        assert engines.readable(line) == line


def test_a_model_is_told_where_its_sessions_are_kept_and_nobody_else_is(engine: Engine) -> None:
    assert bool(engine.kept) == engine.is_model
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in engine.kept)
