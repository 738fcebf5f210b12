"""The files are the contract: a few lines of shell can be a role, with the real others around them.

One role at a time is stopped and a stand-in of mv, cat and jq takes its place; an event still becomes an answer,
and when the real one comes back it goes on where the stand-in was.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.journey.kingdoms import Kingdom, answer

STANDINS = Path(__file__).parents[1] / "standins"
TYPE = "review.wanted"

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@contextmanager
def standing_in(kingdom: Kingdom, role: str, script: str, *words: str) -> Iterator[None]:
    kingdom.ok("stop", role)
    with subprocess.Popen(["sh", STANDINS / script, kingdom.home, *words], start_new_session=True) as child:
        try:
            yield
        finally:
            child.kill()
    assert not kingdom.runs(role)


def said_of(kingdom: Kingdom, event: str) -> str:
    """The last message about what became of an event."""

    def final() -> str | None:
        ended = kingdom.places.queue_file("events", "completed", event).exists()
        tasks = [done["id"] for done in kingdom.all("tasks", "completed") if done["event_id"] == event]
        messages = [message for task in tasks for message in kingdom.messages(task)]
        return messages[-1] if ended and messages and messages[-1].startswith("[complete]") else None

    sent = kingdom.places.folder("messages", "sent")
    return str(kingdom.until(final, f"an answer to {event}", sent))


@pytest.fixture
def echoing(own: Kingdom) -> Kingdom:
    """A kingdom with a general for events of one type."""
    package = own.general("gen-echo", answer(status="success", summary="did it"), subscribes=[TYPE])
    own.ok("generals", "install", str(package))
    return own


def test_a_king_of_shell(echoing: Kingdom) -> None:
    with standing_in(echoing, "king", "king.sh", "gen-echo"):
        echoing.event("evt-shell", TYPE)
        assert said_of(echoing, "evt-shell") == f"[complete] {TYPE} — did it"
    echoing.ok("start", "king")
    echoing.event("evt-real", TYPE)
    assert said_of(echoing, "evt-real") == f"[complete] {TYPE} — did it"


def test_a_general_of_shell(echoing: Kingdom) -> None:
    with standing_in(echoing, "gen-echo", "general.sh", "gen-echo"):
        echoing.event("evt-shell", TYPE)
        assert said_of(echoing, "evt-shell") == f"[complete] {TYPE} — did {TYPE} without Python"
    echoing.ok("start", "gen-echo")
    echoing.event("evt-real", TYPE)
    assert said_of(echoing, "evt-real") == f"[complete] {TYPE} — did it"


def test_an_envoy_of_shell(echoing: Kingdom) -> None:
    with standing_in(echoing, "envoy", "envoy.sh"):
        echoing.event("evt-shell", TYPE)
        assert said_of(echoing, "evt-shell") == f"[complete] {TYPE} — did it"
        task = echoing.task_of("evt-shell")
        told = (echoing.home / "said").read_text().splitlines()
        assert told == [f"{task}: [start] {TYPE}", f"{task}: [complete] {TYPE} — did it"]
    echoing.ok("start", "envoy")
    echoing.event("evt-real", TYPE)
    assert said_of(echoing, "evt-real") == f"[complete] {TYPE} — did it"


@pytest.mark.parametrize("script", sorted(path.name for path in STANDINS.glob("*.sh")))
def test_a_stand_in_is_short_and_knows_nothing_of_our_code(script: str) -> None:
    text = (STANDINS / script).read_text()
    assert len(text.splitlines()) <= 20
    assert "python" not in text.lower().replace("without python", "")
