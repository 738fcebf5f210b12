"""`python bench/walk.py [--tree TREE]… [--live]`: what of kingdom/ one `kingdom say` runs through.

A fresh home, `say`, then each role for as long as it has work: king, general (with its soldier), king, envoy. Every
Python process of them is traced: the files whose functions ran, the calls from one file to another, the deepest stack
of our frames, and how often each kind of record was opened. What runs while a module is imported does not count.
With --live the roles are at work already, `say` waits for its answer, and a role's start does not count; but what it
does because it hears its own writes does.

It knows commands, `python -m kingdom.<role>` and files alone, so that it can be held against any older tree.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

RECORDS = {
    "event": r"/queue/events/\w+/[^/.][^/]*\.json$",
    "task": r"/queue/tasks/\w+/[^/.][^/]*\.json$",
    "message": r"/queue/messages/\w+/[^/.][^/]*\.json$",
    "sessions": r"/state/sessions\.json$",
    "result": r"/state/results/[^/]*\.json$",
    "order": r"/(order\.json|started|stopping)$",
}
"""What is looked for among the opened paths. A result may be the soldier's or the one its general made of it;
`order` are the files between a general and its soldier."""
COLUMNS = ("files", "pairs", "distinct", "calls", "depth", *RECORDS)
HEAD = ("process", "files", "pairs", "distinct calls", "calls", "depth", *RECORDS)
WORDS = "brief me"
IS_FUNCTION, IS_GENERATOR = 0x01, 0x20 | 0x80 | 0x200  # of code objects: inspect.CO_OPTIMIZED, CO_GENERATOR, …
EXIT = os._exit
Caller = tuple[str, str]


class Trace:
    """What one process ran and opened, written down when it ends."""

    def __init__(self, tree: str) -> None:
        self._inside = f"{tree}/kingdom/"
        self._calls: Counter[tuple[Caller, Caller]] = Counter()
        self._files: set[str] = set()
        self._opened: list[str] = []
        self._first: dict[CodeType, int] = {}
        self._depth = 0
        self._is_fork = False
        self._passed_on = {name: os.environ[name] for name in ("PYTHONPATH", "WALK_OUT", "WALK_TREE")}

    def start(self) -> None:
        atexit.register(self._write)
        # A warm server forks its soldiers, and they end without any of Python's ceremonies.
        os.register_at_fork(after_in_child=self._begin_as_a_fork)
        os._exit = self._leave  # type: ignore[assignment]
        signal.signal(signal.SIGUSR2, self._forget)
        sys.addaudithook(self._audit)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._inside):
            return
        if code.co_flags & IS_GENERATOR and self._first.setdefault(code, frame.f_lasti) != frame.f_lasti:
            return  # resumed, not called
        stack = self._stack(frame)
        if stack:
            self._files.add(stack[0][0])
            self._depth = max(self._depth, len(stack))
            if len(stack) > 1 and stack[0][0] != stack[1][0]:
                self._calls[stack[1], stack[0]] += 1

    def _stack(self, frame: FrameType | None) -> list[Caller]:
        """Our frames from the innermost out; [] while a module is being imported."""
        found: list[Caller] = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(self._inside):
                is_main = frame.f_globals.get("__name__") == "__main__" and code.co_name == "<module>"
                if not code.co_flags & IS_FUNCTION and not is_main:
                    return []
                found.append((code.co_filename.removeprefix(self._inside), code.co_qualname))
            frame = frame.f_back
        return found

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if os.path.lexists(path):
                self._opened.append(path)
        elif event == "subprocess.Popen" and isinstance(arguments[3], dict):
            # A soldier gets an environment of named things only.
            arguments[3].update(self._passed_on)

    def _forget(self, *_: object) -> None:
        self._calls, self._files, self._opened, self._depth = Counter(), set(), [], 0

    def _begin_as_a_fork(self) -> None:
        self._forget()
        self._is_fork = True

    def _leave(self, code: int) -> NoReturn:
        self._write()
        EXIT(code)

    def _write(self) -> None:
        sys.setprofile(None)
        calls = [[*caller, *called, count] for (caller, called), count in self._calls.items()]
        about = {"argv": sys.orig_argv, "depth": self._depth, "files": sorted(self._files)}
        out = Path(self._passed_on["WALK_OUT"]) / f"{os.getpid()}.part"
        out.write_text(json.dumps({**about, "calls": calls, "opened": self._opened, "is_fork": self._is_fork}))
        out.rename(out.with_suffix(".json"))


def trace() -> None:
    """Called by the sitecustomize of every Python process; those that are none of the walk's are left alone."""
    words = " ".join(sys.orig_argv)
    if re.search(r"-m kingdom\.|/kingdom (?!init)", words):
        Trace(os.environ["WALK_TREE"]).start()


