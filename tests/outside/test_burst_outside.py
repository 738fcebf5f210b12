"""Many notifications at once, each served by an engine's real program in its sandbox, and told in a thread of its own.

`make test-outside` does a few; 300 under KINGDOM_CAMPAIGN=1.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.demo.standins import github
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.model import Step
from kingdom.demo.standins.slack import Slack
from tests.faults import trees
from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom
from tests.outside.outside import CANARY, KEYS, PROGRAMS, WHOLE_RUN_SECONDS, service, shell
from tests.outside.test_court_outside import ROOM, a_repository, ends

BURST = range(101, 401 if trees.CAMPAIGN else 104)
ANSWERS = ('"type": "tool_result"', '"type": "function_call_output"', '"type": "custom_tool_call_output"')
"""How the programs tell a model what its tools have said."""


def reviews(engine: str) -> Callable[[Mapping[str, Any]], Step]:
    """What the model says in any number of conversations: it looks at the change, then it ends."""
    look = shell(engine, 'git log -1 --format=%s && touch looked && ! touch "$KINGDOM_HOME/queue/mine"')
    steps = [look, *ends(engine, status="success", summary="nothing to change")]

    def said(body: Mapping[str, Any]) -> Step:
        told = json.dumps(body.get("messages") or body.get("input"))
        return steps[min(sum(told.count(answer) for answer in ANSWERS), len(steps) - 1)]

    return said


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_many_reviews_that_are_asked_for_at_once_are_each_made_and_told_once(
    engine: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as services:
        model = services.enter_context(service(engine, reviews(engine)))
        slack, hub = (services.enter_context(service) for service in (Slack(), GitHub()))
        hub.poll_interval = 1

        def prepare(kingdom: Kingdom) -> None:
            runtime: dict[str, Any] = {"command": str(PROGRAMS[engine])}
            secrets = {KEYS[engine]: CANARY, "GH_TOKEN": github.TOKEN}
            secrets |= {"SLACK_BOT_TOKEN": "xoxb-canary-1", "SLACK_APP_TOKEN": "xapp-canary-1"}
            if engine == "claude":
                secrets["ANTHROPIC_BASE_URL"] = model.address
            else:
                runtime |= {"base_url": f"{model.address}/v1", "model": "played-model"}
            files = {
                "system": {"launcher": "tmux", "default_engine": engine, "runtime": {engine: runtime}},
                "general": {"repositories": {"known": {"acme/shop": str(a_repository(kingdom_source))}}},
                # However busy the machine is: what is measured is the burst.
                "chamberlain": {"thresholds": {"yellow": 101, "orange": 101, "red": 101}},
                "envoy": {"slack": {"api_url": slack.api_url, "seconds_between_posts": 0.05}},
                "sentinel": {"polling": {"github": {"base_url": hub.address, "interval_seconds": 1}}},
            }
            for name, content in files.items():
                (kingdom.places.config / f"{name}.yaml").write_text(yaml.safe_dump(content))
            kingdom.places.env_file.write_text("".join(f"{name}={value}\n" for name, value in secrets.items()))
            kingdom.places.env_file.chmod(0o600)

        kingdom_source = tmp_path / "acme"
        kingdom_source.mkdir()
        with contextmanager(founded)("tmux", prepare) as kingdom:
            kingdom.soon = 3 * WHOLE_RUN_SECONDS
            kingdom.ok("generals", "install", "gen-pr")
            began = time.monotonic()
            with hub.lock:  # at once: nobody sees half of them
                names = [hub.notify(number, repo="acme/shop", title=f"Change {number}") for number in BURST]
            kingdom.until(lambda: len(slack.from_kingdom(ROOM)) >= 2 * len(names), "all of them are told in Slack")
            kingdom.until(lambda: len(kingdom.all("tasks", "completed")) == len(names), "all of them have ended")
            took = time.monotonic() - began
            tasks, events = kingdom.all("tasks", "completed"), kingdom.all("events", "completed")
            asked = {json.dumps(body.get("messages") or body.get("input")) for body in model.asked}
            is_held = not (kingdom.home / "queue" / "mine").exists()
        posts = slack.from_kingdom(ROOM)
    heads = Counter(post["text"] for post in posts if "thread_ts" not in post)
    ends_of = Counter(post["thread_ts"] for post in posts if "thread_ts" in post)
    figure = f"{engine}: {len(names)} reviews asked for at once, {len(model.asked)} answers of the model, {took:.0f} s"
    record_property("figure", figure)
    assert Counter(task["outcome"] for task in tasks) == {"success": len(names)}, kingdom.complaints()
    assert sorted(event["id"].split("-20")[0] for event in events) == sorted(f"evt-github-{name}" for name in names)
    assert len({task["event_id"] for task in tasks}) == len(names)
    assert len(heads) == len(names), "each names its pull request"
    assert {head.splitlines()[0] for head in heads} == {"[start] github.pr.review_requested — acme/shop"}
    assert set(ends_of.values()) == {1}
    assert len(ends_of) == len(names)
    assert all(any(f"Change {number}" in told for told in asked) for number in BURST)
    assert is_held
    assert hub.unread() == []
