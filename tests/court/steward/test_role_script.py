"""bin/role: the ledger, the delays, the quarantine, and what ends a wait."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from kingdom.base.home.places import find_data
from kingdom.base.home.roster import ROLES, general
from kingdom.court import picture
from tests.shell_roles import Court, found_court, runs
from tests.waiting import wait_until

SOON = 10.0
SHELLS = [["sh"], ["dash"], ["busybox", "sh"], ["bash", "--posix"]]
if os.environ.get("KINGDOM_CAMPAIGN") != "1":
    SHELLS = SHELLS[:1]
HUNDREDTHS = 100


class Script:
    """bin/role, run by hand."""

    def __init__(self, shell: list[str], court: Court) -> None:
        self._shell = shell
        self._court = court
        self._begun: list[subprocess.Popen[str]] = []

    def begin(self, role: str, **settings: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KINGDOM_HOME": str(self._court.places.home), **settings}
        begun = subprocess.Popen(
            [*self._shell, str(find_data() / "bin" / "role"), role],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell cannot catch what was ignored when it began, as under nohup.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        self._begun.append(begun)
        return begun

    def run(self, role: str, **settings: str) -> tuple[int, str]:
        begun = self.begin(role, **settings)
        _, said = begun.communicate(timeout=SOON)
        return begun.returncode, said

    def end(self) -> None:
        for begun in self._begun:
            if begun.poll() is None:
                os.killpg(begun.pid, signal.SIGKILL)
            begun.communicate(timeout=SOON)


@pytest.fixture
def court(home: Path, monkeypatch: pytest.MonkeyPatch) -> Court:
    return found_court(home, monkeypatch)


@pytest.fixture(params=[shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)
def script(request: pytest.FixtureRequest, court: Court) -> Iterator[Script]:
    script = Script(request.param, court)
    yield script
    script.end()


def uptime() -> int:
    return int(Path("/proc/uptime").read_text().split()[0].replace(".", ""))


def write_ledger(court: Court, streak: int, *ages: float) -> None:
    """Lives that started so many seconds ago, by pids that are long gone. The last is the latest life."""
    now = uptime()
    lines = [f"streak {streak}", *(f"{now - int(age * HUNDREDTHS)} {99000 + n}" for n, age in enumerate(ages))]
    court.places.starts("king").write_text("".join(f"{line}\n" for line in lines))


def ledger(court: Court) -> list[str]:
    """The streak and the lives."""
    lines = court.places.starts("king").read_text().splitlines()
    return [line for line in lines if not line.startswith("restarts ")]


def restarts(court: Court) -> int:
    (view,) = picture.take(court.places, ["king"], time.time(), 120.0).roles
    return view.restarts


def write_beat(court: Court, pid: int, state: str = "idle", worked: str = "false") -> None:
    heart = court.places.heartbeat("king")
    heart.parent.mkdir(parents=True, exist_ok=True)
    heart.write_text(f'{{"pid": {pid}, "role": "king", "seq": 1, "state": "{state}", "worked": {worked}}}\n')


def test_it_becomes_the_role(script: Script, court: Court) -> None:
    begun = script.begin("king")
    court.wait_for_beats("king")
    assert court.lives("king") == [begun.pid]
    words = Path(f"/proc/{begun.pid}/cmdline").read_text().split("\0")
    assert words[1:-1] == [str(court.places.home / "python"), "-P", "-m", "kingdom.king"]
    begun.terminate()
    assert begun.wait(SOON) == 0


def test_it_becomes_a_general(script: Script, court: Court) -> None:
    begun = script.begin("gen-a")
    court.wait_for_beats("gen-a")
    assert Path(f"/proc/{begun.pid}/cmdline").read_text().split("\0")[3:-1] == ["-m", "kingdom.general", "gen-a"]


@pytest.mark.parametrize(
    "role", ["", ".king", "king;ls", "../king", "King", "gen-", "gen-a/b", "gen-A", "a b", "-m", "kong"]
)
def test_what_is_no_role_is_refused(role: str, script: Script, court: Court) -> None:
    code, said = script.run(role)
    assert code == 78
    assert len(said.splitlines()) == 1


def test_a_home_that_is_not_there_is_refused(script: Script, court: Court) -> None:
    code, said = script.run("king", KINGDOM_HOME=str(court.places.home / "nowhere"))
    assert (code, said) == (78, f"king: home {court.places.home}/nowhere is not there; run kingdom init\n")


def test_a_home_named_through_a_link_is_the_folder_behind_it(script: Script, court: Court) -> None:
    link = court.places.home / "link"
    link.symlink_to(court.places.home)
    court.behave("king", "env exit=0")
    script.run("king", KINGDOM_HOME=str(link))
    assert f"KINGDOM_HOME={court.places.home.resolve()}\n" in (court.places.home / "env-king").read_text()


def test_what_nobody_wants_ends_at_once(script: Script, court: Court) -> None:
    court.places.wanted("king").write_text("down\n")
    assert script.run("king") == (0, "king: was stopped by hand; kingdom start king starts it again\n")
    assert court.lives("king") == []


def test_what_is_quarantined_stays_down(script: Script, court: Court) -> None:
    court.places.wanted("king").write_text("quarantined\n")
    code, said = script.run("king")
    assert code == 78
    assert "kingdom start king" in said
    assert court.lives("king") == []


@pytest.mark.parametrize(
    ("streak", "seconds"), [(1, "2.00"), (2, "4.00"), (5, "32.00"), (8, "256.00"), (9, "300.00"), (70, "300.00")]
)
def test_each_short_life_doubles_the_wait(streak: int, seconds: str, script: Script, court: Court) -> None:
    write_ledger(court, streak, 1.0)
    begun = script.begin("king", KINGDOM_DELAY_FIRST="100")
    assert begun.stderr is not None
    assert begun.stderr.readline() == f"king: waits {seconds} s after {streak + 1} short runs\n"
    begun.terminate()
    assert begun.wait(SOON) == 0
    assert court.lives("king") == []


def test_the_first_restart_waits_a_second_and_the_first_start_not_at_all(script: Script, court: Court) -> None:
    court.behave("king", "exit=1")
    assert script.run("king", KINGDOM_DELAY_FIRST="100") == (1, "")
    assert script.run("king", KINGDOM_DELAY_FIRST="1") == (1, "king: waits 0.01 s after a short run\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_its_sleeper(number: signal.Signals, script: Script, court: Court) -> None:
    write_ledger(court, 8, 1.0)
    begun = script.begin("king", KINGDOM_DELAY_FIRST="100")
    sleeper = wait_until(lambda: children(begun.pid), SOON, "it sleeps")[0]
    begun.send_signal(number)
    assert begun.wait(SOON) == 0
    wait_until(lambda: not runs(sleeper), SOON, "its sleeper is gone")


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def test_a_crash_loop_is_quarantined_at_its_sixth_start(script: Script, court: Court) -> None:
    court.behave("king", "exit=1")
    assert [script.run("king", KINGDOM_DELAY_FIRST="1")[0] for _ in range(6)] == [1, 1, 1, 1, 1, 78]
    assert court.places.wanted("king").read_text() == "quarantined\n"
    assert len(court.lives("king")) == 5
    assert ledger(court) == ["streak 5"], "started again, it has five lives and a long wait"


def test_lives_of_which_each_lasted_are_never_quarantined(script: Script, court: Court) -> None:
    court.behave("king", "exit=1")
    settings = {"KINGDOM_SHORT_RUN": "0"}
    assert [script.run("king", **settings) for _ in range(7)] == [(1, "")] * 7


def test_short_lives_long_ago_do_not_count(script: Script, court: Court) -> None:
    write_ledger(court, 4, 700.0, 690.0, 680.0, 670.0, 1.0)
    court.behave("king", "exit=1")
    assert script.run("king", KINGDOM_DELAY_FIRST="1")[0] == 1
    assert len(ledger(court)) == 3


@pytest.mark.parametrize(
    ("state", "worked"), [("idle", "true"), ("stopped", "false")], ids=["it worked", "it ended as asked"]
)
def test_a_long_life_ends_the_streak(state: str, worked: str, script: Script, court: Court) -> None:
    write_ledger(court, 4, 9.0, 7.0, 5.0, 3.0, 1.0)
    write_beat(court, 99004, state, worked)
    court.behave("king", "exit=1")
    assert script.run("king") == (1, "")
    assert ledger(court)[0] == "streak 0"


def test_restarts_are_counted_until_somebody_asks_it_to_stop(script: Script, court: Court) -> None:
    court.behave("king", "beat")
    for life in range(1, 5):
        begun = script.begin("king", KINGDOM_DELAY_FIRST="1")
        court.wait_for_beats("king", life=life)
        assert restarts(court) == life - 1
        begun.kill()
        begun.wait(SOON)
    write_beat(court, begun.pid, "stopped")
    begun = script.begin("king", KINGDOM_DELAY_FIRST="1")
    court.wait_for_beats("king", life=5)
    assert restarts(court) == 0


def test_a_life_that_beat_and_crashed_was_short(script: Script, court: Court) -> None:
    write_ledger(court, 1, 1.0)
    write_beat(court, 99000, "crashed")
    court.behave("king", "exit=1")
    assert script.run("king", KINGDOM_DELAY_FIRST="1")[1] == "king: waits 0.02 s after 2 short runs\n"


def test_a_role_that_is_killed_while_idle_is_never_quarantined(script: Script, court: Court) -> None:
    court.behave("king", "beat")
    for life in range(1, 9):
        begun = script.begin("king", KINGDOM_DELAY_FIRST="1")
        court.wait_for_beats("king", life=life)
        begun.kill()
        begun.wait(SOON)
    assert ledger(court)[0] == "streak 1"
    assert not court.places.wanted("king").exists()


LOADING = """\
#!/bin/sh
exec %s -c 'import kingdom.base.runtime.early, time
open("loading", "w").close()
while True: time.sleep(0.01)'
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_role_that_is_ended_while_it_loads_has_not_crashed(
    number: signal.Signals, script: Script, court: Court
) -> None:
    """As by `supervisorctl restart king`, six times in ten minutes on a busy machine."""
    (court.places.home / "python").write_text(LOADING % sys.executable)
    loading = court.places.home / "loading"
    for _ in range(6):
        loading.unlink(missing_ok=True)
        begun = script.begin("king", KINGDOM_DELAY_FIRST="100")
        wait_until(loading.exists, SOON, "it loads")
        begun.send_signal(number)
        assert begun.wait(SOON) == -number, "its launcher sees how it ended"
    streak, life, asked = ledger(court)
    assert (streak, life.split()[1], asked) == ("streak 0", str(begun.pid), f"asked {begun.pid}")
    assert not court.places.wanted("king").exists()
    assert restarts(court) == 0


