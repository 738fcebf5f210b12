"""A machine that is red: people get their reports, and what asks a model waits."""

from __future__ import annotations

import time

from kingdom.base.disk.codec import to_json
from kingdom.base.times import stamp
from tests.faults import trees
from tests.journey.kingdoms import Kingdom, answer


def measured(kingdom: Kingdom, health: str) -> None:
    """As the chamberlain would write it, who is stopped meanwhile."""
    draft = kingdom.places.resources.with_name(".resources")
    draft.write_bytes(to_json({"timestamp": stamp(time.time()), "health": health, "system": {"cpu_percent": 97.0}}))
    draft.replace(kingdom.places.resources)


@trees.in_campaigns
def test_people_get_their_reports_however_busy_the_machine_is(own: Kingdom) -> None:
    thinker = own.general(
        "gen-thinker", answer(status="success", summary="thought"), keywords=["think"], needs_model=True
    )
    for package in (str(thinker), str(own.places.package("gen-doctor"))):
        own.ok("generals", "install", package)
    own.ok("stop", "chamberlain")
    measured(own, "red")
    for words in ("brief me", "doctor", "what is the meaning of this?"):
        assert "[complete] console.message" in own.ok("say", words), words
    held = own.ok("say", "--no-wait", "think").strip()
    own.event("evt-program", "console.status", payload={"text": "not said"}, priority="high")
    assert "[complete]" in own.ok("say", "brief me"), "it passes what waits"
    said = own.ok("why", held)
    assert "the machine is red (cpu 97 %), so only what needs no model starts" in said
    assert "it will go to gen-thinker" in said
    measured(own, "yellow")
    own.until_there(own.places.queue_file("events", "completed", held))
    own.until(lambda: own.messages(own.task_of(held))[-1:] == ["[complete] console.message — thought"], "the answer")
