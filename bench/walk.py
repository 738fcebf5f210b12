"""`python -m bench.walk [--list] [say|publish|chat|council]…`: which files of kingdom/ one message goes through.

All processes are at work already; then the first message is sent, and every function that runs in them until it has
arrived is traced. What runs while a module is imported does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, FrameType

HOUSE = Path(__file__).resolve().parent.parent
INSIDE = f"{HOUSE}/kingdom/"
IS_FUNCTION, IS_GENERATOR = 0x01, 0x20 | 0x80 | 0x200  # of code objects: inspect.CO_OPTIMIZED, CO_GENERATOR, …
FORGET, WRITE = signal.SIGRTMIN, signal.SIGRTMIN + 1
SECONDS = 150.0
COORDINATOR = """
open(os.path.join(os.environ["KINGDOM_WORKSPACE"], "done"), "w")
os.unlink(sys.argv[1])
"""
IGNITIAN = """
import time
while not os.path.exists(os.path.join(os.environ["KINGDOM_WORKSPACE"], "go")):
    time.sleep(0.01)
send("coordinator", "task_completed", "task_id: t-001\\nstatus: success\\ndeliverables: []\\n", sys.argv[1])
os.unlink(sys.argv[1])
"""
PUBLISH = """
import sys
from kingdom.mq.client import Client
with Client(sys.argv[1], timeout=20) as client:
    print("ready", flush=True)
    for line in sys.stdin:
        client.publish("walk", '{"is": "published"}')
        print("OK", flush=True)
