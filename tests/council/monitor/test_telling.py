"""Agents are told of good messages: by path alone, in order, one at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kingdom.base.disk.codec import parse_json
from kingdom.base.errors import BadConfig
from kingdom.base.home.places import as_filename, find_codec
from kingdom.base.runtime.processes import carriers, soldier_markers
from kingdom.council import mime
from kingdom.council.monitor.job import CouncilJob
from tests.council.monitor.conftest import Open
from tests.council.monitor.councils import DONE, HANG, LEFT, TOLD, Council, sh
from tests.fixtures import services


def test_an_agent_is_told_the_path_alone_and_its_message_stays_deleted(council: Open) -> None:
    opened = council(leader=f'{TOLD} env >env.txt; cat "$1" >seen.txt; {DONE}')
    sent = opened.write(body="goal: a secret goal\n")
    opened.settle()
    assert opened.told == [f"leader {sent.name}"]
    assert (opened.home / "told.txt").read_text() == f"leader {opened.places.told('leader') / sent.name}\n"
    assert "secret" not in (opened.home / "env.txt").read_text()
    assert mime.parse_message((opened.home / "seen.txt").read_text())["body"] == "goal: a secret goal\n"
    assert opened.everything == []
    opened.turn()
    assert opened.everything == []


def test_a_message_is_marked_as_delivered_while_its_agent_is_at_work(council: Open) -> None:
    opened = council(leader=HANG)
    sent = opened.write()
    before = sent.read_bytes()
    opened.turn()
    told = opened.places.told("leader") / sent.name
    found = opened.headers(told)
    assert (found["status"], found["processed_at"]) == ("delivered", "2026-02-07T10:00:00+00:00")
    assert not sent.exists()
    assert mime.extract_body(told.read_text()) == mime.extract_body(before.decode())
    opened.turn()
    assert opened.headers(told)["status"] == "delivered"


@pytest.mark.parametrize("status", ["", "queued", "processing", "retrying", "dead_letter", "odd"])
def test_whatever_comes_into_an_agents_folder_is_told_as_new(status: str, council: Open) -> None:
    opened = council(leader='cp "$1" seen.txt; rm "$1"')
    raw = mime.build_message(from_agent="user", to_agents="leader", msg_type="user_goal", body="goal: x", status=status)
    raw = mime.update_header(raw, "X-IGNITE-Retry-Count", "3")
    opened.write(raw=mime.update_header(raw, "X-IGNITE-Error-Reason", "old").encode())
    opened.settle()
    seen = mime.parse_message((opened.home / "seen.txt").read_text())
    assert seen["status"] in ("processing", "delivered")
    assert "retry_count" not in seen
    assert "error_reason" not in seen


@pytest.mark.parametrize("status", ["", "queued", "processing"])
def test_a_new_message_in_processed_is_told(status: str, council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    sent = opened.write(folder="processed", status=status)
    opened.settle()
    assert (opened.told, opened.everything) == ([f"leader {sent.name}"], [])


def test_what_an_agent_calls_completed_is_left_alone(council: Open) -> None:
    opened = council(leader=TOLD + DONE)
    opened.write(folder="processed", status="completed")
    opened.write(status="completed")
    opened.settle()
    assert (opened.told, len(opened.everything)) == ([], 2)


def test_a_message_of_several_addressees_is_told_to_each(council: Open) -> None:
    opened = council(leader=TOLD + DONE, evaluator=TOLD + DONE)
    for agent in ("leader", "evaluator"):
        opened.write(agent, "goal_1770000000000001.mime", to="leader", cc="evaluator")
    opened.settle()
    assert sorted(opened.told) == ["evaluator goal_1770000000000001.mime", "leader goal_1770000000000001.mime"]


def test_messages_are_told_by_priority_then_age(council: Open) -> None:
    opened = council({"queue": {"parallel_max": 1}}, leader=TOLD + DONE, architect=TOLD + DONE)
    for number, (agent, priority) in enumerate(
        [("leader", "low"), ("leader", "odd"), ("architect", "normal"), ("leader", "high"), ("leader", "critical")]
    ):
        opened.write(agent, f"m_{priority}_177000000000000{number}.mime", priority=priority)
    opened.settle()
    assert [told.split("_")[1] for told in opened.told] == ["critical", "high", "odd", "normal", "low"]


def test_an_agent_has_one_turn_at_a_time_and_the_others_wait_for_a_slot(council: Open) -> None:
    ignitian = f"{TOLD} while [ ! -e go ]; do sleep 0.02; done; {DONE}"
    opened = council({"queue": {"parallel_max": 2}}, ignitian=ignitian)
    for count, agents in ((1, ("ignitian_1", "ignitian_1")), (2, ("ignitian_2", "ignitian_3"))):
        for agent in agents:
            opened.write(agent, from_agent="coordinator", msg_type="task_assignment", body="{task_id: a, title: b}")
        opened.until(lambda number=count: len(opened.told) == number, "so many are told")  # type: ignore[misc]
        opened.turn()
    assert sorted(told.split()[0] for told in opened.told) == ["ignitian_1", "ignitian_2"]
    assert [len(opened.names(f"ignitian_{number}")) for number in (1, 2, 3)] == [1, 0, 1]
    (opened.home / "go").touch()
    opened.settle()
    assert (len(opened.told), opened.everything) == (4, [])


def test_messages_to_agents_that_nobody_starts_wait_untouched(council: Open) -> None:
    opened = council(leader=DONE)
    before = opened.write("system", from_agent="leader", msg_type="progress_update", body="nonsense")
    opened.settle()
    assert opened.everything == [f"system/{before.name}"]


def test_a_message_for_an_agent_whose_folder_is_new_is_told(council: Open) -> None:
    opened = council(ignitian=TOLD + DONE)
    sent = opened.write("ignitian_9")
    opened.settle()
    assert opened.told == [f"ignitian_9 {sent.name}"]


def test_folders_are_made_for_every_agent_and_so_many_ignitians(council: Open) -> None:
    opened = council({"defaults": {"worker_count": 2}}, github_watcher=DONE)
    agents = "architect coordinator evaluator github_watcher ignitian_1 ignitian_2 innovator leader strategist user"
    made = sorted(path.parent.name for path in opened.places.council.glob("*/processed"))
    assert made == agents.split()


def test_other_agents_can_be_named_in_a_running_council(council: Open) -> None:
    opened = council(leader=DONE)
    sent = opened.write("architect")
    opened.settle()
    opened.job.reload(
        services(opened.home, "council", opened.clock, council={"agents": {"architect": sh(TOLD + DONE)}})
    )
    opened.settle()
    assert opened.told == [f"architect {sent.name}"]


def test_an_agent_runs_in_the_home_and_gets_no_secret(
    home: Path, council: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary")
    opened = council(leader=f"pwd >where.txt; env >env.txt; {DONE}")
    opened.write()
    opened.settle()
    assert (home / "where.txt").read_text().strip() == str(home)
    env = (home / "env.txt").read_text()
    assert f"KINGDOM_HOME={home}\n" in env
    assert "KINGDOM_AGENT=leader\n" in env
    assert "canary" not in env


def test_what_an_agent_leaves_running_is_ended_with_its_turn(council: Open) -> None:
    opened = council(leader=f'setsid sh -c "sleep 1000" & {DONE}')
    opened.write()
    opened.settle()
    assert carriers(soldier_markers(opened.home, "council-leader")) == []


VARIABLES = {
    "QUEUE_POLL_INTERVAL": "0.5",
    "QUEUE_PARALLEL_MAX": "7",
    "RETRY_TIMEOUT": "12",
    "RETRY_BASE_DELAY": "0.25",
    "RETRY_MAX_DELAY": "9",
    "DLQ_MAX_RETRIES": "5",
}


def test_variables_win_over_the_file(council: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    given = council({"queue": {"parallel_max": 2}}).job._settings
    found = (given.poll_interval, given.parallel_max, given.task_timeout, given.base_delay, given.max_delay)
    assert (*found, given.max_retries) == (0.5, 7, 12, 0.25, 9, 5)


def test_variables_may_stand_in_the_env_file(home: Path, council: Open) -> None:
    (home / ".env").write_text("DLQ_MAX_RETRIES=1\n")
    (home / ".env").chmod(0o600)
    assert council().job._settings.max_retries == 1


@pytest.mark.parametrize("value", ["many", "-1", "0.5"])
def test_a_variable_that_does_not_fit_is_refused(value: str, council: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = council()
    monkeypatch.setenv("QUEUE_PARALLEL_MAX", value)
    with pytest.raises(BadConfig, match=r"^QUEUE_PARALLEL_MAX: queue\.parallel_max: "):
        CouncilJob(opened.services)


def test_the_figures_say_who_is_at_work_and_what_waits(council: Open) -> None:
    from kingdom.base.disk.codec import read_json

    opened = council(leader=HANG, architect=LEFT)
    first, _, _ = opened.write(), opened.write(), opened.write("architect")
    opened.until(lambda: "retry 1" in opened.log, "the architect has left its message")
    opened.job.close()
    said = read_json(opened.places.council_figures)
    assert said["at_work"] == {"leader": first.name}
    assert (said["waiting"], said["retrying"], said["told"], said["retried"]) == (1, 1, 2, 1)


def test_every_message_is_listed_in_its_thread(council: Open) -> None:
    opened: Council = council(leader=DONE)
    sent = opened.write(thread_id="a/b", body="title: what it is about")
    opened.settle()
    (path,) = opened.places.council_threads.iterdir()
    (row,) = [parse_json(line) for line in path.read_bytes().splitlines()]
    assert (row["file"], row["agent"], row["about"]) == (sent.name, "leader", "what it is about")
    assert path.name == "a+2f+b.jsonl"


@pytest.mark.parametrize("folder", ["", "processed"])
def test_a_goal_that_names_no_thread_begins_one_that_its_answers_inherit(folder: str, council: Open) -> None:
    answer = f"{sys.executable} {find_codec()} send --from leader --to user --type progress_update --reply-to $1"
    opened: Council = council(leader=f"{answer} --body '{{repository: x, summary: seen}}' && {DONE}")
    goal = opened.headers(opened.write(folder=folder))["message_id"]
    opened.settle()
    (path,) = opened.places.council_threads.iterdir()
    rows = [parse_json(line) for line in path.read_bytes().splitlines()]
    assert path.name == f"{as_filename(goal.strip('<>'))}.jsonl"
    assert [(row["type"], row["in_reply_to"]) for row in rows] == [("user_goal", ""), ("progress_update", goal)]


def test_messages_of_other_types_and_answers_begin_no_thread(council: Open) -> None:
    opened: Council = council(leader=DONE)
    opened.write(msg_type="notification", body="a: b")
    opened.write(in_reply_to="<1.2.3@ignite.local>")
    opened.settle()
    assert [path.name for path in opened.places.council_threads.iterdir()] == ["without-2026-02-07.jsonl"]
