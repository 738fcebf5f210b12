"""The first minutes of a newcomer: up, brief me, what can you do."""

import json
import time

from tests.journey.kingdoms import Kingdom, answer
from tests.waiting import SOON


def brief(kingdom: Kingdom) -> str:
    return kingdom.ok("say", "brief me")


def test_brief_me_comes_back_through_every_queue(kingdom: Kingdom) -> None:
    said = brief(kingdom)
    assert said.startswith("[start] console.message\n[complete] console.message — All is well.\n")
    assert "- Roles: 6 of 6 at work (chamberlain, envoy, king, sentinel, gen-briefing, gen-herald)." in said
    assert "- Under way: nothing but this briefing." in said, "it does not count itself"
    assert "- Next: gen-briefing:morning at " in said
    event = kingdom.all("events", "completed")[-1]
    task = kingdom.read("tasks", "completed", event["task_id"])
    assert (task["event_id"], task["outcome"]) == (event["id"], "success")
    assert kingdom.messages(task["id"])[0] == "[start] console.message"
    assert kingdom.messages(task["id"])[1] == said.partition("\n")[2].rstrip("\n")


def test_a_briefing_tells_what_the_files_say(kingdom: Kingdom) -> None:
    tasks = len(kingdom.all("tasks", "completed"))
    assert f"- Done: {tasks} task" in brief(kingdom)
    (kingdom.places.folder("events", "pending") / "nonsense.json").write_text("{")
    kingdom.until_there(kingdom.places.folder("events", "dead") / "nonsense.json")
    said = brief(kingdom)
    assert "Look here: dead/ holds 1 file that nobody could read." in said
    assert "events/dead/nonsense.json" in said
    assert f"- Done: {tasks + 1} task" in said


def test_it_is_understood_in_other_languages(kingdom: Kingdom) -> None:
    for words in ("오늘 현황 좀 알려줘", "ブリーフィングをお願いします", "Status?"):
        assert "- Roles: " in kingdom.ok("say", words), words


def test_the_herald_answers_what_no_other_general_takes(kingdom: Kingdom) -> None:
    said = kingdom.ok("say", "what is the meaning of this?")
    assert "no general knows these words" in said
    assert "gen-briefing: " in said
    assert "say: 'brief', 'brief me'" in said


def test_messages_as_json(kingdom: Kingdom) -> None:
    messages = [json.loads(line) for line in kingdom.ok("say", "--json", "brief me").splitlines()]
    assert [message["type"] for message in messages] == ["thread_start", "notification"]
    assert {message["source_ref"]["channel"] for message in messages} == {"console"}


def test_without_waiting_the_event_is_named(kingdom: Kingdom) -> None:
    event = kingdom.ok("say", "--no-wait", "brief", "me").strip()
    kingdom.until_there(kingdom.places.queue_file("events", "completed", event))
    assert kingdom.read("events", "completed", event)["payload"]["text"] == "brief me"


def test_an_answer_is_quick(kingdom: Kingdom) -> None:
    """Generous, because others share the machine; docs/benchmarks.md has the figure."""
    began = time.monotonic()
    brief(kingdom)
    assert time.monotonic() - began < SOON / 3


def test_a_patient_caller_gives_up_and_is_told_where_to_look(kingdom: Kingdom) -> None:
    kingdom.ok("generals", "install", str(kingdom.general("gen-slow", "sleep 60", keywords=["slowly"])))
    code, said = kingdom.refused("say", "--timeout", "1", "slowly please")
    assert code == 4
    event = said.rpartition(" why ")[2].strip("`\n")
    assert "gen-slow" in kingdom.ok("why", event)
    kingdom.ok("tasks", "cancel", kingdom.task_of(event))
    kingdom.until_there(kingdom.places.queue_file("events", "completed", event))


def test_a_general_can_be_a_shell_script(kingdom: Kingdom) -> None:
    package = kingdom.general("gen-echo", answer(status="success", summary="echo, echo"), keywords=["shout"])
    kingdom.ok("generals", "install", str(package))
    assert "[complete] console.message — echo, echo" in kingdom.ok("say", "shout it out")
