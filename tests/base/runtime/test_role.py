"""Being a role: one at a time, a heartbeat after every turn, a clean end, and no end for what passes.

The king stands for all of them: all run the same loop. Where a small job will do, one is written here.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import Lock
from kingdom.base.home.code import installed_code
from kingdom.base.home.places import Places
from kingdom.base.runtime.heartbeat import HEARTBEAT_BYTES, Heartbeat
from tests.fixtures import Clock, event, founded, here, install, put, write
from tests.waiting import SOON, stays, wait_until

A_WHILE = 0.3
OFTEN = "concurrency: {max_soldiers: 1000}\nintervals: {event_check_seconds: 0.3}\n"
"""He says that he is at rest at the turn after his last work."""

JOB = """
import os
import threading
from kingdom.base.errors import Usage
from kingdom.base.runtime import role

class Job:
    def __init__(self, services):
        self.services = services

    def folders(self):
        return dict()

    def turn(self, arrivals):
        return role.Turn(worked=False, wait=600)

    def reload(self, services):
        self.services = services

    def close(self):
        pass

{job}

raise SystemExit(role.run(role.RoleSpec("king", "king"), build))
"""


class KingRig:
    """A home, and the kings that a test starts in it."""

    def __init__(self, home: Path) -> None:
        self.home, self.places = home, founded(home)
        self.started: list[subprocess.Popen[str]] = []
        install(home, "gen-pr", subscribes=["github.pr.*"])
        self.configure("king", "concurrency: {max_soldiers: 1000}\n")

    def configure(self, name: str, text: str) -> None:
        replace(self.places.config / f"{name}.yaml", text)

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return self.run("-m", "kingdom.king", *words, **env)

    def start_job(self, job: str, *descriptors: int) -> subprocess.Popen[str]:
        """Start a king whose job is the given one."""
        return self.run("-c", JOB.format(job=job), descriptors=descriptors)

    def run(self, *words: str, descriptors: tuple[int, ...] = (), **env: str) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
        king = subprocess.Popen(
            [sys.executable, *words],
            env={**clean, "KINGDOM_HOME": str(self.home), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
        )
        self.started.append(king)
        return king

    def start_idle(self, **env: str) -> subprocess.Popen[str]:
        """Start a king and wait until it is idle."""
        king = self.start(**env)
        self.until(lambda: self.heartbeat()["pid"] == king.pid and self.is_idle(), "a king at rest")
        return king

    def until(self, seen: Callable[[], object], what: str) -> None:
        def safely() -> object:
            try:
                return seen()
            except (FileNotFoundError, ValueError, KeyError):
                return False

        folders = (self.places.folder("events", "dispatched"), self.places.folder("events", "dead"), self.places.logs)
        wait_until(safely, SOON, what, folders)

    def heartbeat(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.places.heartbeat("king").read_text())
        return record

    def is_idle(self) -> bool:
        return bool(self.heartbeat()["state"] == "idle")

    def log(self) -> str:
        return self.places.role_log("king").read_text()

    def logged(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.log().count(text) >= times, f"{text!r} in the log")

    def dispatch(self, name: str, **fields: Any) -> None:
        """Put an event and wait until it is dispatched."""
        put(self.home, "events", "pending", **event(name, **fields))
        self.dispatched(name)

    def dispatched(self, name: str) -> None:
        self.until(lambda: name in here(self.home, "events", "dispatched"), f"{name} dispatched")

    def close(self) -> None:
        for king in self.started:
            king.kill()
            king.communicate()


def ended(king: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = king.communicate(timeout=SOON)
    return king.returncode, said


def replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    draft.chmod(0o600)
    os.replace(draft, path)


@pytest.fixture
def kings(home: Path) -> Iterator[KingRig]:
    kings = KingRig(home)
    yield kings
    kings.close()


@pytest.fixture(scope="module")
def running_king(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KingRig, subprocess.Popen[str]]]:
    """One king for all tests that leave it as it was: idle."""
    kings = KingRig(tmp_path_factory.mktemp("home"))
    kings.home.chmod(0o700)
    kings.configure("king", OFTEN)
    yield kings, kings.start_idle()
    kings.close()


@pytest.fixture
def shared(running_king: tuple[KingRig, subprocess.Popen[str]]) -> Iterator[KingRig]:
    kings, king = running_king
    yield kings
    assert king.poll() is None, kings.log()
    kings.until(kings.is_idle, "rest again")


def test_arrivals_wake_it_at_once(kings: KingRig) -> None:
    kings.configure("king", "intervals: {event_check_seconds: 3600}\n")
    kings.start_idle()
    kings.dispatch("evt-arrives")
    kings.until(lambda: kings.heartbeat()["worked"], "its work shown")


def test_polling_alone_must_do_and_does(kings: KingRig) -> None:
    kings.configure("system", "wake: poll\n")
    kings.configure("king", "intervals: {event_check_seconds: 0.1}\n")
    kings.start_idle()
    kings.dispatch("evt-1")


@pytest.mark.parametrize(("folder", "polls"), [("state", None), ("nowhere", True)])
def test_a_role_that_cannot_watch_its_folders_says_so(kings: KingRig, folder: str, polls: bool | None) -> None:
    kings.start_job(
        f"""
