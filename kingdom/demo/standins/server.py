"""A service on loopback: one function answers its requests, and every request is kept."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    #: Without the query.
    path: str
    query: Mapping[str, list[str]]
    #: By names in lower case.
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return what the body says; an empty object for an empty one, ValueError for what is no JSON."""
        return json.loads(self.body or b"{}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service says, whole or (with `parts`) piece by piece. Closing early shows a client a cut line."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Sent one after the other instead of the body; the connection is closed after the last.
    parts: Iterable[bytes] | None = None
    #: Close the connection without a word.
    cut: bool = False
    #: After the head the connection is given to this function, until it returns.
    takes_over: Callable[[socket.socket], None] | None = None


def answer_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer of JSON."""
    return Answer(status, json.dumps(value).encode(), {"content-type": "application/json", **(headers or {})})


class StandIn:
    """A service that runs in threads of this process between `with` and its end. Give `answer` a body in a subclass."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[HttpRequest] = []
        self.closing = threading.Event()
        """For answers that wait: they end when this is set."""
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", port), _handler(self._serve))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, request: HttpRequest) -> Answer:
        """Return what this service answers. Called in a thread of each connection."""
        raise NotImplementedError

    def start(self) -> Self:
        self._server.start()
        return self

    def die(self, seconds: float | None = None) -> None:
        """Break every connection in the middle of what it says and listen no more, as a killed process does.

        With seconds, wait so long and rise again.
        """
        self._server.end()
        self._server.cut()
        if seconds is not None and not self.closing.wait(seconds):
            self.rise()

    def rise(self) -> None:
        """Listen again at the same address, with all that is remembered, as a process that was started again."""
        self._server = _Server(("127.0.0.1", self.port), _handler(self._serve))
        self._server.start()

    def close(self) -> None:
        """Answer nobody any more, and give the port back."""
        self.closing.set()
        self._server.end()

    def wait_for(self, wanted: Callable[[list[HttpRequest]], bool], seconds: float = 20.0) -> bool:
        """Wait until the requests so far are as wanted. Return whether they became so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: wanted(self.requests), seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, request: HttpRequest) -> Answer:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return self.answer(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Accept nobody any more. Connections go on."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def cut(self) -> None:
        """End every connection at once."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients that go away in the middle are part of what is played here."""


def _handler(serve: Callable[[HttpRequest], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            address = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = parse_qs(address.query, keep_blank_values=True)
            answer = serve(HttpRequest(self.command, address.path, query, headers, self._body(headers)))
            if answer.cut:
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in {"date": self.date_time_string(), **answer.headers}.items():
                self.send_header(name, value)
            if answer.takes_over is not None:
                self.close_connection = True
                self.end_headers()
                answer.takes_over(self.connection)
                return
            if answer.parts is None:
                if answer.status != 304:
                    self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                return
            self.send_header("connection", "close")
            self.close_connection = True
            self.end_headers()
            for part in answer.parts:
                self.wfile.write(part)
                self.wfile.flush()

        def _body(self, headers: Mapping[str, str]) -> bytes:
            if headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(int(headers.get("content-length") or 0))
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: requests are kept."""

    return Handler
