"""Slack's Socket Mode: the connection on which people's messages arrive, kept by a thread of ours.

Slack's client reads and pings. When to connect again is decided here: it would try every second for ever, sleep for as
long as a rate limit says, and by the wall clock it would not see a dead line after the clock was set back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from logging import Logger
from queue import Empty, SimpleQueue
from typing import Any

from slack_sdk import WebClient
from slack_sdk.errors import SlackClientError
from slack_sdk.socket_mode.builtin import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from kingdom.court.envoy.channels.base import Stuck

PING_SECONDS = 1.0
SILENT_SECONDS = 5.0
"""A line without an answer to a ping for so long is dead."""
LONGEST_PAUSE = 30.0
STUCK_SECONDS = 90.0
MOST_HEARD = 1000
"""So much waits to be read; Slack delivers again what is not acknowledged."""


class SocketLine(threading.Thread):
    def __init__(
        self,
        web: WebClient,
        app_token: str,
        logger: Logger,
        before: Callable[[], None],
        ring: Callable[[], None],
    ) -> None:
        """`before` is called ahead of the first connection, and repeated until it raises nothing."""
        super().__init__(name="slack-line", daemon=True)
        self._web, self._app_token, self._logger = web, app_token, logger
        self._before, self._ring = before, ring
        self._heard: deque[SocketModeRequest] = deque()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._client: SocketModeClient | None = None
        self._moved = time.monotonic()
        self._pong: tuple[object, float] = (None, 0.0)
        self._next_try, self._pause = 0.0, 0.0
        self._is_ready = False
        self._ended = threading.Event()
        self.down_since: float | None = self._moved
        """Since when there is no line, by the monotonic clock."""
        self.why_down = "it is being connected"
        self.start()

    def heard(self) -> list[SocketModeRequest]:
        """Return what has been delivered since the last call. Stuck when this thread does not move."""
        if not self.is_alive() or time.monotonic() - self._moved > STUCK_SECONDS:
            raise Stuck(f"Slack's connection has not moved for {STUCK_SECONDS:g} s")
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._heard.popleft())
        return found

    def acknowledge(self, request: SocketModeRequest) -> None:
        """Tell Slack that this need not be delivered again. If the line is cut just now, it will be."""
        self.do(lambda: self._send(request.envelope_id))

    def do(self, call: Callable[[], None]) -> None:
        """Have something done by this thread when it is free; a failure is ignored."""
        self._calls.put(call)

    def close(self) -> None:
        """Send what is left and disconnect, in the background."""
        self._calls.put(None)

    def run(self) -> None:
        while True:
            self._moved = now = time.monotonic()
            if self._next_try <= now and not self._is_up(now):
                self._connect(now)
            try:
                call = self._calls.get(timeout=0.5)
            except Empty:
                continue
            if call is None:
                break
            with suppress(SlackClientError, OSError, HTTPException):
                call()
        if self._client is not None:
            with suppress(AttributeError):
                self._client.close()

    def _is_up(self, now: float) -> bool:
        """Return whether the line is up; cut it when it has been silent for too long."""
        session = self._client.current_session if self._client else None
        if session is None or not session.is_active():
            return False
        if session.last_ping_pong_time != self._pong[0]:
            self._pong = (session.last_ping_pong_time, now)
            self._pause = 0.0
        if now - self._pong[1] > SILENT_SECONDS:
            with suppress(AttributeError):  # its own threads may have let go of the socket just now
                session.disconnect()
            return False
        return True

    def _connect(self, now: float) -> None:
        if self.down_since is None:
            self.down_since, self.why_down = now, "the connection was lost"
        try:
            if not self._is_ready:
                self._before()
                self._is_ready = True
            url = self._web.apps_connections_open(app_token=self._app_token)["url"]
            if self._client is None:
                self._client = self._new_client()
            with self._client.connect_operation_lock:
                if not self._client.is_connected():
                    self._client.wss_uri = url
                    self._client.connect()
            is_up = self._client.is_connected()
        except (SlackClientError, OSError, HTTPException, ValueError) as error:
            is_up, self.why_down = False, why(error)
        self._pong = (None, time.monotonic())
        if is_up:
            self.down_since = None
        self._pause = min(LONGEST_PAUSE, max(0.5, 2 * self._pause))
        self._next_try = now + self._pause

    def _new_client(self) -> SocketModeClient:
        client = SocketModeClient(
            app_token=self._app_token,
            web_client=self._web,
            logger=self._logger,
            ping_interval=PING_SECONDS,
            auto_reconnect_enabled=False,
            concurrency=1,  # more would change the order
            receive_buffer_size=16 << 10,
        )
        client.socket_mode_request_listeners.append(self._hear)
        return client

    def _hear(self, _client: Any, request: SocketModeRequest) -> None:
        if len(self._heard) < MOST_HEARD:
            self._heard.append(request)
            self._ring()

    def _send(self, envelope_id: str) -> None:
        if self._client is not None and self._client.is_connected():
            self._client.send_socket_mode_response(SocketModeResponse(envelope_id=envelope_id))


def why(error: Exception) -> str:
    """Return what is wrong in a few words: Slack's own error where there is one."""
    response = getattr(error, "response", None)
    if response is not None and getattr(response, "data", None):
        data = response.data
        return str(data.get("error") if isinstance(data, dict) else f"HTTP {response.status_code}")[:200]
    return f"{type(error).__name__}: {error}"[:200]
