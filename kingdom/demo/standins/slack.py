"""Slack on loopback: the Web API that the envoy calls, and Socket Mode.

It keeps channels, posts and reactions, gives a post to no one who shows no token, delivers again what was not
acknowledged when a line comes back, and can be told to fail in every way that was seen.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import parse_qs

from kingdom.demo.standins.server import Answer, HttpRequest, StandIn, answer_json

TEAM, BOT_USER, BOT, APP = "T0HOME", "U0BOT", "B0BOT", "A0APP"
WEBSOCKET_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SCOPES = (
    "app_mentions:read,channels:history,channels:read,chat:write,groups:history,groups:read,im:history,reactions:write"
)
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
API, LINK = "/api/", "/link"

Json = dict[str, Any]


@dataclass
class Fault:
    """How a method fails the next times."""

    #: The HTTP status; with another than 200 the call is not carried out.
    status: int = 200
    #: Slack's own error; with one the call is not carried out.
    error: str = ""
    #: Of 429: when to come back.
    retry_after: float = 1.0
    #: Seconds before anything happens.
    delay: float = 0.0
    #: It is done, and only the first half of the answer arrives.
    half: bool = False
    #: It is done, and the answer is a page of HTML.
    garbage: bool = False
    #: It is done, and the connection is cut before the answer.
    cut: bool = False
    #: It is done, and nothing is ever answered.
    hangs: bool = False
    #: It is done, half of the answer arrives, and Slack is gone for so many seconds.
    dies: float = 0.0
    times: int = 1


@dataclass
class _SocketLine:
    connection: socket.socket
    sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, opcode: int, payload: bytes, of: int = 0) -> None:
        """Send a frame; with `of` the beginning of one that is so long."""
        length = of or len(payload)
        head = bytes([0x80 | opcode])
        if length < 126:
            head += bytes([length])
        else:
            head += struct.pack("!BH", 126, length) if length < 1 << 16 else struct.pack("!BQ", 127, length)
        with self.sending, suppress(OSError):
            self.connection.sendall(head + payload)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the client sends, until it or the line ends."""
        with suppress(OSError, EOFError):
            while True:
                first, second = self._read(2)
                length = second & 0x7F
                if length == 126:
                    (length,) = struct.unpack("!H", self._read(2))
                elif length == 127:
                    (length,) = struct.unpack("!Q", self._read(8))
                mask = self._read(4) if second & 0x80 else bytes(4)
                masked = self._read(length)
                yield first & 0x0F, bytes(byte ^ mask[n % 4] for n, byte in enumerate(masked))

    def cut(self) -> None:
        """Break the connection without a farewell."""
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


