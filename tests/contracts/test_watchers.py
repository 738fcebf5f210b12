"""What every watcher must do, whatever it watches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kingdom.base import tables
from kingdom.base.errors import BadConfig
from kingdom.base.home import config, schemas
from kingdom.base.home.places import Places
from kingdom.court.sentinel.watchers import WATCHERS
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from tests.court.sentinel.sentinels import SECRETS, Sentinel, detected
from tests.fixtures import Clock, founded


@dataclass
class World:
    """A source with something to say."""

    polling: dict[str, Any]
    secrets: dict[str, str]
    #: Let one more thing happen there.
    happens: Callable[[], object]


class Worlds:
    """What each watcher watches in these tests. One more watcher is one more method here."""

    def __init__(self, home: Path, clock: Clock, stack: ExitStack) -> None:
        self._home = home
        self._clock = clock
        self._stack = stack
        self._count = 0

    def github(self) -> World:
        hub = self._stack.enter_context(GitHub())
        hub.clock = self._clock
        return World({"base_url": hub.address}, SECRETS, lambda: hub.notify(self._next()))

    def jira(self) -> World:
        tickets = self._stack.enter_context(Jira())
        tickets.clock = self._clock
        secrets = {**SECRETS, "JIRA_URL": tickets.address}
        return World({}, secrets, lambda: tickets.ticket(f"QP-{self._next()}"))

    def files(self) -> World:
        def lay() -> None:
            path = self._home / "inbox" / f"file-{self._next()}"
            path.write_text("hello")
            os.utime(path, (self._clock.now - 30, self._clock.now - 30))

        return World({"folders": ["inbox"]}, {}, lay)

    def command(self) -> World:
        lines = self._home / "lines"
        lines.touch()

        def say() -> None:
            with open(lines, "a") as file:
                file.write(json.dumps({"id": str(self._next()), "type": "said"}) + "\n")

        return World({"run": ["/bin/cat", str(lines)]}, {}, say)

    def _next(self) -> int:
        self._count += 1
        return self._count


@dataclass
class Source:
    name: str
    world: World
    live: Callable[..., Sentinel]


@pytest.fixture(params=WATCHERS)
def source(request: pytest.FixtureRequest, home: Path) -> Iterator[Source]:
    clock = Clock()
    with ExitStack() as stack:
        world: World = getattr(Worlds(home, clock, stack), request.param)()
        only = {name: value for name, value in world.secrets.items() if request.param in ("github", "jira")}
        if request.param == "jira":
            only.pop("GH_TOKEN")
        if request.param == "github":
            only = {"GH_TOKEN": only["GH_TOKEN"]}

        def live(**more: Any) -> Sentinel:
            return Sentinel(home, clock, {request.param: world.polling}, only, **more)

        yield Source(request.param, world, live)


def test_the_configuration_knows_every_watcher() -> None:
    polling = schemas.load("config/sentinel")["properties"]["polling"]
    assert set(polling["properties"]) == set(polling["propertyNames"]["enum"]) == set(WATCHERS)


def test_an_unknown_watcher_is_an_error_that_names_it(home: Path) -> None:
    places = founded(home, sentinel={"polling": {"gitlab": {"interval_seconds": 60}}})
    with pytest.raises(BadConfig, match="gitlab"):
        config.load(places, "sentinel")


@pytest.mark.parametrize("name", WATCHERS)
def test_it_has_its_own_contract(name: str) -> None:
    watcher = tables.load(WATCHERS[name])
    for method in ("is_off", "folders", "fetch", "parse", "after_emit", "close"):
        assert callable(getattr(watcher, method)), method


def test_without_anything_set_up_each_is_off_with_one_line(home: Path) -> None:
    sentinel = Sentinel(home, Clock(), {}, {})
    for _ in range(3):
        assert sentinel.look(7200) == []
    for name in WATCHERS:
        assert sentinel.said().count(f"{name} is off: ") == 1
        assert sentinel.shows(name)["state"] == "off"


def test_what_happens_becomes_an_event_once_over_many_looks_and_lives(source: Source) -> None:
    sentinel = source.live()
    source.world.happens()
    first = sentinel.settle()
    assert len(first) == 1
    for _ in range(2):
        sentinel.look(3600)
        sentinel = source.live()
        assert sentinel.settle() == first
    assert detected(sentinel.places.home) == first


def test_what_happens_while_nobody_looks_is_found(source: Source) -> None:
    sentinel = source.live()
    sentinel.settle()
    sentinel.time.pass_(100)
    source.world.happens()
    sentinel.time.pass_(20)
    assert len(source.live().settle()) == 1


def test_a_life_that_ends_in_the_middle_loses_and_doubles_nothing(source: Source) -> None:
    sentinel = source.live()
    for _ in range(5):
        source.world.happens()
    sentinel.turn_until(sentinel.events)
    assert len(source.live().settle()) == 5
    assert len(source.live().look(3600)) == 5


@pytest.mark.parametrize("state", ["completed", "dead"])
def test_what_was_dealt_with_does_not_come_again(source: Source, state: str) -> None:
    sentinel = source.live()
    source.world.happens()
    (name,) = sentinel.settle()
    pending = sentinel.places.queue_file("events", "pending", name)
    os.rename(pending, sentinel.places.queue_file("events", state, name))
    assert len(source.live().look(3600)) == 1
    for path in (sentinel.places.own("sentinel") / "seen").iterdir():
        path.unlink()
    assert len(source.live().look(3600)) == 1


def test_what_nobody_needs_to_know_again_after_retention_does_not_come_again(source: Source) -> None:
    """Markers and files are gone; what the watcher remembers of its own is left."""
    sentinel = source.live()
    source.world.happens()
    (name,) = sentinel.settle()
    sentinel.look(3600)
    sentinel.places.queue_file("events", "pending", name).unlink()
    (sentinel.places.own("sentinel") / "seen" / name).unlink()
    again = source.live().look(3600)
    assert again == ([name] if source.name == "command" else []), "a program says again what it likes"


def test_what_is_above_the_bound_waits_and_is_not_lost(source: Source) -> None:
    sentinel = source.live(breaker={"events_per_hour": 2})
    for _ in range(3):
        source.world.happens()
    assert len(sentinel.settle()) == 2
    assert sentinel.shows(source.name)["state"] == "held"
    assert len(sentinel.look(3700)) == 3
    assert sentinel.shows(source.name)["state"] == "ok"


def test_a_reload_loses_and_doubles_nothing(source: Source) -> None:
    sentinel = source.live()
    source.world.happens()
    sentinel.turn_until(sentinel.events)
    sentinel.job.reload(sentinel.services)
    assert len(sentinel.settle()) == 1
    source.world.happens()
    assert len(sentinel.look(3600)) == 2


def test_a_torn_memory_is_set_aside_and_told(source: Source) -> None:
    sentinel = source.live()
    source.world.happens()
    first = sentinel.settle()
    (Places(sentinel.places.home).own("sentinel") / f"{source.name}-state.json").write_text('{"torn')
    again = source.live()
    assert again.settle() == first
    assert "is kept as" in again.said()
