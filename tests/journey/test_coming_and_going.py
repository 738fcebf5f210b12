"""Up, down, stop, start, restart, reload: who runs, and what waits meanwhile."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.faults import trees
from tests.journey.kingdoms import Kingdom, answer

ROLES = ("chamberlain", "envoy", "king", "gen-briefing", "gen-herald")


def pids(kingdom: Kingdom) -> list[int]:
    return [kingdom.beat(role)["pid"] for role in ROLES]


def test_up_twice_starts_nobody_twice_and_down_leaves_nothing_running(launched: Kingdom) -> None:
    before = pids(launched)
    assert "The kingdom is up in " in launched.ok("up")
    assert pids(launched) == before
    assert launched.run("status").returncode == 0
    assert "- Roles: 6 of 6 at work" in launched.ok("say", "brief me")
    assert launched.ok("down").startswith("Stopped chamberlain, envoy, gen-briefing, gen-herald, king, sentinel.")
    assert launched.processes() == []
    assert launched.ok("down") == "Nothing was running.\n"
    assert launched.run("status").returncode == 1


def test_soldiers_outlive_a_down_and_are_found_again(own: Kingdom) -> None:
    work = f"while [ ! -e $KINGDOM_HOME/go ]; do sleep 0.1; done\n{answer(status='success', summary='dug')}"
    own.ok("generals", "install", str(own.general("gen-digs", work, keywords=["dig"])))
    event = own.ok("say", "--no-wait", "dig a hole").strip()
    own.until(lambda: "works on it; `" in own.run("why", event).stdout, "the soldier is out")
    task = own.task_of(event)
    assert f"1 soldier finishes its work ({task})" in own.ok("down")
    assert len(own.processes()) >= 2
    own.ok("up")
    (own.home / "go").touch()
    own.until_there(own.places.queue_file("tasks", "completed", task))
    assert own.read("tasks", "completed", task)["attempt"] == 0


@trees.in_campaigns
def test_down_with_soldiers_leaves_the_retries_of_their_tasks(own: Kingdom) -> None:
    own.ok("generals", "install", str(own.general("gen-digs", "sleep 600", keywords=["dig"])))
    event = own.ok("say", "--no-wait", "dig a hole").strip()
    own.until(lambda: "works on it; `" in own.run("why", event).stdout, "the soldier is out")
    assert "Ended 1 soldier (" in own.ok("down", "--soldiers")
    assert own.processes() == []
    package = own.general("gen-digs", answer(status="success", summary="dug"), keywords=["dig"])
    own.ok("generals", "install", str(package))
    own.ok("up")
    task = own.task_of(event)
    own.until_there(own.places.queue_file("tasks", "completed", task))
    ended = own.read("tasks", "completed", task)
    assert (ended["attempt"], ended["outcome"]) == (0, "success")


@trees.in_campaigns
def test_an_event_put_while_no_role_runs_is_served_though_two_start_them_at_once(own: Kingdom) -> None:
    own.ok("down")
    code, said = own.refused("say", "brief me")
    assert code == 3
    assert "the king is not running" in said
    event = own.ok("say", "--no-wait", "brief me").strip()
    assert f"{event} is a console.message" in own.ok("why", event)
    with ThreadPoolExecutor() as both:
        done = list(both.map(lambda _: own.run("up"), range(2)))
    assert [start.returncode for start in done] == [0, 0], [start.stdout + start.stderr for start in done]
    assert own.run("status").returncode == 0
    own.until_there(own.places.queue_file("events", "completed", event))
    own.until(lambda: len(own.messages(own.task_of(event))) == 2, "both messages")


def test_a_stopped_role_stays_down_until_it_is_started(kingdom: Kingdom) -> None:
    kingdom.ok("stop", "gen-herald")
    assert not kingdom.runs("gen-herald")
    assert "gen-herald stays down, stopped by hand" in kingdom.ok("up")
    assert not kingdom.runs("gen-herald")
    assert kingdom.run("status").returncode == 0, "who was stopped by hand is not missed"
    assert "gen-herald is stopped by hand" in kingdom.ok("say", "brief me")
    kingdom.ok("start", "gen-herald")
    assert kingdom.runs("gen-herald")
    before = kingdom.beat("king")["pid"]
    kingdom.ok("restart", "king")
    assert kingdom.beat("king")["pid"] != before


def test_a_quarantined_role_is_armed_again_by_hand(kingdom: Kingdom) -> None:
    kingdom.ok("stop", "envoy")
    kingdom.places.wanted("envoy").write_text("quarantined\n")
    done = kingdom.run("up")
    assert done.returncode == 1
    assert "envoy stays down, quarantined" in done.stdout
    assert kingdom.run("status").returncode == 1
    assert "envoy is quarantined" in kingdom.run("doctor").stdout
    kingdom.ok("start", "envoy")
    assert kingdom.run("status").returncode == 0


def test_a_crashed_role_comes_back_and_the_work_goes_on(kingdom: Kingdom) -> None:
    before = kingdom.beat("king")["pid"]
    os.kill(before, signal.SIGKILL)
    assert "- Roles: " in kingdom.ok("say", "brief me")
    assert kingdom.beat("king")["pid"] != before


def test_changed_configuration_is_taken_over_and_a_broken_one_is_not(kingdom: Kingdom) -> None:
    king = kingdom.places.config / "king.yaml"
    log = kingdom.places.role_log("king")
    calm = king.read_text()
    king.write_text(f"{calm}concurrency: {{max_soldiers: none}}\n")
    os.kill(kingdom.beat("king")["pid"], signal.SIGUSR1)
    kingdom.until(lambda: "keeps its old configuration" in log.read_text(), "the king refuses it")
    assert "king.yaml:3" in log.read_text()
    king.write_text(f"{calm}slack: {{default_channel: market}}\n")
    os.kill(kingdom.beat("king")["pid"], signal.SIGUSR1)
    kingdom.until(lambda: "took over new configuration" in log.read_text(), "the king takes it over")
    kingdom.event("evt-test-9", "console.message")
    kingdom.until_there(kingdom.places.queue_file("events", "completed", "evt-test-9"))
    task = kingdom.task_of("evt-test-9")
    said = [message for message in kingdom.all("messages", "sent") if message["task_id"] == task]
    assert {message["channel"] for message in said} == {"market"}


@trees.in_campaigns
def test_a_general_that_was_uninstalled_does_not_come_back(own: Kingdom) -> None:
    own.ok("generals", "uninstall", "gen-herald")
    own.ok("down")
    assert "gen-herald" not in own.ok("up")
    done = own.run("say", "anybody?")
    assert done.returncode == 1
    assert "no general subscribes to console.message" in done.stderr


@trees.in_campaigns
def test_who_cannot_start_says_why_at_once(own: Kingdom) -> None:
    own.ok("down")
    king = own.places.config / "king.yaml"
    king.write_text(f"{king.read_text()}concurrency: {{max_soldiers: none}}\n")
    done = own.run("up")
    assert done.returncode == 1
    assert "king, gen-briefing, gen-herald have not come up: " in done.stdout
    assert "king.yaml:3: concurrency.max_soldiers: 'none' is not of type 'integer'" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("kingdom doctor")
