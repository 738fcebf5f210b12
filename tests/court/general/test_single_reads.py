"""How often king, general and envoy open the files of one event on its way: what each needs, and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kingdom.base.runtime.processes import carriers, soldier_markers
from kingdom.base.runtime.role import Job
from kingdom.base.runtime.wake import Waker
from kingdom.court.envoy.job import EnvoyJob
from kingdom.court.king.job import KingJob
from tests.court.general.rig import SOON, TASK, GeneralRig, says
from tests.fixtures import MORNING, Clock, event, here, put, services, watched, write
from tests.waiting import wait_until


class Awake:
    """A role that arrivals wake, as in its loop, and every file that it opens."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waker = Waker(job.folders())
        self._worked = False
        self.opened: Counter[str] = Counter()
        self._turn(None)

    def turns(self) -> None:
        """Take in what has arrived, until nothing is left to do."""
        self._turn(self._waker.wait(0))
        while self._worked:
            self._turn(self._waker.wait(0))

    def close(self) -> None:
        self._waker.close()

    def _turn(self, arrivals: dict[Path, list[str]] | None) -> None:
        def turn() -> None:
            self._worked = self._job.turn(arrivals).worked

        self.opened.update(watched(turn))


def test_every_role_reads_what_an_event_becomes_once(general: GeneralRig, home: Path, clock: Clock) -> None:
    general.manifest(subscribes=["github.pr.*"])
    general.runs(says(status="success", summary="done"))
    write(general.places.resources, {"timestamp": MORNING, "health": "green"})
    roles = {
        "king": Awake(KingJob(services(home, "king", clock))),
        "general": Awake(general.restart()),
        "envoy": Awake(EnvoyJob(services(home, "envoy", clock))),
    }
    for role in roles.values():
        role.opened.clear()
    put(home, "events", "pending", **event())

    def is_told() -> bool:
        for role in roles.values():
            role.turns()
        return len(here(home, "messages", "sent")) == 2 and len(here(home, "tasks", "completed")) == 1

    wait_until(is_told, SOON, "both messages", (general.places.results,))
    wait_until(lambda: not carriers(soldier_markers(home, TASK)), SOON, "the soldier's end")
    for role in roles.values():
        role.turns()
        role.close()
    task, first, last = f"{TASK}.json", "msg-20260207-001.json", "msg-20260207-002.json"
    wanted: dict[str, dict[str, int]] = {
        "king": {
            "pending/evt-1.json": 1,
            "dispatched/evt-1.json": 1,  # to end it
            f"in_progress/{task}": 1,
            f"results/{task}": 1,
            "state/resources.json": 1,  # the gate: in the one turn in which something waited
        },
        "general": {
            f"pending/{task}": 1,
            f"in_progress/{task}": 0,
            "state/sessions.json": 2,  # when its soldier starts, and when it has ended
            "manifests/gen-pr.yaml": 0,
        },
        "envoy": {f"pending/{first}": 1, f"pending/{last}": 1},
    }
    assert {name: {file: role.opened[file] for file in wanted[name]} for name, role in roles.items()} == wanted
