"""docs/walk-of-an-event.md names the functions that one event runs through, in their order, and shows its files."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from click.testing import CliRunner

from kingdom.base.runtime.processes import carriers, soldier_markers
from kingdom.base.runtime.role import Job
from kingdom.cli.say import say
from kingdom.court.envoy.job import EnvoyJob
from kingdom.court.king.job import KingJob
from tests.court.general.rig import SOON, TASK, GeneralRig, says
from tests.fixtures import Clock, all_of, here, services
from tests.waiting import wait_until

TREE = Path(__file__).resolve().parents[3]
PAGE = TREE / "docs/walk-of-an-event.md"
ROW = re.compile(r"^\| ?([^|]*?) ?\| `(kingdom/[^`]+)` \| ([^|]+) \|$", re.MULTILINE)
WHAT_TRAVELS, THE_WORK = "what travels", "4 the work"
MOST_FILES = 14


def named() -> list[tuple[str, str, str]]:
    """Station, file and function, as the page names them."""
    rows = ROW.findall(PAGE.read_text().partition("## Where the code is")[2])
    return [(station, file, name) for station, file, names in rows for name in re.findall(r"`([^`]+)`", names)]


@contextmanager
def traced() -> Iterator[list[tuple[str, str]]]:
    """File and function of every call in kingdom/, in order."""
    calls: list[tuple[str, str]] = []
    root = f"{TREE}/"

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{root}kingdom/"):
            calls.append((frame.f_code.co_filename.removeprefix(root), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def rest(job: Job) -> None:
    """Turns of a role until nothing is left to do."""
    while job.turn(None).worked:
        pass
    job.close()


def walk(general: GeneralRig, home: Path, clock: Clock) -> list[tuple[str, str]]:
    """Take one event all the way, and return the calls."""
    general.manifest(keywords=["brief me"])
    general.runs(says(status="success", summary="done"))
    job = general.restart()
    with traced() as calls:
        CliRunner(env={"KINGDOM_HOME": str(home)}).invoke(say, ["--no-wait", "brief me"], catch_exceptions=False)
        rest(KingJob(services(home, "king", clock)))
        general.result()
        rest(KingJob(services(home, "king", clock)))
        rest(EnvoyJob(services(home, "envoy", clock)))
    assert len(here(home, "messages", "sent")) == 2
    wait_until(lambda: not carriers(soldier_markers(home, TASK)), SOON, "the soldier's end")
    job.turn(None)
    return calls


def test_the_page_names_what_an_event_runs_through_in_its_order(general: GeneralRig, home: Path, clock: Clock) -> None:
    calls = walk(general, home, clock)

    stations = named()
    assert 10 <= len({file for _, file, _ in stations}) <= MOST_FILES
    on_the_way = []
    for station, file, name in stations:
        found: Any = import_module(file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            found = getattr(found, part)
        if station != WHAT_TRAVELS and (station, name) != (THE_WORK, "serve"):
            assert inspect.isfunction(found)
            on_the_way.append((file, name))
    assert [call for call in on_the_way if call not in calls] == []
    left = iter(calls)
    assert [call for call in on_the_way if call not in left] == [], "in another order"


def shown(kind: str) -> list[tuple[dict[str, Any], bool]]:
    """What the page shows of these files, and whether that is all of it."""
    blocks = re.findall(rf"^\$ cat {kind}/\S+\.json\n(\{{\n.*?^\}}\n)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [(json.loads(re.sub(r"^  …\n", "", block, flags=re.MULTILINE)), "\n  …\n" not in block) for block in blocks]


def keys(value: Any) -> Any:
    return {key: keys(part) for key, part in value.items() if key != "letters"} if isinstance(value, dict) else None


def test_the_page_shows_the_files_with_the_keys_that_they_have(general: GeneralRig, home: Path, clock: Clock) -> None:
    walk(general, home, clock)
    start, final = all_of(home, "messages", "sent")
    (event,), (task,) = all_of(home, "events", "completed"), all_of(home, "tasks", "completed")
    unposted = [keys({key: part for key, part in message.items() if key != "posted"}) for message in (start, final)]
    for kind, files in (
        ("queue/events/(?:pending|dispatched)", [keys(event), keys(event)]),
        ("queue/tasks/pending", [keys(task)]),
        ("state/results", [keys(general.result())]),
        ("queue/messages/pending", unposted),
        ("queue/messages/sent", [keys(final)]),
    ):
        for (page, is_whole), real in zip(shown(kind), files, strict=True):
            assert keys(page) == (real if is_whole else {key: real.get(key, "is not there") for key in keys(page)})
