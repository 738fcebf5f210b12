"""The seeded defects of the fault checks still apply to the program, also those that only a campaign plants."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.faults import changes, lines, mutants, random_mutants, reached, trees

LISTS = (
    "test_mutants",
    "test_command_mutants",
    "test_council_mutants",
    "test_team_mutants",
    "sandbox.test_sandbox_mutants",
    "engines.test_engine_mutants",
    "hall.test_gateway_mutants",
    "hall.test_hall_mutants",
    "mailbox.test_bad_requests",
    "mailbox.test_full_disk",
    "mailbox.test_kills",
    "mailbox.test_power",
    "mailbox.test_sweep_mailbox",
    "mq.test_mass_turns",
    "mq.test_mutants_of_stores",
    "test_promise_mutants",
    "test_log_rotation",
    "test_slack",
    "test_sentinel_mutants",
    "timers.test_timer_mutants",
    "watch.test_watch_mutants",
    "web.test_page_mutants",
)


@pytest.mark.parametrize("name", LISTS)
def test_every_mutant_of_a_list_applies_at_one_place(name: str) -> None:
    assert mutants.outdated(import_module(f"tests.faults.{name}").MUTANTS) == []


def test_no_list_is_forgotten() -> None:
    folder = trees.CHECKOUT / "tests/faults"
    found = {path for path in folder.rglob("*.py") if "\nMUTANTS" in path.read_text()}
    assert found - {folder / "mutants.py"} == {folder / f"{name.replace('.', '/')}.py" for name in LISTS} - {
        folder / "test_mutants.py"
    }


def test_the_page_promises_no_more_defects_than_there_are() -> None:
    promised = re.search(r"more than (\d+) defects", (trees.CHECKOUT / "docs/reliability.md").read_text())
    assert promised is not None
    assert sum(len(import_module(f"tests.faults.{name}").MUTANTS) for name in LISTS) > int(promised[1])


def test_every_check_on_the_page_says_its_figure() -> None:
    page = (trees.CHECKOUT / "docs/reliability.md").read_text()
    rows = [row.split("|")[3] for row in page.splitlines() if row.startswith("| ") and ".py`" in row]
    named = [name for row in rows for name in re.findall(r"`((?:\w+/)*(?:test_\w+\.py)?)`", row)]
    named.remove("tests/base/disk/test_atomic.py")  # of which the page counts nothing
    places = [trees.CHECKOUT / (name if name.startswith("tests/") else f"tests/faults/{name}") for name in named]
    assert len(places) > 20
    files = {file for place in places for file in (place.rglob("test_*.py") if place.is_dir() else [place])}
    silent = [file for file in files if not re.search(r'figure\(|none_bad\(|"figure"', file.read_text())]
    assert silent == []


PROGRAM = """
class Disk:
    def write(self, path, data):
        draft = self.draft(path, mode=0o600)
        os.write(draft, data)
        if self.power and data:
            os.fsync(draft)
        os.rename(draft, path)  # seen from here on
