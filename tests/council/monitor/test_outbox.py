"""Agents in their sandboxes send by their outboxes alone: nobody forges a sender, or touches another's queue."""

from __future__ import annotations

import errno
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places, find_codec
from kingdom.council import mime
from kingdom.council.bodies import original_of, read_body
from kingdom.council.monitor import outboxes
from tests.council.monitor.conftest import Open
from tests.council.monitor.councils import DONE, TOLD, Council, caged, sh
from tests.fixtures import all_of
from tests.machine import needs_sandbox

pytestmark = needs_sandbox

MIME = f"python3 {find_codec()}"
MANY = 10_000 if os.environ.get("KINGDOM_CAMPAIGN") else 1_500
SEND = f"{MIME} send --from architect --type architecture_response --body '{{goal: g, proposed_architecture: p}}' "


def letters(council: Council) -> list[dict[str, Any]]:
    """Return the bodies of all dead letters."""
    found = sorted(council.places.dead_letters.glob("*.mime"))
    return [read_body(mime.extract_body(path.read_text())) for path in found]


def alerts(council: Council) -> list[str]:
    return [message["content"] for message in all_of(council.home, "messages", "pending")]


def sent(council: Council, agent: str = "leader") -> list[dict[str, Any]]:
    """Return what lies in an agent's folder."""
    return [council.headers(council.places.agent(agent) / name) for name in council.names(agent)]


def test_what_an_agent_sends_reaches_its_addressees_once_each(council: Open) -> None:
    opened = council({"agents": {"architect": caged(f'{SEND} --to leader --cc evaluator --reply-to "$1" && {DONE}')}})
    asked = opened.headers(opened.write("architect", thread_id="t-1"))
    opened.settle()
    (to_leader,), (to_evaluator,) = sent(opened), sent(opened, "evaluator")
    assert to_leader == to_evaluator
    assert (to_leader["from"], to_leader["in_reply_to"], to_leader["thread_id"]) == (
        *("architect", asked["message_id"]),
        "t-1",
    )
    assert (len(opened.everything), list(opened.places.outbox("architect").iterdir()), alerts(opened)) == (2, [], [])
    assert list(opened.places.postings.rglob("*.mime")) == []


def test_a_message_is_sent_on_while_its_agent_is_at_work(council: Open) -> None:
    waits = f"{SEND} --to leader; while [ -e $KINGDOM_HOME/wait ]; do sleep 0.02; done; {DONE}"
    opened = council({"agents": {"architect": caged(waits), "leader": caged(TOLD + DONE)}})
    (opened.home / "wait").touch()
    opened.write("architect")
    opened.until(lambda: opened.job._delivery.figures._now.get("done"), "leader has done with it")
    assert list(opened.job._turns.running) == ["architect"]
    (opened.home / "wait").unlink()
    opened.settle()
    assert opened.everything == []


def test_with_its_sandbox_switched_off_an_agent_writes_the_queue_itself(council: Open) -> None:
    opened = council(architect=f"{SEND} --to leader && {DONE}")
    opened.write("architect")
    opened.settle()
    assert len(sent(opened)) == 1


ROGUE = """
import errno, fcntl, os, socket, subprocess, sys, time
HOME, OUTBOX, MINE = os.environ["KINGDOM_HOME"], os.environ["KINGDOM_OUTBOX"], sys.argv[1]
QUEUE = f"{HOME}/workspace/queue"
THEIRS = f"{QUEUE}/evaluator/processed/goal_1770000000000009.mime"
GOOD = open(MINE).read().replace("From: user", "From: architect").replace("To: architect", "To: leader")
FORGED = GOOD.replace("From: architect", "From: user")

def put(name, text=GOOD):
    with open(f"{OUTBOX}/.draft", "w") as file: file.write(text)
    os.rename(f"{OUTBOX}/.draft", f"{OUTBOX}/{name}_1770000000000001.mime")

def refused(act, *arguments):
    try: act(*arguments)
    except OSError as error: assert error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV), error
    else: open(f"{OUTBOX}/broken-out", "w")
"""
"""What a rogue agent begins with."""

