"""Ten minutes from nothing to a general of one's own, as docs/generals.md tells it; and the ones that come along."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kingdom.base.disk.lock import is_locked
from tests.faults import trees
from tests.journey.kingdoms import Kingdom, answer

CHECKOUT = Path(__file__).parents[2]


def test_a_new_general_validates_and_answers_as_it_is(kingdom: Kingdom) -> None:
    assert "gen-weather" in kingdom.ok("generals", "new", "weather")
    package = kingdom.places.package("gen-weather")
    assert kingdom.ok("generals", "validate", str(package)).startswith("gen-weather can be installed")
    kingdom.ok("generals", "install", str(package))
    assert "[complete] console.message — I was told: weather hello" in kingdom.ok("say", "weather hello")


@trees.in_campaigns
def test_a_general_works_by_the_new_manifest_when_installing_returns(kingdom: Kingdom) -> None:
    """Its next look at the file would have been ten seconds later."""
    package = kingdom.general("gen-turn", answer(status="success", summary="done"), keywords=["turn"])
    kingdom.ok("generals", "install", str(package))
    assert kingdom.ok("say", "turn").endswith("— done\n")
    about = json.loads((package / "manifest.yaml").read_text())
    for number in range(2):
        (package / "manifest.yaml").write_text(json.dumps({**about, "engine": "none-such", "keywords": [f"n{number}"]}))
        assert "Note: needs set-up: the engine 'none-such'" in kingdom.ok("generals", "install", str(package))
        event = kingdom.ok("say", "--no-wait", f"n{number}").strip()
        kingdom.until_there(kingdom.places.queue_file("events", "completed", event))
        result = json.loads(kingdom.places.result(kingdom.task_of(event)).read_text())
        assert (result["status"], "none-such" in result["reason"]) == ("skipped", True)
        (package / "manifest.yaml").write_text(json.dumps({**about, "keywords": [f"m{number}"]}))
        kingdom.ok("generals", "install", str(package))
        assert kingdom.ok("say", f"m{number}").endswith("— done\n")


@trees.in_campaigns
def test_the_role_that_a_general_needs_works_too_when_installing_returns(own: Kingdom) -> None:
    own.ok("generals", "install", "gen-council")
    assert is_locked(own.places.lock("council"))
    assert "council does not run" not in own.ok("council", "plan", "a poem")


def test_a_manifest_of_another_name_is_told_once(own: Kingdom) -> None:
    own.places.manifest("gen-wrong").write_text("name: gen-right\ndescription: x\ntimeout_seconds: 60\n")
    said = own.run("up")
    assert said.returncode == 1
    plain = "gen-wrong.yaml: name: says 'gen-right', but the file is called gen-wrong.yaml; give both the same name"
    assert plain in said.stdout
    assert "[complete]" in own.ok("say", "brief me"), "nobody else minds"
    assert own.places.role_log("king").read_text().count(plain) == 1
    assert own.places.role_log("gen-wrong").read_text().count(plain) == 1


@pytest.mark.parametrize("name", ["", "Weather", "../x", "gen-", "-x", "wéather", "x" * 80])
def test_a_name_that_can_be_none_is_refused_in_one_line(kingdom: Kingdom, name: str) -> None:
    code, said = kingdom.refused("generals", "new", "--", name)
    assert code == 78, said


def test_what_is_there_is_not_overwritten(kingdom: Kingdom) -> None:
    kingdom.ok("generals", "new", "twice")
    manifest = kingdom.places.package("gen-twice") / "manifest.yaml"
    manifest.write_text("mine")
    _, said = kingdom.refused("generals", "new", "gen-twice")
    assert "is there already" in said
    assert manifest.read_text() == "mine"


def test_a_run_can_be_tried_by_hand(kingdom: Kingdom) -> None:
    kingdom.ok("generals", "new", "hand")
    task = {"id": "task-1", "type": "console.message", "payload": {"text": "안녕"}}
    (kingdom.home / "task.json").write_text(json.dumps(task))
    told = {"KINGDOM_TASK_FILE": kingdom.home / "task.json", "KINGDOM_RESULT_PATH": kingdom.home / "result.json"}
    run = kingdom.places.package("gen-hand") / "run"
    subprocess.run([run], env={**os.environ, **told}, stdin=subprocess.DEVNULL, check=True)
    result = json.loads((kingdom.home / "result.json").read_text())
    assert result == {"task_id": "task-1", "status": "success", "summary": "I was told: 안녕"}


@pytest.mark.parametrize(
    ("general", "type_"),
    [("gen-pr", "github.pr.review_requested"), ("gen-jira", "jira.ticket.assigned")],
)
def test_without_an_engine_that_thinks_a_task_needs_set_up(kingdom: Kingdom, general: str, type_: str) -> None:
    kingdom.ok("generals", "install", str(kingdom.places.package(general)))
    name = f"evt-{general}"
    kingdom.event(name, type_)
    kingdom.until_there(kingdom.places.queue_file("events", "completed", name))
    task = kingdom.task_of(name)
    result = json.loads(kingdom.places.result(task).read_text())
    assert result["status"] == "skipped"
    assert result["reason"].startswith(f"needs set-up: {general} cannot work")
    assert kingdom.runs(general)


@trees.in_campaigns
def test_the_doctor_finds_what_is_wrong_and_says_the_next_command(own: Kingdom) -> None:
    own.ok("generals", "install", str(own.places.package("gen-doctor")))
    assert "[complete] console.message — Nothing is wrong." in own.ok("say", "doctor")
    own.ok("stop", "gen-briefing")
    (own.places.folder("events", "pending") / "nonsense.json").write_text("{")
    own.until_there(own.places.folder("events", "dead") / "nonsense.json")
    said = own.ok("say", "진단")
    for line in (
        "- gen-briefing is stopped by hand",
        "    kingdom start gen-briefing",
        "- 1 file in queue/events/dead that nobody could read",
        "    kingdom queue ls events/dead says why, kingdom queue requeue ID puts one back",
    ):
        assert line in said, said


def test_only_two_generals_come_by_themselves(kingdom: Kingdom) -> None:
    for name in ("gen-briefing", "gen-herald"):
        assert kingdom.places.manifest(name).exists()
    there = {path.name for path in kingdom.places.packages.iterdir()}
    assert {"gen-pr", "gen-jira", "gen-test", "gen-doctor"} <= there


@pytest.mark.parametrize("package", sorted(path.name for path in (CHECKOUT / "generals").glob("gen-*")))
def test_every_package_that_comes_along_can_be_installed(package: str, kingdom: Kingdom) -> None:
    copy = kingdom.home / "copies" / package
    shutil.copytree(CHECKOUT / "generals" / package, copy)
    assert kingdom.ok("generals", "validate", str(copy)).startswith(f"{package} can be installed")
