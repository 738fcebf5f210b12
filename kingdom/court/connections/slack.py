"""Slack: the two tokens, their scopes, and who we are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.court.connections.base import Needed, ServiceDown, ServiceRefused
from kingdom.court.connections.web import QUICK, HttpAnswer, Web

NAME = "Slack"
BOT = Needed("SLACK_BOT_TOKEN", "bot token (xoxb-…)")
APP = Needed("SLACK_APP_TOKEN", "app-level token (xapp-…)")
SCOPES = (
    *("app_mentions:read", "channels:history", "channels:read", "chat:write", "groups:history", "groups:read"),
    *("im:history", "reactions:write"),
)
"""What the bot's token must be allowed to do."""
API = "https://slack.com/api/"
PASSING = ("internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited")


class SlackService:
    serves = "the envoy uses it to post, to ask and to read answers"
    needs = (BOT, APP)
    guide = f"""\
On api.slack.com/apps: Create New App, from scratch, in your workspace.
Socket Mode: enable it; this makes the app-level token, with the scope `connections:write`.
OAuth & Permissions, Bot Token Scopes: {", ".join(SCOPES)}.
Event Subscriptions, bot events: app_mention, message.channels, message.groups, message.im. Interactivity: on.
App Home, Messages Tab: on. Install the app to the workspace: this makes the bot token. Then /invite it to channels."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        envoy, _ = config.for_looking(places, "envoy")
        part = envoy.get("slack")
        address = str((part or {}).get("api_url", API))
        me = _ask(address, "auth.test", BOT, secrets)
        held = {scope.strip() for scope in me.headers.get("x-oauth-scopes", "").split(",")} - {""}
        if held and (missing := sorted(set(SCOPES) - held)):
            raise ServiceRefused(service=NAME, why=f"the bot token lacks the scopes {', '.join(missing)}")
        _ask(address, "apps.connections.open", APP, secrets)
        team = f"{me.body.get('team')} ({me.body.get('team_id')})"
        return f"you are {me.body.get('user')} in {team}, Socket Mode works; {_next_step(part)}"


def _next_step(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "now write `slack: {people: [ID]}` into config/envoy.yaml: it listens to nobody else"
    people = part["people"]
    return f"it listens to: {', '.join(people)}" if people else "slack.people in config/envoy.yaml lists nobody yet"


def _ask(address: str, method: str, need: Needed, secrets: Mapping[str, str]) -> HttpAnswer:
    """Return the answer of a method; Slack says in its body whether it took the token."""
    web = Web(NAME, address, {"Authorization": f"Bearer {need.value(secrets)}"}, deadlines=QUICK)
    try:
        answer = web.ask("POST", method)
    finally:
        web.close()
    error = answer.body.get("error", "") if isinstance(answer.body, dict) else "its answer cannot be read"
    if error:
        kind = ServiceDown if error in PASSING else ServiceRefused
        raise kind(service=NAME, why=f"{error} ({need.name}, {method})")
    return answer
