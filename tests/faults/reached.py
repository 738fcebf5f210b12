"""A plugin of pytest for random mutants: tests are collected once, and run in a fork for each defect.

In the fork the changed functions get their new code, so that nothing is imported again. Only tests that run one of the
changed lines are run, the quickest first: lines.py says which they are, in processes that they start as well.
"""

from __future__ import annotations

import ast
import ctypes
import gc
import inspect
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import psutil
import pytest

from tests.faults import lines

ALONE = "to be seen in a fresh process"
KNOWN, CHANGED, SERVED = "MUTANTS_KNOWN_IN", "MUTANTS_CHANGED", "MUTANTS_SERVED"
TREE = Path(__file__).resolve().parents[2]
SLOWER_AT_MOST, AND_SECONDS = 4, 10.0
"""A test may take so many times the seconds that it took without a defect, and so many more; then it counts as hung."""
QUICK_SECONDS = 0.5
SAVED_EVERY = 60.0
"""Seconds after which what was learned is kept, for a run that is ended meanwhile."""
_PR_SET_CHILD_SUBREAPER = 36

Known = dict[str, dict[str, Any]]
"""For a test the seconds it took, the lines that it ran, and of which files: their digests."""

Codes = dict[tuple[str, str, int], CodeType]
"""For a function its new code."""

_said: list[str] = []
_FUNCTIONS: list[FunctionType] = []
"""Those of the program, when the tests are collected."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a process for one defect: only the tests that run anything of its file, or if there are none, all.

    And the quick ones beside them: who only looks at a constant of the file runs no line of it.
    """
    if KNOWN in os.environ:
        known: Known = json.loads(Path(os.environ[KNOWN]).read_text())
        looks = [item for item in items if item.nodeid in known and known[item.nodeid]["seconds"] < QUICK_SECONDS]
        items[:] = dict.fromkeys([*chosen(items, known, os.environ[CHANGED]), *looks]) or items


def chosen(items: list[pytest.Item], known: Known, file: str, changed: range | None = None) -> list[pytest.Item]:
    """Return the tests that run one of the lines, or any line of the file, the quickest first."""
    meet = [item for item in items if item.nodeid in known and _meets(known[item.nodeid]["lines"], file, changed)]
    return sorted(meet, key=lambda item: float(known[item.nodeid]["seconds"]))


def _meets(ran: lines.Lines, file: str, changed: range | None) -> bool:
    return any(changed is None or line in changed for line in ran.get(file, []))


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
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a defect leaves running is found and ended
    early = lines.found(TREE)
    inside = f"{TREE}/kingdom/"
    functions = [found for found in gc.get_objects() if isinstance(found, FunctionType)]
    _FUNCTIONS[:] = [found for found in functions if found.__code__.co_filename.startswith(inside)]
    with open(asked) as asks, open(told, "w") as tells:
        for line in asks:
            job = json.loads(line)
            said = _learned(session, job) if "learn" in job else _judged(session, job, early)
            tells.write(json.dumps(said) + "\n")
            tells.flush()
    return True


def _learned(session: pytest.Session, job: dict[str, Any]) -> str:
    """Note what each test runs that is new, or whose files are; return what those say that fail: they are not used."""
    kept = Path(job["learn"])
    before, known = _kept(kept), Known()
    digests = job["digests"]
    failed = []
    saved = time.monotonic()
    for number, item in enumerate(session.items):
        row = before.get(item.nodeid)
        if row and row["of"].items() <= digests.items():
            known[item.nodeid] = row
            continue
        lines.begin(TREE, str(number))
        said, seconds = _timed(item)
        ran = lines.found(TREE)
        lines.end(TREE)
        if said:  # it may be too slow while its lines are noted
            said, seconds = _timed(item)
        if said:
            failed.append(said)
        else:
            of = [str(path.relative_to(TREE)) for path in (item.path, item.path.parent)] + [*ran]
            known[item.nodeid] = {"seconds": seconds, "lines": ran, "of": {file: digests[file] for file in of}}
        if time.monotonic() - saved > SAVED_EVERY:
            _keep(kept, known)
            saved = time.monotonic()
    lines.note_no_more()
    Path(job["known"]).write_text(json.dumps(known))
    _keep(kept, known)
    return "\n".join(failed)


