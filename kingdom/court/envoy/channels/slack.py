"""Slack, by its own library: posts by the Web API, what people say by Socket Mode."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.request import SocketModeRequest

from kingdom.base import tables
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.times import moment
from kingdom.court.envoy.channels import slack_errors
from kingdom.court.envoy.channels.base import Channel, ChannelDown, ChannelKit, ChannelRefused, Heard, Post, PostDraft
from kingdom.court.envoy.channels.slack_events import Identity, Listed
from kingdom.court.envoy.channels.slack_socket import SocketLine, why
from kingdom.court.envoy.channels.slack_text import (
    EMOJI,
    LONGEST,
    answered,
    blocks_of,
    is_post_of,
    metadata_of,
    text_of,
)

BLIP_SECONDS = 10.0
"""A shorter interruption is not reported: Slack renews connections every few hours."""
CLOCK_SKEW_SECONDS = 600
PAGES_SEARCHED = 10
PAGE = 200
ID = re.compile(r"[CDG][A-Z0-9]{6,}")


def open_channel(kit: ChannelKit) -> Channel:
    """Return the channel, by the transport that the owner chose."""
    if kit.config["transport"] == "bridge":
        bridge: Channel = tables.load("kingdom.court.envoy.channels.slack_bridge:Bridge")(kit)
        return bridge
    return SlackChannel(kit)


class SlackChannel(Channel):
    waits = True
    longest = LONGEST

    def __init__(self, kit: ChannelKit) -> None:
        config = kit.config
        self._kit = kit
        self.seconds_between_posts = float(config["seconds_between_posts"])
        self.settle_seconds = float(config["settle_seconds"])
        token, app_token = (_secret(kit, config[name]) for name in ("bot_token_env", "app_token_env"))
        # Without its own retries: after a connection that broke it would post once more.
        self._web = WebClient(token, config["api_url"], logger=_silent(), retry_handlers=[])
        self._web.timeout = config["call_seconds"]
        self._listed: Listed | None = None
        self._unacknowledged: list[tuple[Heard, SocketModeRequest]] = []
        self._rooms = JsonFile(kit.folder / "rooms.json", kit.disk, kit.tell, lambda _, id: isinstance(id, str))
        self._learnt: dict[str, str] = {name: self._rooms.get(name) for name in self._rooms}
        self._line = SocketLine(self._web, app_token, _silent(), self._introduce, kit.alarm.ring)

    def post(self, draft: PostDraft) -> Post:
        room = self.room(draft.room)
        said = self._call(
            lambda: self._web.chat_postMessage(
                channel=room,
                text=text_of(draft),
                blocks=blocks_of(draft),
                thread_ts=draft.thread,
                metadata=metadata_of(draft),
                unfurl_links=False,
            )
        )
        if not (said.get("ts") and said.get("channel")):
            raise ChannelDown(channel="slack", why="its answer names no post")
        if said["channel"] != draft.room:
            self._learnt[draft.room] = str(said["channel"])
        return Post(str(said["ts"]), str(said["channel"]))

    def find(self, draft: PostDraft) -> Post | None:
        if (room := self._room_id(draft.room)) is None:
            return None
        found = (message for message in self._messages(room, draft) if is_post_of(draft, message))
        return next((Post(str(message["ts"]), room) for message in found), None)

    def room(self, name: str) -> str:
        return self._learnt.get(name, name)

    def mark(self, room: str, post: str, code: str) -> None:
        now, before = EMOJI.get(code, ("", ""))
        where = {"channel": self.room(room), "timestamp": post}
        if before:
            with suppress(ChannelRefused):
                self._call(lambda: self._web.reactions_remove(name=before, **where))
        if now:
            self._call(lambda: self._web.reactions_add(name=now, **where))

    def read(self) -> Sequence[Heard]:
        self._remember_rooms()
        for request in self._line.heard():
            said = self._said(request)
            if said is None:
                self._line.acknowledge(request)
            else:
                self._unacknowledged.append((said, request))
        since = self._line.down_since
        if not self._unacknowledged and since is not None and time.monotonic() - since > BLIP_SECONDS:
            raise _of_token(self._line.why_down) or ChannelDown(channel="slack", why=self._line.why_down)
        return [said for said, _ in self._unacknowledged]

    def acknowledge(self, said: Sequence[Heard]) -> None:
        for one, request in self._unacknowledged:
            self._line.acknowledge(request)
            if request.type == "interactive":
                self._show_answer(one, request.payload)
        self._unacknowledged.clear()

    def close(self) -> None:
        self._line.close()

    def _introduce(self) -> None:
        """Learn who we are: our own posts and other teams are not heard."""
        me = self._web.auth_test()
        identity = Identity(str(me.get("team_id")), str(me.get("user_id")))
        self._listed = Listed(self._kit.config, identity)

    def _said(self, request: SocketModeRequest) -> Heard | None:
        payload = request.payload
        if self._listed is None or not isinstance(payload, Mapping):
            return None
        if request.type == "events_api":
            return self._listed.event(payload)
        return self._listed.press(payload) if request.type == "interactive" else None

    def _show_answer(self, said: Heard, payload: Mapping[str, Any]) -> None:
        """Replace the buttons by the answer when the thread has time for it."""
        message = payload["message"]
        blocks = answered(message, said.text, said.user)
        text = str(message.get("text") or said.text)
        self._line.do(lambda: self._update(said.room, str(message["ts"]), text, blocks))

    def _update(self, room: str, ts: str, text: str, blocks: list[dict[str, Any]]) -> None:
        self._web.chat_update(channel=room, ts=ts, text=text, blocks=blocks)

    def _remember_rooms(self) -> None:
        for name, id in list(self._learnt.items()):
            self._rooms.set(name, id)
        self._rooms.save()

    def _room_id(self, name: str) -> str | None:
        """Return the id of a room; None when there is none of this name."""
        known = self.room(name)
        if ID.fullmatch(known):
            return known
        wanted = known.removeprefix("#")
        kinds = "public_channel,private_channel"
        listed = self._pages(lambda cursor: self._web.conversations_list(limit=PAGE, cursor=cursor, types=kinds))
        for page in listed:
            for room in page.get("channels", ()):
                if room.get("name") == wanted:
                    return str(room["id"])
        return None

    def _messages(self, room: str, draft: PostDraft) -> Iterator[Mapping[str, Any]]:
        """Yield the messages among which an interrupted post would be."""
        common: dict[str, Any] = {"channel": room, "limit": PAGE, "include_all_metadata": True}
        with suppress(ValueError):
            common["oldest"] = f"{moment(draft.written_at) - CLOCK_SKEW_SECONDS:.6f}"

        def page(cursor: str | None) -> Any:
            if draft.thread is None:
                return self._web.conversations_history(**common, cursor=cursor)
            return self._web.conversations_replies(ts=draft.thread, **common, cursor=cursor)

        for found in self._pages(page):
            yield from found.get("messages", ())

    def _pages(self, page: Callable[[str | None], Any]) -> Iterator[Mapping[str, Any]]:
        cursor = None
        for _ in range(PAGES_SEARCHED):
            found = self._call(lambda: page(cursor))  # noqa: B023
            yield found
            cursor = (found.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return

    def _call(self, call: Callable[[], Any]) -> Mapping[str, Any]:
        """Return Slack's answer. RoomBusy when it asks for a pause, ChannelDown when it cannot be had, else refused."""
        try:
            answer: Mapping[str, Any] = call().data
        except SlackApiError as error:
            raise _refusal(error) from None
        except (SlackClientError, OSError, HTTPException, ValueError) as error:
            raise ChannelDown(channel="slack", why=why(error)) from None
        return answer


