"""The files are the contract: a few lines of shell can be a role, with the real others around them.

One role at a time is stopped and a shell script of mv, cat and jq takes its place; an event still becomes an answer,
and when the real one comes back it goes on where the script was.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults import trees
from tests.journey.kingdoms import Kingdom, answer

SHELL_ROLES = Path(__file__).with_name("shell_roles")
TYPE = "review.wanted"

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@contextmanager
def replaced_by(kingdom: Kingdom, role: str, script: str, *words: str) -> Iterator[None]:
    kingdom.ok("stop", role)
    with subprocess.Popen(["sh", SHELL_ROLES / script, kingdom.home, *words], start_new_session=True) as child:
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


IN_SHELL = {
    "king": ("king", "king.sh", ["gen-echo"], "did it"),
    "general": ("gen-echo", "general.sh", ["gen-echo"], f"did {TYPE} without Python"),
    "envoy": ("envoy", "envoy.sh", [], "did it"),
}


@pytest.fixture(scope="module")
def echoing(kingdom: Kingdom) -> Kingdom:
    """A kingdom with a general for events of one type."""
    package = kingdom.general("gen-echo", answer(status="success", summary="did it"), subscribes=[TYPE])
    kingdom.ok("generals", "install", str(package))
    return kingdom


@pytest.mark.parametrize("what", IN_SHELL if trees.CAMPAIGN else ["king"])
def test_a_role_of_shell(echoing: Kingdom, what: str) -> None:
    role, script, words, answered = IN_SHELL[what]
    with replaced_by(echoing, role, script, *words):
        echoing.event(f"evt-{what}-shell", TYPE)
        assert said_of(echoing, f"evt-{what}-shell") == f"[complete] {TYPE} — {answered}"
        if what == "envoy":
            task = echoing.task_of("evt-envoy-shell")
            told = (echoing.home / "said").read_text().splitlines()
            assert told == [f"{task}: [start] {TYPE}", f"{task}: [complete] {TYPE} — did it"]
    echoing.ok("start", role)
    echoing.event(f"evt-{what}-real", TYPE)
    assert said_of(echoing, f"evt-{what}-real") == f"[complete] {TYPE} — did it"


PAINTS = f"""
case $(cat "$KINGDOM_TASK_FILE") in
*'"type": "resume"'*) {answer(status="success", summary="painted green")} ;;
*'"text": "fail"'*) {answer(status="failed", error="it broke")} ;;
*'"text": "ask"'*) {answer(status="needs_human", question="which colour?")} ;;
*) {answer(status="success", summary="did it")} ;;
esac
"""
STRANGERS = {
    "king": ("king", "stranger-king.sh", ["gen-paints"]),
    "general": ("gen-paints", "stranger-general.sh", ["gen-paints"]),
    "envoy": ("envoy", "stranger-envoy.sh", []),
}


@pytest.fixture
def painting(own: Kingdom) -> Kingdom:
    """A kingdom whose general fails, asks and succeeds as it is told, at the first try."""
    (own.places.config / "king.yaml").write_text("retry: {max_attempts: 1}\n")
    own.ok("generals", "install", str(own.general("gen-paints", PAINTS, subscribes=[TYPE])))
    return own


def spoken(kingdom: Kingdom, what: str, *, count: int = 1) -> list[dict[str, Any]]:
    """The messages that people can read and that begin like this, once there are so many."""
    sent = kingdom.places.folder("messages", "sent")

    def found() -> list[dict[str, Any]]:
        said = [message for message in kingdom.all("messages", "sent") if message["content"].startswith(what)]
        return said if len(said) >= count else []

    return list(kingdom.until(found, what, sent))


@trees.in_campaigns
@pytest.mark.parametrize("foreign", STRANGERS)
def test_a_stranger_among_ours(painting: Kingdom, foreign: str) -> None:
    """One role as existing kingdoms have it, by their page of shapes alone; the others are ours, over one home."""
    role, script, words = STRANGERS[foreign]
    passed = []
    with replaced_by(painting, role, script, *words):
        painting.event("evt-1", TYPE, payload={"text": "paint it"})
        spoken(painting, "[complete]")
        passed.append("an event becomes an answer")
        painting.event("evt-2", TYPE, payload={"text": "fail"})
        spoken(painting, "[failed]")
        passed.append("a failure is told")
        painting.event("evt-3", TYPE, payload={"text": "ask"})
        (question,) = spoken(painting, "[question] which colour?")
        passed.append("a question is asked")
        if foreign == "envoy":
            (painting.home / "replies" / question["task_id"]).write_text("green")
        else:
            painting.ok("say", "--no-wait", "--answer", question["task_id"], "green")
        done = spoken(painting, "[complete]", count=2)
        assert "painted green" in done[-1]["content"]
        passed.append("its answer goes on with the work, once")
        for kind in ("events", "tasks", "messages"):
            painting.until(lambda kind=kind: not painting.all(kind, "pending"), f"no {kind} wait")
            assert painting.all(kind, "dead") == []
        passed.append("nothing is left waiting or set aside")
    painting.places.heartbeat(role).unlink(missing_ok=True)
    painting.ok("start", role)
    painting.event("evt-9", TYPE, payload={"text": "paint it"})
    spoken(painting, "[complete]", count=3)
    passed.append("ours goes on where it stood")
    print(f"a foreign {foreign} among ours: {'; '.join(passed)}")


@pytest.mark.parametrize("script", sorted(path.name for path in SHELL_ROLES.glob("*.sh")))
def test_a_shell_role_is_short_and_knows_nothing_of_our_code(script: str) -> None:
    text = (SHELL_ROLES / script).read_text()
    assert len(text.splitlines()) <= 22
    assert "python" not in text.lower().replace("without python", "")