class Watching(Job):
    def folders(self):
        return {{self.services.places.home / "{folder}": ()}}

build = Watching
"""
    )
    kings.until(kings.is_idle, "a king at rest")
    assert kings.heartbeat().get("polls") is polls


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_when_told_to(kings: KingRig, number: signal.Signals) -> None:
    king = kings.start_idle()
    king.send_signal(number)
    assert ended(king) == (0, "")
    assert (kings.heartbeat()["state"], kings.heartbeat()["pid"]) == ("stopped", king.pid)
    assert kings.log().endswith("king: stops\n")


LAUNCHED = {"KINGDOM_LAUNCHER": "supervisord"}


@pytest.mark.parametrize(
    ("env", "wanted", "watched", "code"),
    [
        pytest.param(LAUNCHED, "up", True, 0, id="the chamberlain starts it again"),
        pytest.param(LAUNCHED, "up", False, 1, id="the chamberlain does not run: the launcher starts it again"),
        pytest.param(LAUNCHED, "down", False, 0, id="a person has stopped it"),
        pytest.param({}, "up", False, 0, id="a person has started it"),
    ],
)
def test_ended_though_it_should_run_it_leaves_a_code_by_which_somebody_starts_it_again(
    kings: KingRig, env: dict[str, str], wanted: str, watched: bool, code: int
) -> None:
    chamberlain = Lock(kings.places.lock("chamberlain"), "chamberlain")
    king = kings.start_idle(**env)
    if watched:
        chamberlain.acquire()
    make_folder(kings.places.wanted("king").parent)
    kings.places.wanted("king").write_text(f"{wanted}\n")
    king.terminate()
    assert ended(king) == (code, "")
    assert kings.heartbeat()["state"] == "stopped"
    chamberlain.release()


def test_told_to_end_in_the_middle_of_its_work_it_finishes_what_it_began(kings: KingRig) -> None:
    for number in range(150):
        put(kings.home, "events", "pending", **event(f"evt-{number}"))
    king = kings.start()
    kings.until(lambda: here(kings.home, "events", "dispatched"), "the first one")
    king.terminate()
    assert ended(king)[0] == 0
    done = here(kings.home, "events", "dispatched")
    assert len(done) == len(here(kings.home, "tasks", "pending")) == len(here(kings.home, "messages", "pending"))
    assert len(done) + len(here(kings.home, "events", "pending")) == 150
    assert os.listdir(kings.places.scratch("king")) == []


def test_once_is_until_nothing_is_left(kings: KingRig) -> None:
    put(kings.home, "events", "pending", **event("evt-1"))
    half = kings.places.folder("events", "pending") / "half.json"
    half.write_text('{"id": ')
    os.utime(half, (time.time() - 1.5, time.time() - 1.5))
    assert ended(kings.start("--once")) == (0, "")
    assert here(kings.home, "events", "dispatched") == ["evt-1"]
    assert here(kings.home, "events", "dead") == ["half"], "once it was clear that nobody is writing it"


SLOW_CLOCK = """
import signal

class Timed(Job):
    def turn(self, arrivals):
        armed, _ = signal.setitimer(signal.ITIMER_REAL, 5000)
        self.services.log.info("armed anew" if 0 < armed < 1000 else "not armed")
        return role.Turn(worked=False, wait=0)