OUTSIDE = {
    "a message in another's folder": """refused(open, f"{QUEUE}/evaluator/x_1770000000000001.mime", "w")""",
    "a message in its own folder": """refused(open, f"{QUEUE}/architect/x_1770000000000001.mime", "w")""",
    "a message told to itself": """refused(open, f"{QUEUE}/architect/processed/x_1770000000000001.mime", "w")""",
    "a letter among the dead": """refused(open, f"{QUEUE}/dead_letter/x.mime", "w")""",
    "another's message deleted": """refused(os.unlink, THEIRS)""",
    "another's message read": """refused(open, THEIRS)""",
    "another's message renamed to its own": """refused(os.rename, THEIRS, f"{OUTBOX}/x.mime")""",
    "another's message linked": """refused(os.link, THEIRS, f"{OUTBOX}/x.mime")""",
    "its own message changed": """refused(open, MINE, "r+")""",
    "its own message cut": """refused(os.truncate, MINE, 0)""",
    "its own message sent off": """refused(os.rename, MINE, f"{OUTBOX}/x.mime")""",
    "its own message renamed": """refused(os.rename, MINE, MINE + "x")""",
    "its own message for another's": """refused(os.rename, MINE, THEIRS)""",
    "a folder of its own": """refused(os.mkdir, f"{QUEUE}/architect/processed/x")""",
    "its folder removed": """refused(os.rmdir, f"{QUEUE}/leader/processed")""",
    "another's outbox": """refused(open, f"{HOME}/state/council/outboxes/leader/x.mime", "w")""",
    "a copy on its way": """refused(open, f"{HOME}/state/council/posting/leader/x.mime", "w")""",
    "the note of its turn": """refused(open, f"{HOME}/state/council/camp/council-architect/told.json", "w")""",
    "what the council knows": """refused(open, f"{HOME}/state/council/threads/t-1.jsonl")""",
    "the queue by its link": """refused(open, f"{HOME}/queue/council/leader/x.mime", "w")""",
    "its outbox taken away": """refused(os.rename, OUTBOX, OUTBOX + "-gone")""",
    "a link in its outbox": """
os.symlink(f"{QUEUE}/leader", f"{OUTBOX}/way"); refused(open, f"{OUTBOX}/way/x_1770000000000001.mime", "w")
os.unlink(f"{OUTBOX}/way")
""",
}


@pytest.fixture
def rogue(council: Open, home: Path) -> Any:
    """Return what opens a council whose architect does this, and settles it."""

    def opened(does: str, **settings: Any) -> Council:
        program = home / "agents" / "rogue.py"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(ROGUE + textwrap.dedent(does) + "\nos.unlink(MINE)\n")
        row = {"command": ["python3", "agents/rogue.py"], "env": ["PATH"]}
        places = Places(home)
        for folder in (places.outbox("leader"), places.postings / "leader"):
            folder.mkdir(parents=True, exist_ok=True)
        places.council_link.parent.mkdir(parents=True, exist_ok=True)
        places.council_link.symlink_to(places.council)
        done: Council = council({"agents": {"architect": row, "evaluator": caged("sleep 1000")}, **settings})
        done.write("evaluator", name="goal_1770000000000009.mime", thread_id="t-1")
        done.until(lambda: done.names("evaluator", "processed"), "the evaluator is at work")
        done.write("architect")
        done.until(lambda: not done.names("architect", "processed") and not done.names("architect"), "it is done")
        done.until(lambda: "architect" not in done.job._turns.running, "it has ended")
        return done

    return opened


def test_an_agent_reaches_nothing_but_its_outbox_and_its_own_messages(rogue: Any) -> None:
    opened = rogue("".join(f"\nassert True, {what!r}\n{code}\n" for what, code in OUTSIDE.items()))
    assert opened.everything == ["evaluator/processed/goal_1770000000000009.mime"]
    assert "left unfinished" not in opened.log, "it has noted that it broke out"
    assert (letters(opened), alerts(opened), opened.log.count("retry")) == ([], [], 0)


