"""Each call that the envoy makes to Slack, and the line on which it hears people, failing in every way.

In a cell a person mentions us and is answered, a question with buttons is asked, and its answer is pressed; meanwhile
one of the calls fails. Each post is made once, each word of a person is heard once, and nobody is bothered by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.court.envoy.job import EnvoyJob
from kingdom.demo.standins.slack import BOT_USER, Slack
from tests.court.envoy.envoys import TASK, Envoy
from tests.court.envoy.slacks import SECRETS, settings, turn_until
from tests.faults import trees
from tests.faults.test_outside_table import BROKEN, EVERY, HANG, KILL, LIMITED, MOST_LINES, POSTED, SHORT_SECONDS, SHUT
from tests.fixtures import Clock, all_of, here, message, put, services

CONNECTING = ("auth.test", "apps.connections.open", "socket")
"""Before anybody is heard."""
SEARCHING = ("conversations.list", "conversations.history", "conversations.replies")
"""When it is not known whether a post was made."""
ORNAMENTS = ("reactions.add", "reactions.remove", "chat.update")
"""Each is tried once; without it nothing is missing but a sign."""
CALLS = (*CONNECTING, "chat.postMessage", *SEARCHING, *ORNAMENTS)
QUICK = {(call, EVERY[number % len(EVERY)]) for number, call in enumerate(CALLS) if number % 2 == 0} | {
    ("socket", KILL)
}
TEXTS = {"msg-1": "[start] a review", "msg-2": "[question] Where to?\n- staging\n- production"}
ANSWER = "staging"


def times(call: str, fault: str) -> int:
    """How often it fails: whoever was killed is away for a while, and what was posted is not posted again."""
    is_tried_once = call in ORNAMENTS or (call == "chat.postMessage" and fault not in (BROKEN, LIMITED, SHUT))
    return 1 if is_tried_once or fault == KILL else 2


def talk(call: str, fault: str, slack: Slack, envoy: Envoy, home: Path) -> None:
    """Let everything be said by both sides while this call fails."""

    def fails() -> None:
        slack.fail(call, **POSTED[fault], times=times(call, fault))

    def sent(name: str, **fields: Any) -> None:
        put(home, "messages", "pending", **message(name, task_id=TASK, content=TEXTS[name], **fields))
        envoy.job.turn(None)
        turn_until(envoy, lambda: envoy.job.turn(None) and name in here(home, "messages", "sent"), f"{name} is sent")

    def heard(count: int) -> None:
        turn_until(envoy, lambda: len(here(home, "events", "pending")) == count, f"{count} words are heard")

    if call in CONNECTING:
        fails()
    asked = slack.say(f"<@{BOT_USER}> review it")
    heard(1)
    if call not in CONNECTING:
        fails()
    if call in SEARCHING:
        slack.fail("chat.postMessage", cut=True)
    of_person = {"source": "slack", "channel": "C0GENERAL", "message_ts": asked, "user": "U0ANN"}
    in_thread = {"channel": "C0GENERAL", "thread_ts": asked, "source_ref": of_person}
    if call in ("conversations.list", "conversations.history"):
        in_thread = {"channel": "kingdom"}  # nobody knows its id yet
    sent("msg-1", type="thread_start", code="started", **in_thread)
    context = {"checkpoint_path": "x", "reply_context": {"general": "gen-pr", "task_id": TASK, "session_id": "s"}}
    sent("msg-2", type="human_input_request", code="question", context=context, **in_thread)
    slack.press(slack.from_kingdom()[-1]["ts"], ANSWER)
    heard(2)
    turn_until(envoy, lambda: not slack.left_to_fail(), f"{call} was called")
    turn_until(envoy, lambda: slack.lines and not slack.unacknowledged(), "all that was heard is acknowledged")


@pytest.mark.parametrize(
    ("call", "fault"),
    [(call, fault) for call in CALLS for fault in EVERY if trees.CAMPAIGN or (call, fault) in QUICK],
)
def test_a_call_that_fails_loses_and_doubles_nothing_and_bothers_nobody(
    call: str, fault: str, home: Path, record_property: Callable[[str, object], None]
) -> None:
    seconds: Mapping[str, Any] = {"call_seconds": SHORT_SECONDS} if fault == HANG else {}
    with Slack() as slack:
        given = services(home, "envoy", Clock(), envoy=settings(slack, **seconds))
        envoy = Envoy(replace(given, secrets=SECRETS), EnvoyJob(replace(given, secrets=SECRETS)))
        try:
            talk(call, fault, slack, envoy, home)
        finally:
            envoy.job.close()
        posted = sorted(str(post["text"]) for post in slack.from_kingdom())
    said = sorted(
        event["payload"].get("human_response", event["payload"]["text"]) for event in all_of(home, "events", "pending")
    )
    path = Places(home).role_log("envoy")
    lines = [line for line in path.read_text().splitlines() if " error " in line] if path.exists() else []
    alerts = [name for state in ("pending", "sent") for name in here(home, "messages", state) if name not in TEXTS]
    told = " ".join(lines[0].split()[2:])[:90] if lines else "nothing"
    record_property("figure", f"Slack's {call} x {fault}: people see {json.dumps(told)}; {len(alerts)} alerts")
    assert posted == sorted(TEXTS.values())
    assert said == ["review it", ANSWER]
    assert len(lines) <= MOST_LINES, lines
    assert len(alerts) == int(fault == SHUT and call in ("chat.postMessage", *SEARCHING)), alerts