build = Timed
"""


def test_the_timer_of_the_kernel_is_armed_anew_in_every_turn(kings: KingRig) -> None:
    kings.start_job(SLOW_CLOCK)
    kings.logged("armed", times=3)
    assert "not armed" not in kings.log()


LISTENING = """
class Listening(Job):
    def __init__(self, services):
        super().__init__(services)
        self.told = []
        services.alarm.add({socket})
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while word := os.read({for_thread}, 1):
            self.told.append(word.decode())
            self.services.alarm.ring()

    def turn(self, arrivals):
        try:
            self.told.append(os.read({socket}, 1).decode())
        except BlockingIOError:
            pass
        while self.told:
            self.services.log.info(f"was told {{self.told.pop(0)}}")
        return super().turn(arrivals)

build = Listening
"""


@pytest.mark.parametrize("wake", ["inotify", "poll"])
def test_a_byte_on_a_socket_and_a_thread_wake_it_at_once(kings: KingRig, wake: str) -> None:
    """At once: before the 30 s are over that a loop sleeps at most."""
    kings.configure("system", f"wake: {wake}\n")
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    ours.setblocking(False)
    with ours, theirs:
        kings.start_job(LISTENING.format(socket=ours.fileno(), for_thread=reader), ours.fileno(), reader)
        kings.until(kings.is_idle, "sleep")
        theirs.send(b"a")
        kings.logged("was told a")
        os.write(writer, b"b")
        kings.logged("was told b")
        kings.configure("system", f"wake: {'poll' if wake == 'inotify' else 'inotify'}\n")
        kings.started[0].send_signal(signal.SIGUSR1)
        kings.logged("took over")
        theirs.send(b"c")
        os.write(writer, b"d")
        kings.logged("was told c")
        kings.logged("was told d")
        os.close(reader)
        os.close(writer)
        kings.started[0].terminate()
        assert ended(kings.started[0]) == (0, "")


def test_a_second_one_leaves_and_names_the_first(
    shared: KingRig, running_king: tuple[KingRig, subprocess.Popen[str]]
) -> None:
    code, said = ended(shared.start())
    assert code == 75
    assert f"another king holds {shared.places.lock('king')} (pid {running_king[1].pid})" in said
    assert said.count("\n") == 1
    assert shared.heartbeat()["pid"] == running_king[1].pid


def test_while_another_program_plays_its_part_it_stands_by_and_says_so_once(kings: KingRig) -> None:
    heartbeat = kings.places.heartbeat("king")
    heartbeat.parent.mkdir(parents=True, exist_ok=True)
    heartbeat.write_text("alive\n")
    king = kings.start()
    kings.logged(f"stands by: another program writes the heartbeat {heartbeat}")
    os.utime(heartbeat)
    king.terminate()
    assert ended(king) == (0, "")
    assert kings.log().count("stands by") == 1
    assert heartbeat.read_text() == "alive\n"
    os.utime(heartbeat, (1, 1))
    assert kings.start_idle().poll() is None, "the other one has gone silent"


def test_one_whose_lock_was_replaced_stops_writing_and_leaves(kings: KingRig) -> None:
    old = kings.start_idle()
    kings.places.lock("king").unlink()
    new = kings.start_idle()
    put(kings.home, "events", "pending", **event("evt-1"))
    code, said = ended(old)
    assert code == 75
    assert "was replaced while this king ran; it stops writing" in said
    kings.dispatched("evt-1")
    assert len(here(kings.home, "tasks", "pending")) == 1
    kings.until(lambda: kings.heartbeat()["pid"] == new.pid, "the new one's heartbeat")
    stays(lambda: kings.heartbeat()["pid"] == new.pid, A_WHILE, "the new one's heartbeat alone")


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("config/king.yaml", "slack: red\n", "king.yaml:1: slack: "),
        ("config/system.yaml", "timezone: Mars/Base\n", "system.yaml: timezone: there is no time zone 'Mars/Base'"),
        ("config/system.yaml", "wake: [", "system.yaml:"),
    ],
)
def test_what_it_cannot_start_with_is_told_in_a_line(kings: KingRig, file: str, text: str, told: str) -> None:
    replace(kings.home / file, text)
    code, said = ended(kings.start())
    assert code == 78
    assert told in said
    assert said.count("\n") == 1
    assert told in kings.log()
    assert kings.heartbeat()["state"] == "stopped"


def test_what_has_no_effect_is_named_and_stops_nobody(kings: KingRig) -> None:
    replace(kings.home / "config/king.yaml", "slack: {default_channel: one}\npetition: {enabled: true}\n")
    replace(kings.home / ".env", "A=1\nno setting\n")
    (kings.home / ".env").chmod(0o600)
    king = kings.start_idle()
    kings.logged("king.yaml: ignored unknown keys: petition (line 2)")
    kings.logged(".env: ignored lines that do not read NAME=value: 2")
    replace(kings.home / "config/king.yaml", "slack: {default_channel: one, chanel: two}\n")
    king.send_signal(signal.SIGUSR1)
    kings.logged("king.yaml: ignored unknown keys: slack.chanel (line 1)")


def test_a_home_that_is_none_is_told_in_a_line(kings: KingRig) -> None:
    code, said = ended(kings.start(KINGDOM_HOME=str(kings.home / "nowhere")))
    assert (code, said.count("\n")) == (78, 1)
    assert "kingdom init" in said


def test_new_configuration_is_taken_over_and_a_broken_one_is_not(kings: KingRig) -> None:
    kings.configure("king", "slack: {default_channel: one}\n")
    king = kings.start_idle()

    def change(text: str, told: str) -> None:
        kings.configure("king", text)
        king.send_signal(signal.SIGUSR1)
        kings.logged(told)

    change("slack: [half", "keeps its old configuration")
    kings.dispatch("evt-1")
    change("slack: {default_channel: two}\n", "took over new configuration")
    kings.dispatch("evt-2")
    messages = [json.loads(path.read_text()) for path in kings.places.folder("messages", "pending").glob("*.json")]
    assert sorted(message["channel"] for message in messages) == ["one", "two"]
    assert kings.log().count("keeps its old configuration") == 1
    replace(kings.home / ".env", "A_TOKEN=canary-123\n")
    king.send_signal(signal.SIGUSR1)
    kings.logged("took over", times=2)
    put(kings.home, "events", "pending", **event("evt-3", "says.canary-123"))
    kings.logged("[hidden]")
    assert "canary" not in kings.log() + kings.places.events_log.read_text(), "secrets that came later are hidden too"
    assert king.poll() is None


DEFECTIVE = """
class Clumsy(Job):
    def __init__(self, services):
        if {fails_at_once}:
            raise ValueError("canary-123 at once")
        super().__init__(services)

    def turn(self, arrivals):
        self.services.log.info("has done half of it")
        raise ValueError("canary-123 is what it died of")