"""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (changes.drop("fsync"), "        if self.power and data:\n            pass\n"),
        (changes.drop("os.fsync(A)"), "        if self.power and data:\n            pass\n"),
        (changes.swap("write", "fsync"), "            os.fsync(draft)\n        os.write(draft, data)\n"),
        (changes.swap("os.fsync", "rename", between="wait()"), "(draft, path)\n        wait()\n        if self.power"),
        (changes.replace("self.power and A", "A"), "        if data:\n"),
        (changes.replace("if A: ...", "pass"), "data)\n        pass\n        os.rename"),
        (changes.before("rename(A, B)", "os.unlink(B)"), "        os.unlink(path)\n        os.rename(draft, path)"),
        (changes.after("os.rename(A, B)", "os.unlink(B)"), "        os.rename(draft, path)\n        os.unlink(path)"),
        (changes.omit("draft", "mode"), "draft = self.draft(path)\n"),
        (changes.constant("draft", "7"), "draft = 7\n"),
    ],
)
def test_a_change_is_made_at_the_place_it_names(change: changes.Change, line: str) -> None:
    tree = ast.parse(PROGRAM)
    (scope,) = changes.scopes(tree, "Disk.write")
    assert change.apply(scope) == 1
    assert line in ast.unparse(tree)


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        ("kingdom.base.disk.gone", changes.drop("fsync"), "0 times in kingdom.base.disk.gone: a statement fsync"),
        (
            "kingdom.base.disk.atomic:Disk.gone",
            changes.body("pass"),
            "0 times in kingdom.base.disk.atomic:Disk.gone: that function",
        ),
        ("kingdom.base.disk", changes.replace("os.close(fd)", "0"), "times in kingdom.base.disk: os.close(fd)"),
        (
            "kingdom.base.disk.lock",
            changes.drop("flock(A, B)"),
            "2 times in kingdom.base.disk.lock: a statement flock(A, B)",
        ),
        ("kingdom.base.disk.atomic", changes.replace("os.replace(A, B)", "nobody(A)"), "no nobody in atomic.py"),
        ("kingdom.base.disk.atomic", changes.replace("os.replace(A, B)", "self.gone(A)"), "no gone in atomic.py"),
        ("bin/role", changes.Text("count=0\n", ""), "times in bin/role: count=0"),
    ],
)
def test_what_no_longer_applies_is_named_in_a_sentence(place: str, change: changes.Change, said: str) -> None:
    with pytest.raises(changes.DoesNotApply) as error:
        changes.changed(trees.CHECKOUT, place, change)
    assert said in str(error.value)


SMALL = """
def keep(path, data):
    if data and len(data) > 3:
        write(path, data)
        sync(path, wait=True)