def test_every_role_can_be_asked_to_end_while_it_loads() -> None:
    for row in (*ROLES.values(), general("gen-a")):
        main = find_spec(row.module if row.name != "council" else "kingdom.council.__main__")
        assert main is not None
        assert main.origin is not None
        lines = Path(main.origin).read_text().splitlines()
        ours = [line for line in lines if line.startswith(("from kingdom", "import kingdom"))]
        assert ours[0] == "import kingdom.base.runtime.early  # noqa: F401", row.module


def test_newcomers_who_found_another_at_work_did_not_crash(script: Script, court: Court) -> None:
    write_ledger(court, 0, 1.0)
    write_beat(court, os.getpid())
    court.behave("king", "exit=75")
    assert [script.run("king") for _ in range(7)] == [(75, "")] * 7


def test_lives_before_the_last_boot_do_not_count(script: Script, court: Court) -> None:
    write_ledger(court, 3, -50.0, -40.0)
    court.behave("king", "exit=1")
    code, _ = script.run("king", KINGDOM_DELAY_FIRST="1")
    assert code == 1
    assert len(ledger(court)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\0\0",
        "streak\n",
        "streak $(ls)\n",
        "12 *\n",
        "a b\n-5 3\n",
        "9" * 60 + " 1\n",
        "restarts -1\n",
        f"restarts {'9' * 60}\n",
    ],
)
def test_a_spoilt_ledger_starts_the_role(text: str, script: Script, court: Court) -> None:
    court.places.starts("king").write_text(text)
    court.behave("king", "exit=1")
    assert script.run("king", KINGDOM_DELAY_FIRST="1")[0] == 1
    assert len(ledger(court)) <= 3