class Slack(StandIn):
    def __init__(self, port: int = 0, *, seconds_between_posts: float = 0.0) -> None:
        """Posts in one channel that come faster than `seconds_between_posts` are answered with 429."""
        super().__init__(port)
        self.channels = {"C0GENERAL": "general", "C0KINGDOM": "kingdom"}
        self.people = {"U0ANN": "ann", "U0BEN": "ben"}
        self.posts: list[Json] = []
        """All that was posted or said, oldest first, each with its channel and the time it came."""
        self.calls: list[tuple[str, Json]] = []
        self.most_per_page = 1000
        """Of a list, however much is asked for."""
        self.scopes = SCOPES
        """What the bot's token may do."""
        self.deaf = False
        """Lines stay open, and nobody reads them or answers."""
        self.acknowledged: dict[str, float] = {}
        self._pace = seconds_between_posts
        self._faults: dict[str, list[Fault]] = {}
        self._lines: list[_SocketLine] = []
        self._undelivered: dict[str, Json] = {}
        self._numbers = count(1)
        self._latest = 0.0
        self._state = threading.RLock()
        self._news = threading.Condition(self._state)

    @property
    def api_url(self) -> str:
        return f"{self.address}{API}"

    @property
    def lines(self) -> int:
        """How many clients are listening."""
        return len(self._lines)

    def fail(self, method: str, **how: Any) -> None:
        """Let a method fail as a Fault says; `*` is every method, `socket` the line on which people are heard."""
        with self._state:
            self._faults.setdefault(method, []).append(Fault(**how))

    def mend(self) -> None:
        """Let nothing fail any more."""
        with self._state:
            self._faults.clear()

    def left_to_fail(self) -> int:
        """Return how many faults nobody has met yet."""
        with self._state:
            return sum(fault.times for faults in self._faults.values() for fault in faults)

    def from_kingdom(self, channel: str | None = None) -> list[Json]:
        """Return what the kingdom has posted."""
        with self._state:
            ours = [post for post in self.posts if post["user"] == BOT_USER]
            return [post for post in ours if channel in (None, post["channel"])]

    def say(self, text: str, *, channel: str = "C0GENERAL", user: str = "U0ANN", **fields: Any) -> str:
        """Let a person write; `thread_ts` replies. Return the post's ts. Who is mentioned is told a second time."""
        with self._state:
            event = {"type": "message", "channel": channel, "user": user, "text": text, "ts": self._ts(), **fields}
            event.setdefault("channel_type", "im" if channel.startswith("D") else "channel")
            event.setdefault("event_ts", event["ts"])
            self.posts.append({**event, "at": time.monotonic()})
        self.deliver_event(event)
        if f"<@{BOT_USER}>" in text and event["channel_type"] != "im":
            mention = {key: part for key, part in event.items() if key != "channel_type"}
            self.deliver_event({**mention, "type": "app_mention"})
        return str(event["ts"])

    def press(self, ts: str, answer: str, *, user: str = "U0ANN", team: str = TEAM) -> str:
        """Let a person press the button of a post that says `answer`. Return the envelope's id."""
        with self._state:
            post = next(post for post in self.posts if post["ts"] == ts)
            buttons = [part for block in post.get("blocks", ()) for part in block.get("elements", ())]
            button = next(part for part in buttons if part.get("value") == answer)
            payload = {
                "type": "block_actions",
                "team": {"id": team, "domain": "home"},
                "user": {"id": user, "team_id": team, "username": self.people.get(user, user)},
                "api_app_id": APP,
                "container": {"type": "message", "message_ts": ts, "channel_id": post["channel"]},
                "channel": {"id": post["channel"], "name": self.channels.get(post["channel"], "directmessage")},
                "message": {key: part for key, part in post.items() if key not in ("at", "channel")},
                "actions": [{**button, "block_id": "kingdom-answers", "action_ts": self._ts()}],
            }
        return self.deliver("interactive", payload)

    def deliver_event(self, event: Json, *, team: str = TEAM) -> str:
        """Deliver an event as Slack wraps it. Return the envelope's id."""
        payload = {
            "type": "event_callback",
            "team_id": team,
            "api_app_id": APP,
            "event": event,
            "event_id": f"Ev{next(self._numbers):08d}",
            "event_time": int(time.time()),
            "authorizations": [{"team_id": team, "user_id": BOT_USER, "is_bot": True}],
        }
        return self.deliver("events_api", payload)

    def deliver(self, kind: str, payload: Json, *, retry: int = 0) -> str:
        """Send an envelope to one client, now or when there is one. Return its id."""
        with self._state:
            envelope_id = f"{next(self._numbers):08d}-0000-4000-8000-000000000000"
            envelope = {"envelope_id": envelope_id, "type": kind, "payload": payload, "accepts_response_payload": False}
            envelope |= {"retry_attempt": retry, "retry_reason": "timeout" if retry else ""}
            self._undelivered[envelope_id] = envelope
            if self._lines:
                self._lines[-1].send(TEXT, json.dumps(envelope).encode())
            return envelope_id

    def deliver_again(self) -> int:
        """Deliver what was not acknowledged once more, under new envelopes, the newest first. Return how much."""
        with self._state:
            waiting, self._undelivered = list(self._undelivered.values()), {}
            for envelope in reversed(waiting):
                self.deliver(envelope["type"], envelope["payload"], retry=envelope["retry_attempt"] + 1)
            return len(waiting)

    def unacknowledged(self) -> list[str]:
        """Return the envelopes that nobody has acknowledged."""
        with self._state:
            return list(self._undelivered)

    def disconnect(self) -> None:
        """Renew the lines as Slack does every few hours: a word before, then the end."""
        with self._state:
            for line in self._lines:
                line.send(TEXT, json.dumps({"type": "disconnect", "reason": "refresh_requested"}).encode())
                line.send(CLOSE, struct.pack("!H", 1000))

    def cut(self) -> None:
        """Break all lines without a word."""
        with self._state:
            for line in self._lines:
                line.cut()

    def wait_until(self, wanted: Callable[[Slack], Any], seconds: float = 20.0) -> Any:
        """Wait until this is as wanted. Return what `wanted` returned last."""
        with self._news:
            return self._news.wait_for(lambda: wanted(self), seconds)

    def close(self) -> None:
        self.cut()
        super().close()

    def answer(self, request: HttpRequest) -> Answer:
        if request.path == LINK:
            return self._line(request)
        if not request.path.startswith(API):
            return answer_json({"ok": False, "error": "not_found"}, 404)
        method = request.path.removeprefix(API)
        fault = self._fault(method, "*")
        if fault is not None and fault.delay:
            self.closing.wait(fault.delay)
        if fault is not None and (fault.status != 200 or fault.error):
            with self._news:
                self.calls.append((method, {"failed": True}))
                self._news.notify_all()
            head = {"retry-after": f"{fault.retry_after:g}"} if fault.status == 429 else {}
            said = "ratelimited" if fault.status == 429 else fault.error
            return answer_json({"ok": False, "error": said}, fault.status, head) if said else Answer(fault.status)
        answer = self._perform(method, request)
        return answer if fault is None else self._spoilt(answer, fault)

    def _spoilt(self, answer: Answer, fault: Fault) -> Answer:
        """Return what arrives of an answer."""
        if fault.hangs:
            self.closing.wait()
        if fault.cut or fault.hangs:
            return Answer(cut=True)
        if fault.garbage:
            return Answer(200, b"<html><body>Bad gateway</body></html>", {"content-type": "text/html"})
        if fault.half or fault.dies:
            length = {"content-length": str(len(answer.body))}
            return Answer(200, headers={**answer.headers, **length}, parts=self._half(answer.body, fault))
        return answer

    def _half(self, whole: bytes, fault: Fault) -> Iterator[bytes]:
        yield whole[: len(whole) // 2]
        if fault.dies:
            self.die(fault.dies)

    def _line(self, request: HttpRequest) -> Answer:
        """Let a client listen."""
        key = request.headers.get("sec-websocket-key", "").encode()
        accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET_MAGIC).digest()).decode()
        head = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept}
        fault = self._fault("socket")
        if fault is None:
            return Answer(101, headers=head, takes_over=self._listen)
        if fault.status != 200 or fault.error:
            return Answer(fault.status if fault.status != 200 else 403, fault.error.encode())
        if fault.half or fault.dies:
            return Answer(101, headers=head, takes_over=lambda connection: self._break_off(connection, fault))
        return self._spoilt(Answer(cut=True), fault)

    def _break_off(self, connection: socket.socket, fault: Fault) -> None:
        """Say hello by half."""
        _SocketLine(connection).send(TEXT, b'{"type": "hello", "num_conn', of=100)
        if fault.dies:
            self.die(fault.dies)

    def _fault(self, *names: str) -> Fault | None:
        with self._state:
            for name in names:
                for fault in self._faults.get(name, ()):
                    if fault.times > 0:
                        fault.times -= 1
                        return fault
        return None

    def _perform(self, method: str, request: HttpRequest) -> Answer:
        given, token = _arguments(request)
        with self._news:
            self.calls.append((method, given))
            wrong = _refuse_token(method, token)
            act = getattr(self, f"_{method.replace('.', '_')}", None)
            if wrong or act is None:
                self._news.notify_all()
                return answer_json({"ok": False, "error": wrong or "unknown_method"})
            said = act(given)
            self._news.notify_all()
        if said.pop("too_fast", False):
            return answer_json({"ok": False, "error": "ratelimited"}, 429, {"retry-after": "1"})
        return answer_json({"ok": "error" not in said, **said}, headers={"x-oauth-scopes": self.scopes})

    def _auth_test(self, _: Json) -> Json:
        names = {"team": "home", "user": "kingdom", "url": f"{self.address}/"}
        return {**names, "team_id": TEAM, "user_id": BOT_USER, "bot_id": BOT}

    def _apps_connections_open(self, _: Json) -> Json:
        return {"url": f"ws://127.0.0.1:{self.port}{LINK}?ticket={next(self._numbers)}&app_id={APP}"}

    def _chat_postMessage(self, given: Json) -> Json:  # noqa: N802
        room = self._room(given.get("channel"))
        if room is None:
            return {"error": "channel_not_found"}
        if not str(given.get("text") or "").strip() and not given.get("blocks"):
            return {"error": "no_text"}
        now = time.monotonic()
        earlier = [post["at"] for post in self.from_kingdom(room)]
        if earlier and now - max(earlier) < self._pace:
            return {"too_fast": True}
        post = {"type": "message", "user": BOT_USER, "bot_id": BOT, "app_id": APP, "team": TEAM, "ts": self._ts()}
        kept = {key: given[key] for key in ("text", "thread_ts", "blocks", "metadata") if given.get(key)}
        self.posts.append({**post, **kept, "channel": room, "at": now})
        return {"channel": room, "ts": post["ts"], "message": {**post, **kept}}

    def _chat_update(self, given: Json) -> Json:
        post = self._post(given.get("channel"), given.get("ts"))
        if post is None:
            return {"error": "message_not_found"}
        post |= {key: given[key] for key in ("text", "blocks") if key in given}
        return {"channel": post["channel"], "ts": post["ts"], "text": post.get("text", ""), "message": _shown(post)}

    def _reactions_add(self, given: Json) -> Json:
        post = self._post(given.get("channel"), given.get("timestamp"))
        if post is None:
            return {"error": "message_not_found"}
        reactions = post.setdefault("reactions", [])
        if given["name"] in reactions:
            return {"error": "already_reacted"}
        reactions.append(given["name"])
        return {}

    def _reactions_remove(self, given: Json) -> Json:
        post = self._post(given.get("channel"), given.get("timestamp"))
        if post is None or given["name"] not in post.get("reactions", ()):
            return {"error": "no_reaction"}
        post["reactions"].remove(given["name"])
        return {}

    def _conversations_list(self, given: Json) -> Json:
        about = {"is_channel": True, "is_member": True, "is_archived": False}
        rooms = [{"id": id, "name": name, **about} for id, name in self.channels.items()]
        return self._page(rooms, given, "channels")

    def _conversations_history(self, given: Json) -> Json:
        return self._search(given, lambda post: post.get("thread_ts", post["ts"]) == post["ts"], newest_first=True)

    def _conversations_replies(self, given: Json) -> Json:
        return self._search(given, lambda post: given.get("ts") in (post["ts"], post.get("thread_ts")))

    def _search(self, given: Json, fits: Callable[[Json], bool], *, newest_first: bool = False) -> Json:
        room = self._room(given.get("channel"))
        if room is None:
            return {"error": "channel_not_found"}
        oldest = float(given.get("oldest") or 0)
        found = [post for post in self.posts if post["channel"] == room and fits(post) and float(post["ts"]) > oldest]
        shown = [_shown(post) for post in found]
        return self._page(shown[::-1] if newest_first else shown, given, "messages")

    def _page(self, items: list[Json], given: Json, key: str) -> Json:
        size, start = min(int(given.get("limit") or 100), self.most_per_page), int(given.get("cursor") or 0)
        following = str(start + size) if start + size < len(items) else ""
        more = {} if key == "channels" else {"has_more": bool(following)}
        return {key: items[start : start + size], **more, "response_metadata": {"next_cursor": following}}

    def _room(self, name: Any) -> str | None:
        """Return the id of a channel that is given by id or name, or of the direct messages with a person."""
        if name in self.channels or str(name).startswith("D"):
            return str(name)
        if name in self.people:
            return f"D{str(name)[1:]}"
        return next((id for id, known in self.channels.items() if known == str(name).removeprefix("#")), None)

    def _post(self, channel: Any, ts: Any) -> Json | None:
        return next((post for post in self.posts if post["ts"] == ts and post["channel"] == channel), None)

    def _ts(self) -> str:
        self._latest = max(time.time(), self._latest + 0.000_001)
        return f"{self._latest:.6f}"

    def _listen(self, connection: socket.socket) -> None:
        line = _SocketLine(connection)
        hello = {"type": "hello", "num_connections": 1, "connection_info": {"app_id": APP}}
        line.send(TEXT, json.dumps(hello).encode())
        with self._news:
            self._lines.append(line)
            self._news.notify_all()
            self.deliver_again()
        for opcode, payload in line.frames():
            while self.deaf and not self.closing.wait(0.05):
                """Nobody reads, nobody answers."""
            if opcode == PING:
                line.send(PONG, payload)
            elif opcode == CLOSE:
                break
            elif opcode == TEXT:
                self._acknowledge(payload)
        with self._news:
            self._lines.remove(line)
            self._news.notify_all()

    def _acknowledge(self, payload: bytes) -> None:
        with self._news, suppress(ValueError):
            envelope_id = json.loads(payload).get("envelope_id", "")
            if self._undelivered.pop(envelope_id, None) is not None:
                self.acknowledged[envelope_id] = time.monotonic()
            self._news.notify_all()


