"""What becomes of events: discarded, failed, asked about, answered, taken up again."""

import json

from tests.journey.kingdoms import Kingdom, answer


def test_an_event_that_nobody_wants_is_discarded_with_the_reason(kingdom: Kingdom) -> None:
    kingdom.event("evt-test-1", "nobody.wants.this")
    kingdom.until_there(kingdom.places.queue_file("events", "completed", "evt-test-1"))
    event = kingdom.read("events", "completed", "evt-test-1")
    assert (event["status"], event["task_id"]) == ("discarded", None)
    assert event["discarded_reason"] == "no general subscribes to nobody.wants.this"
    assert "no general subscribes" in kingdom.ok("events", "--discarded")
    told = kingdom.ok("why", "evt-test-1")
    assert "was discarded: no general subscribes to nobody.wants.this" in told
    assert "rule tried: subscribes 'nobody.*' → nobody" in told


def test_a_discarded_event_can_be_taken_up_again(kingdom: Kingdom) -> None:
    kingdom.event("evt-test-2", "later.wanted")
    kingdom.until_there(kingdom.places.queue_file("events", "completed", "evt-test-2"))
    package = kingdom.general("gen-late", answer(status="success", summary="better late"), subscribes=["later.*"])
    kingdom.ok("generals", "install", str(package))
    kingdom.until(lambda: "gen-late" in kingdom.places.system_log.read_text(), "the king knows gen-late")
    assert kingdom.ok("queue", "requeue", "evt-test-2") == "back in events/pending\n"
    kingdom.until(
        lambda: "[complete] later.wanted — better late" in str(kingdom.all("messages", "sent")), "the message"
    )
    assert kingdom.read("tasks", "completed", kingdom.task_of("evt-test-2"))["outcome"] == "success"


def test_a_failing_soldier_is_tried_again_and_then_reported(kingdom: Kingdom) -> None:
    package = kingdom.general("gen-fails", "echo it broke >&2; exit 3", keywords=["break"])
    kingdom.ok("generals", "install", str(package))
    done = kingdom.run("say", "break it")
    assert done.returncode == 1
    task = kingdom.all("tasks", "completed")[-1]
    *_, failed, hint = done.stdout.splitlines()
    assert failed.startswith("[failed] no result (ended with code 3): it broke")
    assert hint.endswith(f" why {task['id']}` shows more")
    assert (task["target_general"], task["attempt"], task["outcome"]) == ("gen-fails", 1, "failed")
    assert "it broke" in kingdom.run("say", "brief me").stdout
    again = kingdom.ok("tasks", "retry", task["id"])
    assert again.endswith("tries it again\n")
    kingdom.until_there(kingdom.places.queue_file("tasks", "completed", again.split()[0]))


ASKS = f"""
if grep -q '"type": "resume"' "$KINGDOM_TASK_FILE"; then
    said=$(sed -n 's/.*"human_response": "\\([a-z]*\\)".*/\\1/p' "$KINGDOM_TASK_FILE")
    printf '{{"task_id": "%s", "status": "success", "summary": "painted %s"}}' "$KINGDOM_TASK_ID" "$said" >result
    cp result "$KINGDOM_RESULT_PATH.tmp" && mv "$KINGDOM_RESULT_PATH.tmp" "$KINGDOM_RESULT_PATH"
    exit 0
fi
{answer(status="needs_human", question="Which colour?")}
"""


def test_a_question_waits_for_a_person_and_their_answer_goes_on_with_the_work(kingdom: Kingdom) -> None:
    kingdom.ok("generals", "install", str(kingdom.general("gen-asks", ASKS, keywords=["paint"])))
    asked = kingdom.ok("say", "paint the wall").splitlines()
    assert asked[1] == "[question] Which colour?"
    task = asked_by(asked)
    where = f"workspace/gen-asks/{task}"
    assert "waits for your answer" in kingdom.ok("why", task)
    answered = kingdom.ok("say", "--answer", task, "blue").splitlines()
    assert answered[:2] == ["answer received, resuming", "[complete] resume of console.message — painted blue"]
    resumed = answered[2].removeprefix(f"Its work is kept in {where}; `kingdom tasks work ").removesuffix("` shows it.")
    assert str(kingdom.home / where) in kingdom.ok("tasks", "work", resumed)
    messages = [message for message in kingdom.all("messages", "sent") if message["task_id"] == task]
    assert len({message["posted"]["thread"] for message in messages if message["type"] != "thread_start"}) == 1


def asked_by(told: list[str]) -> str:
    """Return the task whose question was told."""
    assert told[-1].startswith("Answer with: ")
    return told[-1].split(" --answer ")[1].split()[0]


ASKS_TWICE = """
echo "$PWD" >>"$KINGDOM_HOME/grounds"; echo asked >>work
said='"status": "needs_human", "question": "And now?"'
if [ "$(wc -l <work)" = 3 ]; then said='"status": "success", "summary": "done at last"'; fi
echo "{$said}" >result
mv result "$KINGDOM_RESULT_PATH"
"""


def test_a_question_after_a_question_keeps_thread_and_workspace_and_takes_one_answer(kingdom: Kingdom) -> None:
    kingdom.ok("generals", "install", str(kingdom.general("gen-unsure", ASKS_TWICE, keywords=["dither"])))
    first = asked_by(kingdom.ok("say", "dither").splitlines())
    second = asked_by(kingdom.ok("say", "--answer", first, "this").splitlines())
    assert second != first
    code, said = kingdom.refused("say", "--answer", first, "that")
    assert (code, f"the question of {first} is already answered" in said) == (78, True)
    assert "— done at last" in kingdom.ok("say", "--answer", second, "that")
    assert json.loads(kingdom.ok("report", "--json"))["questions"] == []
    assert len(set((kingdom.home / "grounds").read_text().split())) == 1
    heads = [text.partition(" ")[0] for text in kingdom.messages(first)]
    assert heads == ["[start]", "[question]", "answer", "[question]", "answer", "[complete]"]
    messages = [message for message in kingdom.all("messages", "sent") if message["task_id"] == first]
    assert len({message["posted"]["thread"] for message in messages if message["type"] != "thread_start"}) == 1
    awaited = json.loads((kingdom.places.own("envoy") / "awaiting-responses.json").read_text())
    assert not {first, second} & {row["task_id"] for row in awaited}


def test_an_answer_to_nothing_is_refused_before_it_is_sent(kingdom: Kingdom) -> None:
    code, said = kingdom.refused("say", "--answer", "task-20200101-001", "yes")
    assert code == 78
    assert "task-20200101-001 has no open question" in said


def test_a_message_for_a_general_that_was_taken_out(kingdom: Kingdom) -> None:
    package = kingdom.general("gen-leaves", answer(status="success", summary="bye"), keywords=["farewell"])
    kingdom.ok("generals", "install", str(package))
    assert "bye" in kingdom.ok("say", "farewell")
    kingdom.ok("generals", "uninstall", "gen-leaves")
    assert not kingdom.runs("gen-leaves")
    kingdom.until(
        lambda: "no general knows these words" in kingdom.run("say", "farewell").stdout, "the herald takes over"
    )


def test_the_picture_as_json(kingdom: Kingdom) -> None:
    picture = json.loads(kingdom.ok("status", "--json"))
    assert picture["well"] is True
    assert {role["name"] for role in picture["roles"]} >= {"king", "envoy", "chamberlain", "gen-briefing"}
    assert picture["queues"]["events"]["pending"] == 0
