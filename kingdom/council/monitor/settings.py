"""The council's settings: council.yaml, and the variables that win over it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom.base.errors import BadConfig
from kingdom.base.home import config as configuration
from kingdom.base.runtime.role import Services
from kingdom.council import players

VARIABLES = {
    "QUEUE_POLL_INTERVAL": ("queue", "poll_interval"),
    "QUEUE_PARALLEL_MAX": ("queue", "parallel_max"),
    "RETRY_TIMEOUT": ("defaults", "task_timeout"),
    "RETRY_BASE_DELAY": ("retry", "base_delay"),
    "RETRY_MAX_DELAY": ("retry", "max_delay"),
    "DLQ_MAX_RETRIES": ("dlq", "max_retries"),
}
"""Of the environment or `.env`, and the keys that they win over."""
STANDARD = ("user", "leader", "strategist", "architect", "evaluator", "coordinator", "innovator")
"""Agents whose folders are made, beside those with a row and so many ignitians."""


@dataclass(frozen=True, slots=True)
class CouncilSettings:
    #: By name: how it is started. `ignitian` is the row of those that have none of their own.
    agents: Mapping[str, Mapping[str, Any]]
    #: Seconds of the longest pause.
    poll_interval: float
    #: Agents at work at the same time.
    parallel_max: int
    #: Seconds after which an agent at work is ended.
    task_timeout: float
    #: Ignitians whose folders are made.
    worker_count: int
    #: The wait before a retry is at most this, doubled with each further retry …
    base_delay: float
    #: … and never more than this.
    max_delay: float
    #: Retries after the first try.
    max_retries: int

    def of(self, agent: str) -> Mapping[str, Any] | None:
        """Return how an agent is started; None when nobody starts it."""
        return self.agents.get(agent) or (self.agents.get("ignitian") if agent.startswith("ignitian_") else None)

    def folders(self) -> list[str]:
        """Return the agents whose folders are there from the start."""
        ignitians = [f"ignitian_{number}" for number in range(1, self.worker_count + 1)]
        return list(dict.fromkeys([*STANDARD, *ignitians, *(name for name in self.agents if name != "ignitian")]))


def settings_of(services: Services) -> CouncilSettings:
    """Return the settings; BadConfig names a variable that does not fit."""
    whole = players.with_team(services.places, services.config)
    for agent, row in whole["agents"].items():
        if row["engine"] == "command" and "command" not in row:
            why = "it is missing, and the engine command needs it"
            raise BadConfig(
                path=services.places.config / "council.yaml", line="", key=f"agents.{agent}.command", why=why
            )
    for variable, (group, key) in VARIABLES.items():
        written = os.environ.get(variable) or services.secrets.get(variable)
        if written:
            whole = _with(whole, variable, group, key, written)
    queue, defaults, retry = whole["queue"], whole["defaults"], whole["retry"]
    return CouncilSettings(
        whole["agents"],
        float(queue["poll_interval"]),
        int(queue["parallel_max"]),
        float(defaults["task_timeout"]),
        int(defaults["worker_count"]),
        float(retry["base_delay"]),
        float(retry["max_delay"]),
        int(whole["dlq"]["max_retries"]),
    )


def _with(whole: dict[str, Any], variable: str, group: str, key: str, written: str) -> dict[str, Any]:
    try:
        number: float | str = int(written) if written.strip().isdigit() else float(written)
    except ValueError:
        number = written
    changed = {**whole, group: {**whole[group], key: number}}
    try:
        return configuration.validated("config/council", changed, {}, Path("council.yaml"))
    except BadConfig as error:
        raise BadConfig(path=variable, line="", key=f"{group}.{key}", why=error.facts["why"]) from None