"""


class Trace:
    """The functions that one process runs, written down when it is asked to."""

    def __init__(self) -> None:
        self._ran: Counter[tuple[str, str]] = Counter()
        self._first: dict[CodeType, int] = {}
        self._passed_on = {name: os.environ[name] for name in ("PYTHONPATH", "WALK_OUT")}

    def start(self) -> None:
        os.register_at_fork(after_in_child=self._begin)
        signal.signal(FORGET, lambda *_: self._begin())
        signal.signal(WRITE, lambda *_: self._write())
        atexit.register(self._write)
        sys.addaudithook(self._audit)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        self._begin()

    def _begin(self) -> None:
        self._ran.clear()
        Path(self._passed_on["WALK_OUT"], f"{os.getpid()}.begun").touch()

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(INSIDE) or not code.co_flags & IS_FUNCTION:
            return
        if code.co_flags & IS_GENERATOR and self._first.setdefault(code, frame.f_lasti) != frame.f_lasti:
            return  # resumed, not called
        if not _is_imported(frame):
            self._ran[code.co_filename.removeprefix(INSIDE), code.co_qualname] += 1

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and isinstance(arguments[3], dict):
            arguments[3].update(self._passed_on)  # a soldier gets an environment of named things only

    def _write(self) -> None:
        out = Path(self._passed_on["WALK_OUT"], f"{os.getpid()}.part")
        out.write_text(json.dumps([[*what, times] for what, times in self._ran.items()]))
        out.rename(out.with_suffix(".json"))


def _is_imported(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(INSIDE) and not code.co_flags & IS_FUNCTION:
            return frame.f_globals.get("__name__") != "__main__"
        frame = frame.f_back
    return False


class Walk:
    """One home, and traced processes in it."""

    def __init__(self, stack: ExitStack, root: Path) -> None:
        self.home, self._out, hook = root / "home", root / "out", root / "hook"
        self.stack = stack
        self._out.mkdir()
        hook.mkdir()
        (hook / "sitecustomize.py").write_text("from bench.walk import Trace\nTrace().start()\n")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "PYTHON"))}
        self.environment = {**clean, "KINGDOM_HOME": str(self.home), "WALK_OUT": str(self._out)}
        self.traced = {**self.environment, "PYTHONPATH": f"{hook}:{HOUSE}"}

    def start(self, *words: str, **popen: object) -> subprocess.Popen[str]:
        """Start a traced process, which ends with the walk."""
        command = [sys.executable, *words]
        process = subprocess.Popen(command, env=self.traced, cwd=HOUSE, text=True, **popen)  # type: ignore[call-overload]
        self.stack.enter_context(process)
        self.stack.callback(process.terminate)
        return process  # type: ignore[no-any-return]

    def role(self, module: str, *words: str) -> None:
        self.start("-m", f"kingdom.{module}", *words, stdout=subprocess.DEVNULL)
        self.until_idle((*words, module)[0])

    def until_idle(self, role: str) -> None:
        beat = self.home / "state" / role / "heartbeat"
        self.until(lambda: beat.exists() and b'"idle"' in beat.read_bytes(), f"{role} is idle")

    def until(self, predicate: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + SECONDS
        while not predicate():
            if time.monotonic() > give_up:
                raise TimeoutError(f"not in time: {what}")
            time.sleep(0.01)

    def signal(self, number: int, suffix: str) -> None:
        for begun in self._out.glob("*.begun"):
            if _is_alive(pid := int(begun.stem)):
                begun.unlink(missing_ok=True) if number == FORGET else None
                os.kill(pid, number)
                self.until(lambda pid=pid: (self._out / f"{pid}{suffix}").exists() or not _is_alive(pid), suffix)

    def found(self) -> Counter[tuple[str, str]]:
        """Return how often each function of each file has run since the processes were asked to forget."""
        self.signal(WRITE, ".json")
        ran: Counter[tuple[str, str]] = Counter()
        for path in self._out.glob("*.json"):
            ran.update({(file, function): times for file, function, times in json.loads(path.read_text())})
        return ran


def _is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def say(walk: Walk) -> Iterator[None]:
    kingdom = Path(sys.executable).parent / "kingdom"
    subprocess.run([kingdom, "init", walk.home], env=walk.environment, stdout=subprocess.DEVNULL, check=True)
    (walk.home / "config/system.yaml").write_text("roles: {gateway: false, worker: false}\n")
    for words in (("king",), ("general", "gen-briefing"), ("envoy",)):
        walk.role(*words)
    yield
    walk.start(str(kingdom), "say", "brief me", stdout=subprocess.DEVNULL).wait(SECONDS)
    yield


def publish(walk: Walk) -> Iterator[None]:
    mailbox = walk.home / "queue" / "mailbox"
    (mailbox / "requests").mkdir(parents=True)
    walk.role("mailbox")
    client = walk.start("-c", PUBLISH, str(mailbox), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    yield
    print(file=client.stdin, flush=True)
    assert client.stdout.readline() == "OK\n"
    yield


def chat(walk: Walk) -> Iterator[None]:
    from tests.hall.gateway.halls import Hall

    walk.home.mkdir()
    hall = Hall(walk.home, env=walk.traced)
    walk.stack.callback(hall.close)
    hall.start("gateway")
    hall.start("worker")
    sender, reader = hall.person(), hall.person()
    room = sender.room(reader)

    joined, go_on = threading.Event(), threading.Event()

    async def talk() -> None:
        async with sender.socket(room) as one, reader.socket(room) as other:
            joined.set()
            await asyncio.to_thread(go_on.wait)
            answer = await one.send(room, "hello")
            assert answer["status"] == "ACCEPTED"
            await other.wait("newMessage")

    thread = threading.Thread(target=asyncio.run, args=(talk(),))
    thread.start()
    walk.stack.callback(go_on.set)
    assert joined.wait(SECONDS)
    yield
    go_on.set()
    thread.join(SECONDS)
    yield


def council(walk: Walk) -> Iterator[None]:
    """An agent that is at work sends a message to another one, which reads it."""
    from bench.council import AGENT
    from bench.homes import bare
    from kingdom.base.home.places import find_codec
    from kingdom.council import mime
    from kingdom.court.soldier import sandbox

    programs = {"coordinator": AGENT + COORDINATOR, "ignitian": AGENT + IGNITIAN}
    can = sandbox.missing() is None
    agents = {name: {"command": [sys.executable, "-c", code], "sandbox": can} for name, code in programs.items()}
    places = bare(walk.home, council={"agents": agents, "defaults": {"worker_count": 1}})
    (walk.home / "codec.py").symlink_to(find_codec())
    walk.role("council")
    about = "task_id: t-001\ntitle: wait\nestimated_time: 1\n"
    sent = {"from_agent": "coordinator", "to_agents": "ignitian_1", "msg_type": "task_assignment"}
    (walk.home / "draft").write_text(mime.build_message(**sent, body=about))
    (walk.home / "draft").rename(places.agent("ignitian_1") / "task_assignment_1770263544123456.mime")
    work = places.workspace("council", "ignitian_1")
    walk.until(work.exists, "the agent works")
    walk.until_idle("council")
    yield
    (work / "go").touch()
    walk.until((places.workspace("council", "coordinator") / "done").exists, "the other agent has read it")
    walk.until_idle("council")
    yield


WALKS: dict[str, Callable[[Walk], Iterator[None]]] = {"say": say, "publish": publish, "chat": chat, "council": council}


def files_of(name: str) -> dict[str, list[str]]:
    """Send a message in this way. Return the files that it goes through, each with its functions, most called first."""
    with tempfile.TemporaryDirectory(prefix="walk-", ignore_cleanup_errors=True) as root, ExitStack() as stack:
        walk = Walk(stack, Path(root))
        messages = WALKS[name](walk)
        next(messages)
        walk.signal(FORGET, ".begun")
        next(messages)
        found: dict[str, list[str]] = {}
        for (file, function), _ in walk.found().most_common():
            found.setdefault(file, []).append(function)
        return found


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    words.add_argument("--list", action="store_true", help="also the files, with the functions that are called most")
    words.add_argument("ways", nargs="*", choices=[*WALKS, []], metavar="|".join(WALKS))
    given = words.parse_args()
    for name in given.ways or WALKS:
        found = files_of(name)
        print(f"{name}: {len(found)} files")
        if given.list:
            print("".join(f"  {file}: {', '.join(functions[:5])}\n" for file, functions in sorted(found.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
