"""From a ticket to an answer in Slack and to the end, beside `say` on the console: every file on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from kingdom.demo.standins.slack import BOT_USER, Slack
from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom

ROOM = "C0KINGDOM"
ASKS_THEN_DONE = """
if grep -q '"type": "resume"' "$KINGDOM_TASK_FILE"; then
    answer=$(sed -n 's/.*"human_response": "\\([^"]*\\)".*/\\1/p' "$KINGDOM_TASK_FILE" | head -1)
    printf '{"status": "success", "summary": "it is done: %s"}' "$answer" >"$KINGDOM_RESULT_PATH"
else
    asked='"status": "needs_human", "question": "What is meant?\\\\n- the shop\\\\n- the site"'
    printf "{$asked, \\"session_id\\": \\"s-7\\"}" >"$KINGDOM_RESULT_PATH"
fi
"""


@pytest.fixture(scope="module")
def slack() -> Iterator[Slack]:
    with Slack() as slack:
        yield slack


@pytest.fixture(scope="module")
def kingdom(slack: Slack) -> Iterator[Kingdom]:
    def prepare(kingdom: Kingdom) -> None:
        part = {"api_url": slack.api_url, "people": ["U0ANN"], "seconds_between_posts": 0.05}
        (kingdom.places.config / "envoy.yaml").write_text(yaml.safe_dump({"slack": part}))
        kingdom.places.env_file.write_text("SLACK_BOT_TOKEN=xoxb-1-canary\nSLACK_APP_TOKEN=xapp-1-canary\n")
        kingdom.places.env_file.chmod(0o600)

    yield from founded("tmux", prepare)


def test_a_ticket_is_asked_about_in_slack_answered_by_a_button_and_done(kingdom: Kingdom, slack: Slack) -> None:
    manifest = {"subscribes": ["jira.ticket.*"], "keywords": ["ticket"]}
    kingdom.ok("generals", "install", str(kingdom.general("gen-tickets", ASKS_THEN_DONE, **manifest)))
    kingdom.event("evt-jira-SHOP-7-1", "jira.ticket.assigned", payload={"ticket_key": "SHOP-7", "summary": "make it"})
    kingdom.until(lambda: len(slack.from_kingdom()) >= 2, "the question is in Slack")
    task = kingdom.task_of("evt-jira-SHOP-7-1")
    start, question = slack.from_kingdom()
    assert (start["channel"], start["text"]) == (ROOM, "[start] jira.ticket.assigned")
    assert question["thread_ts"] == start["ts"]
    (awaited,) = json.loads(kingdom.until_there(kingdom.places.own("envoy") / "awaiting-responses.json").read_text())
    assert awaited.items() >= {"task_id": task, "thread_ts": start["ts"], "channel": ROOM}.items()
    slack.press(question["ts"], "the site")
    kingdom.until(lambda: any(text.startswith("[complete]") for text in kingdom.messages(task)), "it is done")
    assert kingdom.messages(task)[-1].endswith("it is done: the site")
    answers = [event for event in kingdom.all("events", "completed") if event["type"] == "slack.human_response"]
    assert [(event["payload"]["human_response"], event["payload"]["user_id"]) for event in answers] == [
        ("the site", "U0ANN")
    ]
    resumed = next(done for done in kingdom.all("tasks", "completed") if done["type"] == "resume")
    assert (resumed["payload"]["session_id"], resumed["thread_task_id"]) == ("s-7", task)
    thread = [post for post in slack.from_kingdom() if post.get("thread_ts") == start["ts"]]
    heads = [post["text"].split()[0] for post in thread]
    assert heads == ["[question]", "answer", "[complete]"]
    kingdom.until(lambda: start.get("reactions") == ["white_check_mark"], "it shows that all is well")


def test_say_and_slack_work_side_by_side(kingdom: Kingdom, slack: Slack) -> None:
    before = len(slack.from_kingdom())
    mention = slack.say(f"<@{BOT_USER}> brief me")
    assert "[complete] console.message" in kingdom.ok("say", "brief me")
    kingdom.until(lambda: len(slack.from_kingdom()) >= before + 2, "the briefing is in Slack")
    posts = slack.from_kingdom()[before:]
    assert {(post["channel"], post["thread_ts"]) for post in posts} == {("C0GENERAL", mention)}
    assert posts[-1]["text"].startswith("[complete] slack.app_mention")


def test_no_token_stands_anywhere_but_in_env(kingdom: Kingdom) -> None:
    found = [
        path
        for path in kingdom.home.rglob("*")
        if path.is_file() and path != kingdom.places.env_file and b"-canary" in path.read_bytes()
    ]
    assert found == []
    assert not [words for words in kingdom.processes() if "-canary" in words]