build = Clumsy
"""


@pytest.mark.parametrize(
    ("fails_at_once", "told"), [(False, "[hidden] is what it died of"), (True, "[hidden] at once")]
)
def test_a_defect_is_told_with_its_traceback_and_without_secrets(
    kings: KingRig, fails_at_once: bool, told: str
) -> None:
    replace(kings.home / ".env", "A_TOKEN=canary-123\n")
    code, said = ended(kings.start_job(DEFECTIVE.format(fails_at_once=fails_at_once)))
    assert (code, said) == (1, f"king: crashed; the traceback is in {kings.places.role_log('king')}\n")
    assert "crashed: Traceback (most recent call last)" in kings.log()
    assert told in kings.log()
    assert fails_at_once or "has done half of it" in kings.log(), "what the turn had to say is not lost"
    logs = "".join(path.read_text() for path in kings.places.logs.glob("*.log"))
    assert "canary" not in logs + said


UNFIT = """
def build(services):
    raise Usage(message="canary-123 is no good")
"""


def test_why_it_does_not_start_is_told_without_secrets(kings: KingRig) -> None:
    replace(kings.home / ".env", "A_TOKEN=canary-123\n")
    assert ended(kings.start_job(UNFIT)) == (2, "king: [hidden] is no good\n")
    assert "does not start: [hidden] is no good" in kings.log()
    assert kings.heartbeat()["state"] == "stopped"


TALKATIVE = """
class Talkative(Job):
    def turn(self, arrivals):
        self.services.log.info(f"writes for {self.services.disk.durability} with {len(self.services.secrets)} secrets")
        return super().turn(arrivals)

