"""A webhook: one POST for each message. Mattermost, Discord, Teams and many others take them, and none of them answers
back: this channel only speaks."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from kingdom.base import loopback
from kingdom.base.words import one_line, printable
from kingdom.court.envoy.channels.base import (
    Channel,
    ChannelDown,
    ChannelKit,
    ChannelRefused,
    Post,
    PostDraft,
    RoomBusy,
)
from kingdom.court.envoy.channels.journal import PostJournal

CALL_SECONDS = 10
LARGEST_ANSWER = 64 << 10
_CALLS = re.compile(r"@(?=channel|all|here|everyone)|<(?=[!@])", re.IGNORECASE)


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _content(text: str) -> dict[str, Any]:
    return {"content": text, "allowed_mentions": {"parse": []}}


def _card(text: str) -> dict[str, Any]:
    body = [{"type": "TextBlock", "text": text, "wrap": True}]
    content = {"type": "AdaptiveCard", "version": "1.4", "body": body}
    return {
        "type": "message",
        "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": content}],
    }


FORMATS: Mapping[str, Callable[[str], dict[str, Any]]] = {"text": _text, "content": _content, "card": _card}
"""What is posted: `text` is Mattermost's and most others', `content` Discord's, `card` the one of Teams."""
LONGEST = {"text": 3_900, "content": 1_900, "card": 3_900}


class WebhookChannel(Channel):
    waits = True

    def __init__(self, kit: ChannelKit) -> None:
        self._kit = kit
        self._journal = PostJournal(kit)
        self._format = FORMATS[kit.config["format"]]
        self.longest = LONGEST[kit.config["format"]]
        self.seconds_between_posts = float(kit.config["seconds_between_posts"])

    def post(self, draft: PostDraft) -> Post:
        address = self._address(draft.room)
        text = _CALLS.sub(lambda sign: f"{sign[0]}\N{ZERO WIDTH SPACE}", printable(draft.text))
        body = json.dumps(self._format(text if text.strip() else "(nothing)")).encode()
        self._send(address, body, draft.id)
        return self._journal.add(draft)

    def find(self, draft: PostDraft) -> Post | None:
        """Return the post that was noted here: nobody can ask a webhook what was posted."""
        return self._journal.find(draft)

    def _address(self, room: str) -> str:
        config, secrets = self._kit.config, self._kit.secrets
        name = config["rooms"].get(room, config["url_env"])
        address = secrets.get(name, "")
        if not address.startswith(("https://", "http://")):
            raise ChannelDown(channel="the webhook", why=f"{name} in .env is no address; `kingdom connect webhook`")
        if not loopback.keeps_secrets(address):
            raise ChannelDown(channel="the webhook", why=f"{name} must begin with https: else it could be read")
        return address

    def _send(self, address: str, body: bytes, id: str) -> None:
        parts = urlsplit(address)
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        host, headers = str(parts.hostname), {"Content-Type": "application/json", "Idempotency-Key": id}
        connection: HTTPConnection
        if parts.scheme == "https":
            connection = HTTPSConnection(host, parts.port, timeout=CALL_SECONDS, context=ssl.create_default_context())
        else:
            connection = HTTPConnection(host, parts.port, timeout=CALL_SECONDS)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            said = answer.read(LARGEST_ANSWER)
        except (OSError, HTTPException) as error:
            raise ChannelDown(channel="the webhook", why=f"{type(error).__name__}: {error}"[:200]) from None
        finally:
            connection.close()
        _judge(answer, said)


def _judge(answer: HTTPResponse, said: bytes) -> None:
    """Raise what an answer means that is no success."""
    if 200 <= answer.status < 300:
        return
    why = f"HTTP {answer.status} {one_line(said.decode('utf-8', 'replace'), 100)}".strip()
    if answer.status == 429:
        after = answer.headers.get("Retry-After", "1")
        raise RoomBusy(channel="the webhook", why=why, after=float(after) if re.fullmatch(r"[\d.]+", after) else 1.0)
    if answer.status >= 500 or answer.status == 408:
        raise ChannelDown(channel="the webhook", why=why)
    raise ChannelRefused(channel="the webhook", why=why)