CLOSED = "nobody may read it" if os.geteuid() == 0 else os.strerror(errno.EACCES)
FORGERIES = {
    "another sender": ("""put("x", FORGED)""", "it is from 'user' and lay in the outbox of architect"),
    "two senders": ("""put("x", GOOD.replace("From: ", "From: user\\nFrom: "))""", "From stands twice"),
    "two names": ("""put("x", GOOD.replace("From: ", "From: user, "))""", "it is from 'user, architect'"),
    "a folded sender": ("""put("x", GOOD.replace("From: architect", "From: us\\n er"))""", "From names 'us er'"),
    "no sender": ("""put("x", GOOD.replace("From: architect\\n", ""))""", "From is missing"),
    "a sender that nobody knows": ("""put("x", GOOD.replace("From: architect", "From: bob"))""", "From names 'bob'"),
    "an ignitian that is not there": ("""put("x", GOOD.replace("To: leader", "To: ignitian_77"))""", "there is no"),
    "a path for a name": ("""put("x", GOOD.replace("To: leader", "To: ../../x"))""", "To names '../../x'"),
    "no mapping": ("""put("x", GOOD.partition("\\n\\n")[0] + "\\n\\n- list\\n")""", "it is no YAML mapping"),
    "a link to a file": ("""os.symlink("/etc/passwd", f"{OUTBOX}/x.mime")""", "a symbolic link"),
    "a link to another's message": ("""os.symlink(THEIRS, f"{OUTBOX}/x.mime")""", "a symbolic link"),
    "a pipe": ("""os.mkfifo(f"{OUTBOX}/x.mime")""", "not a regular file"),
    "a folder": ("""os.makedirs(f"{OUTBOX}/x.mime/y")""", "not a regular file"),
    "a giant": ("""os.truncate(os.open(f"{OUTBOX}/x.mime", 66, 0o600), 3 << 30)""", "3221225472 bytes, more than"),
    "a closed file": ("""put("x"); os.chmod(f"{OUTBOX}/x_1770000000000001.mime", 0)""", CLOSED),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_what_is_not_its_own_to_send_is_parked_and_people_are_told(what: str, rogue: Any) -> None:
    does, reason = FORGERIES[what]
    opened = rogue(does)
    (body,), (alert,) = letters(opened), alerts(opened)
    assert reason in body["failure_info"]["last_error"]
    assert body["original_file"].startswith("outboxes/architect/x")
    assert reason in alert
    assert [name for name in opened.everything if "dead_letter" not in name] == [
        "evaluator/processed/goal_1770000000000009.mime"
    ]
    if what == "another sender":
        assert original_of(body).startswith(b"MIME-Version: 1.0\n")
    assert list(opened.places.outbox("architect").iterdir()) == []


def test_of_many_forgeries_people_are_told_once(rogue: Any) -> None:
    opened = rogue("""for number in range(3): put(f"x{number}", FORGED)""")
    assert (len(letters(opened)), len(alerts(opened))) == (3, 1)


def test_a_flood_is_set_aside_and_others_are_served(rogue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "MOST_SENT", 100)
    opened = rogue(
        f"\n        MANY = {MANY}"
        + """
        for number in range(MANY):
            with open(f"{OUTBOX}/.draft", "w") as file: file.write(GOOD)
            os.rename(f"{OUTBOX}/.draft", f"{OUTBOX}/x_{1770000000000000 + number}.mime")
        """
    )
    (body,), (alert,) = letters(opened), alerts(opened)
    assert "more messages than an agent may send in one turn" in alert
    assert body["original_file"] == "outboxes/architect"
    (aside,) = opened.places.dead_letters.glob("*.original")
    assert len(opened.names("leader")) + len(os.listdir(aside)) == MANY
    assert 100 <= len(opened.names("leader")) < 200


@pytest.mark.parametrize(
    "does",
    [
        """os.chmod(OUTBOX, 0); os.chmod(os.path.dirname(MINE), 0o300)""",
        """open(f"{OUTBOX}/half.mime.tmp", "w").write(GOOD[:50])""",
        """os.makedirs(f"{OUTBOX}/deep/er"); open(f"{OUTBOX}/deep/er/x.mime", "w").write(FORGED)""",
        """
        from contextlib import suppress
        held = os.open(MINE, os.O_RDONLY); fcntl.flock(held, fcntl.LOCK_EX); time.sleep(0.3)
        """,
    ],
    ids=["closed folders", "an unfinished file", "folders", "a lock on its message"],
)
def test_mischief_in_its_own_folders_hinders_nobody(does: str, rogue: Any) -> None:
    opened = rogue(does)
    assert opened.everything == ["evaluator/processed/goal_1770000000000009.mime"]
    assert list(opened.places.outbox("architect").iterdir()) == []
    assert opened.places.told("architect").stat().st_mode & 0o777 == 0o700
    assert alerts(opened) == []


def test_what_is_swapped_while_it_is_taken_is_sent_as_it_was_judged(rogue: Any) -> None:
    opened = rogue("""
        held = open(f"{OUTBOX}/x_1770000000000001.mime", "w+"); held.write(GOOD); held.flush()
        ends = time.monotonic() + 0.5
        while time.monotonic() < ends:
            for text in (GOOD, FORGED):
                with open(f"{OUTBOX}/.draft", "w") as file: file.write(text)
                os.rename(f"{OUTBOX}/.draft", f"{OUTBOX}/y_1770000000000001.mime")
        """)
    assert {message["from"] for message in sent(opened)} <= {"architect"}
    parked = {body["failure_info"]["last_error"] for body in letters(opened)}
    assert all("from 'user'" in why or outboxes.FLOOD in why for why in parked), parked


@pytest.mark.parametrize(
    ("said", "reaches"),
    [
        ("", True),
        ("--type user_goal", True),
        ("--thread-id t-1", True),
        ("--thread-id t-2", False),
    ],
)
def test_what_an_agent_sends_belongs_to_the_thread_that_it_was_told_of(said: str, reaches: bool, council: Open) -> None:
    opened = council({"agents": {"architect": caged(f"{SEND} --to leader {said} && {DONE}")}})
    opened.write("architect", thread_id="t-1")
    opened.settle()
    assert [message["thread_id"] for message in sent(opened)] == ["t-1"] * reaches
    reasons = [body["failure_info"]["last_error"] for body in letters(opened)]
    assert reasons == ["it is of the thread 't-2', and architect was told of 't-1'"] * (not reaches)


@pytest.mark.parametrize("step", ["copied", "taken out", "put into the queue"])
def test_a_kill_at_any_step_of_sending_sends_once(step: str, council: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = council(leader=TOLD + "true")
    outbox = opened.places.outbox("architect")
    outbox.mkdir(parents=True)
    for number in range(3):
        body = f"{{goal: g{number}, proposed_architecture: p}}"
        to = ["leader", "evaluator"]
        raw = mime.build_message(from_agent="architect", to_agents=to, msg_type="architecture_response", body=body)
        (outbox / f"x_177000000000000{number}.mime").write_text(raw)

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    disk = opened.services.unsynced
    where = {"copied": (disk, "remove_all"), "taken out": (disk, "move"), "put into the queue": (None, "")}[step]
    with monkeypatch.context() as patched:
        if where[0] is not None:
            patched.setattr(*where, killed)
        try:
            opened.job._outboxes.collect({"architect": ""}, most=2)
        except Killed:
            assert where[0] is not None
    opened.start()
    found = [message["body"] for agent in ("leader", "evaluator") for message in sent(opened, agent)]
    assert sorted(found) == sorted(2 * [f"{{goal: g{number}, proposed_architecture: p}}" for number in range(3)])
    assert list(outbox.iterdir()) == []


@pytest.mark.parametrize(
    ("reader", "thread"),
    [(TOLD + DONE, "t-1"), (TOLD + DONE, ""), ("sleep 1000", "t-1")],
    ids=["taken", "taken, of no thread", "waiting"],
)
def test_an_agent_that_is_told_again_sends_once_what_it_sent_once(reader: str, thread: str, council: Open) -> None:
    again = '[ -e "$KINGDOM_WORKSPACE/again" ] || { touch "$KINGDOM_WORKSPACE/again"; exit 3; }; '
    says = f'{SEND} --to leader --reply-to "$1" --once answer && {again}{DONE}'
    opened = council({"agents": {"architect": caged(says), "leader": sh(reader)}, "retry": {"base_delay": 0}})
    first = opened.write("leader") if reader != TOLD + DONE else None
    if first is not None:
        opened.until(lambda: opened.names("leader", "processed"), "leader is at work on another")
    opened.write("architect", thread_id=thread, msg_type="notification", body="a: b")
    opened.until(lambda: "retry 1 of 3" in opened.log, "its first turn has failed")
    opened.until(lambda: not [*opened.names("architect"), *opened.names("architect", "processed")], "it is done")
    opened.until(lambda: "architect" not in opened.job._turns.running, "it has ended")
    if first is None:
        opened.settle()
    told = [line for line in opened.told if "architecture_response" in line]
    assert (len(told), len(opened.names("leader"))) == ((1, 0) if first is None else (0, 1))
    assert list(opened.places.outbox("architect").iterdir()) == []
