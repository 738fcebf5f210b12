"""Checks that every request passes first: its Host, its Origin, and its address's rate."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kingdom.base import loopback
from kingdom.hall.gateway.limits import Rate
from kingdom.hall.gateway.proxies import Proxies
from kingdom.hall.gateway.refusals import HttpRefusal, answer

METHODS = "GET, POST, OPTIONS"
REMEMBERED_SECONDS = "600"


class Admission:
    """Wraps the whole application. `app` is set by who makes both."""

    def __init__(self, app: ASGIApp, rate: Rate, proxies: Proxies) -> None:
        self._app = app
        self._rate = rate
        self._proxies = proxies
        self._hosts: frozenset[str] = frozenset(loopback.HOSTS)
        self._origins: frozenset[str] = frozenset()

    def configure(self, hosts: Iterable[str], origins: Iterable[str], public_url: str) -> None:
        """Take over which Hosts and Origins pass besides our own, and under which address people come."""
        public = [public_url.lower()] if public_url else []
        named = (*hosts, *(urlsplit(url).netloc for url in public))
        self._hosts = frozenset({*loopback.HOSTS, *(_host_name(host) for host in named)})
        self._origins = frozenset({*origins, *public})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        scope = self._proxies.seen_behind(scope, headers)
        if scope["type"] == "http":
            send = _as_declared(send)
        try:
            self._check(scope, headers, origin)
        except HttpRefusal as refusal:
            await answer(refusal)(scope, receive, send)
            return
        if origin is None or scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _answer_preflight(origin, send)
        else:
            await self._app(scope, receive, _allowing(origin, send))

    def _check(self, scope: Scope, headers: Headers, origin: str | None) -> None:
        if len(hosts := headers.getlist("host")) != 1 or _host_name(hosts[0]) not in self._hosts:
            raise HttpRefusal(403, "This Host is not served here; name it under hosts, or in public_url, in hall.yaml")
        if origin is not None and not self._admits(origin, hosts[0], scope["scheme"]):
            raise HttpRefusal(403, "This Origin is not allowed; name it under origins in hall.yaml")
        if wait := self._rate.wait_seconds(scope["client"][0] if scope.get("client") else ""):
            raise HttpRefusal(429, "Too many requests", retry_after=wait)

    def _admits(self, origin: str, host: str, scheme: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        # Only a trusted proxy says that a request came by TLS; without one, a page of either kind may be meant.
        ours = ("https",) if scheme in ("https", "wss") else ("http", "https")
        try:
            given = urlsplit(origin)
            return given.scheme in ours and given.netloc.lower() == host.lower()
        except ValueError:
            return False


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port and brackets; "" when it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _as_declared(send: Send) -> Send:
    """Return a `send` that has browsers take an answer for what its type says, and for nothing else."""

    async def send_as_declared(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
        await send(message)

    return send_as_declared


def _allowing(origin: str, send: Send) -> Send:
    """Return a `send` that lets the page of an allowed Origin read the answer."""

    async def send_allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = "History-Cut, Retry-After"
            headers.append("Vary", "Origin")
        await send(message)

    return send_allowing


async def _answer_preflight(origin: str, send: Send) -> None:
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", METHODS.encode()),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-max-age", REMEMBERED_SECONDS.encode()),
        (b"vary", b"Origin"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
