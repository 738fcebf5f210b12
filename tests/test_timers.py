"""Every default time of the program and of its libraries is known, and how it is waited for."""

import ast
import re
from pathlib import Path

import pytest

from tests.faults.timers import table
from tests.faults.timers.finder import CHECKOUT, modules, timers

HERE = "tests/faults/timers/timers.txt"
#: What waits for others for ever unless it is told for how long.
WAITS_FOR_EVER = {"urlopen", "HTTPConnection", "HTTPSConnection", "SMTP", "SMTP_SSL", "create_connection"}


def test_every_default_time_is_listed_with_how_it_is_waited_for() -> None:
    known = {row.key for row in table.rows()}
    new = sorted({timer.key for timer in timers()} - known)
    assert new == [], f"write a row for each into {HERE}"


def test_no_row_is_left_of_a_time_that_is_gone() -> None:
    found = {timer.key for timer in timers()}
    gone = [row.key for row in table.rows() if row.key not in found]
    assert gone == [], f"take these out of {HERE}"


def test_each_time_has_one_row_and_each_row_a_test_that_is_there() -> None:
    rows = table.rows()
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert row.way in table.WAYS, row
        assert row.about, row
        assert bool(row.by) is (row.way in ("slow", "test")), row
        place = table.HERE / f"test_{row.by}_timers.py" if row.way == "slow" else CHECKOUT / row.by
        assert place.exists(), row


@pytest.mark.parametrize("library", table.LIBRARIES, ids=lambda library: library.name)
def test_the_default_times_of_libraries_are_those_that_were_looked_at(library: table.Library) -> None:
    pytest.importorskip(library.name.split()[0].replace("sockets", "socket"))
    assert library.read() == library.value, library.about


def test_nothing_waits_for_others_without_a_limit() -> None:
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.split(r"\W", ast.unparse(node.func))[-1] in WAITS_FOR_EVER:
                given = {argument.arg for argument in node.keywords}
                if not given & {"timeout", None}:
                    found.append(f"{path.relative_to(CHECKOUT)}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("kingdom/a.py", "PAUSE_SECONDS = 3.0\n", "PAUSE_SECONDS"),
        ("kingdom/a.py", "class A:\n    poll_ms: int = 5\n", "A.poll_ms"),
        ("kingdom/a.py", "LEAST, TIMEOUT = 1, 2 * 60\n", "TIMEOUT"),
        ("kingdom/a.py", "def wait(deadline=5): ...\n", "wait(deadline)"),
        ("kingdom/a.py", "def wait(*, linger=5): ...\n", "wait(linger)"),
        ("kingdom/a.py", "connect(timeout=5)\n", "connect(timeout)"),
        ("kingdom/a.py", 'given = {"session.timeout.ms": 6_000}\n', "[session.timeout.ms]"),
        ("schemas/a.json", '{"properties": {"look": {"properties": {"ttlSec": {"default": 5}}}}}', "look.ttlSec"),
        ("kingdom/hall/gateway/pages/a.js", "const ANSWER_MS = 15_000;\n", "ANSWER_MS"),
        ("bin/role", "first=${KINGDOM_DELAY_FIRST:-100}\n", "KINGDOM_DELAY_FIRST"),
    ],
)
def test_a_new_time_is_found_wherever_it_is_written(tmp_path: Path, file: str, text: str, name: str) -> None:
    for path in ("bin/role", file):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / file).write_text(text)
    assert [timer.key for timer in timers(tmp_path)] == [(file, name)]


def test_what_is_no_time_or_none_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "role").touch()
    (tmp_path / "kingdom").mkdir()
    (tmp_path / "kingdom" / "a.py").write_text(
        "MOST_ROOMS = 5\nPAUSE_SECONDS = 0.0\nIS_AFTER = True\nLIMIT_MS = other()\n"
    )
    assert timers(tmp_path) == []
