"""What Slack's errors mean, by its own names for them, whoever holds the connection."""

from __future__ import annotations

from collections.abc import Mapping

from kingdom.court.envoy.channels.base import ChannelDown, ChannelLocked, ChannelRefused, RoomBusy

BUSY = "ratelimited"
OF_TOKENS = ("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "missing_scope")
"""Errors that the owner has to correct: messages for Slack wait until then."""
PASSING = ("internal_error", "fatal_error", "service_unavailable", "request_timeout", "accesslimited")
HINTS: Mapping[str, str] = {
    "not_in_channel": "invite the app there",
    "channel_not_found": "there is none of that name, or the app was not invited",
    "is_archived": "the channel is archived",
}


def judged(error: str, *, after: float = 1.0, step: str = "") -> ChannelRefused:
    """Return what an error means to the envoy. `step` is what to do about a token that is not taken."""
    if error == BUSY:
        return RoomBusy(channel="slack", why="it asks for a pause", after=after)
    if error in OF_TOKENS:
        return ChannelLocked(channel="slack", why=f"{error}{step and '; '}{step}")
    if error in PASSING:
        return ChannelDown(channel="slack", why=error)
    return ChannelRefused(channel="slack", why=f"{error}: {HINTS[error]}" if error in HINTS else error)
