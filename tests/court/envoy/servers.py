"""A webhook and a mail server on loopback, with their parts of envoy.yaml."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from typing import Any

from kingdom.demo.standins.faults import Fault
from kingdom.demo.standins.server import Answer, HttpRequest, StandIn


class Hook(StandIn):
    """Accept posts, after the given failures."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Answer | Fault] = []
        self.bodies: list[Any] = []

    def answer(self, request: HttpRequest) -> Answer:
        failure = self.failures.pop(0) if self.failures else None
        answer = failure(request) if callable(failure) else failure
        if answer is not None:
            return answer
        self.bodies.append(request.json())
        return Answer(200, b"ok")


class MailServer(socketserver.ThreadingTCPServer):
    """Accept mail on loopback, after the given refusals."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        #: What it says to mails, one each, or does; after half of a line it hangs up.
        self.refusals: list[bytes | Callable[[], object]] = []
        self.closing = threading.Event()
        self.letters: list[Message] = []
        #: What it says to goodbyes, one each; nothing: it hangs up.
        self.goodbyes: list[bytes] = []
        self.unknown: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Talk)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def die(self, seconds: float) -> None:
        """Be gone for so long, as a process that was killed and started again; connections end with their next word."""
        self.shutdown()
        self.server_close()
        if not self.closing.wait(seconds):
            self.socket = socket.socket(self.address_family, self.socket_type)
            self.server_bind()
            self.server_activate()
            self.start()


class _Talk(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"MAIL" and self.server.refusals:
                refusal = self.server.refusals.pop(0)
                said = refusal if isinstance(refusal, bytes) else b""
                self.wfile.write(said)
                if not isinstance(refusal, bytes):
                    refusal()
                if not said.endswith(b"\n"):
                    return
            elif word == b"RCPT" and any(name.encode() in line for name in self.server.unknown):
                self.wfile.write(b"550 no such mailbox\r\n")
            elif word == b"QUIT" and self.server.goodbyes:
                self.wfile.write(self.server.goodbyes.pop(0))
                return
            elif word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                data = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.letters.append(message_from_bytes(data))
                self.wfile.write(b"250 taken\r\n")
            else:
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 fine\r\n")


@contextmanager
def mail_server() -> Iterator[MailServer]:
    with MailServer() as server:
        server.start()
        yield server
        server.closing.set()
        server.shutdown()


def by_hook(hook: Hook) -> dict[str, str]:
    return {"WEBHOOK_URL": f"{hook.address}/hooks/canary-77", "OPS": f"{hook.address}/hooks/canary-ops"}


def by_mail(mail: MailServer) -> dict[str, Any]:
    part = {"host": "127.0.0.1", "port": mail.server_address[1], "security": "none", "from": "Kingdom <k@home.example>"}
    return {**part, "to": "me@home.example", "rooms": {"ops": "ops@home.example"}}
