"""How every default time is waited for: our own in timers.txt beside this, and those of the libraries that we use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
WAYS = ("slow", "test", "paces", "answers", "slices", "keeps", "judges", "unused")


class Row(NamedTuple):
    """How one default time is waited for."""

    file: str
    name: str
    way: str
    #: The test that waits for it, or "".
    by: str
    about: str

    @property
    def key(self) -> tuple[str, str]:
        """What names it."""
        return self.file, self.name


def rows() -> list[Row]:
    """Return the rows of timers.txt."""
    found, file = [], ""
    for line in (HERE / "timers.txt").read_text().splitlines():
        if line.startswith("  "):
            name, way, about = (part.strip() for part in line.split(" | "))
            kind, _, by = way.partition(" ")
            found.append(Row(file, name, kind, by, about))
        elif not line.startswith("#"):
            file = line
    return found


def _parameter(load: Callable[[], Callable[..., Any]], name: str) -> Callable[[], object]:
    return lambda: inspect.signature(load()).parameters[name].default


class Library(NamedTuple):
    """A default time of a library: what it is today, and what becomes of it here."""

    name: str
    #: Reads it from the library that is installed.
    read: Callable[[], object]
    value: object
    about: str


def _uvicorn() -> Callable[..., Any]:
    import uvicorn

    return uvicorn.Config.__init__


def _slack(what: str) -> Callable[[], Callable[..., Any]]:
    def load() -> Callable[..., Any]:
        from slack_sdk import WebClient
        from slack_sdk.socket_mode.builtin import SocketModeClient
        from slack_sdk.socket_mode.builtin.connection import Connection

        init: Callable[..., Any] = {"web": WebClient, "client": SocketModeClient, "line": Connection}[what].__init__
        return init

    return load


def _zombies() -> object:
    from supervisor.medusa.http_server import http_channel

    return http_channel.zombie_timeout


def _smtp() -> Callable[..., Any]:
    import smtplib

    return smtplib.SMTP.__init__


def _sockets() -> object:
    import socket

    return socket.getdefaulttimeout()


LIBRARIES = [
    Library("uvicorn timeout_keep_alive", _parameter(_uvicorn, "timeout_keep_alive"), 5, "given: KEEP_ALIVE_SECONDS"),
    Library("uvicorn timeout_graceful_shutdown", _parameter(_uvicorn, "timeout_graceful_shutdown"), None, "not used"),
    Library("uvicorn timeout_notify", _parameter(_uvicorn, "timeout_notify"), 30, "not used: no uvicorn.Server runs"),
    Library("uvicorn ws_ping_interval", _parameter(_uvicorn, "ws_ping_interval"), 20.0, "not used: Engine.IO pings"),
    Library("uvicorn ws_ping_timeout", _parameter(_uvicorn, "ws_ping_timeout"), 20.0, "not used either"),
    Library("slack_sdk timeout", _parameter(_slack("web"), "timeout"), 30, "given: slack.call_seconds"),
    Library("slack_sdk ping_interval", _parameter(_slack("client"), "ping_interval"), 5, "given: PING_SECONDS"),
    Library("slack_sdk auto_reconnect", _parameter(_slack("client"), "auto_reconnect_enabled"), True, "switched off"),
    Library(
        "slack_sdk receive_timeout",
        _parameter(_slack("line"), "receive_timeout"),
        3,
        "a read of Slack's socket; it is read again. slow kingdom",
    ),
    Library("supervisor zombie_timeout", _zombies, 1800, "idle connections to supervisord, once there are many"),
    Library(
        "sockets of the standard library", _sockets, None, "none: each call gives its own, see tests/test_timers.py"
    ),
]