def _arguments(request: HttpRequest) -> tuple[Json, str]:
    """Return what a method was given, and the token that was shown."""
    kind = request.headers.get("content-type", "")
    given: Json = {key: values[-1] for key, values in request.query.items()}
    if kind.startswith("application/json"):
        given |= request.json()
    elif request.body:
        given |= {key: values[-1] for key, values in parse_qs(request.body.decode(), keep_blank_values=True).items()}
    for key in ("blocks", "metadata"):
        if isinstance(given.get(key), str):
            given[key] = json.loads(given[key])
    return given, request.headers.get("authorization", "").removeprefix("Bearer ") or str(given.pop("token", ""))


def _shown(post: Json) -> Json:
    """Return a post as its readers see it."""
    reactions = [{"name": name, "users": [BOT_USER], "count": 1} for name in post.get("reactions", ())]
    shown = {key: part for key, part in post.items() if key not in ("at", "channel")}
    return shown | ({"reactions": reactions} if reactions else {})


def _refuse_token(method: str, token: str) -> str:
    if not token:
        return "not_authed"
    if not token.startswith(("xoxb-", "xapp-")) or "revoked" in token:
        return "invalid_auth"
    if token.startswith("xapp-") != (method == "apps.connections.open"):
        return "not_allowed_token_type"
    return ""
