"""What people see in a window: what needs them first, within its width, and in colours only where those are wanted."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from kingdom.base.program import screen
from kingdom.base.program.screen import Column, Line, Part, Section, Table, Window
from kingdom.base.times import stamp
from kingdom.base.words import width
from tests.cli.conftest import Terminal
from tests.waiting import SOON, wait_until

ESCAPE = "\033"
QUESTION = "PROJ-17 can be mended in the cart or in the tax table. Which one shall I change? 어느 쪽을 고칠까요?"
SIZES = [(80, 24), (60, 20), (140, 40)]


@pytest.fixture
def at_work(terminal: Terminal) -> Terminal:
    """A question, a failure, work under way and work that waits."""
    now = time.time()
    places = terminal.places
    terminal.task("completed", "task-20261118-001", outcome="failed", target_general="gen-pr")
    places.result("task-20261118-001").write_text(json.dumps({"error": "3 of 214 tests failed " + "and more " * 20}))
    terminal.task("completed", "task-20261118-002", outcome="needs_human")
    places.checkpoint("task-20261118-002").write_text(json.dumps({"target_general": "gen-pr", "question": QUESTION}))
    terminal.task("in_progress", "task-20261118-003", type="github.pr.mentioned", repo="acme/shop")
    row = {"task_id": "task-20261118-003", "soldier": "soldier-1", "started_at": stamp(now - 65), "pid": 1}
    places.sessions.write_text(json.dumps([row]))
    later = {"not_before": stamp(now + 1500), "waits_because": "the account's limit is used up"}
    terminal.task("in_progress", "task-20261118-004", target_general="gen-test", **later)
    waits = terminal.task("pending", "task-20261118-005", target_general="gen-gone")
    os.utime(waits, (now - 300, now - 300))
    return terminal


def in_window(columns: int, rows: int, *words: str, **environment: str) -> str:
    """What a command writes to a terminal of this size."""
    with Session(columns, rows, *words, **environment) as session:
        return session.to_the_end()


class Session:
    """A command in a terminal of its own."""

    def __init__(self, columns: int, rows: int, *words: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        code = "import sys; from kingdom.cli.main import main; sys.exit(main(sys.argv[1:]))"
        unset = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
        base = {name: value for name, value in os.environ.items() if name not in unset}
        self.child = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**base, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self._master)

    def read(self) -> bool:
        """Read what has been written; whether there may be more."""
        try:
            part = os.read(self._master, 1 << 16)
        except OSError:
            return False
        self.seen += part.decode()
        return bool(part)

    def to_the_end(self) -> str:
        while self.read():
            pass
        return self.seen.replace("\r\n", "\n")

    def until(self, text: str, times: int = 1) -> None:
        while self.seen.count(text) < times:
            assert self.read(), f"{text!r} did not come: {self.seen}"


def bare(text: str) -> str:
    return re.sub(r"\033\[[0-9;]*m", "", text)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_status_fits_the_window(size: tuple[int, int], at_work: Terminal) -> None:
    columns, rows = size
    shown = bare(in_window(columns, rows, "status"))
    lines = shown.rstrip("\n").split("\n")
    assert ESCAPE not in shown
    assert max(width(line) for line in lines if " say --answer " not in line) <= columns
    assert sum(max(1, -(-width(line) // columns)) for line in lines) < rows, shown
    titles = ["needs you", "failed", "running", "waiting"]
    at = [next(number for number, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert at == sorted(at)
    assert re.search(r'\n    \S+ say --answer task-20261118-002 "..."\n', shown), "a line to copy"
    assert "task-20261118-003" in shown
    assert "github.pr" in shown
    assert "gen-gone" in shown


def test_a_wide_window_shows_all_that_a_narrow_one_leaves_out(at_work: Terminal) -> None:
    wide = bare(in_window(200, 60, "status"))
    assert QUESTION in wide
    assert "last heartbeat" in wide
    assert re.search(r"acme/shop  for \d+ (s|min)", wide)
    narrow = bare(in_window(60, 60, "status"))
    assert "last heartbeat" not in narrow
    assert "restarts" in narrow
    assert re.search(r"restarts +pid +last heartbeat", bare(in_window(61, 60, "status")))


def test_what_does_not_fit_gives_way_and_goes_on_under_its_own_beginning(at_work: Terminal) -> None:
    unwanted = {"status": "discarded", "discarded_reason": "nobody takes it " * 10}
    at_work.event("completed", "evt-1", type=f"shop.{'long.' * 9}end", **unwanted)
    for columns, shown in ((60, r"shop\.long.*… +\d+ [a-z]+$"), (100, "nobody takes it")):
        lines = bare(in_window(columns, 24, "events")).splitlines()
        assert max(map(width, lines)) <= columns
        assert re.search(shown, lines[1]), lines
    first, second, *_ = bare(in_window(60, 24, "why", "evt-1")).splitlines()
    assert len(second) - len(second.lstrip()) == first.index("evt-1") + 2


WORDS = [("status",), ("why", "task-20261118-001"), ("doctor",), ("tasks",), ("events",)]
PLAIN = [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}]


@pytest.mark.parametrize(
    ("words", "environment"), [*((words, {}) for words in WORDS), *zip(WORDS, [*PLAIN, *PLAIN], strict=False)]
)
def test_colours_stand_only_where_they_are_wanted(
    words: tuple[str, ...], environment: dict[str, str], at_work: Terminal
) -> None:
    at_work.event("completed", "evt-1", status="discarded")
    shown = in_window(80, 24, *words, **environment)
    assert (ESCAPE in shown) == (not environment), shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("words", [("status",), ("why", "task-20261118-001"), ("doctor",), ("tasks",)])
def test_nothing_but_text_is_piped(words: tuple[str, ...], at_work: Terminal) -> None:
    said = at_work(*words).out
    assert ESCAPE not in said
    assert "…" not in "".join(line for line in said.splitlines() if QUESTION[:20] in line)


def test_colours_tell_what_is_wrong(at_work: Terminal) -> None:
    shown = in_window(100, 60, "status")
    assert "\033[1;31mnot running" in shown
    assert "\033[1;33mneeds you" in shown
    assert "\033[1;31mfailed" in shown


def test_watch_has_a_screen_of_its_own_and_gives_it_back(at_work: Terminal) -> None:
    with Session(60, 12, "status", "--watch") as session:
        session.until(screen.TO_THE_TOP, times=2)
        session.child.send_signal(signal.SIGINT)
        session.to_the_end()
        assert session.child.wait(SOON) == 130
    assert session.seen.startswith(screen.OTHER_SCREEN)
    assert session.seen.rstrip("\r\n").endswith(screen.OWN_SCREEN)
    first = session.seen.removeprefix(screen.OTHER_SCREEN).split(screen.TO_THE_TOP)[1]
    lines = [bare(line).replace(screen.END_OF_LINE, "") for line in first.replace("\r", "").split("\n")]
    assert len(lines) == 12
    assert max(map(width, lines)) <= 60
    assert lines[0].startswith(str(at_work.places.home)[:20])
    assert re.match(r"… \d+ more lines", lines[-1])


def test_watch_ended_by_term_gives_the_screen_back(at_work: Terminal) -> None:
    with Session(80, 24, "status", "--watch") as session:
        session.until("needs you")
        session.child.terminate()
        session.to_the_end()
        assert session.child.wait(SOON) == 128 + signal.SIGTERM
    assert session.seen.rstrip("\r\n").endswith(screen.OWN_SCREEN)


def test_watch_on_a_dumb_terminal_moves_no_cursor(at_work: Terminal) -> None:
    with Session(80, 24, "status", "--watch", TERM="dumb") as session:
        session.until("needs you", times=2)
    assert ESCAPE not in session.seen


def test_watch_through_a_pipe_is_plain(at_work: Terminal, tmp_path: Path) -> None:
    code = "import sys; from kingdom.cli.main import main; sys.exit(main(sys.argv[1:]))"
    out = tmp_path / "out"
    with (
        open(out, "wb") as file,
        subprocess.Popen([sys.executable, "-c", code, "status", "--watch"], stdout=file) as child,
    ):
        wait_until(lambda: out.read_text().count("needs you") >= 2, SOON, "two looks")
        child.kill()
    assert ESCAPE not in out.read_text()


WINDOW = Window(40, 10, colours=False)


def test_a_line_goes_on_further_in() -> None:
    section = Section([Line([Part("task-1"), Part("  one two three four five six seven eight nine ten")])])
    assert screen.fitted([section], WINDOW, 9) == ("  task-1  one two three four five six\n    seven eight nine ten")


def test_a_table_gives_way_where_it_may_and_drops_what_is_for_wide_windows() -> None:
    columns = (Column("id"), Column("what", shrinks=True), Column("more", 80))
    text = screen.fitted([Section([Table(columns, [("task-20261118-001", "x" * 60, "y")])])], WINDOW, 9)
    head, row = text.splitlines()
    assert head.split() == ["id", "what"]
    assert row == f"  task-20261118-001  {'x' * 18}…"


def test_the_first_sections_take_the_rows_that_are_left() -> None:
    text = "one two three four five six seven eight nine ten"
    asked = Section([Line([Part(f"task-{number}  {text}")]) for number in (1, 2)])
    line = Line([Part(f"evt-1  {'x' * 60}")])
    failed = Section([line] * 4, brief=[line])
    low = screen.fitted([asked, failed], WINDOW, 3).splitlines()
    assert low == [f"  task-{n}  one two three four five six s…" for n in (1, 2)] + [f"  evt-1  {'x' * 30}…"]
    higher = screen.fitted([asked, failed], WINDOW, 5).splitlines()
    assert higher[:2] == ["  task-1  one two three four five six", "    seven eight nine ten"]
    assert higher[4:] == low[2:]


def test_what_people_must_see_takes_up_to_half_of_a_low_window_before_the_last_sections() -> None:
    head = Section([screen.line("green")])
    asked = Section([screen.line("one two three four five six seven eight nine ten eleven twelve")], "needs you")
    others = [Section([screen.line(f"line {number}") for number in range(3)], brief=[screen.line("3")])] * 6
    low = screen.fitted([head, asked, *others], WINDOW, 8).splitlines()
    assert low[1:4] == ["needs you", "  one two three four five six seven", "    eight nine ten eleven twelve"]
    assert (len(low), low[-1]) == (8, "… 3 more lines in a larger window")
    lower = screen.fitted([head, asked, *others], WINDOW, 5).splitlines()
    assert lower[1:3] == ["needs you", "  one two three four five six seven eig…"]


def test_empty_lines_go_first_then_what_can_be_told_in_brief() -> None:
    long = Section([Line([Part(f"line {number}")]) for number in range(4)], brief=[Line([Part("4 lines")])])
    both = [long, Section([Line([Part("end")])])]
    assert screen.fitted(both, WINDOW, 6).count("\n\n") == 1
    assert screen.fitted(both, WINDOW, 5).splitlines() == [*(f"  line {n}" for n in range(4)), "  end"]
    assert screen.fitted(both, WINDOW, 4).splitlines() == ["  4 lines", "  end"]


def test_when_there_is_no_room_for_all_the_last_sections_are_missing() -> None:
    sections = [Section([Line([Part(f"line {number}")])], brief=[Line([Part(f"{number}")])]) for number in range(5)]
    assert screen.fitted(sections, WINDOW, 5).splitlines() == [f"  line {number}" for number in range(5)]
    assert screen.fitted(sections, WINDOW, 4).splitlines() == ["  0", "  1", "  2", "… 2 more lines in a larger window"]
    assert screen.fitted(sections, WINDOW, 1).splitlines() == ["  0", "… 4 more lines in a larger window"]


def test_a_command_to_copy_counts_for_all_the_rows_that_it_takes() -> None:
    copied = Section([screen.command("x" * 60)], brief=[screen.command("y")])
    assert screen.fitted([copied], WINDOW, 2).strip() == "x" * 60
    assert screen.fitted([copied], WINDOW, 1).strip() == "y"
