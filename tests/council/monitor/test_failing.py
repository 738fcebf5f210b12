"""What fails is told again, given up with its reason, and looked after by leader, or by people when leader fails."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.runtime.processes import carriers, soldier_markers
from kingdom.council import mime
from kingdom.council.bodies import faults_of_body, original_of, read_body
from kingdom.council.monitor.job import CouncilJob
from tests.council.monitor.conftest import Open
from tests.council.monitor.councils import CRASH, DONE, HANG, LEFT, TOLD, Council
from tests.fixtures import all_of
from tests.waiting import SOON, wait_until


def letters(council: Council) -> list[dict[str, Any]]:
    """Return the bodies of all dead letters."""
    folder = council.places.dead_letters
    return [read_body(mime.extract_body(path.read_text())) for path in sorted(folder.glob("*.mime"))]


def alerts(council: Council) -> list[str]:
    return [message["content"] for message in all_of(council.home, "messages", "pending")]


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (CRASH, "exit code 3: broken"),
        (LEFT, "it ended and left the message"),
        ("kill -9 $$", "signal 9"),
        ("yes garbage | head -c 100000", "it ended and left the message"),
    ],
)
def test_a_try_that_failed_is_noted_in_the_message(agent: str, reason: str, council: Open) -> None:
    opened = council(architect=agent)
    sent = opened.write("architect")
    opened.until(lambda: "retry 1 of 3" in opened.log, "the first try has failed")
    found = opened.headers(opened.places.told("architect") / sent.name)
    noted = {key: found[key] for key in ("status", "retry_count", "error_reason", "error_at", "last_retry_at")}
    now = "2026-02-07T10:00:00+00:00"
    assert noted == {
        "status": "retrying",
        "retry_count": "1",
        "error_reason": reason,
        "error_at": now,
        "last_retry_at": now,
    }


def test_what_an_earlier_council_told_is_told_again_as_soon_as_it_is_due(council: Open) -> None:
    opened = council({"retry": {"base_delay": 0}}, leader=TOLD + DONE)
    sent = opened.write(folder="processed", status="delivered")
    opened.settle()
    assert (opened.told, opened.everything) == ([f"leader {sent.name}"], [])


@pytest.mark.parametrize(("dice", "waits"), [(1.0, [5, 10, 20]), (0.5, [2, 5, 10]), (0.0, [0, 0, 0])])
def test_each_wait_is_random_and_at_most_twice_as_long_as_the_last(
    dice: float, waits: list[int], council: Open
) -> None:
    opened = council(architect=TOLD + CRASH)
    opened.dice = dice
    sent = opened.write("architect")
    for number, wait in enumerate(waits, 1):
        opened.until(lambda number=number: f"retry {number} of 3" in opened.log, "it has failed")
        message = opened.message("architect", sent.name)
        assert (message.retries, message.not_before - opened.clock()) == (number, wait)
        if wait:
            opened.clock.pass_(wait - 1)
            opened.turn()
            assert len(opened.told) == number
        opened.clock.pass_(1)


def test_the_reason_of_a_failure_goes_when_the_message_is_told_again(council: Open) -> None:
    opened = council(architect='[ -e seen.txt ] && cp "$1" again.txt; touch seen.txt; exit 3')
    opened.write("architect")
    opened.fail(2)
    seen = opened.headers(opened.home / "again.txt")
    assert seen["retry_count"] == "1"
    assert not {"error_reason", "error_at"} & seen.keys()


def test_no_wait_is_longer_than_the_longest(council: Open) -> None:
    opened = council({"retry": {"base_delay": 5, "max_delay": 7}}, architect=CRASH)
    sent = opened.write("architect", folder="processed", status="delivered")
    sent.write_text(mime.update_header(sent.read_text(), "X-IGNITE-Retry-Count", "2"))
    opened.turn()
    assert opened.message("architect", sent.name).not_before - opened.clock() == 7


def test_the_fourth_failure_makes_a_dead_letter_and_an_escalation(council: Open) -> None:
    opened = council(architect=TOLD + CRASH, leader=f'cp "$1" escalation.txt; {DONE}')
    sent = opened.write(
        "architect",
        msg_type="architecture_request",
        body="task_id: t-1\ngoal: 왕\nquestion: |\n  why\n\n",
        thread_id="thread-1",
        repo="acme/shop",
        issue="7",
    )
    identity = opened.headers(sent)["message_id"]
    opened.fail(4)
    opened.settle()
    assert opened.told == [f"architect {sent.name}"] * 4
    (name,) = opened.names("dead_letter")
    assert opened.everything == [f"dead_letter/{name}"]
    moved_at = int(name.removesuffix(".mime").rpartition("_")[2])
    assert name == f"{sent.stem}_dlq_{moved_at}.mime"
    path = opened.places.dead_letters / name
    head, (body,) = opened.headers(path), letters(opened)
    assert [head[key] for key in ("type", "from", "to", "priority", "status")] == [
        *("dead_letter", "queue_monitor", ["leader"], "critical", "dead_letter")
    ]
    assert mime.faults(path.read_bytes(), faults_of_body) == []
    assert body["original_file"] == f"architect/{sent.name}"
    info = body["failure_info"]
    assert info == {
        "retry_count": 3,
        "max_retries": 3,
        "last_error": "exit code 3: broken",
        "moved_at": opened_at(moved_at),
    }
    original = mime.parse_message(original_of(body).decode())
    assert (original["message_id"], original["retry_count"]) == (identity, "3")
    assert original["body"] == "task_id: t-1\ngoal: 왕\nquestion: |\n  why\n\n"
    assert "\noriginal_message: |2+\n  MIME-Version: 1.0\n" in path.read_text()

    raw = (opened.home / "escalation.txt").read_bytes()
    assert mime.faults(raw, faults_of_body) == []
    told = mime.parse_message(raw.decode())
    assert [
        told[key] for key in ("type", "from", "to", "priority", "thread_id", "in_reply_to", "repository", "issue")
    ] == [*("escalation", "queue_monitor", ["leader"], "critical", "thread-1", identity, "acme/shop", "7")]
    assert read_body(str(told["body"])) == {
        "task_id": "t-1",
        "title": "왕",
        "original_assignee": "architect",
        "failure_reason": "exit code 3: broken",
        "retry_count": 3,
        "max_retries": 3,
        "recommended_action": "manual_review",
        "dlq_path": str(path),
        "notes": "it is in the dead letters",
    }
    assert alerts(opened) == []


def opened_at(second: int) -> str:
    from kingdom.base.times import stamp

    return stamp(second)


def test_a_critical_message_escalates_at_its_first_failure_and_once_more_when_it_is_given_up(council: Open) -> None:
    opened = council(architect=CRASH, leader=f'grep -c dlq_path "$1" >>escalations.txt; {DONE}')
    opened.write("architect", priority="critical")
    opened.until(lambda: "retry 1 of 3" in opened.log, "it has failed once")
    opened.settle()
    assert (opened.home / "escalations.txt").read_text().split() == ["0"]
    opened.clock.pass_(1000)
    opened.fail(2)
    assert (opened.home / "escalations.txt").read_text().split() == ["0"]
    opened.fail(1)
    opened.settle()
    assert (opened.home / "escalations.txt").read_text().split() == ["0", "1"]


def test_when_leader_is_down_people_get_exactly_one_alert(council: Open) -> None:
    opened = council(leader=CRASH, architect=CRASH)
    for agent in ("leader", "architect", "leader"):
        opened.write(agent)
    opened.fail(8)
    opened.settle()
    types = [mime.parse_message(original_of(body).decode())["type"] for body in letters(opened)]
    assert sorted(types) == ["escalation"] * 3 + ["user_goal"] * 3
    (alert,) = alerts(opened)
    assert "The council's leader did not take a message of type escalation (exit code 3: broken)" in alert


def test_people_are_not_bothered_while_leader_may_still_take_an_escalation(council: Open) -> None:
    opened = council({"dlq": {"max_retries": 1}}, architect=CRASH, leader=f"{TOLD} [ -e well ] && {DONE}")
    opened.write("architect")
    opened.fail(1)
    opened.until(lambda: opened.told, "leader has failed once")
    opened.settle()
    (opened.home / "well").touch()
    opened.clock.pass_(1000)
    opened.settle()
    assert (len(opened.told), opened.names("leader", "processed"), alerts(opened)) == (2, [], [])


def test_people_are_told_again_when_leader_fails_after_he_took_an_escalation(council: Open) -> None:
    opened = council({"dlq": {"max_retries": 0}}, leader='[ -e well ] && rm "$1"', architect=CRASH)
    opened.write("architect")
    opened.fail(2)
    assert len(alerts(opened)) == 1
    (opened.home / "well").touch()
    opened.write("architect")
    opened.fail(2)
    (opened.home / "well").unlink()
    opened.write("architect")
    opened.fail(2)
    opened.settle()
    assert len(alerts(opened)) == 2


def test_a_dead_letter_that_somebody_sends_leader_escalates_no_further(council: Open) -> None:
    opened = council({"dlq": {"max_retries": 0}}, leader=CRASH)
    opened.write(from_agent="queue_monitor", msg_type="dead_letter", body="original_file: x")
    opened.fail(1)
    opened.settle()
    assert (len(letters(opened)), opened.names("leader"), len(alerts(opened))) == (1, [], 1)


def test_people_are_told_when_nobody_starts_leader(council: Open) -> None:
    opened = council({"dlq": {"max_retries": 0}}, architect=CRASH)
    opened.write("architect")
    opened.fail(1)
    opened.settle()
    assert len(opened.names("leader")) == 1
    assert len(alerts(opened)) == 1


def test_an_agent_that_hangs_is_ended_with_all_that_it_started(council: Open) -> None:
    opened = council({"defaults": {"task_timeout": 0.3}}, architect=f"setsid sleep 1000 & {HANG}")
    opened.write("architect")
    opened.until(lambda: "it took longer than 0.3 s; retry 1" in opened.log, "it was ended")
    assert carriers(soldier_markers(opened.home, "council-architect")) == []


def test_a_program_that_is_not_there_is_a_failure_that_names_it(home: Path, council: Open) -> None:
    opened = council({"agents": {"leader": {"command": ["bin/nobody"]}}})
    sent = opened.write()
    opened.until(lambda: "retry 1 of 3" in opened.log, "it has failed")
    assert opened.message("leader", sent.name).error == "it could not be started: its program bin/nobody is not there"


@pytest.mark.parametrize("at_once", [1, 2])
def test_each_of_several_messages_fails_once_when_their_program_is_not_there(at_once: int, council: Open) -> None:
    opened = council({"agents": {"leader": {"command": ["bin/nobody"], "at_once": at_once}}})
    names = [opened.write(thread_id="t-1").name for _ in range(5)]
    for retries in ("1", "2"):
        opened.turn()
        assert [opened.headers(opened.places.told("leader") / name)["retry_count"] for name in names] == [retries] * 5
        opened.clock.pass_(1000)


@pytest.mark.parametrize(("status", "reason"), [("error", "no model"), ("delivered", "it outlived its turn")])
def test_what_an_earlier_council_told_and_is_still_there_counts_as_failed(
    status: str, reason: str, council: Open
) -> None:
    opened = council(leader=TOLD + DONE)
    raw = mime.build_message(from_agent="user", to_agents="leader", msg_type="user_goal", body="goal: x", status=status)
    raw = mime.update_header(raw, "X-IGNITE-Error-Reason", "no model") if status == "error" else raw
    sent = opened.write(folder="processed", raw=raw.encode(), name="goal_1770000000000001.mime")
    opened.turn()
    message = opened.message("leader", sent.name)
    assert (message.status, message.retries, message.error) == ("retrying", 1, reason)
    opened.clock.pass_(10)
    opened.settle()
    assert (opened.told, opened.everything) == ([f"leader {sent.name}"], [])


# Bad messages.

GOOD = mime.build_message(from_agent="user", to_agents="leader", msg_type="user_goal", body="goal: x\n")
BAD = {
    "empty": (b"", "MIME-Version is missing"),
    "no type": (mime.remove_header(GOOD, "X-IGNITE-Type").encode(), "X-IGNITE-Type is missing"),
    "no date": (mime.remove_header(GOOD, "Date").encode(), "Date is missing"),
    "odd date": (mime.update_header(GOOD, "Date", "yesterday").encode(), "no date of RFC 2822"),
    "twice": (GOOD.replace("From: user\n", "From: user\nfrom: leader\n").encode(), "from stands twice"),
    "no header": (b"hello\n" + GOOD.encode(), "'hello' is no header"),
    "another's": (mime.update_header(GOOD, "To", "architect").encode(), "addressed to architect, not to leader"),
    "no UTF-8": (GOOD.encode() + b"\xff", "is no UTF-8"),
    "CRLF": (GOOD.replace("\n", "\r\n").replace("goal: x", "- list").encode(), "it is no YAML mapping"),
    "no body": (GOOD.removesuffix("goal: x\n").encode(), "it is no YAML mapping"),
    "a text": (GOOD.replace("goal: x", "hello").encode(), "it is no YAML mapping"),
    "no YAML": (GOOD.replace("goal: x", "{{{").encode(), "the body: "),
    "control": (GOOD.replace("user\n", "us\x00er\n", 1).encode(), "has a control character"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_message_goes_to_the_dead_letters_byte_for_byte_with_its_reason(what: str, council: Open) -> None:
    raw, reason = BAD[what]
    opened = council(leader=TOLD + DONE)
    opened.write(raw=raw or b"\n", name="bad_1770000000000001.mime")
    later = opened.write()
    opened.settle()
    (body,) = letters(opened)
    assert reason in body["failure_info"]["last_error"]
    assert original_of(body) == (raw or b"\n")
    assert opened.told == [f"leader {later.name}"]
    assert f"moved leader/bad_1770000000000001.mime to dead_letter/{opened.names('dead_letter')[0]}" in opened.log
    assert len(opened.everything) == 1


def _fifo(path: Path) -> None:
    import os

    os.mkfifo(path)


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(3 << 30)


def _closed(path: Path) -> None:
    path.write_text(GOOD)
    path.chmod(0)


UNREADABLE = {
    "a pipe": (_fifo, "not a regular file"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "too large": (_sparse, "3221225472 bytes, more than"),
    "closed": (_closed, ""),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_is_moved_beside_a_dead_letter_that_says_why(what: str, council: Open) -> None:
    make, reason = UNREADABLE[what]
    opened = council(leader=DONE)
    make(opened.places.agent("leader") / "odd.mime")
    opened.until(lambda: opened.names("dead_letter"), "it is in the dead letters")
    (body,), (name,) = letters(opened), opened.names("dead_letter")
    assert reason in body["failure_info"]["last_error"]
    assert (opened.places.dead_letters / name).with_suffix(".original").is_symlink() or (
        opened.places.dead_letters / name
    ).with_suffix(".original").exists()
    assert opened.names("leader") == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"msg_type": "riddle"}, "nobody knows the type 'riddle'"),
        ({"from_agent": "architect"}, "'architect' does not send a user_goal"),
        ({"from_agent": "bob"}, "From names 'bob'"),
        ({"priority": "medium"}, "X-IGNITE-Priority 'medium' is none of"),
        ({"body": "aim: x"}, "the body of a user_goal"),
        ({"body": "{type: user_goal, from: user, to: leader, timestamp: now, priority: high, payload: {goal: x}}"}, ""),
        ({"to": "ignitian-1, leader"}, ""),
    ],
)
def test_what_is_odd_is_logged_and_told(fields: dict[str, str], said: str, council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    sent = opened.write(**fields)
    opened.settle()
    assert (opened.told, opened.everything) == ([f"leader {sent.name}"], [])
    assert said in opened.log
    assert opened.log.count(said) == 1 or not said


# Names.


def test_a_name_that_does_not_fit_is_made_of_type_and_date(council: Open) -> None:
    opened = council(leader=TOLD + LEFT)
    raw = mime.update_header(GOOD, "Date", "Mon, 10 Feb 2026 12:00:00 +0900").encode()
    for name in ("a.mime", "b.mime", "user_goal_17.mime"):
        opened.write(raw=raw, name=name)
    opened.turn()
    found = sorted([*opened.names("leader"), *opened.names("leader", "processed")])
    assert found == [f"user_goal_177069240000000{number}.mime" for number in range(3)]
    assert "leader/a.mime is called user_goal_1770692400000000.mime from now on" in opened.log


def test_a_name_that_is_taken_in_processed_is_a_microsecond_later(council: Open) -> None:
    opened = council(leader=HANG)
    opened.write(folder="processed", name="goal_1770000000000001.mime", status="completed")
    opened.write(name="goal_1770000000000001.mime")
    opened.turn()
    assert opened.names("leader", "processed") == ["goal_1770000000000001.mime", "goal_1770000000000002.mime"]


@pytest.mark.parametrize("name", ["goal_\udcff_1770000000000001.mime", "goal\n_1770000000000001.mime"])
def test_a_name_that_cannot_be_shown_is_changed_as_well(name: str, council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    raw = mime.update_header(GOOD, "Date", "Mon, 10 Feb 2026 12:00:00 +0900").encode()
    opened.write(raw=raw, name=name)
    opened.write(raw=b"bad", name=f"bad{name}")
    opened.settle()
    assert opened.told == ["leader user_goal_1770692400000000.mime"]
    assert len(letters(opened)) == 1


def test_a_wait_that_a_clock_made_too_long_is_over(council: Open) -> None:
    opened = council(architect=TOLD + CRASH)
    opened.write("architect")
    opened.until(lambda: "retry 1 of 3" in opened.log, "it has failed")
    opened.clock.pass_(-86_400)
    opened.until(lambda: len(opened.told) == 2, "it is told again")


def test_a_turn_that_cannot_be_noted_is_no_failure_of_a_message(council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    sent = opened.write()
    folder = opened.places.agent_turn("leader")
    folder.mkdir(parents=True)
    (folder / "told.json").mkdir()
    with pytest.raises(IsADirectoryError):
        opened.turn()
    assert opened.message("leader", sent.name).retries == 0
    (folder / "told.json").rmdir()
    opened.settle()
    assert (opened.told, opened.everything) == ([f"leader {sent.name}"], [])


def test_the_note_of_a_turn_that_still_runs_is_not_written_over(council: Open) -> None:
    opened = council(leader=DONE)
    sent = opened.write()
    turn = opened.places.agent_turn("leader")
    turn.mkdir(mode=0o700)
    (turn / "told.json").write_text("of the earlier one")
    lock = Lock(turn / "lock", "leader")
    lock.acquire()
    opened.turn()
    assert (turn / "told.json").read_text() == "of the earlier one"
    assert "an earlier turn of it is still at work" in opened.message("leader", sent.name).error
    lock.release()
    opened.clock.pass_(1000)
    opened.settle()
    assert opened.everything == []


def test_an_agent_whose_start_could_not_be_noted_is_told_once_and_followed(council: Open) -> None:
    opened = council(leader=f"{TOLD} while [ ! -e go ]; do sleep 0.02; done; {DONE}")
    sent = opened.write()
    in_the_way = opened.places.agent_turn("leader") / "started"
    in_the_way.mkdir(parents=True, mode=0o700)
    with pytest.raises(OSError, match="started"):
        opened.turn()
    wait_until(lambda: opened.told, SOON, "it is told")
    in_the_way.rmdir()
    opened.turn()
    assert (list(opened.job._turns.running), opened.message("leader", sent.name).retries) == (["leader"], 0)
    (opened.home / "go").touch()
    opened.settle()
    assert (len(opened.told), opened.everything) == (1, [])


def test_other_files_are_left_alone_and_said_once(council: Open) -> None:
    opened = council(leader=DONE)
    names = ("notes.txt", ".hidden.mime", "draft.tmp", "x.mime.tmp")
    for name in names:
        (opened.places.agent("leader") / name).write_text("x")
    opened.turn()
    opened.turn()
    assert all((opened.places.agent("leader") / name).exists() for name in names)
    assert opened.log.count("alone: its name does not end in .mime") == 1
    assert "leader/notes.txt alone" in opened.log


# Files that are written in place.


def test_a_file_that_somebody_is_writing_is_judged_when_it_is_closed(council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    path = opened.places.agent("leader") / "goal_1770000000000001.mime"
    half = len(GOOD) // 2
    with open(path, "w") as file:
        for part in (GOOD[:half], GOOD[half:]):
            file.write(part)
            file.flush()
            opened.turn()
            assert opened.everything == ["leader/goal_1770000000000001.mime"]
    opened.settle()
    assert (opened.told, opened.everything) == ([f"leader {path.name}"], [])


def test_a_file_that_stands_still_is_judged_though_it_is_open(council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    path = opened.places.agent("leader") / "goal_1770000000000001.mime"
    with open(path, "w") as file:
        file.write("MIME-Version: 1.0\n")
        file.flush()
        opened.until(lambda: opened.names("dead_letter"), "it is judged")
    assert opened.told == []


# Restarts.


def test_an_agent_at_work_is_found_again_and_not_told_twice(council: Open) -> None:
    opened = council(leader=f"{TOLD} while [ ! -e go ]; do sleep 0.02; done; {DONE}")
    opened.write()
    opened.until(lambda: opened.told, "it is told")
    killed = opened.job
    opened.start()
    opened.turn()
    assert list(opened.job._turns.running) == ["leader"]
    (opened.home / "go").touch()
    wait_until(lambda: not killed._turns.running["leader"].soldier.is_running(), SOON, "it has ended")
    opened.settle()
    assert (len(opened.told), opened.everything) == (1, [])


def test_an_agent_that_ended_while_the_council_was_away_and_left_its_message_is_told_again(council: Open) -> None:
    opened = council(leader=TOLD + LEFT)
    sent = opened.write()
    opened.turn()
    wait_until(lambda: not opened.job._turns.running["leader"].soldier.is_running(), SOON, "it has ended")
    opened.start()
    opened.turn()
    message = opened.message("leader", sent.name)
    assert (message.retries, message.error) == (1, "it ended and left the message")


def test_a_try_is_counted_once_though_the_council_is_killed_before_it_forgets_the_turn(council: Open) -> None:
    opened = council(leader=TOLD + LEFT)
    sent = opened.write(priority="critical")
    opened.turn()
    wait_until(lambda: not opened.job._turns.running["leader"].soldier.is_running(), SOON, "it has ended")
    (ended,) = opened.job._turns.ended()
    opened.job._delivery.end(ended)
    opened.start()
    opened.turn()
    assert opened.message("leader", sent.name).retries == 1
    assert len([name for name in opened.everything if "escalation" in name]) == 1


def test_an_agent_that_was_never_started_is_told_without_counting(council: Open) -> None:
    opened = council(leader=TOLD + HANG)
    sent = opened.write()
    (message,) = opened.job._delivery.look("leader") if opened.job._delivery.begin_turn() is None else ()
    taken = opened.job._delivery.take(message)
    assert taken is not None
    note = opened.places.agent_turn("leader") / "told.json"
    note.parent.mkdir(parents=True)
    note.write_text(f'{{"agent": "leader", "number": 1, "messages": {{"{taken.path}": 0}}}}')
    opened.start()
    opened.until(lambda: opened.told, "it is told")
    assert opened.message("leader", sent.name).retries == 0


def test_a_damaged_note_of_a_turn_is_forgotten_and_said(council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    folder = opened.places.agent_turn("leader")
    folder.mkdir(parents=True)
    (folder / "told.json").write_text("{")
    opened.write()
    opened.start()
    opened.settle()
    assert len(opened.told) == 1
    assert "forgets the turn of leader, whose note is damaged" in opened.log


def test_unfinished_edits_of_killed_processes_are_deleted_and_those_of_others_stay(council: Open) -> None:
    import os

    opened = council(leader=DONE)
    gone, ours = (f".ignite_mime-{pid}-0a1b2c3d.tmp" for pid in (4_194_303, os.getppid()))
    for name in (gone, ours):
        (opened.places.told("leader") / name).write_text("x")
    CouncilJob(opened.services)
    assert [path.name for path in opened.places.told("leader").iterdir()] == [ours]


def test_an_edit_of_the_council_does_not_bring_a_deleted_message_back(council: Open) -> None:
    opened = council(leader=DONE)
    opened.write()
    opened.job._delivery.begin_turn()
    (message,) = opened.job._delivery.look("leader")
    taken = opened.job._delivery.take(message)
    assert taken is not None
    taken.path.unlink()
    opened.job._delivery.told(taken)
    opened.job._delivery.fail(taken, "late")
    assert opened.everything == []


def test_a_letter_in_base64_holds_what_no_block_can(council: Open) -> None:
    opened = council(leader=DONE)
    opened.write(raw=BAD["CRLF"][0], name="bad_1770000000000001.mime")
    opened.settle()
    (body,) = letters(opened)
    assert body["original_encoding"] == "base64"
    assert base64.b64decode(body["original_message"]) == BAD["CRLF"][0]


def test_while_the_disk_is_full_nobody_is_told_and_no_try_counts(
    council: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = council(leader=f"{TOLD} {CRASH}")
    sent = opened.write()
    why = {"now": ""}
    monkeypatch.setattr("kingdom.council.monitor.turns.why_full", lambda _home: why["now"])
    opened.turn()
    why["now"] = "the disk is 98 % full"
    opened.until(lambda: not opened.job._turns.running, "its turn is over")
    opened.turn()
    assert opened.told == [f"leader {sent.name}"]
    message = opened.message("leader", sent.name)
    assert (message.status, message.retries) == ("queued", 0)
    assert opened.log.count("agents wait: the disk is 98 % full") == 1
    why["now"] = ""
    opened.until(lambda: len(opened.told) == 2, "it is told again")


def test_what_an_agent_keeps_and_sends_outlives_its_turn_on_a_full_disk(council: Open) -> None:
    opened = council(leader=HANG)
    opened.write(thread_id="t-1")
    opened.turn()
    order = opened.job._turns.running["leader"].soldier.order
    assert order is not None
    assert {str(opened.places.outbox("leader")), order.env["KINGDOM_WORKSPACE"]} == set(order.lasting)
    assert set(order.lasting) < set(order.may_write)


def test_a_message_whose_last_status_a_power_cut_undid_has_one_dead_letter(council: Open) -> None:
    opened = council({"dlq": {"max_retries": 0}}, architect=LEFT)
    sent = opened.write("architect")
    raw = sent.read_bytes()
    opened.until(lambda: opened.names("dead_letter"), "it was given up")
    first = opened.names("dead_letter")
    opened.clock.pass_(1000)
    sent.write_bytes(raw)
    opened.settle()
    assert (opened.names("architect", "processed"), opened.names("dead_letter")) == ([], first)
    sent.write_bytes(raw.replace(b"goal: a README", b"goal: another"))
    opened.settle()
    assert len(opened.names("dead_letter")) == 2
