"""The turns of agents: each is a soldier that is told paths alone, and is ended with all that it has started.

A turn is noted before its soldier is started. So a council that was killed knows whether an agent has been told, and
goes on with one that is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.errors import BadFile, KingdomError
from kingdom.base.home import config as configuration
from kingdom.base.home.places import AGENT
from kingdom.base.records import notes
from kingdom.base.records.messages import SessionRow
from kingdom.base.records.sessions import Sessions
from kingdom.base.records.soldiers import BY_ITSELF, NEVER_RAN, RawReport
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import one_line
from kingdom.council import agents
from kingdom.council.agents import COUNCIL
from kingdom.council.monitor import orders
from kingdom.council.monitor.settings import CouncilSettings
from kingdom.court.soldiers import engine_homes, streams
from kingdom.court.soldiers.budgets import Budgets
from kingdom.court.soldiers.cleanup import finish_removals
from kingdom.court.soldiers.disk_space import why_full
from kingdom.court.soldiers.engines.base import NeedsSetUp
from kingdom.court.soldiers.handle import Look, SoldierHandle
from kingdom.court.soldiers.starter import Starter

LOOK_SECONDS = 0.05
"""How soon to look again for the note of a process that is being started."""
FULL_SECONDS = 5.0
"""How soon to look whether a full disk has room again."""
OWN_WORDS = ("error", "reason", "question")
"""Of what an agent reports: why it has left its message."""


class CannotStart(KingdomError):
    """it could not be started: {why}"""


@dataclass
class AgentTurn:
    """An agent that was told of messages, as far as we know."""

    agent: str
    #: Which turn this is: its soldier's attempt.
    number: int
    #: The messages' files, each with its Retry-Count at that time.
    messages: dict[str, int]
    #: Its soldier.
    soldier: SoldierHandle = field(repr=False)
    #: What the messages belong to.
    thread: str = ""
    #: What was last seen of it.
    look: Look | None = None
    #: How it ended, when it has.
    end: Ended | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that is over."""

    turn: AgentTurn
    #: Whether the agent was told at all.
    was_told: bool
    #: How it ended, for the case that a message is still there.
    reason: str
    #: It was not the agent's fault: its account has reached a limit, the disk is full, or a person has ended it.
    is_excused: bool = False