class Walk:
    """One home, and the processes that one event passes."""

    def __init__(self, tree: Path, scratch: Path) -> None:
        self._tree, self._home, self._out = tree, scratch / "home", scratch / "out"
        self._out.mkdir()
        hook = scratch / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(
            "from importlib.util import module_from_spec, spec_from_file_location\n"
            f"_spec = spec_from_file_location('walk', {str(Path(__file__).resolve())!r})\n"
            "_walk = module_from_spec(_spec)\n"
            "_spec.loader.exec_module(_walk)\n"
            "_walk.trace()\n"
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "PYTHON"))}
        about = {"KINGDOM_HOME": str(self._home), "PYTHONPATH": str(hook)}
        self._environment = {**clean, **about, "WALK_OUT": str(self._out), "WALK_TREE": str(tree)}
        self._run("kingdom", "init", str(self._home), cwd=scratch)
        if (tree / "kingdom/hall/gateway").is_dir():  # else the envoy would wait for the hall
            (self._home / "config/system.yaml").write_text("roles: {gateway: false, worker: false}\n")
        self._done: dict[str, list[dict[str, Any]]] = {}

    def one_by_one(self) -> dict[str, list[dict[str, Any]]]:
        self._step("say", "kingdom", "say", "--no-wait", WORDS)
        self._step("king", "python", "-m", "kingdom.king", "--once")
        (task,) = (self._home / "queue/tasks/pending").glob("*.json")
        general = json.loads(task.read_text())["target_general"]
        self._step("general", "python", "-m", "kingdom.general", general, "--once")
        self._step("king again", "python", "-m", "kingdom.king", "--once")
        self._step("envoy", "python", "-m", "kingdom.envoy", "--once")
        return self._done

    def live(self) -> dict[str, list[dict[str, Any]]]:
        """The roles wait for work already. Which general is asked comes out of the walk one by one."""
        modules = {"king": ["kingdom.king"], "general": ["kingdom.general", "gen-briefing"], "envoy": ["kingdom.envoy"]}
        roles = {name: self._start("python", "-m", *words) for name, words in modules.items()}
        for words in modules.values():
            self._wait_until_idle(words[-1].removeprefix("kingdom."))
        for process in roles.values():
            process.send_signal(signal.SIGUSR2)
        say = self._start("kingdom", "say", WORDS)
        say.wait(60)
        for process in roles.values():
            process.terminate()
            process.wait(30)
        self._gather({say.pid: "say", **{process.pid: name for name, process in roles.items()}})
        return self._done

    def _wait_until_idle(self, role: str) -> None:
        until = time.monotonic() + 60
        while b'"idle"' not in self._heartbeat(role):
            if time.monotonic() > until:
                raise TimeoutError(f"{role} does not beat")
            time.sleep(0.05)

    def _heartbeat(self, role: str) -> bytes:
        path = self._home / "state" / role / "heartbeat"
        return path.read_bytes() if path.exists() else b""

    def _step(self, name: str, *words: str) -> None:
        process = self._start(*words)
        if process.wait(120):
            raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}")
        self._gather({process.pid: name})

    def _gather(self, names: dict[int, str]) -> None:
        for path in sorted(self._out.glob("*.json")):
            found = json.loads(path.read_text())
            name = names.get(int(path.stem), "soldier" if "kingdom.soldier" in found["argv"] else "another")
            self._done.setdefault(name, []).append(found)
            path.unlink()

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [str(self._tree / ".venv/bin" / words[0]), *words[1:]]
        return subprocess.Popen(command, env=self._environment, cwd=self._home, stdout=subprocess.DEVNULL)

    def _run(self, *words: str, cwd: Path) -> None:
        command = [str(self._tree / ".venv/bin" / words[0]), *words[1:]]
        subprocess.run(command, env=self._environment, cwd=cwd, stdout=subprocess.DEVNULL, check=True)


def figures(traces: list[dict[str, Any]]) -> dict[str, int]:
    calls = [call for found in traces for call in found["calls"]]
    opened = [path for found in traces for path in found["opened"]]
    return {
        "files": len({name for found in traces for name in found["files"]}),
        "pairs": len({(call[0], call[2]) for call in calls}),
        "distinct": len({tuple(call[:4]) for call in calls}),
        "calls": sum(call[4] for call in calls),
        "depth": max(found["depth"] for found in traces),
        **{name: sum(bool(re.search(shape, path)) for path in opened) for name, shape in RECORDS.items()},
    }


def table(tree: Path, done: dict[str, list[dict[str, Any]]]) -> str:
    modules = sum(path.stat().st_size > 0 for path in (tree / "kingdom").rglob("*.py"))
    rows = {**done, "together": [found for traces in done.values() for found in traces]}
    found = {name: figures(traces) for name, traces in rows.items()}
    lines = [f"{tree}: {modules} modules with code in them", "", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {name} | {' | '.join(str(row[column]) for column in COLUMNS)} |" for name, row in found.items()]
    return "\n".join([*lines, ""])


def called_files(done: dict[str, list[dict[str, Any]]]) -> str:
    """List the files by how often others call into them, each with the functions that are called most."""
    traces = [found for traces in done.values() for found in traces]
    files: dict[str, Counter[str]] = {name: Counter() for found in traces for name in found["files"]}
    for found in traces:
        for _, _, file, function, count in found["calls"]:
            files[file][function] += count
    lines = [
        f"{functions.total():5} {file}: {', '.join(f'{name} {count}' for name, count in functions.most_common(5))}"
        for file, functions in sorted(files.items(), key=lambda item: -item[1].total())
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--tree", type=Path, action="append", help="a checkout with its own .venv; may be repeated")
    words.add_argument("--live", action="store_true", help="roles that are at work already, beside each other")
    words.add_argument(
        "--list", action="store_true", help="also how often each file is called from others, and for what"
    )
    given = words.parse_args()
    for tree in given.tree or [Path(__file__).parent.parent]:
        with tempfile.TemporaryDirectory(prefix="kingdom-walk-", ignore_cleanup_errors=True) as scratch:
            walk = Walk(tree.resolve(), Path(scratch))
            done = walk.live() if given.live else walk.one_by_one()
            print(table(tree.resolve(), done))
            if given.list:
                print(called_files(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
