"""What every engine must do, with the order that a general writes."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kingdom.errors import BadFile
from kingdom.soldiers.engines import ENGINES
from kingdom.soldiers.engines.base import LARGEST_RESULT, Engine


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    module, attribute = ENGINES[request.param].split(":")
    made: Engine = getattr(import_module(module), attribute)()
    return made


@pytest.fixture
def order(home: Path) -> dict[str, Any]:
    (home / "prompt.md").write_text("SECRET WORDS of the prompt")
    (home / "out").touch()
    (home / "err").touch()
    return {
        "soldier": "soldier-task-1-0",
        "task_id": "task-1",
        "general": "gen-pr",
        "attempt": 0,
        "executable": str(home / "run"),
        "workspace": str(home),
        "prompt": str(home / "prompt.md"),
        "result_path": str(home / "result.json"),
        "out": str(home / "out"),
        "err": str(home / "err"),
        "limits": {"memory_mb": 2048, "cpu_seconds": 60, "processes": 64, "budget_usd": 1.0, "budget_tokens": None},
        "env": {},
    }


def test_its_words_are_plain_and_hold_no_prompt(engine: Engine, order: dict[str, Any]) -> None:
    argv = engine.argv(order)
    assert argv
    assert all(isinstance(word, str) and word and "\0" not in word for word in argv)
    assert "SECRET WORDS" not in " ".join(argv)


@pytest.mark.parametrize("code", [0, 1, -9])
def test_an_end_without_a_word_is_no_result(engine: Engine, order: dict[str, Any], code: int) -> None:
    assert engine.result(order, code) is None


def test_what_stands_at_the_result_path_is_the_result(engine: Engine, order: dict[str, Any]) -> None:
    told = {"status": "success", "summary": "왕", "colour": "blue"}
    Path(order["result_path"]).write_text(json.dumps(told))
    found = engine.result(order, 0)
    assert found is not None
    assert dict(found) | told == dict(found)


@pytest.mark.parametrize("text", ["{half", "[]", '"success"', '{"status": NaN}', ""])
def test_what_is_no_result_is_told_as_such(engine: Engine, order: dict[str, Any], text: str) -> None:
    Path(order["result_path"]).write_text(text)
    with pytest.raises(BadFile):
        engine.result(order, 0)


def test_it_needs_nothing_but_the_standard_library() -> None:
    """A soldier starts in milliseconds: what it loads is paid for by every task."""
    import subprocess
    import sys

    script = "import sys; import kingdom.soldier.serve as _; from importlib import import_module as i\n"
    script += "".join(f"i({place.partition(':')[0]!r})\n" for place in ENGINES.values())
    script += "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    ended = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    ours = {name for name in ended.stdout.split() if not name.startswith(("_", "sitecustomize"))}
    assert ours == {"kingdom"}


def test_a_result_that_could_not_be_passed_on_is_refused_with_the_reason(engine: Engine, order: dict[str, Any]) -> None:
    """Wrapped in the soldier's report and in its general's result it must still be what one reads of a file."""
    told = {"status": "success", "summary": "x" * (LARGEST_RESULT - 100)}
    Path(order["result_path"]).write_text(json.dumps(told))
    assert engine.result(order, 0) == told
    told["summary"] += "x" * 200
    Path(order["result_path"]).write_text(json.dumps(told))
    with pytest.raises(BadFile, match=f"bytes, more than {LARGEST_RESULT}"):
        engine.result(order, 0)