"""


def test_random_defects_are_dropped_calls_swapped_neighbours_negated_tests_and_other_constants() -> None:
    every = [defect.what for defect in random_mutants.defects(ast.parse(SMALL))]
    assert every == [
        "drop write(path, data)",
        "drop sync(path, wait=True)",
        "swap write(path, data) | sync(path, wait=True)",
        "negate data and len(data) > 3",
        "other comparison in len(data) > 3",
        "3 is 4",
        "True is False",
    ]
    texts = [random_mutants.planted(SMALL, number)[1] for number in range(len(every))]
    assert len({ast.unparse(ast.parse(SMALL)), *texts}) == len(every) + 1
    assert "if not (data and len(data) > 3):" in texts[3]


def test_the_same_seed_draws_the_same_defects() -> None:
    assert random_mutants.draw("court/rules", 5, seed=7) == random_mutants.draw("court/rules", 5, seed=7)
    assert random_mutants.draw("court/rules", 5, seed=7) != random_mutants.draw("court/rules", 5, seed=8)


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ({"outcome": "killed", "tests": ["a"]}, True),
        ({"outcome": "killed", "tests": ["a", "c"]}, False),
        ({"outcome": "SURVIVED", "tests": ["a"], "tested": "as now"}, True),
        ({"outcome": "SURVIVED", "tests": ["a"], "tested": "before"}, False),
    ],
)
def test_what_some_tests_have_killed_need_not_meet_more(row: dict[str, object], holds: bool) -> None:
    assert random_mutants._still_holds(row, ["a", "b"], "as now") == holds


@pytest.mark.parametrize(
    ("drawn", "harmless", "survivors", "said"),
    [
        (100, 5, 3, "100 drawn, 5 change nothing, 92 of 95 (96 %) killed"),
        (61, 5, 0, "61 drawn, 5 change nothing (2 of them count as not killed), 56 of 58 (96 %) killed"),
        (7, 0, 1, "7 drawn, 0 change nothing, 6 of 7 (85 %) killed"),
    ],
)
def test_of_a_hundred_random_defects_five_may_change_nothing(
    drawn: int, harmless: int, survivors: int, said: str
) -> None:
    assert random_mutants.score(drawn, harmless, survivors) == said


@pytest.mark.parametrize(
    "statements",
    ["a = 1\nb = 2", "a = f'{x}'\nb = 'more'", "'Say what it does.'\na = call()"],
)
def test_neighbours_whose_order_says_nothing_are_not_swapped(statements: str) -> None:
    assert not [defect for defect in random_mutants.defects(ast.parse(statements)) if defect.what.startswith("swap")]


@pytest.mark.parametrize(
    ("statements", "counts"),
    [
        ("a = read(x)\nb = read(y)", False),
        ("a = [read(x) for x in y]\nb = {read(x) for x in z}", False),
        ("a = read(x)\nself.log.info(x)", False),
        ("a = read(x)\nself._log.info(x)", False),
        ("a = self.b\nwrite(x)", False),
        ("a = self.b\nwrite(a)", True),
        ("self.b = 1\nwrite(self.b)", True),
        ("file.set('a', 1)\nfile.set('b', 2)", False),
        ("file.set('a', 1)\nfile.set('a', 2)", True),
        ("file.set('a', 1)\nother.set('b', 2)", True),
        ("a = read(x)\nb = read(a)", True),
        ("a = read(x)\nself.log.info(a)", True),
        ("a = read(x)\nwrite(x)", True),
        ("self.log.info(x)\nself.log.info(y)", True),
    ],
)
def test_values_that_do_not_need_each_other_may_be_computed_in_any_order(statements: str, counts: bool) -> None:
    (swap,) = [defect for defect in random_mutants.defects(ast.parse(statements)) if defect.what.startswith("swap")]
    assert swap.counts == counts


def test_only_tests_that_run_a_changed_line_meet_a_defect_and_the_quickest_first(
    request: pytest.FixtureRequest,
) -> None:
    here = request.node
    other, third = [item for item in request.session.items if item is not here][:2]
    known: reached.Known = {
        here.nodeid: {"seconds": 0.5, "lines": {"gate.py": [44, 45]}},
        other.nodeid: {"seconds": 0.1, "lines": {"gate.py": [3, 45], "retry.py": [9]}},
    }
    items = [here, other, third]
    assert reached.chosen(items, known, "gate.py", range(45, 47)) == [other, here]
    assert reached.chosen(items, known, "gate.py", range(44, 45)) == [here]
    assert reached.chosen(items, known, "retry.py") == [other]
    assert reached.chosen(items, known, "ids.py") == []


@pytest.mark.parametrize(("line", "touched"), [(1, [1]), (2, [2, 3]), (3, [2, 3]), (4, [4]), (5, [5, 6])])
def test_a_defect_touches_the_statement_around_it_and_of_a_block_only_the_head(line: int, touched: list[int]) -> None:
    text = "def f(a):\n    if (a or\n            b):\n        g(a)\n    h(\n        1)\n"
    assert list(random_mutants.touched(text, line)) == touched


IN_A_PROCESS = """
from kingdom import gate; import os, subprocess, sys
gate.shut(len(sys.argv) < 2)
if len(sys.argv) < 2: subprocess.run([*sys.orig_argv, 'again'])
"""
IN_A_THREAD = """
from kingdom import gate; import _thread, os
def run():
    gate.shut(1)
    if os.fork() == 0:
        os.closerange(3, 1000)
        gate.shut(0)
        os._exit(0)
    os.wait()
    done.release()
done = _thread.allocate_lock()
done.acquire()
_thread.start_new_thread(run, ())
done.acquire()
"""


@pytest.mark.parametrize("program", [IN_A_PROCESS, IN_A_THREAD])
def test_the_lines_that_run_are_noted_here_and_in_what_is_started_or_forked(tmp_path: Path, program: str) -> None:
    for folder in ("tests/faults", "kingdom"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(lines.__file__, tmp_path / "tests/faults")
    (tmp_path / "sitecustomize.py").write_text(lines.SITE)
    (tmp_path / "kingdom/__init__.py").touch()
    (tmp_path / "kingdom/gate.py").write_text("def shut(now):\n    if now:\n        return 1\n    return 2\n")
    lines.begin(tmp_path, "first")
    run = [sys.executable, "-P", "-c", program]
    subprocess.run(run, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True)
    assert lines.found(tmp_path)["kingdom/gate.py"] == [1, 2, 3, 4]