def _keep(file: Path, known: Known) -> None:
    """Add to what is kept: another run may have added to it meanwhile."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(json.dumps({**_kept(file), **known}))
    draft.replace(file)


def _kept(file: Path) -> Known:
    return json.loads(file.read_text()) if file.exists() else {}


def _timed(item: pytest.Item) -> tuple[str, float]:
    began = time.monotonic()
    said = _in_fork([item], {item.nodeid: 120})
    return said, round(time.monotonic() - began, 3)


def _judged(session: pytest.Session, job: dict[str, Any], early: lines.Lines) -> str:
    """Return what a test says that fails with a defect, and fails again; "" is none, ALONE that it is not known."""
    known: Known = json.loads(Path(job["known"]).read_text())
    codes = changed_codes(TREE / job["file"], job["whole"], job["number"])
    if not codes or not _fits(codes):
        return ALONE
    changed = range(*job["lines"])
    within = {name: SLOWER_AT_MOST * known[name]["seconds"] + AND_SECONDS for name in known}
    items = chosen(session.items, known, job["file"], changed)
    while said := _in_fork(items, within, codes):
        at = next(at for at, item in enumerate(items) if said.startswith(f"{item.nodeid}: "))
        if _in_fork([items[at]], within, codes):
            return said
        items = items[at + 1 :]
    return ALONE if _meets(early, job["file"], changed) else ""


def _in_fork(items: list[pytest.Item], within: dict[str, float], codes: Codes | None = None) -> str:
    """Run tests in a child until one fails, and return what it says; what is left running is killed."""
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        try:
            become(codes or {})
            for number, item in enumerate(items):
                os.write(into, f"{item.nodeid}\n".encode())
                following = items[number + 1] if number + 1 < len(items) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if _said:
                    os.write(into, json.dumps(_said[0]).encode() + b"\n")
                    break
        finally:
            os._exit(0 if not _said else 1)
    os.close(into)
    ended = os.pidfd_open(child)
    name, failed, seconds = "", "", 10.0
    with open(out, buffering=1) as told:
        while select.select([told], [], [], seconds)[0] and (line := told.readline()):
            if line.startswith('"'):
                failed = json.loads(line)
            else:
                name, seconds = line.strip(), within[line.strip()]
        if not select.select([ended], [], [], 0 if failed else 1)[0] and not failed:
            failed = f"{name}: hung"
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)  # so that it removes what it has made
            select.select([ended], [], [], 5)
    os.close(ended)
    status = _end_children(child)
    return failed or (f"{name}: it was killed" if status else "")


def _end_children(child: int) -> int:
    """Kill what is left of a child and of those that it has started; return the child's status."""
    status = 0
    while left := psutil.Process().children(recursive=True):
        for process in left:
            if process.pid != child or process.status() != psutil.STATUS_ZOMBIE:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        with suppress(ChildProcessError):
            while True:
                pid, ended = os.waitpid(-1, 0)
                status = ended if pid == child else status
    return status


def changed_codes(file: Path, whole: str, number: int) -> Codes:
    """Return the new code of the functions that a defect changes; none if it is not in functions alone."""
    pairs = list(_pairs(file, whole, number))
    if not all(old.co_flags & inspect.CO_OPTIMIZED for old, _ in pairs):
        return {}
    return {_name(old): changed for old, changed in pairs}


def _fits(codes: Codes) -> bool:
    return all(
        len(codes[_name(one.__code__)].co_freevars) == len(one.__code__.co_freevars) for one in _functions(codes)
    )


def become(codes: Codes) -> None:
    """Give the functions of a loaded module their new code."""
    for function in _functions(codes):
        function.__code__ = codes[_name(function.__code__)]


def _functions(codes: Codes) -> list[FunctionType]:
    return [found for found in _FUNCTIONS if _name(found.__code__) in codes]


def _pairs(file: Path, whole: str, number: int) -> Iterator[tuple[CodeType, CodeType]]:
    from tests.faults import random_mutants

    tree = ast.parse(whole)
    list(random_mutants.defects(tree))[number].put()
    new = compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True)
    return _differing(compile(whole, str(file), "exec", dont_inherit=True), new)


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
