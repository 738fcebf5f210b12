"""A plugin of pytest for random mutants: tests are collected once, and run in a fork for each defect.

In the fork the changed functions get their new code, so that nothing is imported again. First come the tests that run
the changed function, then those that run its file, then those of which that is not known: only what runs in the
test's own process is seen. Tests that run other files alone come last.
"""

from __future__ import annotations

import ast
import gc
import inspect
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ALONE = "to be seen in a fresh process"
READ, CHANGED, SERVED = "MUTANTS_REACHED_IN", "MUTANTS_CHANGED", "MUTANTS_SERVED"
NEAR = "NEAR"
"""Set: of all tests only the nearest, so that a survivor costs seconds. It may be one that others would have killed."""
TREE = Path(__file__).resolve().parents[2]

Spans = dict[str, list[tuple[int, int]]]
"""For a file, the first and last lines of the functions that a test runs."""

_said: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if READ in os.environ:
        file, _, line = os.environ[CHANGED].rpartition(":")
        items[:] = nearest(items, json.loads(Path(os.environ[READ]).read_text()), file, int(line))


def nearest(items: list[pytest.Item], known: dict[str, Spans], file: str, line: int) -> list[pytest.Item]:
    far = {item: distance(known.get(item.nodeid, {}), file, line) for item in items}
    ordered = sorted(items, key=far.__getitem__)
    return [item for item in ordered if far[item] == far[ordered[0]]] if os.environ.get(NEAR) else ordered


def distance(spans: Spans, file: str, line: int) -> int:
    """Return 0 for a test that runs the changed function, 1 for its file, 2 for what is not known, 3 for others."""
    if any(first <= line <= last for first, last in spans.get(file, [])):
        return 0
    return 1 if file in spans else 3 if spans else 2


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _said.append(f"{report.nodeid}: {report.longreprtext[-1500:]}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Answer each line of the one pipe with a line in the other: see random_mutants.Run."""
    if SERVED not in os.environ:
        return None
    asked, told = (int(number) for number in os.environ.pop(SERVED).split())
    os.set_inheritable(asked, False)
    os.set_inheritable(told, False)
    _EARLY.__exit__()
    with open(asked) as asks, open(told, "w") as tells:
        for line in asks:
            tells.write(json.dumps(_in_fork(session, json.loads(line))) + "\n")
            tells.flush()
    return True


def _in_fork(session: pytest.Session, job: dict[str, Any]) -> str:
    """Run the tests for a job in a child, and return what failed: "" is nothing, "hung" that it took too long."""
    out, into = os.pipe()
    began = time.monotonic()
    if (child := os.fork()) == 0:
        os.setsid()
        try:
            said = _learn(session, job) if "learn" in job else _meet(session, job)
        except BaseException as error:  # noqa: BLE001 a child of a fork that goes on would be a second server
            said = f"the fork: {error!r}"
        os.write(into, said.encode()[-4000:])
        os._exit(0)
    os.close(into)
    said = b""
    while select.select([out], [], [], max(began + job["limit"] - time.monotonic(), 0))[0]:
        if not (more := os.read(out, 4096)):
            break
        said += more
        if more:
            break
    ended = os.pidfd_open(child)
    if said or select.select([ended], [], [], max(began + job["limit"] - time.monotonic(), 0))[0]:
        failed = said.decode(errors="replace")
    else:
        failed = "hung"
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGINT)
        select.select([ended], [], [], 10)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ended)
    os.close(out)
    return failed


def _learn(session: pytest.Session, job: dict[str, Any]) -> str:
    found: dict[str, Spans] = {}
    for number, item in enumerate(session.items):
        spans: dict[str, set[tuple[int, int]]] = {}
        failed = len(_said)
        with _Noted(spans):
            _run(item, session.items, number)
        if len(_said) == failed:  # else it knows that it is in a fork, or the machine is too busy for it
            found[item.nodeid] = {str(Path(file).relative_to(TREE)): sorted(spans[file]) for file in spans}
    Path(job["learn"]).write_text(json.dumps(found))
    return "\n".join(_said)


class _Noted:
    """Which functions of kingdom/ run meanwhile."""

    def __init__(self, spans: dict[str, set[tuple[int, int]]]) -> None:
        self._spans = spans
        self._inside = f"{TREE}/kingdom/"

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(self._inside):
            last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
            self._spans.setdefault(code.co_filename, set()).add((code.co_firstlineno, last))


def _meet(session: pytest.Session, job: dict[str, Any]) -> str:
    if not become(TREE / job["file"], job["whole"], job["number"]):
        return ALONE
    early = {str(Path(file).relative_to(TREE)): sorted(spans) for file, spans in _early.items()}
    known = json.loads(Path(job["reached"]).read_text())
    items = nearest([item for item in session.items if item.nodeid in known], known, job["file"], job["line"])
    for number, item in enumerate(items):
        _run(item, items, number)
        if _said:
            return _said[0]
    return "" if distance(early, job["file"], job["line"]) else ALONE


def _run(item: pytest.Item, items: list[pytest.Item], number: int) -> None:
    following = items[number + 1] if number + 1 < len(items) else None
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def become(file: Path, whole: str, number: int) -> bool:
    """Give the functions of a loaded module the code with a defect; False if it is not in functions alone."""
    from tests.faults import random_mutants

    tree = ast.parse(whole)
    list(random_mutants.defects(tree))[number].put()
    new = compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True)
    pairs = list(_differing(compile(whole, str(file), "exec", dont_inherit=True), new))
    if not pairs or not all(old.co_flags & inspect.CO_OPTIMIZED for old, _ in pairs):
        return False
    codes = {_name(old): changed for old, changed in pairs}
    for function in [found for found in gc.get_objects() if isinstance(found, FunctionType)]:
        if changed := codes.get(_name(function.__code__)):
            if len(changed.co_freevars) != len(function.__code__.co_freevars):
                return False
            function.__code__ = changed
    return True


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the functions that differ, with those around them; a module or class only if its own statements differ."""
    inner = [[part for part in code.co_consts if isinstance(part, CodeType)] for code in (old, new)]
    within = [pair for both in zip(*inner, strict=False) for pair in _differing(*both)]
    if _own(old) != _own(new) or (within and old.co_flags & inspect.CO_OPTIMIZED):
        yield old, new
    yield from within


def _own(code: CodeType) -> tuple[object, ...]:
    consts = [repr(part) if not isinstance(part, CodeType) else "" for part in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts


def _name(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


_early: dict[str, set[tuple[int, int]]] = {}
"""What runs while modules are imported and tests are collected: a fork cannot show a defect in it to be harmless."""
_EARLY = _Noted(_early)
if SERVED in os.environ:
    _EARLY.__enter__()