build = Talkative
"""


def test_what_files_say_is_taken_over_and_the_launcher_is_not(kings: KingRig) -> None:
    kings.configure("system", "launcher: tmux\n")
    king = kings.start_job(TALKATIVE)
    kings.logged("writes for power with 0 secrets")
    replace(kings.home / ".env", "A_TOKEN=canary-123\n")
    kings.configure("system", "launcher: supervisord\ndurability: process\n")
    king.send_signal(signal.SIGUSR1)
    kings.logged("took over new configuration; launcher takes effect at the next `kingdom up`")
    kings.logged("writes for process with 1 secrets")


def test_how_it_wakes_is_taken_over(kings: KingRig) -> None:
    """The periods are longer than anybody waits here: what happens, happens because something woke it."""
    intervals = "{event_check_seconds: 600, result_check_seconds: 600, schedule_check_seconds: 600}"
    kings.configure("king", f"intervals: {intervals}\n")
    kings.configure("system", "wake: poll\n")
    king = kings.start_idle()
    kings.configure("system", "wake: inotify\n")
    king.send_signal(signal.SIGUSR1)
    kings.logged("took over")
    kings.dispatch("evt-1")
    king.terminate()
    assert ended(king) == (0, ""), "and signals still wake it"


FOLLOWING = """
class Following(Job):
    def folders(self):
        return {self.services.places.home / self.services.config["slack"]["default_channel"]: ()}

    def turn(self, arrivals):
        self.services.log.info(f"arrived: {sorted(name for names in (arrivals or {}).values() for name in names)}")
        return super().turn(arrivals)

build = Following
"""


def test_the_folders_that_it_watches_are_taken_over(kings: KingRig) -> None:
    for name in ("one", "two"):
        (kings.home / name).mkdir()
    kings.configure("king", "slack: {default_channel: one}\n")
    king = kings.start_job(FOLLOWING)
    kings.until(kings.is_idle, "sleep")
    kings.configure("king", "slack: {default_channel: two}\n")
    king.send_signal(signal.SIGUSR1)
    kings.logged("took over")
    (kings.home / "two" / "a.json").touch()
    kings.logged("['a.json'")


REWRITING = """
class Rewriting(Job):
    def folders(self):
        return {self.services.places.home / "shared": ()}

    def turn(self, arrivals):
        if not (self.services.places.home / "shared/a.json").exists():
            self.services.disk.rewrite(self.services.places.home / "shared/a.json", b"{}")
            return role.Turn(worked=True, wait=0)
        self.services.log.info(f"arrived: {sorted(name for names in (arrivals or {}).values() for name in names)}")
        return super().turn(arrivals)

