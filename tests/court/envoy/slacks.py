"""Run an envoy with a Slack on loopback, and look at both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kingdom.base.runtime.role import Services
from kingdom.court.envoy.job import EnvoyJob
from kingdom.demo.standins.slack import Slack
from tests.court.envoy.envoys import Envoy
from tests.fixtures import Clock, services
from tests.waiting import wait_until

SOON = 30.0
SECRETS = {"SLACK_BOT_TOKEN": "xoxb-canary-4711", "SLACK_APP_TOKEN": "xapp-canary-4712"}


def settings(slack: Slack, **more: Any) -> dict[str, Any]:
    """Return an envoy.yaml for this Slack, with everybody listed and no pauses."""
    part = {"api_url": slack.api_url, "people": ["U0ANN"], "seconds_between_posts": 0, "settle_seconds": 0}
    return {"slack": {**part, **more}, "retry": {"backoff_seconds": 0}}


def slack_services(home: Path, clock: Callable[[], float], config: Mapping[str, Any]) -> Services:
    return replace(services(home, "envoy", clock, envoy=config), secrets=SECRETS)  # type: ignore[arg-type]


def slack_envoy(home: Path, clock: Clock, slack: Slack, **more: Any) -> Envoy:
    given = slack_services(home, clock, settings(slack, **more))
    return Envoy(given, EnvoyJob(given))


def turn_until(envoy: Envoy, seen: Callable[[], object], what: str, seconds: float = SOON) -> None:
    """Run turns, as its loop would, until the condition holds."""

    def turned() -> object:
        envoy.job.turn({})
        envoy.services.log.flush()
        return seen()

    wait_until(turned, seconds, what)


def listening(envoy: Envoy, slack: Slack) -> Envoy:
    turn_until(envoy, lambda: slack.lines, "the envoy listens")
    return envoy
