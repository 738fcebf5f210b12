"""The council's turn: end what agents have done with, judge what has come, and tell free agents what waits."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from kingdom.base.disk.atomic import make_folder
from kingdom.base.runtime.role import Services, Turn
from kingdom.council.monitor.delivery import CouncilDelivery
from kingdom.council.monitor.folders import agents_of, clear_drafts, senders_of
from kingdom.council.monitor.goals import Goals
from kingdom.council.monitor.messages import CouncilMessage
from kingdom.council.monitor.outboxes import MOST_SENT, Outboxes
from kingdom.council.monitor.people import USER, People
from kingdom.council.monitor.settings import settings_of
from kingdom.council.monitor.turns import CannotStart, Turns
from kingdom.council.monitor.unanswered import Unanswered

LONG = 3600.0
"""Seconds until something that is not due at all."""


class CouncilJob:
    """Plays `queue_monitor`: agents are told by it alone."""

    def __init__(self, services: Services, dice: Callable[[], float] = random.random) -> None:
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # see writers.py
        self._services = services
        self._settings = settings_of(services)
        self._make_folders()
        agents = agents_of(services.places)
        clear_drafts(folder(agent) for agent in agents for folder in (services.places.agent, services.places.told))
        self._delivery = CouncilDelivery(services, self._settings, dice)
        self._outboxes = Outboxes(services, self._delivery.dead_letters)
        self._goals = Goals(services)
        self._turns = Turns(services, self._settings, self._goals.is_over)
        self._people = People(services)
        self._unanswered = Unanswered(services, self._settings, self._delivery.dead_letters, self._goals)
        self._outboxes.collect({**dict.fromkeys(senders_of(services.places), ""), **self._threads()}, most=MOST_SENT)

    def folders(self) -> dict[Path, tuple[str, ...]]:
        places = self._services.places
        agents = agents_of(places)
        watched = [places.council, places.council_goals, *map(places.agent, agents), *map(places.told, agents)]
        watched += map(places.outbox, senders_of(places))
        return dict.fromkeys(watched, ())

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        """Look everywhere: a folder holds few files, and only it tells the truth."""
        self._turns.begin_turn()
        worked = self._outboxes.collect(self._threads()) > 0
        worked = self._end_turns() or worked
        self._delivery.begin_turn()
        waiting = self._look()
        handed_over, kept = self._tell_people()
        ready: list[CouncilMessage] = []
        later: list[CouncilMessage] = []
        held = 0
        for message in waiting:
            if why := self._goals.is_over(message.thread):
                self._delivery.drop(message, why)
            elif self._goals.holds(message):
                held += 1
                self._delivery.show(message, self._goals.note_plan)
            else:
                (ready if self._delivery.is_due(message) else later).append(message)
        told = 0
        ready.sort(key=lambda message: message.rank)
        tried: set[Path] = set()
        for place, message in enumerate(ready):
            if len(self._turns.running) >= self._settings.parallel_max:
                break
            if message.path in tried:
                continue
            if message.agent not in self._turns.running and not self._turns.must_wait(message.agent):
                together = self._together(message, ready[place:])
                tried.update(one.path for one in together)
                told += self._tell(together)
        worked = worked or told > 0 or handed_over > 0 or self._delivery.has_more
        if not worked and kept == LONG and not self._is_settling:
            worked = self._unanswered.look({*self._threads().values(), *(message.thread for message in waiting)}) > 0
        self._turns.write()
        at_work = {agent: os.path.basename(next(iter(turn.messages))) for agent, turn in self._turns.running.items()}
        self._delivery.figures.show(len(ready) - told + held, len(later), at_work)
        return Turn(
            worked, min(kept, self._seconds(later)), busy=bool(self._turns.running or ready) or self._is_settling
        )

    def reload(self, services: Services) -> None:
        """Take over new configuration."""
        self._settings = settings_of(services)
        self._services = services
        self._make_folders()
        self._delivery.take_over(services, self._settings)
        self._outboxes.take_over(services)
        self._turns.take_over(services, self._settings)
        self._people.take_over(services)
        self._goals.take_over(services)
        self._unanswered.take_over(services, self._settings)

    def close(self) -> None:
        """Leave agents at work: the next start finds them again."""
        self._delivery.figures.write()
        self._turns.close()
        if self._turns.running:
            self._services.log.info(f"leaves at work: {', '.join(sorted(self._turns.running))}")

    def _end_turns(self) -> bool:
        """Do what follows from the turns that are over, when all that they have sent is on its way."""
        over = self._turns.ended()
        for ended in over:
            agent = ended.turn.agent
            self._outboxes.collect({agent: ended.turn.thread}, has_ended=True)
            if self._outboxes.is_empty(agent):
                self._outboxes.close(agent)
                self._delivery.end(ended)
                self._unanswered.note(ended.turn.thread)
                self._turns.clear(agent)
        return bool(over)

    def _look(self) -> list[CouncilMessage]:
        """Return what waits for the agents that are started here."""
        found: list[CouncilMessage] = []
        for agent in agents_of(self._services.places):
            if self._settings.of(agent) is not None:
                turn = self._turns.running.get(agent)
                found += self._delivery.look(agent, turn.messages if turn is not None else ())
        return found

    def _tell_people(self) -> tuple[int, float]:
        """Hand people what agents have written to `user`. Return how much, and seconds until the rest may follow."""
        if self._settings.of(USER) is not None:
            return 0, LONG
        number = 0
        for message in self._delivery.look(USER):
            if wait := self._people.seconds_to_wait:
                return number, wait
            if (taken := self._delivery.take(message)) is not None:
                if not self._goals.note_end(taken):
                    self._people.tell(taken, self._goals.of(taken.thread))
                self._delivery.remove(taken)
                number += 1
        return number, LONG

    def _together(self, first: CouncilMessage, ready: list[CouncilMessage]) -> list[CouncilMessage]:
        """Return a message with the next ones of its agent and thread, as many as that is told of in one turn.

        `ready` begins with it: those before it have been tried in this turn.
        """
        row = self._settings.of(first.agent)
        assert row is not None
        own = [message for message in ready if message.agent == first.agent and message.thread == first.thread]
        return own[: row["at_once"]]

    def _tell(self, messages: list[CouncilMessage]) -> int:
        """Tell an agent of messages. Return how many there still were."""
        taken = [one for message in messages if (one := self._delivery.take(message)) is not None]
        if not taken:
            return 0
        agent = taken[0].agent
        for one in taken:
            if one.type == "task_list":
                self._goals.note_plan(one)
        self._outboxes.begin(agent)
        try:
            self._turns.tell(agent, {str(one.path): one.retries for one in taken}, taken[0].thread)
        except CannotStart as error:
            for one in taken:
                self._delivery.fail(one, str(error))
        else:
            for one in taken:
                self._delivery.told(one)
        return len(taken)

    def _threads(self) -> dict[str, str]:
        """Return the agents at work with the threads that they were told of."""
        return {agent: turn.thread for agent, turn in self._turns.running.items()}

    def _make_folders(self) -> None:
        places = self._services.places
        make_folder(places.dead_letters)
        for agent in {*self._settings.folders(), *agents_of(places)}:
            make_folder(places.told(agent))

    @property
    def _is_settling(self) -> bool:
        return self._delivery.settling_seconds < 10.0

    def _seconds(self, later: list[CouncilMessage]) -> float:
        """Return the seconds until something is due."""
        now = self._services.clock()
        retry = min((message.not_before - now for message in later), default=LONG)
        due = (
            retry,
            self._turns.seconds_left(),
            self._delivery.settling_seconds,
            self._outboxes.settling_seconds,
            self._delivery.figures.seconds_to_write,
        )
        return max(0.02, min(self._settings.poll_interval, *due))