class Turns:
    """What agents are doing: at most one turn each."""

    def __init__(self, services: Services, settings: CouncilSettings, is_over: Callable[[str], str]) -> None:
        self._is_over = is_over
        """Returns why nobody works on a thread any more; "" while somebody does."""
        self._starter = Starter(services.places.home, services.log, services.alarm)
        self._sessions = Sessions(services.places, services.unsynced)
        self._sessions.repair()
        self._budgets = Budgets(services.places, services.disk, services.log, {})
        self._waits: dict[str, float] = {}
        self._full = ""
        """Why no agent may work: the disk is too full."""
        self.take_over(services, settings)
        make_folder(services.places.agent_turns)
        engine_homes.remove_old(services.places, services.unsynced, COUNCIL)
        finish_removals(services.places.agent_turns)
        self.running: dict[str, AgentTurn] = {}
        self.running |= {turn.agent: turn for turn in self._noted()}
        self._last_number = max((turn.number for turn in self.running.values()), default=0)

    def take_over(self, services: Services, settings: CouncilSettings) -> None:
        """Use new configuration."""
        self._services, self._settings = services, settings
        general = configuration.load(services.places, "general")
        self._budgets.rules = {**general["budgets"], **general["quota"]}

    def begin_turn(self) -> None:
        """Forget what agents had to wait for: it may have changed."""
        self._waits.clear()
        self._starter.reap()
        before, self._full = self._full, why_full(self._services.places.home)
        if self._full and not before:
            self._services.log.warn(f"agents wait: {self._full}")

    def must_wait(self, agent: str) -> bool:
        """Return whether an agent's account has reached a limit, or a budget is used up."""
        if agent in self._waits:
            return True
        if self._full:
            self._waits[agent] = self._services.clock() + FULL_SECONDS
            return True
        row = self._settings.of(agent)
        assert row is not None
        with suppress(NeedsSetUp):
            account = agents.chosen(self._services, agent, row).account
            now = self._services.clock()
            wait = self._budgets.wait_for(COUNCIL, account, AGENT + agent, now)
            if wait is not None:
                self._services.log.warn(f"{agent} waits: {wait.why}")
                self._waits[agent] = wait.until
                return True
        return False

    def tell(self, agent: str, messages: Mapping[str, int], thread: str) -> None:
        """Start an agent's turn with the paths of messages. CannotStart when its program could not be started.

        A turn is noted once the last one has ended: its note says what that was told of.
        """
        services, row = self._services, self._settings.of(agent)
        assert row is not None
        soldier = orders.soldier_of(services, agent)
        if soldier.is_running():
            raise CannotStart(why="an earlier turn of it is still at work")
        number = self._last_number = max(int(services.clock() * 1_000_000), self._last_number + 1)
        make_folder(soldier.control_folder)
        make_folder(soldier.folder)
        # A power cut ends the agents too: then no note is as good as one.
        note = {"agent": agent, "number": number, "messages": dict(messages), "thread": thread}
        services.unsynced.rewrite(soldier.control_folder / "told.json", to_json(note))
        # Whatever fails from here on, a full disk perhaps: what has become of it is looked at in the next turn.
        self.running[agent] = AgentTurn(agent, number, dict(messages), soldier, thread)
        try:
            chosen = agents.chosen(services, agent, row)
            left = self._budgets.left_usd(COUNCIL, services.clock(), for_person=False)
            made = orders.order(services, agent, row, chosen, list(messages), thread, number, soldier, left)
            environment = orders.environment(services, agent, row, chosen, soldier)
        except NeedsSetUp as error:
            self.clear(agent)
            raise CannotStart(why=error.facts["why"]) from None
        starting = soldier.start(services.unsynced, made, environment, self._starter)
        started = starting and soldier.finish_start(services.unsynced, starting, self._starter)
        if started is None:
            return  # it runs, or has ended already, though the server that was to start it was lost before it said so
        services.exits.watch(started.pid)
        self._sessions.add(
            SessionRow(
                id=made.soldier,
                soldier=made.soldier,
                task_id=soldier.task,
                general=COUNCIL,
                pid=started.pid,
                started_at=stamp(services.clock()),
                priority="normal",
            )
        )

    def ended(self) -> list[Ended]:
        """Return the turns that are over; what their soldiers have left behind has been ended."""
        for turn in self.running.values():
            turn.end = turn.end or self._end_of(turn)
        return [turn.end for turn in self.running.values() if turn.end is not None]

    def clear(self, agent: str) -> None:
        """Forget a turn: what followed from it is done."""
        self.running.pop(agent, None)
        soldier = orders.soldier_of(self._services, agent)
        self._budgets.release_probe(soldier.task, self._services.clock())
        self._sessions.remove(soldier.task)
        soldier.clear(self._services.unsynced)

    def write(self) -> None:
        """Write what has changed in the list of running soldiers."""
        self._sessions.write()

    def close(self) -> None:
        """Let agents go on: the next start finds them by their locks."""
        self._starter.close()

    def seconds_left(self) -> float:
        """Return how long it takes until the first running turn has to be ended, or looked at."""
        looks = [turn.look for turn in self.running.values()]
        if any(look is not None and look.started is None for look in looks):
            return LOOK_SECONDS
        now = self._services.clock()
        rests = [self._settings.task_timeout - look.seconds for look in looks if look is not None]
        return min([*rests, *(max(0.0, until - now) for until in self._waits.values())], default=3600.0)

    def _end_of(self, turn: AgentTurn) -> Ended | None:
        services, soldier = self._services, turn.soldier
        look = turn.look = soldier.look(turn.number)
        if look.is_running:
            if look.started is None:
                soldier.note_unrecorded_start(services.unsynced, turn.number)
                turn.look = look = soldier.look(turn.number)
            if look.started is not None:
                services.exits.watch(look.started.pid)
            if why := self._is_over(turn.thread):
                return replace(self._killed(turn, why), is_excused=True)
            if look.seconds < self._settings.task_timeout:
                return None
            return self._killed(turn, f"it took longer than {self._settings.task_timeout:g} s")
        if look.report is not None:
            return self._reported(turn, look.report)
        if look.has_ended(turn.number):
            return self._killed(turn, soldier.stderr_tail() or "it was killed")
        return Ended(turn, False, "")

    def _killed(self, turn: AgentTurn, reason: str) -> Ended:
        """End a turn that leaves no report, and count what it has used by what its engine has printed."""
        turn.soldier.kill()
        order = turn.soldier.order
        if order is not None:
            streams.repair(order, self._services.secrets.values())
            self._record(turn, order.account, turn.soldier.used())
        excused = notes.was_stopped_by_down(self._services.places, turn.soldier.control_folder)
        return Ended(turn, True, reason, excused)

    def _reported(self, turn: AgentTurn, report: RawReport) -> Ended:
        """Return how a turn ended by the report of its soldier."""
        services, order = self._services, turn.soldier.order
        if report.missing_sandbox:
            services.log.warn(f"NO WHOLE SANDBOX for {turn.agent}: {report.missing_sandbox}")
        report = engine_homes.keep_session(services, COUNCIL, order, report)
        result = report.result or {}
        account = order.account if order is not None else ""
        quota = result.get("quota")
        if isinstance(quota, Mapping):
            wait = self._budgets.rest_account(account, turn.soldier.task, quota, services.clock())
            services.log.warn(f"{turn.agent} waits: {wait.why}")
            return Ended(turn, True, wait.why, is_excused=True)
        metrics = result.get("metrics")
        self._record(turn, account, metrics if isinstance(metrics, Mapping) else turn.soldier.used())
        was_stopped = report.result is None and notes.was_stopped_by_down(services.places, turn.soldier.control_folder)
        is_excused = was_stopped or bool(self._full)
        return Ended(turn, True, self._why(report, result), is_excused)

    def _why(self, report: RawReport, result: Mapping[str, Any]) -> str:
        """Return why a message may still be there."""
        own = next((str(result[key]) for key in OWN_WORDS if result.get(key)), "")
        if own:
            return self._clean(own)
        said = self._clean(report.output_tail)
        if report.ended == NEVER_RAN:
            return f"it could not be started: {said}"
        if report.ended != BY_ITSELF:
            return said or "it was ended"
        if not report.exit_code:
            return "it ended and left the message"
        code = report.exit_code
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}: {said}" if said else how

    def _clean(self, text: str) -> str:
        return one_line(self._services.log.clean(text), 200)

    def _record(self, turn: AgentTurn, account: str, metrics: Mapping[str, Any]) -> None:
        used = {name: metrics.get(name) for name in ("cost_usd", "tokens_used")}
        known = {name: value for name, value in used.items() if isinstance(value, int | float) and 0 < value < 1e15}
        run = f"{turn.soldier.task}/{turn.number}"
        now = self._services.clock()
        self._budgets.record_cost(COUNCIL, account, turn.soldier.task, known, now, run=run)

    def _noted(self) -> list[AgentTurn]:
        """Return the turns that an earlier run of ours has noted; what else is left of turns is cleared."""
        found = []
        for folder in sorted(self._services.places.agent_turns.glob(f"{AGENT}*")):
            agent = folder.name.removeprefix(AGENT)
            soldier = orders.soldier_of(self._services, agent)
            if is_there(folder / "told.json"):
                try:
                    note = read_json(folder / "told.json")
                    messages = {str(path): int(retries) for path, retries in note["messages"].items()}
                    thread = str(note.get("thread") or "")
                    found.append(AgentTurn(agent, int(note["number"]), messages, soldier, thread))
                    continue
                except (BadFile, AttributeError, KeyError, TypeError, ValueError) as error:
                    self._services.log.error(f"forgets the turn of {agent}, whose note is damaged: {error}")
            soldier.kill()
            self.clear(agent)
        return found
