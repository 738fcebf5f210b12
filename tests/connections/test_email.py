"""Signing in to a mail server: encrypted where that is asked for, and closed whatever happens."""

from __future__ import annotations

import smtplib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kingdom.connections.base import ServiceRefused
from kingdom.connections.email import signed_in
from tests.waiting import SOON


class Plain:
    """A mail server that knows no encryption."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        self.hung_up = threading.Event()
        self._talking = threading.Thread(target=self._talk, daemon=True)
        self._talking.start()

    def _talk(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rwb", buffering=0) as lines:
            lines.write(b"220 here\r\n")
            while line := lines.readline():
                self.heard.append(line.split()[0].upper())
                lines.write(b"250 fine\r\n")
        self.hung_up.set()

    def part(self, security: str) -> Mapping[str, Any]:
        own = {"host": "127.0.0.1", "port": self.port, "security": security}
        return {**own, "user_env": "SMTP_USER", "password_env": "SMTP_PASSWORD"}

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[Plain]:
    yield (server := Plain())
    server.close()


def test_a_server_on_this_machine_needs_no_encryption(server: Plain) -> None:
    with signed_in(server.part("none"), {}, SOON) as connection:
        assert connection.noop()[0] == 250
    assert server.hung_up.wait(SOON)
    assert server.heard == [b"NOOP", b"QUIT"]


def test_where_it_is_to_be_encrypted_nothing_is_said_to_one_that_cannot(server: Plain) -> None:
    with pytest.raises(smtplib.SMTPNotSupportedError), signed_in(server.part("starttls"), {}, SOON):
        raise AssertionError("it is signed in over an open line")
    assert server.hung_up.wait(SOON)
    assert server.heard == [b"EHLO"]


def test_a_password_never_goes_to_another_machine_over_an_open_line() -> None:
    elsewhere = {"host": "mail.example", "port": 25, "security": "none"}
    with pytest.raises(ServiceRefused, match="for a server on this machine"), signed_in(elsewhere, {}, SOON):
        raise AssertionError("it is signed in over an open line")


def test_the_connection_is_closed_when_what_is_done_with_it_fails(server: Plain) -> None:
    with pytest.raises(OSError, match="full") as kept, signed_in(server.part("none"), {}, SOON):
        raise OSError("the disk is full")
    assert server.hung_up.wait(SOON), kept