def _refusal(error: SlackApiError) -> ChannelRefused:
    response, said = error.response, why(error)
    if response.status_code == 429 or said == slack_errors.BUSY:
        return slack_errors.judged(slack_errors.BUSY, after=_retry_after(response.headers))
    if (of_token := _of_token(said)) is not None:
        return of_token
    if response.status_code != 200 or not isinstance(response.data, dict):
        return ChannelDown(channel="slack", why=said)
    if "non-JSON" in said:
        return ChannelDown(channel="slack", why="its answer cannot be read")
    return slack_errors.judged(said)


def _of_token(said: str) -> ChannelRefused | None:
    if said not in slack_errors.OF_TOKENS:
        return None
    return slack_errors.judged(said, step="`kingdom connect slack` takes new tokens")


def _retry_after(headers: Mapping[str, Any]) -> float:
    try:
        return max(0.0, float({key.lower(): value for key, value in headers.items()}["retry-after"]))
    except (KeyError, ValueError):
        return 1.0


def _secret(kit: ChannelKit, name: str) -> str:
    if not (secret := kit.secrets.get(name)):
        raise ChannelDown(channel="slack", why=f"{name} is not in .env; `kingdom connect slack` asks for it")
    return secret


def _silent() -> logging.Logger:
    """Return a logger that says nothing: what the library would print can hold what belongs in no log."""
    logger = logging.getLogger("kingdom.slack")
    logger.disabled = True
    return logger
