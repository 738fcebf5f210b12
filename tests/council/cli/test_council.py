"""`kingdom council`: what waits, threads as trees, and messages that were given up."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk, is_there
from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.runtime.processes import carriers, soldier_markers
from kingdom.council import mime
from tests.cli.conftest import Held, Terminal
from tests.council.monitor.councils import CRASH, DONE, HANG, LEFT, Council, council_of, sh
from tests.fixtures import all_of, install, put, task, write

Open = Callable[..., Council]


@pytest.fixture
def council(terminal: Terminal) -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(**agents: str) -> Council:
            rows = {name: sh(script) for name, script in agents.items()}
            return stack.enter_context(council_of(terminal.places.home, agents=rows, dlq={"max_retries": 0}))

        yield opened


def given_up(council: Open) -> tuple[Council, Path, bytes]:
    """A council with a message that was given up: its file, and what it held then."""
    opened = council(architect=LEFT)
    sent = opened.write("architect")
    opened.turn()
    told = opened.places.told("architect") / sent.name
    raw = told.read_bytes()
    opened.fail(1)
    return opened, sent, raw


def test_status_shows_what_waits_and_who_is_at_work(council: Open, terminal: Terminal) -> None:
    opened = council(leader=HANG)
    sent, _ = opened.write(), opened.write()
    opened.write("coordinator")
    opened.turn()
    said = terminal.ok("council", "status")
    assert said.startswith("council does not run; `")
    rows = [line.split() for line in said.splitlines()]
    assert ["leader", "1", "1", *rows[2][3:-1], sent.name] == rows[2]
    assert "coordinator (nobody starts it)  1        0" in said
    with closing(Held(terminal.places, "council")):
        found = json.loads(terminal.ok("council", "status", "--json"))
    leader = next(row for row in found["agents"] if row["agent"] == "leader")
    assert found["runs"]
    assert {row["oldest_seconds"] for row in found["agents"] if not row["waiting"] + row["in_hand"]} == {0.0}
    assert (leader["waiting"], leader["in_hand"], leader["at_work_on"]) == (1, 1, sent.name)


def test_status_names_the_plan_that_waits_for_a_yes(council: Open, terminal: Terminal) -> None:
    opened = council(coordinator=DONE)
    goal = {"thread": "task-1", "task": "task-2", "approve": True, "approved": None, "sent": True}
    write(opened.places.council_goal("task-1"), goal)
    opened.write("coordinator", msg_type="task_list", thread_id="task-1", body="tasks: []")
    opened.settle()
    said = terminal.ok("council", "status")
    assert re.search(r"^A plan waits for a yes: `\S+ say --answer task-2 \"yes\"`, or no, or other words", said, re.M)
    assert json.loads(terminal.ok("council", "status", "--json"))["plans_to_approve"] == ["task-2"]
    opened.job.close()
    assert read_json(opened.places.council_figures)["waiting"] == 1
    write(opened.places.council_goal("task-1"), {**goal, "over": "cancelled"})
    assert "A plan waits" not in terminal.ok("council", "status")


def test_status_says_when_there_is_nothing(terminal: Terminal) -> None:
    assert "No agent has a message." in terminal.ok("council", "status")


def test_dead_letters_are_listed_with_their_reason(council: Open, terminal: Terminal) -> None:
    assert terminal.ok("council", "dlq", "ls") == "none\n"
    opened, sent, _ = given_up(council)
    said = terminal.ok("council", "dlq", "ls")
    assert sent.stem in said
    assert "it ended and left the message" in said
    (found,) = json.loads(terminal.ok("council", "dlq", "ls", "--json"))["dead_letters"]
    assert (found["agent"], found["file"], found["retry_count"]) == ("architect", sent.name, 0)
    assert "1 dead letter: " in terminal.ok("council", "status")
    assert opened.everything


@pytest.mark.parametrize("words", [("--all",), ("{stem}",), ("{stem}.mime",), ("{letter}",)])
def test_retry_puts_a_message_back_byte_for_byte(words: tuple[str], council: Open, terminal: Terminal) -> None:
    opened, sent, raw = given_up(council)
    (letter,) = opened.names("dead_letter")
    named = [word.format(stem=sent.stem, letter=letter) for word in words]
    assert terminal.ok("council", "dlq", "retry", *named) == f"architect/{sent.name} is back\n"
    assert sent.read_bytes() == raw
    assert opened.names("dead_letter") == []


def test_a_message_that_was_put_back_has_all_its_tries_again(council: Open, terminal: Terminal) -> None:
    opened, sent, _ = given_up(council)
    terminal.ok("council", "dlq", "retry", "--all")
    opened.start(agents={"architect": sh(LEFT)})
    opened.until(lambda: "retry 1 of 3" in opened.log, "it is told again")
    assert opened.message("architect", sent.name).retries == 1


@pytest.mark.parametrize("what", ["text", "pipe", "folder"])
def test_whatever_was_given_up_comes_back_as_it_was(what: str, council: Open, terminal: Terminal) -> None:
    opened = council(leader=DONE)
    path = opened.places.agent("leader") / "odd_1770000000000001.mime"
    make: dict[str, Callable[[], object]] = {
        "text": lambda: path.write_bytes(b"\xff\r\nno message"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[what]()
    kind = stat.S_IFMT(path.lstat().st_mode)
    opened.until(lambda: opened.names("dead_letter"), "it was given up")
    assert terminal.ok("council", "dlq", "retry", "--all") == f"leader/{path.name} is back\n"
    assert stat.S_IFMT(path.lstat().st_mode) == kind
    assert what != "text" or path.read_bytes() == b"\xff\r\nno message"
    assert list(opened.places.dead_letters.iterdir()) == []


@pytest.mark.parametrize("what", ["text", "folder"])
def test_what_is_given_up_again_while_it_is_put_back_is_kept(
    what: str, council: Open, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = council(leader=DONE)
    path = opened.places.agent("leader") / "odd_1770000000000001.mime"
    path.write_bytes(b"\xff") if what == "text" else path.mkdir()
    opened.until(lambda: opened.names("dead_letter"), "it was given up")
    remove, quick = Disk.remove, [lambda: opened.until(lambda: not is_there(path), "the council was quick")]

    def slow(disk: Disk, letter: Path) -> None:
        if quick:
            quick.pop()()
        remove(disk, letter)

    monkeypatch.setattr(Disk, "remove", slow)
    assert terminal.ok("council", "dlq", "retry", "--all") == f"leader/{path.name} is back\n"
    (letter,) = opened.places.dead_letters.glob("*.mime")
    assert is_there(letter.with_suffix(".original")) == (what == "folder")
    assert terminal.ok("council", "dlq", "retry", "--all") == f"leader/{path.name} is back\n"
    assert path.is_dir() if what == "folder" else path.read_bytes() == b"\xff"
    assert list(opened.places.dead_letters.iterdir()) == []


@pytest.mark.parametrize("what", ["text", "folder"])
def test_retry_killed_at_any_step_is_done_again(
    what: str, council: Open, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = council(leader=DONE)
    path = opened.places.agent("leader") / "odd_1770000000000001.mime"
    steps = ("move", "move", "remove") if what == "folder" else ("move", "create", "remove")
    for number in range(len(steps)):
        path.write_bytes(b"\xff") if what == "text" else path.mkdir()
        opened.until(lambda: opened.names("dead_letter"), "it was given up")
        with monkeypatch.context() as killed:
            left = list(steps[:number])
            for name in set(steps):
                done = getattr(Disk, name)

                def step(*given: Any, name: str = name, done: Any = done, left: list[str] = left) -> Any:
                    if not left:
                        raise KeyboardInterrupt
                    assert left.pop(0) == name
                    return done(*given)

                killed.setattr(Disk, name, step)
            terminal("council", "dlq", "retry", "--all")
        assert len(opened.names("dead_letter")) == 1
        assert opened.names("dead_letter")[0] in terminal.ok("council", "dlq", "ls")
        terminal.ok("council", "dlq", "retry", "--all")
        assert path.is_dir() if what == "folder" else path.read_bytes() == b"\xff"
        assert list(opened.places.dead_letters.iterdir()) == []
        path.rmdir() if what == "folder" else path.unlink()


def test_retry_overwrites_nothing_and_can_be_repeated(council: Open, terminal: Terminal) -> None:
    opened, sent, raw = given_up(council)
    (letter,) = opened.names("dead_letter")
    sent.write_bytes(b"another")
    said = terminal("council", "dlq", "retry", "--all")
    assert (said.code, said.err) == (1, f"kingdom: {sent} is there already; nothing was overwritten\n")
    assert (sent.read_bytes(), opened.names("dead_letter")) == (b"another", [letter])
    sent.write_bytes(raw)
    terminal.ok("council", "dlq", "retry", "--all")
    assert (sent.read_bytes(), opened.names("dead_letter")) == (raw, [])


def test_purge_deletes_dead_letters(council: Open, terminal: Terminal) -> None:
    opened, _, _ = given_up(council)
    _closed = opened.places.agent("architect") / "x.mime"
    os.mkfifo(_closed)
    opened.until(lambda: len(opened.names("dead_letter")) == 2, "both are given up")
    assert terminal.ok("council", "dlq", "purge", "--all") == "deleted 2 dead letters\n"
    assert list(opened.places.dead_letters.iterdir()) == []


def test_purge_goes_on_past_what_cannot_be_deleted(council: Open, terminal: Terminal) -> None:
    opened = council(leader=DONE)
    for number in range(3):
        path = opened.places.agent("leader") / f"odd_177000000000000{number}.mime"
        path.mkdir() if number == 1 else path.write_bytes(b"")
    opened.until(lambda: len(opened.names("dead_letter")) == 3, "all are given up")
    said = terminal("council", "dlq", "purge", "--all")
    (kept,) = opened.names("dead_letter")
    beside = opened.places.dead_letters / Path(kept).with_suffix(".original")
    assert (said.code, said.out) == (1, "deleted 2 dead letters\n")
    assert said.err == f"kingdom: {kept} cannot be deleted: it is a folder; look into {beside} and remove it\n"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("x_1.mime", "nobody is no agent"),
        ("../x_1.mime", ".. is no agent"),
        ("/etc/x_1.mime", "/etc is no agent"),
        ("leader/../../x_1.mime", "leader/../.. is no agent"),
        ("leader/.hidden.mime", "'.hidden.mime' is no name of a message"),
        ("leader/x.txt", "'x.txt' is no name of a message"),
    ],
)
def test_a_forged_dead_letter_is_put_nowhere(place: str, why: str, terminal: Terminal) -> None:
    places: Places = terminal.places
    places.dead_letters.mkdir(parents=True)
    body = f"original_file: {place}\nfailure_info: {{}}\noriginal_message: x"
    raw = mime.build_message(from_agent="queue_monitor", to_agents="leader", msg_type="dead_letter", body=body)
    (places.dead_letters / "x_dlq_1.mime").write_text(raw)
    before = sorted(places.home.rglob("*"))
    for chosen in ("x_dlq_1.mime", "--all"):
        said = terminal("council", "dlq", "retry", chosen)
        assert (said.code, said.out) == (1, "")
        assert why in said.err
    assert [path for path in sorted(places.home.rglob("*")) if path not in before and "cli" not in path.parts] == []


def test_a_name_that_is_none_is_said(terminal: Terminal) -> None:
    said = terminal("council", "dlq", "retry", "x")
    assert (said.code, said.err.startswith("kingdom: no dead letter named 'x'")) == (1, True)
    assert terminal("council", "dlq", "retry").code == 2
    assert terminal("council", "thread", "x").err.startswith("kingdom: no thread or message named 'x'")


def test_a_thread_is_shown_as_a_tree_also_when_its_messages_are_gone(council: Open, terminal: Terminal) -> None:
    opened = council(leader=DONE, coordinator=DONE, architect=CRASH)
    goal = opened.write(thread_id="t-1", body="goal: a README")
    identity = opened.headers(goal)["message_id"]
    replies = {"thread_id": "t-1", "in_reply_to": identity, "from_agent": "leader"}
    opened.write("architect", msg_type="architecture_request", body="{goal: a, question: b}", **replies)
    opened.write("coordinator", msg_type="task_list", to="coordinator, leader", body="tasks: []", **replies)
    opened.fail(1)
    opened.write("user", msg_type="progress_update", body="{repository: a, summary: b}", **replies)
    tree = [
        "user_goal: user → leader (done): a README",
        "├─ architecture_request: leader → architect (dead letter): a",
        "├─ task_list: leader → coordinator (done)",
        "└─ progress_update: leader → user (waiting)",
    ]
    said = terminal.ok("council", "thread", "t-1").splitlines()
    assert [line for line in said if "escalation" not in line] == tree
    for name in (identity, identity.strip("<>"), goal.name, goal.stem):
        assert terminal.ok("council", "thread", name).splitlines()[0] == tree[0]


def test_a_thread_is_found_by_every_task_of_its_conversation(council: Open, terminal: Terminal) -> None:
    opened = council(leader=DONE)
    opened.write(thread_id="task-20260207-001")
    opened.settle()
    resumed = {"session_id": "task-20260207-001", "human_response": "yes"}
    put(opened.places.home, "tasks", "completed", **task("task-20260207-002", type="resume", payload=resumed))
    assert "user_goal: user → leader" in terminal.ok("council", "thread", "task-20260207-002")
    put(opened.places.home, "tasks", "pending", **task("task-20260207-003"))
    said = terminal("council", "thread", "task-20260207-003")
    assert said.err.startswith("kingdom: no thread or message named 'task-20260207-003'")


def test_a_thread_says_how_work_and_evaluations_ended(council: Open, terminal: Terminal, tmp_path: Path) -> None:
    opened = council(leader=DONE, coordinator=DONE)
    for kind, body in (
        ("evaluation_result", "{task_id: a, title: one, overall_status: fail}"),
        ("evaluation_result", "{task_id: a, title: one, verdict: pass}"),
        ("task_completed", "{task_id: a, status: error, error: {message: x}}"),
    ):
        opened.write(msg_type=kind, thread_id="t-1", from_agent="evaluator", body=body)
    opened.settle()
    said = [line.partition(": ")[2] for line in terminal.ok("council", "thread", "t-1").splitlines()]
    ends = ["one — fail", "one — pass", "one — error"]
    assert said == [f"evaluator → leader (done): {end}" for end in ends]
    terminal.ok("council", "thread", "t-1", "--html", str(tmp_path / "thread.html"))
    page = (tmp_path / "thread.html").read_text()
    assert "<h1>one</h1>" in page
    assert re.findall(r"<br>(\w+) — (<span .*?</span>)", page) == [
        ("one", '<span class="bad">fail</span>'),
        ("one", '<span class="good">pass</span>'),
        ("one", '<span class="bad">error</span>'),
    ]


def test_a_thread_is_one_page_in_which_nothing_acts(council: Open, terminal: Terminal, tmp_path: Path) -> None:
    opened = council(leader=DONE)
    goal = opened.write(thread_id="t-1", body='goal: "<script>alert(1)</script> & \\"x\\""')
    opened.settle()
    identity = f"<{goal.stem}@x>"
    opened.write(
        "user", msg_type="progress_update", from_agent="<b>", in_reply_to=identity, thread_id="t-1", body="a: 1"
    )
    page = tmp_path / "thread.html"
    assert terminal.ok("council", "thread", "t-1", "--html", str(page)) == f"{page} shows it.\n"
    text = page.read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;x&quot;" in text
    assert "&lt;b&gt;" in text
    assert re.findall(r"<script|https?://|src=|onload|<b><", text) == []
    style = text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    assert "prefers-color-scheme: dark" in style


def test_a_circle_and_a_very_long_chain_of_replies_are_shown(council: Open, terminal: Terminal) -> None:
    opened = council()
    folder = opened.places.council_threads
    folder.mkdir(parents=True)

    def row(number: int, answers: int) -> str:
        names = {
            "id": f"<{number}@x>",
            "in_reply_to": f"<{answers}@x>",
            "file": f"x_{number:016d}.mime",
            "agent": "leader",
        }
        return json.dumps({**names, "type": "x", "from": "user", "to": ["leader"], "at": "", "about": f"no. {number}"})

    rows = [row(0, 1), row(1, 0), *(row(number, number - 1) for number in range(2, 3000))]
    (folder / "t-1.jsonl").write_text("\n".join(rows) + "\n")
    said = terminal.ok("council", "thread", "t-1").splitlines()
    assert (len(said), said[0], said[1]) == (
        3000,
        "x: user → leader (done): no. 0",
        "└─ x: user → leader (done): no. 1",
    )


def test_why_says_what_became_of_a_message(council: Open, terminal: Terminal) -> None:
    opened = council(leader=DONE, architect=LEFT)
    waits = opened.write("coordinator")
    done = opened.write()
    failed = opened.write("architect")
    opened.fail(1)
    assert "user_goal from user: waits until coordinator is free" in terminal.ok("why", waits.name)
    identity = json.loads(terminal.ok("why", "--json", done.stem))["id"]
    assert "user_goal from user: leader has done with it" in terminal.ok("why", identity)
    said = terminal.ok("why", failed.name)
    assert "user_goal from user: it was given up" in said
    assert "it ended and left the message, after 0 retries" in said
    opened.start(agents={"architect": sh(LEFT)})
    again = opened.write("architect")
    opened.until(lambda: "retry 1 of 3" in opened.log, "it has failed")
    said = terminal.ok("why", again.name)
    assert "architect failed, and will be told of it again" in said
    assert "it ended and left the message; retried 1 times" in said
    assert "not before 2026-02-07T" in said
    assert terminal("why", "nothing_1.mime").code == 1


def test_what_lay_in_an_outbox_is_put_back_nowhere(council: Open, terminal: Terminal) -> None:
    opened, sent, _ = given_up(council)
    opened.job._delivery.dead_letters.park(sent, "leader", "it is from 'user'", b"MIME-Version: 1.0\n")
    letter = next(
        name
        for name in opened.names("dead_letter")
        if "outboxes" in opened.headers(opened.places.dead_letters / name)["body"]
    )
    assert "it lay in an outbox, and was sent to nobody" in terminal("council", "dlq", "retry", letter).err
    said = terminal("council", "dlq", "retry", "--all")
    assert (said.code, said.out) == (1, f"architect/{sent.name} is back\n")
    assert f"{letter} cannot be put back: it lay in an outbox" in said.err
    assert opened.names("dead_letter") == [letter]


def test_all_that_cannot_be_put_back_is_named(council: Open, terminal: Terminal) -> None:
    opened, sent, _ = given_up(council)
    for agent in ("leader", "evaluator"):
        opened.job._delivery.dead_letters.park(Path(f"{agent}_1.mime"), agent, "forged", b"MIME-Version: 1.0\n")
    said = terminal("council", "dlq", "retry", "--all")
    assert (said.code, said.out) == (1, f"architect/{sent.name} is back\n")
    one, other = opened.names("dead_letter")
    why = "cannot be put back: it lay in an outbox, and was sent to nobody"
    assert said.err == f"{one} {why}\nkingdom: {other} {why}\n"


def test_down_with_soldiers_ends_agents_at_work(council: Open, terminal: Terminal) -> None:
    opened = council(architect=HANG)
    opened.write("architect")
    opened.turn()
    assert "1 soldier finishes its work (council-architect)" in terminal("down").out
    assert "Ended 1 soldier" in terminal("down", "--soldiers").out
    assert carriers(soldier_markers(opened.home, "council-architect")) == []
    opened.until(lambda: not opened.job._turns.running or opened.names("architect", "processed"), "it is seen")
    assert "retry" not in opened.log


def test_a_goal_becomes_an_event_for_the_council_about_the_folder_one_is_in(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(terminal.places.home, "gen-council", engine="council")
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "shop" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "shop" / "deep")
    with closing(Held(terminal.places, "council")), closing(Held(terminal.places, "gen-council")):
        said = terminal.ok("council", "plan", "a README", "-c", 'it is "short"', "--approve", "plan")
        terminal.ok("council", "plan", "another", "--repo", "acme/shop")
    first, second = sorted(all_of(terminal.places.home, "events", "pending"), key=lambda event: event["id"])
    assert said.startswith(f"{first['id']} waits for the king; `")
    about = {key: first["payload"].get(key) for key in ("goal", "context", "approve", "folder")}
    folder = str(tmp_path / "shop")
    assert about == {"goal": "a README", "context": 'it is "short"', "approve": "plan", "folder": folder}
    assert (second["repo"], "folder" in second["payload"]) == ("acme/shop", False)


NOTHING_RUNS = [
    pytest.param("", "", "/kingdom up` starts it.", id="the kingdom is down"),
    pytest.param("", "down", "/kingdom start council` starts it.", id="it was stopped by hand"),
    pytest.param(
        "roles: {council: false}", "", "`roles: {council: false}` in {config}/system.yaml switches it off.", id="off"
    ),
]


@pytest.mark.parametrize(("system", "wanted", "expected"), NOTHING_RUNS)
def test_plan_and_status_say_how_to_start_the_council(
    terminal: Terminal, system: str, wanted: str, expected: str
) -> None:
    install(terminal.places.home, "gen-council", engine="council")
    (terminal.places.config / "system.yaml").write_text(system)
    terminal.places.wanted("council").write_text(wanted)
    with closing(Held(terminal.places, "gen-council")):
        said, _ = terminal.ok("council", "plan", "x").splitlines()
    first = terminal.ok("council", "status").splitlines()[0]
    assert said == first
    assert first.startswith("council does not run; ")
    assert first.endswith(expected.replace("{config}", str(terminal.places.config)))


def test_plan_says_what_is_missing(terminal: Terminal) -> None:
    said = terminal("council", "plan", "a README")
    assert (said.code, "generals install gen-council" in said.err) == (3, True)
    assert "generals install gen-council" in terminal.ok("council", "status")
    assert terminal("council", "plan", " ").code == 2
    install(terminal.places.home, "gen-council", engine="council")
    assert "gen-council does not run; `" in terminal.ok("council", "plan", "x")


UNREADY = [
    ("leader", {"command": ["/no/such/program"]}, "its program /no/such/program is not there"),
    ("evaluator", {"command": ["README.md"]}, "its program README.md is not there"),
    ("architect", {"instructions": "agents/none.md"}, "it has no command, and the engine command needs one"),
    ("ignitian_2", {"command": ["sh"], "instructions": "agents/none.md"}, "its instructions agents/none.md are not"),
    ("strategist", {"engine": "codex"}, "the program codex of the engine codex is not there"),
]


@pytest.mark.parametrize(("agent", "row", "why"), UNREADY)
def test_a_goal_is_not_given_to_agents_who_cannot_start(
    terminal: Terminal, agent: str, row: dict[str, Any], why: str
) -> None:
    install(terminal.places.home, "gen-council", engine="council")
    (terminal.places.config / "council.yaml").write_text(json.dumps({"agents": {agent: row}}))
    said = terminal("council", "plan", "a README")
    assert (said.code, f"the council's {agent} cannot start: " in said.err) == (1, True)
    assert why in said.err
    assert all_of(terminal.places.home, "events", "pending") == []
