"""What Slack delivers, and which of it becomes events: only from listed people in listed channels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any, NamedTuple

from kingdom.base.home.config import Config
from kingdom.court.envoy.channels.base import IN_THREAD, Heard

EVERYBODY = "*"
ANSWER = "kingdom-answer"
"""How the ids of our buttons begin."""
LONGEST_TEXT = 40_000
_TS = re.compile(r"\d{1,12}\.\d{1,9}")
_ID = re.compile(r"[A-Z0-9]{2,20}")
_MENTION = re.compile(r"\s*<@[A-Z0-9]+(?:\|[^>]*)?>[\s,:]*")

Payload = Mapping[str, Any]


class Identity(NamedTuple):
    """Who we are in Slack."""

    team: str
    #: The bot's user.
    user: str


class Listed:
    """Who may speak, and where."""

    def __init__(self, config: Config, me: Identity) -> None:
        self._me = me
        self._teams = frozenset(config["teams"]) or {me.team}
        self._channels = frozenset(config["channels"])
        self._people = frozenset(config["people"])

    def event(self, payload: Payload) -> Heard | None:
        """Return what an event of Slack's Events API says to us; None when it is not for us."""
        event = payload.get("event")
        if not isinstance(event, Mapping) or payload.get("team_id") not in self._teams:
            return None
        if any(event.get(team, payload["team_id"]) not in self._teams for team in ("team", "user_team")):
            return None
        if event.get("subtype") or event.get("bot_id") or event.get("user") in (self._me.user, None):
            return None
        is_direct = event.get("channel_type") == "im"
        if event.get("type") == "message":
            kind = "channel.message" if is_direct else self._kind_in_channel(event)
        else:
            kind = "app_mention" if event.get("type") == "app_mention" and not is_direct else None
        said = (event.get("user"), event.get("text"), event.get("channel"), event.get("ts"), event.get("thread_ts"))
        return self._said(kind, *said, is_direct=is_direct)

    def press(self, payload: Payload) -> Heard | None:
        """Return what somebody has answered by one of our buttons."""
        team, user, channel, message = (_part(payload, key) for key in ("team", "user", "channel", "message"))
        actions = payload.get("actions")
        action = actions[0] if isinstance(actions, list) and actions and isinstance(actions[0], Mapping) else {}
        if payload.get("type") != "block_actions" or not str(action.get("action_id", "")).startswith(ANSWER):
            return None
        if team.get("id") not in self._teams or user.get("team_id", team["id"]) not in self._teams:
            return None
        if message.get("user", self._me.user) != self._me.user:
            return None
        thread = message.get("thread_ts") or message.get("ts")
        is_direct = str(channel.get("id", "")).startswith("D")
        said = (user.get("id"), action.get("value"), channel.get("id"), action.get("action_ts"), thread)
        return self._said(IN_THREAD, *said, is_direct=is_direct)

    def relayed(self, line: Payload) -> Heard | None:
        """Return what a bridge has heard, which knows its own team and drops bots itself."""
        kinds = {"message": "channel.message", "thread_reply": IN_THREAD, "app_mention": "app_mention"}
        is_direct = str(line.get("channel", "")).startswith("D")
        kind = kinds.get(str(line.get("type")))
        if line.get("user_id") == self._me.user or (kind == "channel.message" and not is_direct):
            return None
        said = (line.get("user_id"), line.get("text"), line.get("channel"), line.get("ts"), line.get("thread_ts"))
        return self._said(kind, *said, is_direct=is_direct)

    def _kind_in_channel(self, event: Payload) -> str | None:
        """Return the type of a message in a channel: a reply or None. What mentions us comes again, as a mention."""
        is_reply = event.get("thread_ts") not in (None, event.get("ts"))
        return IN_THREAD if is_reply and f"<@{self._me.user}" not in str(event.get("text")) else None

    def _said(
        self, kind: str | None, user: Any, text: Any, room: Any, ts: Any, thread: Any, *, is_direct: bool
    ) -> Heard | None:
        is_whole = _fits(_ID, user) and _fits(_ID, room) and _fits(_TS, ts) and (thread is None or _fits(_TS, thread))
        if kind is None or not is_whole or not isinstance(text, str):
            return None
        if not self._people & {user, EVERYBODY} or not (is_direct or self._channels & {room, EVERYBODY}):
            return None
        plain = unescape(_MENTION.sub("", text, count=1) if _MENTION.match(text) else text)[:LONGEST_TEXT]
        return Heard(ts, kind, user, plain.strip(), room, thread if thread != ts else None)


def _part(payload: Payload, key: str) -> Payload:
    part = payload.get(key)
    return part if isinstance(part, Mapping) else {}


def _fits(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