def test_a_ledger_that_cannot_be_written_starts_the_role(script: Script, court: Court) -> None:
    court.places.starts("king").mkdir()
    court.behave("king", "exit=1")
    assert script.run("king") == (1, "")


def test_a_waiting_role_notices_that_its_launcher_is_gone(script: Script, court: Court, home: Path) -> None:
    write_ledger(court, 3, 1.0)
    launcher = subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            '"$@" & echo $!; wait',
            "launcher",
            *script._shell,
            str(find_data() / "bin" / "role"),
            "king",
        ],
        env={**os.environ, "KINGDOM_HOME": str(home), "KINGDOM_LAUNCHER": "supervisord", "KINGDOM_DELAY_FIRST": "20"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    waiting = int(launcher.stdout.readline())
    wait_until(lambda: children(waiting), SOON, "it sleeps")
    launcher.kill()
    launcher.communicate(timeout=SOON)
    wait_until(lambda: not runs(waiting), SOON, "it ends")
    assert court.lives("king") == []


def test_under_supervisord_it_prints_into_its_own_file(script: Script, court: Court) -> None:
    court.places.wanted("king").write_text("quarantined\n")
    assert script.run("king", KINGDOM_LAUNCHER="supervisord") == (78, "")
    assert "quarantined" in court.places.last_words("king").read_text()


def test_its_folders_are_those_of_the_home(court: Court) -> None:
    text = (find_data() / "bin" / "role").read_text()
    for path in (court.places.wanted_folder, court.places.run, court.places.logs):
        assert f"{path.relative_to(court.places.home)}" in text


def test_it_runs_the_python_it_is_given(script: Script, court: Court) -> None:
    code, said = script.run("gen-nobody", KINGDOM_HOME=str(court.places.home), KINGDOM_PYTHON=sys.executable)
    assert code == 78
    assert "gen-nobody.yaml: the file: no general named 'gen-nobody'" in said


def test_without_a_python_it_says_what_to_do(script: Script, court: Court) -> None:
    code, said = script.run("king", KINGDOM_PYTHON="/nowhere/python")
    assert code == 1
    assert said == "king: no python at /nowhere/python; run make setup, or name one with KINGDOM_PYTHON\n"
    assert len(ledger(court)) == 2, "it counts as a short run"