build = Rewriting
"""


def test_a_file_that_it_has_rewritten_itself_wakes_it_when_another_rewrites_it_later(kings: KingRig) -> None:
    (kings.home / "shared").mkdir()
    kings.start_job(REWRITING)
    kings.until(kings.is_idle, "sleep")
    kings.until(
        lambda: replace(kings.home / "shared/a.json", "{}") or "arrived: ['a.json'" in kings.log(), "it was woken"
    )


def test_a_missing_folder_is_no_end(shared: KingRig) -> None:
    folder = shared.places.folder("events", "pending")
    folder.rmdir()
    shared.until(lambda: shared.heartbeat()["state"] == "degraded", "it shows as degraded")
    before = shared.heartbeat()["seq"]
    shared.until(lambda: shared.heartbeat()["seq"] > before, "it tries again")
    assert shared.log().count("a turn failed and will be repeated") == 1, "what has been told once is known"
    folder.mkdir()
    shared.until(shared.is_idle, "rest again")
    shared.dispatch("evt-after-the-folder-came-back")


def test_a_full_disk_is_no_end_and_the_heartbeat_goes_on(kings: KingRig) -> None:
    """No file may grow beyond what a heartbeat takes: what a full disk is to a writer."""
    king = kings.start_idle()
    kings.until(lambda: kings.log(), "a word")
    resource.prlimit(king.pid, resource.RLIMIT_FSIZE, (HEARTBEAT_BYTES, resource.RLIM_INFINITY))
    put(kings.home, "events", "pending", **event("evt-1", payload={"long": "x" * 1000}))
    kings.until(lambda: kings.heartbeat()["state"] == "degraded", "it shows as degraded")
    before = kings.heartbeat()["seq"]
    kings.until(lambda: kings.heartbeat()["seq"] > before, "the next heartbeat")
    resource.prlimit(king.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    kings.dispatched("evt-1")
    kings.until(lambda: kings.heartbeat()["state"] != "degraded", "it shows as well again")
    assert len(here(kings.home, "tasks", "pending")) == len(here(kings.home, "messages", "pending")) == 1
    assert os.listdir(kings.places.scratch("king")) == []
    for line in kings.places.events_log.read_text().splitlines()[1:]:
        assert line.startswith("{"), "at most torn, never run together"


def test_configuration_that_could_not_be_read_is_read_again_without_another_change(kings: KingRig) -> None:
    kings.configure("king", OFTEN)
    kings.start_idle()
    kings.until(lambda: kings.log(), "a word")
    kings.configure("king", f"{OFTEN}slack: {{default_channel: two}}\n")
    fd = os.open(kings.places.config / "king.yaml", os.O_RDWR)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        kings.logged("keeps its old configuration")
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)
    kings.logged("took over new configuration")


def test_a_damaged_queue_makes_no_loop(kings: KingRig) -> None:
    kings.places.own("king").mkdir()
    write(kings.places.own("king") / "schedule-sent.json", {"gen-x:daily": {"handled": "never"}})
    (kings.places.own("king") / "task-seq").write_bytes(b"\xff")
    (kings.places.own("king") / "done.idx").write_bytes(b"\0\xff\n")
    king = kings.start_idle()
    kings.dispatch("evt-1")
    assert king.poll() is None


def test_a_heartbeat_is_one_record_of_fixed_size(home: Path) -> None:
    heartbeat = Heartbeat(Places(home), name := "gen-" + "x" * 60, Clock())
    for state in ("starting", "working", "idle", "degraded"):
        heartbeat.write(state, worked=state == "working")
        data = Places(home).heartbeat(name).read_bytes()
        assert len(data) == HEARTBEAT_BYTES
        assert json.loads(data)["state"] == state
    assert json.loads(data) == {
        "pid": os.getpid(),
        "role": name,
        "seq": 4,
        "state": "degraded",
        "time": "2026-02-07T10:00:00Z",
        "worked": True,
        "code": installed_code(),
    }


def test_a_heartbeat_says_the_same_once_a_second(home: Path) -> None:
    clock = Clock()
    heartbeat = Heartbeat(Places(home), "gen-x", clock)

    def seq(state: str, worked: bool = False) -> int:
        heartbeat.write(state, worked)
        written: int = json.loads(Places(home).heartbeat("gen-x").read_bytes())["seq"]
        return written

    assert [seq("idle"), seq("idle"), seq("idle", worked=True), seq("working"), seq("working")] == [1, 1, 2, 3, 3]
    clock.pass_(1)
    assert seq("working") == 4


LEAVES_NOTHING = """
import atexit, signal, sys
atexit.register(lambda: print("rings", signal.set_wakeup_fd(-1), file=sys.stderr))
build = Job
"""


def test_a_signal_after_its_end_rings_nothing(kings: KingRig) -> None:
    king = kings.start_job(LEAVES_NOTHING)
    kings.until(kings.is_idle, "sleep")
    king.terminate()
    assert ended(king) == (0, "rings -1\n")


UNDER_SUPERVISORD = """
import os, signal, subprocess, sys
launcher = {"KINGDOM_LAUNCHER": "supervisord", "KINGDOM_LAUNCHER_PID": str(os.getpid())}
subprocess.Popen([sys.executable, "-m", "kingdom.king"], env={**os.environ, **launcher})
signal.pause()
"""


def test_it_ends_when_its_supervisord_is_killed(kings: KingRig) -> None:
    launcher = kings.run("-c", UNDER_SUPERVISORD)
    kings.until(kings.is_idle, "sleep")
    king = kings.heartbeat()["pid"]
    launcher.kill()
    try:
        kings.until(lambda: kings.heartbeat()["state"] == "stopped", "its end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(king, signal.SIGKILL)


def test_it_does_not_begin_when_its_supervisord_is_gone(kings: KingRig) -> None:
    gone = {"KINGDOM_LAUNCHER": "supervisord", "KINGDOM_LAUNCHER_PID": str(2**22 + 1)}
    assert ended(kings.start(**gone)) == (0, "")
    assert not kings.places.heartbeat("king").exists()


TAKES_IN = """
from kingdom.base.home import schemas

class Taking(Job):
    def turn(self, arrivals):
        before = schemas._compiled.cache_info().misses
        schemas._compiled("event", True)
        self.services.log.info(f"compiled {schemas._compiled.cache_info().misses - before} now")
        return super().turn(arrivals)

raise SystemExit(role.run(role.RoleSpec("king", "king", takes_in=("event",)), Taking))
"""


def test_the_schemas_of_what_it_takes_in_are_compiled_before_its_first_turn(kings: KingRig) -> None:
    kings.start_job(TAKES_IN)
    kings.logged("compiled 0 now")


def test_a_general_that_nobody_names_is_refused_in_a_line(kings: KingRig) -> None:
    code, said = ended(kings.run("-m", "kingdom.general", "--once"))
    assert (code, said) == (78, "which general? python -m kingdom.general gen-briefing\n")
