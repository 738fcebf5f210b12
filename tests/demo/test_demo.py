"""What the demo counts at its end: it sees what is lost, what is done twice, and what was left over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.demo.demo_story import counts, waiting
from kingdom.demo.demo_world import World

EVENT = {"type": "github.pr.review_requested", "source": "github", "payload": {}}
NOTIFICATIONS, TASKS = "notifications of GitHub → events", "events → tasks that ended"
POSTS, ENDS = "messages → posts in Slack", "threads in Slack → their ends"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two reviews were asked for, and the first was served."""
    with World(tmp_path) as world:
        for folder in world.places.folders():
            make_folder(folder)
        world.github.notify(7)
        world.github.notify(101)
        serve(world, "1000", "2026-11-19T09:00:00Z", "task-1")
        yield world


def serve(world: World, notification: str, updated: str, task: str) -> None:
    event = f"evt-github-{notification}-{updated}"
    put(world, "events", "completed", event, **EVENT)
    put(world, "tasks", "completed", task, event_id=event, type=EVENT["type"])


def put(world: World, kind: str, state: str, name: str, **fields: object) -> None:
    world.places.queue_file(kind, state, name).write_text(json.dumps({"id": name, **fields}))


def post(world: World, message: str, text: str, ts: str, **thread: str) -> None:
    metadata = {"event_payload": {"message": message}}
    world.slack.posts.append(
        {"user": "U0BOT", "channel": "C0KINGDOM", "text": text, "ts": ts, "metadata": metadata} | thread
    )


def counted(world: World) -> dict[str, tuple[int, int, int]]:
    return {count.what: (count.wanted, count.lost, count.doubled) for count in counts(world)}


def test_a_notification_without_an_event_is_lost(world: World) -> None:
    assert counted(world)[NOTIFICATIONS] == (2, 1, 0)
    serve(world, "1001", "2026-11-19T09:00:01Z", "task-2")
    assert counted(world)[NOTIFICATIONS] == (2, 0, 0)


def test_a_notification_with_two_events_is_doubled(world: World) -> None:
    serve(world, "1000", "2026-11-19T09:00:09Z", "task-2")
    assert counted(world)[NOTIFICATIONS] == (2, 1, 1)


def test_an_event_has_one_task(world: World) -> None:
    put(world, "events", "completed", "evt-jira-QP-1-20261119090000", **EVENT)
    put(world, "tasks", "completed", "task-9", event_id="evt-github-1000-2026-11-19T09:00:00Z", type=EVENT["type"])
    assert counted(world)[TASKS] == (2, 1, 1)


def test_a_message_is_posted_once_and_a_thread_has_one_end(world: World) -> None:
    for message in ("msg-1", "msg-2", "msg-3"):
        put(world, "messages", "sent", message)
    post(world, "msg-1", "[start] a", "1.1")
    post(world, "msg-2", "[start] b", "1.2")
    post(world, "msg-2", "[complete] b", "1.3", thread_ts="1.2")
    post(world, "msg-9", "[complete] b", "1.4", thread_ts="1.2")
    assert counted(world)[POSTS] == (3, 1, 2)
    assert counted(world)[ENDS] == (2, 1, 1)


def test_what_has_not_come_to_its_end_is_left_over(world: World) -> None:
    assert waiting(world.places) == 0
    put(world, "messages", "failed", "msg-1")
    put(world, "events", "dead", "evt-1")
    assert waiting(world.places) == 2


WITHOUT = {
    "git": ([], {"PATH": "/nowhere"}, "git, by which"),
    "ports": (["unshare", "--net"], {}, "a free port of 127.0.0.1"),
    "space": (
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=8m none "$TMPDIR" && exec "$@"', "sh"],
        {},
        "100 MB",
    ),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_what_it_needs_is_said_in_one_line_before_it_starts(what: str, tmp_path: Path) -> None:
    within, variables, said = WITHOUT[what]
    within = within if os.geteuid() == 0 or not within else [*within[:1], "--map-root-user", *within[1:]]
    probe = [word for word in within if word.startswith(("unshare", "--"))]
    if probe and subprocess.run([*probe, "true"], capture_output=True, check=False).returncode:
        pytest.skip("NO NAMESPACES HERE")
    words = [*within, sys.executable, "-P", "-m", "kingdom", "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), **variables}
    program = shutil.which(words[0]) or words[0]
    done = subprocess.run([program, *words[1:]], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (1, "", [])
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kingdom: the demo needs {said}")
