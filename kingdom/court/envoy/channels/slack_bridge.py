"""Slack by way of a bridge: another program holds the connection, and everything passes through files.

What is to be done lies in `outbox/`, what has become of it in `outbox-results/`, what people say in `socket-inbox/`,
and `bridge-health` is touched while the bridge lives. Names are made of our messages, so a result is also a receipt.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.errors import BadFile, BadInput, Collision
from kingdom.base.home.places import as_filename, is_hidden
from kingdom.court.envoy.channels import slack_errors
from kingdom.court.envoy.channels.base import Channel, ChannelDown, ChannelKit, Heard, Post, PostDraft
from kingdom.court.envoy.channels.slack_events import Identity, Listed
from kingdom.court.envoy.channels.slack_text import EMOJI, LONGEST, text_of

STALE_SECONDS = 30.0
LATEST_ANSWER_SECONDS = 600.0
"""How long a bridge that runs may take for a request before it is given the request again."""
LOOK_SECONDS = 0.05
KEPT_SECONDS = 60.0
"""A result that was read stays for so long: our own receipt is written after it was read."""


class Bridge(Channel):
    waits = True
    longest = LONGEST

    def __init__(self, kit: ChannelKit) -> None:
        self._kit = kit
        self.seconds_between_posts = float(kit.config["seconds_between_posts"])
        folder = (kit.home / kit.config["bridge_folder"]).resolve()
        if not folder.is_relative_to(kit.home.resolve()):
            raise ChannelDown(channel="slack", why="slack.bridge_folder lies outside the home")
        self._outbox, self._results, self._inbox, scratch = (
            folder / name for name in ("outbox", "outbox-results", "socket-inbox", ".kingdom")
        )
        for path in (self._outbox, self._results, self._inbox, scratch):
            make_folder(path)
        #: For each request that it was given and has not answered, an empty file.
        self._asked = kit.folder / "asked"
        make_folder(self._asked)
        self._health = folder / "bridge-health"
        #: When it was last seen without a sign of life, by the machine's clock.
        self._silent_at = 0.0
        # One of its own: posts are made by a thread.
        self._disk = Disk(scratch, durability=kit.disk.durability, guard=kit.disk.guard)
        self._disk.sweep_scratch()
        self._listed = Listed(kit.config, Identity("", ""))
        self._read: deque[tuple[float, Path]] = deque()
        self._delivered: dict[Heard, Path] = {}

    def post(self, draft: PostDraft) -> Post:
        action = "send_message" if draft.thread is None else "send_reply"
        name = _name(draft, action)
        if (result := self._result(name)) is None:
            self._check_health()
            if not self._has_taken(name):
                self._ask(name, action, draft.room, text=text_of(draft), thread_ts=draft.thread)
                self._disk.rewrite(self._asked / name, b"")
            result = self._wait_for(name)
        self._disk.remove(self._asked / name)
        if result.get("ok") is not True:
            self._disk.remove(self._results / f"{name}.json")
            raise slack_errors.judged(str(result.get("error")))
        return Post(str(result.get("ts")), str(result.get("channel") or draft.room))

    def find(self, draft: PostDraft) -> Post | None:
        result = self._result(_name(draft, "send_message" if draft.thread is None else "send_reply"))
        if result is None or result.get("ok") is not True:
            return None
        return Post(str(result.get("ts")), str(result.get("channel") or draft.room))

    def mark(self, room: str, post: str, code: str) -> None:
        now, before = EMOJI.get(code, ("", ""))
        for action, emoji in (("remove_reaction", before), ("add_reaction", now)):
            if emoji:
                name = as_filename(f"{room}-{post}-{action}-{emoji}")
                self._ask(name, action, room, emoji=emoji, message_ts=post)
                self._read.append((time.monotonic(), self._results / f"{name}.json"))

    def folders(self) -> Iterable[Path]:
        return (self._inbox,)

    def read(self) -> Sequence[Heard]:
        self._remove_results()
        for name in sorted(os.listdir(self._inbox)):
            path = self._inbox / name
            if is_hidden(name) or path in self._delivered.values():
                continue
            said = self._said(path)
            if said is None:
                self._disk.remove(path)
            else:
                self._delivered[said] = path
        if not self._delivered:
            self._check_health()
        return list(self._delivered)

    def acknowledge(self, said: Sequence[Heard]) -> None:
        self._disk.remove_all(list(self._delivered.values()))
        self._delivered.clear()

    def _said(self, path: Path) -> Heard | None:
        """Return what a file says to us; None when it is not for us. One that cannot be read is set aside."""
        try:
            return self._listed.relayed(read_json(path))
        except FileNotFoundError:
            return None
        except (BadFile, BadInput) as error:
            aside = self._kit.folder / f"unreadable-{path.name}"
            with suppress(Collision):
                self._disk.move(path, aside)
            self._kit.tell(f"{error}; it is kept as {aside}")
            return None

    def _has_taken(self, name: str) -> bool:
        """Return whether the bridge has taken a request and may still answer: given again, it would be done twice.

        One that has not reported since it was given the request may have forgotten it.
        """
        try:
            asked_at = os.stat(self._asked / name).st_mtime
        except FileNotFoundError:
            return False
        is_forgotten = asked_at < self._silent_at or time.time() - asked_at > LATEST_ANSWER_SECONDS
        return not is_forgotten and not is_there(self._outbox / f"{name}.json")

    def _ask(self, name: str, action: str, room: str, **fields: Any) -> None:
        """Put a request into the outbox, unless it lies there already."""
        empty = {"text": None, "thread_ts": None, "emoji": None, "message_ts": None}
        request = {"msg_id": name, "action": action, "channel": room, **empty, **fields}
        with suppress(Collision):
            self._disk.create(self._outbox / f"{name}.json", to_json(request))

    def _wait_for(self, name: str) -> dict[str, Any]:
        until = time.monotonic() + float(self._kit.config["call_seconds"])
        while time.monotonic() < until:
            if (result := self._result(name)) is not None:
                return result
            time.sleep(LOOK_SECONDS)
        raise ChannelDown(channel="slack", why="its bridge has not answered")

    def _result(self, name: str) -> dict[str, Any] | None:
        path = self._results / f"{name}.json"
        try:
            result = read_json(path)
        except (FileNotFoundError, BadFile):
            return None
        self._read.append((time.monotonic(), path))
        return result

    def _remove_results(self) -> None:
        while self._read and time.monotonic() - self._read[0][0] > KEPT_SECONDS:
            self._disk.remove(self._read.popleft()[1])

    def _check_health(self) -> None:
        try:
            silent = time.time() - os.stat(self._health).st_mtime
        except FileNotFoundError:
            self._silent_at = time.time()
            raise ChannelDown(channel="slack", why=f"no bridge runs in {self._health.parent}") from None
        if silent > STALE_SECONDS:
            self._silent_at = time.time()
            raise ChannelDown(channel="slack", why="its bridge has not reported for 30 s")


def _name(draft: PostDraft, action: str) -> str:
    return as_filename(f"{draft.id}-{action}")
