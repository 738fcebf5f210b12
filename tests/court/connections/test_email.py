"""Signing in to a mail server: encrypted where that is asked for, and closed whatever happens."""

from __future__ import annotations

import smtplib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.base.home.places import Places
from kingdom.court.connections.base import ServiceDown, ServiceRefused
from kingdom.court.connections.email import EmailService, signed_in
from tests.fixtures import founded
from tests.waiting import SOON


class Plain:
    """A mail server that knows no encryption."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        #: What it says to whoever comes, and to a password.
        self.greeting, self.to_password = b"220 here", b"235 welcome"
        self.hung_up = threading.Event()
        self._talking = threading.Thread(target=self._talk, daemon=True)
        self._talking.start()

    def _talk(self) -> None:
        with suppress(OSError):  # nobody came, or hung up in the middle
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rwb", buffering=0) as lines:
                lines.write(self.greeting + b"\r\n")
                answers = {b"EHLO": b"250-fine\r\n250 AUTH PLAIN", b"AUTH": self.to_password}
                while line := lines.readline():
                    self.heard.append(line.split()[0].upper())
                    lines.write(answers.get(self.heard[-1], b"250 fine") + b"\r\n")
        self.hung_up.set()

    def part(self, security: str) -> Mapping[str, Any]:
        own = {"host": "127.0.0.1", "port": self.port, "security": security}
        return {**own, "user_env": "SMTP_USER", "password_env": "SMTP_PASSWORD"}

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # whoever waits for somebody to come goes on
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
    held: list[smtplib.SMTP] = []  # what nobody holds any more is closed by itself

    def fail(connection: smtplib.SMTP) -> None:
        held.append(connection)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"), signed_in(server.part("none"), {}, SOON) as connection:
        fail(connection)
    assert server.hung_up.wait(SOON)


SECRETS = {"SMTP_USER": "me", "SMTP_PASSWORD": "canary-77"}


def told(server: Plain, home: Path) -> Places:
    places = founded(home)
    told = {"host": "127.0.0.1", "port": server.port, "security": "none", "from": "k@home.example"}
    (places.config / "envoy.yaml").write_text(yaml.safe_dump({"email": {**told, "to": "me@home.example"}}))
    return places


def test_an_account_that_is_taken_sends_nothing(server: Plain, home: Path) -> None:
    said = EmailService().try_it(told(server, home), SECRETS)
    assert said == "127.0.0.1 takes the account; mail goes to me@home.example"
    assert server.hung_up.wait(SOON)
    assert server.heard == [b"EHLO", b"AUTH", b"QUIT"]


def test_a_password_that_is_not_taken_is_refused_without_a_word_of_it(server: Plain, home: Path) -> None:
    server.to_password = b"535 not canary-77"
    with pytest.raises(ServiceRefused) as refused:
        EmailService().try_it(told(server, home), SECRETS)
    assert str(refused.value) == "the mail server refuses: it does not take the password (535)"


def test_a_server_that_turns_people_away_is_down_in_a_few_words(server: Plain, home: Path) -> None:
    server.greeting = b"554 " + b"x" * 300
    with pytest.raises(ServiceDown) as down:
        EmailService().try_it(told(server, home), SECRETS)
    assert str(down.value.facts["why"]).startswith("SMTPConnectError: (554, b'xxx")
    assert len(str(down.value.facts["why"])) == 200


def test_an_account_that_env_does_not_name_is_asked_for(server: Plain, home: Path) -> None:
    with pytest.raises(ServiceRefused, match=r"\.env has no SMTP_USER, which email\.user_env names"):
        EmailService().try_it(told(server, home), {"SMTP_PASSWORD": "canary-77"})
    assert server.heard == []
